"""Forward passes of vLLM over a prefill or a decode: its model, its layers, its exchange between stages and what it says of sampled tokens, on its platform
for CPUs. The kernels of attention and of experts, for which it needs a build of its own, are replaced by ones that keep the queries and the tokens,
and the communicator is that of any device. Its own for CPUs lacks gathers and sums of parts, which that for GPUs makes of parts of one size; here PyTorch's
calls do."""

import os

os.environ.update(VLLM_TARGET_DEVICE="cpu", VLLM_LOGGING_LEVEL="ERROR")

from types import SimpleNamespace

import numpy as np
import torch
import torch.distributed as dist
from cuda_replaced import replace_cuda
from prompts import REQUESTS, decode, keep_calls_of_devices, keep_config, of_last_tokens, prefill, tokens_and_positions
from recorder import Recorder
from small_model import SEQUENCE
from vllm.config import CompilationConfig, DeviceConfig, ModelConfig, ParallelConfig, VllmConfig, set_current_vllm_config
from vllm.distributed import parallel_state
from vllm.distributed.device_communicators.all2all import AgRsAll2AllManager
from vllm.distributed.device_communicators.base_device_communicator import DeviceCommunicatorBase
from vllm.forward_context import set_forward_context
from vllm.model_executor.layers.attention.attention import Attention
from vllm.model_executor.layers.fused_moe.experts import cpu_moe
from vllm.model_executor.models.registry import ModelRegistry
from vllm.platforms import current_platform
from vllm.sequence import IntermediateTensors
from vllm.v1.worker.gpu.pp_utils import PPHandler


class Communicator(DeviceCommunicatorBase):
    """With what experts need, as `CudaCommunicator` has it where all ranks have as many tokens."""

    def __init__(self, *given, **named):
        super().__init__(*given, **named)
        if self.use_all2all:
            self.all2all_manager = AgRsAll2AllManager(self.cpu_group)

    def all_gatherv(self, parts, dim=0, sizes=None):
        return [self.all_gather(part, dim) for part in parts]

    def reduce_scatterv(self, whole, dim=-1, sizes=None):
        return self.reduce_scatter(whole, dim)

    def dispatch(self, *given, **named):
        return self.all2all_manager.dispatch(*given, **named)

    def combine(self, *given, **named):
        return self.all2all_manager.combine(*given, **named)


def keep_tokens(self, output, hidden_states, *_, **__):
    output.copy_(hidden_states)


def vllm_config(model, tp, pp, dp, ep):
    folder = os.environ["RECORDED_MODEL"] + f".{dist.get_rank()}"
    keep_config(model, folder)
    return VllmConfig(
        model_config=ModelConfig(model=folder, tokenizer=folder, skip_tokenizer_init=True, dtype="bfloat16", enforce_eager=True),
        parallel_config=ParallelConfig(tensor_parallel_size=tp, pipeline_parallel_size=pp, data_parallel_size=dp, data_parallel_rank=dist.get_rank() // tp % dp,
                                       enable_expert_parallel=ep > 1, distributed_executor_backend="external_launcher"),
        device_config=DeviceConfig(device="cpu"),
        compilation_config=CompilationConfig(custom_ops=["none"]),
    )


def tell_sampled_tokens(has_sampled, tokens):
    """As its workers do behind a pass."""
    handler = PPHandler(REQUESTS, 0, torch.device("cpu"))
    whole, scheduled = np.full(REQUESTS, SEQUENCE), np.full(REQUESTS, tokens)
    requests = SimpleNamespace(num_reqs=REQUESTS, num_draft_tokens=0, num_computed_tokens_np=whole - scheduled, num_scheduled_tokens=scheduled,
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
@prefill("vllm", "experts-tp-2", 2, "--tp 2", model="mixtral", tp=2)
@prefill("vllm", "experts-ep-2", 2, "--tp 2 --ep 2 --etp 1", model="mixtral", tp=2, ep=2)
@prefill("vllm", "experts-ep-2-dp-2", 2, "--dp 2 --ep 2", model="mixtral", dp=2, ep=2)
@prefill("vllm", "experts-ep-4", 4, "--tp 2 --dp 2 --ep 4 --etp 1", model="qwen3_moe", tp=2, dp=2, ep=4)
@prefill("vllm", "experts-whole-ep-4", 4, "--tp 2 --dp 2 --ep 4 --etp 1", model="mixtral", tp=2, dp=2, ep=4)
@decode("vllm", "tp-2", 2, "--tp 2", tp=2)
@decode("vllm", "tp-4", 4, "--tp 4", tp=4)
@decode("vllm", "pp-2", 4, "--tp 2 --pp 2", model="mistral", tp=2, pp=2)
@decode("vllm", "experts-tp-4", 4, "--tp 4", model="mixtral", tp=4)
@decode("vllm", "experts-ep-4", 4, "--tp 4 --ep 4 --etp 1", model="mixtral", tp=4, ep=4)
@decode("vllm", "experts-ep-4-dp-4", 4, "--dp 4 --ep 4", model="mixtral", dp=4, ep=4)
@decode("vllm", "experts-ep-4-dp-2", 4, "--tp 2 --dp 2 --ep 4 --etp 1", model="qwen3_moe", tp=2, dp=2, ep=4)
def vllm(tp=1, pp=1, dp=1, ep=1, model="llama", tokens=SEQUENCE):
    type(current_platform).get_device_communicator_cls = classmethod(lambda cls: f"{__name__}.Communicator")
    type(current_platform).use_custom_op_collectives = classmethod(lambda cls: False)
    Attention.forward = lambda self, query, key, value, **_: query
    cpu_moe.CPUUnquantizedExperts.apply = keep_tokens
    cpu_moe.cpu_prepack_moe_weight = lambda weight, _: weight
    config = vllm_config(model, tp, pp, dp, ep)
    with set_current_vllm_config(config):
        parallel_state.init_distributed_environment(dist.get_world_size(), dist.get_rank(), backend="gloo")
        parallel_state.initialize_model_parallel(tp, pp, backend="gloo")
        kind, _ = ModelRegistry.resolve_model_cls(config.model_config.architectures, config.model_config)
        made = kind(vllm_config=config).to(torch.bfloat16)
        for module in made.modules():
            module.cpu_linear = torch.nn.functional.linear
            if hasattr(module, "w13_weight"):
                module.quant_method.process_weights_after_loading(module)
        inputs, positions = tokens_and_positions(tokens)
        stage, tensor = parallel_state.get_pp_group(), parallel_state.get_tp_group()
        replace_cuda()
        torch.compiler.set_stance("force_eager")
        torch.Tensor.record_stream = lambda *_: None
        recorder = Recorder()
        everywhere = torch.full((dp,), len(inputs), dtype=torch.int32)
        with recorder, torch.no_grad(), set_forward_context(None, config, num_tokens=len(inputs), num_tokens_across_dp=everywhere):
            received = None if stage.is_first_rank else IntermediateTensors(stage.recv_tensor_dict(all_gather_group=tensor))
            passed = made(inputs, positions, received)
            if stage.is_last_rank:
                made.compute_logits(of_last_tokens(passed))
            else:
                stage.send_tensor_dict(passed.tensors, all_gather_group=tensor)
            if pp > 1:
                tell_sampled_tokens(stage.is_last_rank, tokens)
    return keep_calls_of_devices(recorder)
