//! The passes of each stage in order, with the messages that each waits for and sends: the part of a schedule that a
//! replay needs.

use crate::workload::schedule::{Pass, Schedule, ScheduleKind};
use crate::workload::step::TrainingStep;
use commgauge_base::error::{Error, Result};
use std::collections::HashMap;

/// The other end of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Transfer {
    pub stage: u32,
    /// The chunk of the receiving stage whose event waits for it.
    pub receiving_chunk: u32,
}

/// One pass of one micro-batch through one of the stage's chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimetableEvent {
    /// The pass.
    pub pass: Pass,
    /// Which micro-batch, from 0.
    pub micro_batch: u32,
    /// The chunk among the stage's own, from 0.
    pub chunk: u32,
    /// The message that must arrive before it.
    pub receives: Option<Transfer>,
    /// The message that leaves after it.
    pub sends: Option<Transfer>,
}

/// The events of every stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timetable {
    /// Name of the schedule.
    pub name: String,
    /// By stage, in order.
    pub events: Vec<Vec<TimetableEvent>>,
}

impl TimetableEvent {
    /// Whether the gradients of the weights are complete at its end.
    pub(super) fn makes_weight_gradients(&self) -> bool {
        matches!(self.pass, Pass::Backward | Pass::WeightGradient)
    }
}

impl Timetable {
    /// The timetable of a step: its own schedule; 1F1B for a single stage.
    ///
    /// # Errors
    /// If a rule of the schedule is violated, with the nearest valid numbers.
    pub fn of(step: &TrainingStep) -> Result<Timetable> {
        let (choices, stages, m) = (&step.training.pipeline, step.stages.count(), step.micro_batches);
        let too_many = || Error::usage(format!("{m} micro-batches exceed the maximum of a schedule"));
        let micro_batches = u32::try_from(m).map_err(|_| too_many())?;
        let (kind, virtual_stages) = match stages {
            1 => (ScheduleKind::OneForwardOneBackward, 1),
            _ => (choices.schedule, choices.virtual_stages),
        };
        let schedule = Schedule::new(kind, stages, virtual_stages, micro_batches);
        Timetable::of_schedule(&schedule.map_err(|problem| step.training.schedule_place().wrong(problem))?)
    }

    fn of_schedule(schedule: &Schedule) -> Result<Timetable> {
        let of_stage = |stage: u32| -> Vec<TimetableEvent> {
            let event = |event: &crate::workload::schedule::Event| TimetableEvent {
                pass: event.pass,
                micro_batch: event.micro_batch,
                chunk: event.chunk,
                receives: None,
                sends: None,
            };
            let mut events: Vec<TimetableEvent> = schedule.events(stage).iter().map(event).collect();
            for message in schedule.sends(stage) {
                let to = Transfer { stage: message.peer, receiving_chunk: message.peer_chunk };
                events[message.event].sends = Some(to);
            }
            for message in schedule.receives(stage) {
                let from = Transfer { stage: message.peer, receiving_chunk: message.chunk };
                events[message.event].receives = Some(from);
            }
            events
        };
        Timetable::checked(schedule.kind.name().to_owned(), (0..schedule.stages).map(of_stage).collect())
    }

    /// Takes a schedule after checking that the sends of every stage match the receives of the other end, in order.
    ///
    /// # Errors
    /// If a stage has an unmatched send.
    pub fn checked(name: String, events: Vec<Vec<TimetableEvent>>) -> Result<Timetable> {
        type Stream = (u32, u32, u32, bool);
        let mut streams: HashMap<Stream, [Vec<u32>; 2]> = HashMap::new();
        for (stage, events) in (0u32..).zip(&events) {
            for event in events {
                let forward = event.pass == Pass::Forward;
                if let Some(to) = event.sends {
                    let stream = (stage, to.stage, to.receiving_chunk, forward);
                    streams.entry(stream).or_default()[0].push(event.micro_batch);
                }
                if let Some(from) = event.receives {
                    let stream = (from.stage, stage, from.receiving_chunk, forward);
                    streams.entry(stream).or_default()[1].push(event.micro_batch);
                }
            }
        }
        for ((from, to, _, _), [sent, received]) in &streams {
            if sent != received {
                return Err(Error::usage(format!(
                    "schedule {name}: stage {from} sends the micro-batches {sent:?}, stage {to} waits for {received:?}"
                )));
            }
        }
        Ok(Timetable { name, events })
    }
}
