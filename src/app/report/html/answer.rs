//! The first screen: the answer, the rows that failed with what was measured and what was required, who is suspected, and the
//! command to run next. Everything in it stands below in full.

use super::input::HtmlInput;
use super::next_command::next_command;
use crate::report::document::{Badge, Block, Column, Fact, Row, Table, Tone, optional, signed_percent};
use crate::report::locate::by;
use crate::report::screen::ending;
use crate::report::status::Status;
use crate::report::verdict::{tone, value};
use commgauge_analysis::verdict::locate::Suspects;
use commgauge_analysis::verdict::{AgainstBase, AgainstLimit, Decision, Metric, Verdict, located_code, most_severe};
use commgauge_base::units::{Bytes, Seconds, counted};

/// Rows, suspects and warnings each on the first screen; the sections below have all.
const MAX_ROWS: usize = 5;
const MAX_SENTENCES: usize = 3;

/// The answer of a page.
pub(super) struct Answer {
    /// In a few words, such as `FAIL: 3 rows failed, 1 suspect`.
    pub words: String,
    /// The heading of the first section.
    pub heading: &'static str,
    /// The section.
    pub blocks: Vec<Block>,
}

/// A row that did not pass.
struct NotPassed {
    name: String,
    bytes: Option<Bytes>,
    measured: String,
    threshold: String,
    off_by: String,
    /// How bad it is, the greater the worse; only for the order.
    badness: f64,
    reasons: Vec<String>,
    tone: Tone,
}

impl NotPassed {
    /// The name without its number of bytes, for which there is a column.
    fn call(&self) -> String {
        let bytes = self.bytes.map(|bytes| bytes.0.to_string());
        let parts = self.name.split('/').filter(|part| bytes.as_deref() != Some(*part));
        parts.collect::<Vec<_>>().join("/")
    }
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
        let tone = match code {
            0 if !warnings.is_empty() => Tone::Unsure,
            0 if input.verdict.is_none() && input.comparison.is_none() => Tone::Plain,
            0 => Tone::Good,
            3 | 7 if failed.is_empty() => Tone::Unsure,
            _ => Tone::Bad,
        };
        let heading = match code {
            0 => "Nothing failed",
            3 | 7 if failed.is_empty() => "What is not decided, and why",
            _ => "What failed, and why",
        };
        failed.extend(undecided);
        let badge = Badge { tone, question: "Overall".to_owned(), answer: words.clone(), detail: detail(input) };
        let mut blocks = vec![Block::Badges(vec![badge])];
        blocks.extend(rows(&failed));
        blocks.extend(facts(input, &failed, &warnings));
        if let Some(command) = next_command(input, code) {
            blocks.extend([Block::text("Run next:"), Block::Command(command)]);
        }
        Answer { words, heading, blocks }
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
            bytes: Some(row.facts.bytes_total),
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
        let Deviation { measured, threshold, off_by } = match (&row.against_limit, &row.against_base) {
            (Some(limit), _) => Deviation::from_limit(limit),
            (None, Some(base)) => Deviation::from_base(base),
            (None, None) => Deviation::default(),
        };
        NotPassed {
            name: row.full_name().into_owned(),
            bytes: row.subject.bytes(),
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

/// What was measured, and what was required.
#[derive(Default)]
struct Deviation {
    measured: Option<String>,
    threshold: Option<String>,
    /// Share by which the first is more than the second.
    off_by: Option<f64>,
}

impl Deviation {
    fn from_limit(limit: &AgainstLimit) -> Deviation {
        let sign = if limit.metric == Metric::LatencySeconds { "≤" } else { "≥" };
        let shown = |number| value(limit.metric, number);
        Deviation {
            measured: limit.median.map(shown),
            threshold: Some(format!("{sign} {}", shown(limit.limit))),
            off_by: limit.median.filter(|_| limit.limit > 0.0).map(|median| median / limit.limit - 1.0),
        }
    }

    fn from_base(base: &AgainstBase) -> Deviation {
        Deviation {
            measured: base.latency_seconds_new.map(|seconds| Seconds(seconds).to_string()),
            threshold: base.latency_seconds_base.map(|seconds| format!("{} in the base", Seconds(seconds))),
            off_by: base.slowdown,
        }
    }
}

fn rows(rows: &[NotPassed]) -> Option<Block> {
    let first = rows.first()?;
    let (title, difference) = match first.tone {
        Tone::Bad => ("Rows that failed, the worst first", "off by"),
        _ => ("Rows that are not decided", "difference"),
    };
    let columns = [
        Column::left("row", 0),
        Column::right("size", 0),
        Column::right("measured", 0),
        Column::right("threshold", 0),
        Column::right(difference, 0),
    ];
    let cells = |row: &NotPassed| {
        let numbers = [&row.measured, &row.threshold, &row.off_by].map(Clone::clone);
        Row::toned(row.tone, [row.call(), optional(row.bytes)].into_iter().chain(numbers).collect())
    };
    let table = Table::new(title, &columns, rows.iter().take(MAX_ROWS).map(cells));
    Some(Block::Table(match rows.len().saturating_sub(MAX_ROWS) {
        0 => table,
        more => table.noted(format!("And {more} more: see the sections below, where every row can be searched for.")),
    }))
}

/// Why, who, and what to be careful about.
fn facts(input: &HtmlInput, rows: &[NotPassed], warnings: &[&String]) -> Option<Block> {
    let troubles = input.verdict.iter().chain(&input.comparison).flat_map(|verdict| &verdict.troubles);
    // What changes no exit code is among the warnings of the run.
    let troubles = troubles.filter(|trouble| trouble.exit_code != 0);
    let ends = input.runs.iter().filter_map(|run| ending(&run.view));
    let mut why: Vec<String> = ends.chain(troubles.map(|trouble| trouble.text.clone())).chain(reasons(rows)).collect();
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
    let mut reasons: Vec<(&String, usize, &str)> = Vec::new();
    for row in rows {
        for reason in &row.reasons {
            match reasons.iter_mut().find(|(known, ..)| *known == reason) {
                Some((_, count, _)) => *count += 1,
                None => reasons.push((reason, 1, &row.name)),
            }
        }
    }
    let sentence = |(reason, count, name): (&String, usize, &str)| match count {
        1 => format!("{name}: {reason}"),
        all if all == rows.len() => reason.clone(),
        some => format!("{reason} ({} of {} rows)", some, rows.len()),
    };
    reasons.into_iter().map(sentence).collect()
}
