//! Duration of the passes of one stage: its computing, and the exposed communication.
//!
//! An overlapped call costs the time by which it exceeds what hides it: on tp the concurrent gradient product, on a ring of cp attention,
//! on dp the whole pass. Calls hidden by the same work run one after another. The slowdown of computing by an overlapping call counts
//! towards the call.

use crate::planner::compute::{ChunkCompute, Compute, StageCompute};
use commgauge_base::units::Seconds;
use commgauge_model::config::step::Recompute;
use commgauge_model::layout::Axis;
use commgauge_model::workload::op::{End, Moment, Overlap, Pass, When};
use commgauge_model::workload::step::TrainingStep;
use commgauge_model::workload::{Op, Style};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// An attention backward has five products where a forward has two (arXiv 2205.14135, appendix B).
const ATTENTION_BACKWARD: f64 = 2.5;

/// A call of a stage and the time of one execution.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timed<'a> {
    pub op: &'a Op,
    pub seconds: f64,
}

/// Times of a stage in a step, in seconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Passes {
    /// A micro-batch through each of its chunks.
    pub chunks: Vec<ChunkPasses>,
    /// Before the first forward pass can begin.
    pub before: Exposed,
    /// After the last backward pass, before the optimizer: waits of this stage only.
    pub after: Exposed,
    /// Overlapping with the optimizer: waits of all stages.
    pub last: Exposed,
    pub optimizer: f64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(in crate::planner) struct ChunkPasses {
    pub compute: ChunkCompute,
    pub exposed_forward: Exposed,
    pub exposed_backward: Exposed,
    pub forward: f64,
    pub backward: f64,
    /// The part of the backward pass that computes weight gradients, if a schedule runs it separately.
    pub weight_gradient: f64,
}

impl Passes {
    pub fn of(step: &TrainingStep, stage: u32, calls: &[Timed], work: &StageWork) -> Passes {
        let chunks: Vec<ChunkPasses> = (0..step.stages.chunks())
            .map(|chunk| {
                let work = work.of_chunk(chunk as usize);
                let calls = calls.iter().filter_map(|call| {
                    let (pass, count) = count_in_chunk(step, stage, chunk, &call.op.when)?;
                    Some((call.op, pass, call.seconds * count))
                });
                Loads::of(work, calls).passes()
            })
            .collect();
        let mut passes = Passes { chunks, optimizer: work.compute.optimizer.0, ..Passes::default() };
        let once = Once::of(calls.iter().copied(), work.lost_beside_calls);
        passes.before = once.before(passes.forward());
        passes.after = once.after(passes.backward());
        passes.last = once.last;
        passes
    }

    /// A micro-batch forward through all chunks.
    pub fn forward(&self) -> f64 {
        self.chunks.iter().map(|chunk| chunk.forward).sum()
    }

    pub fn backward(&self) -> f64 {
        self.chunks.iter().map(|chunk| chunk.backward).sum()
    }
}

/// The calls of a stage that occur once per step, before hiding.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::planner) struct Once {
    before: Exposed,
    overlapped_first: Hidden,
    after: Exposed,
    overlapped_last: Hidden,
    /// Exposed time for which all stages wait together.
    pub last: Exposed,
    lost_beside_calls: f64,
}

impl Once {
    pub(super) fn of<'a>(calls: impl Iterator<Item = Timed<'a>>, lost_beside_calls: f64) -> Once {
        let mut once = Once { lost_beside_calls, ..Once::default() };
        for call in calls {
            let When::Step { moment, calls } = call.op.when else { continue };
            let seconds = call.seconds * calls as f64;
            let together = call.op.axis == Axis::Embedding || call.op.style == Style::Control;
            match (moment, call.op.overlap.is_exposed()) {
                (Moment::FirstForward, true) => *once.before.of_op(call.op) += seconds,
                (Moment::FirstForward, false) => once.overlapped_first.add(call.op, seconds),
                (Moment::LastBackward, false) => once.overlapped_last.add(call.op, seconds),
                (Moment::LastBackward, true) => *once.after.of_op(call.op) += seconds,
                // Calls across several stages, and sequences of small calls, run after all stages are done.
                (Moment::AfterBackward, _) if together => *once.last.of_op(call.op) += seconds,
                (Moment::AfterBackward, _) => *once.after.of_op(call.op) += seconds,
                (Moment::Optimizer, _) => *once.last.of_op(call.op) += seconds,
            }
        }
        once
    }

    /// Exposed time before the first forward pass, which takes `forward` seconds.
    pub fn before(&self, forward: f64) -> Exposed {
        self.before.plus(self.overlapped_first.exposed_in(forward, self.lost_beside_calls))
    }

    /// Exposed time after the last backward pass, which takes `backward` seconds.
    pub fn after(&self, backward: f64) -> Exposed {
        self.after.plus(self.overlapped_last.exposed_in(backward, self.lost_beside_calls))
    }
}

