//! The times of each planned case, replicate by replicate, and the reasons why it must not pass.
//!
//! Nothing is decided here: every reason that would keep a row from passing is collected as a sentence.

use super::comparability::identities;
use super::loaded_record::LoadedRecord;
use super::transient_slowdown::TransientSlowdown;
use super::{Allowed, Trouble, copied_times, whole_record};
use commgauge_base::collective::{Collective, Placement};
use commgauge_base::element::ElementType;
use commgauge_base::sample::Cadence;
use commgauge_base::stats::{median, sorted};
use commgauge_base::units::{Bytes, Seconds};
use commgauge_base::visible::ShownPath;
use commgauge_model::layout::Locality;
use commgauge_model::record::Record;
use commgauge_model::record::line::{CaseFacts, CaseLine, ClockMethod, ForeignTool, Outcome};
use std::collections::{HashMap, HashSet};

/// The shortfall of a case with a replicate that was measured while the machine was slow.
const IN_SLOW_PERIOD: &str = "unreliable: a replicate fell into a slow period of the machine";
/// With a larger share of excluded samples the remaining ones are unreliable too.
const MAX_EXCLUDED_SHARE: f64 = 0.1;

/// A planned case with all its replicates.
pub(super) struct Evidence<'a> {
    /// The case, as planned.
    pub facts: &'a CaseFacts,
    /// Median time of one transfer in each requested replicate, in seconds; none without a valid sample.
    pub seconds: Vec<Option<f64>>,
    /// The same, but with the usual time of the case for replicates that fell into a transient slowdown.
    pub steady_seconds: Vec<Option<f64>>,
    /// True where a replicate was measured while the machine was slow; it is among the shortfalls.
    pub in_slow_period: bool,
    /// Reasons why it must not pass, without duplicates.
    pub shortfalls: Vec<String>,
    /// True where a replicate was not measured, unless all replicates were skipped.
    pub unmeasured: bool,
    /// True where wrong data was received.
    pub corrupt: bool,
    /// The tool that measured without a check of the data, if any; it is among the shortfalls.
    pub unchecked_by: Option<ForeignTool>,
}

/// A case of the new run, and the same one of the base, if that has it.
#[derive(Clone, Copy)]
pub(super) struct ComparedRow<'a> {
    pub new: &'a Evidence<'a>,
    pub base: Option<&'a Evidence<'a>>,
}

impl<'a> Evidence<'a> {
    /// A planned case of which nothing is known yet.
    fn of(facts: &'a CaseFacts) -> Evidence<'a> {
        Evidence {
            facts,
            seconds: Vec::new(),
            steady_seconds: Vec::new(),
            in_slow_period: false,
            shortfalls: Vec::new(),
            unmeasured: false,
            corrupt: false,
            unchecked_by: None,
        }
    }

    /// Ascending times of the replicates that were measured.
    pub fn measured(&self) -> Vec<f64> {
        sorted(self.seconds.iter().flatten().copied())
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

/// What must agree for measurements of two records to be replicates of each other, whatever else may differ between the runs.
#[derive(PartialEq, Eq, Hash)]
struct SameCall<'a> {
    name: String,
    collective: Collective,
    element_type: ElementType,
    bytes_total: Bytes,
    group_size: u32,
    locality: &'a Locality,
    placement: Placement,
    cadence: Cadence,
}

impl<'a> SameCall<'a> {
    fn new(name: String, facts: &'a CaseFacts) -> SameCall<'a> {
        let CaseFacts { collective, element_type, bytes_total, group_size, placement, cadence, .. } = *facts;
        let locality = &facts.locality;
        SameCall { name, collective, element_type, bytes_total, group_size, locality, placement, cadence }
    }
}

/// What records show.
pub(super) struct Gathered<'a> {
    /// The cases of all records. What is the same call in several of them has the replicates of all.
    pub cases: Vec<Evidence<'a>>,
    /// The troubles of the records as a whole, but for slow periods.
    pub troubles: Vec<Trouble>,
    /// That the machine was slow for a while, of each record in which it was.
    pub slow_periods: Vec<Trouble>,
}

/// The cases of records, and all troubles of the records as a whole.
pub(super) fn evidence<'a>(records: &'a [LoadedRecord], allowed: &[Allowed]) -> (Vec<Evidence<'a>>, Vec<Trouble>) {
    let Gathered { cases, mut troubles, slow_periods } = gather(records, allowed);
    troubles.extend(slow_periods);
    (cases, troubles)
}

/// What records show; `allowed` are the differences between them that are accepted.
pub(super) fn gather<'a>(records: &'a [LoadedRecord], allowed: &[Allowed]) -> Gathered<'a> {
    let mut cases: Vec<Evidence> = Vec::new();
    let mut index_of: HashMap<SameCall, usize> = HashMap::new();
    let (mut troubles, mut slow_periods) = (Vec::new(), Vec::new());
    for LoadedRecord { path, record } in records {
        let planned = &record.plan.cases;
        let mut lines: Vec<Vec<&CaseLine>> = vec![Vec::new(); planned.len()];
        for line in &record.cases {
            if let Some(lines) = lines.get_mut(line.case as usize) {
                lines.push(line);
            }
        }
        let transient_slowdown = transient_slowdown(record);
        let names = identities(planned.iter(), allowed);
        // What one plan has twice is two rows.
        let mut of_this_record = HashSet::new();
        for ((index, facts), (name, lines)) in (0u32..).zip(planned).zip(names.into_iter().zip(lines)) {
            let call = SameCall::new(name, facts);
            let known = index_of.get(&call).copied().filter(|at| !of_this_record.contains(at));
            let at = known.unwrap_or(cases.len());
            if known.is_none() {
                cases.push(Evidence::of(facts));
                index_of.insert(call, at);
            }
            of_this_record.insert(at);
            add_record(&mut cases[at], index, record, &lines, transient_slowdown.as_ref());
        }
        let trouble = |(exit_code, text)| Trouble { exit_code, text: format!("{}: {text}", path.shown()) };
        troubles.extend(whole_record::of_record(record).into_iter().map(trouble));
        slow_periods.extend(transient_slowdown.map(|found| trouble((3, found.text))));
    }
    // A case that ran once can always run: a skipped replicate then counts as missing.
    for case in &mut cases {
        case.unmeasured |= case.seconds.iter().any(Option::is_some) && case.seconds.iter().any(Option::is_none);
    }
    let unmeasured = cases.iter().filter(|case| case.unmeasured).count();
    if unmeasured > 0 {
        let text = format!("{unmeasured} of {} planned rows were not measured in every replicate", cases.len());
        troubles.push(Trouble { exit_code: 7, text });
    }
    troubles.extend(copied_times::copies(records).map(|text| Trouble { exit_code: 3, text }));
    Gathered { cases, troubles, slow_periods }
}

