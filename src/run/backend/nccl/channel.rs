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

/// Which end of a channel a rank is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChannelEnd {
    Sender,
    Receiver,
}

impl ChannelEnd {
    /// Its rank in the communicator of the two.
    pub fn rank(self) -> u32 {
        match self {
            ChannelEnd::Sender => 0,
            ChannelEnd::Receiver => 1,
        }
    }

    /// The rank of the other one.
    pub fn peer(self) -> u32 {
        1 - self.rank()
    }
}

/// An open channel, as one of its two ends has it.
#[derive(Clone)]
pub(super) struct Channel {
    pub communicator: Rc<Communicator>,
    pub stream: CUstream,
}
