//! `commgauge judge`, `compare` and `report` as a user starts them, on bad input and on hostile texts. Needs nothing.

use crate::offline;
use crate::records;

use commgauge::record::Line;
use commgauge::record::line::{Outcome, Samples};
use offline::{commgauge, text};
use records::{Made, machine};
use std::fs;
use std::path::Path;
use std::process::Output;

/// Hostile texts from the history of many tools: markup, quotes, terminal escapes, line breaks, formulas, pipes.
const HOSTILE: [&str; 8] = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>\"'&amp;]]>",
    "\u{1b}[31mred\u{1b}[0m\u{9b}2J",
    "two\r\nlines\tand a tab",
    "=cmd|' /C calc'!A0",
    "@SUM(1+1)*cmd",
    "a | b ` c \\ d [x](http://example.invalid) ![y](z)",
    "\u{202e}turned\u{200b} \u{0}nul {} {x=\"y\"} # HELP x",
];

struct Folder(tempfile::TempDir);

impl Folder {
    /// With `good.jsonl`, `new.jsonl` and `m.toml`, on which a gate and a comparison pass.
    fn new() -> Folder {
        let folder = Folder(tempfile::tempdir().expect("a folder"));
        Made::steady("good", 3, 7, 1).write(&folder.at("good.jsonl"));
        Made::steady("new", 3, 7, 2).write(&folder.at("new.jsonl"));
        fs::write(folder.at("m.toml"), machine("1GB/s")).expect("written");
        folder
    }

    fn at(&self, name: &str) -> std::path::PathBuf {
        self.0.path().join(name)
    }

    fn run(&self, arguments: &[&str]) -> Output {
        commgauge(self.0.path(), arguments)
    }

    fn change(&self, name: &str, change: impl FnOnce(&mut Vec<Line>)) {
        let mut lines = Made::steady("changed", 3, 7, 3).lines();
        change(&mut lines);
        records::write(&self.at(name), &lines);
    }
}

/// The code, and one message: on stderr for errors, in the verdict otherwise.
#[track_caller]
fn ended(output: &Output, code: i32, words: &str) {
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{out}\n{err}");
    let message = if code == 2 { &err } else { &out };
    let flat = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat(message).contains(words), "`{words}` is not in:\n{out}\n{err}");
    if code == 2 {
        assert_eq!(err.matches("commgauge: ").count(), 1, "{err}");
    }
}

fn cases(lines: &mut [Line]) -> impl Iterator<Item = &mut commgauge::record::line::CaseLine> {
    lines.iter_mut().filter_map(|line| match line {
        Line::Case(case) => Some(&mut **case),
        _ => None,
    })
}

#[test]
fn a_good_record_passes_and_the_verdict_file_is_whole() {
    let folder = Folder::new();
    ended(
        &folder.run(&["judge", "--part", "thresholds", "good.jsonl", "--machine", "m.toml"]),
        0,
        "thresholds: PASS (exit code 0)",
    );
    ended(&folder.run(&["compare", "good.jsonl", "new.jsonl"]), 0, "compare: PASS (exit code 0)");
    fs::write(folder.at("v.json"), "old").expect("written");
    let output = folder.run(&[
        "judge",
        "--part",
        "thresholds",
        "good.jsonl",
        "--machine",
        "m.toml",
        "--format",
        "json",
        "-o",
        "v.json",
    ]);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(0), 0));
    let verdict: serde_json::Value =
        serde_json::from_slice(&fs::read(folder.at("v.json")).expect("read")).expect("JSON");
    assert_eq!((verdict["decision"].as_str(), verdict["false_alarms"]["rows"].as_u64()), (Some("pass"), Some(3)));
    let left = fs::read_dir(folder.0.path())
        .expect("read")
        .filter(|entry| entry.as_ref().is_ok_and(|entry| entry.file_name().to_string_lossy().contains(".tmp")));
    assert_eq!(left.count(), 0);
}

