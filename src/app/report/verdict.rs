//! A verdict as text: the answer and what did not pass for people, and the formats of pages, test reports and monitoring.
//!
//! Every text that comes from a record or a machine file is escaped here, by format.

use super::document::{Terminal, escaped_markdown, markdown, wrapped};
use crate::report::document::{
    Block, Column, Fields, Mark, Table, Tone, between, optional, signed_bounds, signed_percent,
};
use crate::report::products::flops_unit;
use crate::report::row::subject_in_words;
use crate::report::template::{blocks, lines, through};
use crate::report::text::{Line, Paint, object, pretty_json, visible};
use commgauge_base::error::Result;
use commgauge_base::units::{Rate, Seconds, three_digits};
use commgauge_base::writing::distinct;
use commgauge_judge::verdict::{
    AgainstBase, AgainstLimit, CurveChange, Decision, Finding, Metric, Problem, Question, Row, RowCall, RowSubject,
    Run, Verdict,
};
use minijinja::context;
use minijinja::value::Serde;

/// How a verdict is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum VerdictFormat {
    /// For people, fitted to the width of the terminal.
    #[default]
    Table,
    /// One JSON document in base units, whose schema `commgauge show schema verdict` or `suspects` prints.
    Json,
    /// A test report in JUnit's XML: one test case for each row.
    Junit,
    /// Tables for a page or an issue.
    Markdown,
    /// A text file for the collector of Prometheus' node exporter.
    Prometheus,
    /// Annotations of a GitHub workflow.
    Github,
}

/// How much of a verdict is written, and how.
#[derive(Clone, Copy, Debug)]
pub struct VerdictLook {
    /// The format.
    pub format: VerdictFormat,
    /// Columns that a table may take.
    pub width: u16,
    /// Whether decisions are coloured.
    pub paint: Paint,
    /// Whether people also read what passed, how it was decided, and what the data cannot show.
    pub explained: bool,
}

impl VerdictLook {
    /// All of it, for what fits itself to a page.
    pub const WHOLE: VerdictLook =
        VerdictLook { format: VerdictFormat::Markdown, width: 0, paint: Paint::Plain, explained: true };

    /// A document below its answer, where the format is for people.
    pub(super) fn document(self, answer: &str, blocks: &[Block]) -> Option<String> {
        match self.format {
            VerdictFormat::Table => Some(
                wrapped(&visible(answer), self.width)
                    + &Terminal::new(usize::from(self.width), self.paint).draw(blocks),
            ),
            VerdictFormat::Markdown => Some(format!("# commgauge {}\n{}", escaped_markdown(answer), markdown(blocks))),
            _ => None,
        }
    }

    /// Says how to see what the answer leaves out, at its end on a terminal.
    pub(super) fn hint(self) -> Option<Block> {
        let hint = "more: --explain (passed rows, all evidence, rules, limits of the data)";
        (!self.explained && self.format == VerdictFormat::Table).then(|| Block::apart(Mark::None, [hint]))
    }
}

/// For the collector of Prometheus' node exporter: no time stamps, one line for each judged row.
const VERDICT_PROM: &str = concat!(include_str!("templates/row.prom"), include_str!("templates/verdict.prom"));

/// Problems first, then the rows that did not pass, the worst first.
const VERDICT_GITHUB: &str = concat!(
    include_str!("templates/row.txt"),
    include_str!("templates/github.txt"),
    include_str!("templates/verdict.txt")
);

/// Rows that were not judged are skipped, rows that could not be judged are errors, and failed rows are failures. Problems of the
/// records are test cases of their own.
const VERDICT_JUNIT: &str = concat!(
    include_str!("templates/row.txt"),
    include_str!("templates/junit.xml"),
    include_str!("templates/verdict.xml")
);

/// A verdict with the sentences that templates show.
fn shown(verdict: &Verdict) -> Result<Line> {
    let mut shown = object(verdict)?;
    shown.insert("about".to_owned(), asked(verdict.question).into());
    shown.insert("headline".to_owned(), headline(verdict).into());
    shown.insert("sentences".to_owned(), coverage(verdict).into());
    Ok(shown)
}

