//! The first screen: the answer, the rows that failed with what was measured and what was required, who is suspected, and the
//! command to run next. The sections below have all of it in full.

use super::page::{HtmlInput, HtmlRun, without_many_passes};
use super::{cost, curves, pairs};
use crate::launch::quote;
use crate::report::document::{Badge, Block, Fact, Fields, Tone, optional, signed_percent};
use crate::report::judged::Answered;
use crate::report::locate::{self, by};
use crate::report::row::{Status, in_words};
use crate::report::screen::{self, ending};
use crate::report::template::lines;
use crate::report::verdict::{VerdictLook, coverage, headline, problems, rows_on_page, tone, value};
use crate::report::view::{View, peaks};
use commgauge_base::units::{Seconds, counted};
use commgauge_base::writing::grouped;
use commgauge_judge::verdict::locate::Suspects;
use commgauge_judge::verdict::{Decision, Metric, Row as VerdictRow, Verdict, is_cleared, located_code, most_severe};
use commgauge_model::record::line::{CaseFacts, EndStatus};
use minijinja::value::Serde;
use std::collections::HashMap;

/// Rows, suspects and warnings each on the first screen; the sections below have all.
const MAX_ROWS: usize = 5;

const MAX_SENTENCES: usize = 3;

/// The answer of a page.
pub(super) struct Answer {
    /// In a few words, such as `FAIL: 3 rows failed, 1 suspect`.
    pub words: String,
    /// The heading of the first section.
    pub heading: String,
    /// The section.
    pub blocks: Vec<Block>,
}

/// A row that did not pass.
struct NotPassed {
    name: String,
    measured: String,
    threshold: String,
    off_by: String,
    /// How bad it is, the greater the worse; only for the order.
    badness: f64,
    reasons: Vec<String>,
    tone: Tone,
}

impl Answer {
    /// The answer to the questions of a page.
    pub fn of(input: &HtmlInput) -> Answer {
        let code = overall(input);
        let mut failed = failed(input);
        let undecided = if failed.is_empty() { judged(input, Decision::Inconclusive) } else { Vec::new() };
        let warnings: Vec<&String> = input.runs.iter().flat_map(|run| run.view.serious_warnings()).collect();
        let suspects = input.suspects.as_ref().map_or(0, |suspects| suspects.suspects.len());
        let counts = [(failed.len(), "row"), (suspects, "suspect"), (warnings.len(), "warning")];
        let counts = counts.into_iter().filter(|(count, _)| *count > 0).map(|(count, what)| match what {
            "row" => format!("{} failed", counted(count, what)),
            _ => counted(count, what),
        });
        let counts: Vec<String> = counts.collect();
        let word = word(input, code);
        let words = if counts.is_empty() { word.to_owned() } else { format!("{word}: {}", counts.join(", ")) };
        // Every run has some remark; amber is for what makes all of its times doubtful.
        let is_doubtful = input.runs.iter().any(|run| run.view.machine_warnings().next().is_some());
        let tone = match code {
            0 if is_doubtful => Tone::Unsure,
            0 if input.verdict.is_none() && input.comparison.is_none() => Tone::Plain,
            0 => Tone::Good,
            3 | 7 if failed.is_empty() => Tone::Unsure,
            _ => Tone::Bad,
        };
        let lead = if failed.is_empty() && undecided.is_empty() { lead(input) } else { Vec::new() };
        let heading = match code {
            0 => lead_heading(input).unwrap_or_else(|| "Nothing failed".to_owned()),
            3 | 7 if failed.is_empty() => "What is not decided, and why".to_owned(),
            _ => "What failed, and why".to_owned(),
        };
        failed.extend(undecided);
        let rows_of_runs = input.runs.iter().flat_map(|run| &run.view.rows);
        let cases: HashMap<&str, &CaseFacts> = rows_of_runs.map(|row| (row.facts.name.as_str(), &row.facts)).collect();
        for row in &mut failed {
            row.name = cases.get(row.name.as_str()).map_or_else(|| row.name.clone(), |facts| in_words(facts));
        }
        let badge = Badge { tone, question: "Overall".to_owned(), answer: words.clone(), detail: detail(input) };
        let told = rows(&failed).into_iter().chain(facts(input, &failed, &warnings));
        let mut blocks: Vec<Block> = std::iter::once(Block::Badges(vec![badge])).chain(told).collect();
        if let Some(command) = next_command(input, code) {
            blocks.extend([Block::text("Run next:"), Block::Command(command)]);
        }
        let place = if suspects > 0 { blocks.len() } else { 1 };
        drop(blocks.splice(place..place, lead));
        Answer { words, heading, blocks }
    }
}

