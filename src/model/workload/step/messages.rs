//! The number of messages that a stage sends to its neighbours per step, and of exposed ones among them.
//!
//! In the steady state one message overlaps with the work of other micro-batches. While the pipeline fills and while
//! it drains, a rank waits for every message (Megatron-Bridge, performance guide, pipeline parallelism).

use super::stages::Stages;
use crate::config::step::{PipelineChoices, ScheduleKind};
use crate::workload::schedule::{Pass, Schedule};

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
        let seen = u64::from(schedule.micro_batches());
        let all = |sends: u64| sends * micro_batches / seen;
        let (forward, backward) = (all(schedule.forward_sends(stage)), all(schedule.backward_sends(stage)));
        match schedule.kind() {
            ScheduleKind::Naive => Messages { forward, forward_exposed: forward, backward, backward_exposed: backward },
            // Filling lasts until the last micro-batch, whose message overlaps with the first backward pass.
            ScheduleKind::GPipe => Messages {
                forward,
                forward_exposed: forward.saturating_sub(1),
                backward,
                backward_exposed: backward.saturating_sub(1),
            },
            _ => {
                let (filling, draining) = filling_and_draining(schedule, stage);
                Messages { forward, forward_exposed: filling, backward, backward_exposed: draining }
            }
        }
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

#[cfg(test)]
mod tests {
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