/// The verdict as text.
///
/// # Errors
/// Where a document cannot be written as JSON or XML.
pub fn verdict_text(verdict: &Verdict, look: VerdictLook) -> Result<String> {
    match look.format {
        VerdictFormat::Table | VerdictFormat::Markdown => {
            let said = coverage(verdict).into_iter().chain(origins(verdict));
            let mut blocks = vec![problems(&verdict.problems), Block::list(said)];
            blocks.extend(evidence(verdict, look));
            blocks.extend(look.hint());
            Ok(look.document(&headline(verdict), &blocks).unwrap_or_default())
        }
        VerdictFormat::Junit => through("verdict.xml", VERDICT_JUNIT, shown(verdict)?),
        VerdictFormat::Prometheus => through("verdict.prom", VERDICT_PROM, verdict),
        VerdictFormat::Github => through("verdict.txt", VERDICT_GITHUB, shown(verdict)?),
        VerdictFormat::Json => pretty_json(verdict),
    }
}

// The verdict for people: the answer, then the rows that did not pass, the worst first; on request all rows and the rule.

/// Findings that a page shows without a click.
const MAX_OPEN: usize = 8;

/// Failed rows that are shown unless all are requested.
const MOST_SHOWN: usize = 12;

/// Their reasons; or rows that are not decided, where none failed.
const MOST_UNDECIDED: usize = 4;

/// What the answer rests on.
pub(super) fn evidence(verdict: &Verdict, look: VerdictLook) -> Vec<Block> {
    let explained = look.explained;
    let is_shown = |row: &&Row| row.decision.is_some_and(|decision| explained || decision != Decision::Pass);
    let mut shown = worst_first(&verdict.rows.iter().filter(is_shown).collect::<Vec<_>>());
    let (most, most_reasons) = match shown.first().map(|row| row.decision) {
        _ if explained => (usize::MAX, usize::MAX),
        Some(Some(Decision::Inconclusive)) => (MOST_UNDECIDED, 1),
        _ => (MOST_SHOWN, MOST_UNDECIDED),
    };
    let more = shown.len().saturating_sub(most);
    shown.truncate(most);
    let mut blocks = Vec::new();
    if !shown.is_empty() {
        let note = if more > 0 { format!("and {more} more rows that did not pass: --explain") } else { String::new() };
        blocks.push(Block::Table(rows(verdict.question, "", &shown, &[]).noted(note)));
        let why = explained_rows(&shown).into_iter().take(most_reasons);
        blocks.push(Block::Narrow(Block::headed_list("Why:", Mark::None, why)));
    }
    let is_shown = |curve: &&CurveChange| explained || curve.worse;
    blocks.extend(curves_document(&verdict.curves.iter().filter(is_shown).collect::<Vec<_>>()));
    let sentences = verdict.findings.iter().map(|finding| finding_in_words(finding, &verdict.rows));
    let heading = "Calls that break a rule of self-consistency, the worst first:";
    blocks.push(Block::Narrow(Block::headed_list(heading, Mark::Dash, sentences)));
    blocks.extend(findings(verdict));
    if explained {
        blocks.extend(Block::headed_list("How it was decided:", Mark::None, &verdict.rule));
    }
    blocks
}

/// What is wrong with the records; a warning changes no exit code.
pub(in crate::report) fn problems<'a>(problems: impl IntoIterator<Item = &'a Problem>) -> Block {
    let sentence = |problem: &Problem| match problem.exit_code {
        0 => format!("{} (a warning)", problem.text),
        code => format!("{} (exit code {code})", problem.text),
    };
    Block::marked(Mark::Alarm, distinct(problems.into_iter().map(sentence)))
}

/// By decision, and of equal ones the slowest against the base first.
fn worst_first<'a>(rows: &[&'a Row]) -> Vec<&'a Row> {
    let mut rows = rows.to_vec();
    let slowdown = |row: &Row| row.against_base.as_ref().and_then(|against| against.slowdown).unwrap_or(f64::MIN);
    rows.sort_by(|a, b| b.decision.cmp(&a.decision).then(slowdown(b).total_cmp(&slowdown(a))));
    rows
}