/// Whether the page begins with the step of a model.
fn shows_a_step(run: &HtmlRun) -> bool {
    let replays = &run.view.replays;
    run.view.ranking.is_some() || !replays.is_empty() || (run.view.pairs.is_none() && !run.view.steps.is_empty())
}

/// What the run was made for: what a step costs, the pairs of ranks, or all curves.
fn lead(input: &HtmlInput) -> Vec<Block> {
    let Some(run) = input.runs.first() else { return Vec::new() };
    let mut blocks = match (input.comparison, &run.view.pairs) {
        (Some(comparison), _) => vec![cost::slowdown(comparison)],
        (None, _) if shows_a_step(run) => screen::lead(&run.view),
        (None, Some(_)) => pairs::worst(run, input.verdict),
        (None, None) => curves::overview(input).into_iter().collect(),
    };
    blocks.extend(peaks(&run.view.rows).map(|peaks| Block::list(peaks.split("; "))));
    blocks
}

/// The same as a heading.
fn lead_heading(input: &HtmlInput) -> Option<String> {
    let run = input.runs.first()?;
    match (input.comparison, &run.view.pairs) {
        (Some(_), _) => Some("How each row compares with the base".to_owned()),
        (None, _) if !run.view.replays.is_empty() => Some("What each rank does in a replay".to_owned()),
        (None, _) if shows_a_step(run) => screen::lead_title(&run.view),
        (None, Some(_)) => Some("Which pairs of ranks are slow".to_owned()),
        (None, None) => (!run.view.rows.is_empty()).then(|| "Bandwidth and latency by size".to_owned()),
    }
}

/// The exit code of everything together.
fn overall(input: &HtmlInput) -> i32 {
    let verdicts = input.verdict.iter().chain(&input.comparison).map(|verdict| verdict.exit_code);
    let suspects = input.suspects.as_ref().ok().map(|suspects| located_code(suspects, input.verdict));
    most_severe(verdicts.chain(suspects).chain(input.runs.iter().map(|run| run.view.exit_code())))
}

fn word(input: &HtmlInput, code: i32) -> &'static str {
    let is_judged = input.verdict.is_some() || input.comparison.is_some();
    let failed = input.verdict.iter().chain(&input.comparison).any(|verdict| verdict.exit_code == 1);
    match code {
        0 if is_judged => "PASS",
        0 => "COMPLETE, NOT JUDGED",
        1 if failed => "FAIL",
        1 => "SUSPECT FOUND",
        3 => "INCONCLUSIVE",
        4 => "WRONG DATA",
        5 | 6 => "RUN FAILED",
        _ if input.runs.iter().any(|run| run.view.completion.running) => "STILL RUNNING",
        _ => "INCOMPLETE",
    }
}

/// What the answer rests on.
fn detail(input: &HtmlInput) -> String {
    let judged = |verdict: &&Verdict| {
        let c = &verdict.coverage;
        let (passed, failed, unsure) = (c.rows_passed, c.rows_failed, c.rows_inconclusive);
        let against = if verdict.question.name() == "gate" { "what is expected" } else { "the base" };
        let passed = counted(passed as usize, "row");
        format!("against {against}: {passed} passed, {failed} failed, {unsure} inconclusive")
    };
    let verdicts = input.verdict.iter().chain(&input.comparison).map(judged);
    let runs = input.runs.iter().map(|run| run.view.summary());
    verdicts.chain(runs).collect::<Vec<_>>().join("; ")
}