#[test]
fn judge_ends_with_the_more_severe_of_thresholds_and_suspects_and_writes_the_page() {
    let folder = Folder::new();
    let judged = |record: &str, machine: &str| folder.run(&["judge", record, "--machine", machine, "--page", "p.html"]);
    ended(&judged("good.jsonl", "m.toml"), 0, "judge: PASS (exit code 0): thresholds PASS; too few nodes met");
    let page = fs::read_to_string(folder.at("p.html")).expect("a page");
    assert!(page.starts_with("<!doctype html>") && page.contains("PASS"), "{page}");
    fs::write(folder.at("fast.toml"), machine("500GB/s")).expect("written");
    ended(&judged("good.jsonl", "fast.toml"), 1, "judge: FAIL (exit code 1): thresholds FAIL");
    let faults = ["--fault", "node:3:rate=0.5", "-o", "slow.jsonl"];
    let fleet = ["simulate", "qualify", "--machine", "h100-nvswitch-ndr", "--nodes", "8"];
    ended(&folder.run(&[&fleet[..], &faults].concat()), 0, "node 3");
    // Thresholds cannot pass a simulation; the suspect is worse than that.
    let output = judged("slow.jsonl", "h100-nvswitch-ndr");
    ended(&output, 1, "judge: FAIL (exit code 1): thresholds INCONCLUSIVE; 1 suspect");
    assert!(text(&output.stdout).contains("node 3"), "{}", text(&output.stdout));
    folder.change("elsewhere.jsonl", |lines| {
        let Line::Header(header) = &mut lines[0] else { unreachable!() };
        header.ranks.iter_mut().for_each(|rank| rank.host = format!("elsewhere-{}", rank.node));
    });
    // Thresholds alone would pass; who is slow on which hosts cannot be asked of both at once.
    let both = folder.run(&["judge", "good.jsonl", "elsewhere.jsonl", "--machine", "m.toml", "--allow", "hosts"]);
    ended(&both, 3, "thresholds PASS; suspects could not be searched for");
    let refused = folder.run(&["judge", "good.jsonl", "--page", "p.txt"]);
    assert!(refused.status.code() == Some(2) && text(&refused.stderr).contains("a file name that ends in .html"));
    ended(&folder.run(&["judge", "gone.jsonl"]), 2, "gone.jsonl");
}

#[test]
fn a_base_from_elsewhere_or_with_zero_nan_or_missing_rows_never_passes() {
    let folder = Folder::new();
    folder.change("other.jsonl", |lines| {
        let Line::Header(header) = &mut lines[0] else { unreachable!() };
        header.ranks.iter_mut().for_each(|rank| rank.processor = "another".to_owned());
    });
    ended(&folder.run(&["compare", "other.jsonl", "new.jsonl"]), 2, "hardware (processors)");
    folder.change("zero.jsonl", |lines| {
        cases(lines).filter(|case| case.case == 0).for_each(|case| case.samples.slowest_nanoseconds.fill(0));
    });
    ended(&folder.run(&["compare", "zero.jsonl", "new.jsonl"]), 7, "were not measured in every replicate");
    folder.change("missing.jsonl", |lines| lines.retain(|line| !matches!(line, Line::Case(case) if case.case == 1)));
    ended(&folder.run(&["compare", "missing.jsonl", "new.jsonl"]), 7, "rows were not measured");
    let record = fs::read_to_string(folder.at("good.jsonl")).expect("read");
    let start = record.find("\"slowest_nanoseconds\":[").expect("samples") + "\"slowest_nanoseconds\":[".len();
    let end = start + record[start..].find(',').expect("several samples");
    fs::write(folder.at("nan.jsonl"), [&record[..start], "NaN", &record[end..]].concat()).expect("written");
    ended(&folder.run(&["compare", "nan.jsonl", "new.jsonl"]), 2, "nan.jsonl, line 4: broken");
    ended(
        &folder.run(&["judge", "--part", "thresholds", "zero.jsonl", "--machine", "m.toml"]),
        7,
        "1 of 3 planned rows were not measured",
    );
}

