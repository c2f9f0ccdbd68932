//! Choices of a step in which frameworks differ from each other, each with the names that files and flags use.
//!
//! Their defaults are those of `commgauge ops` without a framework; which framework makes which choice is in `framework`.

use super::choices::choice;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

choice! {
    /// What is gathered together where parameters are sharded.
    UnitRule, "unit rule" {
        /// Every layer, and a root with embedding, last norm and head that is gathered for each pass.
        Layers = "layers",
        /// The same, but the root stays gathered from the forward to the backward pass (PyTorch's FSDP).
        RootKept = "root_kept",
        /// Embedding, every layer, and last norm with head, which stays gathered (torchtitan).
        EndsApart = "ends_apart",
        /// What the module at work needs, and what comes next up to a number of parameters; small ones stay (DeepSpeed's ZeRO-3).
        Modules = "modules",
        /// Every layer; the rest in buckets that are gathered in the first forward pass of a step, and kept (Megatron-FSDP).
        Buckets = "buckets",
    }
}

choice! {
    /// How often groups of shards add up their gradients.
    ReplicaReduction, "replica reduction" {
        /// Once in a step (PyTorch with `set_requires_all_reduce(False)` until the last micro-batch).
        Step = "step",
        /// In every micro-batch (PyTorch's default).
        MicroBatch = "micro_batch",
    }
}

choice! {
    /// What groups of shards that hold the same parameters share out among each other (Megatron-FSDP's `outer_dp_sharding_strategy`).
    OuterSharding, "outer sharding" {
        /// Nothing.
        NoShard = "no_shard",
        /// Optimizer state: gradients are reduce-scattered, and updated shards gathered.
        Optimizer = "optim",
    }
}

choice! {
    /// How gradients of micro-batches are added up where parameters are sharded.
    GradientAccumulation, "gradient accumulation" {
        /// Each rank adds up its shard: a reduction in every micro-batch (FSDP by itself).
        Sharded = "sharded",
        /// Each rank adds up all of them, and one reduction ends the step (PyTorch's `no_sync` and
        /// `set_requires_gradient_sync(False)` until the last micro-batch).
        Unsharded = "unsharded",
        /// As `sharded` on one stage; with a pipeline each stage keeps its parameters gathered until the last backward pass, and reduces
        /// once then (PyTorch's pipelines over FSDP, torchtitan).
        WholeStages = "whole_stages",
    }
}

choice! {
    /// How parameters that the optimizer updated in parts reach every rank (ZeRO-1).
    ParameterReturn, "parameter return" {
        /// Once.
        AllGather = "all_gather",
        /// Once for each optimizer: where experts have one of their own, all of them twice (Megatron-LM where nothing overlaps).
        EachOptimizer = "each_optimizer",
        /// Every tensor from the rank that updated it (PyTorch's `ZeroRedundancyOptimizer`).
        Broadcast = "broadcast",
        /// All tensors of a rank in one call (the same with `parameters_as_bucket_view`).
        BroadcastShares = "broadcast_shares",
        /// All tensors of every rank in one uneven call (Megatron-LM's layer-wise optimizer, as for Muon, without its layout of
        /// parameters, which is bucket rule `layer_wise`).
        GatherShares = "gather_shares",
    }
}

choice! {
    /// Which buffers of a model replicas copy from the first before a step.
    BroadcastBuffers, "broadcast buffers" {
        /// None.
        None = "none",
        /// The frequencies of rotary positions, as they are and as they began (transformers' models under PyTorch's DDP).
        Rotary = "rotary",
    }
}

choice! {
    /// Over which tokens a loss balances the load of experts: their counts are added up.
    BalanceLoss, "balance loss" {
        /// Those of the rank.
        None = "none",
        /// Those of a micro-batch, over tp and cp (Megatron-LM's `aux_loss` and `seq_aux_loss`).
        MicroBatch = "micro_batch",
        /// Those of all replicas too (`global_aux_loss`).
        Global = "global",
    }
}

