//! The layers of each stage, and a lower bound of the step time of such stages.
//!
//! Chunks with the same layers are added up once, and neighbouring stages of a kind are processed together. `bound`
//! computes the load of a layer.

use crate::planner::price::{ChunkPasses, FirstStageTimes, Loads};
use commgauge_model::config::step::ScheduleKind;
use commgauge_model::workload::step::Stages;

/// Deduction for rounding errors, as a share.
const ROUNDING: f64 = 1e-9;

/// Stages by the layers of their chunks.
#[derive(Clone, Debug, Default)]
pub(super) struct Composition {
    /// Chunks that differ: how many layers of each kind.
    chunks: Vec<Vec<Counted>>,
    /// Stages that differ.
    kinds: Vec<Kind>,
    /// Neighbouring stages of a kind: which, and how many.
    runs: Vec<Counted>,
    /// Whether stages wait for those before them, forward and back again.
    fills: Fills,
    /// Share of its chunks that a micro-batch passes on a stage: half of those that are stored twice.
    passed: f64,
}

/// What is known of the time before a stage begins and after it ends.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Fills {
    /// The passes of the first chunks of the stages before it, there and back: 1F1B, interleaved, `GPipe` and one stage at a time.
    #[default]
    InOrder,
    /// Not enough for a bound: weight gradients run while others wait, and micro-batches begin at both ends.
    Otherwise,
}

/// How often something comes.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Counted {
    /// Where it stands in the list of what differs.
    index: usize,
    count: f64,
}

/// A kind of stage.
#[derive(Clone, Debug, Default, PartialEq)]
struct Kind {
    /// Number of each distinct chunk.
    chunks: Vec<Counted>,
    /// Index of the first of them.
    first: Option<usize>,
}

/// A pass forward and one backward, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct PassSeconds {
    pub forward: f64,
    pub backward: f64,
}

/// Busy time of stages in a micro-batch, in seconds.
#[derive(Clone, Debug, Default)]
pub(super) struct Busy {
    /// For each kind of stage, forward and backward.
    kinds: Vec<KindSeconds>,
    /// Forward through all chunks of the first stage.
    first_forward: f64,
    /// Backward through all chunks of the first stage.
    first_backward: f64,
}

/// Busy time of a kind of stage in a micro-batch.
#[derive(Clone, Copy, Debug)]
struct KindSeconds {
    first_chunk: f64,
    all_chunks: f64,
}

impl Composition {
    /// The composition of stages with layers of these kinds.
    pub fn of(stages: &Stages, kinds: &[usize], schedule: ScheduleKind) -> Composition {
        let in_order = matches!(
            schedule,
            ScheduleKind::OneForwardOneBackward | ScheduleKind::Interleaved | ScheduleKind::GPipe | ScheduleKind::Naive
        );
        let mut composition = Composition {
            fills: if in_order { Fills::InOrder } else { Fills::Otherwise },
            passed: if stages.mirrored() { 0.5 } else { 1.0 },
            ..Composition::default()
        };
        for stage in 0..stages.count() {
            let mut chunks: Vec<Counted> = Vec::new();
            let mut first = None;
            for chunk in 0..stages.chunks() {
                let mut layers: Vec<Counted> = Vec::new();
                for layer in stages.layers_of_chunk(stage, chunk) {
                    count(&mut layers, kinds[*layer as usize]);
                }
                let chunk = index_of(&mut composition.chunks, layers);
                first = first.or(Some(chunk));
                count(&mut chunks, chunk);
            }
            let kind = index_of(&mut composition.kinds, Kind { chunks, first });
            match composition.runs.last_mut() {
                Some(last) if last.index == kind => last.count += 1.0,
                _ => composition.runs.push(Counted { index: kind, count: 1.0 }),
            }
        }
        composition
    }

    /// Busy time of the stages if each kind of layer adds this load.
    pub fn busy(&self, loads: &[Loads]) -> Busy {
        self.busy_in(|layers| {
            let mut sum = Loads::default();
            layers.iter().for_each(|layer| sum.plus(&loads[layer.index], layer.count));
            let ChunkPasses { forward, backward, .. } = sum.passes();
            PassSeconds { forward, backward }
        })
    }

