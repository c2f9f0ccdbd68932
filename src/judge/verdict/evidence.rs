//! The times of each planned case, replicate by replicate, and the reasons why it must not pass.
//!
//! Decides nothing: collects every reason against passing as a sentence.

use super::comparability::{LoadedRecord, hosts, identities};
use super::document::Subject;
use super::{Allowed, Problem, comparability};
use commgauge_base::collective::{Collective, Placement};
use commgauge_base::element::ElementType;
use commgauge_base::sample::Cadence;
use commgauge_base::stats::{densest_stretch, median, sorted};
use commgauge_base::units::{Bytes, Seconds, three_digits};
use commgauge_base::variant::LibraryChoice;
use commgauge_base::visible::ShownPath;
use commgauge_model::layout::Locality;
use commgauge_model::record::Record;
use commgauge_model::record::line::{CaseFacts, CaseLine, ClockMethod, ForeignTool, Outcome};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// The shortfall of a case with a replicate that was measured while the machine was slow.
const IN_SLOW_PERIOD: &str = "unreliable: a replicate fell into a slow period of the machine";

/// With a larger share of excluded samples the remaining ones are unreliable too.
const MAX_EXCLUDED_SHARE: f64 = 0.1;

/// A planned case, a copy or a product with all its replicates.
#[derive(Clone)]
pub(super) struct Evidence<'a> {
    /// The planned work.
    pub subject: Subject<'a>,
    /// What it is of several rows, such as their mean.
    pub over: Option<String>,
    /// The hosts of its runs.
    pub hosts: Arc<str>,
    /// The runs of each requested replicate, as indices into [`Gathered::runs`]: its record or, for another tool, its log.
    pub runs: Vec<[usize; 2]>,
    /// Median time of one transfer in each requested replicate, in seconds; `None` without a valid sample.
    pub seconds: Vec<Option<f64>>,
    /// As `medians`, but with the usual time of the case for replicates in a transient slowdown.
    pub steady_seconds: Vec<Option<f64>>,
    /// Whether a replicate was measured while the machine was slow; listed in the shortfalls.
    pub in_slow_period: bool,
    /// Reasons against passing, without duplicates.
    pub shortfalls: Vec<String>,
    /// Whether a replicate was not measured, unless all replicates were skipped. One without valid samples counts as measured.
    pub unmeasured: bool,
    /// True where a replicate was skipped.
    pub skipped: bool,
    /// True where wrong data was received.
    pub corrupt: bool,
    /// The tool that measured without checking the data, if any; listed in the shortfalls.
    pub unchecked_by: Option<ForeignTool>,
    /// Algorithms that the library reported.
    pub chosen: BTreeSet<String>,
}

/// A row's results in one run, without transient slowdowns.
pub(super) struct OneRun {
    /// Its index in [`Gathered::runs`].
    pub run: usize,
    /// Ascending times of its replicates.
    pub seconds: Vec<f64>,
    pub others: Vec<f64>,
}

/// A record, or a log of another tool within one.
pub(super) struct Run {
    pub name: String,
    pub record: Option<usize>,
}

/// A case of the new run, and the same case of the base, if any.
#[derive(Clone, Copy)]
pub(super) struct ComparedRow<'a> {
    pub new: &'a Evidence<'a>,
    pub base: Option<&'a Evidence<'a>>,
}

