//! The times of each planned case, replicate by replicate, and the reasons why it must not pass.
//!
//! Nothing is decided here: every reason that would keep a row from passing is collected as a sentence.

use super::comparability::{hosts, identities};
use super::loaded_record::LoadedRecord;
use super::planned::{Measurement, Planned, calls, own_work, seconds_of};
use super::subject::Subject;
use super::transient_slowdown::TransientSlowdown;
use super::{Allowed, Trouble, copied_times, whole_record};
use commgauge_base::collective::{Collective, Placement};
use commgauge_base::element::ElementType;
use commgauge_base::sample::Cadence;
use commgauge_base::stats::sorted;
use commgauge_base::units::Bytes;
use commgauge_base::visible::ShownPath;
use commgauge_model::layout::Locality;
use commgauge_model::record::Record;
use commgauge_model::record::line::{CaseFacts, ClockMethod, ForeignTool, Outcome};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// The shortfall of a case with a replicate that was measured while the machine was slow.
const IN_SLOW_PERIOD: &str = "unreliable: a replicate fell into a slow period of the machine";
/// With a larger share of excluded samples the remaining ones are unreliable too.
const MAX_EXCLUDED_SHARE: f64 = 0.1;

/// A planned case, a copy or a product with all its replicates.
pub(super) struct Evidence<'a> {
    /// What was planned.
    pub subject: Subject<'a>,
    /// The hosts of its runs.
    pub hosts: Arc<str>,
    /// The runs of each requested replicate, by their places in [`Gathered::runs`]: its record, and of another tool its log, which is
    /// the same for our own.
    pub runs: Vec<[usize; 2]>,
    /// Median time of one transfer in each requested replicate, in seconds; none without a valid sample.
    pub seconds: Vec<Option<f64>>,
    /// The same, but with the usual time of the case for replicates that fell into a transient slowdown.
    pub steady_seconds: Vec<Option<f64>>,
    /// True where a replicate was measured while the machine was slow; it is among the shortfalls.
    pub in_slow_period: bool,
    /// Reasons why it must not pass, without duplicates.
    pub shortfalls: Vec<String>,
    /// True where a replicate was not measured, unless all replicates were skipped. One of which no sample counts was measured, and says
    /// nothing.
    pub unmeasured: bool,
    /// True where a replicate was skipped.
    pub skipped: bool,
    /// True where wrong data was received.
    pub corrupt: bool,
    /// The tool that measured without a check of the data, if any; it is among the shortfalls.
    pub unchecked_by: Option<ForeignTool>,
    /// Algorithms that the library said that it chose.
    pub chosen: BTreeSet<String>,
}

/// A run of a row by itself, without transient slowdowns.
pub(super) struct OneRun {
    /// Its place in [`Gathered::runs`].
    pub run: usize,
    /// Ascending times of its replicates.
    pub seconds: Vec<f64>,
    /// Those of the others.
    pub others: Vec<f64>,
}

/// A record, or a log of another tool in one.
pub(super) struct Run {
    pub name: String,
    /// The record of a log.
    pub record: Option<usize>,
}

/// A case of the new run, and the same one of the base, if that has it.
#[derive(Clone, Copy)]
pub(super) struct ComparedRow<'a> {
    pub new: &'a Evidence<'a>,
    pub base: Option<&'a Evidence<'a>>,
}

