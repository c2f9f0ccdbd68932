"""One rank of torch.distributed: all_reduce of float32 back to back, out of nothing but torch; rank 0 prints seconds for each size."""

import os

import torch
import torch.distributed as dist

SIZES = [65536 * 4**power for power in range(7)]
WARM_UP, CALLS, BATCHES = 5, 20, 5


def main():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    for size in SIZES:
        tensor = torch.ones(size // 4, device="cuda")
        for _ in range(WARM_UP):
            dist.all_reduce(tensor)
        seconds = []
        for _ in range(BATCHES):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            torch.cuda.synchronize()
            dist.barrier()
            begin.record()
            for _ in range(CALLS):
                dist.all_reduce(tensor)
            end.record()
            torch.cuda.synchronize()
            seconds.append(begin.elapsed_time(end) * 1e-3 / CALLS)
        slowest = torch.tensor([sorted(seconds)[BATCHES // 2]], device="cuda")
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        if dist.get_rank() == 0:
            print("commgauge-peer", size, slowest.item(), flush=True)
        del tensor
    if dist.get_rank() == 0:
        # LD_LIBRARY_PATH may have put another in the way of its own.
        with open("/proc/self/maps") as maps:
            files = {line.split()[-1] for line in maps if "/libnccl" in line}
        print("commgauge-nccl", ".".join(map(str, torch.cuda.nccl.version())), *sorted(files), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
