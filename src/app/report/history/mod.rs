//! A history as text and pictures: what changed first, then the rows, then what was left out.

mod document;

pub use document::{ShownRows, plots};

use super::document::{Terminal, markdown};
use super::text::harmless;
use crate::report::document::signed_percent;
use crate::report::formats::{Level, annotation, case, non_success, skipped, suite, test_report_text as xml};
use crate::report::template::through;
use commgauge_base::error::Result;
use commgauge_base::units::counted;
use commgauge_base::writing::{Column, comma_separated};
use commgauge_judge::verdict::history::{Change, History, Lineage, Series};
use quick_junit::{NonSuccessKind, TestCase, TestCaseStatus};

/// How a history is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum HistoryFormat {
    /// For people, fitted to the width of the terminal.
    #[default]
    Table,
    /// One JSON document in base units, whose schema `commgauge show schema history` prints.
    Json,
    /// One row for each run of each case.
    Csv,
    /// Tables for a page or an issue.
    Markdown,
    /// A page with every row; `-o FILE.html` makes it, too.
    Html,
    /// A test report in JUnit's XML: a row that is slower since its last change fails.
    Junit,
    /// A text file for the collector of Prometheus' node exporter.
    Prometheus,
    /// Annotations of a GitHub workflow.
    Github,
}

/// For the collector of Prometheus' node exporter: the newest run of each row, and its last change.
const HISTORY_PROM: &str = concat!(include_str!("../templates/row.prom"), include_str!("../templates/history.prom"));

/// The history as text. `width` is used by the table only, `shown` by the table and Markdown.
///
/// # Errors
/// Where a document cannot be written as JSON, CSV, XML or HTML.
pub fn history_text(history: &History, format: HistoryFormat, width: u16, shown: ShownRows) -> Result<String> {
    match format {
        HistoryFormat::Table => Ok(Terminal::plain(width).draw(&document::document(history, shown))),
        HistoryFormat::Csv => csv_text(history),
        HistoryFormat::Markdown => {
            Ok(format!("# commgauge history\n{}", markdown(&document::document(history, shown))))
        }
        HistoryFormat::Html => document::text(history),
        HistoryFormat::Junit => junit_text(history),
        HistoryFormat::Prometheus => through("history.prom", HISTORY_PROM, history),
        HistoryFormat::Github => Ok(github_text(history)),
        HistoryFormat::Json => super::text::pretty_json(history),
    }
}

// The history as comma-separated values: one row for each run of each case, units in the column names.

/// A run of a case.
struct RunRow<'a> {
    lineage: &'a Lineage,
    case: &'a Series,
    run: usize,
}

fn csv_text(history: &History) -> Result<String> {
    let cases = history.lineages.iter().flat_map(|lineage| lineage.rows.iter().map(move |case| (lineage, case)));
    let runs = cases.flat_map(|(lineage, case)| (0..lineage.runs.len()).map(move |run| RunRow { lineage, case, run }));
    comma_separated("the history as CSV", &columns(), runs)
}

fn columns<'a>() -> Vec<Column<RunRow<'a>>> {
    vec![
        Column::new("suite", |row| harmless(&row.lineage.suite)),
        Column::new("place", |row| harmless(&row.lineage.place)),
        Column::new("case", |row| harmless(&row.case.name)),
        Column::new("bytes_total", |row| {
            row.case.subject.bytes().map_or_else(String::new, |bytes| bytes.0.to_string())
        }),
        Column::new("run_id", |row| harmless(&row.lineage.runs[row.run].run_id)),
        Column::new("started_at", |row| harmless(&row.lineage.runs[row.run].started_at)),
        Column::new("latency_seconds_median", |row| number(row.case.latency_seconds.get(row.run).copied().flatten())),
        Column::new("slowdown_since_change", |row| number(row.change().map(|change| change.slowdown))),
        Column::new("p_corrected", |row| number(row.change().map(|change| change.p_corrected))),
    ]
}

impl RunRow<'_> {
    fn change(&self) -> Option<&Change> {
        self.case.changes.iter().find(|change| change.run as usize == self.run)
    }
}