impl<'a> Evidence<'a> {
    /// What was planned, of which nothing is known yet.
    fn of(subject: Subject<'a>, hosts: Arc<str>) -> Evidence<'a> {
        Evidence {
            subject,
            hosts,
            runs: Vec::new(),
            seconds: Vec::new(),
            steady_seconds: Vec::new(),
            in_slow_period: false,
            shortfalls: Vec::new(),
            unmeasured: false,
            skipped: false,
            corrupt: false,
            unchecked_by: None,
            chosen: BTreeSet::new(),
        }
    }

    /// Ascending times of the replicates that were measured.
    pub fn measured(&self) -> Vec<f64> {
        sorted(self.seconds.iter().flatten().copied())
    }

    /// Each run by itself; empty where all are of one run. Replicates of a run share its hour and its hosts, so it is runs that are good
    /// or bad.
    pub fn by_run(&self) -> Vec<OneRun> {
        let measured = || self.runs.iter().zip(&self.steady_seconds).filter_map(|(runs, time)| Some((runs, (*time)?)));
        let all: BTreeSet<usize> = measured().flat_map(|(runs, _)| *runs).collect();
        let times = |run: usize, is_own: bool| {
            sorted(measured().filter(|(runs, _)| runs.contains(&run) == is_own).map(|(_, time)| time))
        };
        let each = all.into_iter().map(|run| OneRun { run, seconds: times(run, true), others: times(run, false) });
        each.filter(|run| !run.others.is_empty()).collect()
    }

    /// Ascending times with a transient slowdown removed; none where there was none.
    pub fn steady(&self) -> Option<Vec<f64>> {
        (self.steady_seconds != self.seconds).then(|| sorted(self.steady_seconds.iter().flatten().copied()))
    }

    /// Takes it for no shortfall that a replicate was measured while the machine was slow, where that made no difference.
    pub fn accept_slow_period(&mut self) {
        self.shortfalls.retain(|shortfall| shortfall != IN_SLOW_PERIOD);
    }

    /// Takes it for no shortfall that another tool did not check the data, where only times are compared.
    pub fn accept_unchecked(&mut self) {
        if let Some(tool) = self.unchecked_by {
            self.shortfalls.retain(|shortfall| *shortfall != tool.unchecked());
        }
    }

    fn add(&mut self, shortfall: String) {
        if !self.shortfalls.contains(&shortfall) {
            self.shortfalls.push(shortfall);
        }
    }
}

/// What must agree for measurements of two records to be replicates of each other, whatever else may differ between the runs. The name of a
/// copy or of a product says all of it.
#[derive(PartialEq, Eq, Hash)]
struct SameWork<'a> {
    name: String,
    hosts: Arc<str>,
    call: Option<SameCall<'a>>,
}

/// The same of a call.
#[derive(PartialEq, Eq, Hash)]
struct SameCall<'a> {
    collective: Collective,
    element_type: ElementType,
    bytes_total: Bytes,
    group_size: u32,
    locality: &'a Locality,
    placement: Placement,
    cadence: Cadence,
}

impl<'a> SameWork<'a> {
    fn new(name: String, hosts: Arc<str>, subject: Subject<'a>) -> SameWork<'a> {
        let call = subject.call().map(|facts| {
            let CaseFacts { collective, element_type, bytes_total, group_size, placement, cadence, .. } = *facts;
            let locality = &facts.locality;
            SameCall { collective, element_type, bytes_total, group_size, locality, placement, cadence }
        });
        SameWork { name, hosts, call }
    }
}

/// What records show.
pub(super) struct Gathered<'a> {
    /// The cases of all records. What is the same call on the same hosts in several of them has the replicates of all.
    pub cases: Vec<Evidence<'a>>,
    /// The records, and the logs of other tools in them.
    pub runs: Vec<Run>,
    /// The troubles of the records as a whole, but for slow periods.
    pub troubles: Vec<Trouble>,
    /// That the machine was slow for a while, of each record in which it was.
    pub slow_periods: Vec<Trouble>,
}

/// The same with slow periods among the troubles.
pub(super) fn evidence<'a>(records: &'a [LoadedRecord], allowed: &[Allowed]) -> Gathered<'a> {
    let mut gathered = gather(records, allowed);
    gathered.troubles.append(&mut gathered.slow_periods);
    gathered
}

