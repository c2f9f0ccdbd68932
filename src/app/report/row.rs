//! One planned case with all its replicates merged, and its status.
//!
//! Numbers only; formatting is in the renderers.

use super::document::Tone;
use commgauge_base::collective::{Placement, ReduceOp};
use commgauge_base::sample::{Cadence, Timing};
use commgauge_base::stats::{Histogram, Interval, median, median_interval, percentile, sorted};
use commgauge_base::units::{Bytes, Rate, Seconds};
use commgauge_base::variant::{self, LibraryChoice};
use commgauge_base::writing::distinct;
use commgauge_judge::verdict::{RowSubject, Subject};
use commgauge_model::layout::Axis;
use commgauge_model::record::Record;
use commgauge_model::record::header::host_of;
use commgauge_model::record::line::{CaseFacts, CaseLine, ClockMethod, Header, Outcome, RankHistogram};
use commgauge_model::record::times::MergedTimes;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

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

/// A case as people say it: `tp all_reduce of 2 ranks, 16 MiB bfloat16, in place`; pairs with their round.
pub(super) fn in_words(facts: &CaseFacts) -> String {
    let op = facts.reduce_op.filter(|op| *op != ReduceOp::Sum).map(|op| op.to_string());
    let alone = facts.solo_of.map(|_| "one group alone".to_owned());
    let variant = Some(variant::shown(&facts.labels)).filter(|variant| !variant.is_empty());
    let more = [op, alone, variant].into_iter().flatten();
    std::iter::once(subject_in_words(&facts.name, &Subject::Call(facts).of_row()))
        .chain(more)
        .collect::<Vec<_>>()
        .join(", ")
}

/// The same for a case, copy or product of this name, from what a verdict or a history keeps.
pub(super) fn subject_in_words(name: &str, subject: &RowSubject) -> String {
    match subject {
        RowSubject::Call(call) => {
            let round = name.split('/').nth(1).filter(|_| call.axis == Axis::Pair);
            let whose = round.map_or_else(|| format!("{} ranks", call.group_size), |round| round.replace('-', " "));
            let of_bytes =
                (call.bytes_total != Bytes(0)).then(|| format!(", {} {}", call.bytes_total, call.element_type));
            let in_place = (call.placement == Placement::InPlace).then_some(", in place");
            let isolated = (call.cadence == Cadence::Isolated).then_some(", isolated");
            let (of_bytes, more) =
                (of_bytes.unwrap_or_default(), in_place.into_iter().chain(isolated).collect::<String>());
            format!("{} {} of {whose}{of_bytes}{more}", call.axis, call.collective)
        }
        RowSubject::Copy { copy } => {
            let parts = [vec![copy.kind.name().to_owned()], copy.ends("rank "), vec![copy.each().to_owned()]];
            parts.concat().join(", ")
        }
        RowSubject::Product { product } => format!("product {} x {} x {}", product.m, product.n, product.k),
    }
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
            library_choices: distinct(measured.iter().filter_map(|line| line.library_choice.as_deref().cloned())),
            precision_reached: measured.iter().filter_map(|line| line.precision_reached).reduce(f64::max),
            precision_requested: (header.settings.within.filter(|_| !header.settings.soak))
                .map(|_| header.settings.precision),
            timing: header.settings.timing,
            own_times: measured.iter().map(|line| ReplicateTimes::of(facts, line)).collect(),
            late: None,
            status,
            warnings: distinct(lines.iter().flat_map(|line| &line.warnings).cloned()),
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

/// Replicates that were planned. With a shared time budget, those beyond the fewest are as many as the time allowed.
pub(super) fn replicates_planned(header: &Header, measured: usize) -> u32 {
    let sufficed_for = header.settings.within.map_or(0, |_| measured as u32);
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

// Status of a call, a copy or a matrix product, over all of its replicates.

/// Status of a case over all replicates: the first that applies, the worst first.
#[derive(Clone, Debug, PartialEq)]
pub enum Status {
    /// Wrong data was received in some replicate; there are no numbers.
    Wrong {
        /// The first mismatch, as a sentence.
        mismatch: String,
        /// Wrong elements at the rank that the mismatch names.
        wrong_elements: u64,
    },
    /// Some replicate failed.
    Failed(String),
    /// Planned, but without a line in the record.
    Missing,
    /// Cannot be run here.
    Skipped(String),
    /// No data moved and no real time passed.
    Synthetic,
    /// Timed, data not checked.
    NotVerified,
    /// Timed, data verified before and after.
    Verified,
}

impl Status {
    /// Every label, in the order in which they are counted.
    pub(super) const LABELS: [&'static str; 7] =
        ["verified", "not verified", "synthetic", "WRONG", "failed", "missing", "skipped"];

    /// The status without its reason, for the table.
    pub fn label(&self) -> &'static str {
        match self {
            Status::Wrong { .. } => "WRONG",
            Status::Failed(_) => "failed",
            Status::Missing => "missing",
            Status::Skipped(_) => "skipped",
            Status::Synthetic => "synthetic",
            Status::NotVerified => "not verified",
            Status::Verified => "verified",
        }
    }

    /// The reason, where there is one.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Status::Wrong { mismatch: reason, .. } | Status::Failed(reason) | Status::Skipped(reason) => Some(reason),
            Status::Missing | Status::Synthetic | Status::NotVerified | Status::Verified => None,
        }
    }

    /// The status of what has these outcomes, one of each replicate.
    pub(super) fn of<'a>(outcomes: impl Iterator<Item = &'a Outcome>, header: &Header) -> Status {
        let one = |outcome: &Outcome| match outcome {
            Outcome::Failed { reason } => Status::Failed(reason.clone()),
            Outcome::Skipped { reason } => Status::Skipped(reason.clone()),
            Outcome::Measured { .. } if header.backend.synthetic => Status::Synthetic,
            Outcome::Measured { verified: false } => Status::NotVerified,
            Outcome::Measured { verified: true } => Status::Verified,
            wrong => {
                Status::Wrong { mismatch: wrong.mismatch().unwrap_or_default(), wrong_elements: wrong.wrong_elements() }
            }
        };
        let most_severe_first = |status: &Status| match status {
            Status::Wrong { .. } => 0,
            Status::Failed(_) => 1,
            Status::Skipped(_) => 2,
            Status::NotVerified => 3,
            Status::Missing | Status::Synthetic | Status::Verified => 4,
        };
        outcomes.map(one).min_by_key(most_severe_first).unwrap_or(Status::Missing)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reason() {
            Some(reason) => write!(f, "{}: {reason}", self.label()),
            None => f.write_str(self.label()),
        }
    }
}