impl<'a> Evidence<'a> {
    /// Planned work without measurements yet.
    fn of(subject: Subject<'a>, hosts: Arc<str>) -> Evidence<'a> {
        Evidence {
            subject,
            over: None,
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

    /// Ascending times of the measured replicates.
    pub fn measured(&self) -> Vec<f64> {
        sorted(self.seconds.iter().flatten().copied())
    }

    /// Each run separately; empty with a single run. Replicates of a run share its time and hosts, so runs are good or bad as a whole.
    pub fn by_run(&self) -> Vec<OneRun> {
        let measured = || self.runs.iter().zip(&self.steady_seconds).filter_map(|(runs, time)| Some((runs, (*time)?)));
        let all: BTreeSet<usize> = measured().flat_map(|(runs, _)| *runs).collect();
        let times = |run: usize, is_own: bool| {
            sorted(measured().filter(|(runs, _)| runs.contains(&run) == is_own).map(|(_, time)| time))
        };
        let each = all.into_iter().map(|run| OneRun { run, seconds: times(run, true), others: times(run, false) });
        each.filter(|run| !run.others.is_empty()).collect()
    }

    /// Ascending times with a transient slowdown removed; `None` without one.
    pub fn steady(&self) -> Option<Vec<f64>> {
        (self.steady_seconds != self.seconds).then(|| sorted(self.steady_seconds.iter().flatten().copied()))
    }

    /// Drops the shortfall of a slow machine if it made no difference.
    pub fn accept_slow_period(&mut self) {
        self.shortfalls.retain(|shortfall| shortfall != IN_SLOW_PERIOD);
    }

    /// Drops the shortfall of unchecked data, where only times are compared.
    pub fn accept_unchecked(&mut self) {
        if let Some(tool) = self.unchecked_by {
            self.shortfalls.retain(|shortfall| *shortfall != tool.unchecked());
        }
    }

    pub fn add(&mut self, shortfall: String) {
        if !self.shortfalls.contains(&shortfall) {
            self.shortfalls.push(shortfall);
        }
    }
}

/// What must agree for measurements of two records to be replicates of each other, whatever else may differ between the runs. For a copy or
/// a product the name suffices.
#[derive(PartialEq, Eq, Hash)]
struct SameWork<'a> {
    name: String,
    hosts: Arc<str>,
    call: Option<SameCall<'a>>,
}

/// What makes two calls the same: what is called, in which groups, and how.
type SameCall<'a> = ((Collective, ElementType, Bytes), (u32, &'a Locality), (Placement, Cadence));

impl<'a> SameWork<'a> {
    fn new(name: String, hosts: Arc<str>, subject: Subject<'a>) -> SameWork<'a> {
        let call = subject.call().map(|facts| {
            let CaseFacts { collective, element_type, bytes_total, group_size, placement, cadence, .. } = *facts;
            ((collective, element_type, bytes_total), (group_size, &facts.locality), (placement, cadence))
        });
        SameWork { name, hosts, call }
    }
}

/// Content of records.
pub(super) struct Gathered<'a> {
    /// The cases of all records. The same call on the same hosts in several records has the replicates of all.
    pub cases: Vec<Evidence<'a>>,
    /// The records, and the logs of other tools in them.
    pub runs: Vec<Run>,
    /// The warnings about the records as a whole, except slow periods.
    pub problems: Vec<Problem>,
    /// Slow periods of the machine, one text for each record with one.
    pub slow_periods: Vec<Problem>,
}

/// With slow periods among the warnings.
pub(super) fn evidence<'a>(records: &'a [LoadedRecord], allowed: &[Allowed]) -> Gathered<'a> {
    let mut gathered = gather(records, allowed);
    gathered.problems.append(&mut gathered.slow_periods);
    gathered
}

