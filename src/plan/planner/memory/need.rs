//! What a GPU needs for a step in addition to its parts, and whether it has that much.
//!
//! The CUDA context, libraries, NCCL's buffers and what the allocator reserves without use are measured, not derived, so a need is a range.

use commgauge_base::units::Bytes;
use commgauge_model::config::step::Framework;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whether a step fits into the memory of a GPU, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MemoryFit {
    /// With the largest overhead of published runs.
    Fits,
    /// With the smallest, not with the largest.
    AtTheEdge,
    /// Not even with the smallest.
    DoesNotFit,
}

/// Memory that a GPU needs for a step, as published runs of such parts show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryNeed {
    /// The least.
    #[serde(rename = "memory_bytes_low")]
    pub low: Bytes,
    /// The usual need.
    #[serde(rename = "memory_bytes")]
    pub middle: Bytes,
    /// The most.
    #[serde(rename = "memory_bytes_high")]
    pub high: Bytes,
}

/// What is needed in addition to the parts of a step: bytes of context, libraries and NCCL, and a share of the parts for the allocator.
#[derive(Clone, Copy)]
struct Overhead {
    bytes: f64,
    share: f64,
}

/// The least, the usual and the most: of BLOOM's runs in `suites/published/memory.csv`, and the least of all runs whose steps are published.
const USUAL: [Overhead; 3] =
    [Overhead { bytes: 1e9, share: 0.0 }, Overhead { bytes: 6e9, share: 0.15 }, Overhead { bytes: 8e9, share: 0.25 }];

/// With PyTorch's FSDP. torchtitan's runs print what the allocator reserved, without context and NCCL.
const FSDP: [Overhead; 3] =
    [Overhead { bytes: 1e9, share: -0.1 }, Overhead { bytes: 2e9, share: 0.0 }, Overhead { bytes: 3e9, share: 0.1 }];

impl MemoryNeed {
    /// For parts of these bytes under a framework.
    pub fn of(parts: Bytes, framework: Option<Framework>) -> MemoryNeed {
        let overheads = match framework {
            Some(Framework::Torchtitan | Framework::Fsdp1 | Framework::Fsdp2) => FSDP,
            _ => USUAL,
        };
        let [low, middle, high] =
            overheads.map(|Overhead { bytes, share }| Bytes((parts.0 as f64 * (1.0 + share) + bytes) as u64));
        MemoryNeed { low, middle, high }
    }

    /// Whether a GPU with this memory has it.
    pub fn fit(self, gpu_memory: Bytes) -> MemoryFit {
        match gpu_memory {
            enough if self.high <= enough => MemoryFit::Fits,
            some if self.low <= some => MemoryFit::AtTheEdge,
            _ => MemoryFit::DoesNotFit,
        }
    }
}
