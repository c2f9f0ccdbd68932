//! The command to run next: what confirms a suspect, completes a run, or decides what is not decided.

use super::input::{HtmlInput, HtmlRun};
use crate::launch::quote;
use commgauge_analysis::verdict::{Decision, NextRun, Row, judged_suite, next_run};
use commgauge_model::config::Shipped;
use commgauge_model::record::line::{EndStatus, Header};

/// The command with a comment on what it is for; `None` where there is nothing to do.
pub(super) fn next_command(input: &HtmlInput, code: i32) -> Option<String> {
    let header = &input.runs.first()?.view.header;
    let suspects = input.suspects.as_ref().ok();
    if let Some(suspect) = suspects.and_then(|suspects| suspects.suspects.first()) {
        return Some(suspect.next_step.clone());
    }
    if let Some(unfinished) = input.runs.iter().find(|run| can_go_on(run)) {
        return Some(format!("commgauge run --resume {}  # what is missing", quote(&unfinished.name)));
    }
    let all: Vec<String> = input.runs.iter().map(|run| quote(&run.name)).collect();
    let records = all.join(" ");
    let rows = || input.verdict.iter().chain(&input.comparison).flat_map(|verdict| &verdict.rows);
    let has = |decision: Decision| rows().any(|row| row.decision == Some(decision));
    let searched = suspects.is_some_and(|suspects| suspects.examined.can_name_a_node());
    let has_warnings = input.runs.iter().any(|run| run.view.serious_warnings().next().is_some());
    let machine = input.machine.as_deref().map(|machine| format!(" --machine {}", quote(machine)));
    let base: String = input.base.iter().map(|run| format!(" --base {}", quote(&run.name))).collect();
    match code {
        4..=6 => Some("commgauge doctor  # what cannot run on this machine, and the fix".to_owned()),
        1 if has(Decision::Fail) && !searched && header.ranks.iter().any(|rank| rank.host != header.ranks[0].host) => {
            Some(format!("{}  # every two ranks: is it a node or a link?", next_run(header, NextRun::Pairs, None)))
        }
        1 => Some(format!("commgauge locate {records}  # what was searched, and what the data cannot show")),
        3 if rows().any(|row| row.replicates_more.is_some()) => Some(format!(
            "commgauge report {records} AGAIN.jsonl{}{base} -o report.html  # after the same run once more: {}",
            machine.unwrap_or_default(),
            needed(rows())
        )),
        3 | 7 if has_warnings => Some("commgauge doctor  # what disturbs runs on this machine, and the fix".to_owned()),
        3 | 7 if input.verdict.is_some_and(|verdict| verdict.coverage.rows_judged == 0) => Some(format!(
            "commgauge gate --plan {}{} --nodes N  # what is judged of it, before it is run",
            judged_suite(header),
            machine.unwrap_or_default()
        )),
        0 if input.verdict.is_none() && input.comparison.is_none() && !can_be_judged(header) => {
            Some(format!("{}  # rows that a machine file judges", next_run(header, NextRun::Qualify, None)))
        }
        0 if input.verdict.is_none() && input.comparison.is_none() => Some(format!(
            "commgauge judge {records} --machine FILE --page report.html  # against what is expected of it"
        )),
        _ => None,
    }
}

/// Whether a run ended before its time, so that it can be resumed.
fn can_go_on(run: &HtmlRun) -> bool {
    let ended = run.view.completion.end.as_ref().map(|end| end.status);
    let is_ours = !run.view.header.command_line.is_empty();
    is_ours
        && !run.view.completion.running
        && matches!(ended, None | Some(EndStatus::Interrupted | EndStatus::OutOfTime))
}

/// Whether a machine file may expect something of a run: of the shipped suites only those that qualify.
fn can_be_judged(header: &Header) -> bool {
    let is_shipped = Shipped::Suite.embedded(&header.suite.name).is_some();
    !is_shipped || ["qualify-gpu", "qualify-host"].contains(&&*header.suite.name)
}

/// How many replicates would decide what is not decided, as far as any number would.
fn needed<'a>(rows: impl Iterator<Item = &'a Row>) -> String {
    let open: Vec<&Row> = rows.filter(|row| row.decision == Some(Decision::Inconclusive)).collect();
    let more: Vec<u32> = open.iter().filter_map(|row| row.replicates_more).collect();
    let most = more.iter().max().copied().unwrap_or_default();
    match open.len() == more.len() {
        true => format!("{most} more replicates would decide every row"),
        false => format!("{most} more replicates would decide {} of {} rows", more.len(), open.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use commgauge_analysis::verdict::testing::{lines, loaded};
    use commgauge_analysis::verdict::{CompareRule, compare};

    #[test]
    fn replicates_are_not_promised_to_decide_what_no_number_of_them_would() {
        let run = |id: &str| [loaded(&format!("{id}.jsonl"), lines(id, &[vec![100.0; 6], vec![200.0; 6]]))];
        let rule = CompareRule { false_alarm_level: 0.05, relevant_slowdown: 0.03, allowed: Vec::new() };
        let mut verdict = compare(&run("a"), &run("b"), &rule).unwrap();
        let mut said = |more: [Option<u32>; 2]| {
            for (row, more) in verdict.rows.iter_mut().zip(more) {
                (row.decision, row.replicates_more) = (Some(Decision::Inconclusive), more);
            }
            needed(verdict.rows.iter())
        };
        assert_eq!(said([Some(2), Some(5)]), "5 more replicates would decide every row");
        assert_eq!(said([Some(2), None]), "2 more replicates would decide 1 of 2 rows");
    }
}
