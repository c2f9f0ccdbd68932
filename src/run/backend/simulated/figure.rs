//! What a machine file says that a call takes. Libraries have algorithms that the simulation does not know (sums in switches, protocols for
//! small messages), and do not reach what links carry: a call with a figure takes as long as the figure says.

use super::fleet::Fleet;
use crate::backend::Binding;
use commgauge_analysis::machine_time::seconds_without_noise;
use commgauge_base::variant::Variant;
use commgauge_model::config::Machine;
use commgauge_model::config::machine::{Expectation, ExpectedCall, Limit};
use commgauge_model::layout::Locality;

/// The time of the fastest figure about a call over the time that its links allow; 1 without a figure. With a fault a call takes that much of
/// the time that the broken links allow. A bare limit is no figure: nobody says that it was reached.
pub(super) fn factor(machine: &Machine, binding: &Binding, fleet: &Fleet) -> f64 {
    let (op, geometry) = (binding.op, binding.geometry);
    let reached = |expected: &&Expectation| expected.tolerance.is_some() && expected.variant.is_empty();
    let of_size = |expected: &&Expectation| {
        expected.collective == op.collective && (expected.bytes.0..=expected.bytes.1).contains(&op.bytes_total)
    };
    let mut candidates = machine.expectations.iter().filter(reached).filter(of_size).peekable();
    if candidates.peek().is_none() || binding.variant != Variant::default() {
        return 1.0;
    }
    let lies =
        |place: &dyn Fn(u32) -> u32| Locality::of(binding.groups, &(0..fleet.ranks).map(place).collect::<Vec<u32>>());
    let call = ExpectedCall {
        collective: op.collective,
        group: lies(&|rank| fleet.node_of(rank)).group(geometry.ranks()),
        cadence: binding.cadence,
        placement: binding.placement,
        element_type: op.element,
        bytes: op.bytes_total,
    };
    let seconds = candidates.filter(|expected| expected.is_about(&call)).filter_map(|expected| {
        let moved = geometry.bytes_accounted.0 as f64 * op.collective.bus_factor(geometry.ranks()).unwrap_or(0.0);
        let seconds = match expected.limit {
            Limit::BusBandwidthFloor(_) => moved / expected.figure(),
            Limit::LatencyCeiling(_) => expected.figure(),
        };
        Some(seconds).filter(|seconds| *seconds > 0.0)
    });
    let Some(figure) = seconds.reduce(f64::min) else { return 1.0 };
    let by_links = seconds_without_noise(
        machine,
        op.collective,
        geometry.ranks(),
        op.bytes_total,
        &lies(&|rank| fleet.domain_of(rank)),
    );
    by_links.filter(|seconds| *seconds > 0.0).map_or(1.0, |seconds| figure / seconds)
}
