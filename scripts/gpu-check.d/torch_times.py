"""One rank of torch.distributed: all_reduce of float32 back to back, out of nothing but torch; rank 0 prints seconds for each size.
Every call has another part of memory, as ours have, so that none finds its data in the cache."""

import itertools
import os

import torch
import torch.distributed as dist

SIZES = [65536 * 4**power for power in range(7)]
WARM_UP, CALLS, BATCHES = 5, 20, 5
# Far beyond the cache of any GPU.
MEMORY = 1 << 29


def main():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    for size in SIZES:
        parts = torch.ones(MEMORY // 4, device="cuda").split(size // 4)
        for part in parts[:WARM_UP]:
            dist.all_reduce(part)
        turn = itertools.cycle(parts)
        seconds = []
        for _ in range(BATCHES):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            torch.cuda.synchronize()
            dist.barrier()
            begin.record()
            for _ in range(CALLS):
                dist.all_reduce(next(turn))
            end.record()
            torch.cuda.synchronize()
            seconds.append(begin.elapsed_time(end) * 1e-3 / CALLS)
        slowest = torch.tensor([sorted(seconds)[BATCHES // 2]], device="cuda")
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        if dist.get_rank() == 0:
            print("commgauge-peer", size, slowest.item(), flush=True)
        del parts, turn
    if dist.get_rank() == 0:
        # LD_LIBRARY_PATH may have put another in the way of its own.
        with open("/proc/self/maps") as maps:
            files = {line.split()[-1] for line in maps if "/libnccl" in line}
        print("commgauge-nccl", ".".join(map(str, torch.cuda.nccl.version())), *sorted(files), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
