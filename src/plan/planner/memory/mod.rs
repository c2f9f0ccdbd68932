//! Bytes that one rank of a stage needs for a training step, part by part.
//!
//! Counts what the model, the optimizer and the schedule need; `need` adds the CUDA context, the communication library and fragmentation.
//! The formula and source of each part is in its file.

mod need;
mod parts;
mod state;

#[cfg(test)]
mod memory_tests;

pub(super) use self::chunks as chunks_in_flight;
pub use need::{MemoryFit, MemoryNeed};
pub use parts::MemoryUse;
pub(super) use state::{MicroBatches, SampleBytes, updated_bytes};

use crate::planner::Kernels;
use commgauge_base::units::Bytes;
use commgauge_model::config::step::{DataStyle, Recompute, ScheduleKind};
use commgauge_model::workload::schedule::Schedule;
use commgauge_model::workload::step::{RankParameters, TrainingStep};
use parts::bytes;
use state::ParameterKind;
use std::sync::Arc;

/// The memory of a rank of a stage, with the usual choices.
#[cfg(test)]
pub fn memory(step: &TrainingStep, stage: u32) -> MemoryUse {
    Kernels::FUSED.memory(step, stage)
}

/// The stage whose ranks need the most memory, and their need, with the usual choices.
#[cfg(test)]
pub fn most_loaded(step: &TrainingStep) -> (u32, MemoryUse) {
    Kernels::FUSED.most_loaded(step)
}

impl Kernels {
    /// The memory of a rank of a stage; nothing for a stage that does not exist.
    pub fn memory(&self, step: &TrainingStep, stage: u32) -> MemoryUse {
        if stage >= step.stages.count() {
            return MemoryUse::default();
        }
        self.of_stage(step, stage, chunks(step, stage))
    }

    /// Parameters, gradients, optimizer and temporarily gathered data, on a rank of an existing stage, in bytes.
    pub(super) fn state_bytes(&self, step: &TrainingStep, stage: u32) -> u64 {
        state::of(step, stage).total().0
    }

    /// The additional need of each sample of a micro-batch.
    pub(super) fn sample_bytes(&self, step: &TrainingStep, stage: u32) -> SampleBytes {
        SampleBytes::of(step, stage, *self)
    }

    /// The stage whose ranks need the most memory, the first among equals, and their need.
    pub fn most_loaded(&self, step: &TrainingStep) -> (u32, MemoryUse) {
        let mut most = (0, MemoryUse::default());
        for (stage, chunks) in (0..).zip(of_stages(step)) {
            let used = self.of_stage(step, stage, chunks);
            if used.total() > most.1.total() {
                most = (stage, used);
            }
        }
        most
    }

    /// With the chunk forwards that the schedule has in flight on the stage.
    fn of_stage(&self, step: &TrainingStep, stage: u32, chunks_in_flight: u64) -> MemoryUse {
        let state = state::of(step, stage);
        let micro_batches =
            MicroBatches { samples: step.training.micro_batch, count: step.micro_batches, chunks_in_flight };
        let stored = self.sample_bytes(step, stage).stored(micro_batches);
        MemoryUse {
            parameters: state.parameters,
            gradients: state.gradients,
            optimizer: state.optimizer,
            unsharded: state.unsharded,
            buffers: Bytes(stored.buffers.0.saturating_add(state.buffers.0)),
            ..stored
        }
    }
}

// Explanations of the parts of a rank's memory: the formula with its numbers, for readers.

/// A part of the memory of a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryPart {
    /// Its name, as in [`MemoryUse::parts`].
    pub name: &'static str,
    pub bytes: Bytes,
    /// The formula, with the numbers.
    pub why: String,
}

impl Kernels {
    /// The nonzero parts, each with its reason; none for a stage that does not exist.
    pub fn explain(&self, step: &TrainingStep, stage: u32) -> Vec<MemoryPart> {
        let used = self.memory(step, stage);
        let parts = used.parts().into_iter().filter(|(_, bytes)| bytes.0 > 0);
        parts.map(|(name, bytes)| MemoryPart { name, bytes, why: self.reason(step, stage, name, &used) }).collect()
    }

