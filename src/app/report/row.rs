//! One planned case with all its replicates merged, and its status.
//!
//! Numbers only; formatting is in the renderers.

use super::late::Late;
use super::rank_means::ReplicateTimes;
use super::status::Status;
use commgauge_base::sample::Timing;
use commgauge_base::stats::{Interval, median, median_interval, percentile, sorted};
use commgauge_base::units::{Rate, Seconds};
use commgauge_base::variant::LibraryChoice;
use commgauge_model::record::line::{CaseFacts, CaseLine, Header, Outcome};
use std::collections::BTreeMap;

/// A row of the report.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The case, as planned.
    pub facts: CaseFacts,
    /// How often it was measured.
    pub counts: Counts,
    /// Time of a call (of one way for round trips) on the slowest rank; absent where wrong data was received.
    pub latency: Option<Latency>,
    /// Median of the valid samples of each replicate that was measured, in seconds, by number of the replicate.
    pub latency_seconds_of_replicate: BTreeMap<usize, f64>,
    /// Bytes over the median latency.
    pub algbw: Option<Rate>,
    /// `algbw` times the factor of the collective, comparable to the rate of a link.
    pub busbw: Option<Rate>,
    /// `busbw` over the bound that the machine file gives.
    pub bound_share: Option<f64>,
    /// The library's own estimate for a call (of one way for round trips), not a measurement.
    pub library_estimate: Option<Seconds>,
    /// Algorithms that the library chose; several where replicates differ.
    pub library_choices: Vec<LibraryChoice>,
    /// Worst precision that a replicate reached: half width of its interval over its median.
    pub precision_reached: Option<f64>,
    /// The precision that was requested of it, where all cases shared one budget.
    pub precision_requested: Option<f64>,
    /// Between which readings its calls were timed.
    pub timing: Timing,
    /// The ranks' own times of each replicate that was measured.
    pub own_times: Vec<ReplicateTimes>,
    /// The rank that the others waited for, where there is one.
    pub late: Option<Late>,
    /// Its status.
    pub status: Status,
    /// Warnings of the replicates, each once.
    pub warnings: Vec<String>,
}

/// How often a call, a copy or a matrix product was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Valid samples of all replicates.
    pub samples: u64,
    /// Samples excluded from the statistics.
    pub samples_excluded: u64,
    /// Timed calls, copies or products behind the valid samples.
    pub repetitions: u64,
    /// Maximum number of warm-up iterations over the replicates.
    pub warm_up_iterations: u32,
    /// Replicates that were measured.
    pub replicates: u32,
    /// Replicates that were requested.
    pub replicates_planned: u32,
}

impl Counts {
    fn of(measured: &[&CaseLine], seconds_of_replicate: &[Vec<f64>], header: &Header) -> Counts {
        let samples: u64 = seconds_of_replicate.iter().map(|times| times.len() as u64).sum();
        let timed: u64 = measured.iter().map(|line| line.samples.slowest_nanoseconds.len() as u64).sum();
        let calls = measured.iter().zip(seconds_of_replicate);
        Counts {
            samples,
            samples_excluded: timed - samples,
            repetitions: calls.map(|(line, times)| u64::from(line.calls_per_sample) * times.len() as u64).sum(),
            warm_up_iterations: measured.iter().map(|line| line.warm_up_iterations).max().unwrap_or(0),
            replicates: measured.len() as u32,
            replicates_planned: replicates_planned(header, measured.len()),
        }
    }

    /// True where fewer replicates were measured than requested.
    pub fn lacks_replicates(&self) -> bool {
        self.replicates < self.replicates_planned
    }
}

/// Median and percentiles of the times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Latency {
    /// Median of the valid samples of all replicates.
    pub median: Seconds,
    /// Hull of the replicates' own 95 % intervals of the median; absent where one of them has too few samples.
    pub interval: Option<Interval<Seconds>>,
    /// 90th percentile of the valid samples of all replicates; absent below 10 of them.
    pub p90: Option<Seconds>,
    /// 99.9th percentile; absent below 1000 samples.
    pub p999: Option<Seconds>,
    /// 99th percentile; absent below 100 samples.
    pub p99: Option<Seconds>,
}

impl Row {
    /// Merges the lines of one case.
    pub(super) fn merge(facts: &CaseFacts, lines: &[&CaseLine], header: &Header) -> Row {
        let status = Status::of(lines.iter().map(|line| &line.outcome), header);
        let measured: Vec<&CaseLine> =
            lines.iter().copied().filter(|line| matches!(line.outcome, Outcome::Measured { .. })).collect();
        let replicates: Vec<Vec<f64>> = measured.iter().map(|line| line.seconds_per_transfer(facts)).collect();
        let withheld = matches!(status, Status::Wrong { .. });
        let latency = if withheld { None } else { latency_of(&replicates) };
        let algbw = latency
            .and_then(|latency| Rate::of(facts.bytes_accounted.0 as f64, latency.median))
            .filter(|_| facts.bytes_accounted.0 > 0);
        let busbw = algbw.zip(facts.bus_factor).map(|(rate, factor)| Rate(rate.0 * factor));
        let bound = facts.bound_bytes_per_second.filter(|bound| bound.0 > 0.0);
        Row {
            facts: facts.clone(),
            counts: Counts::of(&measured, &replicates, header),
            latency,
            latency_seconds_of_replicate: (measured.iter().zip(&replicates))
                .filter_map(|(line, times)| Some((line.replicate as usize, median(times)?)))
                .filter(|(_, seconds)| *seconds > 0.0)
                .collect(),
            algbw,
            busbw,
            bound_share: busbw.zip(bound).map(|(rate, bound)| rate.0 / bound.0),
            library_estimate: (measured.iter().filter_map(|line| line.library_estimate_seconds))
                .map(|estimate| Seconds(estimate.0 / f64::from(facts.transfers_per_call.max(1))))
                .reduce(|one, other| if one.0 >= other.0 { one } else { other })
                .filter(|_| !withheld),
            library_choices: distinct(measured.iter().filter_map(|line| line.library_choice.as_deref())),
            precision_reached: measured.iter().filter_map(|line| line.precision_reached).reduce(f64::max),
            precision_requested: (header.settings.within_seconds.filter(|_| !header.settings.soak))
                .map(|_| header.settings.precision),
            timing: header.settings.timing,
            own_times: measured.iter().map(|line| ReplicateTimes::of(facts, line)).collect(),
            late: None,
            status,
            warnings: distinct(lines.iter().flat_map(|line| &line.warnings)),
        }
    }