/// What records show; `allowed` are the differences between them that are accepted.
pub(super) fn gather<'a>(records: &'a [LoadedRecord], allowed: &[Allowed]) -> Gathered<'a> {
    let mut cases: Vec<Evidence> = Vec::new();
    let mut index_of: HashMap<SameWork, usize> = HashMap::new();
    let (mut runs, mut troubles, mut slow_periods) = (Vec::new(), Vec::new(), Vec::new());
    for LoadedRecord { path, record } in records {
        let hosts: Arc<str> = hosts(&record.header).into();
        let of_record = runs.len();
        runs.push(Run { name: path.shown().to_string(), record: None });
        let transient_slowdown = transient_slowdown(record);
        let planned = calls(record, allowed).into_iter().chain(own_work(record));
        // What one plan has twice is two rows.
        let mut of_this_record = HashSet::new();
        for (name, planned) in planned {
            let work = SameWork::new(name, hosts.clone(), planned.subject);
            let known = index_of.get(&work).copied().filter(|at| !of_this_record.contains(at));
            let at = known.unwrap_or(cases.len());
            if known.is_none() {
                cases.push(Evidence::of(planned.subject, hosts.clone()));
                index_of.insert(work, at);
            }
            of_this_record.insert(at);
            add_record(&mut cases[at], record, &planned, transient_slowdown.as_ref());
            for log in 1..=cases[at].seconds.len() - cases[at].runs.len() {
                // Another tool's replicates are runs of their own, each from its log.
                let run = if record.header.backend.measured_by.is_some() { of_record + log } else { of_record };
                if run == runs.len() {
                    runs.push(Run { name: format!("run {log} of {}", path.shown()), record: Some(of_record) });
                }
                cases[at].runs.push([of_record, run]);
            }
        }
        let trouble = |(exit_code, text)| Trouble { exit_code, text: format!("{}: {text}", path.shown()) };
        troubles.extend(whole_record::of_record(record).into_iter().map(trouble));
        slow_periods.extend(transient_slowdown.map(|found| trouble((3, found.text))));
    }
    // A case that ran once can always run: a skipped replicate then counts as missing.
    for case in &mut cases {
        case.unmeasured |= case.skipped && case.seconds.iter().any(Option::is_some);
    }
    let unmeasured = cases.iter().filter(|case| case.unmeasured).count();
    if unmeasured > 0 {
        let text = format!("{unmeasured} of {} planned rows were not measured in every replicate", cases.len());
        troubles.push(Trouble { exit_code: 7, text });
    }
    troubles.extend(copied_times::copies(records).map(|text| Trouble { exit_code: 3, text }));
    Gathered { cases, runs, troubles, slow_periods }
}

/// The transient slowdown of a record, if there was one.
pub(super) fn transient_slowdown(record: &Record) -> Option<TransientSlowdown> {
    // Other tools do not say when they measured what.
    if record.header.backend.measured_by.is_some() {
        return None;
    }
    TransientSlowdown::of(record, |line| seconds_of(line, record.plan.cases.get(line.case as usize)?).0)
}