/// The content of records; `allowed` are the accepted differences between them.
pub(super) fn gather<'a>(records: &'a [LoadedRecord], allowed: &[Allowed]) -> Gathered<'a> {
    let mut cases: Vec<Evidence> = Vec::new();
    let mut index_of: HashMap<SameWork, usize> = HashMap::new();
    let (mut runs, mut problems, mut slow_periods) = (Vec::new(), Vec::new(), Vec::new());
    for LoadedRecord { path, record } in records {
        let hosts: Arc<str> = hosts(&record.header).into();
        let of_record = runs.len();
        runs.push(Run { name: path.shown().to_string(), record: None });
        let transient_slowdown = transient_slowdown(record);
        let planned = calls(record, allowed).into_iter().chain(own_work(record));
        // Duplicates within one plan are two rows.
        let mut of_this_record = HashSet::new();
        for (name, planned) in planned {
            // Rows of another tool's logs name their own hosts where these differ.
            let named = planned.subject.call().and_then(|facts| facts.labels.get("hosts"));
            let hosts = named.map_or_else(|| hosts.clone(), |named| named.as_str().into());
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
                // Another tool's replicates are separate runs, one per log.
                let run = if record.header.backend.measured_by.is_some() { of_record + log } else { of_record };
                if run == runs.len() {
                    runs.push(Run { name: format!("run {log} of {}", path.shown()), record: Some(of_record) });
                }
                cases[at].runs.push([of_record, run]);
            }
        }
        let problem = |(exit_code, text)| Problem { exit_code, text: format!("{}: {text}", path.shown()) };
        problems.extend(comparability::problems_of(record).into_iter().map(problem));
        slow_periods.extend(transient_slowdown.map(|found| problem((3, found.text))));
    }
    // A case that ran once can always run: a skipped replicate then counts as missing.
    for case in &mut cases {
        case.unmeasured |= case.skipped && case.seconds.iter().any(Option::is_some);
    }
    let unmeasured = cases.iter().filter(|case| case.unmeasured).count();
    if unmeasured > 0 {
        let text = format!("{unmeasured} of {} planned rows were not measured in every replicate", cases.len());
        problems.push(Problem { exit_code: 7, text });
    }
    problems.extend(comparability::copies(records).map(|text| Problem { exit_code: 3, text }));
    Gathered { cases, runs, problems, slow_periods }
}

/// The transient slowdown of a record, if there was one.
pub(super) fn transient_slowdown(record: &Record) -> Option<TransientSlowdown> {
    // Other tools do not record when they measured what.
    if record.header.backend.measured_by.is_some() {
        return None;
    }
    TransientSlowdown::of(record, |line| seconds_of(line, record.plan.cases.get(line.case as usize)?).0)
}

/// Adds a record's measurements of a row.
fn add_record(case: &mut Evidence, record: &Record, planned: &Planned, slowdown: Option<&TransientSlowdown>) {
    let settings = &record.header.settings;
    let slow = planned.place.zip(slowdown);
    let measurements = &planned.measurements;
    case.chosen.extend(measurements.iter().filter_map(|measured| Some(measured.chosen?.algorithm.clone())));
    // With a shared time budget only the replicates that fit into it are expected, and for logs only those that they contain.
    let is_counted = settings.within.is_some() || record.header.backend.measured_by.is_some();
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
    if settings.within.is_none() && measurements.iter().any(|measured| measured.replicate >= settings.replicates) {
        case.add("the record has more replicates than requested".to_owned());
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
                case.add(text.unwrap_or_else(|| "not verified: data was not checked".to_owned()));
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
        case.add(format!("unreliable: {excluded} of {samples} samples of a replicate were excluded"));
    }
    if seconds.is_none() {
        case.add("a replicate has no valid sample".to_owned());
    }
    seconds
}

/// The names by which rows of two runs are matched: for calls without what may differ.
pub(super) fn names_to_match(cases: &[Evidence], allowed: &[Allowed]) -> Vec<String> {
    let mut of_calls = identities(cases.iter().filter_map(|case| case.subject.call()), allowed).into_iter();
    let name = |case: &Evidence| match case.subject.call() {
        Some(_) => of_calls.next().unwrap_or_default(),
        None => case.subject.name().into_owned(),
    };
    cases.iter().map(name).collect()
}

// A record's measurements of planned work (calls, copies and matrix products), replicate by replicate.

/// A record's measurements of planned work.
pub(super) struct Planned<'a> {
    pub subject: Subject<'a>,
    pub measurements: Vec<Measurement<'a>>,
    pub place: Option<u32>,
}

/// One replicate.
pub(super) struct Measurement<'a> {
    pub replicate: u32,
    pub outcome: &'a Outcome,
    pub warnings: &'a [String],
    /// The median of the valid samples.
    pub seconds: Option<f64>,
    pub samples: usize,
    pub excluded: usize,
    /// The choice that the library reported.
    pub chosen: Option<&'a LibraryChoice>,
}

