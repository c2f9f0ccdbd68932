//! The layers of each stage of a pipeline, chunk by chunk, its messages, and the sentence about a degree that does not divide.

use crate::config::step::{Framework, PipelineChoices, ScheduleKind};
use crate::workload::schedule::{Pass, Schedule};
use std::ops::Range;
use std::sync::Arc;

/// The layers of every stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stages {
    /// Layers by stage and by the stage's own chunk, in model order. Shared, as thousands of steps have the same.
    layers: Arc<Vec<Vec<Vec<u32>>>>,
    /// The last layer.
    last: Option<u32>,
    /// Which chunks of the model a stage has.
    schedule: ScheduleKind,
    /// Every layer is stored twice, and each micro-batch passes one of the two (DualPipe).
    pub mirrored: bool,
    /// How layers were distributed, in words; empty if evenly.
    pub rule: String,
}

impl Stages {
    /// Distributes the layers of a model over `stages` stages.
    ///
    /// Evenly if possible. Otherwise, if the layers divide evenly with the embedding and the output projection counted as a layer each, the
    /// first and the last chunk have one layer less, as in Llama 3 (arXiv 2407.21783 section 3.3.2): none if chunks have one.
    ///
    /// # Errors
    /// If a rule is violated, with the nearest valid degrees (a sentence without full stop).
    pub fn divide(layers: u32, stages: u32, choices: &PipelineChoices) -> Result<Stages, String> {
        let kind = choices.schedule;
        // One stage is not a pipeline: its layers are one chunk in any schedule.
        let (chunks_per_rank, copies) = match stages {
            1 => (1, 1),
            _ => (kind.chunks_of(choices.virtual_stages)?, kind.parameter_copies()),
        };
        let (mirrored, chunks) = (copies > 1, chunks_per_rank / copies);
        let most = if stages > 1 { layers.saturating_add(2) } else { layers };
        let Some(model_chunks) = stages.checked_mul(chunks).filter(|chunks| *chunks <= most) else {
            return Err(too_many(layers, stages, chunks));
        };
        let (counts, rule) = match &choices.stage_layers {
            Some(given) => (given_counts(given, layers, model_chunks)?, "from stage_layers".to_owned()),
            None => even_counts(layers, stages, chunks)?,
        };
        let starts: Vec<u32> =
            counts.iter().scan(0, |next, count| Some(std::mem::replace(next, *next + count))).collect();
        let of_chunk = |chunk: u32| -> Vec<u32> {
            let start = starts[chunk as usize];
            (start..start + counts[chunk as usize]).collect()
        };
        let of_stage = |stage: u32| -> Vec<Vec<u32>> {
            (0..chunks_per_rank).map(|chunk| of_chunk(kind.model_chunk(stages, stage, chunk))).collect()
        };
        let last = layers.checked_sub(1);
        let layers = Arc::new((0..stages).map(of_stage).collect());
        Ok(Stages { layers, last, schedule: kind, mirrored, rule })
    }

    /// Distributes the layers of a served model. Where they do not divide evenly, vLLM gives one more to each of the stages before the last
    /// (vllm/distributed/utils.py get_pp_indices) and SGLang to each of the last ones (sglang/srt/distributed/utils.py get_pp_indices).
    ///
    /// # Errors
    /// As [`Stages::divide`].
    pub fn of_server(layers: u32, stages: u32, framework: Option<Framework>) -> Result<Stages, String> {
        let (each, more) = (layers / stages.max(1), layers % stages.max(1));
        let larger = match framework {
            Some(Framework::Vllm) if more > 0 => Some(stages - more - 1..stages - 1),
            Some(Framework::Sglang) if more > 0 => Some(stages - more..stages),
            _ => None,
        };
        if each == 0 {
            return Err(too_many(layers, stages, 1));
        }
        let of_stage =
            |larger: &Range<u32>| (0..stages).map(|stage| each + u32::from(larger.contains(&stage))).collect();
        let choices = PipelineChoices {
            schedule: ScheduleKind::GPipe,
            virtual_stages: 1,
            stage_layers: larger.as_ref().map(of_stage),
            scatter_gather: false,
        };
        let mut divided = Stages::divide(layers, stages, &choices)?;
        if let (Some(larger), Some(framework)) = (larger, framework) {
            divided.rule = format!(
                "{each} layers, one more on stages {} to {}, as {framework} divides",
                larger.start,
                larger.end - 1
            );
        }
        Ok(divided)
    }