/// Adds what a record has of a row.
fn add_record(case: &mut Evidence, record: &Record, planned: &Planned, slowdown: Option<&TransientSlowdown>) {
    let settings = &record.header.settings;
    let slow = planned.place.zip(slowdown);
    let measurements = &planned.measurements;
    case.chosen.extend(measurements.iter().filter_map(|measured| Some(measured.chosen?.algorithm.clone())));
    // With a shared time budget only the replicates that it sufficed for are expected, and of logs only those that they hold.
    let is_counted = settings.within_seconds.is_some() || record.header.backend.measured_by.is_some();
    let replicates = match is_counted {
        true if !measurements.is_empty() => measurements.iter().map(|measured| measured.replicate).collect(),
        _ => (0..settings.fewest_replicates()).collect::<Vec<_>>(),
    };
    for replicate in replicates {
        let measured = measurements.iter().find(|measured| measured.replicate == replicate);
        let seconds = measured.and_then(|measured| add_measurement(case, record, measured));
        let skipped = measured.is_some_and(|measured| matches!(measured.outcome, Outcome::Skipped { .. }));
        let says_nothing =
            measured.is_some_and(|measured| measured.samples > 0 && measured.excluded == measured.samples);
        case.unmeasured |= seconds.is_none() && !skipped && !says_nothing;
        case.skipped |= skipped;
        case.seconds.push(seconds);
        let usual = |seconds| slow.map_or(seconds, |(index, slow)| slow.seconds_without(index, replicate, seconds));
        case.steady_seconds.push(seconds.map(usual));
        if slow.is_some_and(|(index, slow)| slow.includes(index, replicate)) {
            case.in_slow_period = true;
            case.add(IN_SLOW_PERIOD.to_owned());
        }
        if measured.is_none() {
            case.add("a replicate is missing".to_owned());
        }
    }
    if settings.within_seconds.is_none()
        && measurements.iter().any(|measured| measured.replicate >= settings.replicates)
    {
        case.add("the record has more replicates than were requested".to_owned());
    }
    for warning in &record.header.warnings {
        case.add(format!("unreliable: {warning}"));
    }
    let is_isolated = case.subject.call().is_some_and(|facts| facts.cadence == Cadence::Isolated);
    if is_isolated && record.clocks.iter().any(|clock| clock.method == ClockMethod::Barrier) {
        case.add("unreliable: its samples started after a barrier, not on a common clock".to_owned());
    }
    if record.header.backend.synthetic {
        case.add("synthetic: no data moved and no real time passed".to_owned());
    }
}

/// Records the shortfalls of a replicate, and returns its median time if it has a valid one.
fn add_measurement(case: &mut Evidence, record: &Record, measured: &Measurement) -> Option<f64> {
    for warning in measured.warnings {
        case.add(format!("unreliable: {warning}"));
    }
    match measured.outcome {
        Outcome::Measured { verified } => {
            // A barrier moves no data that could be checked.
            let is_barrier = case.subject.call().is_some_and(|facts| facts.collective == Collective::Barrier);
            let nothing_to_check = is_barrier && record.header.settings.verify;
            if !verified && !nothing_to_check {
                case.unchecked_by = record.header.backend.measured_by;
                let text = case.unchecked_by.map(ForeignTool::unchecked);
                case.add(text.unwrap_or_else(|| "not verified: data were not checked".to_owned()));
            }
        }
        Outcome::Skipped { reason } => {
            case.add(format!("cannot be run here: {reason}"));
            return None;
        }
        Outcome::Corrupt { .. } => {
            case.corrupt = true;
            case.add(format!("wrong data at {}", measured.outcome.mismatch().unwrap_or_default()));
            return None;
        }
        Outcome::FoundWrong { .. } => {
            case.corrupt = true;
            case.add(format!("wrong data: {}", measured.outcome.mismatch().unwrap_or_default()));
            return None;
        }
        Outcome::Failed { reason } => {
            case.add(format!("failed: {reason}"));
            return None;
        }
    }
    let Measurement { samples, excluded, seconds, .. } = *measured;
    if excluded as f64 > MAX_EXCLUDED_SHARE * samples as f64 {
        case.add(format!("unreliable: {excluded} of {samples} samples of a replicate do not count"));
    }
    if seconds.is_none() {
        case.add("a replicate has no sample that counts".to_owned());
    }
    seconds
}

/// The names by which rows of two runs are matched: of calls without what may differ.
pub(super) fn names_to_match(cases: &[Evidence], allowed: &[Allowed]) -> Vec<String> {
    let mut of_calls = identities(cases.iter().filter_map(|case| case.subject.call()), allowed).into_iter();
    let name = |case: &Evidence| match case.subject.call() {
        Some(_) => of_calls.next().unwrap_or_default(),
        None => case.subject.name().into_owned(),
    };
    cases.iter().map(name).collect()
}