fn number(value: Option<f64>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

// The history as annotations of a GitHub workflow: what is slower now first, then what became faster and what was left out.

/// Files that are listed one by one.
const MAX_LEFT_OUT: usize = 10;

fn github_text(history: &History) -> String {
    let of_rows = |lineage: &'_ Lineage| -> Vec<(f64, String)> {
        lineage.rows.iter().filter_map(|row| Some(of_change(lineage, row, row.changes.last()?))).collect()
    };
    let mut changed: Vec<(f64, String)> = history.lineages.iter().flat_map(of_rows).collect();
    changed.sort_by(|one, other| other.0.total_cmp(&one.0));
    let mut out: String = changed.into_iter().map(|(_, line)| line).collect();
    if history.exit_code == 3 {
        out += &annotation(Level::Warning, "commgauge history", "too few runs to find any change");
    }
    for file in history.left_out.iter().take(MAX_LEFT_OUT) {
        out += &annotation(Level::Warning, "commgauge history: left out", &format!("{}: {}", file.path, file.reason));
    }
    if history.left_out.len() > MAX_LEFT_OUT {
        let more = format!("{} more files are left out", history.left_out.len() - MAX_LEFT_OUT);
        out += &annotation(Level::Warning, "commgauge history: left out", &more);
    }
    if out.is_empty() {
        out += &annotation(Level::Notice, "commgauge history", "no row changed");
    }
    out
}

/// The slow-down, by which lines are sorted, and the line.
fn of_change(lineage: &Lineage, row: &Series, change: &Change) -> (f64, String) {
    let level = if change.slowdown > 0.0 { Level::Error } else { Level::Notice };
    let text = format!("{} time since {}", signed_percent(change.slowdown), lineage.run_and_why(change.run));
    (change.slowdown, annotation(level, &format!("commgauge history: {}", row.name), &text))
}

// The history as a JUnit report: a test case for each row, which fails where the row is slower since its last change.

fn junit_text(history: &History) -> Result<String> {
    let mut suite = suite();
    for lineage in &history.lineages {
        suite.add_test_cases(lineage.rows.iter().map(|row| of_row(lineage, row)));
    }
    for file in &history.left_out {
        suite.add_test_case(case("left out", &file.path, skipped(&file.reason)));
    }
    if history.exit_code == 3 {
        let message = "too few runs to find any change";
        suite.add_test_case(case("history", "runs", non_success(NonSuccessKind::Error, message, "exit code 3")));
    }
    let runs: usize = history.lineages.iter().map(|lineage| lineage.runs.len()).sum();
    xml(&format!("history of {}", counted(runs, "run")), suite)
}

fn of_row(lineage: &Lineage, row: &Series) -> TestCase {
    let class = format!("{}.{}.{}", lineage.suite, row.subject.axis(), row.subject.what());
    let status = match row.slower_since() {
        Some(change) => {
            let message = format!("{} time since {}", signed_percent(change.slowdown), lineage.run_and_why(change.run));
            non_success(NonSuccessKind::Failure, &message, "slower")
        }
        None if row.latency_seconds.last().copied().flatten().is_none() => skipped("the newest run did not measure it"),
        None if !row.can_show_change() => skipped("it counts in too few runs for a change to be found"),
        None => TestCaseStatus::success(),
    };
    case(&class, &row.name, status)
}

#[cfg(test)]
mod tests {
    // The history in every format as published, and nothing hostile in any.
    use super::*;
    use clap::ValueEnum;
    use commgauge_judge::verdict::history::{HistoryInput, HistoryRule, history};
    use commgauge_judge::verdict::testing::{copy_lines, lines, loaded, product_lines, with_own_work};
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
            let own_work =
                [copy_lines(&[20.0 * slow * scatter(0); 3]), product_lines(&[40.0 * scatter(1); 3])].concat();
            let run = with_own_work(lines(&format!("run-{day:02}"), &[vec![100.0 * scatter(2); 3]]), own_work);
            let mut loaded = loaded(&format!("runs/{day:02}.jsonl"), run);
            loaded.record.header.started_at = format!("2026-11-{:02}T09:30:00+01:00", day + 1);
            input.add(&loaded.path.clone(), Ok(loaded));
        }
        let history = history(input, HistoryRule { false_alarm_level: 0.05, relevant: 0.03 });
        let rows = &history.lineages[0].rows;
        let changed: Vec<&str> =
            rows.iter().filter(|row| !row.changes.is_empty()).map(|row| row.name.as_str()).collect();
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
        assert_eq!(
            (history.exit_code, history.lineages.len(), lineage.runs.len(), lineage.events.len()),
            (1, 1, 12, 1)
        );
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
                assert!(text(format).contains(&format!("{words} are in fewer than 6 runs")), "{}", text(format));
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
        assert!(picture.standalone().contains("+20"), "the step is written next to its line");
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
}
