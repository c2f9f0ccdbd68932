//! Slowdown of a call with more concurrent groups on a node: exponents fitted to localities that differ only in the number of
//! groups, including a single group.
//!
//! The law is in [`super::sharing`]. Groups are counted per node or, across nodes with a known number of adapters, per adapter: as long as
//! every group has its own adapter, more groups do not slow it down.

mod fitted;

pub use fitted::contention;

use super::coefficient::Coefficient;
use super::errors::Errors;
use super::sharing::Sharing;
use commgauge_base::collective::Collective;
use commgauge_base::sample::Cadence;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Factor beyond the measured group counts up to which a coefficient applies.
const MAX_EXTRAPOLATION: u32 = 2;

/// Growth of the time of a call with the number of concurrent groups.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Contention {
    /// The call; absent for the coefficient of all calls measured with several numbers of groups, which applies to the other calls.
    pub collective: Option<Collective>,
    pub cadence: Cadence,
    /// True for groups that span nodes, which share adapters; false for groups within a node.
    pub across_nodes: bool,
    /// Adapters per node, if groups are counted per adapter. Else they are counted per node.
    pub adapters_per_node: Option<u32>,
    /// Exponent of the latency part: with x times as many groups it takes x^a times as long.
    pub latency_exponent: Option<Coefficient>,
    /// Exponent of the bandwidth part: 0 where groups do not share, 1 where they share all.
    pub bandwidth_exponent: Option<Coefficient>,
    /// Fewest groups on a node in the fitted data.
    pub groups_fewest: u32,
    /// Most groups.
    pub groups_most: u32,
    /// Curves behind it.
    pub curves: u64,
    /// Error of the slowdowns predicted by it.
    pub errors: Errors,
    /// Origin of those errors.
    pub errors_from: ErrorsFrom,
}

/// Origin of the errors of a contention coefficient.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
pub enum ErrorsFrom {
    /// Curves left out, one after the other.
    #[strum(serialize = "curves left out")]
    CurvesLeftOut,
    /// Numbers of groups left out, one after the other.
    #[strum(serialize = "groups left out")]
    GroupsLeftOut,
    /// The fitted times themselves, if nothing else is available: too small.
    #[strum(serialize = "residuals")]
    Residuals,
}

commgauge_base::error::names!(ErrorsFrom);

/// Factor on the time of a call with another number of concurrent groups, with its range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SlowdownFactor {
    /// The best guess.
    pub middle: f64,
    /// Lower end, by the intervals of the exponents and the errors of the coefficient.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Both numbers of groups are within the measured range.
    pub inside: bool,
}

impl Contention {
    /// From `measured` concurrent groups on a node to `groups`, for a call in which bandwidth is the fraction `share` of the time (at
    /// `measured`). `None` if that part was not measured, or more than twice outside the measured group counts.
    pub fn slower(&self, measured: u32, groups: u32, share: f64) -> Option<SlowdownFactor> {
        let least = self.groups_fewest.min(measured);
        let most = self.groups_most.max(measured);
        if measured == 0
            || groups == 0
            || groups > most.saturating_mul(MAX_EXTRAPOLATION)
            || groups.saturating_mul(MAX_EXTRAPOLATION) < least
        {
            return None;
        }
        let more = load(groups, self.counted_per()) / load(measured, self.counted_per());
        let with = |end: fn(&Coefficient) -> f64| {
            let sharing = Sharing {
                latency: self.latency_exponent.as_ref().map(end),
                bandwidth: self.bandwidth_exponent.as_ref().map(end),
            };
            sharing.slower(more, share)
        };
        let middle = with(|exponent| exponent.value)?;
        let ends = [
            with(|exponent| exponent.low.unwrap_or(exponent.value))?,
            with(|exponent| exponent.high.unwrap_or(exponent.value))?,
        ];
        // Without a change there is no error.
        let off = if more == 1.0 { 1.0 } else { 1.0 + self.errors.p95_or_maximum() };
        Some(SlowdownFactor {
            middle,
            low: ends[0].min(ends[1]) / off,
            high: ends[0].max(ends[1]) * off,
            inside: (self.groups_fewest..=self.groups_most).contains(&groups)
                && (self.groups_fewest..=self.groups_most).contains(&measured),
        })
    }

    fn counted_per(&self) -> u32 {
        self.adapters_per_node.filter(|_| self.across_nodes).unwrap_or(1)
    }
}

/// Groups that share one of this many adapters.
fn load(groups: u32, adapters: u32) -> f64 {
    (f64::from(groups) / f64::from(adapters.max(1))).max(1.0)
}

