//! The choices of a step that change its bytes, each with the names that files and flags use.
//!
//! Their defaults are in `training` and `serving`; which framework makes which choice is in `suites/frameworks/`.

/// A choice among names.
pub(super) trait Choice: Copy + FromStr<Err = String> {
    /// All of them, in the order in which they are listed to users.
    const NAMES: &'static [&'static str];

    /// The name of this one.
    fn name(self) -> &'static str;
}

/// Enums whose members have names, readable from text with an error that lists them.
macro_rules! choices {
    ($($(#[$doc:meta])* $name:ident, $what:literal {
        $($(#[$member_doc:meta])* $member:ident = $text:literal,)+
    })+) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
        pub enum $name {
            $($(#[$member_doc])* #[serde(rename = $text)] $member,)+
        }

        impl $name {
            /// Every choice, in the order in which they are listed to users.
            pub const ALL: &[$name] = &[$($name::$member,)+];

            /// The name in files and flags.
            pub fn name(self) -> &'static str {
                match self { $($name::$member => $text,)+ }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }

        impl Choice for $name {
            const NAMES: &'static [&'static str] = &[$($text,)+];

            fn name(self) -> &'static str {
                $name::name(self)
            }
        }

        impl FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> std::result::Result<Self, String> {
                $name::ALL.iter().copied().find(|choice| choice.name() == text).ok_or_else(|| {
                    format!("found {} `{text}`; accepted: {}", $what, <$name as Choice>::NAMES.join(", "))
                })
            }
        }
    )+ };
}

pub(super) use choices;
pub use commgauge_base::geometry::Routing;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

