//! Verdicts in every format as published, and nothing hostile in any.

use super::*;
use clap::ValueEnum;
use commgauge_analysis::verdict::testing::{lines, loaded, machine};
use commgauge_analysis::verdict::{CompareRule, ConsistencyRule, GateRule, compare, consistency, gate};
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
        insta::assert_snapshot!(format!("{what}_table_80"), verdict_text(&verdict, VerdictFormat::Table, 80).unwrap());
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
            assert_eq!(cases.len(), verdict.rows.len() + verdict.troubles.len());
        }
    }
}

#[test]
fn a_warning_that_changes_nothing_fails_in_no_format() {
    let mut verdict = verdict(mixed());
    let text = "the machine was slow for a while; the judged rows meet their thresholds even so".to_owned();
    verdict.troubles = vec![commgauge_analysis::verdict::Trouble { exit_code: 0, text }];
    for (format, expected) in [
        (VerdictFormat::Table, "thresholds even so (a warning)\n"),
        (VerdictFormat::Github, "::warning title=commgauge gate::the machine was slow for a while"),
        (VerdictFormat::Junit, "<skipped message=\"the machine was slow for a while; the judged rows"),
    ] {
        let text = verdict_text(&verdict, format, 140).unwrap();
        assert!(text.contains(expected), "{format:?}: {text}");
    }
}
