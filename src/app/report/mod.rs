//! What to show, then how: a record becomes a [`View`], a view becomes text in one of the formats.

mod columns;
pub mod document;
pub mod fit;
pub mod formats;

mod history;
mod html;

mod judged;
pub mod layout;
mod live;
mod locate;
pub mod model;
pub mod names;
pub mod nccl_faults;
pub mod ops;
mod pairs;
mod peer_table;
pub mod plan;

mod products;
mod provenance;
pub mod rank;
mod rehearsal;

mod row;
pub mod screen;
mod step;
mod template;
mod text;
pub mod trace;
pub mod validation;
mod verdict;
mod view;

#[cfg(test)]
mod report_tests;

pub use fit::{fit_plots, fit_text};
pub(crate) use formats::lines;
pub use formats::{answer, published, schema_of};
pub use history::{HistoryFormat, ShownRows, history_text, plots};
pub use html::{HtmlInput, HtmlRun, html, plan_page};
pub(crate) use judged::Answered;
pub use judged::Judged;
pub use live::LiveRows;
pub use locate::suspects_text;
pub use ops::framework_defaults;
pub(crate) use pairs::document::lines as pair_lines;
pub use products::replay_time;
pub use rehearsal::{
    GateOutlook, Power, REHEARSAL_FORMAT, REHEARSAL_VERSION, Rehearsed, outlook_text, plan_text, rehearsal_text,
    selftest_text,
};
pub use rehearsal::{launch_check_text, refusal};
pub(crate) use row::UNKNOWN_HOST;
pub use row::{Row, Status};
pub use template::Template;
pub(crate) use template::prose;
pub use text::{ColorChoice, Paint};
pub(crate) use text::{Line as RowLine, pretty_json, visible, written};
pub use verdict::{VerdictFormat, VerdictLook, verdict_text};
pub use view::{Combination, View, combinations_text};

use columns::{Noted, Section, sections};
use commgauge_base::error::Result;
use commgauge_base::units::Bytes;
use commgauge_base::variant;
use commgauge_model::record::line::Header;
use document::{Block, Fact, Mark, TableLayout, Terminal, markdown};
use minijinja::context;
use peer_table::Peer;
use std::collections::HashMap;
use std::io::Write;

/// How a report is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people, fitted to the width of the terminal.
    #[default]
    Table,
    /// One JSON document with everything in base units.
    Json,
    /// One row for each call, copy and matrix product, and for each pair of ranks where pairs were measured, with units in the column
    /// names.
    Csv,
    /// Tables for a page or an issue.
    Markdown,
    /// A test report in JUnit's XML: one test case for each call, copy and matrix product.
    Junit,
    /// A text file for the collector of Prometheus' node exporter.
    Prometheus,
    /// A line of SuperBench's results-summary.jsonl: one flat JSON object, times in microseconds and rates in GB/s.
    Superbench,
    /// The columns of nccl-tests, for programs that read those; holds the streaming cases only, because nccl-tests
    /// measures no others.
    NcclTests,
    /// The columns of the OSU micro-benchmarks, of mean times on the ranks.
    Osu,
    /// The columns of the Intel MPI benchmarks, of mean times on the ranks.
    Imb,
}

impl Format {
    /// What a line begins with that says more than the results; none where programs read the whole.
    pub fn comment_mark(self) -> Option<&'static str> {
        match self {
            Format::Table => Some(""),
            Format::NcclTests | Format::Osu | Format::Imb => Some("# "),
            _ => None,
        }
    }
}

/// Writes a view. `width` and `paint` are used by the table only.
///
/// A reader that closes the pipe early (`| head`) ends the writing quietly.
///
/// # Errors
/// An environment error where the text cannot be written.
pub fn render(view: &View, format: Format, width: u16, paint: Paint, out: &mut dyn Write) -> Result<()> {
    let text = match format {
        Format::Table => text(view, usize::from(width), paint),
        Format::Json => formats::text(view)?,
        Format::Csv => formats::csv_text(view)?,
        Format::Markdown => page(view),
        Format::Junit => formats::junit_text(view)?,
        Format::Prometheus => formats::prometheus_text(view)?,
        Format::Superbench => formats::superbench_text(view)?,
        Format::NcclTests => Peer::NcclTests.text(view),
        Format::Osu => Peer::Osu.text(view),
        Format::Imb => Peer::Imb.text(view),
    };
    written(out.write_all(text.as_bytes()).and_then(|()| out.flush()), "the report")
}