    /// Busy time of the stages if each kind of layer computes so long, and waits for nothing.
    pub fn computing(&self, layers: &[PassSeconds]) -> Busy {
        self.busy_in(|counted| {
            let sum = |of: &dyn Fn(&PassSeconds) -> f64| -> f64 {
                counted.iter().map(|layer| of(&layers[layer.index]) * layer.count).sum()
            };
            PassSeconds { forward: sum(&|layer| layer.forward), backward: sum(&|layer| layer.backward) }
        })
    }

    /// Busy time of the stages if chunks with these layers are busy so long.
    fn busy_in(&self, chunk: impl Fn(&[Counted]) -> PassSeconds) -> Busy {
        let chunks: Vec<PassSeconds> = self.chunks.iter().map(|layers| chunk(layers)).collect();
        let all = |counted: &[Counted], of: &dyn Fn(&PassSeconds) -> f64| -> f64 {
            counted.iter().map(|chunk| of(&chunks[chunk.index]) * chunk.count).sum()
        };
        let both = |chunk: &PassSeconds| chunk.forward + chunk.backward;
        let kind = |kind: &Kind| KindSeconds {
            first_chunk: kind.first.map_or(0.0, |first| both(&chunks[first])),
            all_chunks: self.passed * all(&kind.chunks, &both),
        };
        let first = self.runs.first().map_or(&[] as &[_], |run| &self.kinds[run.index].chunks);
        Busy {
            kinds: self.kinds.iter().map(kind).collect(),
            first_forward: all(first, &|chunk| chunk.forward),
            first_backward: all(first, &|chunk| chunk.backward),
        }
    }

    /// A stage begins when the first micro-batch has passed the first chunks of the stages before it, and the step
    /// ends when its last gradient has passed them in reverse.
    pub fn least(&self, busy: &Busy, micro_batches: f64, first: &FirstStageTimes) -> f64 {
        let (mut way, mut longest) = (0.0, 0.0f64);
        for Counted { index, count: stages } in &self.runs {
            let kind = busy.kinds[*index];
            let step = match self.fills {
                Fills::InOrder => kind.first_chunk + 2.0 * first.message_seconds,
                Fills::Otherwise => 0.0,
            };
            // Of neighbours that are equally busy the last one finishes last.
            longest = longest.max(way + (stages - 1.0) * step + micro_batches * kind.all_chunks);
            way += stages * step;
        }
        // No pass of the first stage is shorter than its own calls beside it.
        let own = busy.first_forward + busy.first_backward + first.calls.exposed_seconds;
        longest = longest.max(micro_batches * self.passed * own.max(first.calls.beside_passes_seconds));
        // The first stage begins first and ends last, so that nothing hides these but its own first and last pass.
        let once = &first.calls.once;
        let (before, after) = (once.before(busy.first_forward), once.after(busy.first_backward));
        let after = match self.fills {
            Fills::InOrder => after.total(),
            Fills::Otherwise => 0.0,
        };
        let waits = before.total() + after + once.last.total();
        // The optimizer runs when all is done, on the slowest stage at least as long as on the first.
        (longest + waits + first.optimizer_seconds) * (1.0 - ROUNDING)
    }
}

/// The first layer of each kind.
pub(super) fn of_each_kind(kinds: &[usize]) -> Vec<usize> {
    let count = kinds.iter().max().map_or(0, |most| most + 1);
    (0..count).filter_map(|kind| kinds.iter().position(|other| *other == kind)).collect()
}

fn count(counts: &mut Vec<Counted>, index: usize) {
    match counts.iter_mut().find(|other| other.index == index) {
        Some(known) => known.count += 1.0,
        None => counts.push(Counted { index, count: 1.0 }),
    }
}

fn index_of<T: PartialEq>(known: &mut Vec<T>, one: T) -> usize {
    known.iter().position(|other| *other == one).unwrap_or_else(|| {
        known.push(one);
        known.len() - 1
    })
}
