//! Calls and actions of a rank, as a trace recorded them.

use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use commgauge_base::units::Bytes;
use std::fmt;

/// What one rank did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecordedRank {
    /// Its calls, in any order.
    pub calls: Vec<RecordedCall>,
    /// What it did, in order. Each call is started once and waited for once.
    pub actions: Vec<RecordedAction>,
}

/// A call of a rank.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedCall {
    /// Index of its groups in the plan; the rank is in one of them.
    pub groups: usize,
    /// What it moves.
    pub kind: RecordedKind,
    /// Type of the elements; any of a barrier.
    pub element: ElementType,
    /// The size argument in the sense of nccl-tests.
    pub bytes_total: Bytes,
    /// Of an uneven all_to_all: elements to each rank of the group.
    pub elements_to_each: Option<Vec<u64>>,
    /// Its number on the group, where that is known; the same on all ranks.
    pub sequence: Option<u64>,
}

/// What a call moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecordedKind {
    /// All ranks of the group call it.
    Together(Collective),
    /// A message to this rank of the group.
    Send {
        /// Rank within the group.
        to: u32,
    },
    /// A message from this rank of the group.
    Receive {
        /// Rank within the group.
        from: u32,
    },
}

/// One thing that a rank did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordedAction {
    /// It computed.
    Compute {
        /// How long.
        nanoseconds: u64,
    },
    /// It started a call.
    Start {
        /// Index of the call.
        call: usize,
    },
    /// It had a call's result.
    Wait {
        /// Index of the call.
        call: usize,
    },
}

impl RecordedKind {
    /// Whether a rank can be through with it before the others have come.
    pub(super) fn may_end_alone(self) -> bool {
        use Collective::{Broadcast, Gather, Reduce, Scatter};
        match self {
            RecordedKind::Together(collective) => matches!(collective, Broadcast | Reduce | Gather | Scatter),
            RecordedKind::Send { .. } => true,
            RecordedKind::Receive { .. } => false,
        }
    }
}

impl fmt::Display for RecordedKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecordedKind::Together(collective) => f.write_str(collective.name()),
            RecordedKind::Send { .. } => f.write_str("send"),
            RecordedKind::Receive { .. } => f.write_str("receive"),
        }
    }
}
