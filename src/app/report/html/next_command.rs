//! The command to run next: what confirms a suspect, completes a run, or decides what is not decided.

use super::input::{HtmlInput, HtmlRun};
use crate::launch::quote;
use commgauge_analysis::verdict::{Decision, Row};
use commgauge_model::record::line::EndStatus;

/// Hosts that are named in a command; more are better in a file.
const MAX_HOSTS: usize = 16;

/// The command with a comment on what it is for; `None` where there is nothing to do.
pub(super) fn next_command(input: &HtmlInput, code: i32) -> Option<String> {
    let first = input.runs.first()?;
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
        1 if has(Decision::Fail) && !searched && hosts(first).len() > 1 => {
            let hosts = hosts(first);
            let hosts = match hosts.len() {
                ..=MAX_HOSTS => format!("--hosts {}", quote(&hosts.join(","))),
                _ => "--hostfile HOSTS".to_owned(),
            };
            let ranks = first.view.header.world_size;
            Some(format!("commgauge run --pairs -n {ranks} {hosts}  # every two ranks: is it a node or a link?"))
        }
        1 => Some(format!("commgauge locate {records}  # what was searched, and what the data cannot show")),
        3 if rows().any(|row| row.replicates_more.is_some()) => Some(format!(
            "commgauge report {records} AGAIN.jsonl{}{base} -o report.html  # after the same run once more: {}",
            machine.unwrap_or_default(),
            needed(rows())
        )),
        3 | 7 if has_warnings => Some("commgauge doctor  # what disturbs runs on this machine, and the fix".to_owned()),
        3 | 7 if input.verdict.is_some_and(|verdict| verdict.coverage.rows_judged == 0) => Some(format!(
            "commgauge gate --plan qualify-gpu{} --nodes N  # what is judged of it, before it is run",
            machine.unwrap_or_default()
        )),
        0 if input.verdict.is_none() && input.comparison.is_none() => Some(format!(
            "commgauge judge {records} --machine FILE --page report.html  # against what is expected of it"
        )),
        _ => None,
    }
}

/// Whether a run ended before its time, so that it can be resumed.
fn can_go_on(run: &HtmlRun) -> bool {
    let ended = run.view.end.as_ref().map(|end| end.status);
    let is_ours = !run.view.header.command_line.is_empty();
    is_ours && !run.view.running && matches!(ended, None | Some(EndStatus::Interrupted | EndStatus::OutOfTime))
}

/// Hosts of a run with their ranks, `node-1:8`.
fn hosts(run: &HtmlRun) -> Vec<String> {
    let mut hosts: Vec<(&str, u64)> = Vec::new();
    for entry in &run.view.header.ranks {
        let ranks = u64::from(entry.ranks);
        match hosts.iter_mut().find(|(host, _)| *host == entry.host) {
            Some((_, known)) => *known += ranks,
            None => hosts.push((&entry.host, ranks)),
        }
    }
    hosts.into_iter().map(|(host, ranks)| format!("{host}:{ranks}")).collect()
}

fn needed<'a>(rows: impl Iterator<Item = &'a Row>) -> String {
    match rows.filter_map(|row| row.replicates_more).max() {
        Some(more) => format!("{more} more replicates would decide every row"),
        None => String::new(),
    }
}
