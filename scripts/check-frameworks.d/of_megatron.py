"""Steps of Megatron-core, its CUDA calls replaced: the schedule, the gradients' reductions and the optimizer are its own."""

import json
from unittest import mock

import torch

# Functions that it compiles run as they are written.
with mock.patch.object(torch, "compile", lambda function=None, **_: function or (lambda inner: inner)):
    import megatron.core

import megatron.core.tensor_parallel.random as randomness
from cuda_replaced import replace_cuda
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
from megatron.core.distributed.fsdp.mcore_fsdp_adapter import FullyShardedDataParallel
from megatron.core.fusions import fused_softmax
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec, get_gpt_mtp_block_spec
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.optimizer.layer_wise_optimizer import LayerWiseDistributedOptimizer, tag_params_for_buffer_routing
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.transformer import TransformerConfig
from megatron.core.transformer.module import Float16Module
from megatron.core.transformer.moe import token_dispatcher
from megatron.core.transformer.moe.router import TopKRouter
from megatron.core.transformer.multi_token_prediction import mtp_on_this_rank
from megatron.core.transformer.torch_norm import WrappedTorchNorm
from megatron.core.utils import get_attr_wrapped_model, get_batch_on_this_tp_rank
from recorder import Recorder, configuration
from small_model import FOLDER, SEQUENCE, batch

# The other calls are those of Megatron-LM's training script, which is not in the package.
SMALL = "--small-calls norm"


def transformer_config(fields, choices):
    experts = {}
    if fields["model_type"] == "mixtral":
        experts = {
            "num_moe_experts": fields["num_local_experts"],
            "moe_router_topk": fields["num_experts_per_tok"],
            "moe_ffn_hidden_size": fields["intermediate_size"],
            "moe_router_load_balancing_type": "none",
            "moe_aux_loss_coeff": 0.0,
        }
    return TransformerConfig(
        num_layers=fields["num_hidden_layers"],
        hidden_size=fields["hidden_size"],
        ffn_hidden_size=fields["intermediate_size"],
        num_attention_heads=fields["num_attention_heads"],
        num_query_groups=fields["num_key_value_heads"],
        kv_channels=fields.get("head_dim"),
        gated_linear_unit=True,
        activation_func=torch.nn.functional.silu,
        normalization="RMSNorm",
        add_bias_linear=False,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        bf16=True,
        params_dtype=torch.bfloat16,
        pipeline_dtype=torch.bfloat16,
        use_cpu_initialization=True,
        gradient_accumulation_fusion=False,
        masked_softmax_fusion=False,
        bias_dropout_fusion=False,
        bias_activation_fusion=False,
        apply_rope_fusion=False,
        persist_layer_norm=False,
        **(experts | choices),
    )


def norm(_, config, hidden_size, eps=1e-5, **__):
    """PyTorch's norm, of which each rank sees a part of the sequence, as Transformer Engine's may."""
    made = torch.nn.RMSNorm(hidden_size, eps=eps)
    made.weight.sequence_parallel = config.sequence_parallel
    return made


def gating(router, tokens):
    """Every expert gets as many tokens as any other."""
    logits = torch.nn.functional.linear(tokens.float(), router.weight.float())
    count, experts = logits[..., 0].numel(), logits.shape[-1]
    chosen = (torch.arange(count).unsqueeze(1) * router.topk + torch.arange(router.topk)).remainder(experts)
    added = torch.zeros(count, experts).scatter(1, chosen, 100.0)
    return (logits + added.reshape(logits.shape)).to(router.config.params_dtype if router.config.moe_router_dtype is None else torch.float32)


def causal_mask(length):
    """On the CPU where a layer is repeated too: there the mode that replaces devices does not reach."""
    return torch.ones(length, length).triu(diagonal=1).bool()


def on_host(tensor, as_numpy=False, record_stream=False):
    """Counts are on the host already."""
    return tensor.numpy() if as_numpy and torch.is_tensor(tensor) else tensor