    fn reason(&self, step: &TrainingStep, stage: u32, part: &str, used: &MemoryUse) -> String {
        let data = &step.training.data;
        let style = data.style;
        let gathers = matches!(style, DataStyle::Zero3 | DataStyle::Fsdp | DataStyle::Hsdp);
        let tokens = step.tokens_per_micro_batch();
        match part {
            "parameters" => {
                let all = step.rank_parameters(stage);
                parameter_bytes(step, all, state::parameter_bytes_per_parameter(step), gathers.then_some(1))
            }
            "gradients" => {
                let each = state::gradient_bytes_per_parameter(step);
                let groups = state::shares_gradients(step).then_some(1);
                let own = match state::reduces_in_turn(step) {
                    true => "one chunk whole, as chunks are reduced one after another".to_owned(),
                    false => parameter_bytes(step, step.trained_parameters(stage), each, groups),
                };
                match (state::holds_buckets(step), state::reduces_into_other_memory(step)) {
                    (true, _) => own + ", half of it buckets in which they are reduced",
                    (_, true) => own + ", and their shards, which another stream allocates",
                    _ if state::accumulates_apart(step) => own + ", and their sums in fp32",
                    _ => own,
                }
            }
            "optimizer" => {
                let each = state::optimizer_bytes_per_parameter(step);
                let trained = step.trained_parameters(stage);
                let whole = parameter_bytes(step, trained, each, state::groups_of_optimizer(step));
                let percent = data.offloaded_percent;
                if percent == 0 { whole } else { format!("{whole}, without what hosts hold of {percent} % of it") }
            }
            "unsharded" if !gathers => "copies of weights in the type of products, until the backward pass".to_owned(),
            "unsharded" if step.reshards_after_forward() => {
                let whole =
                    "root unit, the active layer and the next, and gradients of layers before they are scattered";
                match data.shards.secondary {
                    None => whole.to_owned(),
                    Some(shards) => format!("{whole}; all parameters in {shards} shards between the passes"),
                }
            }
            "unsharded" => {
                "everything whole until the optimizer, and gradients of layers before they are scattered".to_owned()
            }
            "activations" => self.in_layers(step, stage, used.activations),
            "recomputation" => match (step.training.tensor.recompute, step.training.tensor.layers_together()) {
                (Recompute::Selective, _) => "parts of one layer, recomputed".to_owned(),
                (_, 1) => "one layer, recomputed".to_owned(),
                (_, layers) => format!("{layers} layers, recomputed together"),
            },
            "backward" => "gradients inside one layer, while its backward pass runs".to_owned(),
            "ends" => "tokens and embedding, or last norm and the head's input".to_owned(),
            "logits" => {
                let t = u64::from(step.layout.degrees.tp);
                let each = parts::logit_bytes(step, *self);
                let held = match parts::held_logit_bytes(step) {
                    0 => String::new(),
                    held => format!(", and {held} B of each of {} micro-batches", step.micro_batches),
                };
                format!("{each} B x {tokens} tokens x {}/{t} words{held}", step.model.padded_vocabulary(t))
            }
            _ => match state::reduction_buffer(step) {
                0 => "messages from neighbouring stages, and a gathered sequence".to_owned(),
                buffer => format!("{} for gradients to reduce, and messages", bytes(buffer)),
            },
        }
    }

    fn in_layers(&self, step: &TrainingStep, stage: u32, activations: Bytes) -> String {
        let (chunks, layers) = (u64::from(step.stages.chunks()), step.stages.layers_stored(stage).count() as u64);
        let in_flight = self::chunks(step, stage);
        let stored_layers = (in_flight * layers).max(1);
        let each = Bytes(
            u64::try_from(u128::from(activations.0) * u128::from(chunks) / u128::from(stored_layers)).unwrap_or(0),
        );
        let schedule = step.training.pipeline.schedule;
        let flight = match (step.stages.count(), chunks) {
            (1, _) => "1 micro-batch".to_owned(),
            (_, 1) => format!("{in_flight} micro-batches in flight ({schedule})"),
            _ => format!("{in_flight} chunks of {chunks} on the rank in flight ({schedule})"),
        };
        let attention = if self.fuses_attention() { "fused attention" } else { "attention with its matrices" };
        let elementwise = if self.fused_elementwise { "" } else { ", norms and gates in separate kernels" };
        let recompute = step.training.tensor.recompute;
        format!("{layers} layers, {flight}, {each} a layer: {attention}{elementwise}, recompute {recompute}")
    }
}

/// Bytes per parameter on a rank, or a share of it among this many groups of shards, in words.
fn parameter_bytes(step: &TrainingStep, parameters: RankParameters, each: u64, groups: Option<u64>) -> String {
    let share = |count: u64, kind: ParameterKind| match groups.map_or(1, |groups| groups * state::shards(step, kind)) {
        1 => count.to_string(),
        shares => format!("{count}/{shares}"),
    };
    if parameters.experts == 0 {
        return format!("{each} B x {} parameters", share(parameters.dense, ParameterKind::Dense));
    }
    let (dense, experts) =
        (share(parameters.dense, ParameterKind::Dense), share(parameters.experts, ParameterKind::Experts));
    format!("{each} B x ({dense} dense + {experts} expert)")
}

// Number of chunk forwards that a stage has in flight at once, by schedule.
//
// The common schedules have closed forms, compared with the event lists of `workload::schedule` by a test; for the
// others the lists are used.

/// Micro-batches, as a multiple of the stages, above which the peak of a searched schedule is constant.
const ENOUGH_PER_STAGE: u64 = 4;

/// Chunks in flight on one stage; 1 chunk is all layers of the stage if the schedule has no virtual stages.
pub(super) fn chunks(step: &TrainingStep, stage: u32) -> u64 {
    closed_form(step, stage).unwrap_or_else(|| listed(step).map_or(1, |schedule| peak(&schedule, stage)))
}

