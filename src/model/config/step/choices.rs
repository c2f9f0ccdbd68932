//! The choices of a training step that change its bytes, each with the names that files and flags use.

pub use commgauge_base::geometry::Routing;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// An enum whose members have names, readable from text with an error that lists them.
macro_rules! choice {
    ($(#[$doc:meta])* $name:ident, $what:literal { $($(#[$member_doc:meta])* $member:ident = $text:literal,)+ }) => {
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

        impl std::str::FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> std::result::Result<Self, String> {
                $name::ALL.iter().copied().find(|choice| choice.name() == text).ok_or_else(|| {
                    let names: Vec<_> = $name::ALL.iter().map(|choice| choice.name()).collect();
                    format!("found {} `{text}`; accepted: {}", $what, names.join(", "))
                })
            }
        }
    };
}
pub(super) use choice;

choice! {
    /// What the backward pass computes again instead of keeping it.
    Recompute, "recomputation" {
        /// Nothing.
        None = "none",
        /// The core attention only (arXiv 2205.05198 section 5): no communication is repeated.
        Selective = "selective",
        /// Every layer from its input: the forward communications are repeated.
        Full = "full",
    }
}

choice! {
    /// How the linear layers of a tensor-parallel block are divided.
    Linears, "linears" {
        /// Column-parallel, then row-parallel: the gather between them vanishes (arXiv 1909.08053 section 3).
        Pair = "pair",
        /// Every linear layer column-parallel alone, its output gathered.
        Column = "column",
        /// Every linear layer row-parallel alone, its output reduced.
        Row = "row",
    }
}

choice! {
    /// What data parallelism shares out.
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
}

choice! {
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
}

choice! {
    /// A family of pipeline schedules: the order in which the stages work.
    ScheduleKind, "schedule" {
        /// One micro-batch in flight, one rank at work.
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
}

choice! {
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
}

choice! {
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
}

impl Dispatcher {
    /// Whether tokens go by way of nodes.
    pub fn goes_by_node(self) -> bool {
        matches!(self, Dispatcher::DeepEp | Dispatcher::HybridEp)
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
}
