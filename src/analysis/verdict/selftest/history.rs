//! The rules applied to the user's own runs, in which nothing is supposed to have changed: A/A tests.
//!
//! Splits follow time: each run against the next one like it, and the first half of a run's replicates against the second.
//! Random splits would show nothing, since the test is exact for them by construction.

use super::super::loaded_record::LoadedRecord;
use super::super::{CompareRule, compare, differences};
use super::counted::{Counted, counted};
use commgauge_base::visible::ShownPath;
use commgauge_model::record::{Line, Record};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What came of the user's own runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct History {
    /// Records that were looked at.
    pub records: u32,
    /// Runs against the next like them.
    pub run_against_run: Counted,
    /// First halves of runs against their second halves.
    pub half_against_half: Counted,
    /// What could not be used, as sentences.
    pub left_out: Vec<String>,
}

/// Compares each run with the next comparable one; `records` in any order.
pub(super) fn history(mut records: Vec<LoadedRecord>, mut left_out: Vec<String>, rule: &CompareRule) -> History {
    records.sort_by(|a, b| {
        let when =
            |loaded: &LoadedRecord| (loaded.record.header.started_at.clone(), loaded.record.header.run_id.clone());
        when(a).cmp(&when(b))
    });
    let (mut runs, mut halves) = ((0, 0), (0, 0));
    let mut count = |base: &LoadedRecord, new: &LoadedRecord, what: &str, sum: &mut (u64, u64)| {
        match compare(std::slice::from_ref(base), std::slice::from_ref(new), rule) {
            // With too few replicates no alarm is possible; such a comparison is not counted.
            Ok(verdict) if verdict.troubles.is_empty() => {
                sum.0 += u64::from(verdict.exit_code == 1);
                sum.1 += 1;
            }
            Ok(verdict) => {
                let why = verdict.troubles.first().map_or("", |trouble| trouble.text.as_str());
                left_out.push(format!("{what}: {why}"));
            }
            Err(error) => left_out.push(format!("{what}: {error}")),
        }
    };
    for (index, base) in records.iter().enumerate() {
        let next = records[index + 1..].iter().find(|next| differences(base, next).is_empty());
        if let Some(next) = next {
            count(base, next, &format!("{} and {}", base.path.shown(), next.path.shown()), &mut runs);
        }
        if let Some((first, second)) = split(base) {
            count(&first, &second, &format!("the halves of {}", base.path.shown()), &mut halves);
        }
    }
    History {
        records: records.len() as u32,
        run_against_run: counted(runs.0, runs.1),
        half_against_half: counted(halves.0, halves.1),
        left_out,
    }
}

/// The first and the second half of a run's replicates, each as a whole record; none where a half would be empty.
fn split(loaded: &LoadedRecord) -> Option<(LoadedRecord, LoadedRecord)> {
    let half = loaded.record.header.settings.replicates / 2;
    let part = |from: u32, id: &str| {
        let record = &loaded.record;
        let (mut header, mut plan) = (record.header.clone(), record.plan.clone());
        header.settings.replicates = half;
        header.run_id += id;
        plan.case_lines = plan.cases.len() as u64 * u64::from(half);
        let mut lines = vec![Line::Header(Box::new(header)), Line::Plan(plan)];
        lines.extend(record.clocks.iter().cloned().map(Line::Clock));
        for case in record.cases.iter().filter(|case| (from..from + half).contains(&case.replicate)) {
            let mut case = case.clone();
            case.replicate -= from;
            lines.push(Line::Case(Box::new(case)));
        }
        let mut end = record.end.clone()?;
        (end.lines_before, end.sha256) = (Some(lines.len() as u64), None);
        lines.push(Line::End(end));
        Some(LoadedRecord { path: loaded.path.clone(), record: Record::from_lines(lines).ok()? })
    };
    let first = part(0, "-first").filter(|_| half > 0)?;
    Some((first, part(half, "-second")?))
}
