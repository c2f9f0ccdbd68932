//! One pass of one rank, and the messages between ranks.

/// Kind of computing of one event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Pass {
    /// F: the activations of a micro-batch through the layers of a chunk.
    Forward,
    /// The whole backward: the gradients of the input and of the weights as one pass.
    Backward,
    /// B of the zero-bubble papers: the gradient of the input alone, which the stage before waits for.
    InputGradient,
    /// W of the zero-bubble papers: the gradient of the weights alone, on which no other pass depends.
    WeightGradient,
}

/// Which way through the model a message or a pass goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PassDirection {
    /// To the next chunk of the model, with activations.
    Forward,
    /// To the chunk before, with gradients.
    Backward,
}

impl PassDirection {
    /// The other direction.
    pub(super) fn opposite(self) -> PassDirection {
        match self {
            PassDirection::Forward => PassDirection::Backward,
            PassDirection::Backward => PassDirection::Forward,
        }
    }
}

impl Pass {
    /// Which way its result goes: activations forward, gradients backward.
    pub fn direction(self) -> PassDirection {
        match self {
            Pass::Forward => PassDirection::Forward,
            Pass::Backward | Pass::InputGradient | Pass::WeightGradient => PassDirection::Backward,
        }
    }

    /// Whether the activations of its forward are freed when it ends.
    pub(super) fn frees_activations(self) -> bool {
        matches!(self, Pass::Backward | Pass::WeightGradient)
    }
}

/// One pass of one micro-batch through one of the rank's chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Event {
    /// What is computed.
    pub pass: Pass,
    /// Which micro-batch, from 0.
    pub micro_batch: u32,
    /// Index of the chunk among those of the rank, from 0; [`Schedule::model_chunk_of`] returns its layers.
    pub chunk: u32,
}

/// A point-to-point message between two ranks: the activations of a forward, or the gradients of a backward.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message {
    /// The rank at the other end.
    pub peer: u32,
    /// Whether it carries activations to the next chunk of the model; gradients to the chunk before otherwise.
    pub forward: bool,
    /// The micro-batch of its activations or gradients.
    pub micro_batch: u32,
    /// The chunk of the rank at this end whose event makes the message or waits for it.
    pub chunk: u32,
    /// The chunk of the rank at the other end.
    pub peer_chunk: u32,
    /// The place of that event in the list of this end: the message leaves after it, or must be there before it.
    pub event: usize,
}