/// The reasons of each row; shared reasons are listed once.
fn explained_rows(rows: &[&Row]) -> Vec<String> {
    let rows: Vec<&Row> = rows.iter().filter(|row| !row.reasons.is_empty()).copied().collect();
    let shared = shared_reasons(&rows);
    let for_all = (!shared.is_empty()).then(|| format!("all {} rows: {}", rows.len(), shared.join("; ")));
    let own = rows.iter().filter_map(|row| {
        let own = own_reasons(row, &shared);
        (!own.is_empty()).then(|| format!("{}: {}", in_words(row), own.join("; ")))
    });
    for_all.into_iter().chain(own).collect()
}

/// The reasons that all rows have, where there are several.
fn shared_reasons(rows: &[&Row]) -> Vec<String> {
    let [first, others @ ..] = rows else { return Vec::new() };
    let is_shared = |reason: &&String| !others.is_empty() && others.iter().all(|row| row.reasons.contains(reason));
    first.reasons.iter().filter(is_shared).cloned().collect()
}

fn own_reasons(row: &Row, shared: &[String]) -> Vec<String> {
    row.reasons.iter().filter(|reason| !shared.contains(reason)).cloned().collect()
}

/// The rules of self-consistency that calls break, with how sure each is, for pages.
pub(in crate::report) fn findings(verdict: &Verdict) -> Vec<Block> {
    let words: Vec<_> = verdict.findings.iter().map(|finding| finding_in_words(finding, &verdict.rows)).collect();
    let folded = words.len() > MAX_OPEN;
    let answer = context! { part => "findings", findings => Serde(&verdict.findings), words, folded };
    blocks("changes.txt", CHANGES, answer)
}

pub(super) fn origins(verdict: &Verdict) -> Vec<String> {
    let run =
        |run: &Run| origin(run) + &run.measured_by.as_ref().map_or_else(String::new, |label| format!("; {label}"));
    let machine = verdict.machine.iter().map(|machine| format!("machine: {machine}"));
    verdict.runs.iter().map(run).chain(machine).collect()
}

/// One run.
pub(super) fn origin(run: &Run) -> String {
    format!(
        "{}: {}, run {} of {}, suite {}, {}, {} ranks",
        run.role, run.path, run.run_id, run.started_at, run.suite, run.library, run.world_size
    )
}

/// The rows, the worst first.
fn rows(question: Question, title: impl Into<String>, rows: &[&Row], said_elsewhere: &[String]) -> Table {
    let rows = worst_first(rows);
    let has_hosts = rows.iter().any(|row| row.hosts.is_some());
    let call = |row: &Row, cell: fn(&RowCall) -> String| optional(row.subject.call().map(cell));
    Fields::of(rows)
        .column(Column::left("verdict", 0).of_status(), |row| decision(row))
        .when(has_hosts, |fields| fields.left("hosts", 0, |row| optional(row.hosts.as_ref())))
        .left("axis", 0, |row| row.subject.axis())
        .left("collective", 0, |row| what(row))
        .right("size", 0, |row| optional(row.subject.bytes()))
        .right("ranks", 6, |row| call(row, |call| call.group_size.to_string()))
        .left("hosts x ranks", 8, |row| call(row, |call| call.locality.to_string()))
        .left("cadence", 1, |row| call(row, |call| call.cadence.to_string()))
        .left("placement", 9, |row| call(row, |call| call.placement.to_string()))
        .when(question == Question::Gate, gate_fields)
        .when(question == Question::Compare, compare_fields)
        .left("row", Column::PAGES_ONLY, |row| row.full_name().into_owned())
        .left("why", Column::PAGES_ONLY, |row| own_reasons(row, said_elsewhere).join("; "))
        .toned(title, |row| tone(row.decision))
        .whole_in("`--format json` has every row")
}