    /// One layer on one stage, which is both ends of a model.
    pub fn single_layer() -> Stages {
        let layers = Arc::new(vec![vec![vec![0]]]);
        Stages { layers, last: Some(0), schedule: ScheduleKind::GPipe, mirrored: false, rule: String::new() }
    }

    /// The layers of each chunk of the model if they do not divide evenly, as even as possible: with the embedding and the output
    /// projection counted as a layer each if every chunk keeps one, and the larger chunks at the end, where the fewest micro-batches are in
    /// flight. `None` if `divide` succeeds, and for more chunks than layers.
    pub fn uneven(layers: u32, stages: u32, choices: &PipelineChoices) -> Option<Vec<u32>> {
        if choices.stage_layers.is_some() || stages < 2 || Stages::divide(layers, stages, choices).is_ok() {
            return None;
        }
        let kind = choices.schedule;
        let chunks = stages.checked_mul(kind.chunks_of(choices.virtual_stages).ok()? / kind.parameter_copies())?;
        if chunks > layers {
            return None;
        }
        let ends = if (layers + 2) / chunks > 1 { 1 } else { 0 };
        let (each, more) = ((layers + 2 * ends) / chunks, (layers + 2 * ends) % chunks);
        let of_chunk = |chunk: u32| {
            let is_end = chunk == 0 || chunk + 1 == chunks;
            each + u32::from(chunk >= chunks - more) - if is_end { ends } else { 0 }
        };
        Some((0..chunks).map(of_chunk).collect())
    }

    /// With further layers after the last one, on its stage: those that predict further tokens (Megatron-LM
    /// core/transformer/multi_token_prediction.py get_mtp_num_layers_to_build).
    pub fn with_prediction_layers(mut self, layers: u32) -> Stages {
        let Some(last) = self.last else { return self };
        if layers == 0 {
            return self;
        }
        let places = (0..self.count()).flat_map(|stage| (0..self.chunks()).map(move |chunk| (stage, chunk)));
        for (stage, chunk) in places.filter(|(stage, chunk)| self.ends_of_chunk(*stage, *chunk)[1]).collect::<Vec<_>>()
        {
            Arc::make_mut(&mut self.layers)[stage as usize][chunk as usize].extend(last + 1..=last + layers);
        }
        self
    }

    /// Number of stages.
    pub fn count(&self) -> u32 {
        self.layers.len() as u32
    }

    /// Chunks on each stage; with mirrored stages one for each direction.
    pub fn chunks(&self) -> u32 {
        self.layers[0].len() as u32
    }

    /// The layers of one chunk of a stage.
    pub fn layers_of_chunk(&self, stage: u32, chunk: u32) -> &[u32] {
        &self.layers[stage as usize][chunk as usize]
    }

    /// All layers whose parameters a stage stores.
    pub fn layers_stored(&self, stage: u32) -> impl Iterator<Item = u32> {
        self.layers[stage as usize].iter().flatten().copied()
    }

    /// The layers of a stage that a micro-batch passes: with mirrored stages those of one direction, the larger if the two differ.
    pub fn layers_passed(&self, stage: u32) -> impl Iterator<Item = u32> {
        self.chunks_passed(stage).iter().flatten().copied()
    }

