//! A one-way channel for the messages of a replay: a communicator of two ranks, and a stream.

use super::communicator::Communicator;
use super::driver::CUstream;
use serde::{Deserialize, Serialize};
use std::rc::Rc;

/// Key of a channel: world ranks, and the number that identifies the message stream within a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Route {
    pub from: u32,
    pub to: u32,
    pub stream: u32,
}

/// An open channel, as one of its two ends has it.
#[derive(Clone)]
pub(super) struct Channel {
    pub communicator: Rc<Communicator>,
    pub stream: CUstream,
}