#[test]
fn a_torn_edited_or_newer_record_never_passes_and_is_named() {
    let folder = Folder::new();
    let record = fs::read_to_string(folder.at("good.jsonl")).expect("read");
    let gate = |name: &str, text: &str| {
        fs::write(folder.at(name), text).expect("written");
        folder.run(&["judge", "--part", "thresholds", name, "--machine", "m.toml"])
    };
    ended(&gate("torn.jsonl", &record[..record.len() - 20]), 7, "the last line was torn");
    let edited = record.replacen("\"slowest_nanoseconds\":[1", "\"slowest_nanoseconds\":[2", 1);
    ended(&gate("edited.jsonl", &edited), 7, "the record was changed after it was written");
    let newer = record.replacen("\"version\":1", "\"version\":9", 1);
    ended(&gate("newer.jsonl", &newer), 2, "is a record of version 9");
    ended(&gate("none.jsonl", "size,count\n1,2\n"), 2, "is not a commgauge record");
    ended(&folder.run(&["judge", "--part", "thresholds", "nothing.jsonl", "--machine", "m.toml"]), 2, "nothing.jsonl");
    // A report of an edited record says so, and ends with an error; a comparison too.
    let report = folder.run(&["report", "edited.jsonl"]);
    let shown = text(&report.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(shown.contains("the digest of line 4 does not fit"), "{shown}");
    assert_eq!(report.status.code(), Some(7));
    ended(&folder.run(&["compare", "edited.jsonl", "new.jsonl"]), 7, "the digest of line 4 does not fit");
}

#[test]
fn judge_shows_both_parts_or_one_and_refuses_what_a_part_does_not_have() {
    let folder = Folder::new();
    let both = folder.run(&["judge", "good.jsonl", "--machine", "m.toml"]);
    let table = text(&both.stdout);
    assert!(table.starts_with("judge: PASS (exit code 0): thresholds PASS; too few nodes met in pairs"), "{table}");
    assert!(
        table.contains("\n1 of 1 thresholds judged, 0 not measured") && !table.contains("How it was decided"),
        "{table}"
    );
    let page = folder.run(&["judge", "good.jsonl", "--machine", "m.toml", "--format", "markdown"]);
    assert_eq!(text(&page.stdout).matches("# commgauge judge: PASS").count(), 1, "{}", text(&page.stdout));
    for (more, words) in [
        (&["--format", "junit"][..], "choose one by --part"),
        (&["--part", "suspects", "--format", "junit"], "suspects have no such format; accepted: table, json, markdown"),
        (&["--part", "suspects", "--template", "t.toml"], "--template has no effect on --part suspects"),
        (&["--part", "thresholds", "--nodes-per-leaf", "4"], "--nodes-per-leaf has no effect on --part thresholds"),
    ] {
        ended(&folder.run(&[&["judge", "good.jsonl", "--machine", "m.toml"], more].concat()), 2, words);
    }
    assert!(!folder.at("t.toml").exists());
}

#[test]
fn an_unknown_machine_is_inconclusive_with_a_file_to_fill_in_that_then_works() {
    let folder = Folder::new();
    let request = ["judge", "--part", "thresholds", "good.jsonl", "--template", "new.toml"];
    let output = folder.run(&request);
    ended(&output, 3, "--template");
    assert!(!text(&output.stdout).contains("[[expect]]"), "{}", text(&output.stdout));
    ended(&folder.run(&request), 2, "--template new.toml exists; name a new file");
    let template = fs::read_to_string(folder.at("new.toml")).expect("written");
    ended(&folder.run(&["judge", "--part", "thresholds", "good.jsonl", "--machine", "new.toml"]), 2, "new.toml:");
    let mut filled = template
        .replace("value = \"\"", "value = \"10GB/s\"")
        .replace("source = \"\"", "source = \"s\"")
        .replace("date = \"\"", "date = \"2026\"")
        .replace("latency = \"\"", "latency = \"3us\"")
        .replace("rate = \"\"", "rate = \"450GB/s\"")
        .replace("rate_per_adapter = \"\"", "rate_per_adapter = \"400GB/s\"");
    filled = filled.replace("adapters_per_node = 0", "adapters_per_node = 2");
    filled = filled.replace("backend = \"\"", "backend = \"mpi\"").replace("expectations = 0", "expectations = 3");
    fs::write(folder.at("new.toml"), filled).expect("written");
    let output = folder.run(&[
        "judge",
        "--part",
        "thresholds",
        "good.jsonl",
        "--machine",
        "new.toml",
        "--template",
        "more.toml",
    ]);
    ended(&output, 0, "3 of 3 rows judged");
    assert!(text(&output.stderr).contains("--template more.toml is not written: every row has an expectation"));
    assert!(!folder.at("more.toml").exists());
}

#[test]
fn a_name_that_is_neither_a_file_nor_shipped_is_a_usage_error_with_what_was_meant_in_every_command() {
    let folder = Folder::new();
    let machine = "did you mean h100-nvswitch-ndr";
    let plan = "plan --model gpt2 --gpus 8 --gpu-memory 16GB --sequence 1024 --global-batch 32";
    for (line, words) in [
        ("judge --part thresholds good.jsonl --machine h100-nvswich-ndr", machine),
        ("judge --part thresholds good.jsonl --machine h100-nvswich-ndr --template new.toml", machine),
        ("judge --plan qualify-gpu --machine h100-nvswich-ndr", machine),
        ("judge --plan qualify-gp --machine h100-nvswitch-ndr", "did you mean qualify-gpu"),
        ("judge good.jsonl --machine h100-nvswich-ndr", machine),
        ("report good.jsonl --machine h100-nvswich-ndr -o page.html", machine),
        ("simulate quick --machine h100-nvswich-ndr --nodes 1", machine),
        ("simulate quik --machine h100-nvswitch-ndr --nodes 1", "did you mean quick"),
        ("run quick --machine h100-nvswich-ndr --dry-run -n 2", machine),
        ("run quik --dry-run -n 2", "did you mean quick"),
        ("expect lint h100-nvswich-ndr", machine),
        (&format!("{plan} --machine h100-nvswich-ndr"), machine),
        (&format!("{} --machine h100-nvswitch-ndr", plan.replace("gpt2", "gtp2")), "did you mean gpt2"),
        ("show model gtp2", "did you mean gpt2"),
        ("ops --model gtp2 --tp 2 --sequence 128 --global-batch 2", "did you mean gpt2"),
        ("rank --model gtp2 --tp 2 --sequence 128 --global-batch 2 --machine h100-nvswitch-ndr", "did you mean gpt2"),
    ] {
        let output = folder.run(&line.split(' ').collect::<Vec<_>>());
        let said = text(&output.stdout) + &text(&output.stderr);
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(output.status.code() == Some(2) && said.contains(words), "{line}: {said}");
        assert!(!folder.at("new.toml").exists() && !folder.at("page.html").exists(), "{line}");
    }
}

#[test]
fn a_wrong_machine_file_is_refused_with_place_and_remedy() {
    let folder = Folder::new();
    for (from, to, words) in [
        ("floor =", "flor =", "m.toml:18: expect[0].flor: unknown key; did you mean `floor`?"),
        ("'1GB/s'", "'9000GB/s'", "is above the"),
        ("name = 'm'", "name = 'm'\nname = 'n'", "not TOML"),
        ("rate = '400GB/s'", "rate = 'fast'", "within_node.rate: found `fast`"),
    ] {
        fs::write(folder.at("m.toml"), machine("1GB/s").replacen(from, to, 1)).expect("written");
        ended(&folder.run(&["judge", "--part", "thresholds", "good.jsonl", "--machine", "m.toml"]), 2, words);
    }
}

#[test]
fn an_output_that_is_a_folder_an_input_or_cannot_be_written_is_refused_and_nothing_changes() {
    let folder = Folder::new();
    fs::create_dir(folder.at("sub")).expect("made");
    let before = fs::read(folder.at("good.jsonl")).expect("read");
    for (output, words) in [
        ("sub", "--output sub is a folder"),
        ("good.jsonl", "--output good.jsonl is one of the inputs"),
        ("m.toml", "--output m.toml is one of the inputs"),
        ("missing/v.json", "cannot write missing/v.json"),
        ("good.jsonl/v.json", "cannot write good.jsonl/v.json"),
        ("/proc/v.json", "cannot write /proc/v.json"),
    ] {
        ended(
            &folder.run(&["judge", "--part", "thresholds", "good.jsonl", "--machine", "m.toml", "-o", output]),
            2,
            words,
        );
        if output != "m.toml" {
            ended(&folder.run(&["compare", "good.jsonl", "new.jsonl", "-o", output]), 2, words);
        }
    }
    assert_eq!(fs::read(folder.at("good.jsonl")).expect("read"), before);
    for output in ["sub", "good.jsonl", "missing/r.txt"] {
        assert_eq!(folder.run(&["report", "good.jsonl", "-o", output]).status.code(), Some(2), "{output}");
    }
    assert_eq!(fs::read(folder.at("good.jsonl")).expect("read"), before);
}

/// A record whose every text from outside is hostile, once with warnings and once with wrong data.
fn poisoned(run_id: &str, word: &str) -> Vec<Line> {
    let mut lines = Made::steady(run_id, 3, 7, 5).lines();
    let poison = || word.to_owned();
    for line in &mut lines {
        match line {
            Line::Header(header) => {
                header.run_id = format!("{run_id}{word}");
                (header.program, header.suite.name, header.backend.library) = (poison(), poison(), poison());
                (header.started_at, header.backend.name) = (poison(), poison());
                (header.suite.model, header.suite.layout) = (Some(poison()), Some(poison()));
                (header.backend.transport, header.suite.path) = (Some(poison()), Some(poison()));
                header.environment.insert(poison(), poison());
                header.command_line.push(poison());
                header.warnings.push(poison());
                for rank in &mut header.ranks {
                    (rank.host, rank.processor, rank.device) = (poison(), poison(), Some(poison()));
                    (rank.kernel, rank.cores) = (poison(), poison());
                }
            }
            Line::Plan(plan) => plan.cases.iter_mut().for_each(|case| case.name += word),
            Line::Case(case) => {
                case.name = format!("{}{word}", case.name).into();
                case.warnings.push(poison());
                match (case.case, case.replicate) {
                    (1, 0) => case.outcome = Outcome::Failed { reason: poison() },
                    (1, 1) => case.outcome = Outcome::Skipped { reason: poison() },
                    (2, 0) => {
                        let (when, expected, got) = (poison(), poison(), poison());
                        case.outcome =
                            Outcome::Corrupt { when, rank: 1, element: 2, expected, got, count: 1, call: None };
                    }
                    _ => continue,
                }
                case.samples = Samples::default();
            }
            Line::End(end) => end.error = Some(poison()),
            _ => {}
        }
    }
    lines
}

#[test]
fn hostile_texts_get_through_no_format_of_gate_compare_and_report() {
    let folder = Folder::new();
    for word in HOSTILE {
        records::write(&folder.at("a.jsonl"), &poisoned("a", word));
        records::write(&folder.at("b.jsonl"), &poisoned("b", word));
        let quoted = serde_json::to_string(word).expect("JSON").replace("\\u0000", "").replace('\u{7f}', "");
        let hostile_machine = machine("1GB/s").replace("'a test'", &toml_string(word));
        fs::write(folder.at("m.toml"), hostile_machine).unwrap_or_else(|_| panic!("{quoted}"));
        for format in ["table", "json", "junit", "markdown", "prometheus"] {
            for arguments in [
                &["judge", "--part", "thresholds", "a.jsonl", "--machine", "m.toml"][..],
                &["compare", "a.jsonl", "b.jsonl", "--allow", "suite"],
            ] {
                let output = folder.run(&[arguments, &["--format", format]].concat());
                check(&output, arguments[0], format, word);
            }
        }
        for format in ["table", "json", "csv", "markdown", "nccl-tests"] {
            check(&folder.run(&["report", "a.jsonl", "--format", format]), "report", format, word);
        }
    }
}

/// As TOML's basic string, without the characters that it cannot contain.
fn toml_string(word: &str) -> String {
    let escaped: String = word.chars().filter(|c| *c != '\0').flat_map(char::escape_unicode).collect();
    let escaped = escaped.replace("\\u{", "\\U{");
    // \U has eight digits.
    let mut out = String::from("\"");
    for part in escaped.split("\\U{").skip(1) {
        out += &format!("\\U{:0>8}", part.trim_end_matches('}'));
    }
    out + "\""
}

#[track_caller]
fn check(output: &Output, command: &str, format: &str, word: &str) {
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    let code = output.status.code();
    assert!(matches!(code, Some(4 | 6)), "{command} {format} on {word:?}: {code:?}\n{err}");
    assert!(!out.is_empty());
    let unseemly = |c: char| {
        (c.is_control() && c != '\n')
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    assert_eq!(out.chars().chain(err.chars()).find(|c| unseemly(*c)), None, "{command} {format} on {word:?}");
    match format {
        "json" => {
            serde_json::from_str::<serde_json::Value>(&out).expect("JSON");
        }
        "junit" => {
            assert!(!out.contains("<script") && !out.contains("<img"), "{out}");
            quick_junit::Report::deserialize_from_str(&out).expect("XML");
        }
        "markdown" => {
            assert!(
                !out.contains("<script") && !out.contains("<img") && !out.replace("\\]", "").contains("](http"),
                "{out}"
            );
            let mut columns = None;
            for row in out.lines() {
                let cells = row.replace("\\|", "").matches('|').count();
                match row.starts_with('|') {
                    true => assert_eq!(*columns.get_or_insert(cells), cells, "{row}"),
                    false => columns = None,
                }
            }
        }
        "prometheus" => {
            for line in out.lines().filter(|line| !line.starts_with("# ")) {
                assert!(line.starts_with("commgauge_"), "{line}");
                let (_, number) = line.rsplit_once(' ').expect("a number");
                assert!(number.parse::<f64>().is_ok(), "{line}");
            }
        }
        "csv" => {
            let mut reader = csv::Reader::from_reader(out.as_bytes());
            for record in reader.records() {
                let record = record.expect("as many cells as columns");
                let bad = record.iter().find(|cell| cell.starts_with(['=', '+', '-', '@']));
                assert_eq!(bad, None, "{word:?}");
            }
        }
        _ => {}
    }
}

#[test]
fn a_test_of_hostile_texts_sees_what_it_looks_for() {
    assert_eq!(toml_string("<\u{1b}"), "\"\\U0000003c\\U0000001b\"");
    let folder = Folder::new();
    records::write(&folder.at("a.jsonl"), &poisoned("a", HOSTILE[0]));
    let shown = text(&folder.run(&["report", "a.jsonl"]).stdout);
    assert!(shown.contains("<script>alert(1)</script>"), "a table for a terminal shows markup as it is: {shown}");
    assert!(Path::new(&folder.at("a.jsonl")).is_file());
}