/// Rows with wrong data first, then those that failed, then those that missed a threshold by most.
fn failed(input: &HtmlInput) -> Vec<NotPassed> {
    let rows = input.runs.iter().flat_map(|run| &run.view.rows);
    let broken = rows.filter_map(|row| {
        let badness = match row.status {
            Status::Wrong { .. } => f64::INFINITY,
            Status::Failed(_) => f64::MAX,
            _ => return None,
        };
        Some(NotPassed {
            name: row.facts.name.clone(),
            measured: row.status.label().to_owned(),
            threshold: optional(None::<String>),
            off_by: optional(None::<String>),
            badness,
            reasons: row.status.reason().map(str::to_owned).into_iter().collect(),
            tone: Tone::Bad,
        })
    });
    let mut failed: Vec<NotPassed> = broken.collect();
    for one in [judged(input, Decision::Error), judged(input, Decision::Fail)].into_iter().flatten() {
        // Of a row that is broken the verdict says it once more.
        if !failed.iter().any(|known| known.name == one.name && known.badness >= f64::MAX) {
            failed.push(one);
        }
    }
    failed.sort_by(|a, b| b.badness.total_cmp(&a.badness));
    failed
}

fn judged(input: &HtmlInput, decision: Decision) -> Vec<NotPassed> {
    let rows = input.verdict.iter().chain(&input.comparison).flat_map(|verdict| &verdict.rows);
    let rows = rows.filter(|row| row.decision == Some(decision));
    let of_row = rows.map(|row| {
        let (measured, threshold, off_by) = deviation(row);
        NotPassed {
            name: row.full_name().into_owned(),
            measured: optional(measured),
            threshold: optional(threshold),
            off_by: optional(off_by.map(signed_percent)),
            badness: off_by.map_or(0.0, f64::abs),
            reasons: row.reasons.clone(),
            tone: tone(row.decision),
        }
    });
    of_row.collect()
}

/// What was measured, what was expected, and by what share they differ.
fn deviation(row: &VerdictRow) -> (Option<String>, Option<String>, Option<f64>) {
    match (&row.against_limit, &row.against_base) {
        (Some(limit), _) => {
            let sign = if limit.metric == Metric::LatencySeconds { "≤" } else { "≥" };
            let shown = |number| value(limit.metric, number);
            let off_by = limit.median.filter(|_| limit.limit > 0.0).map(|median| median / limit.limit - 1.0);
            (limit.median.map(shown), Some(format!("{sign} {}", shown(limit.limit))), off_by)
        }
        (None, Some(base)) => {
            let measured = base.latency_seconds_new.map(|seconds| Seconds(seconds).to_string());
            let threshold = base.latency_seconds_base.map(|seconds| format!("{} in the base", Seconds(seconds)));
            (measured, threshold, base.slowdown)
        }
        (None, None) => (None, None, None),
    }
}

fn rows(rows: &[NotPassed]) -> Option<Block> {
    let first = rows.first()?;
    let (title, difference) = match first.tone {
        Tone::Bad => ("Rows that failed, the worst first", "off by"),
        _ => ("Rows that are not decided", "difference"),
    };
    let table = Fields::of(rows.iter().take(MAX_ROWS))
        .left("case", 0, |row| row.name.clone())
        .right("measured", 0, |row| row.measured.clone())
        .right("threshold", 0, |row| row.threshold.clone())
        .right(difference, 0, |row| row.off_by.clone())
        .toned(title, |row| row.tone);
    Some(Block::Table(match rows.len().saturating_sub(MAX_ROWS) {
        0 => table,
        more => table.noted(format!("And {more} more: see the sections below, where every row can be searched for.")),
    }))
}

