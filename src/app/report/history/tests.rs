//! The history in every format as published, and nothing hostile in any.

use super::*;
use clap::ValueEnum;
use commgauge_analysis::verdict::history::{HistoryInput, HistoryRule, history};
use commgauge_analysis::verdict::testing::{copy_lines, lines, loaded, product_lines, with_own_work};
use std::path::Path;

const POISON: &str = "=1\x1b[31m|</script><img src=x onerror=alert(1)>\"'&\u{9b}2J\r\n\u{202e}\0";

/// Twelve runs of three rows, of which the second takes a fifth longer from the eighth run on, together with a new library.
fn made(hostile: &str) -> History {
    let mut input = HistoryInput::default();
    for day in 0..12u32 {
        let slow = if day >= 7 { 1.2 } else { 1.0 };
        // Some scatter without repetition.
        let scatter = |row: u32| 1.0 + f64::from((day * 7 + row * 5) % 11) * 0.001;
        let times = |middle: f64, row: u32| vec![middle * scatter(row); 3];
        let rows = [times(100.0, 0), times(200.0 * slow, 1), times(400.0, 2)];
        let mut loaded = loaded(&format!("runs/{day:02}.jsonl"), lines(&format!("run-{day:02}"), &rows));
        let header = &mut loaded.record.header;
        header.started_at = format!("2026-11-{:02}T09:30:00+01:00", day + 1);
        if day >= 7 {
            header.backend.library = "Open MPI 4.1.5".to_owned();
        }
        header.suite.name += hostile;
        header.ranks[0].host += hostile;
        loaded.record.plan.cases.iter_mut().for_each(|case| case.name += hostile);
        input.add(&loaded.path.clone(), Ok(loaded));
    }
    let broken = Err(commgauge_base::error::Error::usage(format!("line 3 is no line of a record{hostile}")));
    input.add(Path::new("runs/notes.jsonl"), broken);
    history(input, HistoryRule { false_alarm_level: 0.05, relevant: 0.03 })
}

#[test]
fn every_format_is_as_published() {
    let history = made("");
    for format in HistoryFormat::value_variants() {
        let name = format.to_possible_value().unwrap().get_name().to_owned();
        insta::assert_snapshot!(
            format!("history_{name}"),
            history_text(&history, *format, 140, ShownRows::Changed).unwrap()
        );
    }
    let narrow = history_text(&history, HistoryFormat::Table, 80, ShownRows::All).unwrap();
    insta::assert_snapshot!("history_table_80_all", narrow);
}

#[test]
fn copies_and_products_have_a_history_like_calls() {
    let mut input = HistoryInput::default();
    for day in 0..12u32 {
        let scatter = |row: u32| 1.0 + f64::from((day * 7 + row * 5) % 11) * 0.001;
        let slow = if day >= 7 { 1.2 } else { 1.0 };
        let own_work = [copy_lines(&[20.0 * slow * scatter(0); 3]), product_lines(&[40.0 * scatter(1); 3])].concat();
        let run = with_own_work(lines(&format!("run-{day:02}"), &[vec![100.0 * scatter(2); 3]]), own_work);
        let mut loaded = loaded(&format!("runs/{day:02}.jsonl"), run);
        loaded.record.header.started_at = format!("2026-11-{:02}T09:30:00+01:00", day + 1);
        input.add(&loaded.path.clone(), Ok(loaded));
    }
    let history = history(input, HistoryRule { false_alarm_level: 0.05, relevant: 0.03 });
    let rows = &history.lineages[0].rows;
    let changed: Vec<&str> = rows.iter().filter(|row| !row.changes.is_empty()).map(|row| row.name.as_str()).collect();
    assert_eq!((rows.len(), changed), (3, vec!["copy/host-to-device/pinned/1000000000/alone"]));
    let document = serde_json::to_value(&history).unwrap();
    let schema = schemars::schema_for!(History).to_value();
    assert!(jsonschema::validator_for(&schema).unwrap().is_valid(&document));
    assert_eq!(serde_json::from_value::<History>(document).unwrap(), history, "it is read as it was written");
    for (format, words) in [
        (HistoryFormat::Junit, "classname=\"quick.rank.host-to-device\""),
        (
            HistoryFormat::Prometheus,
            "axis=\"rank\",backend=\"mpi\",bytes=\"\",case=\"product/float32/1000x1000x1000\",collective=\"product\"",
        ),
        (HistoryFormat::Csv, ",copy/host-to-device/pinned/1000000000/alone,1000000000,"),
        (HistoryFormat::Table, "copy/host-to-device/pinned/1000000000/alone"),
        (HistoryFormat::Github, "copy/host-to-device/pinned/1000000000/alone"),
    ] {
        let text = history_text(&history, format, 140, ShownRows::All).unwrap();
        assert!(text.contains(words), "{format:?} lacks {words}: {text}");
    }
}

