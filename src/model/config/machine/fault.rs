//! Injected faults of a simulated machine. `fault_table` reads those of a machine file, `fault_text` those of the command line;
//! the simulated backend applies them to times.

use super::number::SMALLEST_RATE_FACTOR;
use commgauge_base::units::Seconds;

/// An injected fault, to rehearse finding it. Indices are checked once the number of ranks is known.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// A rank that is late for every agreed start.
    Rank {
        /// World rank.
        rank: u32,
        /// How late.
        delay: Seconds,
    },
    /// A node all of whose links, inside and to the network, are slow.
    Node {
        /// The node.
        node: u32,
        /// Share of the rate that is left.
        rate_factor: f64,
    },
    /// A slow path between two nodes.
    Link {
        /// Its ends.
        nodes: [u32; 2],
        /// Share of the rate that is left.
        rate_factor: f64,
    },
    /// A rank that produces wrong data in some checks.
    Corrupt {
        /// World rank.
        rank: u32,
        /// Share of checks that find an error.
        probability: f64,
    },
    /// The same adapter of every node: the switch that connects them is slow.
    Rail {
        /// Number of the adapter on its node.
        rail: u32,
        /// Share of the rate that is left.
        rate_factor: f64,
    },
    /// One adapter of one node.
    Adapter {
        /// The node.
        node: u32,
        /// Number of the adapter on it.
        adapter: u32,
        /// Share of the rate that is left.
        rate_factor: f64,
    },
    /// One direction of the cable of one adapter.
    Cable {
        /// The node.
        node: u32,
        /// Number of the adapter on it.
        adapter: u32,
        /// The slow direction, seen from the node.
        direction: Direction,
        /// Share of the rate that is left.
        rate_factor: f64,
    },
    /// One device of a node: its links inside, and its way to the network.
    Device {
        /// The node.
        node: u32,
        /// Local rank that drives it.
        device: u32,
        /// Share of the rate that is left.
        rate_factor: f64,
    },
    /// Links inside a node: all of one device, or the one between two devices.
    NvLink {
        /// The node.
        node: u32,
        /// Local rank that drives the device.
        device: u32,
        /// The other end; none where all links of the device are slow.
        peer: Option<u32>,
        /// Share of the rate that is left.
        rate_factor: f64,
    },
    /// Another job that uses the network of a node in bursts.
    Neighbour {
        /// The node.
        node: u32,
        /// Share of the rate that is left during a burst.
        rate_factor: f64,
    },
    /// A leaf switch: the network of all nodes behind it is slow.
    Leaf {
        /// Its number, counting nodes from 0.
        leaf: u32,
        /// Share of the rate that is left.
        rate_factor: f64,
    },
    /// Slow only where a group spans many nodes.
    Scale {
        /// The fewest nodes of a group that is slow.
        from_nodes: u32,
        /// Share of the rate between nodes that is left.
        rate_factor: f64,
    },
    /// Any of the others but `Corrupt` and `Neighbour`, with a probability.
    Intermittent {
        /// The fault while it is active.
        fault: Box<Fault>,
        /// Probability that it is active.
        probability: f64,
        /// Length of the windows in which the state is constant; it changes from call to call if absent.
        window: Option<Seconds>,
    },
    /// Any of the others but `Corrupt` and `Neighbour`, for a limited time.
    While {
        /// The fault while it is active.
        fault: Box<Fault>,
        /// Start time on the virtual clock.
        from: Seconds,
        /// Until when.
        until: Seconds,
    },
}

/// A direction of messages, seen from a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Out of the node.
    Send,
    /// Into the node.
    Receive,
}

impl Direction {
    /// Both.
    pub const ALL: [Direction; 2] = [Direction::Send, Direction::Receive];

    /// The name in files and flags.
    pub fn name(self) -> &'static str {
        match self {
            Direction::Send => "send",
            Direction::Receive => "receive",
        }
    }

    pub(super) fn named(name: &str) -> Option<Direction> {
        Direction::ALL.into_iter().find(|direction| direction.name() == name)
    }
}

/// The longest window of an intermittent fault: an hour.
pub(super) const LONGEST_WINDOW: Seconds = Seconds(3600.0);
/// The fewest nodes that work together.
pub(super) const FEWEST_TOGETHER: u32 = 2;

/// Whether there is time between two moments.
pub(super) fn is_while(from: Seconds, until: Seconds) -> bool {
    from.0 >= 0.0 && from.0 < until.0 && until.0 <= LONGEST_WINDOW.0
}

/// Whether a share of a rate can be left.
pub(super) fn is_rate_factor(factor: f64) -> bool {
    (SMALLEST_RATE_FACTOR..=1.0).contains(&factor)
}