impl<'a> Measurement<'a> {
    fn of_call(line: &'a CaseLine, facts: &CaseFacts) -> Measurement<'a> {
        let (seconds, excluded) = seconds_of(line, facts);
        let (replicate, outcome, warnings) = (line.replicate, &line.outcome, line.warnings.as_slice());
        let (samples, chosen) = (line.samples.slowest_nanoseconds.len(), line.library_choice.as_deref());
        Measurement { replicate, outcome, warnings, seconds, samples, excluded, chosen }
    }

    /// For work that each rank does alone: the time of the slowest rank for each sample.
    fn of_own_work(replicate: u32, outcome: &'a Outcome, nanoseconds: &[u64]) -> Measurement<'a> {
        let times = sorted(nanoseconds.iter().map(|time| Seconds::from_nanoseconds(*time).0));
        let is_measured = matches!(outcome, Outcome::Measured { .. });
        let seconds = median(&times).filter(|middle| is_measured && *middle > 0.0);
        Measurement { replicate, outcome, warnings: &[], seconds, samples: times.len(), excluded: 0, chosen: None }
    }
}

/// The planned cases of a record, each with the name that identifies its replicates.
pub(super) fn calls<'a>(record: &'a Record, allowed: &[Allowed]) -> Vec<(String, Planned<'a>)> {
    let planned = &record.plan.cases;
    let mut measurements: Vec<Vec<Measurement>> = planned.iter().map(|_| Vec::new()).collect();
    for line in &record.cases {
        if let Some((facts, known)) = planned.get(line.case as usize).zip(measurements.get_mut(line.case as usize)) {
            known.push(Measurement::of_call(line, facts));
        }
    }
    let names = identities(planned.iter(), allowed);
    let all = (0u32..).zip(planned).zip(names.into_iter().zip(measurements));
    all.map(|((index, facts), (name, measurements))| {
        (name, Planned { subject: Subject::Call(facts), measurements, place: Some(index) })
    })
    .collect()
}

/// The copies and products of a record, in the order of first appearance: a plan only counts their lines.
pub(super) fn own_work(record: &Record) -> impl Iterator<Item = (String, Planned<'_>)> {
    let copies = record.copies.iter().map(|line| {
        let measured = Measurement::of_own_work(line.replicate, &line.outcome, &line.slowest_nanoseconds);
        (Subject::Copy(&line.copy), measured)
    });
    let products = record.products.iter().map(|line| {
        let measured = Measurement::of_own_work(line.replicate, &line.outcome, &line.slowest_nanoseconds);
        (Subject::Product(&line.product), measured)
    });
    let mut all: Vec<Planned> = Vec::new();
    let mut index_of: HashMap<String, usize> = HashMap::new();
    for (subject, measured) in copies.chain(products) {
        let at = *index_of.entry(subject.name().into_owned()).or_insert(all.len());
        if at == all.len() {
            all.push(Planned { subject, measurements: Vec::new(), place: None });
        }
        all[at].measurements.push(measured);
    }
    all.into_iter().map(|planned| (planned.subject.name().into_owned(), planned))
}

/// Median time of one transfer over the valid samples of a line, if it was measured, and the number of excluded samples.
pub(super) fn seconds_of(line: &CaseLine, facts: &CaseFacts) -> (Option<f64>, usize) {
    if !matches!(line.outcome, Outcome::Measured { .. }) {
        return (None, 0);
    }
    let times = line.seconds_per_transfer(facts);
    let left_out = line.samples.slowest_nanoseconds.len() - times.len();
    let middle = seconds_of_slowest_group(line, facts).or_else(|| median(&times));
    (middle.filter(|middle| *middle > 0.0), left_out)
}

/// The largest of the medians of the groups that ran at once, where the line has them.
///
/// Every sample of thousands of groups contains one that was held up by chance, so that the median of each sample's slowest group
/// grows with their number. An expectation is about one group, and each of them must meet it. Isolated calls start together and are
/// timed as a whole.
fn seconds_of_slowest_group(line: &CaseLine, facts: &CaseFacts) -> Option<f64> {
    let of_pairs = line.pairs.iter().flat_map(|pairs| &pairs.median_nanoseconds);
    let slowest = of_pairs.chain(&line.rank_medians).max().filter(|median| **median > 0)?;
    let transfers = f64::from(line.calls_per_sample) * f64::from(facts.transfers_per_call);
    let are_apart = facts.groups > 1 && facts.cadence == Cadence::Streaming;
    are_apart.then_some(Seconds::from_nanoseconds(*slowest).0 / transfers)
}

// Transient slowdowns: a period of a run in which the machine was slow, such as from heat, a power limit or another job. Measurements in it
// do not show what the machine can do. A machine that is always slow is not detected here.

/// Significance level of a run of slow measurements.
const LEVEL: f64 = 0.001;

/// Minimum number of replicates of a case.
const MIN_REPLICATES: usize = 3;

/// Minimum number of slow cases, where there are as many: a single one has its own cause.
const MIN_CASES: usize = 3;

/// A measurement is slow if it exceeds the usual time of its case by at least this share, ...
const MIN_SLOWDOWN: f64 = 0.05;

/// ... and by this multiple of the gap between the two fastest replicates of a case (median over all cases).
const GAPS: f64 = 5.0;

/// A period in which a machine was slow.
#[derive(Clone, Debug, PartialEq)]
pub struct TransientSlowdown {
    /// Description as a sentence.
    pub text: String,
    /// The slow replicates of the period, by case.
    pub replicates: BTreeMap<u32, BTreeSet<u32>>,
    /// Usual time of each of these cases, in seconds.
    usual: BTreeMap<u32, f64>,
}

impl TransientSlowdown {
    /// The transient slowdown of a record, if any. `seconds` gives the time of a line, or `None` if it is not valid.
    pub fn of(record: &Record, seconds: impl Fn(&CaseLine) -> Option<f64>) -> Option<TransientSlowdown> {
        let measured: Vec<(&CaseLine, f64)> =
            record.cases.iter().filter_map(|line| Some((line, seconds(line).filter(|time| *time > 0.0)?))).collect();
        let mut of_case: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
        measured.iter().for_each(|(line, time)| of_case.entry(line.case).or_default().push(*time));
        of_case.retain(|_, times| times.len() >= MIN_REPLICATES);
        of_case.values_mut().for_each(|times| times.sort_unstable_by(f64::total_cmp));
        let gaps = sorted(of_case.values().map(|times| times[1] / times[0] - 1.0));
        let slow = MIN_SLOWDOWN.max(GAPS * median(&gaps)?);
        // The lower quartile, so that a slowdown of half of the replicates of a case is still detected.
        let usual: BTreeMap<u32, f64> = of_case.iter().map(|(case, times)| (*case, times[times.len() / 4])).collect();
        let of_time: Vec<TimedLine> = (measured.iter())
            .filter_map(|(line, time)| Some(TimedLine { line, slowdown: time / usual.get(&line.case)? - 1.0 }))
            .collect();
        // A slow network leaves calls inside nodes as they are, which are in between: cases that were never slow show no period.
        let slowed: BTreeSet<u32> =
            of_time.iter().filter(|timed| timed.slowdown > slow).map(|timed| timed.line.case).collect();
        let shown: Vec<usize> = (0..of_time.len()).filter(|at| slowed.contains(&of_time[*at].line.case)).collect();
        let marks: Vec<bool> = shown.iter().map(|at| of_time[*at].slowdown > slow).collect();
        let stretch = densest_stretch(&marks).filter(|stretch| stretch.probability <= LEVEL)?;
        let within = &of_time[shown[stretch.range.start]..=shown[stretch.range.end - 1]];
        let mut replicates: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        for TimedLine { line, .. } in within.iter().filter(|timed| timed.slowdown > slow) {
            replicates.entry(line.case).or_default().insert(line.replicate);
        }
        if replicates.len() < MIN_CASES.min(of_case.len()) {
            return None;
        }
        let usual = usual.into_iter().filter(|(case, _)| replicates.contains_key(case)).collect();
        Some(TransientSlowdown { text: sentence(record, within, slow), replicates, usual })
    }