// How matrix products and copies came out: the cell of one, and the counts of all.

/// The word for a status: what each rank does by itself is right, where a call is verified.
fn word(status: &Status) -> &'static str {
    match status {
        Status::Verified => "right",
        other => other.label(),
    }
}

/// The cell that says how one came out, `part` being what its data consist of.
pub(super) fn check(outcome: &Outcome, part: &str, header: &Header) -> (Tone, String) {
    let status = Status::of(std::iter::once(outcome), header);
    match (&status, outcome) {
        (_, Outcome::Corrupt { rank, element, .. }) => (Tone::Bad, format!("WRONG on rank {rank}, {part} {element}")),
        (Status::Wrong { mismatch, .. }, _) => (Tone::Bad, format!("WRONG: {mismatch}")),
        (Status::Skipped(_), _) => (Tone::Unsure, status.to_string()),
        (Status::Failed(_), _) => (Tone::Bad, status.to_string()),
        _ => (Tone::Plain, word(&status).to_owned()),
    }
}

/// Number of them by outcome, such as `12 products: 12 right`, by the words for one and for several; `None` where there are none.
pub(super) fn summary<'a>(
    [one, several]: [&str; 2],
    outcomes: impl Iterator<Item = &'a Outcome>,
    header: &Header,
) -> Option<String> {
    let statuses: Vec<Status> = outcomes.map(|outcome| Status::of(std::iter::once(outcome), header)).collect();
    let parts = Status::LABELS.into_iter().filter_map(|label| {
        let mut of_label = statuses.iter().filter(|status| status.label() == label).peekable();
        let word = word(of_label.peek()?);
        Some(format!("{} {word}", of_label.count()))
    });
    let word = if statuses.len() == 1 { one } else { several };
    let parts: Vec<String> = parts.collect();
    (!statuses.is_empty()).then(|| format!("{} {word}: {}", statuses.len(), parts.join(", ")))
}

