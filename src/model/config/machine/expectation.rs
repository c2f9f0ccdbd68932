//! What is expected of a machine: the performance of a call, and by how much it may be missed.

use commgauge_base::collective::{Collective, Placement};
use commgauge_base::element::ElementType;
use commgauge_base::sample::Cadence;
use commgauge_base::units::{Bytes, Rate, Seconds, counted};
use std::collections::BTreeMap;

/// Required performance of one kind of call.
#[derive(Clone, Debug, PartialEq)]
pub struct Expectation {
    /// File, line and key of the expectation, for messages and reports.
    pub place: String,
    /// The call.
    pub collective: Collective,
    /// Smallest and largest size argument, in the sense of nccl-tests, ends included.
    pub bytes: (Bytes, Bytes),
    /// The groups that carry it out.
    pub group: ExpectedGroup,
    /// What is timed.
    pub cadence: Cadence,
    /// Whether the result replaces the input; both if absent.
    pub placement: Option<Placement>,
    /// Type of the elements; any if absent.
    pub element_type: Option<ElementType>,
    /// How the calls are handed over, by the labels of records (`buffers`, `submit`, `aggregate` ...); empty for plain calls.
    pub variant: BTreeMap<String, String>,
    /// What must be met.
    pub limit: Limit,
    /// Value and tolerance from which the limit was computed, if given so.
    pub tolerance: Option<f64>,
    /// Origin of the figure: a publication or a measurement.
    pub source: String,
    /// When: `2026`, `2026-03` or `2026-03-14`.
    pub date: String,
    /// True if switches reduce or copy by themselves, so that the links are no bound.
    pub in_network: bool,
    /// With what the figure was reached.
    pub reached: Reached,
    /// Further remarks.
    pub note: Option<String>,
}

/// With what a figure was reached.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reached {
    /// Algorithm. Only calls of which the record says that they had it are compared with the figure.
    pub algorithm: Option<String>,
    /// Library and version.
    pub version: Option<String>,
    /// True if one process drove all devices of a host with a thread for each: small messages then take another time than those of
    /// processes, which are not compared with it.
    pub one_process: bool,
}

/// Required performance of calls between nodes, as a share of what the adapters carry, for groups of any number of nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct NetworkExpectation {
    /// The part of the adapters' rate that is reached.
    pub share: f64,
    /// The share of that by which it may be missed.
    pub tolerance: f64,
    /// The rest of it. Group, size and limit are taken from each call that it is about.
    pub of_call: Expectation,
}

impl NetworkExpectation {
    /// What it requires of a call, for which the adapters and the library carry at most `most`; none where it is not about the call.
    pub(super) fn of(&self, call: &ExpectedCall, most: Rate) -> Option<Expectation> {
        let expected = Expectation { group: call.group, ..self.of_call.clone() };
        expected.is_about(call).then_some(Expectation {
            bytes: (call.bytes, call.bytes),
            limit: Limit::BusBandwidthFloor(Rate(most.0 * (1.0 - self.tolerance))),
            tolerance: Some(self.tolerance),
            ..expected
        })
    }
}

/// The pass limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// The least bus bandwidth.
    BusBandwidthFloor(Rate),
    /// The longest time of a call (of one way where a call has several).
    LatencyCeiling(Seconds),
}

impl Expectation {
    /// The figure itself: the limit without the tolerance, where it has one. A bus bandwidth in bytes per second or a time
    /// in seconds, as the limit is.
    pub fn figure(&self) -> f64 {
        let tolerance = self.tolerance.unwrap_or(0.0);
        match self.limit {
            Limit::BusBandwidthFloor(rate) => rate.0 / (1.0 - tolerance),
            Limit::LatencyCeiling(time) => time.0 / (1.0 + tolerance),
        }
    }

    /// Whether it is about such a call, whatever its variant.
    pub fn is_about(&self, call: &ExpectedCall) -> bool {
        let ExpectedCall { collective, group, cadence, placement, element_type, bytes } = *call;
        self.covers(collective, bytes)
            && (self.group, self.cadence) == (group, cadence)
            && self.placement.is_none_or(|expected| expected == placement)
            && self.element_type.is_none_or(|expected| expected == element_type)
    }

    /// Whether it is about such a call of this size in some groups.
    pub fn covers(&self, collective: Collective, bytes: Bytes) -> bool {
        self.collective == collective && (self.bytes.0..=self.bytes.1).contains(&bytes)
    }

    /// What it is about, in words.
    pub fn subject(&self) -> String {
        let (least, most) = self.bytes;
        let size = if least == most { least.to_string() } else { format!("{least} to {most}") };
        let ExpectedGroup { ranks, nodes, groups_per_node, .. } = self.group;
        let at_once = if groups_per_node > 1 { format!(", {groups_per_node} groups at once") } else { String::new() };
        let nodes = counted(nodes as usize, "node");
        format!("{} of {size}, {} on {ranks} ranks of {nodes}{at_once}", self.collective, self.cadence.name())
    }
}

/// The size of a group, and how it lies on the hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ExpectedGroup {
    /// Ranks in each group.
    pub ranks: u32,
    /// Most ranks of a group on one node.
    pub ranks_per_node: u32,
    /// Nodes that a group spans.
    pub nodes: u32,
    /// Groups that have ranks on the same node and are at work at the same time.
    pub groups_per_node: u32,
}

/// A call of which something may be expected.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExpectedCall {
    /// The call.
    pub collective: Collective,
    /// The groups that carry it out.
    pub group: ExpectedGroup,
    /// What is timed.
    pub cadence: Cadence,
    /// Whether the result replaces the input.
    pub placement: Placement,
    /// Type of the elements.
    pub element_type: ElementType,
    /// The size argument in the sense of nccl-tests.
    pub bytes: Bytes,
}
