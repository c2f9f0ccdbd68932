//! Golden reports of one record in every format, and properties of any report.

use super::*;
use commgauge_model::record::line::{CaseLine, ClockErrors, EndStatus, Outcome};
use commgauge_model::record::testing::{sample, sample_lines};
use commgauge_model::record::{Line, Record};

const EVERY: [Format; 8] = [
    Format::Table,
    Format::Json,
    Format::Csv,
    Format::Markdown,
    Format::Junit,
    Format::Prometheus,
    Format::Superbench,
    Format::NcclTests,
];

pub(super) fn rendered(record: &Record, format: Format, width: u16, paint: Paint) -> String {
    let mut out = Vec::new();
    render(&View::new(record), format, width, paint, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn every_format_of_the_sample_is_as_published() {
    let record = sample();
    for width in [80, 140] {
        insta::assert_snapshot!(format!("table_{width}"), rendered(&record, Format::Table, width, Paint::Plain));
    }
    insta::assert_snapshot!(
        "table_80_colored",
        rendered(&record, Format::Table, 80, Paint::Colors).replace('\x1b', "ESC")
    );
    for (name, format) in [
        ("json", Format::Json),
        ("csv", Format::Csv),
        ("markdown", Format::Markdown),
        ("junit", Format::Junit),
        ("prometheus", Format::Prometheus),
        ("superbench", Format::Superbench),
        ("nccl_tests", Format::NcclTests),
    ] {
        let narrow = rendered(&record, format, 80, Paint::Plain);
        assert_eq!(narrow, rendered(&record, format, 140, Paint::Colors), "{name} depends on neither width nor colour");
        insta::assert_snapshot!(name, narrow);
    }
}

#[test]
fn the_table_fits_the_width() {
    let record = sample();
    for width in [80u16, 100, 120, 140, 200] {
        for line in rendered(&record, Format::Table, width, Paint::Plain).lines() {
            assert!(line.chars().count() <= usize::from(width), "wider than {width}: {line}");
        }
    }
}

/// A record with hostile content in every text from outside.
fn hostile() -> Record {
    const POISON: &str = "=1\x1b[31m|`<b>\"x\", \u{9b}2J\r\n@_*\u{202e}";
    let mut record = sample();
    let poison = || POISON.to_owned();
    for rank in &mut record.header.ranks {
        (rank.host, rank.processor, rank.kernel, rank.device) = (poison(), poison(), poison(), Some(poison()));
    }
    let header = &mut record.header;
    (header.run_id, header.program, header.suite.name) = (poison(), poison(), poison());
    (header.backend.library, header.backend.name, header.backend.transport) = (poison(), poison(), Some(poison()));
    header.environment.insert(poison(), poison());
    header.command_line.push(poison());
    header.launch_command = None;
    header.warnings.push(poison());
    for case in &mut record.plan.cases {
        case.name = poison();
    }
    for case in &mut record.cases {
        case.warnings.push(poison());
        if let Outcome::Skipped { reason } = &mut case.outcome {
            *reason = poison();
        }
        if let Outcome::Corrupt { expected, got, .. } = &mut case.outcome {
            (*expected, *got) = (poison(), poison());
        }
    }
    record
}

#[test]
fn no_format_passes_on_hostile_text() {
    let record = hostile();
    for format in EVERY {
        let text = rendered(&record, format, 140, Paint::Plain);
        let bad = text.chars().find(|c| (c.is_control() && *c != '\n') || *c == '\u{202e}');
        assert_eq!(bad, None, "{format:?}");
        let plain = rendered(&sample(), format, 140, Paint::Plain);
        if matches!(format, Format::Csv | Format::NcclTests) {
            assert_eq!(text.lines().count(), plain.lines().count(), "{format:?}: a line break got through");
        }
    }
    let markdown = rendered(&record, Format::Markdown, 80, Paint::Plain);
    assert!(!markdown.contains("<b>") && markdown.contains("\\|"), "{markdown}");
    let mut cells = 0;
    for row in markdown.lines().filter(|line| line.starts_with("| ")) {
        // The first line of each table says how many columns it has.
        cells = if row.starts_with("| collective |") { row.matches(" | ").count() } else { cells };
        assert_eq!(row.matches(" | ").count(), cells, "{row}");
    }
    let csv = rendered(&record, Format::Csv, 80, Paint::Plain);
    for record in ::csv::Reader::from_reader(csv.as_bytes()).records() {
        for cell in &record.unwrap() {
            assert!(!cell.starts_with(['=', '+', '-', '@']), "{cell}");
        }
    }
    let json: serde_json::Value = serde_json::from_str(&rendered(&record, Format::Json, 80, Paint::Plain)).unwrap();
    assert_eq!(json["provenance"]["ranks"][0]["host"], record.header.ranks[0].host, "host names arrive as they are");
}

#[test]
fn without_colour_there_is_no_escape_and_with_it_the_text_is_the_same() {
    for record in [sample(), hostile()] {
        let plain = rendered(&record, Format::Table, 100, Paint::Plain);
        assert!(!plain.contains('\x1b'));
        let mut colored = rendered(&record, Format::Table, 100, Paint::Colors);
        assert!(colored.contains('\x1b'));
        while let Some(start) = colored.find('\x1b') {
            let end = start + colored[start..].find('m').unwrap();
            colored.replace_range(start..=end, "");
        }
        let trimmed = |text: &str| text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n");
        assert_eq!(trimmed(&colored), trimmed(&plain));
    }
}

#[test]
fn numbers_are_those_of_the_samples() {
    let view = View::new(&sample());
    let row = |name: &str| view.rows.iter().find(|row| row.facts.name.contains(name)).unwrap();
    let ping_pong = row("ping_pong");
    let latency = ping_pong.latency.unwrap();
    // About 31.4 us one way in the sample, 30 calls in a sample of two ways each.
    assert!((30e-6..33e-6).contains(&latency.median.0), "{latency:?}");
    let interval = latency.interval.unwrap();
    assert!(interval.low.0 <= latency.median.0 && latency.median.0 <= interval.high.0);
    assert_eq!(ping_pong.algbw.unwrap().0, 65536.0 / latency.median.0);
    assert_eq!(latency.p99, None, "36 samples");
    assert!(row("tp/tensor/all_reduce").latency.unwrap().p99.is_some(), "120 samples");
    let dp = row("dp/data/all_reduce");
    assert_eq!(dp.bound_share.unwrap(), dp.busbw.unwrap().0 / 12.5e9);
    assert_eq!(dp.latency.unwrap().interval, None, "four samples in a replicate give no interval");
    assert_eq!((row("barrier").algbw, row("barrier").counts.replicates), (None, 2));
    assert_eq!(row("all_gather").latency, None, "numbers of wrong data are withheld");
}

#[test]
fn no_planned_case_is_silently_absent() {
    let record = sample();
    let view = View::new(&record);
    assert_eq!(view.rows.len(), record.plan.cases.len());
    for (name, label) in [
        ("broadcast", "missing"),
        ("all_gather", "WRONG"),
        ("reduce_scatter", "skipped"),
        ("barrier", "not verified"),
        ("ping_pong", "verified"),
    ] {
        let row = view.rows.iter().find(|row| row.facts.name.contains(name)).unwrap();
        assert_eq!(row.status.label(), label, "{name}");
    }
    assert!(view.warnings.iter().any(|warning| warning.contains("2 of 3 replicates")), "{:?}", view.warnings);
}

#[test]
fn a_warning_that_applies_to_many_cases_is_reported_once() {
    let mut record = sample();
    for case in &mut record.cases {
        case.warnings = vec!["the machine is busy".to_owned()];
        if !case.samples.slowest_nanoseconds.is_empty() {
            case.samples.excluded = vec![(0, commgauge_base::sample::ExclusionReason::MissedStart)];
        }
    }
    let warnings = View::new(&record).warnings;
    let busy: Vec<&String> = warnings.iter().filter(|warning| warning.contains("the machine is busy")).collect();
    assert_eq!(busy.len(), 1, "{warnings:?}");
    assert!(busy[0].starts_with("12 cases, the first tp all_reduce of 2 ranks, "), "{busy:?}");
    assert!(warnings.iter().any(|warning| warning.contains("samples in 11 cases are unreliable")), "{warnings:?}");
}

#[test]
fn the_late_rank_is_named_only_where_the_clocks_are_good_enough() {
    fn errors(case: &CaseLine, by_rank: &[u64]) -> Vec<ClockErrors> {
        vec![ClockErrors::of_batch(case.samples.last_rank.len() as u32, by_rank)]
    }
    let named = |change: fn(&mut Record)| {
        let mut record = sample();
        change(&mut record);
        View::new(&record).findings.all.join("\n")
    };
    let finding = named(|_| ());
    assert!(finding.contains("rank 3 (host node-b) arrived last in at least 9"), "{finding}");
    assert!(finding.contains("2.01 ms"), "{finding}");
    assert_eq!(named(|record| record.clocks[1].residual_nanoseconds = 3_000_000), "");
    // Both arrivals may be off by the error of a device's clock.
    let of_devices = |record: &mut Record| {
        record.cases.iter_mut().for_each(|case| case.samples.clock_errors = errors(case, &[1_100_000; 4]));
    };
    assert_eq!(named(of_devices), "");
    // Those of ranks that came neither first nor last do not count, nor do bad batches where most are good.
    let of_one = |record: &mut Record| {
        record.cases.iter_mut().for_each(|case| case.samples.clock_errors = errors(case, &[0, 1_100_000, 0, 10_000]));
    };
    assert_ne!(named(of_one), "");
    assert_eq!(named(|record| record.clocks.clear()), "");
    let after_barrier =
        |record: &mut Record| record.clocks[0].method = commgauge_model::record::line::ClockMethod::Barrier;
    assert_eq!(named(after_barrier), "");
    // No rank is last more often than by chance.
    let evenly_spread = |record: &mut Record| {
        for case in &mut record.cases {
            (0..).zip(&mut case.samples.last_rank).for_each(|(index, last)| *last = index % 4);
        }
    };
    assert_eq!(named(evenly_spread), "");
}

#[test]
fn synthetic_results_say_so_everywhere() {
    let mut record = sample();
    record.header.backend.synthetic = true;
    let view = View::new(&record);
    assert!(!view.rows.iter().any(|row| row.status == Status::Verified));
    for format in EVERY {
        let text = rendered(&record, format, 80, Paint::Plain).to_lowercase();
        assert!(text.contains("synthetic"), "{format:?}");
    }
}

#[test]
fn the_exit_code_is_that_of_the_most_severe_problem() {
    let whole = |record: &mut Record| {
        record.plan.cases.truncate(1);
        record.cases.retain(|case| case.case == 0);
        record.end.as_mut().unwrap().status = EndStatus::Complete;
        record.end.as_mut().unwrap().exit_code = 0;
    };
    let fail = |record: &mut Record, code| {
        record.end.as_mut().unwrap().status = EndStatus::Failed;
        record.end.as_mut().unwrap().exit_code = code;
    };
    type Change<'a> = &'a dyn Fn(&mut Record);
    let cases: [(&str, i32, Change); 10] = [
        ("the sample holds wrong data", 4, &|_| ()),
        ("complete and right", 0, &whole),
        ("cut off", 7, &|record| {
            whole(record);
            record.end = None;
        }),
        ("interrupted", 7, &|record| {
            whole(record);
            record.end.as_mut().unwrap().status = EndStatus::Interrupted;
        }),
        ("a replicate is missing", 7, &|record| {
            whole(record);
            record.cases.pop();
        }),
        ("a case is missing", 7, &|record| {
            whole(record);
            record.cases.clear();
        }),
        ("no sample counts", 7, &|record| {
            whole(record);
            for case in &mut record.cases {
                case.samples.excluded =
                    (0..40).map(|index| (index, commgauge_base::sample::ExclusionReason::MissedStart)).collect();
            }
        }),
        ("a case failed", 6, &|record| {
            whole(record);
            record.cases[0].outcome = Outcome::Failed { reason: "rank 1: out of memory".to_owned() };
        }),
        ("the run hung", 5, &|record| {
            whole(record);
            fail(record, 5);
        }),
        ("all skipped is neither failed nor passed", 0, &|record| {
            whole(record);
            for case in &mut record.cases {
                case.outcome = Outcome::Skipped { reason: "no device".to_owned() };
            }
        }),
    ];
    for (what, code, change) in cases {
        let mut record = sample();
        change(&mut record);
        assert_eq!(View::new(&record).exit_code(), code, "{what}");
    }
}

#[test]
fn a_record_without_any_case_still_makes_a_report() {
    let mut record = sample();
    record.plan.cases.clear();
    record.cases.clear();
    (record.header.ranks, record.clocks) = (Vec::new(), Vec::new());
    assert_eq!(View::new(&record).exit_code(), 7);
    for format in EVERY {
        rendered(&record, format, 80, Paint::Plain);
    }
}

#[test]
fn a_reader_that_closes_the_pipe_ends_the_report_quietly() {
    use std::io::ErrorKind;
    struct Closed(ErrorKind);
    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(self.0.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let view = View::new(&sample());
    assert!(render(&view, Format::Table, 80, Paint::Plain, &mut Closed(ErrorKind::BrokenPipe)).is_ok());
    let error = render(&view, Format::Table, 80, Paint::Plain, &mut Closed(ErrorKind::StorageFull)).unwrap_err();
    assert_eq!(error.exit_code(), 6);
}

#[test]
fn the_columns_of_nccl_tests_are_where_that_tool_puts_them() {
    let text = rendered(&sample(), Format::NcclTests, 80, Paint::Plain);
    let row =
        text.lines().find(|line| line.starts_with("           8             2     float     sum      -1  ")).unwrap();
    assert_eq!(row.len(), "           8             2     float     sum      -1     5.63    0.00    0.00      0     0.20    0.04    0.00      0".len());
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(cells.len(), 13, "{row}");
    for number in [5, 6, 7, 9, 10, 11] {
        assert!(cells[number].parse::<f64>().is_ok(), "{row}");
    }
    assert!(text.contains("# Out of bounds values : 0 OK\n# Avg bus bandwidth    : "));
}

#[test]
fn a_line_of_superbench_is_flat_and_keeps_wrong_and_synthetic_numbers_away_from_rules_of_measured_ones() {
    let line = rendered(&sample(), Format::Superbench, 80, Paint::Plain);
    assert_eq!(line.lines().count(), 1, "{line}");
    let object: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&line).unwrap();
    let (node, metrics): (Vec<_>, Vec<_>) = object.iter().partition(|(name, _)| *name == "node");
    assert!(node[0].1.is_string() && metrics.iter().all(|(_, value)| value.is_number()), "{line}");
    assert!(metrics.iter().all(|(name, _)| name.split_once('/').is_some_and(|(_, metric)| !metric.contains('/'))));
    let wrong = metrics.iter().find(|(name, _)| name.ends_with("/rows_wrong")).unwrap().1;
    assert!(wrong.as_f64() > Some(0.0), "{line}");
    let with_numbers = metrics.iter().filter(|(name, _)| name.ends_with("_time")).count();
    let view = View::new(&sample());
    assert_eq!(with_numbers, view.rows.iter().filter(|row| row.latency.is_some()).count());
    let mut synthetic = sample();
    synthetic.header.backend.synthetic = true;
    let line = rendered(&synthetic, Format::Superbench, 80, Paint::Plain);
    assert!(line.contains("commgauge-synthetic:") && !line.contains("commgauge:"), "{line}");
}

#[test]
fn live_rows_equal_those_of_the_report() {
    let content = |text: &str| -> Vec<String> {
        let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
        // Rules depend on the column widths, which are decided before the first row.
        lines.filter(|line| !line.starts_with("---")).collect()
    };
    for format in [Format::Table, Format::NcclTests, Format::Osu, Format::Imb] {
        let mut live = LiveRows::new(format, 400, Paint::Plain).expect("it can be written row by row");
        let mut written: Vec<String> = sample_lines().iter().map(|line| live.take(line)).collect();
        assert!(written.iter().filter(|text| !text.is_empty()).count() > 1, "{format:?} comes in pieces");
        written.push(live.finish(&View::new(&sample())));
        let whole = rendered(&sample(), format, 400, Paint::Plain);
        let sorted = |text: &str| {
            let mut lines = content(text);
            lines.sort();
            lines
        };
        // The sample was not measured in row order, so notes have other numbers; nothing is missing or duplicated.
        assert_eq!(sorted(&written.concat()).len(), sorted(&whole).len(), "{}\n{whole}", written.concat());
    }
    for format in [Format::Json, Format::Csv, Format::Markdown, Format::Junit, Format::Prometheus, Format::Superbench] {
        assert!(LiveRows::new(format, 100, Paint::Plain).is_none(), "{format:?} is one document");
    }
}

#[test]
fn a_record_without_a_plan_is_shown_whole_at_the_end() {
    let lines: Vec<Line> = sample_lines().into_iter().take(1).collect();
    let mut live = LiveRows::new(Format::Table, 100, Paint::Plain).expect("a table");
    assert!(lines.iter().all(|line| live.take(line).is_empty()));
    let record = Record::from_lines(lines).unwrap();
    assert_eq!(live.finish(&View::new(&record)), rendered(&record, Format::Table, 100, Paint::Plain));
}

#[test]
fn a_replaced_replicate_is_left_out() {
    let mut lines = sample_lines();
    let is_case = |line: &Line| matches!(line, Line::Case(case) if case.case == 0);
    let place = lines.iter().rposition(is_case).unwrap();
    let Line::Case(last) = &mut lines[place] else { panic!("no case") };
    let before = sample().cases.iter().filter(|line| line.case == 0).count();
    let others: Vec<u32> = sample()
        .cases
        .iter()
        .filter(|line| line.case == 0 && line.replicate != last.replicate)
        .map(|line| line.replicate)
        .collect();
    last.replaces = others.clone();
    let own = last.replicate;
    let record = Record::from_lines(lines.iter().filter(|line| !matches!(line, Line::End(_))).cloned()).unwrap();
    let kept: Vec<u32> = record.cases.iter().filter(|line| line.case == 0).map(|line| line.replicate).collect();
    assert_eq!((before, kept), (others.len() + 1, vec![own]));
    for wrong in [own, 77] {
        let Line::Case(last) = &mut lines[place] else { panic!("no case") };
        last.replaces = vec![wrong];
        let error = Record::from_lines(lines.clone()).unwrap_err().to_string();
        assert!(error.contains(&format!("replaces replicate {wrong}, which is not there before it")), "{error}");
    }
}

#[test]
fn the_json_document_fits_its_published_schema() {
    let validator = jsonschema::validator_for(&super::formats::schema()).unwrap();
    for record in
        [sample(), hostile(), super::step::tests::record(&super::step::tests::USUAL), super::screen::tests::predicted()]
    {
        let document: serde_json::Value =
            serde_json::from_str(&rendered(&record, Format::Json, 80, Paint::Plain)).unwrap();
        let errors: Vec<String> = validator.iter_errors(&document).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{errors:?}");
    }
}