choice! {
    /// How sharded gradients are reduced in ZeRO-1 and ZeRO-2.
    GradientReduction, "gradient reduction" {
        /// Each rank receives its shard.
        ReduceScatter = "reduce_scatter",
        /// Every rank receives all, and takes its shard (DeepSpeed's default).
        AllReduce = "all_reduce",
    }
}

choice! {
    /// How the parts of the ranks are handed to calls that gather and scatter them (ZeRO-3).
    ShardBuffers, "shard buffers" {
        /// One buffer.
        Flat = "flat",
        /// A list with a tensor for each rank, which the host copies one after another (DeepSpeed's ZeRO-3 of 2021).
        Listed = "listed",
    }
}

choice! {
    /// Who divides the linears of a layer, which decides how their input gradients are reduced and what is stored.
    TensorStyle, "tensor style" {
        /// Queries, keys and values are one linear, gate and up another, and parts of the sequence are gathered again backward.
        Megatron = "megatron",
        /// Every linear is divided alone (Hugging Face, PyTorch's DTensor): each reduces its own input gradient without sequence
        /// parallelism; with it a gathered input is stored whole.
        DTensor = "dtensor",
    }
}

choice! {
    /// How tensor parallelism divides embedding, output projection and loss.
    VocabularyStyle, "vocabulary style" {
        /// All three by vocabulary.
        Parallel = "parallel",
        /// Embedding and output projection, whose logits are gathered (Hugging Face).
        Gathered = "gathered",
    }
}

choice! {
    /// What drafts tokens ahead of the model that serves, for it to verify all of them in one pass.
    Drafter, "drafter" {
        /// The text so far: no model, and no message.
        Ngram = "ngram",
        /// A further layer with a dense feed-forward, of the model's width (EAGLE, arXiv 2401.15077).
        Eagle = "eagle",
        /// A prediction layer of the model, as its layers are (DeepSeek-V3, arXiv 2412.19437 section 2.2).
        Mtp = "mtp",
    }
}

choice! {
    /// What the vocabulary is padded to.
    VocabularyPadding, "vocabulary padding" {
        /// A multiple of 128 x tp (Megatron-LM's `--make-vocab-size-divisible-by`).
        Megatron = "megatron",
        /// A multiple of 64 that tp divides (`DEFAULT_VOCAB_PADDING_SIZE` of vLLM and SGLang).
        Vllm = "vllm",
        /// No more than tp needs.
        Even = "even",
    }
}

choice! {
    /// A small call around the optimizer that everybody waits for.
    SmallCall, "small call" {
        /// Counts of tokens that gradients are divided by.
        Tokens = "tokens",
        /// The count of tokens that the loss is divided by, before the first forward pass (torchtitan).
        BatchTokens = "batch_tokens",
        /// Whether a gradient overflowed.
        Overflow = "overflow",
        /// The same as a byte (DeepSpeed).
        OverflowByte = "overflow_byte",
        /// The gradient norm.
        Norm = "norm",
        /// The same in double precision (DeepSpeed's ZeRO-3).
        NormDouble = "norm_double",
        /// The norm of every tensor, all together (PyTorch's `clip_grad_norm_` of sharded gradients).
        NormTensors = "norm_tensors",
        /// Whether all were updated, and the norm for the log.
        Status = "status",
        /// The mean loss for the log.
        Loss = "loss",
    }
}

choice! {
    /// How tokens reach their experts while a model serves.
    ServingDispatcher, "dispatcher" {
        /// all_to_all_v there and back.
        AllToAll = "all_to_all",
        /// Every rank gathers the tokens of all replicas, and results are reduce-scattered.
        AllGather = "all_gather",
        /// Every rank of tp has all tokens already, and results are all-reduced.
        AllReduce = "all_reduce",
        /// A token goes once to every node with an expert of it, and is forwarded there (DeepEP, for throughput).
        DeepEp = "deepep",
        /// A token goes straight to each of its experts (DeepEP, for low latency).
        DeepEpLowLatency = "deepep_low_latency",
    }
}

impl ServingDispatcher {
    /// Whether DeepEP exchanges tokens, which may be in 8 bits.
    pub fn is_deep_ep(self) -> bool {
        matches!(self, ServingDispatcher::DeepEp | ServingDispatcher::DeepEpLowLatency)
    }
}