    /// Whether a replicate of a case is one of the slow ones.
    pub fn includes(&self, case: u32, replicate: u32) -> bool {
        self.replicates.get(&case).is_some_and(|replicates| replicates.contains(&replicate))
    }

    /// The time of a replicate without the slowdown: the usual time of its case if it is one of the slow ones, else as
    /// measured.
    pub fn seconds_without(&self, case: u32, replicate: u32, seconds: f64) -> f64 {
        let usual = self.usual.get(&case).filter(|_| self.includes(case, replicate));
        usual.map_or(seconds, |usual| usual.min(seconds))
    }
}

/// A line of a record, and its excess over the usual time of its case, as a share.
struct TimedLine<'a> {
    line: &'a CaseLine,
    slowdown: f64,
}

fn sentence(record: &Record, within: &[TimedLine], slow: f64) -> String {
    let slower = sorted(within.iter().map(|timed| timed.slowdown).filter(|slowdown| *slowdown > slow));
    let percent = |share: Option<f64>| three_digits(share.unwrap_or_default() * 100.0);
    let place = |timed: Option<&TimedLine>| {
        timed.map_or_else(String::new, |TimedLine { line, .. }| {
            format!("case {} of replicate {}", u64::from(line.position) + 1, line.replicate)
        })
    };
    format!(
        "the machine was slow for a while, from {} to {} of {}{}: {} of {} measurements took {} % longer than at other times \
         (median). Look for a temporary cause: heat, a power limit, another job. Measure again; these times do not show what the machine can do",
        place(within.first()),
        place(within.last()),
        record.header.settings.replicates,
        when(record, within).unwrap_or_default(),
        slower.len(),
        within.len(),
        percent(median(&slower)),
    )
}