def model_chunks(fields, config, settings):
    stages = settings.get("virtual") or 1
    tp = parallel_state.get_tensor_model_parallel_world_size()
    vocabulary = -(-fields["vocab_size"] // (128 * tp)) * 128 * tp
    reduced = DistributedDataParallelConfig(grad_reduce_in_fp32=True, overlap_grad_reduce=settings["overlap"],
                                            use_distributed_optimizer=settings["shared"],
                                            overlap_param_gather=settings["overlap"] and settings["shared"],
                                            bucket_size=settings["bucket"], use_megatron_fsdp=settings["fsdp"],
                                            data_parallel_sharding_strategy="optim_grads_params" if settings["fsdp"] else "no_shard",
                                            num_distributed_optimizer_instances=settings["instances"],
                                            outer_dp_sharding_strategy=settings["outer"])
    chunks = []
    for number in range(stages):
        place = {"vp_stage": number} if stages > 1 else {}
        first = parallel_state.is_pipeline_first_stage(ignore_virtual=stages == 1, **place)
        last = parallel_state.is_pipeline_last_stage(ignore_virtual=stages == 1, **place)
        spec = get_gpt_decoder_block_spec(config, use_transformer_engine=False, normalization="RMSNorm", **place)
        ahead = None
        if config.mtp_num_layers:
            ahead = get_gpt_mtp_block_spec(config, spec, use_transformer_engine=False, **place)
        model = GPTModel(config, spec, vocabulary, SEQUENCE, pre_process=first, post_process=last, position_embedding_type="rope",
                         share_embeddings_and_output_weights=settings["tied"], mtp_block_spec=ahead, **place)
        chunks.append(Float16Module(config, model))
    if settings["fsdp"]:
        with mock.patch.object(torch.cuda, "current_device", lambda: 0):  # it makes the name of a device of that
            return [FullyShardedDataParallel(config, reduced, chunk) for chunk in chunks]
    wrapped = []
    for number, chunk in enumerate(chunks):
        layout = {}
        if settings["layer_wise"]:
            tag_params_for_buffer_routing([chunk])
            ranks = parallel_state.get_data_parallel_world_size(with_context_parallel=True)
            size = settings["bucket"] or max(40_000_000, 1_000_000 * ranks)
            layout["full_param_layout"] = LayerWiseDistributedOptimizer.compute_full_param_layout(
                list(chunk.parameters()), size if settings["overlap"] and number == 0 else None, ranks, reduced)
        wrapped.append(DistributedDataParallel(config, reduced, chunk, disable_bucketing=number > 0, **layout))
    return wrapped


def broadcast_batch(what, chunk):
    """The batch from the first rank of tp, on the stages where Megatron-LM's pretrain_gpt.py asks for it."""
    number, mask = get_attr_wrapped_model(chunk, "vp_stage"), what == "fields_and_mask"
    ends = parallel_state.is_pipeline_first_stage, parallel_state.is_pipeline_last_stage
    predicts = mtp_on_this_rank(mtp_num_layers=chunk.config.mtp_num_layers, ignore_virtual=False, vp_stage=number)
    if not predicts and not any(is_end(ignore_virtual=number is None, vp_stage=number) for is_end in ends):
        return
    tp = parallel_state.get_tensor_model_parallel_group()
    words = batch()
    fields = {"tokens": words, "labels": words, "position_ids": words, "loss_mask": torch.ones(1, SEQUENCE),
              "attention_mask": causal_mask(SEQUENCE).reshape(1, 1, SEQUENCE, SEQUENCE) if mask else None}
    for absent in ("cu_seqlens", "cu_seqlens_padded", "max_seqlen", "local_cp_size", "hybrid_cp_group"):
        fields[absent] = None
    get_batch_on_this_tp_rank(
        fields, has_cu_seqlens=False, is_hybrid_cp=False, create_attention_mask_in_dataloader=mask,
        broadcast_src_rank=parallel_state.get_tensor_model_parallel_src_rank(), broadcast_group=tp,
        cp_size=parallel_state.get_context_parallel_world_size(), tp_rank=tp.rank(), micro_batch_size=1, seq_length=SEQUENCE,
        mtp_on_this_rank=predicts, pipeline_model_parallel_size=parallel_state.get_pipeline_model_parallel_world_size(),
        is_pipeline_first_stage=ends[0](), is_pipeline_last_stage=ends[1](),
    )


def forward_step(per_token, sent):
    def loss_of(losses):
        if per_token:
            return losses.sum(), torch.tensor(SEQUENCE, dtype=torch.int), {}
        return losses.mean(), {}

    def step(iterator, model):
        if sent != "none":
            broadcast_batch(sent, model)
        tokens = batch()
        positions = torch.arange(SEQUENCE).reshape(1, SEQUENCE)
        return model(tokens, positions, None, labels=tokens), loss_of

    return step


EXPERTS = {"model": "mixtral", "moe_token_dispatcher_type": "alltoall"}
ALL_TO_ALL = "--dispatcher all_to_all"
COUNTS = {"moe_router_load_balancing_type": "aux_loss", "moe_aux_loss_coeff": 0.01}
GLOBAL_COUNTS = {"moe_router_load_balancing_type": "global_aux_loss", "moe_aux_loss_coeff": 0.01}
BIAS = {"moe_router_enable_expert_bias": True, "moe_router_score_function": "sigmoid"}
RECOMPUTE = {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
SEQUENCE_PARALLEL = {"sequence_parallel": True}


# What Megatron-LM broadcasts of each batch where nothing else is asked for.
BY_ITSELF = "fields_and_mask"


def run_of(name, ranks, flags, **choices):
    tokens = ",tokens" if choices.get("calculate_per_token_loss") else ""
    sent = choices.get("sent", "none")
    sent = "" if sent == BY_ITSELF else f" --batch-broadcast {sent}"
    return configuration(f"megatron-{name}", ranks, f"--framework megatron {flags} {SMALL}{tokens}{sent}", **choices)


@run_of("tp-2", 2, "--tp 2 --micro-batches 2", tp=2)
@run_of("tp-4", 4, "--tp 4 --micro-batches 1", tp=4, accumulated=1)
@run_of("tp-2-recomputed", 2, "--tp 2 --micro-batches 2 --recompute full", tp=2, **RECOMPUTE)
@run_of("tp-2-fused", 2, "--tp 2 --micro-batches 2 --fused-cross-entropy", tp=2, cross_entropy_loss_fusion=True)
@run_of("sp-2", 2, "--tp 2 --micro-batches 2 --sequence-parallel", tp=2, **SEQUENCE_PARALLEL)
@run_of("sp-4", 4, "--tp 4 --micro-batches 2 --sequence-parallel", tp=4, **SEQUENCE_PARALLEL)
@run_of("sp-2-recomputed", 2, "--tp 2 --micro-batches 2 --sequence-parallel --recompute full", tp=2, **SEQUENCE_PARALLEL, **RECOMPUTE)
@run_of("dp-2", 2, "--dp 2 --micro-batches 2")
@run_of("dp-2-buckets", 2, "--dp 2 --micro-batches 2 --no-overlap-gradients=false", overlap=True)
@run_of("dp-2-shared", 2, "--dp 2 --micro-batches 2 --data-style zero1", shared=True)
@run_of("dp-4-shared", 4, "--dp 4 --micro-batches 2 --data-style zero1", shared=True)
@run_of("dp-2-tokens", 2, "--dp 2 --micro-batches 2 --data-style zero1", shared=True, calculate_per_token_loss=True)
@run_of("sp-2-dp-2", 4, "--tp 2 --dp 2 --micro-batches 2 --sequence-parallel --data-style zero1", tp=2, shared=True, **SEQUENCE_PARALLEL)
@run_of("pp-3", 3, "--pp 3 --micro-batches 4", pp=3, accumulated=4)
@run_of("pp-3-last", 3, "--pp 3 --micro-batches 4", stage=2, rank=2, pp=3, accumulated=4)
@run_of("pp-2-tp-2", 4, "--pp 2 --tp 2 --micro-batches 4 --sequence-parallel", model="mistral", pp=2, tp=2, accumulated=4, **SEQUENCE_PARALLEL)
@run_of("pp-2-tied", 2, "--pp 2 --micro-batches 4", model="qwen2", pp=2, accumulated=4, tied=True, add_qkv_bias=True)
@run_of("pp-2-tokens", 2, "--pp 2 --micro-batches 4", model="mistral", stage=1, rank=1, pp=2, accumulated=4, calculate_per_token_loss=True)
@run_of("pp-2-interleaved", 2, "--pp 2 --virtual-stages 2 --micro-batches 4", model="mistral", pp=2, virtual=2, accumulated=4)
@run_of("pp-2-interleaved-last", 2, "--pp 2 --virtual-stages 2 --micro-batches 4", model="mistral", stage=1, rank=1, pp=2, virtual=2,
        accumulated=4)
@run_of("ep-2", 2, f"--ep 2 --dp 2 --micro-batches 2 {ALL_TO_ALL}", ep=2, **EXPERTS)
@run_of("ep-2-fp32", 2, f"--ep 2 --dp 2 --micro-batches 2 {ALL_TO_ALL} --router-type fp32", ep=2, moe_router_dtype="fp32", **EXPERTS)
@run_of("ep-4", 4, f"--ep 4 --dp 4 --micro-batches 1 {ALL_TO_ALL}", ep=4, accumulated=1, **EXPERTS)
@run_of("ep-2-recomputed", 2, f"--ep 2 --dp 2 --micro-batches 2 {ALL_TO_ALL} --recompute full", ep=2, **EXPERTS, **RECOMPUTE)
@run_of("ep-2-gathered", 2, "--ep 2 --dp 2 --micro-batches 2", ep=2, model="mixtral", moe_token_dispatcher_type="allgather")
@run_of("ep-2-tp-2", 4, f"--tp 2 --ep 2 --etp 1 --dp 2 --micro-batches 2 {ALL_TO_ALL} --sequence-parallel", tp=2, ep=2, etp=1, **EXPERTS,
        **SEQUENCE_PARALLEL)
@run_of("ep-2-etp-2", 4, f"--tp 2 --etp 2 --ep 2 --dp 2 --micro-batches 2 {ALL_TO_ALL} --sequence-parallel", tp=2, ep=2, etp=2, **EXPERTS,
        **SEQUENCE_PARALLEL)
@run_of("ep-2-etp-2-gathered", 4, "--tp 2 --etp 2 --ep 2 --dp 2 --micro-batches 2 --sequence-parallel", tp=2, ep=2, etp=2, model="mixtral",
        moe_token_dispatcher_type="allgather", **SEQUENCE_PARALLEL)
@run_of("ep-2-shared", 4, f"--ep 2 --dp 4 --micro-batches 2 {ALL_TO_ALL} --data-style zero1", ep=2, shared=True, **EXPERTS)
@run_of("ep-2-counts", 4, f"--tp 2 --ep 2 --etp 1 --dp 2 --micro-batches 2 {ALL_TO_ALL} --sequence-parallel --balance-loss micro_batch", tp=2, ep=2, etp=1,
        **EXPERTS, **SEQUENCE_PARALLEL, **COUNTS)
@run_of("ep-2-bias", 4, f"--tp 2 --ep 2 --etp 1 --dp 2 --micro-batches 2 {ALL_TO_ALL} --sequence-parallel --expert-bias-update", tp=2, ep=2, etp=1,
        **EXPERTS, **SEQUENCE_PARALLEL, **BIAS)
@run_of("mtp", 2, "--tp 2 --micro-batches 2 --prediction-layers 1", tp=2, mtp_num_layers=1)
@run_of("mtp-sp", 2, "--tp 2 --micro-batches 2 --sequence-parallel --prediction-layers 1", tp=2, mtp_num_layers=1, **SEQUENCE_PARALLEL)
@run_of("ep-2-counts-recomputed", 4, f"--tp 2 --ep 2 --etp 1 --dp 2 --micro-batches 2 {ALL_TO_ALL} --sequence-parallel --recompute full "
        "--balance-loss micro_batch", tp=2, ep=2, etp=1, **EXPERTS, **SEQUENCE_PARALLEL, **COUNTS, **RECOMPUTE)
@run_of("ep-2-counts-global", 4, f"--ep 2 --dp 4 --micro-batches 2 {ALL_TO_ALL} --balance-loss global", ep=2, **EXPERTS, **GLOBAL_COUNTS)
@run_of("experts-dp", 2, "--dp 2 --micro-batches 2 --data-style zero1", model="mixtral", shared=True)
@run_of("experts-tp", 4, "--tp 2 --etp 1 --dp 2 --micro-batches 2 --sequence-parallel", model="mixtral", tp=2, etp=1, **SEQUENCE_PARALLEL)
@run_of("mtp-sp-recomputed", 2, "--tp 2 --micro-batches 2 --sequence-parallel --recompute full --prediction-layers 1", tp=2, mtp_num_layers=1,
        **SEQUENCE_PARALLEL, **RECOMPUTE)
@run_of("mtp-experts", 4, "--tp 2 --pp 2 --micro-batches 4 --sequence-parallel --prediction-layers 1", model="mixtral", stage=1, rank=2, tp=2,
        pp=2, accumulated=4, mtp_num_layers=1, **SEQUENCE_PARALLEL)
@run_of("mtp-2", 2, "--tp 2 --micro-batches 1 --sequence-parallel --prediction-layers 2", tp=2, accumulated=1, mtp_num_layers=2,
        **SEQUENCE_PARALLEL)
@run_of("mtp-dp", 2, "--dp 2 --micro-batches 2 --prediction-layers 1", mtp_num_layers=1)
@run_of("mtp-pp", 2, "--pp 2 --micro-batches 4 --prediction-layers 1", model="mistral", pp=2, accumulated=4, mtp_num_layers=1)
@run_of("mtp-pp-last", 4, "--pp 2 --dp 2 --micro-batches 4 --prediction-layers 1", model="mistral", stage=1, rank=2, pp=2, accumulated=4,
        mtp_num_layers=1)
@run_of("muon-2", 2, "--dp 2 --micro-batches 2 --data-style zero1 --bucket-rule layer_wise", shared=True, layer_wise=True)
@run_of("muon-3", 3, "--dp 3 --micro-batches 2 --data-style zero1 --bucket-rule layer_wise", shared=True, layer_wise=True)
@run_of("muon-4-buckets", 4, "--dp 4 --micro-batches 2 --data-style zero1 --bucket-rule layer_wise --no-overlap-gradients=false "
        "--bucket-parameters 30000", shared=True, layer_wise=True, overlap=True, bucket=30000)
@run_of("muon-tp-2", 2, "--tp 2 --micro-batches 2 --muon-tp-mode duplicated", tp=2, muon="duplicated")
@run_of("muon-tp-2-distributed", 2, "--tp 2 --micro-batches 2 --muon-tp-mode distributed", tp=2, muon="distributed")
@run_of("muon-tp-4", 4, "--tp 4 --micro-batches 1 --sequence-parallel --muon-tp-mode distributed", tp=4, accumulated=1, muon="distributed",
        **SEQUENCE_PARALLEL)
@run_of("muon-tp-2-dp-2", 4, "--tp 2 --dp 2 --micro-batches 2 --data-style zero1 --bucket-rule layer_wise --muon-tp-mode duplicated", tp=2,
        shared=True, layer_wise=True, muon="duplicated")
@run_of("muon-ep-2", 4, f"--tp 2 --ep 2 --etp 1 --dp 2 --micro-batches 2 {ALL_TO_ALL} --sequence-parallel --muon-tp-mode duplicated", tp=2, ep=2,
        etp=1, muon="duplicated", **EXPERTS, **SEQUENCE_PARALLEL)
@run_of("fsdp-2", 2, "--dp 2 --micro-batches 2 --data-style fsdp", fsdp=True)
@run_of("fsdp-4-buckets", 4, "--dp 4 --micro-batches 3 --data-style fsdp --bucket-parameters 20000", fsdp=True, bucket=20000, accumulated=3)
@run_of("fsdp-3", 3, "--dp 3 --micro-batches 1 --data-style fsdp", fsdp=True, accumulated=1)
@run_of("fsdp-recomputed", 2, "--dp 2 --micro-batches 2 --data-style fsdp --recompute full", fsdp=True, **RECOMPUTE)
# Norms lie at the end of what is sharded, on the second rank of dp.
@run_of("fsdp-tp-2", 4, "--tp 2 --dp 2 --micro-batches 2 --sequence-parallel --data-style fsdp", rank=2, tp=2, fsdp=True, **SEQUENCE_PARALLEL)
@run_of("fsdp-replicas", 4, "--dp 4 --micro-batches 2 --data-style hsdp --replicas-of-shards 2", fsdp=True, instances=2)
@run_of("fsdp-replicas-shared", 4, "--dp 4 --micro-batches 2 --data-style hsdp --replicas-of-shards 2 --outer-sharding optim", fsdp=True,
        instances=2, outer="optim")
@run_of("fsdp-replicas-shared-3", 4, "--dp 4 --micro-batches 3 --data-style hsdp --replicas-of-shards 2 --outer-sharding optim "
        "--bucket-parameters 20000", fsdp=True, bucket=20000, accumulated=3, instances=2, outer="optim")
@run_of("fsdp-experts", 4, f"--dp 4 --ep 2 --micro-batches 2 --data-style fsdp {ALL_TO_ALL}", ep=2, fsdp=True, **EXPERTS)
@run_of("batch", 2, "--tp 2 --micro-batches 2", tp=2, sent=BY_ITSELF)
@run_of("batch-fields", 4, "--tp 2 --dp 2 --micro-batches 3 --sequence-parallel", tp=2, accumulated=3, sent="fields", **SEQUENCE_PARALLEL)
@run_of("batch-pp", 4, "--pp 2 --tp 2 --micro-batches 4", model="mistral", pp=2, tp=2, accumulated=4, sent=BY_ITSELF)
@run_of("batch-pp-last", 4, "--pp 2 --tp 2 --micro-batches 4", model="mistral", stage=1, rank=2, pp=2, tp=2, accumulated=4, sent=BY_ITSELF)
@run_of("batch-pp-interleaved", 4, "--pp 2 --tp 2 --virtual-stages 2 --micro-batches 4", model="mistral", pp=2, tp=2, virtual=2, accumulated=4,
        sent=BY_ITSELF)
@run_of("batch-mtp-pp-last", 4, "--pp 2 --tp 2 --micro-batches 4 --prediction-layers 1", model="mistral", stage=1, rank=2, pp=2, tp=2,
        accumulated=4, mtp_num_layers=1, sent="fields")
def megatron(tp=1, pp=1, ep=1, etp=None, cp=1, accumulated=2, overlap=False, shared=False, bucket=None, virtual=None, tied=False,
             layer_wise=False, fsdp=False, instances=1, outer="no_shard", muon=None, sent="none", model="llama", **choices):
    replace_cuda()
    randomness._get_cuda_rng_state = lambda *_, **__: torch.zeros(1, dtype=torch.uint8)
    randomness._set_cuda_rng_state = lambda *_, **__: None
    WrappedTorchNorm.__new__, TopKRouter.gating, token_dispatcher.maybe_move_tensor_to_cpu = norm, gating, on_host
    parallel_state.initialize_model_parallel(
        tp, pp, virtual_pipeline_model_parallel_size=virtual, context_parallel_size=cp, expert_model_parallel_size=ep,
        expert_tensor_parallel_size=etp, create_gloo_process_groups=False, num_distributed_optimizer_instances=instances,
    )
    randomness.model_parallel_cuda_manual_seed(1)
    fused_softmax.get_default_causal_mask = causal_mask
    fields = json.loads((FOLDER / model / "config.json").read_text())
    config = transformer_config(fields, dict(
        tensor_model_parallel_size=tp, pipeline_model_parallel_size=pp, virtual_pipeline_model_parallel_size=virtual,
        context_parallel_size=cp, expert_model_parallel_size=ep, expert_tensor_parallel_size=etp or tp, **choices,
    ))
    shared, overlap = shared or fsdp, overlap or fsdp
    settings = {"overlap": overlap, "shared": shared, "fsdp": fsdp, "instances": instances, "bucket": bucket, "virtual": virtual, "tied": tied,
                "layer_wise": layer_wise, "outer": outer}
    chunks = model_chunks(fields, config, settings)
    optimizer = get_megatron_optimizer(OptimizerConfig(optimizer="muon" if layer_wise or muon else "adam", lr=1e-4, bf16=True,
                                                       muon_tp_mode=muon or "blockwise",
                                                       use_distributed_optimizer=shared and not layer_wise,
                                                       use_layer_wise_distributed_optimizer=layer_wise,
                                                       overlap_param_gather=overlap and shared, clip_grad=1.0), chunks,
                                       use_gloo_process_groups=False)
    config.finalize_model_grads_func = finalize_model_grads
    if overlap:
        # As training/training.py train sets them.
        config.no_sync_func = [chunk.no_sync for chunk in chunks] if virtual else chunks[0].no_sync
        if shared:
            optimizer.overlap_param_gather = True
    run = get_forward_backward_func()
    for _ in range(2):
        for chunk in chunks:
            chunk.zero_grad_buffer()
        optimizer.zero_grad()
        recorder = Recorder()
        with recorder:
            run(forward_step_func=forward_step(config.calculate_per_token_loss, sent), data_iterator=[None] * (virtual or 1),
                model=chunks if virtual else chunks[0], num_microbatches=accumulated, seq_length=SEQUENCE, micro_batch_size=1,
                forward_only=False)
            optimizer.step()
    return recorder
