//! How far runs reach, and what their machine expects of the calls between its nodes.

use super::LoadedRecord;
use super::expected::expected_call;
use commgauge_base::units::Rate;
use commgauge_model::config::Machine;
use commgauge_model::record::line::Header;
use std::collections::HashSet;

/// What NCCL reckons that a channel carries over the network (`P2P_PER_CHANNEL_NET_BW`, NCCL 2.30, src/graph/paths.cc).
const RATE_OF_A_CHANNEL: Rate = Rate(14e9);
/// Channels of each pair of ranks over the network, where a user sets their number (NCCL user guide, "Environment Variables").
const CHANNELS_OF_A_PAIR: &str = "NCCL_NCHANNELS_PER_NET_PEER";

/// Nodes of a run as its machine counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    /// Nodes; several hosts that the links within a node join are one.
    pub nodes: u32,
    /// Hosts of each.
    pub hosts_per_node: u32,
    /// Hosts of all.
    pub hosts: u32,
}

impl Span {
    /// So many hosts of a machine.
    pub fn new(hosts: u32, hosts_per_node: u32) -> Span {
        let hosts_per_node = hosts_per_node.max(1);
        Span { nodes: hosts.div_ceil(hosts_per_node), hosts_per_node, hosts }
    }

    /// The largest of records; none where no ranks call each other, as in runs of copies alone. Other tools may not name the hosts of their
    /// ranks, and calls then show how many there are at least.
    pub fn of(records: &[LoadedRecord], machine: Option<&Machine>) -> Span {
        let hosts = |loaded: &LoadedRecord| {
            if loaded.record.plan.cases.is_empty() {
                return 0;
            }
            let named: HashSet<u32> = loaded.record.header.ranks.iter().map(|rank| rank.node).collect();
            let spanned = loaded.record.plan.cases.iter().map(|facts| facts.locality.nodes_spanned);
            spanned.chain([named.len() as u32]).max().unwrap_or(0)
        };
        let most = records.iter().map(hosts).max().unwrap_or(0);
        Span::new(most, machine.map_or(1, |machine| machine.hosts_per_node))
    }
}

/// The machine with what it expects of the calls of records, whatever the number of their nodes.
pub(super) fn expecting(machine: &Machine, records: &[LoadedRecord]) -> Machine {
    let calls = records.iter().flat_map(|loaded| &loaded.record.plan.cases).map(expected_call);
    machine.expecting(calls, most_of_a_pair(records.iter().map(|loaded| &loaded.record.header)))
}

/// What the library carries at least between two ranks, where that may be less than their adapters do: NCCL halves the channels of a pair as
/// ranks grow, down to one (`ncclTopoComputeP2pChannels`, NCCL 2.30, src/graph/paths.cc), unless their number is set. Where nothing was
/// measured, the adapters decide.
pub(super) fn most_of_a_pair<'a>(headers: impl IntoIterator<Item = &'a Header>) -> Option<Rate> {
    let carried = |header: &Header| {
        let channels = header.environment.get(CHANNELS_OF_A_PAIR).and_then(|text| text.trim().parse::<u32>().ok());
        let is_nccl = header.backend.library.starts_with("NCCL") && !header.backend.synthetic;
        is_nccl.then(|| RATE_OF_A_CHANNEL.0 * f64::from(channels.unwrap_or(1).max(1)))
    };
    headers.into_iter().filter_map(carried).reduce(f64::min).map(Rate)
}
