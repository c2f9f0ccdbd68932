//! Whose ranks a communicator has, and which communicator the calls of a case go over.

use crate::backend::Binding;
use commgauge_base::collective::Collective;
use commgauge_base::variant::Buffers;
use commgauge_model::layout::Axis;

/// Whose ranks a communicator has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Members {
    /// All ranks.
    World,
    /// Those of this rank's group, by the number of the groups.
    Groups(usize),
}

impl Members {
    /// Messages between the two ranks of a pair go over the communicator of all ranks: every round of pairs would have a
    /// communicator of its own otherwise, each with memory, threads and connections, as many as there are ranks.
    /// Windows are made by all ranks of a communicator, and some are in no pair.
    pub fn of_calls(binding: &Binding) -> Members {
        let messages =
            matches!(binding.op.collective, Collective::PingPong | Collective::Bidirectional | Collective::SendRecv);
        match binding.groups.axis {
            Axis::Pair if messages && binding.variant.buffers != Buffers::Symmetric => Members::World,
            _ => Members::Groups(binding.groups_number),
        }
    }
}

/// Members of a communicator, and its limit to thread blocks where it has one of its own.
pub(super) type Key = (Members, Option<u32>);