/// Why, who, and what to be careful about.
fn facts(input: &HtmlInput, rows: &[NotPassed], warnings: &[&String]) -> Option<Block> {
    let problems = input.verdict.iter().chain(&input.comparison).flat_map(|verdict| &verdict.problems);
    // What changes no exit code is among the warnings of the run.
    let problems = problems.filter(|problem| problem.exit_code != 0);
    let ends = input.runs.iter().filter_map(|run| ending(&run.view));
    let mut why: Vec<String> = ends.chain(problems.map(|problem| problem.text.clone())).chain(reasons(rows)).collect();
    why.dedup();
    // A warning makes rows unreliable, which says it once more.
    why.retain(|why| !warnings.iter().any(|warning| why.ends_with(warning.as_str())));
    // A search that had something to search in and still cannot tell.
    let counts = |found: &&&Suspects| found.suspects.is_empty() && located_code(found, input.verdict) != 0;
    let searched = input.suspects.as_ref().ok().filter(counts);
    why.extend(searched.map(|found| found.answer.clone()));
    let suspects = input.suspects.as_ref().ok().into_iter().flat_map(|suspects| &suspects.suspects);
    let suspects = suspects.map(|suspect| {
        let when = if suspect.intermittent { "now and then" } else { "always" };
        let evidence = suspect.evidence.first().map_or_else(String::new, |evidence| format!("; {evidence}"));
        format!("{}, by {}, {when}{evidence}", suspect.name, by(suspect))
    });
    let warnings = warnings.iter().map(|warning| (*warning).clone()).collect();
    let facts = [said("why", why), said("suspect", suspects.collect()), said("warning", warnings)].concat();
    (!facts.is_empty()).then_some(Block::Facts(facts))
}

/// The first of these sentences, and how many there are more.
fn said(label: &str, sentences: Vec<String>) -> Vec<Fact> {
    let more = sentences.len().saturating_sub(MAX_SENTENCES);
    let more = (more > 0).then(|| format!("and {more} more, below"));
    let first = sentences.into_iter().take(MAX_SENTENCES).chain(more);
    first.enumerate().map(|(index, text)| Fact::new(if index == 0 { label } else { "" }, text)).collect()
}

/// The reasons of the rows, each once with how many rows it is about.
fn reasons(rows: &[NotPassed]) -> Vec<String> {
    let reasons = rows.iter().flat_map(|row| row.reasons.iter().map(move |reason| (reason, &row.name)));
    let sentence = |(reason, names): (&String, Vec<&String>)| match names.len() {
        1 => format!("{}: {reason}", names[0]),
        all if all == rows.len() => reason.clone(),
        some => format!("{reason} ({} of {} rows)", some, rows.len()),
    };
    grouped(reasons).into_iter().map(sentence).collect()
}

/// The command to run next with a comment on what it is for; `None` where there is nothing to do.
fn next_command(input: &HtmlInput, exit_code: i32) -> Option<String> {
    let suspects = input.suspects.as_ref().ok().copied();
    let is_suspect = suspects.is_some_and(|suspects| !suspects.suspects.is_empty());
    if let Some(unfinished) = input.runs.iter().find(|run| !is_suspect && can_resume(run)) {
        return Some(format!("commgauge run --resume {}  # what is missing", quote(&unfinished.name)));
    }
    let names = |runs: &[HtmlRun]| runs.iter().map(|run| quote(&run.name)).collect();
    let answered = Answered {
        header: &input.runs.first()?.view.header,
        records: names(input.runs),
        machine: input.machine.clone(),
        base: names(input.base),
        verdicts: input.verdict.into_iter().chain(input.comparison).collect(),
        suspects,
        disturbed: input.runs.iter().any(|run| run.view.serious_warnings().next().is_some()),
        exit_code,
    };
    answered.next()
}

/// Whether a run ended before its time, so that it can be resumed.
fn can_resume(run: &HtmlRun) -> bool {
    let ended = run.view.completion.end.as_ref().map(|end| end.status);
    let is_ours = !run.view.header.command_line.is_empty();
    is_ours
        && !run.view.completion.running
        && matches!(ended, None | Some(EndStatus::Interrupted | EndStatus::OutOfTime))
}

