"""Forward passes of vLLM over a prefill: its model, its layers, its exchange between stages and what it says of sampled tokens, on its platform
for CPUs. The kernel of attention, for which it needs a build of its own, is replaced by one that keeps the queries, and the communicator is
that of any device."""

import os

os.environ.update(VLLM_TARGET_DEVICE="cpu", VLLM_LOGGING_LEVEL="ERROR")

from types import SimpleNamespace

import numpy as np
import torch
import torch.distributed as dist
from cuda_replaced import replace_cuda
from prompts import REQUESTS, keep_calls_of_devices, keep_config, of_last_tokens, prefill, tokens_and_positions
from recorder import Recorder
from small_model import SEQUENCE
from vllm.config import CompilationConfig, DeviceConfig, ModelConfig, ParallelConfig, VllmConfig, set_current_vllm_config
from vllm.distributed import parallel_state
from vllm.forward_context import set_forward_context
from vllm.model_executor.layers.attention.attention import Attention
from vllm.model_executor.models.registry import ModelRegistry
from vllm.platforms import current_platform
from vllm.sequence import IntermediateTensors
from vllm.v1.worker.gpu.pp_utils import PPHandler


def vllm_config(model, tp, pp):
    folder = os.environ["RECORDED_MODEL"] + f".{dist.get_rank()}"
    keep_config(model, folder)
    return VllmConfig(
        model_config=ModelConfig(model=folder, tokenizer=folder, skip_tokenizer_init=True, dtype="bfloat16", enforce_eager=True),
        parallel_config=ParallelConfig(tensor_parallel_size=tp, pipeline_parallel_size=pp, distributed_executor_backend="external_launcher"),
        device_config=DeviceConfig(device="cpu"),
        compilation_config=CompilationConfig(custom_ops=["none"]),
    )


def tell_sampled_tokens(has_sampled):
    """As its workers do behind a pass."""
    handler = PPHandler(REQUESTS, 0, torch.device("cpu"))
    whole = np.full(REQUESTS, SEQUENCE)
    requests = SimpleNamespace(num_reqs=REQUESTS, num_draft_tokens=0, num_computed_tokens_np=0 * whole, num_scheduled_tokens=whole,
                               prefill_len_np=whole, max_seq_len_np=None, idx_mapping_np=np.arange(REQUESTS), idx_mapping=None)
    if has_sampled:
        counts = torch.ones(REQUESTS, dtype=torch.int32)
        handler.broadcast(torch.zeros(REQUESTS, 1, dtype=torch.int64), counts, 0 * counts, requests)
    else:
        handler.receive(requests, recv_drafts=False)


@prefill("vllm", "tp-2", 2, "--tp 2", tp=2)
@prefill("vllm", "tp-4", 4, "--tp 4", tp=4)
@prefill("vllm", "pp-2", 4, "--tp 2 --pp 2", model="mistral", tp=2, pp=2)
@prefill("vllm", "pp-2-last", 4, "--tp 2 --pp 2", model="mistral", stage=1, rank=2, tp=2, pp=2)
def vllm(tp=1, pp=1, model="llama"):
    communicator = "vllm.distributed.device_communicators.base_device_communicator.DeviceCommunicatorBase"
    type(current_platform).get_device_communicator_cls = classmethod(lambda cls: communicator)
    type(current_platform).use_custom_op_collectives = classmethod(lambda cls: False)
    Attention.forward = lambda self, query, key, value, **_: query
    config = vllm_config(model, tp, pp)
    with set_current_vllm_config(config):
        parallel_state.init_distributed_environment(dist.get_world_size(), dist.get_rank(), backend="gloo")
        parallel_state.initialize_model_parallel(tp, pp, backend="gloo")
        kind, _ = ModelRegistry.resolve_model_cls(config.model_config.architectures, config.model_config)
        made = kind(vllm_config=config).to(torch.bfloat16)
        for module in made.modules():
            module.cpu_linear = torch.nn.functional.linear
        tokens, positions = tokens_and_positions()
        stage, tensor = parallel_state.get_pp_group(), parallel_state.get_tp_group()
        replace_cuda()
        torch.Tensor.record_stream = lambda *_: None
        recorder = Recorder()
        with recorder, torch.no_grad(), set_forward_context(None, config, num_tokens=len(tokens)):
            received = None if stage.is_first_rank else IntermediateTensors(stage.recv_tensor_dict(all_gather_group=tensor))
            passed = made(tokens, positions, received)
            if stage.is_last_rank:
                made.compute_logits(of_last_tokens(passed))
            else:
                stage.send_tensor_dict(passed.tensors, all_gather_group=tensor)
            if pp > 1:
                tell_sampled_tokens(stage.is_last_rank)
    return keep_calls_of_devices(recorder)