// The report for people: provenance, a table for each axis, style and cadence, then what follows from them, findings and warnings.
//
// The columns of cases are in `columns` and `section`. Nothing is truncated: where the width does not suffice, less important
// columns are left out, and paragraphs are wrapped.

/// The whole report, fitted to a width.
fn text(view: &View, width: usize, paint: Paint) -> String {
    let terminal = Terminal::new(width.max(MIN_WIDTH), paint);
    let mut notes = Notes::default();
    let numbers = notes.numbers_of(&view.rows);
    let mut out = terminal.draw(&provenance_in_short(&view.header));
    match &view.pairs {
        Some(pairs) => out += &pairs::text(pairs, terminal),
        None => {
            let noted = |index: usize| Noted { row: &view.rows[index], note: numbers[index] };
            for section in sections(&view.rows, &numbers) {
                let layout = section.layout(terminal.width());
                out += &section_head(&section, &layout, terminal);
                for line in section.lines() {
                    let row = section.row(noted(line.row), line.in_place.map(noted));
                    out += &layout.row(&row, terminal.paint());
                }
            }
        }
    }
    out + &format!("\n{}", terminal.draw(&closing(view, &notes)))
}

/// The same as Markdown.
fn page(view: &View) -> String {
    let mut notes = Notes::default();
    let cases = cases(view, &mut notes);
    let rows = view.pairs.as_ref().map_or(cases, pairs::document);
    let meaning = (view.pairs.is_none() && !view.rows.is_empty()).then(|| Block::text(legend(view)));
    let blocks =
        [provenance(&view.header, &view.provenance), rows, meaning.into_iter().collect(), closing(view, &notes)]
            .concat();
    format!("# commgauge: {}\n{}", document::escaped_markdown(&view.header.suite.name), markdown(&blocks))
}

/// The fewest columns of text that a report is fitted to.
const MIN_WIDTH: usize = 40;

/// A table for each section of cases, with all columns.
fn cases(view: &View, notes: &mut Notes) -> Vec<Block> {
    let numbers = notes.numbers_of(&view.rows);
    let table = |section: &Section| Block::Table(section.table(&view.rows, &numbers));
    sections(&view.rows, &numbers).iter().map(table).collect()
}

/// What comes after the rows: derived results, notes, findings and warnings.
fn closing(view: &View, notes: &Notes) -> Vec<Block> {
    let mut blocks: Vec<Block> = screen::document(view);
    blocks.extend(view.steps.iter().flat_map(|step| step::document(step, &view.rows)));
    blocks.extend(columns::disturbed_document(&view.contention, &view.interference));
    blocks.extend(products::soak_document(&view.rows, &view.header).map(Block::Table));
    blocks.extend(view::document(view));
    blocks.extend(products::document(&view.products, &view.header));
    blocks.extend(products::copies_document(&view.copies, &view.header));
    blocks.extend(products::replays_document(&view.replays, &view.steps));
    blocks.extend(notes.document());
    blocks.extend(Block::headed_list("Findings", Mark::Dash, &view.findings.all));
    match &view.warnings[..] {
        [one] => blocks.push(Block::marked(Mark::None, [format!("Warning: {one}")])),
        many => blocks.extend(Block::headed_list("Warnings", Mark::Dash, many)),
    }
    blocks.push(Block::Strong(view.summary()));
    blocks.extend(view::peaks(&view.rows).map(|peaks| Block::marked(Mark::None, [peaks])));
    blocks
}

/// Why cases are wrong, failed or skipped, each reason once, numbered in the order in which the rows come.
#[derive(Default)]
struct Notes {
    texts: Vec<String>,
    number_of: HashMap<String, usize>,
}

impl Notes {
    /// Number of the note for a row, from 1, where it has one.
    fn number_of(&mut self, row: &Row) -> Option<usize> {
        let texts = &mut self.texts;
        let number = self.number_of.entry(note(row)?).or_insert_with_key(|text| {
            texts.push(text.clone());
            texts.len()
        });
        Some(*number)
    }

    /// The notes by number.
    fn document(&self) -> Vec<Block> {
        Block::headed_list("Notes", Mark::Number, &self.texts)
    }

    /// Numbers of the notes for all rows.
    fn numbers_of(&mut self, rows: &[Row]) -> Vec<Option<usize>> {
        rows.iter().map(|row| self.number_of(row)).collect()
    }
}

fn note(row: &Row) -> Option<String> {
    let reason = row.status.reason()?;
    let label = row.status.label();
    // A mismatch belongs to one case; other reasons often apply to many, which then share a note.
    match row.status {
        Status::Wrong { .. } => Some(format!("{label}: {}: {reason}", row::in_words(&row.facts))),
        _ => Some(format!("{label}: {reason}")),
    }
}

