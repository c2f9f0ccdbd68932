//! A verdict as text: a table for people, and the formats of pages, test reports and monitoring.
//!
//! Every text that comes from a record or a machine file is escaped here, by format.

mod document;

pub(super) use document::{
    coverage, curves_document as curves, decision, findings, problems, rows_on_page, thresholds, tone, value,
};

use super::document::{Terminal, escaped_markdown, markdown};
use crate::report::document::signed_percent;
use crate::report::formats::{Level, annotation, case, non_success, skipped, suite, test_report_text as xml};
use crate::report::template::through;
use crate::report::text::{pretty_json, visible};
use commgauge_base::error::Result;
use commgauge_judge::verdict::{CurveChange, Decision, Finding, Problem, Row, Verdict};
use document::{headline, reasons};
use quick_junit::{NonSuccessKind, Property, TestCase, TestCaseStatus};
use std::cmp::Reverse;

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

/// For the collector of Prometheus' node exporter: no time stamps, one line for each judged row.
const VERDICT_PROM: &str = concat!(include_str!("../templates/row.prom"), include_str!("../templates/verdict.prom"));

/// The verdict as text. `width` is used by the table only.
///
/// # Errors
/// Where a document cannot be written as JSON or XML.
pub fn verdict_text(verdict: &Verdict, format: VerdictFormat, width: u16) -> Result<String> {
    match format {
        VerdictFormat::Table => {
            let terminal = Terminal::plain(width);
            Ok(format!("{}\n{}", headline(verdict), terminal.draw(&document::document(verdict))))
        }
        VerdictFormat::Markdown => {
            let title = escaped_markdown(&headline(verdict));
            Ok(format!("# commgauge {title}\n{}", markdown(&document::document(verdict))))
        }
        VerdictFormat::Junit => junit_text(verdict),
        VerdictFormat::Prometheus => through("verdict.prom", VERDICT_PROM, verdict),
        VerdictFormat::Github => Ok(github_text(verdict)),
        VerdictFormat::Json => pretty_json(verdict),
    }
}

// The verdict as annotations of a GitHub workflow: problems first, then the rows that did not pass, the worst first.

/// The annotations; the last one is the answer.
fn github_text(verdict: &Verdict) -> String {
    let title = format!("commgauge {}", document::asked(verdict.question));
    let mut out = String::new();
    for problem in &verdict.problems {
        let level = if problem.exit_code == 0 { Level::Warning } else { Level::Error };
        out += &annotation(level, &title, &problem.text);
    }
    let decided = |row: &&Row| row.decision.is_some_and(|decision| decision != Decision::Pass);
    let mut rows: Vec<&Row> = verdict.rows.iter().filter(decided).collect();
    rows.sort_by_key(|row| Reverse(row.decision));
    for row in rows {
        let level = if row.decision == Some(Decision::Inconclusive) { Level::Warning } else { Level::Error };
        out += &annotation(level, &format!("{title}: {}", row.full_name()), &reasons(row));
    }
    for finding in &verdict.findings {
        let level = if finding.certain { Level::Error } else { Level::Warning };
        out += &annotation(level, &title, &finding.text);
    }
    let level = match verdict.decision {
        Decision::Pass => Level::Notice,
        Decision::Inconclusive => Level::Warning,
        Decision::Fail | Decision::Error => Level::Error,
    };
    out + &annotation(level, &title, &headline(verdict))
}

// The verdict as a JUnit report: a test case for each row. Rows that were not judged are skipped, rows that could not
// be judged are errors, and failed rows are failures. Problems of the records are test cases of their own.

/// The report.
fn junit_text(verdict: &Verdict) -> Result<String> {
    let mut suite = suite();
    for (name, value) in properties(verdict) {
        suite.add_property(Property::new(visible(&name), visible(&value)));
    }
    for problem in &verdict.problems {
        suite.add_test_case(of_problem(problem));
    }
    for row in &verdict.rows {
        suite.add_test_case(of_row(row));
    }
    suite.add_test_cases(verdict.findings.iter().map(of_finding));
    suite.add_test_cases(verdict.curves.iter().map(of_curve));
    xml(&headline(verdict), suite)
}

fn properties(verdict: &Verdict) -> Vec<(String, String)> {
    let mut properties = vec![("verdict".to_owned(), headline(verdict))];
    properties.extend(coverage(verdict).into_iter().map(|sentence| ("coverage".to_owned(), sentence)));
    properties.extend(verdict.rule.iter().map(|rule| ("rule".to_owned(), rule.clone())));
    properties.extend(verdict.machine.iter().map(|machine| ("machine".to_owned(), machine.clone())));
    properties.extend(verdict.runs.iter().map(|run| (run.role.clone(), format!("{} ({})", run.run_id, run.path))));
    properties
}

