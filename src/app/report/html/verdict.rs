//! The summary at the top: results of the run, of the expectations and of the comparison, and the coverage.

use super::HtmlInput;
use super::page::{Badge, Block, Table, folded};
use crate::report::verdict::{coverage, value};
use crate::report::view::View;
use commgauge_analysis::verdict::locate::Suspects;
use commgauge_analysis::verdict::{Decision, Verdict};
use commgauge_base::units::{Bytes, counted, three_digits};

/// The section.
pub(super) fn blocks(input: &HtmlInput) -> Vec<Block> {
    let mut badges: Vec<Badge> = vec![gated(input.verdict)];
    badges.extend(input.comparison.map(|verdict| badge("Slower than the base?", verdict)));
    badges.extend(input.suspects.as_ref().ok().map(|suspects| suspects_badge(suspects)));
    badges.extend(input.runs.iter().map(|run| measured(&run.name, &run.view, input.runs.len() > 1)));
    let mut blocks = vec![Block::Badges(badges)];
    for verdict in input.verdict.iter().chain(&input.comparison) {
        blocks.push(Block::list(coverage(verdict).into_iter().chain([false_alarms(verdict)])));
        if !verdict.troubles.is_empty() {
            blocks.push(Block::heading("Warnings about the records"));
            let troubles = verdict.troubles.iter();
            blocks.push(Block::list(
                troubles.map(|trouble| format!("{} (exit code {})", trouble.text, trouble.exit_code)),
            ));
        }
    }
    if let Some(verdict) = input.verdict {
        let judged_rows = judged_rows(verdict);
        if !judged_rows.is_empty() {
            blocks.push(Block::Table(judged_rows));
        }
    }
    let judging: Vec<&Verdict> = input.verdict.into_iter().chain(input.comparison).collect();
    if !judging.is_empty() {
        let rules = judging.iter().flat_map(|verdict| verdict.rule.iter().cloned());
        let tried = match input.selftest {
            Some(tried) => tried.summary(),
            None => "how often these rules err was not measured for this page: `commgauge selftest --format json > selftest.json` \
                     measures it, and --selftest selftest.json shows it here"
                .to_owned(),
        };
        blocks.extend(folded(
            "How it was decided, and how often such rules err",
            vec![Block::list(rules.chain([tried]))],
        ));
    }
    if input.verdict.is_none() {
        blocks.push(Block::absent(
            "Nothing is expected of this machine here: no machine file was given, so no row could pass or fail. `commgauge report \
             RECORD --machine FILE -o report.html` holds the rows against a machine file's expectations.",
        ));
    }
    let pairs = input.runs.iter().filter_map(|run| Some(run.view.pairs.as_ref()?.sentence()));
    let sentences: Vec<String> = input.runs.iter().map(|run| run.view.summary()).chain(pairs).collect();
    blocks.push(Block::list(sentences));
    blocks
}

/// Upper bound on the false alarms of the verdict on a healthy machine.
fn false_alarms(verdict: &Verdict) -> String {
    let budget = &verdict.false_alarms;
    let chance = three_digits(budget.level * 100.0);
    match budget.over_all_rows {
        _ if budget.rows == 0 => "false-alarm budget: none, because no row was judged".to_owned(),
        true => format!(
            "false-alarm budget: a chance of {chance} % of any false alarm over all {} together",
            counted(budget.rows as usize, "row")
        ),
        false => format!(
            "false-alarm budget: a chance of {chance} % on each of {}, so at most {} false alarms are to be expected",
            counted(budget.rows as usize, "judged row"),
            three_digits(budget.expected_at_most)
        ),
    }
}

fn gated(verdict: Option<&Verdict>) -> Badge {
    match verdict {
        Some(verdict) => badge("Does the machine reach what is expected?", verdict),
        None => Badge {
            tone: "none",
            question: "Does the machine reach what is expected?".into(),
            answer: "NOT JUDGED".into(),
            detail: "no machine file was given".into(),
        },
    }
}