// Suspects and next steps; without a search for suspects, the findings of pairs and arrivals alone.

/// Whether there is a suspect, and how many findings and warnings there are.
pub(super) fn suspects_in_short(input: &HtmlInput, suspects: Option<&Suspects>) -> String {
    let of_runs = |of: fn(&View) -> usize| input.runs.iter().map(|run| of(&run.view)).sum::<usize>();
    let is_clear = |found: &Suspects| found.exit_code == 0 || is_cleared(found, input.verdict);
    let answer = suspects.map_or("no search", |found| if is_clear(found) { "no suspects" } else { "undecided" });
    let findings = counted(of_runs(|view| view.findings.all.len()), "finding");
    format!("{answer}, {findings}, {}", counted(of_runs(|view| view.warnings.len()), "warning"))
}

/// The section.
pub(super) fn suspects_blocks(input: &HtmlInput) -> Vec<Block> {
    let mut blocks = match &input.suspects {
        Ok(suspects) => {
            let located = locate::table(suspects, "Suspects, the strongest evidence first")
                .into_iter()
                .chain(locate::located(suspects, VerdictLook::WHOLE));
            std::iter::once(Block::text(&suspects.answer)).chain(located).collect()
        }
        Err(reason) => vec![Block::absent(format!("No search for suspects was possible: {reason}"))],
    };
    let findings: Vec<&String> = input.runs.iter().flat_map(|run| &run.view.findings.all).collect();
    if !findings.is_empty() {
        blocks.push(Block::heading("What the numbers say by themselves"));
        blocks.push(Block::list(findings));
    }
    let warnings: Vec<&String> = input.runs.iter().flat_map(|run| &run.view.warnings).collect();
    blocks.push(Block::heading("Warnings"));
    blocks.push(match warnings.is_empty() {
        true => Block::text("None."),
        false => Block::list(warnings),
    });
    blocks
}

// The summary at the top: results of the run, of the expectations and of the comparison, and the coverage.

/// The section.
pub(super) fn verdict_blocks(input: &HtmlInput) -> Vec<Block> {
    let mut blocks = Vec::new();
    for verdict in input.verdict.iter().chain(&input.comparison) {
        let judged = std::iter::once(headline(verdict));
        blocks.push(Block::list(judged.chain(coverage(verdict)).chain(false_alarms(verdict))));
        if !verdict.problems.is_empty() {
            blocks.push(Block::heading("Warnings about the records"));
            blocks.push(problems(&verdict.problems));
        }
    }
    if let Some(verdict) = input.verdict {
        let judged: Vec<&VerdictRow> = verdict.rows.iter().filter(|row| row.decision.is_some()).collect();
        let machine = verdict.machine.as_deref().unwrap_or("no machine file");
        if !judged.is_empty() {
            let title = format!("Judged rows, against {machine}");
            let (shown, note) = without_many_passes(&judged);
            blocks
                .push(Block::Table(rows_on_page(verdict.question, &title, &shown, &note).without_columns_that_agree()));
        }
    }
    let judging: Vec<&Verdict> = input.verdict.into_iter().chain(input.comparison).collect();
    if !judging.is_empty() {
        let rules = judging.iter().flat_map(|verdict| verdict.rule.iter().cloned());
        let tried = match input.selftest {
            Some(tried) => tried.summary(),
            None => "how often these rules err was not measured for this page: `commgauge expect selftest --format json > selftest.json` \
                     measures it, and --selftest selftest.json shows it here"
                .to_owned(),
        };
        let rules = vec![Block::list(rules.chain([tried]))];
        blocks.push(Block::folded("How it was decided, and how often such rules err", rules));
    }
    blocks
}

/// The budget of false alarms, as a sentence.
fn false_alarms(verdict: &Verdict) -> Vec<String> {
    lines("false_alarms.txt", include_str!("../templates/false_alarms.txt"), Serde(&verdict.false_alarms).into())
}