fn of_problem(problem: &Problem) -> TestCase {
    let status = match problem.exit_code {
        0 => skipped(&problem.text),
        code => non_success(NonSuccessKind::Error, &problem.text, format!("exit code {code}")),
    };
    case("record", "record", status)
}

fn of_row(row: &Row) -> TestCase {
    let status = match row.decision {
        None => skipped("not judged"),
        Some(Decision::Pass) => TestCaseStatus::success(),
        Some(bad) => {
            let kind = if bad == Decision::Fail { NonSuccessKind::Failure } else { NonSuccessKind::Error };
            non_success(kind, &reasons(row), bad.name())
        }
    };
    case(&format!("{}.{}", row.subject.axis(), row.subject.what()), &row.full_name(), status)
}

fn of_finding(finding: &Finding) -> TestCase {
    let kind = if finding.certain { NonSuccessKind::Failure } else { NonSuccessKind::Error };
    let name = finding.cases.first().map_or("", String::as_str);
    case("self-consistency", name, non_success(kind, &finding.text, finding.guideline.name()))
}

fn of_curve(curve: &CurveChange) -> TestCase {
    let status = match curve.worse {
        false => TestCaseStatus::success(),
        true => {
            let message = format!("{} got worse by {}", curve.part.name(), signed_percent(curve.slowdown));
            non_success(NonSuccessKind::Failure, &message, "slower")
        }
    };
    case("curve", &format!("{}: {}", curve.name, curve.part.name()), status)
}

#[cfg(test)]
mod tests {
    // Verdicts in every format as published, and nothing hostile in any.
    use super::*;
    use clap::ValueEnum;
    use commgauge_judge::verdict::testing::{lines, loaded, machine};
    use commgauge_judge::verdict::{CompareRule, ConsistencyRule, GateRule, compare, consistency, gate};
    use commgauge_model::record::Line;

    fn verdict(lines: Vec<Line>) -> Verdict {
        let rule = GateRule { confidence: 0.95, allowed: Vec::new() };
        gate(&[loaded("run.jsonl", lines)], Some(&machine("14GB/s")), &rule).unwrap()
    }

    /// A row that passes, one that fails, and one that needs more replicates.
    fn mixed() -> Vec<Line> {
        let times = |middle: f64| (0..6).map(|index| middle + f64::from(index)).collect::<Vec<f64>>();
        lines("20261121T093000Z-7f3a", &[times(100.0), times(300.0), times(445.0)])
    }

    #[test]
    fn every_format_is_as_published() {
        for format in VerdictFormat::value_variants() {
            let name = format.to_possible_value().unwrap().get_name().to_owned();
            insta::assert_snapshot!(format!("gate_{name}"), verdict_text(&verdict(mixed()), *format, 120).unwrap());
        }
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
                insta::assert_snapshot!(format!("{what}_{name}"), verdict_text(&verdict, *format, 140).unwrap());
            }
            insta::assert_snapshot!(
                format!("{what}_table_80"),
                verdict_text(&verdict, VerdictFormat::Table, 80).unwrap()
            );
        }
    }

    #[test]
    fn reasons_that_all_rows_share_are_printed_once() {
        let mut verdict = compared();
        verdict.rows.iter_mut().for_each(|row| row.reasons.push("not verified: data were not checked".to_owned()));
        let text = verdict_text(&verdict, VerdictFormat::Table, 140).unwrap();
        assert!(text.contains("all 4 rows: not verified: data were not checked\n"), "{text}");
        assert_eq!(text.matches("not verified: ").count(), 1, "{text}");
        assert!(text.contains("world/all_reduce/0 (float32, 1 MiB): slower by 29.3 %\n"), "{text}");
    }

    #[test]
    fn the_json_output_is_valid_by_the_published_schema() {
        let schema = schemars::schema_for!(Verdict).to_value();
        for verdict in [verdict(mixed()), compared(), inconsistent()] {
            let text = verdict_text(&verdict, VerdictFormat::Json, 80).unwrap();
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
            let text = verdict_text(&verdict, *format, 120).unwrap();
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
            let text = verdict_text(&verdict, format, 140).unwrap();
            assert!(text.contains(expected), "{format:?}: {text}");
        }
    }
}
