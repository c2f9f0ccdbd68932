//! The passes of each stage in order, and the messages that each waits for and makes: all that a replay asks of a schedule.

use crate::error::{Error, Result};
use std::collections::HashMap;

/// What a stage computes in one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TimetablePass {
    /// Forward.
    Forward,
    /// Gradients of inputs and weights as one pass.
    Backward,
    /// Gradients of the inputs alone.
    InputGradient,
    /// Gradients of the weights alone.
    WeightGradient,
}

impl TimetablePass {
    /// Whether the gradients of the weights are there when it ends.
    pub(super) fn makes_weight_gradients(self) -> bool {
        matches!(self, TimetablePass::Backward | TimetablePass::WeightGradient)
    }
}

/// The other end of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Transfer {
    /// The stage there.
    pub stage: u32,
    /// The chunk of the receiving stage whose event waits for it.
    pub receiving_chunk: u32,
}

/// One pass of one micro-batch through one of the stage's chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimetableEvent {
    /// What is computed.
    pub pass: TimetablePass,
    /// Which micro-batch, from 0.
    pub micro_batch: u32,
    /// Which of the stage's own chunks, from 0.
    pub chunk: u32,
    /// The message that must be there before it.
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

impl Timetable {
    /// Takes over a schedule after making sure that what every stage sends is what the other end waits for, in that order.
    ///
    /// # Errors
    /// Which stage sends what nobody waits for.
    pub fn checked(name: String, events: Vec<Vec<TimetableEvent>>) -> Result<Timetable> {
        type Stream = (u32, u32, u32, bool);
        let mut streams: HashMap<Stream, [Vec<u32>; 2]> = HashMap::new();
        for (stage, events) in (0u32..).zip(&events) {
            for event in events {
                let forward = event.pass == TimetablePass::Forward;
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