fn of_stages(step: &TrainingStep) -> Vec<u64> {
    let stages = 0..step.stages.count();
    match stages.clone().map(|stage| closed_form(step, stage)).collect() {
        Some(known) => known,
        None => match listed(step) {
            Some(schedule) => stages.map(|stage| peak(&schedule, stage)).collect(),
            None => stages.map(|_| 1).collect(),
        },
    }
}

/// naive 1, GPipe m, 1F1B p - stage (arXiv 2104.04473 section 2.2.1), interleaved 2(p - stage - 1) + (v - 1)p + 1: the warm-up
/// and the forward after it (section 2.2.2).
fn closed_form(step: &TrainingStep, stage: u32) -> Option<u64> {
    let (p, m) = (u64::from(step.stages.count()), step.micro_batches);
    if p == 1 {
        return Some(1);
    }
    let behind = p - 1 - u64::from(stage);
    match step.training.pipeline.schedule {
        ScheduleKind::Naive => Some(1),
        ScheduleKind::GPipe => Some(m),
        ScheduleKind::OneForwardOneBackward => Some(m.min(behind + 1)),
        ScheduleKind::Interleaved => {
            let v = u64::from(step.stages.chunks());
            Some(m.saturating_mul(v).min(2 * behind + (v - 1) * p + 1))
        }
        _ => None,
    }
}

/// `None` if the schedule does not exist, which a checked step rules out.
fn listed(step: &TrainingStep) -> Option<Arc<Schedule>> {
    let (p, choices) = (step.stages.count(), &step.training.pipeline);
    let enough = u32::try_from(step.micro_batches.min(ENOUGH_PER_STAGE * u64::from(p))).ok()?;
    Schedule::shared(choices.schedule, p, choices.virtual_stages, enough).ok()
}

fn peak(schedule: &Schedule, stage: u32) -> u64 {
    u64::from(schedule.peak_activation_chunks(stage))
}

#[cfg(test)]
mod kept_tests {
    // Stored activations against the tensors that transformers' own layers save for their backward pass (`scripts/check-frameworks` records
    // them in tests/data/transformers/kept.json).
    use super::*;
    use crate::planner::AttentionKernel;
    use crate::planner::testing::with_step;
    use serde::Deserialize;
    use serde_json::Value;
    use std::collections::BTreeMap;
    use std::path::Path;

    const UNFUSED: Kernels = Kernels { fused_elementwise: false, ..Kernels::FUSED };

    #[derive(Deserialize)]
    struct Recorded {
        sequence: u64,
        kept: Vec<KeptByLayer>,
        /// The config.json of each model, with two layers.
        configs: BTreeMap<String, Value>,
    }

    #[derive(Deserialize)]
    struct KeptByLayer {
        model: String,
        attention: String,
        computed: String,
        bytes: u64,
    }

    fn recorded() -> Recorded {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/transformers/kept.json");
        serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
    }

    /// Bytes stored by one of the two layers of a model.
    fn kept(config: &Value, computed: &str, sequence: u64, kernels: Kernels) -> f64 {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        std::fs::write(&path, config.to_string()).unwrap();
        let types = match computed {
            "autocast" => "activation_element_type = 'bfloat16'\ngradient_element_type = 'float32'".to_owned(),
            element => format!("activation_element_type = '{element}'\ngradient_element_type = '{element}'"),
        };
        let training = format!("framework = 'hf'\ndata_style = 'ddp'\nsequence = {sequence}\n{types}");
        let all = with_step(path.to_str().unwrap(), &training, "tp = 1", 1, |step| kernels.memory(step, 0).activations);
        all.0 as f64 / 2.0
    }

    #[test]
    fn layers_keep_what_those_of_transformers_save() {
        let Recorded { sequence, kept: rows, configs } = recorded();
        assert!(rows.len() >= 85 && configs.len() >= 16);
        for row in rows {
            let attention = if row.attention == "sdpa" { AttentionKernel::Fused } else { AttentionKernel::Separate };
            let kernels = Kernels { attention, ..UNFUSED };
            let found = kept(&configs[&row.model], &row.computed, sequence, kernels);
            let error = found / row.bytes as f64 - 1.0;
            assert!(error.abs() < 0.01, "{} {} {}: {:+.1} %", row.model, row.attention, row.computed, 100.0 * error);
        }
    }

    #[test]
    fn fused_kernels_keep_less_in_every_model() {
        let Recorded { sequence, configs, .. } = recorded();
        for (model, config) in configs {
            let of = |kernels| kept(&config, "bfloat16", sequence, kernels);
            let separate = UNFUSED;
            // LayerNorm and GELU are one PyTorch kernel, and gpt2 uses GELU by operations.
            assert!(of(Kernels::FUSED) < of(separate), "{model}");
            assert!(of(separate) < of(Kernels { attention: AttentionKernel::Separate, ..separate }), "{model}");
        }
    }
}