/// Where the numbers come from.
fn provenance(header: &Header, facts: &[(&'static str, String)]) -> Vec<Block> {
    let warning = "SYNTHETIC: no data moved and no real time passed; these are not measurements";
    let facts = facts.iter().map(|(label, text)| Fact::new(*label, text));
    let alarm = header.backend.synthetic.then(|| Block::Alarm(warning.to_owned()));
    alarm.into_iter().chain([Block::Facts(facts.collect())]).collect()
}

/// Facts of a header that a terminal shows on one line.
const WHERE: [&str; 3] = ["ranks", "processor", "backend"];

/// Facts of a header that a terminal shows below; records, pages and Markdown have all.
const SHOWN_IN_SHORT: [&str; 5] = ["devices", "suite", "measuring", "variables", "note"];

/// What a reader of the rows must know.
fn provenance_in_short(header: &Header) -> Vec<Block> {
    let mut blocks = provenance(header, &provenance::of(header));
    for block in &mut blocks {
        let Block::Facts(facts) = block else { continue };
        let text = |label: &&str| facts.iter().find(|fact| fact.label == *label).map(|fact| fact.text.clone());
        let on = WHERE.iter().filter_map(text).collect::<Vec<_>>().join("; ");
        // A sweep by flags has no file; its rows say what it is.
        let is_shown =
            |label: &str| SHOWN_IN_SHORT.contains(&label) && (label != "suite" || header.suite.path.is_some());
        facts.retain(|fact| is_shown(&fact.label));
        facts.insert(0, Fact::new("run on", on));
    }
    blocks
}

/// The text above the rows of a section on a terminal.
fn section_head(section: &Section, layout: &TableLayout, terminal: Terminal) -> String {
    format!("\n{}{}", terminal.draw(&[Block::heading(section.heading(layout))]), layout.head())
}

/// The meaning of the columns that are shown.
fn legend(view: &View) -> String {
    let any = |holds: fn(&Row) -> bool| view.rows.iter().any(holds);
    let has_vectors =
        any(|Row { facts, .. }| facts.bytes_accounted != facts.bytes_total && facts.bytes_total != Bytes(0));
    let shown = context! {
        ping_pong => any(|row| row.facts.transfers_per_call > 1),
        lacks_p99 => any(|row| row.latency.is_some_and(|latency| latency.p99.is_none())),
        precision => any(|row| row.precision_requested.is_some()),
        bound => any(|row| row.bound_share.is_some()),
        variant => any(|row| !variant::shown(&row.facts.labels).is_empty()),
        estimate => any(|row| row.library_estimate.is_some()),
        choice => any(|row| !row.library_choices.is_empty()),
        has_vectors,
    };
    template::lines("legend.txt", include_str!("templates/legend.txt"), shown).join(" ")
}

#[cfg(test)]
mod entry_tests {
    // Copies and matrix products are in every format for programs, in the way of calls.
    use super::*;
    use commgauge_judge::verdict::testing::{copy_lines, lines, product_lines, with_own_work};
    use commgauge_model::record::line::Outcome;
    use commgauge_model::record::{Line, Record};

    const EVERY: [Format; 7] = [
        Format::Json,
        Format::Csv,
        Format::Junit,
        Format::Prometheus,
        Format::Superbench,
        Format::NcclTests,
        Format::Osu,
    ];

    /// A call, a copy of a gigabyte in 20 ms and a product of two billion operations in 40 ms, after a change of their lines.
    fn record(change: impl Fn(&mut Outcome)) -> Record {
        let mut own_work = [copy_lines(&[20.0; 3]), product_lines(&[40.0; 3])].concat();
        for line in &mut own_work {
            match line {
                Line::Copy(copy) => change(&mut copy.outcome),
                Line::Product(product) => change(&mut product.outcome),
                _ => {}
            }
        }
        Record::from_lines(with_own_work(lines("a", &[vec![100.0; 3]]), own_work)).unwrap()
    }

    fn rendered(record: &Record, format: Format) -> String {
        let mut out = Vec::new();
        render(&View::new(record), format, 100, Paint::Plain, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn copies_and_products_have_a_line_in_each_format_for_programs() {
        let record = record(|_| {});
        let (copy, product) = ("copy/host-to-device/pinned/1000000000/alone", "product/float32/1000x1000x1000");
        for (format, words) in [
            (
                Format::Junit,
                vec![format!("name=\"{copy}\""), format!("name=\"{product}\""), "rank.host-to-device".to_owned()],
            ),
            (
                Format::Prometheus,
                vec![
                    format!(
                        "commgauge_row_copy_bytes_per_second{{axis=\"rank\",backend=\"mpi\",bytes=\"1000000000\",case=\"{copy}\""
                    ),
                    format!(
                        "commgauge_row_flops_per_second{{axis=\"rank\",backend=\"mpi\",bytes=\"\",case=\"{product}\""
                    ),
                    "commgauge_record_rows{status=\"verified\"} 3".to_owned(),
                    "statistic=\"median\"} 0.02\n".to_owned(),
                ],
            ),
            (
                Format::Superbench,
                vec![
                    "copy_host-to-device_pinned_1000000000_alone_bw\":50.0".to_owned(),
                    "product_float32_1000x1000x1000_flops\":50.0".to_owned(),
                    "rows_verified\":3.0".to_owned(),
                ],
            ),
            (Format::Csv, vec![format!("\n{copy},rank,"), format!("\n{product},rank,"), ",50000000000\n".to_owned()]),
            (Format::NcclTests, vec!["copies (1) and matrix products (1) have no columns here".to_owned()]),
            (Format::Osu, vec!["copies (1) and matrix products (1) have no columns here".to_owned()]),
        ] {
            let text = rendered(&record, format);
            for word in words {
                assert!(text.contains(&word), "{format:?} lacks {word}: {text}");
            }
        }
        assert_eq!(View::new(&record).exit_code(), 0);
    }

    #[test]
    fn a_wrong_copy_has_no_numbers_in_any_format_and_an_unverified_one_is_no_success() {
        let wrong = Outcome::corrupt("after", 1, 7, ["3", "4"], 1);
        let corrupt = record(|outcome| *outcome = wrong.clone());
        assert_eq!(View::new(&corrupt).exit_code(), 4);
        for format in EVERY {
            let text = rendered(&corrupt, format);
            for number in ["50000000000", "\":50.0", "bytes_per_second\": 5"] {
                assert!(!text.contains(number), "{format:?}: {text}");
            }
        }
        assert!(rendered(&corrupt, Format::Junit).contains("<failure"));
        let unchecked = record(|outcome| *outcome = Outcome::Measured { verified: false });
        assert!(
            rendered(&unchecked, Format::Junit).contains("skipped=\"2\""),
            "{}",
            rendered(&unchecked, Format::Junit)
        );
        let table = rendered(&unchecked, Format::Table);
        assert!(table.contains("1 copy: 1 not verified") && !table.contains("1 right"), "{table}");
    }

    #[test]
    fn a_replicate_that_a_copy_lacks_is_missing_as_that_of_a_call_is() {
        let short = Record::from_lines(with_own_work(lines("a", &[vec![100.0; 3]]), copy_lines(&[20.0; 2]))).unwrap();
        assert_eq!(View::new(&short).exit_code(), 7);
        assert!(rendered(&short, Format::Junit).contains("2 of 3 replicates measured"));
    }
}

#[cfg(test)]
mod whole_tests {
    // Reports of replays and of interference, against answers computed by hand.
    use super::*;
    use commgauge_base::collective::Collective;
    use commgauge_base::element::ElementType;
    use commgauge_base::units::{Bytes, Seconds};
    use commgauge_model::layout::Axis;
    use commgauge_model::record::Record;
    use commgauge_model::record::line::Outcome;
    use commgauge_model::record::work_lines::{InterferenceLine, InterferingCall};
    use commgauge_model::record::work_lines::{ReplayAxis, ReplayLine};
    use commgauge_model::workload::Style;

    /// A valid record, to which a test adds its own lines.
    fn record() -> Record {
        let mut record = commgauge_model::record::testing::sample();
        record.plan.cases.truncate(1);
        record.cases.retain(|case| case.case == 0);
        let end = record.end.as_mut().unwrap();
        (end.status, end.exit_code, end.error) = (commgauge_model::record::line::EndStatus::Complete, 0, None);
        record
    }

    fn call(axis: Axis, bytes: u64) -> InterferingCall {
        let (style, collective) = (Style::Tensor, Collective::AllReduce);
        InterferingCall { axis, style, collective, element_type: ElementType::Float32, bytes_total: Bytes(bytes) }
    }

    /// 100 us alone, 150 us together; in three of four repetitions the other was still waited for.
    fn interference(replicate: u32) -> InterferenceLine {
        InterferenceLine {
            step: 0,
            replicate,
            timed: call(Axis::Tp, 1 << 20),
            overlapping: call(Axis::Dp, 4 << 20),
            outcome: Outcome::Measured { verified: true },
            calls_beside: 2,
            alone_nanoseconds: vec![100_000; 4],
            together_nanoseconds: vec![150_000; 4],
            still_waited_nanoseconds: vec![20_000, 20_000, 20_000, 1_500],
            beside_alone_nanoseconds: vec![60_000, 75_000, 90_000],
        }
    }

    fn replay() -> ReplayLine {
        ReplayLine {
            step: 0,
            schedule: "1f1b".to_owned(),
            forward_seconds_per_layer: Seconds(1e-3),
            outcome: Outcome::Measured { verified: true },
            warm_up_repetitions: 2,
            slowest_nanoseconds: vec![10_000_000, 11_000_000, 12_000_000],
            slowest_rank: vec![0; 3],
            computing_nanoseconds_median: 4_000_000,
            axes: vec![ReplayAxis {
                axis: Axis::Tp,
                waiting_nanoseconds_median: 3_000_000,
                under_way_nanoseconds_median: 4_000_000,
                overlap_efficiency: Some(0.25),
                calls_counted: 8,
                payload_bytes_counted: Bytes(1000),
                payload_bytes_listed: Bytes(1000),
                wire_bytes_counted: Bytes(500),
                wire_bytes_listed: Bytes(501),
                hidden_calls: Vec::new(),
            }],
            overlap_efficiency: Some(0.25),
            rank_nanoseconds_median: vec![11_000_000],
            timeline: None,
            job_nanoseconds: None,
            bytes_as_listed: false,
        }
    }

    fn table(record: &Record) -> String {
        let mut out = Vec::new();
        render(&View::new(record), Format::Table, 140, Paint::Plain, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_failed_replay_or_interference_measurement_decides_the_exit_code() {
        let failed = || Outcome::Failed { reason: "no memory".to_owned() };
        let corrupt = || Outcome::corrupt("before", 1, 2, ["3", "4"], 1);
        assert_eq!(View::new(&record()).exit_code(), 0);
        for (outcome, code, said) in [(failed(), 6, "no memory"), (corrupt(), 4, "WRONG")] {
            let mut with_replay = record();
            with_replay.replays.push(ReplayLine { outcome: outcome.clone(), ..replay() });
            let mut with_pair = record();
            with_pair.interference.push(InterferenceLine { outcome, ..interference(0) });
            for record in [with_replay, with_pair] {
                assert_eq!(View::new(&record).exit_code(), code, "{said}");
                assert!(table(&record).contains(said), "{}", table(&record));
            }
        }
    }

    #[test]
    fn interference_is_the_ratio_of_paired_medians_with_the_share_of_certain_overlap() {
        let mut record = record();
        record.interference.extend((0..6).map(interference));
        let view = View::new(&record);
        let [pair] = view.interference.as_slice() else { panic!("{:?}", view.interference) };
        assert_eq!((pair.slowdown.factor_median, pair.slowdown.replicates), (Some(1.5), 6));
        assert!(pair.slowdown.factor_interval_low.is_some());
        // Three repetitions wholly; in the fourth the wait is that for nothing, and one call takes 60 us of the 150 us.
        assert!((pair.certain_overlap.unwrap() - (3.0 + 0.4) / 4.0).abs() < 1e-9, "{pair:?}");
        assert!(table(&record).contains("slower together"));
        record.interference.truncate(5);
        let pair = View::new(&record).interference.remove(0);
        assert_eq!(
            (pair.slowdown.factor_median, pair.slowdown.factor_interval_low),
            (Some(1.5), None),
            "five replicates give no interval"
        );
    }

    #[test]
    fn a_replay_says_its_time_and_whether_its_bytes_are_those_of_the_list() {
        let mut record = record();
        record.replays.push(replay());
        let time = replay_time(&record.replays[0]).unwrap();
        assert!((time.median.0 - 11e-3).abs() < 1e-12 && time.interval.is_none(), "{time:?}");
        let text = table(&record);
        insta::assert_snapshot!(&text[text.find("replay:").unwrap()..]);
    }

    #[test]
    fn a_replayed_trace_is_compared_with_the_job_itself() {
        let mut record = record();
        let (schedule, job_nanoseconds) = ("trace".to_owned(), Some(5_500_000));
        record.replays.push(ReplayLine { schedule, job_nanoseconds, bytes_as_listed: true, ..replay() });
        let text = table(&record);
        for words in [
            "replay of a trace",
            "the whole trace: 11.0 ms",
            "the job itself took 5.50 ms from its first call to its last: the replay takes 2.00 times that",
            "every rank moved exactly the bytes of the trace",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
    }
}