/// All load that a micro-batch adds to a chunk, before hiding. Loads of layers add up to the load of their chunk.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::planner) struct Loads {
    work: ChunkWork,
    exposed_forward: Exposed,
    exposed_backward: Exposed,
    /// Overlapping with the weight gradient, the input gradient, attention forward, attention recomputed and attention backward.
    overlapped: [Hidden; 5],
    /// Overlapping with the whole pass, forward and backward.
    overlapped_pass: [Hidden; 2],
}

impl Loads {
    /// Passes of a chunk with this computing time and these calls, each with its number in the passes of a
    /// micro-batch.
    pub fn of<'a>(work: ChunkWork, calls: impl Iterator<Item = (&'a Op, Pass, f64)>) -> Loads {
        let mut loads = Loads { work, ..Loads::default() };
        for (op, pass, seconds) in calls {
            let forward = pass == Pass::Forward;
            match op.overlap {
                Overlap::Exposed if forward => *loads.exposed_forward.of_op(op) += seconds,
                Overlap::Exposed => *loads.exposed_backward.of_op(op) += seconds,
                Overlap::WeightGradient => loads.overlapped[0].add(op, seconds),
                Overlap::InputGradient => loads.overlapped[1].add(op, seconds),
                Overlap::Attention if forward => loads.overlapped[2].add(op, seconds),
                // A ring in a recomputed forward pass overlaps with the recomputed attention.
                Overlap::Attention if pass == Pass::Recompute => loads.overlapped[3].add(op, seconds),
                Overlap::Attention => loads.overlapped[4].add(op, seconds),
                _ => loads.overlapped_pass[usize::from(!forward)].add(op, seconds),
            }
        }
        loads
    }

    /// Adds `count` times these loads.
    pub fn plus(&mut self, other: &Loads, count: f64) {
        let add = |sum: &mut Seconds, more: Seconds| sum.0 += count * more.0;
        let (own, more) = (&mut self.work.compute, &other.work.compute);
        add(&mut own.forward, more.forward);
        add(&mut own.recompute, more.recompute);
        add(&mut own.input_gradient, more.input_gradient);
        add(&mut own.weight_gradient, more.weight_gradient);
        self.work.attention = [0, 1].map(|part| self.work.attention[part] + count * other.work.attention[part]);
        self.work.lost_beside_calls = other.work.lost_beside_calls;
        self.exposed_forward = self.exposed_forward.plus(other.exposed_forward.times(count));
        self.exposed_backward = self.exposed_backward.plus(other.exposed_backward.times(count));
        let hidden = self.overlapped.iter_mut().chain(&mut self.overlapped_pass);
        for (sum, more) in hidden.zip(other.overlapped.iter().chain(&other.overlapped_pass)) {
            sum.0 = sum.0.plus(more.0.times(count));
        }
    }

    /// The exposed rest of all calls after hiding as much as possible.
    pub fn passes(&self) -> ChunkPasses {
        let ChunkWork { compute, attention: [attention, again], lost_beside_calls } = self.work;
        let windows =
            [compute.weight_gradient.0, compute.input_gradient.0, attention, again, ATTENTION_BACKWARD * again];
        let mut own = ChunkPasses {
            compute,
            exposed_forward: self.exposed_forward,
            exposed_backward: self.exposed_backward,
            weight_gradient: compute.weight_gradient.0,
            ..ChunkPasses::default()
        };
        for (index, (hidden, window)) in self.overlapped.iter().zip(windows).enumerate() {
            let pass = if index == 2 { &mut own.exposed_forward } else { &mut own.exposed_backward };
            *pass = pass.plus(hidden.exposed_in(window, lost_beside_calls));
        }
        let forward = compute.forward.0 + own.exposed_forward.total();
        let backward = compute.backward().0 + own.exposed_backward.total();
        own.exposed_forward = own.exposed_forward.plus(self.overlapped_pass[0].exposed_in(forward, lost_beside_calls));
        own.exposed_backward =
            own.exposed_backward.plus(self.overlapped_pass[1].exposed_in(backward, lost_beside_calls));
        own.forward = compute.forward.0 + own.exposed_forward.total();
        own.backward = compute.backward().0 + own.exposed_backward.total();
        own
    }
}