choices! {
    /// What the backward pass computes again instead of keeping it.
    Recompute, "recomputation" {
        /// Nothing.
        None = "none",
        /// The core attention only (arXiv 2205.05198 section 5): no communication is repeated.
        Selective = "selective",
        /// Every layer from its input: the forward communications are repeated.
        Full = "full",
    }

    /// A part of a layer that selective recomputation repeats (Megatron-LM core/transformer/transformer_config.py recompute_modules).
    RecomputeModule, "module" {
        /// The core attention.
        CoreAttention = "core_attn",
        /// The up-projections of latent attention.
        LatentUp = "mla_up_proj",
        /// The norms before the blocks.
        Norms = "layernorm",
        /// The feed-forward of layers without experts.
        FeedForward = "mlp",
        /// Router, exchanges and experts.
        Experts = "moe",
        /// The activation function of routed experts.
        ExpertActivation = "moe_act",
        /// The shared experts.
        SharedExperts = "shared_experts",
    }

    /// A linear of a block that may have an adapter (NVIDIA Megatron-Bridge peft/lora.py `target_modules`).
    LoraModule, "module" {
        /// From the hidden width to attention: queries, keys and values, or what linear attention projects.
        Qkv = "qkv",
        /// From attention back.
        Proj = "proj",
        /// Into a feed-forward: gate and up, of experts too.
        Fc1 = "fc1",
        /// Out of it.
        Fc2 = "fc2",
    }

    /// Which layers full recomputation repeats together.
    RecomputeMethod, "method" {
        /// A number of them at a time, from the input of the first, until all are.
        Uniform = "uniform",
        /// A number of them at the start of each chunk, each from its input, and no others.
        Block = "block",
    }

    /// How the linear layers of a tensor-parallel block are divided.
    Linears, "linears" {
        /// Column-parallel, then row-parallel: the gather between them vanishes (arXiv 1909.08053 section 3).
        Pair = "pair",
        /// Every linear layer column-parallel alone, its output gathered.
        Column = "column",
        /// Every linear layer row-parallel alone, its output reduced.
        Row = "row",
    }

    /// What data parallelism shards.
    DataStyle, "data style" {
        /// Nothing: gradients are all-reduced once per step.
        Ddp = "ddp",
        /// Optimizer state (ZeRO-1, Megatron-LM's distributed optimizer).
        Zero1 = "zero1",
        /// Optimizer state and gradients (DeepSpeed's ZeRO-2: reduced in every micro-batch).
        Zero2 = "zero2",
        /// Parameters too (ZeRO-3), gathered for every use.
        Zero3 = "zero3",
        /// The same by PyTorch's FSDP, which may keep parameters between forward and backward.
        Fsdp = "fsdp",
        /// FSDP within groups of shards, replicated over the groups.
        Hsdp = "hsdp",
    }

    /// How gradients are cut into buckets.
    BucketRule, "bucket rule" {
        /// `max(40e6, 1e6 dp)` parameters; a single bucket on later pipeline stages (Megatron-LM).
        Megatron = "megatron",
        /// 25 MiB of gradients, a first bucket of 1 MiB (PyTorch's DistributedDataParallel).
        PyTorch = "pytorch",
        /// 500e6 parameters, closed before the tensor that would pass them (DeepSpeed's `reduce_bucket_size`).
        DeepSpeed = "deepspeed",
        /// As `megatron`, with matrices in buckets of their own that are padded so that each is whole on the rank that updates it
        /// (Megatron-LM's layer-wise optimizer, as for Muon).
        LayerWise = "layer_wise",
    }

    /// A family of pipeline schedules: the order in which the stages work.
    ScheduleKind, "schedule" {
        /// One micro-batch in flight, one rank active.
        Naive = "naive",
        /// All forwards, then all backwards (arXiv 1811.06965).
        GPipe = "gpipe",
        /// One forward, one backward (arXiv 2104.04473 section 2.2.1).
        OneForwardOneBackward = "1f1b",
        /// 1F1B over several chunks per rank (arXiv 2104.04473 section 2.2.2).
        Interleaved = "interleaved",
        /// 1F1B with its weight gradients moved into the bubble by hand (arXiv 2401.10241 section 2.1).
        ZbH1 = "zb-h1",
        /// Twice the forwards in flight, no bubble where F = B = W (arXiv 2401.10241 section 2.2).
        ZbH2 = "zb-h2",
        /// Searched within the memory of 1F1B (arXiv 2401.10241 section 3).
        Zb1p = "zb-1p",
        /// Searched within twice the memory of 1F1B (arXiv 2401.10241 section 3).
        Zb2p = "zb-2p",
        /// Two chunks in a V, the memory of 1F1B (arXiv 2401.10241 section 6, arXiv 2405.15362).
        ZbV = "zb-v",
        /// Two chunks in a V, half the memory of 1F1B (arXiv 2405.15362).
        VHalf = "v-half",
        /// Two chunks in a V, a third of the memory of 1F1B (arXiv 2405.15362).
        VMin = "v-min",
        /// Micro-batches from both ends over two copies of the model (arXiv 2412.19437 section 3.2.1).
        DualPipe = "dualpipe",
        /// DualPipe cut in half and folded to a V: one copy of the model.
        DualPipeV = "dualpipe-v",
        /// Interleaved 1F1B with its weight gradients moved into the bubble (PyTorch's `ScheduleInterleavedZeroBubble`).
        InterleavedZb = "interleaved-zb",
    }

    /// How attention sees the keys and values of other ranks' tokens.
    ContextStyle, "context style" {
        /// Blocks of keys and values go around the ring.
        Ring = "ring",
        /// Keys and values are gathered (Llama 3).
        AllGather = "all_gather",
        /// Heads are exchanged for tokens (Ulysses).
        AllToAll = "all_to_all",
        /// all_to_all in inner groups, a ring over the outer ones.
        Hybrid = "hybrid",
        /// Keys and values are gathered, and their gradients go round a ring (PyTorch's `context_parallel`).
        PyTorch = "pytorch",
    }

    /// How tokens reach their experts.
    Dispatcher, "dispatcher" {
        /// all_to_all_v there and back.
        AllToAll = "all_to_all",
        /// Every rank gathers all tokens, and results are reduce-scattered.
        AllGather = "all_gather",
        /// A token goes once to every node with an expert of it, and is forwarded there (DeepEP).
        DeepEp = "deepep",
        /// The same with domains of NVLink for nodes (HybridEP of Megatron-LM).
        HybridEp = "hybrid_ep",
    }

    /// What is gathered together where parameters are sharded.
    UnitRule, "unit rule" {
        /// Every layer, and a root with embedding, last norm and head that is gathered for each pass.
        Layers = "layers",
        /// The same, but the root stays gathered from the forward to the backward pass (PyTorch's FSDP).
        RootKept = "root_kept",
        /// Embedding, every layer, and last norm with head, which stays gathered (torchtitan).
        EndsApart = "ends_apart",
        /// What the active module needs, and what comes next up to a number of parameters; small ones stay (DeepSpeed's ZeRO-3).
        Modules = "modules",
        /// Every layer; the rest in buckets that are gathered in the first forward pass of a step, and kept (Megatron-FSDP).
        Buckets = "buckets",
    }

    /// How often groups of shards add up their gradients.
    ReplicaReduction, "replica reduction" {
        /// Once in a step (PyTorch with `set_requires_all_reduce(False)` until the last micro-batch).
        Step = "step",
        /// In every micro-batch (PyTorch's default).
        MicroBatch = "micro_batch",
    }

    /// What groups of shards that hold the same parameters shard among each other (Megatron-FSDP's `outer_dp_sharding_strategy`).
    OuterSharding, "outer sharding" {
        /// Nothing.
        NoShard = "no_shard",
        /// Optimizer state: gradients are reduce-scattered, and updated shards gathered.
        Optimizer = "optim",
    }

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

    /// Which buffers of a model replicas copy from the first before a step.
    BroadcastBuffers, "broadcast buffers" {
        /// None.
        None = "none",
        /// The frequencies of rotary positions, as they are and as they began (transformers' models under PyTorch's DDP).
        Rotary = "rotary",
    }

    /// Over which tokens a loss balances the load of experts: their counts are added up.
    BalanceLoss, "balance loss" {
        /// Those of the rank.
        None = "none",
        /// Those of a micro-batch, over tp and cp (Megatron-LM's `aux_loss` and `seq_aux_loss`).
        MicroBatch = "micro_batch",
        /// Those of all replicas too (`global_aux_loss`).
        Global = "global",
    }

    /// How sharded gradients are reduced in ZeRO-1 and ZeRO-2.
    GradientReduction, "gradient reduction" {
        /// Each rank receives its shard.
        ReduceScatter = "reduce_scatter",
        /// Every rank receives all, and takes its shard (DeepSpeed's default).
        AllReduce = "all_reduce",
    }

    /// How the parts of the ranks are handed to calls that gather and scatter them (ZeRO-3).
    ShardBuffers, "shard buffers" {
        /// One buffer.
        Flat = "flat",
        /// A list with a tensor for each rank, which the host copies one after another (the runs of arXiv 2104.04473 table 2).
        Listed = "listed",
    }

    /// Who divides the linears of a layer, which decides how their input gradients are reduced and what is stored.
    TensorStyle, "tensor style" {
        /// Queries, keys and values are one linear, gate and up another, and parts of the sequence are gathered again backward.
        Megatron = "megatron",
        /// Every linear is divided alone (Hugging Face, PyTorch's DTensor): each reduces its own input gradient without sequence
        /// parallelism; with it a gathered input is stored whole.
        DTensor = "dtensor",
    }

    /// How tensor parallelism divides embedding, output projection and loss.
    VocabularyStyle, "vocabulary style" {
        /// All three by vocabulary.
        Parallel = "parallel",
        /// Embedding and output projection, whose logits are gathered (Hugging Face).
        Gathered = "gathered",
    }

    /// What drafts tokens ahead of the model that serves, for it to verify all of them in one pass.
    Drafter, "drafter" {
        /// The text so far: no model, and no message.
        Ngram = "ngram",
        /// A further layer with a dense feed-forward, of the model's width (EAGLE, arXiv 2401.15077).
        Eagle = "eagle",
        /// A prediction layer of the model, as its layers are (DeepSeek-V3, arXiv 2412.19437 section 2.2).
        Mtp = "mtp",
    }

    /// What the vocabulary is padded to.
    VocabularyPadding, "vocabulary padding" {
        /// A multiple of 128 x tp (Megatron-LM's `--make-vocab-size-divisible-by`).
        Megatron = "megatron",
        /// A multiple of 64 that tp divides (`DEFAULT_VOCAB_PADDING_SIZE` of vLLM and SGLang).
        Vllm = "vllm",
        /// No more than tp needs.
        Even = "even",
    }

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

    /// Among which ranks everything but attention is divided while a model serves.
    FeedForwardRanks, "ranks of the feed-forward" {
        /// Those of tp: each replica has all of it.
        Replica = "replica",
        /// All of a stage, tp and dp together: the replicas' tokens come together behind attention, and part again (SGLang's
        /// data-parallel attention).
        Stage = "stage",
    }

    /// How the outputs of attention over parts of a context are put together.
    DecodeContextExchange, "exchange of a shared context" {
        /// Sums of exponentials are gathered, and weighed outputs added up and parted in the type of the activations (vLLM's `ag_rs`).
        ReduceScatter = "reduce_scatter",
        /// Outputs with their sums of exponentials go to the ranks of their heads (vLLM's and SGLang's `a2a`; arXiv 2507.07120).
        Packed = "packed",
        /// Sums of exponentials are gathered; outputs are added up in float32 and parted with latent attention, and added up to all heads
        /// otherwise (SGLang's `ag_rs`).
        HeadSums = "head_sums",
    }

    /// Which of the tokens that the ranks of tp have in common each of them gives to the experts of other replicas.
    ExpertTokens, "tokens of a rank for experts" {
        /// A part each, whose results are gathered on tp.
        Parts = "parts",
        /// All of them, to the rank of the same place in each replica; what experts give is added up over tp.
        Whole = "whole",
    }

    /// How the other stages of a pipeline learn what the last one has sampled.
    SampledTokens, "way of sampled tokens" {
        /// The last stage tells all others, and how many of each request (vLLM).
        Broadcast = "broadcast",
        /// Each stage passes them on to the next, around to the last (SGLang).
        Ring = "ring",
    }

    /// How the tokens of replicas come together where the feed-forward is divided among all of them.
    TokenExchange, "token exchange" {
        /// all_gather before it, and reduce_scatter of its sums behind it, with equally many tokens of each.
        AllGather = "all_gather",
        /// all_reduce of a buffer with everybody's tokens, before and behind.
        AllReduce = "all_reduce",
    }

    /// In which form activations and their gradients are gathered for the linears of sequence parallelism (Transformer Engine).
    GatherRecipe, "gather recipe" {
        /// As they are.
        Plain = "plain",
        /// In 8 bits with one scale for each tensor, found from its largest element (`Float8CurrentScaling`).
        Fp8Current = "fp8_current",
        /// In 8 bits with a scale of 8 bits for each 32 elements (`MXFP8BlockScaling`).
        Mxfp8 = "mxfp8",
    }

    /// What hides the calls of sequence parallelism that a product waits for, or that wait for one.
    ProductOverlap, "product overlap" {
        /// Nothing.
        None = "none",
        /// The product itself, which works on the pieces that are there (`--tp-comm-overlap` of Megatron-LM, async TP of PyTorch).
        Pieces = "pieces",
    }

    /// What Muon orthogonalises where tensor parallelism divides a matrix (Megatron-LM's `muon_tp_mode`).
    MuonTensorMode, "mode of Muon" {
        /// Each rank its part: nothing is sent.
        Blockwise = "blockwise",
        /// Each rank the whole matrix, which is gathered.
        Duplicated = "duplicated",
        /// All ranks together: products of the parts are added up in each iteration.
        Distributed = "distributed",
    }

    /// What of each micro-batch the first rank of tp, which reads it, broadcasts to the others.
    BatchBroadcast, "batch broadcast" {
        /// Nothing: every rank reads it.
        None = "none",
        /// Tokens, labels, loss mask and positions (Megatron-LM with `--no-create-attention-mask-in-dataloader`).
        Fields = "fields",
        /// The mask of attention too, a byte for each two positions (Megatron-LM by itself).
        FieldsAndMask = "fields_and_mask",
    }
}

impl Dispatcher {
    /// Whether tokens go by way of nodes.
    pub fn goes_by_node(self) -> bool {
        matches!(self, Dispatcher::DeepEp | Dispatcher::HybridEp)
    }
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
    fn every_name_reads_back_and_others_are_refused_with_the_list() {
        assert!(ScheduleKind::ALL.iter().all(|schedule| schedule.name().parse() == Ok(*schedule)));
        assert!(DataStyle::ALL.iter().all(|style| style.name().parse() == Ok(*style)));
        let message = "zero4".parse::<DataStyle>().unwrap_err();
        assert_eq!(message, "found data style `zero4`; accepted: ddp, zero1, zero2, zero3, fsdp, hsdp");
    }

    #[test]
    fn routings_read_back_and_absurd_ones_are_refused() {
        for routing in [Routing::Uniform, Routing::Random, Routing::Zipf(1.5), Routing::Hot(0.25)] {
            assert_eq!(routing.to_string().parse(), Ok(routing));
        }
        for text in ["hot", "hot:1", "hot:0", "zipf:-1", "zipf:nan", "hot:nan", "even"] {
            assert!(text.parse::<Routing>().unwrap_err().contains("accepted: uniform"), "{text}");
        }
    }

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