// What formats for programs have a line for: every call, every copy and every matrix product, in one form.

/// A call, a copy or a matrix product over all replicates.
pub(crate) struct Entry<'a> {
    /// Its name.
    pub name: Cow<'a, str>,
    /// What it is.
    pub subject: RowSubject,
    /// The row of a call.
    pub row: Option<&'a Row>,
    /// Its status.
    pub status: Cow<'a, Status>,
    /// How often it was measured.
    pub counts: Counts,
    /// Time on the slowest rank; absent where wrong data was received.
    pub latency: Option<Latency>,
}

impl<'a> Entry<'a> {
    /// A call.
    pub fn of_call(row: &'a Row) -> Entry<'a> {
        Entry {
            name: Cow::Borrowed(&row.facts.name),
            subject: Subject::Call(&row.facts).of_row(),
            row: Some(row),
            status: Cow::Borrowed(&row.status),
            counts: row.counts,
            latency: row.latency,
        }
    }

    /// What each rank does by itself.
    pub fn of_own_work(subject: Subject<'a>, times: &MergedTimes, header: &Header) -> Entry<'a> {
        let replicates = times.seconds_of_replicate.len();
        Entry {
            name: subject.name(),
            subject: subject.of_row(),
            row: None,
            status: Cow::Owned(Status::of(std::iter::once(&times.outcome), header)),
            counts: Counts {
                samples: times.samples(),
                repetitions: times.samples(),
                replicates: replicates as u32,
                replicates_planned: replicates_planned(header, replicates),
                ..Counts::default()
            },
            latency: latency_of(&times.seconds_of_replicate),
        }
    }

    /// True where fewer replicates were measured than planned, and nothing else is wrong.
    pub fn is_incomplete(&self) -> bool {
        self.latency.is_some() && self.counts.lacks_replicates()
    }

    /// Bytes over the median time: of a call the size argument, of a copy those of each direction.
    pub fn algbw(&self) -> Option<Rate> {
        match &self.subject {
            RowSubject::Call(_) => self.row?.algbw,
            RowSubject::Copy { .. } => self.copy_rate(),
            RowSubject::Product { .. } => None,
        }
    }

    /// Bus bandwidth of a call.
    pub fn busbw(&self) -> Option<Rate> {
        self.row?.busbw
    }

    /// Bytes per second of a copy in each direction, on the slowest rank.
    pub fn copy_rate(&self) -> Option<Rate> {
        let RowSubject::Copy { copy } = &self.subject else { return None };
        Rate::of(copy.bytes.0 as f64, self.latency?.median)
    }

    /// Floating-point operations per second of a product, on the slowest rank.
    pub fn flops_per_second(&self) -> Option<f64> {
        let RowSubject::Product { product } = &self.subject else { return None };
        Some(product.flops() / self.latency?.median.0).filter(|rate| rate.is_finite())
    }
}

// Late ranks: the rank that the others of an isolated case waited for, and for how long.
//
// A rank is named only with synchronised clocks, if it is late by more than their residual and what the clocks of devices may be off, and last in a clear majority of
// the samples. Otherwise no rank is named.

/// The rank that was last in a clear majority of the samples of a case.
#[derive(Clone, Debug, PartialEq)]
pub struct Late {
    /// World rank.
    pub rank: u32,
    /// Its host.
    pub host: String,
    /// Share of the valid samples in which it arrived last.
    pub share: f64,
    /// From the first rank's arrival to its own, the median of those samples.
    pub spread: Seconds,
}

/// The late rank of a case, from the lines of its replicates.
pub(super) fn late_rank(record: &Record, lines: &[&CaseLine], cadence: Cadence) -> Option<Late> {
    let residual = clock_residual(record)?;
    let mut spreads: BTreeMap<u32, Vec<[f64; 2]>> = BTreeMap::new();
    let mut samples = 0;
    for line in lines {
        let known = !line.samples.last_rank.is_empty() && !line.samples.arrival_spread_nanoseconds.is_empty();
        if cadence != Cadence::Isolated || !known || !matches!(line.outcome, Outcome::Measured { .. }) {
            continue;
        }
        for index in line.samples.valid() {
            let spread = Seconds::from_nanoseconds(line.samples.arrival_spread_nanoseconds[index]);
            let error = Seconds::from_nanoseconds(line.samples.arrival_error_nanoseconds(index));
            spreads.entry(line.samples.last_rank[index]).or_default().push([spread.0, spread.0 - error.0]);
            samples += 1;
        }
    }
    let (rank, times) = spreads.into_iter().max_by_key(|(_, times)| times.len())?;
    let share = times.len() as f64 / f64::from(samples);
    // What is left of each spread beyond what the clocks of the devices may be off in its batch.
    let [spread, certain] = [0, 1].map(|which| median(&sorted(times.iter().map(|time| time[which]))));
    let (spread, certain) = (Seconds(spread?), Seconds(certain?));
    let named = share > clear_majority(record.header.world_size) && certain.0 > residual.0;
    named.then(|| Late {
        rank,
        host: host_of(&record.header.ranks, rank).unwrap_or(UNKNOWN_HOST).to_owned(),
        share,
        spread,
    })
}

/// Of two ranks one is last in half of the samples by chance, so the threshold is higher.
fn clear_majority(world_size: u32) -> f64 {
    if world_size > 2 { 0.6 } else { 0.8 }
}

/// The largest residual of the clocks; `None` where they were not synchronised or have no entry.
fn clock_residual(record: &Record) -> Option<Seconds> {
    if record.clocks.iter().any(|clock| clock.method != ClockMethod::Synchronised) {
        return None;
    }
    record.clocks.iter().map(|clock| clock.residual_nanoseconds).max().map(Seconds::from_nanoseconds)
}

/// A host that the record does not name.
pub(crate) const UNKNOWN_HOST: &str = "unknown host";

/// One sentence for every late rank, over all cases in which it was late.
pub(super) fn findings<'a>(late: impl Iterator<Item = (String, &'a Late)>, isolated_cases: usize) -> Vec<String> {
    let mut by_rank: BTreeMap<u32, Vec<LateCase>> = BTreeMap::new();
    for (case, late) in late {
        by_rank.entry(late.rank).or_default().push(LateCase { case, late });
    }
    by_rank.into_values().filter_map(|cases| sentence(&cases, isolated_cases)).collect()
}

