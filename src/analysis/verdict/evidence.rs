//! The times of each planned case, replicate by replicate, and the reasons why it must not pass.
//!
//! Nothing is decided here: every reason that would keep a row from passing is collected as a sentence.

use super::Trouble;
use super::loaded_record::LoadedRecord;
use super::transient_slowdown::TransientSlowdown;
use commgauge_base::collective::Collective;
use commgauge_base::sample::Cadence;
use commgauge_base::stats::{median, sorted};
use commgauge_base::units::{Seconds, counted};
use commgauge_base::visible::ShownPath;
use commgauge_model::record::line::{
    CaseFacts, CaseLine, ClockMethod, ClockMoment, EndStatus, ForeignTool, Outcome, RankFacts,
};
use commgauge_model::record::{Record, Seal};
use std::collections::HashMap;

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

impl Evidence<'_> {
    /// Ascending times of the replicates that were measured.
    pub fn measured(&self) -> Vec<f64> {
        sorted(self.seconds.iter().flatten().copied())
    }

    /// Ascending times with a transient slowdown removed; none where there was none.
    pub fn steady(&self) -> Option<Vec<f64>> {
        (self.steady_seconds != self.seconds).then(|| sorted(self.steady_seconds.iter().flatten().copied()))
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

/// The cases of records with the same plan, and the troubles of the records as a whole.
pub(super) fn evidence(records: &[LoadedRecord]) -> (Vec<Evidence<'_>>, Vec<Trouble>) {
    let Some(first) = records.first() else { return Default::default() };
    let mut cases: Vec<Evidence> = (first.record.plan.cases.iter())
        .map(|facts| Evidence {
            facts,
            seconds: Vec::new(),
            steady_seconds: Vec::new(),
            shortfalls: Vec::new(),
            unmeasured: false,
            corrupt: false,
            unchecked_by: None,
        })
        .collect();
    let mut troubles = Vec::new();
    for LoadedRecord { path, record } in records {
        let mut lines: Vec<Vec<&CaseLine>> = vec![Vec::new(); cases.len()];
        for line in &record.cases {
            if let Some(lines) = lines.get_mut(line.case as usize) {
                lines.push(line);
            }
        }
        let transient_slowdown = transient_slowdown(record);
        for (index, (case, lines)) in (0u32..).zip(cases.iter_mut().zip(lines)) {
            add_record(case, index, record, &lines, transient_slowdown.as_ref());
        }
        let trouble = |(exit_code, text)| Trouble { exit_code, text: format!("{}: {text}", path.shown()) };
        troubles.extend(of_record(record, transient_slowdown).into_iter().map(trouble));
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
    (cases, troubles)
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
            case.add("unreliable: a replicate fell into a slow period of the machine".to_owned());
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

/// Troubles of a record as a whole, each with its exit code.
fn of_record(record: &Record, transient_slowdown: Option<TransientSlowdown>) -> Vec<(i32, String)> {
    let transient_slowdown = transient_slowdown.map(|found| (3, found.text));
    let mut found: Vec<(i32, String)> = record.warnings.iter().map(|warning| (7, warning.clone())).collect();
    match &record.end {
        None => {
            if record.warnings.is_empty() {
                found.push((7, "the record has no end line".to_owned()));
            }
        }
        Some(end) => {
            let how = match end.status {
                EndStatus::Complete => "the run ended with trouble",
                EndStatus::Interrupted => "the run was interrupted",
                EndStatus::Failed => "the run failed",
                EndStatus::OutOfTime => "the run stopped before its time limit",
            };
            let code = if (4..=7).contains(&end.exit_code) { end.exit_code } else { 7 };
            if end.status != EndStatus::Complete || end.exit_code != 0 {
                let why = end.error.as_deref().map_or_else(String::new, |error| format!(": {error}"));
                found.push((code, format!("{how}{why}")));
            }
        }
    }
    match record.seal {
        Seal::Absent if record.end.is_some() => found.push((
            3,
            "the record carries no digest, so nothing shows whether it was changed after it was written".to_owned(),
        )),
        Seal::Unsealed(_) => found.extend(record.seal.note().map(|note| (3, note))),
        Seal::Whole | Seal::EndOnly | Seal::Absent | Seal::Broken(_) => {}
    }
    // Of the clocks and of the plan of another tool nothing is known.
    let is_foreign = record.header.backend.measured_by.is_some();
    for (moment, name) in [(ClockMoment::Start, "start"), (ClockMoment::End, "end")] {
        if !is_foreign && !record.clocks.iter().any(|clock| clock.moment == moment) {
            found.push((7, format!("the record does not say how the clocks agreed at its {name}")));
        }
    }
    let (cases, replicates) = (record.plan.cases.len() as u64, record.header.settings.fewest_replicates());
    if cases == 0 || replicates == 0 {
        found.push((7, "the record plans nothing to measure".to_owned()));
    } else if !is_foreign && record.plan.case_lines != cases.saturating_mul(u64::from(replicates)) {
        found.push((7, "the plan of the record contradicts itself in the number of case lines".to_owned()));
    }
    found.extend(shared_host(&record.header.ranks).map(|text| (7, text)));
    let outcomes = (record.cases.iter().map(|line| &line.outcome))
        .chain(record.replays.iter().map(|replay| &replay.outcome))
        .chain(record.interference.iter().map(|pair| &pair.outcome));
    let (mut corrupt, mut failed) = (0usize, 0usize);
    for outcome in outcomes {
        corrupt += usize::from(matches!(outcome, Outcome::Corrupt { .. }));
        failed += usize::from(matches!(outcome, Outcome::Failed { .. }));
    }
    if corrupt > 0 {
        found.push((4, format!("data arrived wrong in {}", counted(corrupt, "measurement"))));
    }
    if failed > 0 {
        found.push((6, format!("{} could not be run to the end", counted(failed, "measurement"))));
    }
    found.extend(transient_slowdown);
    found
}

/// That two nodes have one name; a run gives such hosts names that differ.
fn shared_host(ranks: &[RankFacts]) -> Option<String> {
    let mut node_of_host = HashMap::new();
    ranks.iter().find_map(|facts| {
        let known = *node_of_host.entry(&facts.host).or_insert(facts.node);
        (known != facts.node).then(|| {
            format!(
                "nodes {known} and {} are both called {}: which ranks are on which is unknown",
                facts.node, facts.host
            )
        })
    })
}
