//! What a screen promises, on records made by hand.

use super::*;
use crate::report::Paint;
use crate::report::step::tests::{USUAL, record};
use commgauge_base::units::Bytes;
use commgauge_model::layout::{Axis, Degrees};
use commgauge_model::record::Line;
use commgauge_model::record::line::{EndStatus, Outcome};
use commgauge_model::workload::{Family, RankedCall, RankedStep};

const CALLED: CommandNames = CommandNames { program: "commgauge", record: "reports/runs/r.jsonl" };

fn screen(record: &Record) -> Screen {
    Screen::of(record, &View::new(record), CALLED)
}

fn shown(record: &Record, width: u16) -> String {
    text(&screen(record), width, Paint::Plain)
}

/// The step of 8 ranks that USUAL makes, on as many ranks.
fn whole() -> Record {
    let mut record = ended(&USUAL);
    record.header.world_size = 8;
    record
}

/// The sample that these records are made from was interrupted.
fn ended(calls: &[crate::report::step::tests::StepCall]) -> Record {
    let mut record = record(calls);
    if let Some(end) = &mut record.end {
        (end.status, end.error, end.exit_code) = (EndStatus::Complete, None, 0);
    }
    record
}

/// A ranking of all five parallelisms, of which PP needs groups that four ranks cannot replace.
pub(in crate::report) fn predicted() -> Record {
    let mut record = ended(&USUAL);
    let row = |index: usize| &record.plan.cases[index];
    let call = |index: usize, axis: Axis, group_size: u32, count_per_step: u64, exposed: bool| RankedCall {
        style: row(index).style,
        axis,
        group_size,
        stride: 1,
        collective: row(index).collective,
        element_type: row(index).element_type,
        reduce_op: row(index).reduce_op,
        bytes_total: row(index).bytes_total,
        splits: None,
        count_per_step,
        exposed,
    };
    let calls = vec![
        call(0, Axis::Tp, 2, 640, true),
        call(0, Axis::Cp, 2, 3, false),
        call(1, Axis::Dp, 2, 100, true),
        call(2, Axis::Pp, 16, 8, true),
    ];
    let facts = commgauge_model::workload::StepFacts {
        model: "a-mixture".to_owned(),
        layout: "tp 2 x cp 2 x dp 2 x pp 16".to_owned(),
        degrees: Degrees::dense(2, 2, 2, 16),
        ..record.plan.steps[0].clone()
    };
    record.plan.ranking = Some(RankedStep { facts, calls });
    record
}

fn costs(record: &Record) -> Costs {
    screen(record).costs.expect("there is a model")
}

fn of(costs: &Costs, family: Family) -> Result<f64, String> {
    let found = costs.families.iter().find(|cost| cost.family == family).expect("all are listed");
    found.seconds.clone().map(|(time, _)| time.middle)
}

#[test]
fn the_cost_of_an_axis_is_the_sum_of_calls_times_their_count() {
    let costs = costs(&whole());
    assert!(costs.measured);
    for (family, expected) in [(Family::Tensor, 6.4e-3), (Family::Data, 2e-3), (Family::Pipeline, 1.6e-3)] {
        let found = of(&costs, family).unwrap();
        assert!((found / expected - 1.0).abs() < 1e-3, "{}: {found}", family.name());
    }
    assert_eq!(costs.order, "TP > DP > PP");
    assert!(costs.rule.starts_with("TP > DP > PP holds here"), "{}", costs.rule);
    for family in [Family::Context, Family::Expert] {
        assert_eq!(of(&costs, family).unwrap_err(), "not in this layout, tp 2 x dp 2 x pp 2");
    }
}

#[test]
fn a_layout_larger_than_the_run_is_predicted_from_its_calls_and_missing_predictions_have_a_reason() {
    let costs = costs(&predicted());
    assert!(!costs.measured && costs.ranks == 4);
    for (family, expected) in [(Family::Tensor, 64e-3), (Family::Context, 0.3e-3), (Family::Data, 100e-3)] {
        let found = of(&costs, family).unwrap();
        assert!((found / expected - 1.0).abs() < 1e-3, "{}: {found}", family.name());
    }
    let reason = of(&costs, Family::Pipeline).unwrap_err();
    assert!(
        reason.starts_with("not measured: PP all_reduce of") && reason.ends_with("groups of 16 ranks, the run has 4")
    );
    assert_eq!(costs.order, "DP > TP > CP");
    assert_eq!(costs.rule, "Whether TP > DP > PP holds here is not known without PP.");
    let names: Vec<&str> = costs.families.iter().map(|cost| cost.family.name()).collect();
    assert_eq!(names[..3], ["DP", "TP", "CP"], "the costliest first: {names:?}");
    assert!(shown(&predicted(), 80).contains("predicted from the measured calls"));
}

#[test]
fn an_order_that_contradicts_the_rule_is_reported_with_its_uncertainty() {
    let mut other = predicted();
    if let Some(ranking) = &mut other.plan.ranking {
        ranking.calls[3].group_size = 2;
    }
    let rule = costs(&other).rule;
    assert!(rule.starts_with("TP > DP > PP does not hold here (") && rule.ends_with(": DP > TP > PP."), "{rule}");
}

#[test]
fn a_run_without_a_model_says_in_one_line_how_to_get_a_ranking() {
    let mut sweep = whole();
    sweep.plan.steps.clear();
    sweep.plan.cases.iter_mut().for_each(|case| case.uses.clear());
    let how = screen(&sweep).costs.unwrap_err();
    assert!(how.contains("`commgauge run quick`"), "{how}");
    let text = shown(&sweep, 140);
    assert!(text.lines().any(|line| line == how) && !text.contains("per step"), "{text}");
}