/// The same for a page, with a note: reasons that all rows have are said below them.
pub(in crate::report) fn rows_on_page(question: Question, title: &str, all: &[&Row], note: &str) -> Table {
    let shared = shared_reasons(all);
    let why = (!shared.is_empty()).then(|| format!("Why, in all {} rows: {}.", all.len(), shared.join("; ")));
    let notes: Vec<String> = Some(note.to_owned()).filter(|note| !note.is_empty()).into_iter().chain(why).collect();
    rows(question, title, all, &shared).noted(notes.join(" "))
}

/// The colour of a decision.
pub(in crate::report) fn tone(decision: Option<Decision>) -> Tone {
    match decision {
        Some(Decision::Pass) => Tone::Good,
        Some(Decision::Fail | Decision::Error) => Tone::Bad,
        Some(Decision::Inconclusive) => Tone::Unsure,
        None => Tone::Plain,
    }
}

/// The row's subject, with all that distinguishes it from its neighbours and has no column.
fn what(row: &Row) -> String {
    match (&row.subject, &row.over) {
        (RowSubject::Call(call), Some(over)) => format!("{}: {over}", call.collective),
        (RowSubject::Call(call), None) => call.collective.to_string(),
        (subject, _) => subject_in_words(&row.name, subject),
    }
}

/// A row as people say it; one of several hosts with them.
fn in_words(row: &Row) -> String {
    let hosts = row.hosts.as_ref().map_or_else(String::new, |hosts| format!(" on {hosts}"));
    let over = row.over.as_ref().map_or_else(String::new, |over| format!(", {over}"));
    subject_in_words(&row.name, &row.subject) + &over + &hosts
}

/// The sentence of a finding with its cases in words.
fn finding_in_words(finding: &Finding, rows: &[Row]) -> String {
    let words = |word: &str| {
        let row = rows.iter().find(|row| row.name == word.trim_end_matches(',') && finding.cases.contains(&row.name));
        row.map_or_else(|| word.to_owned(), |row| word.replace(&row.name, &subject_in_words(&row.name, &row.subject)))
    };
    finding.text.split(' ').map(words).collect::<Vec<_>>().join(" ")
}

pub(in crate::report) fn bounds_of_median(limit: &AgainstLimit) -> String {
    between(limit.lower_bound, limit.upper_bound, " .. ", |bound| value(limit.metric, bound))
}

pub(in crate::report) fn bounds_of_slowdown(base: &AgainstBase) -> String {
    signed_bounds(base.slowdown_lower_bound, base.slowdown_upper_bound)
}

fn gate_fields<'a>(fields: Fields<'a, &'a Row>) -> Fields<'a, &'a Row> {
    let limit =
        |row: &Row, cell: fn(&AgainstLimit) -> Option<String>| optional(row.against_limit.as_ref().and_then(cell));
    fields
        .right("repl.", 5, |row| row.replicates)
        .right("median", 0, move |row| limit(row, |limit| limit.median.map(|median| value(limit.metric, median))))
        .left("bounds", 4, move |row| limit(row, |limit| Some(bounds_of_median(limit))))
        .right("threshold", 0, move |row| limit(row, |limit| Some(value(limit.metric, limit.limit))))
        .left("source", 10, move |row| limit(row, |limit| Some(format!("{} ({})", limit.source, limit.date))))
}

fn compare_fields<'a>(fields: Fields<'a, &'a Row>) -> Fields<'a, &'a Row> {
    let base =
        |row: &Row, cell: &dyn Fn(&AgainstBase) -> Option<String>| optional(row.against_base.as_ref().and_then(cell));
    let seconds = |seconds: Option<f64>| seconds.map(|seconds| Seconds(seconds).to_string());
    let p = |p: Option<f64>| p.map(|p| format!("{p:.4}"));
    fields
        .left("type", 4, |row| optional(row.subject.element_type()))
        .right("repl.", 5, move |row| base(row, &|base| Some(format!("{}/{}", base.replicates_base, row.replicates))))
        .right("base", 0, move |row| base(row, &|base| seconds(base.latency_seconds_base)))
        .right("new", 2, move |row| base(row, &|base| seconds(base.latency_seconds_new)))
        .right("slower by", 0, move |row| base(row, &|base| base.slowdown.map(signed_percent)))
        .left("bounds", 4, move |row| base(row, &|base| Some(bounds_of_slowdown(base))))
        .right("p", 10, move |row| base(row, &|base| p(base.p_row)))
        .right("p corrected", 3, move |row| base(row, &|base| p(base.p_corrected)))
}