/// The pass of a call, and its number in one micro-batch's pass through one chunk of a stage.
pub(super) fn count_in_chunk(step: &TrainingStep, stage: u32, chunk: u32, when: &When) -> Option<(Pass, f64)> {
    let layers = step.stages.layers_of_chunk(stage, chunk);
    match *when {
        When::Layer { pass, kind, calls_per_layer, .. } => {
            let in_pass = step.layers_in_pass(pass, layers).iter();
            let of_kind = in_pass.filter(|layer| step.is_of_kind(**layer, kind)).count();
            Some((pass, calls_per_layer as f64 * of_kind as f64))
        }
        When::MicroBatch { pass, end, calls, .. } => {
            let [has_input, has_output] = step.stages.ends_of_chunk(stage, chunk).map(|has| f64::from(u8::from(has)));
            let share = match end {
                End::Input => has_input,
                End::BeforeOutput | End::Output => has_output,
                End::Whole => 1.0 / f64::from(step.stages.chunks()),
            };
            Some((pass, calls as f64 * share))
        }
        When::Outside | When::Boundary { .. } | When::Step { .. } => None,
    }
}

/// Calls hidden by the same work.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Hidden(Exposed);

impl Hidden {
    fn add(&mut self, op: &Op, seconds: f64) {
        *self.0.of_op(op) += seconds;
    }

    /// The part that exceeds the window, and the slowdown of the computing in it, divided in the same proportions.
    fn exposed_in(&self, window: f64, lost_beside_calls: f64) -> Exposed {
        let total = self.0.total();
        if total <= 0.0 {
            return Exposed::default();
        }
        let hidden = total.min(window);
        self.0.times((total - hidden + lost_beside_calls * hidden) / total)
    }
}

// Computing of stages of a kind, and the work that can hide calls.

/// Host time of a copy that C++ code starts in a loop: the start of a kernel without Python. (NVIDIA measured 3.8 us per kernel in a long
/// sequence, "Getting Started with CUDA Graphs"; PyTorch's dispatch is extra.) Chosen with table 2 of arXiv 2104.04473 in view; see
/// docs/evidence.md.
const SECONDS_PER_COPY: f64 = 5e-6;

#[derive(Clone, Debug)]
pub(super) struct StageWork {
    /// The passes and the optimizer.
    pub compute: StageCompute,
    /// Attention in a forward pass through each chunk, and through its trained layers; empty if it hides no call.
    attention: Vec<[f64; 2]>,
    /// Share of its speed that computing loses while a call overlaps with it.
    pub lost_beside_calls: f64,
}

/// Computing of a chunk in a micro-batch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(in crate::planner) struct ChunkWork {
    /// Its passes.
    pub compute: ChunkCompute,
    /// Seconds of attention in a forward pass, and in that of trained layers.
    pub attention: [f64; 2],
    /// Share of its speed that computing loses while a call overlaps with it.
    pub lost_beside_calls: f64,
}

impl StageWork {
    /// For a stage; `hides` says whether attention hides a call.
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

    pub fn of_chunk(&self, chunk: usize) -> ChunkWork {
        ChunkWork {
            compute: self.compute.chunks.get(chunk).copied().unwrap_or_default(),
            attention: self.attention.get(chunk).copied().unwrap_or_default(),
            lost_beside_calls: self.lost_beside_calls,
        }
    }
}

/// Seconds in which the host starts the copies of a call whose parts are a list. The host waits for the call before it starts them, so they
/// add to its time.
pub(super) fn copies_seconds(op: &Op) -> f64 {
    op.copies_per_call as f64 * SECONDS_PER_COPY
}

/// Whether attention hides calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hides {
    /// Those of a ring.
    Calls,
    /// None.
    Nothing,
}