choice! {
    /// Among which ranks everything but attention is divided while a model serves.
    FeedForwardRanks, "ranks of the feed-forward" {
        /// Those of tp: each replica has all of it.
        Replica = "replica",
        /// All of a stage, tp and dp together: the replicas' tokens come together behind attention, and part again (SGLang's
        /// data-parallel attention).
        Stage = "stage",
    }
}

choice! {
    /// In what pieces replicas that prefill send the keys and values of their requests to those that decode.
    KvTransfer, "transfer of keys and values" {
        /// Those of each request and layer as the layer is done, while the next ones are at work (vLLM's P2pNcclConnector, which
        /// 0.33 has no more).
        Layer = "layer",
        /// Those of each request and all layers of a stage, behind the pass (vLLM's NixlConnector, which reads them from there).
        Request = "request",
    }
}

choice! {
    /// How the outputs of attention over parts of a context are put together.
    DecodeContextExchange, "exchange of a shared context" {
        /// Sums of exponentials are gathered, and weighed outputs added up and parted in the type of the activations (vLLM's `ag_rs`).
        ReduceScatter = "reduce_scatter",
        /// Outputs and sums of exponentials go to the ranks of their heads, in two calls (arXiv 2507.07120; vLLM's `a2a` before 0.33).
        AllToAll = "all_to_all",
        /// The same in one call (vLLM's and SGLang's `a2a`).
        Packed = "packed",
        /// Sums of exponentials are gathered; outputs are added up in float32 and parted with latent attention, and added up to all heads
        /// otherwise (SGLang's `ag_rs`).
        HeadSums = "head_sums",
    }
}

choice! {
    /// Which of the tokens that the ranks of tp have in common each of them gives to the experts of other replicas.
    ExpertTokens, "tokens of a rank for experts" {
        /// A part each, whose results are gathered on tp.
        Parts = "parts",
        /// All of them, to the rank of the same place in each replica; what experts give is added up over tp.
        Whole = "whole",
    }
}

choice! {
    /// How the other stages of a pipeline learn what the last one has sampled.
    SampledTokens, "way of sampled tokens" {
        /// The last stage tells all others, and how many of each request (vLLM).
        Broadcast = "broadcast",
        /// Each stage passes them on to the next, around to the last (SGLang).
        Ring = "ring",
    }
}

choice! {
    /// How the tokens of replicas come together where the feed-forward is divided among all of them.
    TokenExchange, "token exchange" {
        /// all_gather before it, and reduce_scatter of its sums behind it, with equally many tokens of each.
        AllGather = "all_gather",
        /// all_reduce of a buffer with everybody's tokens, before and behind.
        AllReduce = "all_reduce",
    }
}

impl SmallCall {
    /// Those of Megatron-LM's training loop with all that it may do.
    pub const DEFAULT: [SmallCall; 5] =
        [SmallCall::Tokens, SmallCall::Overflow, SmallCall::Norm, SmallCall::Status, SmallCall::Loss];
}

impl VocabularyPadding {
    /// Words of a vocabulary with its padding, so that each of `ranks` has an equal share.
    pub fn padded(self, words: u64, ranks: u64) -> u64 {
        match self {
            VocabularyPadding::Megatron => words.next_multiple_of(128 * ranks),
            VocabularyPadding::Vllm => words.next_multiple_of(64).next_multiple_of(ranks),
            VocabularyPadding::Even => words.next_multiple_of(ranks),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vocabulary_is_padded_as_each_framework_does() {
        // GPT-2's 50,257 words on tp 1 and tp 8.
        for (padding, one, eight) in [
            (VocabularyPadding::Megatron, 50_304, 51_200),
            (VocabularyPadding::Vllm, 50_304, 50_304),
            (VocabularyPadding::Even, 50_257, 50_264),
        ] {
            assert_eq!([padding.padded(50_257, 1), padding.padded(50_257, 8)], [one, eight], "{padding}");
        }
    }
}