/// A case in which a rank was late.
struct LateCase<'a> {
    /// Its name.
    case: String,
    late: &'a Late,
}

fn sentence(cases: &[LateCase], isolated_cases: usize) -> Option<String> {
    let by_spread = |a: &&LateCase, b: &&LateCase| a.late.spread.0.total_cmp(&b.late.spread.0);
    let least = cases.iter().min_by(by_spread)?.late;
    let LateCase { case: worst_case, late: worst } = cases.iter().max_by(by_spread)?;
    let share = 100.0 * cases.iter().map(|case| case.late.share).fold(1.0, f64::min);
    let subject = format!("rank {} (host {}) arrived last in", worst.rank, worst.host);
    let (least, most) = (least.spread.to_string(), worst.spread.to_string());
    let spread = if least == most { most } else { format!("{least} to {most}") };
    Some(match cases.len() {
        1 => format!("{subject} {share:.0} % of the samples of {worst_case}, {spread} after the first (median)"),
        some => format!(
            "{subject} at least {share:.0} % of the samples of {some} of {isolated_cases} isolated cases, {spread} after the \
             first (medians); latest in {worst_case}"
        ),
    })
}

// Mean time of a call on each rank, as other tools print it. Verdicts are not based on it.

/// The ranks' own times of one replicate.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplicateTimes {
    /// Messages one way, or calls, in a sample.
    transfers_per_sample: f64,
    histograms: Vec<RankHistogram>,
}

impl ReplicateTimes {
    /// The times of a line.
    pub(super) fn of(facts: &CaseFacts, line: &CaseLine) -> ReplicateTimes {
        let transfers_per_sample = f64::from(line.calls_per_sample.max(1)) * f64::from(facts.transfers_per_call.max(1));
        ReplicateTimes { transfers_per_sample, histograms: line.histograms.clone() }
    }
}