    /// The same, chunk by chunk.
    pub(super) fn chunks_passed(&self, stage: u32) -> &[Vec<u32>] {
        match (self.mirrored, self.layers[stage as usize].as_slice()) {
            (true, [one, other]) => std::slice::from_ref(if other.len() > one.len() { other } else { one }),
            (_, chunks) => chunks,
        }
    }

    /// Whether a chunk of a stage is the first of the model, with the embedding, and whether it is the last, with the output projection and
    /// the loss. Neither needs a layer.
    pub fn ends_of_chunk(&self, stage: u32, chunk: u32) -> [bool; 2] {
        let place = self.schedule.model_chunk(self.count(), stage, chunk);
        let copies = if self.mirrored { 2 } else { 1 };
        [place == 0, (place + 1) * copies == self.count() * self.chunks()]
    }

    /// Whether a stage has the embedding.
    pub fn has_input(&self, stage: u32) -> bool {
        (0..self.chunks()).any(|chunk| self.ends_of_chunk(stage, chunk)[0])
    }

    /// Whether a stage has the output projection and the loss.
    pub fn has_output(&self, stage: u32) -> bool {
        (0..self.chunks()).any(|chunk| self.ends_of_chunk(stage, chunk)[1])
    }
}

fn even_counts(layers: u32, stages: u32, chunks: u32) -> Result<(Vec<u32>, String), String> {
    let all = stages * chunks;
    if layers.is_multiple_of(all) {
        return Ok((vec![layers / all; all as usize], String::new()));
    }
    if stages > 1 && (layers + 2).is_multiple_of(all) {
        let each = (layers + 2) / all;
        let mut counts = vec![each; all as usize];
        counts[0] -= 1;
        counts[all as usize - 1] -= 1;
        let rule = format!(
            "{each} layers, the first and the last chunk {}: embedding and output projection count as a layer each",
            each - 1
        );
        return Ok((counts, rule));
    }
    let fits = |stages: &u32| layers.is_multiple_of(stages * chunks) || (layers + 2).is_multiple_of(stages * chunks);
    let below = (1..stages).rev().find(fits);
    let above = (stages + 1..=layers / chunks).find(fits);
    let nearest: Vec<_> = below.into_iter().chain(above).map(|stages| stages.to_string()).collect();
    let nearest = match nearest.as_slice() {
        [] => "no pp does".to_owned(),
        nearest => format!("nearest that do: {}", nearest.join(", ")),
    };
    let with_chunks = if chunks > 1 { format!(" with {chunks} chunks each") } else { String::new() };
    Err(format!(
        "pp = {stages}{with_chunks} does not divide the {layers} layers (num_hidden_layers), nor {} with embedding and output \
         projection counted as a layer each; {nearest}; or give stage_layers",
        layers + 2,
    ))
}

fn too_many(layers: u32, stages: u32, chunks: u32) -> String {
    format!(
        "pp = {stages} stages of {chunks} chunks are more than the {layers} layers (num_hidden_layers); accepted: up to {}",
        layers / chunks
    )
}

fn given_counts(given: &[u32], layers: u32, model_chunks: u32) -> Result<Vec<u32>, String> {
    let total: u64 = given.iter().copied().map(u64::from).sum();
    if given.len() as u64 != u64::from(model_chunks) {
        return Err(format!("stage_layers names {} chunks, but there are {model_chunks}", given.len()));
    }
    if total != u64::from(layers) {
        return Err(format!("stage_layers add up to {total}; the model has {layers} layers (num_hidden_layers)"));
    }
    let within = 1..given.len().saturating_sub(1);
    if let Some(chunk) = within.into_iter().find(|chunk| given[*chunk] == 0) {
        return Err(format!(
            "stage_layers gives chunk {chunk} no layer; accepted: 0 for the first and the last, with the embedding and the head alone"
        ));
    }
    Ok(given.to_vec())
}