/// The transient slowdown of a record, if there was one.
pub(super) fn transient_slowdown(record: &Record) -> Option<TransientSlowdown> {
    // Other tools do not say when they measured what.
    if record.header.backend.measured_by.is_some() {
        return None;
    }
    TransientSlowdown::of(record, |line| seconds_of(line, record.plan.cases.get(line.case as usize)?).0)
}

/// Adds the lines of a case, which has this index in the plan.
fn add_record(
    case: &mut Evidence,
    index: u32,
    record: &Record,
    lines: &[&CaseLine],
    transient_slowdown: Option<&TransientSlowdown>,
) {
    let settings = &record.header.settings;
    // With a shared time budget only the replicates that it sufficed for are expected, and of logs only those that they hold.
    let is_counted = settings.within_seconds.is_some() || record.header.backend.measured_by.is_some();
    let replicates = match is_counted {
        true if !lines.is_empty() => lines.iter().map(|line| line.replicate).collect(),
        _ => (0..settings.fewest_replicates()).collect::<Vec<_>>(),
    };
    for replicate in replicates {
        let line = lines.iter().find(|line| line.replicate == replicate);
        let seconds = line.and_then(|line| add_line(case, record, line));
        let skipped = line.is_some_and(|line| matches!(line.outcome, Outcome::Skipped { .. }));
        case.unmeasured |= seconds.is_none() && !skipped;
        case.seconds.push(seconds);
        let usual =
            |seconds| transient_slowdown.map_or(seconds, |found| found.seconds_without(index, replicate, seconds));
        case.steady_seconds.push(seconds.map(usual));
        if transient_slowdown.is_some_and(|found| found.includes(index, replicate)) {
            case.in_slow_period = true;
            case.add(IN_SLOW_PERIOD.to_owned());
        }
        if line.is_none() {
            case.add("a replicate is missing".to_owned());
        }
    }
    if settings.within_seconds.is_none() && lines.iter().any(|line| line.replicate >= settings.replicates) {
        case.add("the record has more replicates than were requested".to_owned());
    }
    for warning in &record.header.warnings {
        case.add(format!("unreliable: {warning}"));
    }
    if case.facts.cadence == Cadence::Isolated && record.clocks.iter().any(|clock| clock.method == ClockMethod::Barrier)
    {
        case.add("unreliable: its samples started after a barrier, not on a common clock".to_owned());
    }
    if record.header.backend.synthetic {
        case.add("synthetic: no data moved and no real time passed".to_owned());
    }
}

/// Records the shortfalls of a line, and returns its median time if it has a valid one.
fn add_line(case: &mut Evidence, record: &Record, line: &CaseLine) -> Option<f64> {
    for warning in &line.warnings {
        case.add(format!("unreliable: {warning}"));
    }
    match &line.outcome {
        Outcome::Measured { verified } => {
            // A barrier moves no data that could be checked.
            let nothing_to_check = case.facts.collective == Collective::Barrier && record.header.settings.verify;
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
        Outcome::Corrupt { when, rank, element, expected, got, count } => {
            case.corrupt = true;
            case.add(format!(
                "wrong data at rank {rank}, element {element}: expected {expected}, got {got} ({count} wrong elements \
                 there, {when} timing)"
            ));
            return None;
        }
        Outcome::Failed { reason } => {
            case.add(format!("failed: {reason}"));
            return None;
        }
    }
    let (middle, left_out) = seconds_of(line, case.facts);
    let samples = line.samples.slowest_nanoseconds.len();
    if left_out as f64 > MAX_EXCLUDED_SHARE * samples as f64 {
        case.add(format!("unreliable: {left_out} of {samples} samples of a replicate do not count"));
    }
    if middle.is_none() {
        case.add("a replicate has no sample that counts".to_owned());
    }
    middle
}

/// Median time of one transfer over the valid samples of a line, if it was measured, and the number of excluded samples.
pub(super) fn seconds_of(line: &CaseLine, facts: &CaseFacts) -> (Option<f64>, usize) {
    if !matches!(line.outcome, Outcome::Measured { .. }) {
        return (None, 0);
    }
    let samples = &line.samples.slowest_nanoseconds;
    let mut counts = vec![true; samples.len()];
    for (index, _) in &line.samples.excluded {
        counts[*index as usize] = false;
    }
    let transfers = f64::from(line.calls_per_sample) * f64::from(facts.transfers_per_call);
    let valid = samples.iter().zip(&counts).filter(|(_, counts)| **counts);
    let times = sorted(valid.map(|(sample, _)| Seconds::from_nanoseconds(*sample).0 / transfers));
    let left_out = samples.len() - times.len();
    (median(&times).filter(|middle| *middle > 0.0), left_out)
}
