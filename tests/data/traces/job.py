# The job whose traces lie here: 4 processes on gloo that call as Megatron does with tp 2 and dp 2, in two steps.
import os, sys, torch, torch.distributed as dist, torch.multiprocessing as mp
def main(rank, world, out):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29513", TORCH_FR_BUFFER_SIZE="2000")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    tp = [dist.new_group([0,1]), dist.new_group([2,3])][rank//2]
    dp = [dist.new_group([0,2]), dist.new_group([1,3])][rank%2]
    import torch.profiler as P
    with P.profile(activities=[P.ProfilerActivity.CPU], record_shapes=True) as prof:
        for step in range(2):
            h = torch.ones(64, 32, dtype=torch.bfloat16)
            for layer in range(2):
                g = torch.empty(128, 32, dtype=torch.bfloat16)
                dist.all_gather_into_tensor(g, h, group=tp)
                dist.all_reduce(h, group=tp)
            dist.all_reduce(torch.ones(1000), group=dp)
            dist.broadcast(torch.ones(4), src=0)
            if rank < 2: dist.send(torch.ones(128, 32), rank+2)
            else: dist.recv(torch.ones(128, 32), rank-2)
            dist.barrier()
    prof.export_chrome_trace(f"{out}/kineto-rank{rank}.json")
    import torch._C._distributed_c10d as c
    open(f"{out}/fr_trace_rank_{rank}","wb").write(c._dump_fr_trace())
    open(f"{out}/fr_json_rank_{rank}.json","wb").write(c._dump_fr_trace_json())
    dist.destroy_process_group()
if __name__=="__main__":
    mp.spawn(main, (4, sys.argv[1]), 4)