// The sentences and words of a verdict that all of its formats share.

/// What was asked, in a word; thresholds are one part of what `commgauge judge` asks.
pub(super) fn asked(question: Question) -> &'static str {
    if question == Question::Gate { "thresholds" } else { question.name() }
}

/// The first line: the question, the answer and its exit code.
pub(in crate::report) fn headline(verdict: &Verdict) -> String {
    let what = asked(verdict.question);
    let judged = if verdict.question == Question::Gate { format!("; {}", thresholds(verdict)) } else { String::new() };
    format!("{what}: {} (exit code {}){judged}", verdict.decision.name().to_uppercase(), verdict.exit_code)
}

/// How many limits of the machine file the verdict rests on.
pub(in crate::report) fn thresholds(verdict: &Verdict) -> String {
    let c = &verdict.coverage;
    let missing = c.expectations.saturating_sub(c.expectations_judged);
    format!("{} of {} thresholds judged, {missing} not measured", c.expectations_judged, c.expectations)
}

/// The coverage, as sentences. A comparison may lack replicates: `most` is what its best row has of each side.
pub(in crate::report) fn coverage(verdict: &Verdict) -> Vec<String> {
    let failed = |row: &&Row| row.between_nodes && row.decision == Some(Decision::Fail);
    let of_row = |row: &Row| Some(row.against_base.as_ref()?.replicates_base.min(row.replicates));
    let is_undecided = verdict.question == Question::Compare && verdict.decision == Decision::Inconclusive;
    let answer = context! {
        question => verdict.question.name(),
        found => verdict.findings.len(),
        certain => verdict.findings.iter().filter(|finding| finding.certain).count(),
        rows_failed_between_nodes => verdict.rows.iter().filter(failed).count(),
        most => is_undecided.then(|| verdict.rows.iter().filter_map(of_row).max()),
        ..Serde(&verdict.coverage)
    };
    lines("coverage.txt", include_str!("templates/coverage.txt"), answer)
}

/// A row's decision in a word.
pub(in crate::report) fn decision(row: &Row) -> &'static str {
    row.decision.map_or("not judged", |decision| decision.name())
}

/// A value of a limit with its unit.
pub(in crate::report) fn value(metric: Metric, value: f64) -> String {
    match metric {
        Metric::BusBandwidthBytesPerSecond => Rate(value).to_string(),
        Metric::LatencySeconds => Seconds(value).to_string(),
        Metric::CopyBytesPerSecond => Rate(value).to_string(),
        Metric::FlopsPerSecond => flops(value),
    }
}

/// A rate of computing in the unit that fits it.
fn flops(per_second: f64) -> String {
    let (unit, scale) = flops_unit(per_second);
    format!("{} {unit}", three_digits(per_second * scale))
}

// Changes of whole curves: alpha and beta before and after, one line each.

/// The table, the worst first, where there are any.
pub(in crate::report) fn curves_document(curves: &[&CurveChange]) -> Vec<Block> {
    let mut curves = curves.to_vec();
    curves.sort_by(|a, b| b.worse.cmp(&a.worse).then(b.slowdown.total_cmp(&a.slowdown)));
    blocks("changes.txt", CHANGES, context! { part => "curves", curves => Serde(curves) })
}