/// Its place in the run, estimated from the lengths of the samples, since lines have no timestamps.
fn when(record: &Record, within: &[TimedLine]) -> Option<String> {
    let length = |line: &CaseLine| line.samples.slowest_nanoseconds.iter().map(|sample| *sample as f64).sum::<f64>();
    let all: f64 = record.cases.iter().map(length).sum();
    let at = |wanted: &CaseLine| record.cases.iter().position(|line| std::ptr::eq(line, wanted));
    let (first, last) = (at(within.first()?.line)?, at(within.last()?.line)?);
    let before: f64 = record.cases[..first].iter().map(length).sum();
    let until: f64 = record.cases[..=last].iter().map(length).sum();
    if all <= 0.0 {
        return None;
    }
    let (from, to) = (before / all, until / all);
    let whole = record.end.as_ref().filter(|_| record.resumes.is_empty() && !record.header.backend.synthetic);
    Some(match whole {
        Some(end) => {
            let moment = |share: f64| Seconds(share * end.elapsed_seconds.0).to_string();
            format!(", about {} to {} after its start", moment(from), moment(to))
        }
        None => format!(", about {:.0} to {:.0} % of the way through it", from * 100.0, to * 100.0),
    })
}

#[cfg(test)]
mod tests {

    use super::super::testing::{lines, loaded};
    use super::transient_slowdown as found;
    use super::*;
    use commgauge_model::record::line::PairTimes;