#[cfg(test)]
mod tests {
    // The exponents behind synthetic times are recovered, and places in between are predicted.
    use super::super::sharing::Observation;
    use super::*;
    use crate::cost::place::Labels;
    use crate::cost::{
        CurveKey, FamilyKey, Fit, FitOptions, Measured, Measurements, Place, Predictor, Query, Status, fit,
    };
    use commgauge_base::units::Bytes;

    fn key(collective: Collective, nodes: u32, groups: u32) -> FamilyKey {
        FamilyKey {
            collective,
            element_type: None,
            cadence: Cadence::Streaming,
            place: Place { nodes_spanned: nodes, concurrent_groups_per_node: groups, stride: 8 },
            labels: Labels::new(),
        }
    }

    /// Times of 1 KiB to 1 GiB, in which alpha and beta grow by these powers of `more`.
    fn times(more: f64, exponents: (f64, f64)) -> Measured {
        let one = |bytes: u64| 2e-5 * more.powf(exponents.0) + bytes as f64 / 20e9 * more.powf(exponents.1);
        // Three replicates, two of them off by a hundredth to either side.
        (10..31)
            .map(|power| 1u64 << power)
            .map(|bytes| (bytes, vec![one(bytes) * 0.99, one(bytes), one(bytes) * 1.01]))
            .collect()
    }

    fn measured(of: &[(Collective, u32, u32, f64)], exponents: (f64, f64)) -> Measurements {
        let curve = |&(collective, nodes, groups, more): &(Collective, u32, u32, f64)| {
            (CurveKey { family: key(collective, nodes, groups), ranks: 4 }, times(more, exponents))
        };
        Measurements { curves: of.iter().map(curve).collect(), ..Measurements::default() }
    }

    fn query(collective: Collective, locality: &str, bytes: u64) -> Query {
        let locality = Some(locality.parse().unwrap());
        Query { collective, ranks: 4, bytes_total: Bytes(bytes), element_type: None, locality, cadence: None }
    }

    fn fitted(measurements: &Measurements, adapters_per_node: Option<u32>) -> Fit {
        fit(measurements, FitOptions { resamples: 60, adapters_per_node }).unwrap()
    }

    use Collective::{AllGather, AllToAll, Broadcast};

    #[test]
    fn with_one_number_of_groups_there_is_no_coefficient_and_no_answer_elsewhere() {
        let fit = fitted(&measured(&[(AllGather, 2, 1, 1.0)], (0.0, 1.0)), None);
        assert!(fit.contention.is_empty());
        let answer = Predictor::new(&fit).predict(&query(AllGather, "2n/4g/s8", 1 << 20));
        assert_eq!(answer.status, Status::Refused);
        let reason = answer.reason.unwrap();
        assert!(reason.contains("2n/1g/s8") && reason.contains("4 concurrent groups"), "{reason}");
    }

    #[test]
    fn the_exponents_of_latency_and_bandwidth_are_separated() {
        let fit = fitted(&measured(&[(AllGather, 2, 1, 1.0), (AllGather, 2, 4, 4.0)], (0.1, 0.8)), None);
        let [one] = fit.contention.as_slice() else { panic!("{:?}", fit.contention) };
        for (found, truth) in [(one.latency_exponent.unwrap(), 0.1), (one.bandwidth_exponent.unwrap(), 0.8)] {
            assert!((found.value - truth).abs() < 0.02, "{found:?} for {truth}");
            assert!(found.low.unwrap() <= found.value && found.value <= found.high.unwrap());
        }
        assert_eq!((one.groups_fewest, one.groups_most, one.curves), (1, 4, 1));
        assert_eq!(one.errors_from, ErrorsFrom::Residuals);
    }

    #[test]
    fn a_place_that_was_not_measured_is_scaled_from_the_nearest_and_says_so() {
        let fit = fitted(&measured(&[(AllGather, 2, 1, 1.0), (AllGather, 2, 4, 4.0)], (0.1, 0.8)), None);
        let predictor = Predictor::new(&fit);
        for (locality, more, status) in [
            ("2n/2g/s8", 2.0, Status::Transferred),
            ("2n/2g", 2.0, Status::Transferred),
            ("2n/3g/s4", 3.0, Status::Transferred),
            ("2n/8g/s8", 8.0, Status::Extrapolated),
            ("2n/4g/s8", 4.0, Status::Interpolated),
        ] {
            for bytes in [4096u64, 300_000, 1 << 28] {
                let truth = 2e-5 * f64::powf(more, 0.1) + bytes as f64 / 20e9 * f64::powf(more, 0.8);
                let answer = predictor.predict(&query(AllGather, locality, bytes));
                assert_eq!(answer.status, status, "{locality}");
                let (low, seconds, high) = (answer.low.unwrap().0, answer.seconds.unwrap().0, answer.high.unwrap().0);
                assert!((seconds / truth - 1.0).abs() < 0.06, "{locality}, {bytes}: {seconds} for {truth}");
                assert!(low < seconds && seconds < high);
                let is_scaled = status != Status::Interpolated;
                assert_eq!(answer.reason.is_some_and(|reason| reason.contains("contention")), is_scaled);
            }
        }
        for locality in ["2n/9g/s8", "3n/1g/s8", "1n/2g/s8", "3n"] {
            assert_eq!(predictor.predict(&query(AllGather, locality, 4096)).status, Status::Refused, "{locality}");
        }
    }

