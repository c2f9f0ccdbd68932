"""Forward passes of SGLang over a prefill: its model, its layers and its exchange between stages, on the CPU. The kernel of attention, which
needs memory for keys and values, is replaced by one that keeps the queries; groups have PyTorch's calls alone."""

import os

import torch
import torch.distributed as dist
from prompts import keep_calls_of_devices, keep_config, of_last_tokens, prefill, tokens_and_positions
from recorder import Recorder
from sglang.srt.distributed import parallel_state
from sglang.srt.layers.dp_attention import initialize_dp_attention
from sglang.srt.layers.radix_attention import RadixAttention
from sglang.srt.model_executor.forward_batch_info import ForwardMode, PPProxyTensors
from sglang.srt.models.llama import LlamaForCausalLM
from sglang.srt.runtime_context import get_parallel
from sglang.srt.server_args import ServerArgs, set_global_server_args_for_scheduler


class Prompts:
    """A batch of prompts and nothing else."""

    forward_mode = ForwardMode.EXTEND

    def __init__(self, tokens):
        self.input_ids = tokens

    def __getattr__(self, name):
        return None


def without_gpus(begin):
    """Groups without communicators of their own for GPUs."""
    def begin_without(*given, **named):
        begin(*given, **{key: False if key.startswith("use_") else value for key, value in named.items()})

    return begin_without


@prefill("sglang", "tp-2", 2, "--tp 2", tp=2)
@prefill("sglang", "tp-4", 4, "--tp 4", tp=4)
@prefill("sglang", "pp-2", 4, "--tp 2 --pp 2", model="mistral", tp=2, pp=2)
@prefill("sglang", "pp-2-last", 4, "--tp 2 --pp 2", model="mistral", stage=1, rank=2, tp=2, pp=2)
def sglang(tp=1, pp=1, model="llama"):
    folder = os.environ["RECORDED_MODEL"] + f".{dist.get_rank()}"
    config = keep_config(model, folder)
    arguments = ServerArgs(model_path=folder, skip_tokenizer_init=True, tp_size=tp, pp_size=pp, device="cpu")
    set_global_server_args_for_scheduler(arguments)
    parallel_state.GroupCoordinator.__init__ = without_gpus(parallel_state.GroupCoordinator.__init__)
    RadixAttention.forward = lambda self, query, key, value, *_, **__: query
    parallel_state.init_distributed_environment(dist.get_world_size(), dist.get_rank(), local_rank=dist.get_rank(), backend="gloo")
    parallel_state.initialize_model_parallel(backend="gloo")
    get_parallel().override_permanently(tp_rank=dist.get_rank() % tp, pp_rank=dist.get_rank() // tp)
    initialize_dp_attention(arguments)
    made = LlamaForCausalLM(config).to(torch.bfloat16)
    tokens, positions = tokens_and_positions()
    prompts = Prompts(tokens)
    stage, tensor = parallel_state.get_pp_group(), parallel_state.get_attn_tp_group()
    recorder = Recorder()
    with recorder, torch.no_grad():
        received = None if stage.is_first_rank else PPProxyTensors(stage.recv_tensor_dict(all_gather_group=tensor))
        passed = made.model(tokens, positions, prompts, pp_proxy_tensors=received)
        if stage.is_last_rank:
            made.logits_processor._get_logits(of_last_tokens(passed), made.lm_head, prompts)
        else:
            stage.send_tensor_dict(passed.tensors, all_gather_group=tensor)
    return keep_calls_of_devices(recorder)
