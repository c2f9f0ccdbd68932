//! Duration of the passes of one stage: its computing, and the exposed communication.
//!
//! An overlapped call costs the time by which it exceeds what hides it: on tp the gradient product that runs beside
//! it, on a ring of cp attention, on dp the whole pass. Calls that are hidden by the same thing run one after another.
//! What computing loses while a call runs beside it counts to the call.

use super::exposed::Exposed;
use super::work::{ChunkWork, StageWork};
use crate::planner::compute::ChunkCompute;
use commgauge_base::units::Seconds;
use commgauge_model::layout::Axis;
use commgauge_model::workload::step::TrainingStep;
use commgauge_model::workload::when::{End, Moment, Overlap, Pass, When};
use commgauge_model::workload::{Op, Style};

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
    /// After the last backward pass, before the optimizer: what this stage alone waits for.
    pub after: Exposed,
    /// Beside the optimizer: what all wait for.
    pub last: Exposed,
    /// The optimizer.
    pub optimizer: f64,
}

/// One micro-batch through one chunk.
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
    /// Passes of a stage with these calls.
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

    /// And backward.
    pub fn backward(&self) -> f64 {
        self.chunks.iter().map(|chunk| chunk.backward).sum()
    }
}

/// The calls of a stage that occur once in a step, before the hidden part is known.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::planner) struct Once {
    before: Exposed,
    beside_first: Hidden,
    after: Exposed,
    beside_last: Hidden,
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
                (Moment::FirstForward, false) => once.beside_first.add(call.op, seconds),
                (Moment::LastBackward, false) => once.beside_last.add(call.op, seconds),
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
        self.before.plus(self.beside_first.beside(forward, self.lost_beside_calls))
    }

    /// Exposed time after the last backward pass, which takes `backward` seconds.
    pub fn after(&self, backward: f64) -> Exposed {
        self.after.plus(self.beside_last.beside(backward, self.lost_beside_calls))
    }
}

/// All load that a micro-batch adds to a chunk, before the hidden part is known. Loads of layers add up to those of
/// their chunk.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::planner) struct Loads {
    work: ChunkWork,
    exposed_forward: Exposed,
    exposed_backward: Exposed,
    /// Beside the weight gradient, the input gradient, attention forward, attention again and attention backward.
    beside: [Hidden; 5],
    /// Beside the whole pass, forward and backward.
    beside_pass: [Hidden; 2],
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
                Overlap::WeightGradient => loads.beside[0].add(op, seconds),
                Overlap::InputGradient => loads.beside[1].add(op, seconds),
                Overlap::Attention if forward => loads.beside[2].add(op, seconds),
                // A ring in a recomputed forward pass overlaps with the recomputed attention.
                Overlap::Attention if pass == Pass::Recompute => loads.beside[3].add(op, seconds),
                Overlap::Attention => loads.beside[4].add(op, seconds),
                _ => loads.beside_pass[usize::from(!forward)].add(op, seconds),
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
        self.work.attention += count * other.work.attention;
        self.work.lost_beside_calls = other.work.lost_beside_calls;
        self.exposed_forward = self.exposed_forward.plus(other.exposed_forward.times(count));
        self.exposed_backward = self.exposed_backward.plus(other.exposed_backward.times(count));
        let hidden = self.beside.iter_mut().chain(&mut self.beside_pass);
        for (sum, more) in hidden.zip(other.beside.iter().chain(&other.beside_pass)) {
            sum.0 = sum.0.plus(more.0.times(count));
        }
    }

    /// The exposed rest of all calls after hiding as much as possible.
    pub fn passes(&self) -> ChunkPasses {
        let ChunkWork { compute, attention, lost_beside_calls } = self.work;
        let windows =
            [compute.weight_gradient.0, compute.input_gradient.0, attention, attention, ATTENTION_BACKWARD * attention];
        let mut own = ChunkPasses {
            compute,
            exposed_forward: self.exposed_forward,
            exposed_backward: self.exposed_backward,
            weight_gradient: compute.weight_gradient.0,
            ..ChunkPasses::default()
        };
        for (index, (hidden, window)) in self.beside.iter().zip(windows).enumerate() {
            let pass = if index == 2 { &mut own.exposed_forward } else { &mut own.exposed_backward };
            *pass = pass.plus(hidden.beside(window, lost_beside_calls));
        }
        let forward = compute.forward.0 + own.exposed_forward.total();
        let backward = compute.backward().0 + own.exposed_backward.total();
        own.exposed_forward = own.exposed_forward.plus(self.beside_pass[0].beside(forward, lost_beside_calls));
        own.exposed_backward = own.exposed_backward.plus(self.beside_pass[1].beside(backward, lost_beside_calls));
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
            let of_kind = layers.iter().filter(|layer| step.is_of_kind(**layer, kind)).count();
            Some((pass, calls_per_layer as f64 * of_kind as f64))
        }
        When::MicroBatch { pass, end, calls, .. } => {
            let share = match end {
                End::Input => f64::from(u8::from(layers.contains(&0))),
                End::BeforeOutput | End::Output => {
                    f64::from(u8::from(layers.contains(&(step.model.layers.saturating_sub(1)))))
                }
                End::Whole => 1.0 / f64::from(step.stages.chunks()),
            };
            Some((pass, calls as f64 * share))
        }
        When::Outside | When::Boundary { .. } | When::Step { .. } => None,
    }
}

/// Calls that the same thing hides.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Hidden(Exposed);

impl Hidden {
    fn add(&mut self, op: &Op, seconds: f64) {
        *self.0.of_op(op) += seconds;
    }

    /// The part that exceeds the window, and what the computing in it loses meanwhile, divided in the same proportions.
    fn beside(&self, window: f64, lost_beside_calls: f64) -> Exposed {
        let total = self.0.total();
        if total <= 0.0 {
            return Exposed::default();
        }
        let hidden = total.min(window);
        self.0.times((total - hidden + lost_beside_calls * hidden) / total)
    }
}
