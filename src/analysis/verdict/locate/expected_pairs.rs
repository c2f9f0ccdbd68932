//! Pairs of nodes against what the machine file says that they reach: what is slow everywhere shows in no comparison of its parts, and on two
//! nodes there is nothing to compare.

use super::super::expected::{Expected, expected_call};
use super::super::loaded_record::LoadedRecord;
use super::super::network;
use super::document::SuspectKind;
use super::explain::Search;
use super::pair_lines::{Measure, is_pairs};
use commgauge_base::stats::Usual;
use commgauge_base::units::Rate;
use commgauge_model::config::{Limit, Machine};

/// What pairs reach by one measure on a machine that meets its file.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExpectedPairs {
    measure: Measure,
    /// Of one path.
    rate: Rate,
    /// The logarithm of the nanoseconds of a message at that rate, and how much longer it may take.
    usual: Usual,
}

/// What a machine file says of the large messages of pairs between nodes.
pub(super) fn expected_pairs(records: &[LoadedRecord], machine: Option<&Machine>) -> Vec<ExpectedPairs> {
    let Some(machine) = machine.map(|machine| network::expecting(machine, records)) else { return Vec::new() };
    let expected = Expected::new(Some(&machine));
    let cases = records.iter().flat_map(|loaded| &loaded.record.plan.cases);
    let between_nodes: Vec<_> = cases.filter(|facts| is_pairs(facts) && facts.locality.nodes_spanned > 1).collect();
    let of_measure = |measure: Measure| {
        let cases =
            between_nodes.iter().filter(|facts| Measure::of(facts.collective, facts.bytes_total, None) == measure);
        // Small messages say nothing of a rate, though learned files bound them too.
        let largest = cases.clone().map(|facts| facts.bytes_total).max()?;
        cases.filter(|facts| facts.bytes_total == largest).find_map(|facts| {
            let required = expected.of_any_algorithm(&expected_call(facts))?;
            let Limit::BusBandwidthFloor(floor) = required.limit else { return None };
            let (rate, bytes) = (required.figure(), facts.bytes_accounted.0 as f64);
            let usual = Usual { middle: (1e9 * bytes / rate).ln(), allowed: (rate / floor.0).ln().max(f64::EPSILON) };
            Some(ExpectedPairs { measure, rate: Rate(rate), usual })
        })
    };
    [Measure::OneWay, Measure::BothWays].into_iter().filter_map(of_measure).collect()
}

impl ExpectedPairs {
    /// Names what all paths between all nodes have in common, where none of them reaches what is expected.
    pub(super) fn all_slow(expected: &[ExpectedPairs], search: &mut Search) {
        let Some(expected) = expected.iter().find(|one| one.measure == search.measure) else { return };
        let nodes = search.matrix.nodes;
        let values: Vec<f64> = search.matrix.pairs().filter_map(|pair| search.matrix.of_pair(pair)).collect();
        let Some(fastest) = values.iter().copied().reduce(f64::min).filter(|_| nodes > 1) else { return };
        if expected.usual.strength(fastest) <= 1.0 {
            return;
        }
        let share = (expected.usual.middle - fastest).exp();
        let file = format!("of the {} that the machine file expects", expected.rate);
        let (suspect, evidence) = match nodes {
            2 => {
                let evidence =
                    format!("reaches {share:.2} {file}; on two nodes it may be either of them or the way between them");
                (SuspectKind::Link { nodes: [0, 1], local_rank: None }, evidence)
            }
            _ => {
                let evidence = format!(
                    "the fastest of {} pairs of nodes reaches {share:.2} {file}, so all are slow",
                    values.len()
                );
                (SuspectKind::Network, evidence)
            }
        };
        search.add(suspect, fastest, &expected.usual, evidence);
    }
}