const CHANGES: &str = include_str!("templates/changes.txt");

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;
    use commgauge_judge::verdict::testing::{lines, loaded, machine};
    use commgauge_judge::verdict::{CompareRule, ConsistencyRule, GateRule, compare, consistency, gate};
    use commgauge_model::record::Line;

    // Verdicts in every format as published, and nothing hostile in any.

    fn verdict(lines: Vec<Line>) -> Verdict {
        let rule = GateRule { confidence: 0.95, allowed: Vec::new() };
        gate(&[loaded("run.jsonl", lines)], Some(&machine("14GB/s")), &rule).unwrap()
    }

    fn shown_as(verdict: &Verdict, format: VerdictFormat, width: u16) -> Result<String> {
        verdict_text(verdict, VerdictLook { format, width, paint: Paint::Plain, explained: true })
    }

    /// A row that passes, one that fails, and one that needs more replicates.
    fn mixed() -> Vec<Line> {
        let times = |middle: f64| (0..6).map(|index| middle + f64::from(index)).collect::<Vec<f64>>();
        lines("20261121T093000Z-7f3a", &[times(100.0), times(300.0), times(445.0)])
    }

    #[test]
    fn an_annotation_stays_on_its_line_and_keeps_its_title() {
        let mut verdict = verdict(mixed());
        verdict.rows.retain(|row| row.decision == Some(Decision::Fail));
        verdict.rows.truncate(1);
        (verdict.rows[0].name, verdict.rows[0].reasons) = ("1, 2".into(), vec!["50 %\r\n::error::\u{1b}[31mno".into()]);
        let text = shown_as(&verdict, VerdictFormat::Github, 80).unwrap();
        let line = "::error title=commgauge thresholds%3A 1%2C 2::50 %25\\r\\n::error::\\u{1b}[31mno\n";
        assert!(text.contains(line), "{text}");
    }

    #[test]
    fn every_format_is_as_published() {
        for format in VerdictFormat::value_variants() {
            let name = format.to_possible_value().unwrap().get_name().to_owned();
            insta::assert_snapshot!(format!("gate_{name}"), shown_as(&verdict(mixed()), *format, 120).unwrap());
        }
    }

    #[test]
    fn the_answer_has_the_rows_that_did_not_pass_and_the_rest_is_on_request() {
        let look = VerdictLook { format: VerdictFormat::Table, width: 80, paint: Paint::Plain, explained: false };
        insta::assert_snapshot!("gate_answer_80", verdict_text(&verdict(mixed()), look).unwrap());
    }

    /// Two runs of a curve of which the second is slower throughout; the first takes longer at its second size than at its third.
    fn compared() -> Verdict {
        let run = |id: &str, factor: f64| {
            let times = |middle: f64| (0..6).map(|index| factor * middle + f64::from(index)).collect::<Vec<f64>>();
            loaded(&format!("{id}.jsonl"), lines(id, &[times(100.0), times(205.0), times(400.0), times(800.0)]))
        };
        let rule = CompareRule { false_alarm_level: 0.05, relevant_slowdown: 0.03, allowed: Vec::new() };
        compare(&[run("20261120T093000Z-1a2b", 1.0)], &[run("20261121T093000Z-7f3a", 1.3)], &rule).unwrap()
    }

    fn inconsistent() -> Verdict {
        let times = |middle: f64| (0..7).map(|index| middle + f64::from(index)).collect::<Vec<f64>>();
        let lines = lines("20261121T093000Z-7f3a", &[times(100.0), times(400.0), times(300.0), times(620.0)]);
        consistency(&[loaded("run.jsonl", lines)], ConsistencyRule::default(), &[]).unwrap()
    }

    #[test]
    fn comparisons_and_findings_are_as_published_in_every_format() {
        for (what, verdict) in [("compare", compared()), ("consistency", inconsistent())] {
            for format in VerdictFormat::value_variants() {
                let name = format.to_possible_value().unwrap().get_name().to_owned();
                insta::assert_snapshot!(format!("{what}_{name}"), shown_as(&verdict, *format, 140).unwrap());
            }
            insta::assert_snapshot!(format!("{what}_table_80"), shown_as(&verdict, VerdictFormat::Table, 80).unwrap());
        }
    }

    #[test]
    fn reasons_that_all_rows_share_are_printed_once() {
        let mut verdict = compared();
        verdict.rows.iter_mut().for_each(|row| row.reasons.push("not verified: data were not checked".to_owned()));
        let text = shown_as(&verdict, VerdictFormat::Table, 140).unwrap();
        assert!(text.contains("all 4 rows: not verified: data were not checked\n"), "{text}");
        assert_eq!(text.matches("not verified: ").count(), 1, "{text}");
        assert!(text.contains("world all_reduce of 4 ranks, 1 MiB float32: slower by 29.3 %\n"), "{text}");
    }

    #[test]
    fn the_json_output_is_valid_by_the_published_schema() {
        let schema = schemars::schema_for!(Verdict).to_value();
        for verdict in [verdict(mixed()), compared(), inconsistent()] {
            let text = shown_as(&verdict, VerdictFormat::Json, 80).unwrap();
            let document: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert!(jsonschema::validator_for(&schema).unwrap().is_valid(&document));
        }
    }

    #[test]
    fn no_format_passes_on_hostile_text() {
        const POISON: &str =
            "=1\x1b[31m|`</script><img src=x onerror=alert(1)>\"'&amp;]]>\\, \u{9b}2J\r\n@_*\u{202e}\0\u{ffff}";
        let poison = || POISON.to_owned();
        let mut lines = mixed();
        for line in &mut lines {
            match line {
                Line::Header(header) => {
                    (header.run_id, header.suite.name, header.backend.library) = (poison(), poison(), poison());
                    header.started_at = poison();
                    header.warnings.push(poison());
                    header.backend.machine = Some(poison());
                }
                Line::Plan(plan) => plan.cases.iter_mut().for_each(|case| case.name += POISON),
                Line::Case(case) => {
                    case.name = format!("{}{POISON}", case.name).into();
                    case.warnings.push(poison());
                }
                Line::End(end) => (end.exit_code, end.error) = (6, Some(poison())),
                _ => {}
            }
        }
        let mut verdict = verdict(lines);
        verdict.machine = Some(poison());
        for row in &mut verdict.rows {
            let against = row.against_limit.as_mut().unwrap();
            (against.source, against.algorithm, against.version) = (poison(), Some(poison()), Some(poison()));
        }
        for format in VerdictFormat::value_variants() {
            let text = shown_as(&verdict, *format, 120).unwrap();
            let bad = text.chars().find(|c| (c.is_control() && *c != '\n') || matches!(c, '\u{202e}'));
            assert_eq!(bad, None, "{format:?}");
            match format {
                VerdictFormat::Markdown | VerdictFormat::Junit => assert!(!text.contains("<img"), "{format:?}: {text}"),
                VerdictFormat::Json => {
                    let read: Verdict = serde_json::from_str(&text).unwrap();
                    assert_eq!(read, verdict, "what was written is what is read");
                }
                VerdictFormat::Prometheus => {
                    for line in text.lines().filter(|line| !line.starts_with("# ")) {
                        let inside = line.replace("\\\\", "").replace("\\\"", "");
                        assert_eq!(inside.matches('"').count() % 2, 0, "{line}");
                        assert!(line.starts_with("commgauge_verdict_"), "{line}");
                    }
                }
                VerdictFormat::Github => assert!(text.lines().all(|line| line.starts_with("::")), "{text}"),
                VerdictFormat::Table => {}
            }
            if *format == VerdictFormat::Junit {
                let report = quick_junit::Report::deserialize_from_str(&text).unwrap();
                let cases = &report.test_suites[0].test_cases;
                assert_eq!(cases.len(), verdict.rows.len() + verdict.problems.len());
            }
        }
    }

    #[test]
    fn a_warning_that_changes_nothing_fails_in_no_format() {
        let mut verdict = verdict(mixed());
        let text = "the machine was slow for a while; the judged rows meet their thresholds even so".to_owned();
        verdict.problems = vec![commgauge_judge::verdict::Problem { exit_code: 0, text }];
        for (format, expected) in [
            (VerdictFormat::Table, "thresholds even so (a warning)\n"),
            (VerdictFormat::Github, "::warning title=commgauge thresholds::the machine was slow for a while"),
            (VerdictFormat::Junit, "<skipped message=\"the machine was slow for a while; the judged rows"),
        ] {
            let text = shown_as(&verdict, format, 140).unwrap();
            assert!(text.contains(expected), "{format:?}: {text}");
        }
    }
}