    #[test]
    fn another_call_uses_the_common_coefficient_and_is_extrapolated() {
        let all = [
            (AllGather, 2, 1, 1.0),
            (AllGather, 2, 4, 4.0),
            (AllToAll, 2, 1, 1.0),
            (AllToAll, 2, 4, 4.0),
            (Broadcast, 2, 1, 1.0),
        ];
        let fit = fitted(&measured(&all, (0.0, 0.9)), None);
        let of: Vec<Option<Collective>> = fit.contention.iter().map(|one| one.collective).collect();
        assert_eq!(of, [Some(AllGather), Some(AllToAll), None]);
        assert_eq!(fit.contention[2].errors_from, ErrorsFrom::CurvesLeftOut);
        let answer = Predictor::new(&fit).predict(&query(Broadcast, "2n/2g", 1 << 28));
        assert_eq!(answer.status, Status::Extrapolated);
        assert!(answer.reason.unwrap().contains("other calls' contention"));
    }

    #[test]
    fn groups_that_have_an_adapter_each_do_not_share() {
        // With two adapters a second group does not slow the first down, and four groups share in pairs.
        let all = [(AllGather, 2, 1, 1.0), (AllGather, 2, 2, 1.0), (AllGather, 2, 4, 2.0), (AllGather, 2, 8, 4.0)];
        let measurements = measured(&all, (0.0, 1.0));
        let per_node = fitted(&measurements, None);
        let per_adapter = fitted(&measurements, Some(2));
        let exponent = |fit: &Fit| fit.contention[0].bandwidth_exponent.unwrap().value;
        assert!((exponent(&per_adapter) - 1.0).abs() < 0.01, "{:?}", per_adapter.contention);
        assert!(exponent(&per_node) < 0.9, "{:?}", per_node.contention);
        assert!(per_adapter.contention[0].errors.maximum < 0.02 && per_node.contention[0].errors.maximum > 0.2);
        assert_eq!(per_adapter.contention[0].slower(1, 2, 1.0).unwrap().middle, 1.0);
        let within = fitted(&measured(&[(AllGather, 1, 1, 1.0), (AllGather, 1, 2, 2.0)], (0.0, 1.0)), Some(2));
        assert_eq!(within.contention[0].adapters_per_node, None, "within a node no adapter is shared");
    }

    /// Galvatron's own measurement of all_reduce on 2 nodes of 8 GPUs, all groups of a kind at once.
    #[test]
    #[expect(clippy::print_stderr, reason = "the harness catches it")]
    fn contention_explains_the_concurrent_groups_that_galvatron_measured() {
        let text = include_str!("../../../tests/data/published/galvatron-2x8-concurrent-groups.csv");
        let rows: Vec<(f64, f64)> = text
            .lines()
            .skip(1)
            .map(|line| line.split(',').collect::<Vec<_>>())
            .map(|fields| (fields[2].parse().unwrap(), fields[4].parse().unwrap()))
            .collect();
        let (_, alone) = rows[0];
        let seen =
            |&(groups, rate): &(f64, f64)| Observation { more: groups, share: 1.0, log_slower: f64::ln(alone / rate) };
        let law = Sharing::of(&rows[1..].iter().map(seen).collect::<Vec<_>>()).unwrap();
        let exponent = law.bandwidth.unwrap();
        eprintln!("bandwidth exponent {exponent:.3}");
        assert!((0.7..0.9).contains(&exponent), "{law:?}");
        for (groups, rate) in &rows[1..] {
            let predicted = alone / law.slower(*groups, 1.0).unwrap();
            eprintln!(
                "{groups} groups: egress of a node {:.1} GB/s, measured {:.1}",
                groups * predicted,
                groups * rate
            );
            assert!((predicted / rate - 1.0).abs() < 0.25, "{groups} groups: {predicted} for {rate}");
        }
        // Without the eight, from two and four groups only.
        let law = Sharing::of(&rows[1..3].iter().map(seen).collect::<Vec<_>>()).unwrap();
        let (groups, rate) = rows[3];
        let predicted = alone / law.slower(groups, 1.0).unwrap();
        eprintln!("8 groups from 2 and 4: {predicted:.2} GB/s each, measured {rate}; a lone group has {alone}");
        assert!((predicted / rate - 1.0).abs() < 0.25 && alone / rate > 5.0);
    }
}