/// Statistics over the ranks of each rank's mean time of a call (of one way for round trips), from its own start to its
/// own end. In a large world, ranks that share a histogram count with their common mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RankMeans {
    /// Shortest mean of a rank.
    pub least: Seconds,
    /// The mean over all ranks.
    pub mean: Seconds,
    /// Longest mean of a rank.
    pub most: Seconds,
}

/// Sum over the replicates for the ranks of a histogram.
#[derive(Default)]
struct Sum {
    ranks: f64,
    seconds: f64,
    samples: f64,
}

impl RankMeans {
    /// The statistics; `None` where the record has no times of single ranks, as in imported records.
    pub(super) fn of(replicates: &[ReplicateTimes]) -> Option<RankMeans> {
        let mut sums: BTreeMap<u32, Sum> = BTreeMap::new();
        for replicate in replicates {
            for of_ranks in &replicate.histograms {
                let histogram = Histogram::decode(&of_ranks.hdr_v2_deflate_base64).ok()?;
                let samples = histogram.count() as f64;
                let sum = sums.entry(of_ranks.rank).or_default();
                sum.ranks = f64::from(of_ranks.ranks);
                sum.seconds += histogram.mean_nanoseconds() * 1e-9 * samples / replicate.transfers_per_sample;
                sum.samples += samples;
            }
        }
        let sums = sums.into_values().filter(|sum| sum.samples > 0.0);
        let means: Vec<(f64, f64)> = sums.map(|sum| (sum.ranks, sum.seconds / sum.samples)).collect();
        let ranks: f64 = means.iter().map(|(ranks, _)| ranks).sum();
        let seconds = || means.iter().map(|(_, seconds)| *seconds);
        Some(RankMeans {
            least: Seconds(seconds().reduce(f64::min)?),
            mean: Seconds(means.iter().map(|(ranks, seconds)| ranks * seconds).sum::<f64>() / ranks),
            most: Seconds(seconds().reduce(f64::max)?),
        })
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    fn times(transfers_per_sample: f64, of_ranks: &[(u32, u32, &[u64])]) -> ReplicateTimes {
        let histogram = |(rank, ranks, values): &(u32, u32, &[u64])| {
            let mut histogram = Histogram::new();
            values.iter().for_each(|value| histogram.record(*value));
            let hdr_v2_deflate_base64 = histogram.encode().unwrap().into();
            RankHistogram { rank: *rank, ranks: *ranks, hdr_v2_deflate_base64 }
        };
        ReplicateTimes { transfers_per_sample, histograms: of_ranks.iter().map(histogram).collect() }
    }

    #[test]
    fn means_cover_all_samples_of_each_rank() {
        for (replicates, expected) in [
            (vec![times(1.0, &[(0, 1, &[1000, 1000]), (1, 1, &[1000, 3000])])], Some([1.0, 1.5, 2.0])),
            // A round trip, and an idle rank.
            (vec![times(2.0, &[(0, 1, &[1000]), (1, 1, &[1200]), (2, 1, &[])])], Some([0.5, 0.55, 0.6])),
            // A replicate with more samples counts more.
            (vec![times(1.0, &[(0, 1, &[1000])]), times(1.0, &[(0, 1, &[2000, 2000, 2000])])], Some([1.75; 3])),
            // Ranks that share a histogram count as many.
            (vec![times(1.0, &[(0, 3, &[1000, 1000, 1000]), (3, 1, &[2000])])], Some([1.0, 1.25, 2.0])),
            (vec![times(1.0, &[])], None),
            (vec![], None),
        ] {
            let found =
                RankMeans::of(&replicates).map(|means| [means.least, means.mean, means.most].map(|s| s.0 * 1e6));
            let near = |a: f64, b: f64| (a - b).abs() <= 2e-3 * b;
            let same = match (found, expected) {
                (Some(found), Some(expected)) => found.iter().zip(expected).all(|(a, b)| near(*a, b)),
                (found, expected) => found == expected,
            };
            assert!(same, "{found:?} instead of {expected:?}");
        }
    }
}