    /// The widest row of a case, for computing column widths: its values are not results.
    pub(super) fn widest(facts: &CaseFacts, header: &Header) -> Row {
        /// Longer calls are rare, and may exceed the width.
        const WIDEST_TIME: Seconds = Seconds(0.999_999);
        const WIDEST_RATE: Rate = Rate(999e9);
        let moves = facts.bytes_accounted.0 > 0;
        let is_nccl = header.backend.name == "nccl";
        let records_choice = header.command_line.iter().any(|word| word == "--record-algorithm");
        let choice = LibraryChoice {
            algorithm: "collnet-direct".to_owned(),
            protocol: Some("simple".to_owned()),
            kernel: None,
            channels: Some(32),
        };
        Row {
            counts: Counts {
                samples: u64::from(header.settings.maximum_samples) * u64::from(header.settings.replicates),
                replicates: header.settings.replicates,
                replicates_planned: header.settings.replicates,
                ..Counts::default()
            },
            latency: Some(Latency {
                median: WIDEST_TIME,
                interval: Some(Interval { low: WIDEST_TIME, high: WIDEST_TIME }),
                p90: None,
                p999: None,
                p99: Some(WIDEST_TIME),
            }),
            algbw: moves.then_some(WIDEST_RATE),
            busbw: facts.bus_factor.filter(|_| moves).map(|_| WIDEST_RATE),
            bound_share: facts.bound_bytes_per_second.map(|_| 1.0),
            library_estimate: is_nccl.then_some(WIDEST_TIME),
            library_choices: (is_nccl && records_choice).then_some(choice).into_iter().collect(),
            precision_reached: Some(0.999),
            status: match (header.backend.synthetic, header.settings.verify) {
                (true, _) => Status::Synthetic,
                (false, true) => Status::Verified,
                (false, false) => Status::NotVerified,
            },
            ..Row::merge(facts, &[], header)
        }
    }

    /// The choices of the library as text.
    pub fn library_choice(&self) -> Option<String> {
        let choices: Vec<String> = self.library_choices.iter().map(LibraryChoice::to_string).collect();
        (!choices.is_empty()).then(|| choices.join(" or "))
    }

    /// True where the shared time budget ended before this case had the requested precision.
    pub fn is_less_precise_than_requested(&self) -> bool {
        let wider = |requested| self.precision_reached.is_none_or(|reached| reached > requested);
        self.latency.is_some() && self.precision_requested.is_some_and(wider)
    }

    /// True where fewer replicates were measured than requested, and nothing else is wrong with the case.
    pub fn is_incomplete(&self) -> bool {
        self.latency.is_some() && self.counts.lacks_replicates()
    }
}

/// Without duplicates, in the order of first appearance.
fn distinct<'a, T: Clone + PartialEq + 'a>(all: impl Iterator<Item = &'a T>) -> Vec<T> {
    all.fold(Vec::new(), |mut found, one| {
        if !found.contains(one) {
            found.push(one.clone());
        }
        found
    })
}

/// Replicates that were planned of what has so many. With a shared time budget, further ones are those that the time sufficed for.
pub(super) fn replicates_planned(header: &Header, measured: usize) -> u32 {
    let sufficed_for = header.settings.within_seconds.map_or(0, |_| measured as u32);
    header.settings.fewest_replicates().max(sufficed_for)
}

/// Median of the replicates' medians, and the hull of their intervals.
///
/// Iterations are not replicates: within one replicate they share the communicators, the placement in memory and the
/// state of the machine, so an interval from the pooled samples would be far too narrow, and a replicate that needed more
/// samples would outvote the others. The hull is as wide as the replicates differ.
pub(super) fn latency_of(replicates: &[Vec<f64>]) -> Option<Latency> {
    let measured: Vec<&Vec<f64>> = replicates.iter().filter(|times| !times.is_empty()).collect();
    let medians = sorted(measured.iter().filter_map(|times| median(times)));
    let intervals: Option<Vec<Interval>> = measured.iter().map(|times| median_interval(times, 0.95)).collect();
    let hull = intervals.and_then(|intervals| {
        intervals.into_iter().reduce(|a, b| Interval { low: a.low.min(b.low), high: a.high.max(b.high) })
    });
    let pooled = sorted(replicates.concat());
    let pooled_percentile = |percent| percentile(&pooled, percent).map(Seconds);
    Some(Latency {
        median: Seconds(median(&medians)?),
        interval: hull.map(|hull| hull.map(Seconds)),
        p90: pooled_percentile(90.0),
        p99: pooled_percentile(99.0),
        p999: pooled_percentile(99.9),
    })
}
