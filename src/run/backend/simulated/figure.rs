//! What a machine file says that a call takes. Libraries have algorithms that the simulation does not know (sums in switches, protocols for
//! small messages), and do not reach what links carry: a call with a figure takes as long as the figure says.

use super::fleet::Fleet;
use crate::backend::Binding;
use commgauge_analysis::machine_time::seconds_without_noise;
use commgauge_base::variant::Variant;
use commgauge_model::config::Machine;
use commgauge_model::config::machine::{Expectation, ExpectedCall, ExpectedGroup, Limit};
use commgauge_model::layout::Locality;

/// By how much a healthy machine is within a limit of which nobody says what was reached.
const WITHIN_LIMIT: f64 = 1.05;

/// The time of a call on a machine that meets its file over the time that its links allow; 1 where nothing is expected of the call. With a fault
/// it takes that much of the time that the broken links allow.
///
/// What a library reaches over so many nodes it reaches over more and fewer, too: groups of several nodes without a figure have the factor of
/// the nearest number of nodes that has one, or they would look slow beside it.
pub(super) fn factor(machine: &Machine, binding: &Binding, fleet: &Fleet) -> f64 {
    let (op, geometry) = (binding.op, binding.geometry);
    let covers = |expected: &Expectation| expected.covers(op.collective, op.bytes_total);
    let is_expected = machine.expectations.iter().chain(machine.network.iter().map(|row| &row.of_call)).any(covers);
    if !is_expected || binding.variant != Variant::default() {
        return 1.0;
    }
    let lies =
        |place: &dyn Fn(u32) -> u32| Locality::of(binding.groups, &(0..fleet.ranks).map(place).collect::<Vec<u32>>());
    let ranks = geometry.ranks();
    let call = ExpectedCall {
        collective: op.collective,
        group: lies(&|rank| fleet.node_of(rank)).group(ranks),
        cadence: binding.cadence,
        placement: binding.placement,
        element_type: op.element,
        bytes: op.bytes_total,
    };
    let machine = &machine.expecting([call], None);
    let is_candidate = |expected: &&Expectation| expected.variant.is_empty() && covers(expected);
    let candidates: Vec<&Expectation> = machine.expectations.iter().filter(is_candidate).collect();
    let Some(group) = nearest(&candidates, &call, machine.hosts_per_node > 1) else { return 1.0 };
    let locality = match group == call.group {
        true => lies(&|rank| fleet.domain_of(rank)),
        false => Locality::filled(group.ranks, group.ranks_per_node, 1),
    };
    let by_links = seconds_without_noise(machine, op.collective, group.ranks, op.bytes_total, &locality);
    let Some(by_links) = by_links.filter(|seconds| *seconds > 0.0) else { return 1.0 };
    let moved = geometry.bytes_accounted.0 as f64 * op.collective.bus_factor(group.ranks).unwrap_or(0.0);
    // Figures are of one transfer of a call, of which a ping-pong has two.
    let by_links = by_links / f64::from(op.collective.transfers_per_call());
    let about = candidates.iter().filter(|expected| expected.is_about(&ExpectedCall { group, ..call }));
    let seconds = about.map(|expected| expected_seconds(expected, moved, by_links));
    seconds.filter(|seconds| *seconds > 0.0).reduce(f64::min).map_or(1.0, |seconds| seconds / by_links)
}

/// The group of a call if something is expected of it, else that of as many ranks of each node over the nearest number of nodes of which
/// something is. Racks are not compared with hosts in one of them.
fn nearest(candidates: &[&Expectation], call: &ExpectedCall, has_racks: bool) -> Option<ExpectedGroup> {
    let nodes = call.group.nodes;
    let is_alike = |group: &ExpectedGroup| {
        let other = ExpectedGroup { ranks: call.group.ranks, nodes, ..*group };
        *group == call.group || (!has_racks && other == call.group && nodes > 1 && group.nodes > 1)
    };
    let groups = candidates
        .iter()
        .filter(|expected| expected.is_about(&ExpectedCall { group: expected.group, ..*call }))
        .map(|expected| expected.group);
    let times_as_many = |group: &ExpectedGroup| f64::from(group.nodes.max(nodes)) / f64::from(group.nodes.min(nodes));
    groups.filter(is_alike).min_by(|a, b| times_as_many(a).total_cmp(&times_as_many(b)))
}

/// As long as the figure says, and within a bare limit where the links alone would not be.
fn expected_seconds(expected: &Expectation, moved: f64, by_links: f64) -> f64 {
    let seconds = match expected.limit {
        Limit::BusBandwidthFloor(_) => moved / expected.figure(),
        Limit::LatencyCeiling(_) => expected.figure(),
    };
    match expected.tolerance {
        Some(_) => seconds,
        None => by_links.min(seconds / WITHIN_LIMIT),
    }
}