    /// A record in which the lines of a range, in the order of time, take `factor` times as long.
    fn record(rows: usize, replicates: usize, slow: std::ops::Range<usize>, factor: f64) -> Record {
        let time = |row: usize, replicate: usize| {
            let jitter = 1.0 + 0.001 * ((row * 7 + replicate * 13) % 10) as f64;
            let line = replicate * rows + row;
            100.0 * (row + 1) as f64 * jitter * if slow.contains(&line) { factor } else { 1.0 }
        };
        let rows: Vec<Vec<f64>> =
            (0..rows).map(|row| (0..replicates).map(|replicate| time(row, replicate)).collect()).collect();
        loaded("r.jsonl", lines("r", &rows)).record
    }

    #[test]
    fn of_groups_at_once_the_slowest_by_its_own_median_counts_and_not_what_holds_up_any_of_them() {
        let record = loaded("r.jsonl", lines("r", &[vec![0.2; 3]])).record;
        let pairs = |medians: [u64; 2]| {
            let median_nanoseconds = medians.to_vec();
            Some(Box::new(PairTimes { median_nanoseconds, ..PairTimes::default() }))
        };
        for (name, groups, cadence, pairs, rank_medians, nanoseconds) in [
            ("pairs", 2, Cadence::Streaming, pairs([90, 100]), vec![], 100.0),
            ("ranks", 2, Cadence::Streaming, None, vec![100, 100, 0, 90], 100.0),
            ("one group", 1, Cadence::Streaming, None, vec![100, 100, 90, 90], 200.0),
            ("common start", 2, Cadence::Isolated, pairs([90, 100]), vec![], 200.0),
            ("withheld", 2, Cadence::Streaming, pairs([0, 0]), vec![], 200.0),
            ("histograms", 2, Cadence::Streaming, None, vec![], 200.0),
        ] {
            let facts = CaseFacts { groups, cadence, ..record.plan.cases[0].clone() };
            let line = CaseLine { pairs, rank_medians, ..record.cases[0].clone() };
            let found = seconds_of(&line, &facts).0.unwrap() * 1e9;
            assert!((found - nanoseconds).abs() < 1e-6, "{name}: {found} ns");
        }
    }

    #[test]
    fn short_records_constant_slowness_and_scatter_are_no_transient_slowdown() {
        for (name, record) in [
            ("nothing", record(10, 5, 0..0, 1.0)),
            ("two replicates", record(10, 2, 3..9, 2.0)),
            ("one row", record(1, 5, 1..3, 2.0)),
            ("always", record(10, 5, 0..50, 2.0)),
            ("by an irrelevant amount", record(10, 5, 12..24, 1.03)),
            ("a few lines", record(10, 5, 12..14, 2.0)),
        ] {
            assert_eq!(found(&record), None, "{name}");
        }
        // Every third line is slow: noise, not a transient slowdown.
        let rows: Vec<Vec<f64>> = (0..10)
            .map(|row| (0..6).map(|replicate| if (row + replicate * 2) % 3 == 0 { 150.0 } else { 100.0 }).collect())
            .collect();
        assert_eq!(found(&loaded("r.jsonl", lines("r", &rows)).record), None);
    }

    #[test]
    fn a_transient_slowdown_is_found_with_its_place_and_exactly_its_replicates() {
        for (range, text) in [
            (12..24, "from case 3 of replicate 1 to case 4 of replicate 2 of 5"),
            (0..20, "from case 1 of replicate 0 to case 10 of replicate 1 of 5"),
            (38..50, "from case 9 of replicate 3 to case 10 of replicate 4 of 5"),
        ] {
            let record = record(10, 5, range.clone(), 1.5);
            let slowdown = found(&record).unwrap_or_else(|| panic!("{range:?}"));
            assert!(slowdown.text.contains(text) && slowdown.text.contains("measurements took 5"), "{}", slowdown.text);
            let in_it: usize = slowdown.replicates.values().map(BTreeSet::len).sum();
            assert_eq!(in_it, range.len());
            for line in range {
                let (row, replicate) = ((line % 10) as u32, (line / 10) as u32);
                assert!(slowdown.includes(row, replicate) && !slowdown.includes(row, replicate + 3));
                let usual = 1e-4 * f64::from(row + 1);
                assert!((slowdown.seconds_without(row, replicate, usual * 1.5) / usual - 1.0).abs() < 0.02);
                assert_eq!(slowdown.seconds_without(row, replicate + 3, 9.0), 9.0);
            }
        }
    }

