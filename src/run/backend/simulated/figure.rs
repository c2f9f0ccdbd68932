//! What a machine file says that a call takes. Libraries have algorithms that the simulation does not know (sums in switches, protocols for
//! small messages), and do not reach what links carry: a call with a figure takes as long as the figure says.

use super::fleet::Fleet;
use crate::backend::Binding;
use commgauge_analysis::machine_time::seconds_without_noise;
use commgauge_base::variant::Variant;
use commgauge_model::config::Machine;
use commgauge_model::config::machine::{Expectation, ExpectedCall, Limit};
use commgauge_model::layout::Locality;

/// By how much a healthy machine is within a limit of which nobody says what was reached.
const WITHIN_LIMIT: f64 = 1.05;

/// The time of a call on a machine that meets its file over the time that its links allow; 1 where nothing is expected of the call. With a fault
/// it takes that much of the time that the broken links allow.
pub(super) fn factor(machine: &Machine, binding: &Binding, fleet: &Fleet) -> f64 {
    let (op, geometry) = (binding.op, binding.geometry);
    let mut candidates =
        machine.expectations.iter().filter(|expected| expected.covers(op.collective, op.bytes_total)).peekable();
    if candidates.peek().is_none() || binding.variant != Variant::default() {
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
    let about: Vec<&Expectation> =
        candidates.filter(|expected| expected.variant.is_empty() && expected.is_about(&call)).collect();
    let by_links = (!about.is_empty()).then(|| {
        seconds_without_noise(machine, op.collective, ranks, op.bytes_total, &lies(&|rank| fleet.domain_of(rank)))
    });
    let Some(by_links) = by_links.flatten().filter(|seconds| *seconds > 0.0) else { return 1.0 };
    let moved = geometry.bytes_accounted.0 as f64 * op.collective.bus_factor(ranks).unwrap_or(0.0);
    let seconds = about.into_iter().map(|expected| expected_seconds(expected, moved, by_links));
    seconds.filter(|seconds| *seconds > 0.0).reduce(f64::min).map_or(1.0, |seconds| seconds / by_links)
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