/// Result of the search for suspects. Finding none does not prove that there is none.
fn suspects_badge(suspects: &Suspects) -> Badge {
    let (tone, answer) = match (suspects.suspects.len(), suspects.exit_code) {
        (0, 0) => ("none", "NO SUSPECTS".to_owned()),
        (0, _) => ("unsure", "UNDECIDED".to_owned()),
        (count, _) => ("bad", counted(count, "suspect").to_uppercase()),
    };
    let full = suspects.answer.as_str();
    let detail = full.strip_prefix("undecided: ").unwrap_or(full).into();
    Badge { tone, question: "Is a node, link or rank to blame?".into(), answer: answer.into(), detail }
}

fn badge(question: &str, verdict: &Verdict) -> Badge {
    let c = &verdict.coverage;
    let (passed, failed, unsure) = (c.rows_passed, c.rows_failed, c.rows_inconclusive);
    Badge {
        tone: tone(Some(verdict.decision)),
        question: question.into(),
        answer: verdict.decision.name().to_uppercase().into(),
        detail: format!(
            "{} of {} rows judged: {passed} passed, {failed} failed, {unsure} inconclusive (exit code {})",
            c.rows_judged, c.rows, verdict.exit_code
        )
        .into(),
    }
}

/// Colour of a decision, which is also always written as text.
pub(super) fn tone(decision: Option<Decision>) -> &'static str {
    match decision {
        Some(Decision::Pass) => "good",
        Some(Decision::Fail | Decision::Error) => "bad",
        Some(Decision::Inconclusive) => "unsure",
        None => "none",
    }
}

fn measured(name: &str, view: &View, several: bool) -> Badge {
    let code = view.exit_code();
    let (tone, answer) = match code {
        0 => ("good", "COMPLETE"),
        4 => ("bad", "WRONG DATA"),
        5 | 6 => ("bad", "FAILED"),
        _ if view.running => ("unsure", "STILL RUNNING"),
        _ => ("unsure", "INCOMPLETE"),
    };
    let question =
        if several { format!("Was everything measured? {name}") } else { "Was everything measured?".to_owned() };
    let short = view.rows.iter().filter(|row| row.is_incomplete()).count();
    let lacking = if short > 0 { format!("; {} without all replicates", counted(short, "row")) } else { String::new() };
    let detail = format!("{}{lacking} (exit code {code})", view.summary());
    Badge { tone, question: question.into(), answer: answer.into(), detail: detail.into() }
}

fn judged_rows(verdict: &Verdict) -> Table {
    let machine = verdict.machine.as_deref().unwrap_or("no machine file");
    let columns = [
        ("decision", false),
        ("row", false),
        ("bytes", true),
        ("median", true),
        ("bounds", true),
        ("limit", true),
        ("replicates", true),
        ("why", false),
        ("limit is from", false),
    ];
    let mut table = Table::new(format!("Judged rows, against {machine}"), &columns);
    let rows = || verdict.rows.iter().filter_map(|row| Some((row, row.decision?)));
    let mut ordered: Vec<_> = rows().collect();
    // The bad ones first; among equals the order of the plan.
    ordered.sort_by_key(|(_, decision)| std::cmp::Reverse(*decision));
    for (row, decision) in ordered {
        let limit = row.against_limit.as_ref();
        let shown = |number: Option<f64>| {
            limit.zip(number).map_or_else(|| "not available".to_owned(), |(limit, number)| value(limit.metric, number))
        };
        let bounds = limit.and_then(|limit| limit.lower_bound.zip(limit.upper_bound));
        let cells = vec![
            decision.name().to_owned(),
            row.name.clone(),
            Bytes(row.bytes_total.0).to_string(),
            shown(limit.and_then(|limit| limit.median)),
            bounds.map_or_else(
                || "too few replicates".to_owned(),
                |(low, high)| format!("{} to {}", shown(Some(low)), shown(Some(high))),
            ),
            shown(limit.map(|limit| limit.limit)),
            row.replicates.to_string(),
            row.reasons.join("; "),
            limit.map_or_else(String::new, |limit| format!("{}, {}", limit.source, limit.date)),
        ];
        let tone = match decision {
            Decision::Pass => "",
            other => tone(Some(other)),
        };
        table.row_toned(tone, cells);
    }
    let not_judged = verdict.coverage.rows_not_judged as usize;
    let note = format!("{} judged by nothing: the machine file expects nothing of them", counted(not_judged, "row"));
    let capped = table.capped("`commgauge gate --format json` has every row");
    if not_judged > 0 { capped.noted(note) } else { capped }
}
