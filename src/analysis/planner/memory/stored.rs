//! What a rank of a stage stores beside its state: so many bytes for each sample of a micro-batch, times the samples and the micro-batches
//! in flight. `activations` has the bytes of a layer.

use super::activations::{Shape, held_logit_bytes, logit_bytes};
use super::parts::bytes;
use crate::planner::kernels::Kernels;
use commgauge_base::units::Bytes;
use commgauge_model::config::LayerParts;
use commgauge_model::config::step::{Framework, ScheduleKind};
use commgauge_model::workload::step::TrainingStep;

/// Activations stored on a rank of a stage, in bytes.
pub(super) struct StoredActivations {
    pub layers: Bytes,
    pub recomputation: Bytes,
    pub backward: Bytes,
    pub ends: Bytes,
    pub logits: Bytes,
    pub buffers: Bytes,
}

/// What a sample of a micro-batch needs on a rank of a stage: what is stored is as many times as much.
#[derive(Clone, Copy, Debug)]
pub(in crate::planner) struct SampleBytes {
    /// Of all layers of the stage.
    kept: u128,
    recomputation: u128,
    backward: u128,
    input: u128,
    output: u128,
    logits: u128,
    /// Logits that are there for every micro-batch of the step.
    held_logits: u128,
    boundary: u128,
    gathered: u128,
    /// Chunks of the stage.
    chunks: u128,
    messages: MessageBuffers,
    /// Whether logits of all micro-batches in flight are there at once, as in `GPipe`. In all other schedules the head's backward pass runs
    /// before the next micro-batch arrives.
    all_logits: bool,
}

/// Buffers for messages between stages.
#[derive(Clone, Copy, Debug)]
enum MessageBuffers {
    /// One stage.
    Nothing,
    /// One from each neighbour.
    OfNeighbours,
    /// One for each micro-batch and direction; and each chunk in flight keeps its output, whereas its input is that of a layer, counted there
    /// (torch/distributed/pipelining/stage.py `args_recv_info`, `grad_recv_info`, `fwd_cache`).
    OfMicroBatches,
}

/// The micro-batches of a step.
#[derive(Clone, Copy, Debug)]
pub(in crate::planner) struct MicroBatches {
    /// Samples of each.
    pub samples: u64,
    /// How many a replica has.
    pub count: u64,
    /// Chunks of the stage in flight.
    pub chunks_in_flight: u64,
}

impl SampleBytes {
    /// Of a rank of a stage.
    pub(super) fn of(step: &TrainingStep, stage: u32, kernels: Kernels) -> SampleBytes {
        let shape = Shape::of(step, kernels);
        let recompute = step.training.tensor.recompute;
        let (mut kept, mut recomputation, mut backward) = (0, 0, 0);
        // Layers of a kind keep the same.
        let mut known: Vec<(LayerParts, [u128; 3])> = Vec::new();
        for layer in step.stages.layers_stored(stage) {
            let parts = step.model.parts_of(layer);
            let [keeps, repeats, gradients] = match known.iter().find(|(other, _)| *other == parts) {
                Some((_, layer)) => *layer,
                None => {
                    let [keeps, repeats] = shape.of_layer(step, layer, recompute);
                    let layer = [keeps, repeats, shape.in_backward(step, layer)];
                    known.push((parts, layer));
                    layer
                }
            };
            kept += keeps;
            recomputation = recomputation.max(repeats);
            backward = backward.max(gradients);
        }
        let messages = match (step.stages.count(), step.training.named_framework()) {
            (1, _) => MessageBuffers::Nothing,
            (_, Some(Framework::Torchtitan)) => MessageBuffers::OfMicroBatches,
            _ => MessageBuffers::OfNeighbours,
        };
        let (has_input, has_output) = (step.stages.has_input(stage), step.stages.has_output(stage));
        SampleBytes {
            kept,
            recomputation,
            backward,
            input: if has_input { shape.input() } else { 0 },
            output: if has_output { shape.output() } else { 0 },
            logits: if has_output { shape.logits(logit_bytes(step)) } else { 0 },
            held_logits: if has_output { shape.logits(held_logit_bytes(step)) } else { 0 },
            boundary: shape.boundary(),
            gathered: shape.gathered(),
            chunks: u128::from(step.stages.chunks()),
            messages,
            all_logits: step.training.pipeline.schedule == ScheduleKind::GPipe,
        }
    }

    /// What is stored of so many micro-batches.
    pub(super) fn stored(&self, micro_batches: MicroBatches) -> StoredActivations {
        let MicroBatches { samples, count, chunks_in_flight } = micro_batches;
        let [samples, in_flight] = [samples, chunks_in_flight].map(u128::from);
        let of_samples = |each: u128| bytes(samples.saturating_mul(each));
        let messages = match self.messages {
            MessageBuffers::Nothing => 0,
            MessageBuffers::OfNeighbours => 2,
            MessageBuffers::OfMicroBatches => 2 * u128::from(count) * self.chunks,
        };
        let logits = if self.all_logits { in_flight } else { 1 };
        StoredActivations {
            layers: bytes(samples.saturating_mul(self.kept) * in_flight / self.chunks),
            recomputation: of_samples(self.recomputation),
            backward: of_samples(self.backward),
            ends: of_samples(self.input * in_flight.div_ceil(self.chunks) + self.output),
            logits: of_samples(self.logits * logits + self.held_logits * u128::from(count)),
            buffers: of_samples(messages * self.boundary + self.gathered),
        }
    }

    /// All of it.
    pub(in crate::planner) fn total(&self, micro_batches: MicroBatches) -> u64 {
        let StoredActivations { layers, recomputation, backward, ends, logits, buffers } = self.stored(micro_batches);
        [layers, recomputation, backward, ends, logits, buffers]
            .iter()
            .fold(0, |sum, bytes| sum.saturating_add(bytes.0))
    }
}