// The number of messages that a stage sends to its neighbours per step, and of exposed ones among them.
//
// In the steady state one message overlaps with the work of other micro-batches. While the pipeline fills and while it drains, a rank
// waits for every message (Megatron-Bridge, performance guide, pipeline parallelism).

/// Micro-batches, as a multiple of the stages, above which filling and draining are constant.
const ENOUGH_PER_STAGE: u32 = 4;

/// Messages that one rank of a stage sends per step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Messages {
    /// Activations to the next stage.
    pub forward: u64,
    /// Activations sent while the pipeline fills.
    pub forward_exposed: u64,
    /// Gradients to the previous stage.
    pub backward: u64,
    /// Gradients sent while the pipeline drains.
    pub backward_exposed: u64,
}

impl Messages {
    /// As many messages of every stage as in 1F1B and its interleaved form, all hidden: enough to derive the size of a message, and how
    /// many a stage receives per micro-batch.
    pub(super) fn of_each_micro_batch(stages: &Stages, micro_batches: u64) -> Vec<Messages> {
        let (last, chunks) = (stages.count().saturating_sub(1), u64::from(stages.chunks()));
        let sends = |is_end: bool| micro_batches * (chunks - u64::from(is_end));
        let of = |stage| Messages { forward: sends(stage == last), backward: sends(stage == 0), ..Messages::default() };
        (0..=last).map(of).collect()
    }

    /// Whether the numbers satisfy the schedule's rules.
    ///
    /// # Errors
    /// If a rule is violated, with the nearest valid numbers.
    pub(super) fn check(choices: &PipelineChoices, stages: &Stages, micro_batches: u64) -> Result<(), String> {
        if stages.count() == 1 {
            return Ok(());
        }
        let requested = u32::try_from(micro_batches).unwrap_or(u32::MAX);
        choices.schedule.check_rules(stages.count(), choices.virtual_stages, requested).map(|_| ())
    }

    /// The messages of every stage.
    ///
    /// # Errors
    /// If a rule of the schedule is violated, with the nearest valid numbers.
    pub(super) fn of_stages(
        choices: &PipelineChoices,
        stages: &Stages,
        micro_batches: u64,
    ) -> Result<Vec<Messages>, String> {
        let (kind, p) = (choices.schedule, stages.count());
        if p == 1 {
            return Ok(vec![Messages::default()]);
        }
        // The rules of the schedule are checked for all micro-batches; messages are counted for as many as suffice.
        let requested = u32::try_from(micro_batches).unwrap_or(u32::MAX);
        kind.check_rules(p, choices.virtual_stages, requested)?;
        let few = requested.min(p.saturating_mul(ENOUGH_PER_STAGE));
        let schedule = Schedule::shared(kind, p, choices.virtual_stages, few)?;
        Ok((0..p).map(|stage| Messages::of_stage(&schedule, stage, micro_batches)).collect())
    }

    /// `schedule` may have fewer micro-batches than the step: every further one adds what each crossing adds.
    fn of_stage(schedule: &Schedule, stage: u32, micro_batches: u64) -> Messages {
        let seen = u64::from(schedule.micro_batches);
        let all = |sends: u64| sends * micro_batches / seen;
        let (forward, backward) = (all(schedule.forward_sends(stage)), all(schedule.backward_sends(stage)));
        let (forward_exposed, backward_exposed) = match schedule.kind {
            ScheduleKind::Naive => (forward, backward),
            // Filling lasts until the last micro-batch, whose message overlaps with the first backward pass.
            ScheduleKind::GPipe => (forward.saturating_sub(1), backward.saturating_sub(1)),
            _ => filling_and_draining(schedule, stage),
        };
        Messages { forward, forward_exposed, backward, backward_exposed }
    }
}

