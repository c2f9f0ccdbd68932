"""Forward passes of SGLang over a prefill or a decode: its model, its layers, its sampler, and what its scheduler passes from stage to stage, on the
CPU. The kernel of attention, which needs memory for keys and values, is replaced by one that keeps the queries; groups have PyTorch's calls
alone."""

import contextlib
import os
from collections import defaultdict, deque
from types import SimpleNamespace

import torch
import torch.distributed as dist
from prompts import REQUESTS, SEQUENCE, decode, keep_calls_of_devices, keep_config, of_last_tokens, prefill, tokens_and_positions
from recorder import Recorder
from sglang.srt.distributed import parallel_state
from sglang.srt.layers.dp_attention import initialize_dp_attention
from sglang.srt.layers.logits_processor import LogitsProcessorOutput
from sglang.srt.layers.moe import fused_moe_native
from sglang.srt.layers.moe.token_dispatcher import standard
from sglang.srt.layers.radix_attention import RadixAttention
from sglang.srt.layers.sampler import Sampler
from sglang.srt.managers.scheduler_pp_mixin import SchedulerPPMixin
from sglang.srt.managers.utils import GenerationBatchResult
from sglang.srt.model_executor.forward_batch_info import ForwardMode, PPProxyTensors
from sglang.srt.models.llama import LlamaForCausalLM
from sglang.srt.models.mixtral import MixtralForCausalLM
from sglang.srt.runtime_context import get_parallel
from sglang.srt.sampling.sampling_batch_info import SamplingBatchInfo
from sglang.srt.server_args import ServerArgs, set_global_server_args_for_scheduler


class Requests:
    """A batch of requests and nothing else."""

    def __init__(self, tokens, mode):
        self.input_ids, self.forward_mode = tokens, mode

    def __getattr__(self, name):
        return None


class Passing(SchedulerPPMixin):
    """Of a scheduler, what it takes to pass tensors on."""

    device_module, pp_comm_stream, pp_comm_stream_ctx = torch.cpu, None, contextlib.nullcontext()

    def __init__(self):
        self.pp_group, self.attn_tp_group = parallel_state.get_pp_group(), parallel_state.get_attn_tp_group()
        self._pp_tensor_dict_inbox = defaultdict(deque)

    def send(self, tensors, kind):
        self._pp_commit_comm_work(self._pp_send_dict_to_next_stage(tensors, msg_type=kind))

    def pass_on_sampled(self, result):
        """Each stage gets what the last one sampled, and passes it on, until the last one gets it."""
        if self.pp_group.is_last_rank:
            batch = SimpleNamespace(return_logprob=False)
            self.send(self._pp_prepare_tensor_dict(result, batch), "output")
        tensors, _ = self._pp_recv_dict_from_prev_stage()
        if not self.pp_group.is_last_rank:
            self.send(tensors, "output")


def without_gpus(begin):
    """Groups without communicators of their own for GPUs."""
    def begin_without(*given, **named):
        begin(*given, **{key: False if key.startswith("use_") else value for key, value in named.items()})

    return begin_without


def sample(logits):
    """Not greedily, which is the default of a request."""
    ones = torch.ones(REQUESTS)
    sampling = SamplingBatchInfo(ones[:, None], ones, ones, 0 * ones, False, False, False, False, False, vocab_size=logits.shape[-1], device="cpu")
    return Sampler()(LogitsProcessorOutput(next_token_logits=logits.float()), sampling, False, [], [], None)


@prefill("sglang", "tp-2", 2, "--tp 2", tp=2)
@prefill("sglang", "tp-4", 4, "--tp 4", tp=4)
@prefill("sglang", "pp-2", 4, "--tp 2 --pp 2", model="mistral", tp=2, pp=2)
@prefill("sglang", "pp-2-last", 4, "--tp 2 --pp 2", model="mistral", stage=1, rank=2, tp=2, pp=2)
@prefill("sglang", "pp-3", 3, "--pp 3", model="mistral", stage=1, rank=1, pp=3)
@prefill("sglang", "experts-tp-2", 2, "--tp 2", model="mixtral", tp=2)
@prefill("sglang", "experts-ep-2", 2, "--tp 2 --ep 2 --etp 1", model="mixtral", tp=2, ep=2)
@prefill("sglang", "experts-ep-2-tp-4", 4, "--tp 4 --ep 2 --etp 1", model="mixtral", tp=4, ep=2)
@decode("sglang", "tp-2", 2, "--tp 2", tp=2)
@decode("sglang", "tp-4", 4, "--tp 4", tp=4)
@decode("sglang", "pp-2", 4, "--tp 2 --pp 2", model="mistral", tp=2, pp=2)
@decode("sglang", "experts-tp-4", 4, "--tp 4", model="mixtral", tp=4)
@decode("sglang", "experts-ep-4", 4, "--tp 4 --ep 4 --etp 1", model="mixtral", tp=4, ep=4)
def sglang(tp=1, pp=1, ep=1, model="llama", tokens=SEQUENCE):
    folder = os.environ["RECORDED_MODEL"] + f".{dist.get_rank()}"
    config = keep_config(model, folder)
    arguments = ServerArgs(model_path=folder, skip_tokenizer_init=True, tp_size=tp, pp_size=pp, ep_size=ep, device="cpu")
    set_global_server_args_for_scheduler(arguments)
    parallel_state.GroupCoordinator.__init__ = without_gpus(parallel_state.GroupCoordinator.__init__)
    RadixAttention.forward = lambda self, query, key, value, *_, **__: query
    if ep > 1:
        # On the CPU it has no experts of other ranks: neither where a rank's own are, nor a kernel that leaves out the others.
        standard.get_device = lambda: "cpu"
        fused_moe_native.moe_forward_native = lambda layer, tokens, *_: tokens
    parallel_state.init_distributed_environment(dist.get_world_size(), dist.get_rank(), local_rank=dist.get_rank(), backend="gloo")
    parallel_state.initialize_model_parallel(backend="gloo")
    experts, parts = parallel_state.get_moe_ep_group(), parallel_state.get_moe_tp_group()
    get_parallel().override_permanently(tp_rank=dist.get_rank() % tp, pp_rank=dist.get_rank() // tp,
                                        moe_ep_rank=experts.rank_in_group, moe_tp_rank=parts.rank_in_group)
    initialize_dp_attention(arguments)
    kind = MixtralForCausalLM if model == "mixtral" else LlamaForCausalLM
    made = kind(config).to(torch.bfloat16)
    tokens, positions = tokens_and_positions(tokens)
    requests = Requests(tokens, ForwardMode.DECODE if len(tokens) == REQUESTS else ForwardMode.EXTEND)
    scheduler, stage = Passing(), parallel_state.get_pp_group()
    recorder, result = Recorder(), None
    with recorder, torch.no_grad():
        received = None if stage.is_first_rank else scheduler._pp_recv_proxy_tensors()
        passed = made.model(tokens, positions, requests, pp_proxy_tensors=received)
        if stage.is_last_rank:
            logits = made.logits_processor._get_logits(of_last_tokens(passed), made.lm_head, requests)
            result = GenerationBatchResult(next_token_ids=sample(logits))
        else:
            scheduler.send(passed.tensors, "proxy")
        if pp > 1:
            scheduler.pass_on_sampled(result)
    return keep_calls_of_devices(recorder)