    #[test]
    fn a_slow_network_is_found_among_calls_that_do_not_use_it_and_a_slow_case_is_no_slow_machine() {
        let found_with = |is_slow: fn(usize) -> bool| {
            let time = |row: usize, replicate: usize| {
                let is_in_period = (60..140).contains(&(replicate * 20 + row));
                1.0 + 0.001 * ((row * 7 + replicate * 13) % 10) as f64
                    + if is_in_period && is_slow(row) { 0.5 } else { 0.0 }
            };
            let rows: Vec<Vec<f64>> =
                (0..20).map(|row| (0..20).map(|replicate| time(row, replicate)).collect()).collect();
            found(&loaded("r.jsonl", lines("r", &rows)).record)
        };
        let slowdown = found_with(|row| row % 3 == 0).unwrap();
        let replicates = BTreeSet::from([3, 4, 5, 6]);
        assert_eq!(slowdown.replicates, (0..20).step_by(3).map(|case| (case, replicates.clone())).collect());
        assert!(slowdown.text.contains("28 of 79 measurements took 5"), "{}", slowdown.text);
        assert_eq!(found_with(|row| row == 3), None);
    }

    #[test]
    fn a_transient_slowdown_neither_fails_a_good_row_nor_saves_a_bad_one() {
        use super::super::testing::machine;
        use super::super::{Decision, GateRule, gate};
        use commgauge_model::config::Machine;
        let gate_of = |slow, machine: Option<&Machine>| {
            let loaded = super::super::LoadedRecord { path: "r.jsonl".into(), record: record(4, 40, slow, 3.0) };
            gate(&[loaded], machine, &GateRule { confidence: 0.95, allowed: Vec::new() }).unwrap()
        };
        let verdict = |slow, floor: &str| gate_of(slow, Some(&machine(floor)));
        let decisions = |slow, floor: &str| -> Vec<Option<Decision>> {
            verdict(slow, floor).rows.iter().map(|row| row.decision).collect()
        };
        let all = |decision| vec![Some(decision); 4];
        // Row r moves 2^(20+r) bytes in (r + 1) 100 us: from 15 to 31 GB/s of bus bandwidth.
        assert_eq!(decisions(0..0, "12GB/s"), all(Decision::Pass));
        assert_eq!(decisions(20..32, "12GB/s"), all(Decision::Inconclusive), "3 of 40 replicates");
        // Enough that the median is in the slow period.
        assert_eq!(decisions(20..128, "12GB/s"), all(Decision::Inconclusive), "27 of 40 replicates");
        assert_eq!(decisions(20..128, "4GB/s"), all(Decision::Pass), "the slow ones meet the limit too");
        let slow_period = |verdict: &super::super::Verdict| {
            verdict.problems.iter().find(|problem| problem.text.contains("slow for a while")).cloned().expect("one")
        };
        let met = slow_period(&verdict(20..32, "4GB/s"));
        assert!(
            met.exit_code == 0 && met.text.ends_with("; the judged rows of that period meet their thresholds anyway"),
            "{met:?}"
        );
        for slow in [0..0, 20..32, 20..128] {
            assert_eq!(decisions(slow.clone(), "500GB/s"), all(Decision::Fail), "a bad machine stays one: {slow:?}");
        }
        let verdict = verdict(20..32, "12GB/s");
        assert_eq!(verdict.exit_code, 3);
        assert_eq!(slow_period(&verdict).exit_code, 3);
        let nothing = gate_of(20..32, None);
        assert_eq!(slow_period(&nothing).exit_code, 3, "nothing is judged, so nothing passes");
        assert!(verdict.rows[0].reasons.iter().any(|reason| reason.contains("fell into a slow period")));
    }
}