#[test]
fn wrong_data_comes_first_then_what_else_makes_numbers_meaningless() {
    let mut broken = whole();
    broken.header.warnings =
        vec!["host a has 8 ranks on 2 processors: ranks take turns, and times mean little".to_owned()];
    assert!(shown(&broken, 80).starts_with("! host a has 8 ranks on 2 processors"), "{}", shown(&broken, 80));
    broken.cases[0].outcome = Outcome::Corrupt {
        when: "after".to_owned(),
        rank: 1,
        element: 7,
        expected: "1".to_owned(),
        got: "2".to_owned(),
        count: 3,
        call: None,
    };
    let text = shown(&broken, 80);
    assert!(text.starts_with("! data arrived WRONG in 1 case: tp/"), "{text}");
    assert!(text.contains("! host a has 8 ranks") && text.contains("1 WRONG"), "{text}");
    assert!(text.contains("TP  not known: TP all_reduce of"), "numbers of wrong data are withheld: {text}");
}

#[test]
fn an_early_end_is_explained_with_the_command_to_resume() {
    for (status, said) in [
        (Some(EndStatus::Interrupted), "! the run was interrupted"),
        (Some(EndStatus::OutOfTime), "! the run stopped before its time limit"),
        (None, "! the record has no end"),
    ] {
        let mut cut = whole();
        match (status, &mut cut.end) {
            (Some(status), Some(end)) => end.status = status,
            _ => cut.end = None,
        }
        let text = shown(&cut, 80);
        assert!(text.contains(said) && text.contains("  commgauge run --resume reports/runs/r.jsonl"), "{text}");
        assert!(text.contains("Findings: none in what was measured."), "{text}");
    }
}

#[test]
fn a_screen_is_never_longer_than_a_terminal_nor_wider() {
    let mut worst = predicted();
    worst.header.warnings =
        (0..9).map(|index| format!("warning {index} {}", "that goes on and on ".repeat(12))).collect();
    worst.header.suite.name = "a suite with a name ".repeat(12);
    if let Some(ranking) = &mut worst.plan.ranking {
        ranking.facts.model = "a-model-".repeat(20);
        ranking.calls.iter_mut().for_each(|call| call.group_size = 99);
        ranking.calls.iter_mut().for_each(|call| call.bytes_total = Bytes(7));
    }
    let mut view = View::new(&worst);
    view.findings.worst = Some("a finding ".repeat(60));
    let full = Screen::of(&worst, &view, CALLED);
    for width in [40, 80, 140] {
        for screen in [&full, &screen(&predicted()), &screen(&whole())] {
            let text = text(screen, width, Paint::Plain);
            let lines = text.lines().count();
            assert!(lines <= MAX_LINES, "{lines} at {width}:\n{text}");
            let commands: Vec<&str> = screen.commands.iter().map(|(command, _)| command.as_str()).collect();
            for line in text.lines().filter(|line| !commands.contains(&line.trim())) {
                assert!(line.chars().count() <= usize::from(width), "{width}: {line}");
            }
            assert!(commands.iter().all(|command| text.contains(command)), "commands are never cut: {text}");
        }
    }
}

#[test]
fn the_screen_is_as_published() {
    for width in [80, 140] {
        insta::assert_snapshot!(format!("predicted_{width}"), shown(&predicted(), width));
    }
    insta::assert_snapshot!("measured_80", shown(&whole(), 80));
    insta::assert_snapshot!("measured_80_colored", text(&screen(&whole()), 80, Paint::Colors).replace('\x1b', "ESC"));
}

#[test]
fn no_hostile_text_is_passed_on() {
    let mut hostile = whole();
    let poison = || "\x1b[31mx\u{202e}\n".to_owned();
    hostile.header.suite.name = poison();
    hostile.header.backend.library = poison();
    hostile.header.warnings = vec![poison()];
    hostile.plan.steps[0].model = poison();
    hostile.plan.steps[0].layout = poison();
    for case in &mut hostile.plan.cases {
        case.name = poison();
    }
    hostile.cases[0].outcome = Outcome::Failed { reason: poison() };
    let text = shown(&hostile, 80);
    assert!(!text.chars().any(|c| (c.is_control() && c != '\n') || c == '\u{202e}'), "{text:?}");
}

#[test]
fn the_sample_record_has_a_screen() {
    let lines = include_str!("../../../../tests/data/sample-record.jsonl").lines();
    let lines: Vec<Line> = lines.map(|line| serde_json::from_str(line).unwrap()).collect();
    insta::assert_snapshot!("sample_80", shown(&Record::from_lines(lines).unwrap(), 80));
}

#[test]
fn copies_are_counted_beside_the_cases_and_alone_where_there_are_no_cases() {
    let mut record = ended(&USUAL);
    for line in commgauge_analysis::verdict::testing::copy_lines(&[20.0; 3]) {
        let Line::Copy(copy) = line else { panic!("a copy") };
        record.copies.push(*copy);
    }
    let text = shown(&record, 100);
    assert!(text.lines().any(|line| line.contains(" verified, ") && line.contains("; 1 copy: 1 ")), "{text}");
    record.plan.cases.clear();
    record.cases.clear();
    let text = shown(&record, 100);
    assert!(text.lines().any(|line| line.starts_with("1 copy: 1 ")), "{text}");
}
