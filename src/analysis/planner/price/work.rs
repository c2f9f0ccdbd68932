//! Computing of stages of a kind, and what calls can hide beside.

use crate::planner::compute::{ChunkCompute, Compute, StageCompute};
use commgauge_model::config::step::Recompute;
use commgauge_model::workload::Op;
use commgauge_model::workload::step::TrainingStep;

/// Host time of a copy that C++ code starts in a loop: what starting a kernel takes where Python has no part in it. (NVIDIA measured
/// 3.8 us for each of many kernels in a row, "Getting Started with CUDA Graphs"; PyTorch's dispatch comes on top.) Chosen in sight of the
/// rows of table 2 of arXiv 2104.04473, as docs/evidence.md says.
const SECONDS_PER_COPY: f64 = 5e-6;

/// Computing of stages of a kind.
#[derive(Clone, Debug)]
pub(super) struct StageWork {
    /// The passes and the optimizer.
    pub compute: StageCompute,
    /// Attention in a forward pass through each chunk; empty if it hides no call.
    attention: Vec<f64>,
    /// Share of its speed that computing loses while a call runs beside it.
    pub lost_beside_calls: f64,
}

/// Computing of a chunk in a micro-batch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(in crate::planner) struct ChunkWork {
    /// Its passes.
    pub compute: ChunkCompute,
    /// Seconds of attention in a forward pass.
    pub attention: f64,
    /// Share of its speed that computing loses while a call runs beside it.
    pub lost_beside_calls: f64,
}

impl StageWork {
    /// Of a stage; `hides` says whether attention hides a call.
    pub fn of(step: &TrainingStep, stage: u32, compute: &Compute, attention_hides: Hides) -> StageWork {
        StageWork {
            compute: compute.stage(step, stage),
            attention: match attention_hides {
                Hides::Calls => attention(step, stage, compute),
                Hides::Nothing => Vec::new(),
            },
            lost_beside_calls: compute.lost_beside_calls,
        }
    }

    /// Of one of its chunks.
    pub fn of_chunk(&self, chunk: usize) -> ChunkWork {
        ChunkWork {
            compute: self.compute.chunks.get(chunk).copied().unwrap_or_default(),
            attention: self.attention.get(chunk).copied().unwrap_or(0.0),
            lost_beside_calls: self.lost_beside_calls,
        }
    }
}

/// Seconds in which the host starts the copies of a call whose parts are a list. They come on top of the call, which the host waits for
/// before it begins with them.
pub(super) fn copies_seconds(op: &Op) -> f64 {
    op.copies_per_call as f64 * SECONDS_PER_COPY
}

/// Whether attention hides calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hides {
    /// A ring's.
    Calls,
    /// None.
    Nothing,
}

/// Seconds of attention in a forward pass through each chunk: just what selective recomputation repeats.
fn attention(step: &TrainingStep, stage: u32, compute: &Compute) -> Vec<f64> {
    let mut training = step.training.clone();
    training.tensor.recompute = Recompute::Selective;
    let selective = TrainingStep { training: &training, ..step.clone() };
    compute.stage(&selective, stage).chunks.iter().map(|chunk| chunk.recompute.0).collect()
}
