//! Adapters that are slow in one direction only, from how much longer calls take both ways at once and back and forth.
//!
//! Of a call that takes r times as long in one direction: both ways at once it takes r times as long, as the slower direction
//! decides, and back and forth (1 + r) / 2 times. Where both directions are slow it is r times for both.

use super::confirm::FEW_NODES;
use super::explain::Search;
use super::pair_lines::Measure;

/// Smaller differences between the two explanations are not taken apart.
const MIN_DIFFERENCE: f64 = 0.04;

/// Whether an adapter is slow in one direction only, as far as the searches of both measures can say.
pub(super) fn is_one_direction(searches: &[Search], node: usize, local: usize) -> bool {
    let excess = |measure| {
        let search = searches.iter().find(|search| search.measure == measure && search.matrix.nodes >= FEW_NODES)?;
        search.excess_of_adapter.get(node)?.get(local).copied().filter(|excess| !excess.is_nan())
    };
    match (excess(Measure::OneWay), excess(Measure::BothWays)) {
        (Some(back_and_forth), Some(both_ways)) => fits_one_direction(back_and_forth, both_ways),
        _ => false,
    }
}

/// The same, from logarithms.
fn fits_one_direction(back_and_forth: f64, both_ways: f64) -> bool {
    let expected = ((1.0 + both_ways.exp()) / 2.0).ln();
    let difference = both_ways - expected;
    difference >= MIN_DIFFERENCE && (back_and_forth - expected).abs() < difference / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_direction_costs_half_as_much_back_and_forth() {
        for (back_and_forth, both_ways, one_direction) in [
            (1.5, 2.0, true),
            (1.45, 2.0, true),
            (2.0, 2.0, false),
            (1.9, 2.0, false),
            // Slow only where both directions are used at once.
            (1.0, 2.0, false),
            // Too little to tell.
            (1.025, 1.05, false),
            (1.1, 1.2, true),
        ] {
            let (one, both): (f64, f64) = (back_and_forth, both_ways);
            assert_eq!(fits_one_direction(one.ln(), both.ln()), one_direction, "{back_and_forth} and {both_ways}");
        }
    }
}