/// Seconds of attention in a forward pass through each chunk, and through its trained layers: the work that selective recomputation
/// repeats.
fn attention(step: &TrainingStep, stage: u32, compute: &Compute) -> Vec<[f64; 2]> {
    let of = |trainable_layers: Option<u32>| {
        let mut training = step.training.clone();
        training.data.trained.trainable_layers = trainable_layers;
        (training.tensor.recompute, training.tensor.recompute_modules) = (Recompute::Selective, None);
        let selective = TrainingStep { training: &training, ..step.clone() };
        compute.stage(&selective, stage).chunks.into_iter().map(|chunk| chunk.recompute.0).collect::<Vec<_>>()
    };
    let all = of(None);
    let trained = step.training.data.trained.trainable_layers.map_or_else(|| all.clone(), |layers| of(Some(layers)));
    all.into_iter().zip(trained).map(<[f64; 2]>::from).collect()
}

// Seconds for which a rank waits for communication, by axis.

/// Seconds of a step in which a rank only waits for communication, by axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Exposed {
    /// Tensor and sequence parallelism, vocabulary and loss.
    pub tp: f64,
    /// Context parallelism.
    pub cp: f64,
    /// Expert parallelism, with tensor parallelism inside experts.
    pub ep: f64,
    /// Data parallelism: gradients and parameters, of dense layers and of experts.
    pub dp: f64,
    /// Messages between stages.
    pub pp: f64,
    /// Gradients of an embedding that the first and the last stage share.
    pub embedding: f64,
    /// Norms, flags and counts that all ranks wait for.
    pub control: f64,
}

impl Exposed {
    /// The names, in the order of [`Exposed::values`].
    pub const NAMES: [&'static str; 7] = ["tp", "cp", "ep", "dp", "pp", "embedding", "control"];

    /// All parts, in the order of their names.
    pub fn values(&self) -> [f64; 7] {
        [self.tp, self.cp, self.ep, self.dp, self.pp, self.embedding, self.control]
    }

    /// All parts together.
    pub fn total(&self) -> f64 {
        self.values().iter().sum()
    }

    /// The part to which an op's waiting counts.
    pub(super) fn of_op(&mut self, op: &Op) -> &mut f64 {
        match (op.style, op.axis) {
            (Style::Control, _) => &mut self.control,
            (_, Axis::Cp | Axis::CpInner | Axis::CpOuter | Axis::Dcp) => &mut self.cp,
            (_, Axis::Ep | Axis::EtpEp | Axis::Etp | Axis::EpInner | Axis::EpOuter) => &mut self.ep,
            (_, Axis::Dp | Axis::DpCp | Axis::Edp | Axis::DpShard | Axis::DpReplicate) => &mut self.dp,
            (_, Axis::DpShardInner | Axis::DpShardOuter) => &mut self.dp,
            (_, Axis::Pp | Axis::Pair | Axis::PrefillDecode) => &mut self.pp,
            (_, Axis::Embedding) => &mut self.embedding,
            (Style::Expert, Axis::TpCp | Axis::TpCpDp) => &mut self.ep,
            (_, Axis::Tp | Axis::TpCp | Axis::TpCpDp | Axis::Mp | Axis::ExpertMp) => &mut self.tp,
            (_, Axis::World | Axis::Node | Axis::Nodes) => &mut self.tp,
        }
    }

    /// The sum of two.
    pub(super) fn plus(self, other: Exposed) -> Exposed {
        self.each(other, |a, b| a + b)
    }

    /// Multiplied by a factor.
    pub(super) fn times(self, factor: f64) -> Exposed {
        self.each(self, |a, _| a * factor)
    }

    /// The larger of both on each axis.
    pub(super) fn larger(self, other: Exposed) -> Exposed {
        self.each(other, f64::max)
    }

    fn each(self, other: Exposed, of: impl Fn(f64, f64) -> f64) -> Exposed {
        let (own, others) = (self.values(), other.values());
        let [tp, cp, ep, dp, pp, embedding, control] = std::array::from_fn(|part| of(own[part], others[part]));
        Exposed { tp, cp, ep, dp, pp, embedding, control }
    }
}

// Why a step has no price.

/// Why a step has no price: the call without a predicted time, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unpriced {
    /// The call, in words.
    pub call: String,
    /// Why there is no answer.
    pub reason: String,
}

impl fmt::Display for Unpriced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.call, self.reason)
    }
}
