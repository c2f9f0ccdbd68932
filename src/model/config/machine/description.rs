//! A machine as its file describes it.

use super::expectation::{Expectation, NetworkExpectation};
use super::fault::Fault;
use super::level::Level;
use super::own_work::OwnWorkExpectation;
use super::scope::{JudgedRuns, RequiredCoverage};
use commgauge_base::error::Result;
use commgauge_base::units::{Rate, Seconds, three_digits};
use std::path::PathBuf;

/// A machine as its file describes it, checked.
///
/// Every tier of the machine has its own table; further tiers, such as racks, become further tables.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// The file, for messages.
    pub path: PathBuf,
    /// The name by which records and reports call it.
    pub name: String,
    /// Provider and instance name, for a rented machine.
    pub cloud: Option<String>,
    /// Ranks on each node, neighbours in world rank.
    pub ranks_per_node: u32,
    /// Hosts that the links within a node join to one: 18 where a rack of 18 hosts is one NVLink domain, else 1.
    pub hosts_per_node: u32,
    /// Links among the ranks of a node.
    pub within_node: NodeLinks,
    /// Links between nodes.
    pub between_nodes: Network,
    /// What one GPU computes, where the file says it.
    pub computing: Option<Computing>,
    /// What its GPUs reach in training steps, where the file says it; else the shipped levels hold.
    pub own_levels: Vec<Level>,
    /// Variation of simulated times. Without the table there is none.
    pub noise: Noise,
    /// Injected faults.
    pub faults: Vec<Fault>,
    /// Required performance of calls. A file without any gates nothing.
    pub expectations: Vec<Expectation>,
    /// Required performance of calls between nodes, for any number of nodes.
    pub network: Vec<NetworkExpectation>,
    /// Required performance of copies and matrix products, which each rank carries out by itself.
    pub own_work: Vec<OwnWorkExpectation>,
    /// The runs that the expectations judge. Without it no run passes.
    pub judged_runs: Option<JudgedRuns>,
    /// What must have been judged before a run can pass. Without it no run passes.
    pub required_coverage: Option<RequiredCoverage>,
}

/// Links among the ranks of a node.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeLinks {
    /// Time of a message without bytes.
    pub latency: Seconds,
    /// Bytes per second that one rank can send, and at the same time receive.
    pub rate: Rate,
    /// Rate of the link to any one other rank, if each pair has a separate link instead of a switch.
    pub rate_per_peer: Option<Rate>,
    /// True if the rate is a guess for rehearsals: it is used in simulations, but bounds nothing.
    pub assumed: bool,
}

/// Links between nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    /// Time of a message without bytes.
    pub latency: Seconds,
    /// Network adapters of each node, shared by its ranks.
    pub adapters_per_node: u32,
    /// Nodes behind each leaf switch, neighbours in number; absent if there is one switch for all, or if unknown.
    pub nodes_per_leaf: Option<u32>,
    /// Bytes per second that one adapter can send, and at the same time receive.
    pub rate_per_adapter: Rate,
    /// True if the rate is a guess for rehearsals: it is used in simulations, but bounds nothing.
    pub assumed: bool,
}

/// What one GPU computes, by its data sheet.
#[derive(Clone, Debug, PartialEq)]
pub struct Computing {
    /// The kind of GPU, as levels name it, where the file says it.
    pub gpu: Option<String>,
    /// Peak of dense matrix products of 16-bit floats, operations per second.
    pub peak_flops_per_second: f64,
    /// The same of 8-bit floats, where the GPU has them.
    pub peak_fp8_flops_per_second: Option<f64>,
    /// Bytes per second to and from its memory, both together.
    pub memory_rate: Rate,
}

impl Computing {
    /// The peak of 16-bit floats with who says it: `989 TFLOP/s (given)`.
    pub fn peak_by(&self, source: &str) -> String {
        format!("{} TFLOP/s ({source})", three_digits(self.peak_flops_per_second / 1e12))
    }

    /// The memory's rate with who says it.
    pub fn memory_by(&self, source: &str) -> String {
        format!("{} ({source})", self.memory_rate)
    }
}

/// Variation of simulated times from call to call.
#[derive(Clone, Debug, PartialEq)]
pub struct Noise {
    /// Standard deviation of the logarithm of a call's time: 0.01 is about 1 %.
    pub relative_sigma: f64,
    /// Share of calls that take `outlier_factor` times as long.
    pub outlier_probability: f64,
    /// See `outlier_probability`.
    pub outlier_factor: f64,
    /// Ranks reach an agreed start up to this much late, uniformly distributed.
    pub arrival_jitter: Seconds,
}

impl Machine {
    /// How many thresholds the file has: of calls, of what each rank does by itself, and of the network.
    pub fn thresholds(&self) -> usize {
        self.expectations.len() + self.own_work.len() + self.network.len()
    }

    /// What GPUs reach in training steps: what the file says, then what is shipped.
    ///
    /// # Errors
    /// A program that was built without levels.
    pub fn levels(&self) -> Result<Vec<Level>> {
        Ok([self.own_levels.clone(), Level::shipped()?].concat())
    }

    /// Ranks on each host.
    pub fn ranks_per_host(&self) -> u32 {
        (self.ranks_per_node / self.hosts_per_node.max(1)).max(1)
    }

    /// Hosts that so many ranks fill, the last of them perhaps in part.
    pub fn hosts_of(&self, ranks: u32) -> u32 {
        ranks.div_ceil(self.ranks_per_host())
    }

    /// Hosts that the links within a node join, where they join several.
    pub fn hosts_per_rack(&self) -> Option<u32> {
        Some(self.hosts_per_node).filter(|hosts| *hosts > 1)
    }

    /// Hosts behind each leaf switch, where that is known.
    pub fn hosts_per_leaf(&self) -> Option<u32> {
        self.between_nodes.nodes_per_leaf.map(|nodes| nodes.saturating_mul(self.hosts_per_node.max(1)))
    }

    /// The machine with its hosts for nodes, which is how records and faults count them. Only the links that join several hosts to one node
    /// are then left out.
    pub fn by_hosts(&self) -> Machine {
        let hosts = self.hosts_per_node.max(1);
        let mut machine = self.clone();
        (machine.ranks_per_node, machine.hosts_per_node) = (self.ranks_per_host(), 1);
        let network = &mut machine.between_nodes;
        network.adapters_per_node = (network.adapters_per_node / hosts).max(1);
        network.nodes_per_leaf = self.hosts_per_leaf();
        machine
    }
}

impl Default for Noise {
    fn default() -> Self {
        Noise { relative_sigma: 0.0, outlier_probability: 0.0, outlier_factor: 1.0, arrival_jitter: Seconds(0.0) }
    }
}