/// Messages of forward passes before the one that the first backward pass follows, and of backward passes after the one that
/// follows the last forward pass.
fn filling_and_draining(schedule: &Schedule, stage: u32) -> (u64, u64) {
    let events = schedule.events(stage);
    let is_forward = |pass: Pass| pass == Pass::Forward;
    let is_backward = |pass: Pass| matches!(pass, Pass::Backward | Pass::InputGradient);
    let first_backward = events.iter().position(|event| is_backward(event.pass)).unwrap_or(0);
    let last_filling = events[..first_backward].iter().rposition(|event| is_forward(event.pass)).unwrap_or(0);
    let last_forward = events.iter().rposition(|event| is_forward(event.pass)).unwrap_or(0);
    let first_draining = events.iter().skip(last_forward).position(|event| is_backward(event.pass));
    let first_draining = first_draining.map_or(events.len(), |after| last_forward + after);
    let sends = |wanted: &dyn Fn(bool, usize) -> bool| {
        schedule.sends(stage).filter(|message| wanted(message.forward, message.event)).count() as u64
    };
    (
        sends(&|forward, event| forward && event < last_filling),
        sends(&|forward, event| !forward && event > first_draining),
    )
}

// The sentence about a number that an axis does not divide.

/// The sentence for a degree that does not divide, with the nearest valid ones.
pub fn must_divide(axis: &str, degree: u64, number: u64, what: &str, field: &str, model: &str) -> String {
    let divides = |degree: &u64| number.is_multiple_of(*degree);
    let below = (1..degree.min(number + 1)).rev().find(divides);
    let above = (degree + 1..=number).find(divides);
    let nearest: Vec<_> = below.into_iter().chain(above).map(|degree| degree.to_string()).collect();
    format!(
        "{axis} = {degree} does not divide the {number} {what} of {model} ({field}); nearest that do: {}",
        nearest.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choices(schedule: ScheduleKind, virtual_stages: u32, stage_layers: Option<Vec<u32>>) -> PipelineChoices {
        PipelineChoices { schedule, virtual_stages, stage_layers, scatter_gather: false }
    }

    #[test]
    fn layers_that_cannot_be_divided_are_refused_with_what_can() {
        let plain = choices(ScheduleKind::OneForwardOneBackward, 1, None);
        let interleaved = choices(ScheduleKind::Interleaved, 4, None);
        let given = |layers: &[u32]| choices(ScheduleKind::OneForwardOneBackward, 1, Some(layers.to_vec()));
        for (layers, stages, choices, expected) in [
            (32, 3, &plain, "nearest that do: 2, 4"),
            (
                8,
                16,
                &plain,
                "pp = 16 stages of 1 chunks are more than the 8 layers (num_hidden_layers); accepted: up to 8",
            ),
            (80, 16, &interleaved, "pp = 16 with 4 chunks each does not divide the 80 layers"),
            (61, 8, &interleaved, "counted as a layer each; no pp does; or give stage_layers"),
            (8, 2, &given(&[3, 4]), "stage_layers add up to 7; the model has 8 layers"),
            (8, 2, &given(&[8]), "stage_layers names 1 chunks, but there are 2"),
            (
                8,
                4,
                &given(&[3, 0, 3, 2]),
                "stage_layers gives chunk 1 no layer; accepted: 0 for the first and the last",
            ),
            (14, 15, &plain, "pp = 15 does not divide the 14 layers"),
        ] {
            let problem = Stages::divide(layers, stages, choices).unwrap_err();
            assert!(problem.contains(expected), "{problem}");
        }
    }

    #[test]
    fn llama_3_405b_has_one_layer_less_on_the_first_and_the_last_stage() {
        let stages = Stages::divide(126, 16, &choices(ScheduleKind::OneForwardOneBackward, 1, None)).unwrap();
        let counts: Vec<_> = (0..16).map(|stage| stages.layers_stored(stage).count()).collect();
        assert_eq!((counts[0], counts[15], &counts[1..15]), (7, 7, &[8; 14][..]));
        assert!(stages.has_input(0) && stages.has_output(15) && !stages.has_output(0));
        assert!(stages.rule.starts_with("8 layers, the first and the last chunk 7"), "{}", stages.rule);
    }

    #[test]
    fn embedding_and_head_are_alone_where_two_chunks_more_than_layers_are_wanted() {
        let interleaved = choices(ScheduleKind::Interleaved, 8, None);
        let stages = Stages::divide(126, 16, &interleaved).unwrap().with_prediction_layers(1);
        let ends = |stage, chunk| (stages.layers_of_chunk(stage, chunk).to_vec(), stages.ends_of_chunk(stage, chunk));
        assert_eq!((ends(0, 0), ends(1, 0)), ((vec![], [true, false]), (vec![0], [false, false])));
        assert_eq!((ends(14, 7), ends(15, 7)), ((vec![125], [false, false]), (vec![126], [false, true])));
        assert!(stages.rule.starts_with("1 layers, the first and the last chunk 0"), "{}", stages.rule);
        let given = choices(ScheduleKind::OneForwardOneBackward, 1, Some(vec![0, 2, 2, 0]));
        let stages = Stages::divide(4, 4, &given).unwrap();
        assert!(stages.has_input(0) && !stages.has_input(1) && stages.has_output(3) && !stages.has_output(2));
        // Copies of a mirrored pipeline have both ends on both stages.
        let mirrored = Stages::divide(2, 2, &choices(ScheduleKind::DualPipe, 1, None)).unwrap();
        assert!((0..2).all(|stage| mirrored.has_input(stage) && mirrored.has_output(stage)));
    }

    #[test]
    fn servers_divide_uneven_layers_as_their_own_functions_do() {
        use Framework::{Sglang, Vllm};
        // By hand from get_pp_indices of both; that of SGLang is from 0.5.6.
        for (layers, framework, counts) in [
            (61, Vllm, &[31, 30][..]),
            (61, Sglang, &[30, 31]),
            (61, Vllm, &[20, 21, 20]),
            (22, Vllm, &[5, 6, 6, 5]),
            (22, Sglang, &[5, 5, 6, 6]),
            (5, Vllm, &[2, 2, 1]),
            (32, Vllm, &[8, 8, 8, 8]),
        ] {
            let stages = Stages::of_server(layers, counts.len() as u32, Some(framework)).unwrap();
            let found: Vec<u32> = (0..stages.count()).map(|stage| stages.layers_stored(stage).count() as u32).collect();
            assert_eq!(found, counts, "{layers} layers, {framework}");
        }
        assert!(Stages::of_server(61, 2, None).unwrap_err().contains("does not divide the 61 layers"));
        assert!(Stages::of_server(3, 4, Some(Vllm)).unwrap_err().contains("more than the 3 layers"));
    }

    #[test]
    fn layers_that_do_not_divide_are_as_even_as_can_be() {
        let plain = choices(ScheduleKind::OneForwardOneBackward, 1, None);
        // DeepSeek-V3 on 16 stages: 61 layers and two ends are 63, 15 of 16 stages with 4 of them.
        let found = Stages::uneven(61, 16, &plain).unwrap();
        assert_eq!((found[0], &found[1..15], found[15]), (2, &[4; 14][..], 3));
        // Llama 3 405B divides evenly with its ends on 32 stages, but not on 20.
        assert_eq!(Stages::uneven(126, 32, &plain), None);
        assert_eq!(Stages::uneven(126, 20, &plain).unwrap().iter().sum::<u32>(), 126);
        assert_eq!(Stages::uneven(61, 61, &plain), None);
        // If every chunk had only one layer, the ends could not have one less.
        assert_eq!(Stages::uneven(61, 60, &plain).unwrap(), [vec![1; 59], vec![2]].concat());
        assert_eq!(Stages::uneven(61, 64, &plain), None);
        let interleaved = choices(ScheduleKind::Interleaved, 2, None);
        for stages in 2..=30 {
            let Some(counts) = Stages::uneven(61, stages, &interleaved) else { continue };
            let given = choices(ScheduleKind::Interleaved, 2, Some(counts.clone()));
            assert!(Stages::divide(61, stages, &given).is_ok() && counts.iter().all(|layers| *layers > 0), "{stages}");
        }
    }

    #[test]
    fn chunks_lie_as_the_schedule_wants_them() {
        for (schedule, chunks, expected) in [
            (ScheduleKind::Interleaved, 2, [vec![0, 1, 4, 5], vec![2, 3, 6, 7]]),
            (ScheduleKind::ZbV, 1, [vec![0, 1, 6, 7], vec![2, 3, 4, 5]]),
            (ScheduleKind::DualPipe, 1, [vec![0, 1, 2, 3, 4, 5, 6, 7], vec![4, 5, 6, 7, 0, 1, 2, 3]]),
        ] {
            let stages = Stages::divide(8, 2, &choices(schedule, chunks, None)).unwrap();
            let stored = [0, 1].map(|stage| stages.layers_stored(stage).collect::<Vec<_>>());
            assert_eq!(stored, expected, "{schedule}");
            assert_eq!(stages.layers_passed(0).count(), 4, "{schedule}");
        }
    }
}

#[cfg(test)]
mod messages_tests {
    use super::*;

    fn messages(schedule: ScheduleKind, virtual_stages: u32, p: u32, m: u64) -> Result<Vec<Messages>, String> {
        let choices = PipelineChoices { schedule, virtual_stages, stage_layers: None, scatter_gather: false };
        let stages = Stages::divide(p * virtual_stages * 2, p, &choices)?;
        Messages::of_stages(&choices, &stages, m)
    }

    #[test]
    fn every_schedule_sends_what_the_papers_count() {
        use ScheduleKind::*;
        // Forward and backward messages of the second of four stages, and the exposed ones.
        for (schedule, v, m, expected) in [
            (Naive, 1, 8, (8, 8, 8, 8)),
            (GPipe, 1, 8, (8, 7, 8, 7)),
            (OneForwardOneBackward, 1, 8, (8, 2, 8, 2)),
            (OneForwardOneBackward, 1, 1_000_000, (1_000_000, 2, 1_000_000, 2)),
            (Interleaved, 2, 1000, (2000, 8, 2000, 8)),
            (DualPipe, 1, 1000, (1000, 4, 1000, 4)),
        ] {
            let found = messages(schedule, v, 4, m).unwrap()[1];
            let found = (found.forward, found.forward_exposed, found.backward, found.backward_exposed);
            assert_eq!(found, expected, "{schedule} of {m}");
        }
    }

    #[test]
    fn the_ends_of_a_pipeline_send_in_one_direction_only() {
        let all = messages(ScheduleKind::OneForwardOneBackward, 1, 4, 8).unwrap();
        assert_eq!((all[0].forward, all[0].backward), (8, 0));
        assert_eq!((all[3].forward, all[3].backward), (0, 8));
    }

    #[test]
    fn micro_batches_that_break_the_rule_are_refused_with_the_nearest() {
        for (schedule, v, m, expected) in [
            (
                ScheduleKind::Interleaved,
                2,
                1001,
                "1001 micro-batches, must be a multiple of the 4 pipeline stages; nearest: 1000 or 1004",
            ),
            (ScheduleKind::Interleaved, 2, 6, "must be a multiple of the 4 pipeline stages; nearest: 4 or 8"),
            (ScheduleKind::DualPipe, 1, 1001, "must be even"),
            (ScheduleKind::DualPipe, 1, 6, "at least 2 x pipeline stages = 8"),
            (
                ScheduleKind::OneForwardOneBackward,
                2,
                8,
                "2 virtual stages, must be 1; interleaved and interleaved-zb allow more",
            ),
        ] {
            let problem = messages(schedule, v, 4, m).unwrap_err();
            assert!(problem.contains(expected), "{problem}");
        }
    }
}