#[test]
fn a_change_is_reported_with_the_other_differences_of_its_run() {
    let history = made("");
    let lineage = &history.lineages[0];
    assert_eq!((history.exit_code, history.lineages.len(), lineage.runs.len(), lineage.events.len()), (1, 1, 12, 1));
    assert_eq!((lineage.events[0].run, lineage.events[0].rows_slower), (7, 1));
    assert_eq!(lineage.runs[7].differences, ["library: Open MPI 4.1.4 before, Open MPI 4.1.5 now"]);
    let schema = schemars::schema_for!(History).to_value();
    let document = serde_json::to_value(&history).unwrap();
    assert!(jsonschema::validator_for(&schema).unwrap().is_valid(&document));
}

#[test]
fn rows_that_count_in_too_few_runs_are_not_called_unchanged() {
    let of_rows_with_say = |with_say: usize| {
        let mut input = HistoryInput::default();
        for day in 0..7u32 {
            let mut loaded =
                loaded(&format!("{day}.jsonl"), lines(&format!("run-{day}"), &[vec![100.0; 3], vec![50.0; 3]]));
            loaded.record.header.started_at = format!("2026-11-{:02}T09:30:00+01:00", day + 1);
            // Unreliable in the first three, so that four count.
            let cases = &mut loaded.record.cases;
            let unreliable = cases.iter_mut().filter(|case| day < 3 && case.case as usize >= with_say);
            unreliable.for_each(|case| case.warnings.push("busy".to_owned()));
            input.add(&loaded.path.clone(), Ok(loaded));
        }
        history(input, HistoryRule { false_alarm_level: 0.05, relevant: 0.03 })
    };
    for (with_say, code, words) in [(0, 3, "2 of 2 rows"), (1, 0, "1 of 2 rows")] {
        let history = of_rows_with_say(with_say);
        assert_eq!(history.exit_code, code, "{words}");
        let text = |format| history_text(&history, format, 140, ShownRows::All).unwrap();
        for format in [HistoryFormat::Table, HistoryFormat::Html] {
            assert!(text(format).contains(&format!("{words} count in fewer than 6 runs")), "{}", text(format));
        }
        assert!(text(HistoryFormat::Junit).contains("too few runs for a change to be found"));
    }
}

#[test]
fn a_picture_is_made_of_each_row_that_changed_or_of_all() {
    let history = made("");
    assert_eq!((plots(&history, ShownRows::Changed).len(), plots(&history, ShownRows::All).len()), (1, 3));
    let (name, picture) = &plots(&history, ShownRows::Changed)[0];
    assert_eq!(name, "1-1-world-all_reduce-1.svg");
    assert!(picture.standalone().contains("+20"), "the step is written beside its line");
}

#[test]
fn no_format_passes_on_hostile_text() {
    let history = made(POISON);
    for format in HistoryFormat::value_variants() {
        let text = history_text(&history, *format, 120, ShownRows::All).unwrap();
        let bad = text.chars().find(|c| (c.is_control() && *c != '\n') || *c == '\u{202e}');
        assert_eq!(bad, None, "{format:?}");
        match format {
            HistoryFormat::Csv => assert!(!text.contains("\n=1"), "a spreadsheet would run it"),
            HistoryFormat::Html | HistoryFormat::Markdown | HistoryFormat::Junit => assert!(!text.contains("<img")),
            HistoryFormat::Github => assert!(text.lines().all(|line| line.starts_with("::")), "{text}"),
            HistoryFormat::Prometheus | HistoryFormat::Json | HistoryFormat::Table => {}
        }
    }
    for (name, picture) in plots(&history, ShownRows::All) {
        assert!(!picture.standalone().contains("<img") && !name.contains('/'), "{name}");
    }
}
