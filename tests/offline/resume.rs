//! A simulated run that was cut off anywhere and resumed leaves the same record as an uninterrupted one; every reader
//! treats it as such.
//!
//! Times of a simulation without noise follow from the plan alone, so the two can be compared to the last digit.

use commgauge::record::{Record, Seal};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const COMMGAUGE: &str = env!("CARGO_BIN_EXE_commgauge");

const MACHINE: &str = "name = 'quiet'\nranks_per_node = 2\n[within_node]\nlatency = '1us'\nrate = '10GB/s'\n\
    [between_nodes]\nlatency = '5us'\nadapters_per_node = 2\nrate_per_adapter = '1GB/s'\n";

/// Chooses further sizes in two rounds, and has matrix products, and copies, which are skipped there.
const GROWING: &str = "name = 'grow'\n[measure]\nprecision = 0.05\nminimum_samples = 5\nmaximum_samples = 20\n\
    case_budget = '1min'\nreplicates = 2\ncadences = 'streaming'\n[calibrate]\nuntil_error = 0.02\nmost_sizes = 7\n\
    budget = '10min'\n[[sweep]]\ncollectives = ['all_reduce', 'all_gather']\nbytes = ['1KiB', '32KiB', '1MiB']\n\
    placements = 'out-of-place'\n[[compute]]\nmodel = { preset = 'llama-3-8b' }\ntp = 4\nsequence = 64\nmicro_batch = 1\n\
    [[copy]]\nkinds = ['host-to-device']\nbytes = ['1MiB']\n";

/// A step with calls at once and a replay.
const STEP: &str = "--model llama-3-8b --layers 2 --tp 2 --pp 2 --sequence 512 --micro-batches 2 --replay \
    --interfere tp,dp --style tensor --style data -n 3 --replicates 2 --replay-repetitions 2";

/// A folder with the files of the runs.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [("machine.toml", MACHINE), ("grow.toml", GROWING)] {
            fs::write(folder.path().join(name), text).unwrap();
        }
        Place(folder)
    }

    fn record(&self) -> PathBuf {
        self.0.path().join("run.jsonl")
    }

    fn ran(&self, line: &str) -> Output {
        let words = line.split_whitespace();
        let mut command = Command::new(COMMGAUGE);
        command.args(words).current_dir(self.0.path()).env("NO_COLOR", "1");
        command.output().unwrap()
    }

    #[track_caller]
    fn ended(&self, line: &str, code: i32) -> (String, String) {
        let output = self.ran(line);
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let (stdout, stderr) = (text(output.stdout), text(output.stderr));
        assert_eq!(output.status.code(), Some(code), "commgauge {line}\n{stdout}{stderr}");
        (stdout, stderr)
    }

    /// The lines of a whole run.
    fn whole(&self, run: &str) -> Vec<String> {
        let _ = fs::remove_file(self.record());
        let common = "--backend simulated --machine machine.toml --record run.jsonl";
        let (before, after) = run.split_once(" -- ").map_or((run, String::new()), |(a, b)| (a, format!(" -- {b}")));
        self.ended(&format!("run {before} {common}{after}"), 0);
        fs::read_to_string(self.record()).unwrap().lines().map(str::to_owned).collect()
    }

    /// The record after this many lines and the given part of another were written.
    fn cut(&self, lines: &[String], torn: &str) {
        fs::write(self.record(), lines.iter().map(|line| format!("{line}\n")).collect::<String>() + torn).unwrap();
    }
}

/// Everything that a run measured, without what differs from launch to launch.
fn essence(record: &Path) -> Vec<String> {
    let record = Record::read(record).unwrap();
    assert_eq!(
        (record.file.seal, record.file.torn, record.file.warnings.len()),
        (Seal::Whole, false, 0),
        "{:?}",
        record.file.warnings
    );
    let end = record.end.as_ref().unwrap();
    vec![
        format!("{:#?}", record.header),
        format!("{:#?}", record.plan),
        format!("{:?}", record.chosen),
        format!("{:?}", record.calibration),
        format!("{:#?}", record.cases),
        format!("{:#?}", record.interference),
        format!("{:#?}", record.products),
        format!("{:#?}", record.copies),
        format!("{:#?}", record.replays),
        format!("{:?} {}", end.status, end.exit_code),
    ]
}

#[test]
fn a_run_cut_off_at_any_line_and_resumed_equals_an_uninterrupted_one() {
    let place = Place::new();
    for run in ["grow.toml -n 4".to_owned(), format!("--step -n 8 -- {STEP}")] {
        let lines = place.whole(&run);
        let expected = essence(&place.record());
        let kinds = |kind: &str| -> Vec<usize> {
            let begins = format!("{{\"line\":\"{kind}\"");
            (0..lines.len()).filter(|at| lines[*at].starts_with(&begins)).collect()
        };
        // Before and after the first and the last line of every kind.
        let mut cuts: Vec<usize> =
            ["plan", "clock", "case", "plan_growth", "calibration", "interference", "product", "copy", "replay"]
                .iter()
                .flat_map(|kind| {
                    kinds(kind).first().copied().into_iter().chain(kinds(kind).last().map(|last| last + 1))
                })
                .chain([kinds("case")[3]])
                .collect();
        cuts.sort_unstable();
        cuts.dedup();
        for at in cuts.into_iter().filter(|at| *at < lines.len()) {
            // Half of the next line was written.
            let torn = &lines[at][..lines[at].len() / 2];
            place.cut(&lines[..at], if at % 2 == 0 { torn } else { "" });
            place.ended("run --resume run.jsonl --format csv", 0);
            assert_eq!(essence(&place.record()), expected, "{run}: cut before line {}", at + 1);
            let text = fs::read_to_string(place.record()).unwrap();
            assert_eq!(text.matches("{\"line\":\"resume\"").count(), 1, "continues in the same file");
        }
    }
}

#[test]
fn a_suite_with_a_time_for_all_cases_resumes_until_every_case_is_measured() {
    let place = Place::new();
    let suite = "name = 'short'\n[[sweep]]\ncollectives = ['all_reduce', 'all_gather']\nbytes = { from = '1KiB', to = '1MiB' }\n";
    fs::write(place.0.path().join("short.toml"), suite).unwrap();
    let lines = place.whole("short.toml -n 4 --within 2s");
    let whole = Record::read(&place.record()).unwrap();
    assert_eq!(whole.header.settings.within.map(|within| within.0), Some(2.0));
    let first_case = lines.iter().position(|line| line.starts_with("{\"line\":\"case\"")).unwrap();
    for done in [0, 1, whole.plan.cases.len() / 2] {
        place.cut(&lines[..first_case + done], "{\"line\":\"ca");
        place.ended("run --resume run.jsonl", 0);
        let record = Record::read(&place.record()).unwrap();
        assert_eq!(record.header.settings, whole.header.settings);
        let measured: std::collections::BTreeSet<u32> = record.cases.iter().map(|line| line.case).collect();
        assert_eq!(measured.len(), whole.plan.cases.len(), "after {done} cases");
        let (report, _) = place.ended("report run.jsonl", 0);
        assert!(report.contains("within 2.00 s to +-"), "{report}");
    }
}

#[test]
fn a_run_that_was_cut_off_again_and_again_comes_to_its_end() {
    let place = Place::new();
    let lines = place.whole("grow.toml -n 4");
    let expected = essence(&place.record());
    place.cut(&lines[..5], "");
    for _ in 0..3 {
        place.ended("run --resume run.jsonl --format csv", 0);
        let text = fs::read_to_string(place.record()).unwrap();
        // Some of the added lines remain, the last one by half.
        let kept: Vec<String> = text.lines().map(str::to_owned).collect();
        let resumed = kept.iter().rposition(|line| line.starts_with("{\"line\":\"resume\"")).unwrap();
        place.cut(&kept[..resumed + 5], "{\"line\":\"case\",\"ca");
    }
    place.ended("run --resume run.jsonl --format csv", 0);
    assert_eq!(essence(&place.record()), expected);
    assert_eq!(Record::read(&place.record()).unwrap().resumes.len(), 4);
}

#[test]
fn every_reader_takes_a_resumed_record_as_one_that_was_never_cut_off() {
    let place = Place::new();
    place.whole("grow.toml -n 4");
    fs::rename(place.record(), place.0.path().join("base.jsonl")).unwrap();
    let lines = place.whole("grow.toml -n 4");
    let readers = [
        "report run.jsonl",
        "report run.jsonl --format csv",
        "report run.jsonl --format markdown",
        "report run.jsonl --output page.html",
        "judge --part thresholds run.jsonl --machine machine.toml",
        "compare base.jsonl run.jsonl",
        "history run.jsonl",
        "judge --part suspects run.jsonl",
        "calibrate run.jsonl --output fit.json",
    ];
    let answers = || readers.map(|line| (line, place.ran(line)));
    let before = answers();
    place.cut(&lines[..8], "{\"line\":");
    place.ended("run --resume run.jsonl --format csv", 0);
    fs::remove_file(place.0.path().join("fit.json")).ok();
    for ((line, before), (_, after)) in before.into_iter().zip(answers()) {
        let text = |bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes).into_owned();
            // Only the comparisons of clocks differ: there was one more.
            text.lines().filter(|line| !line.contains("clock")).map(|line| format!("{line}\n")).collect::<String>()
        };
        assert_eq!(after.status.code(), before.status.code(), "{line}: {}", text(&after.stderr));
        assert_eq!(text(&after.stdout), text(&before.stdout), "{line}");
        assert_ne!(before.status.code(), Some(2), "{line}: {}", text(&before.stderr));
    }
}

#[test]
fn a_run_with_nothing_left_says_so_and_leaves_its_record_alone() {
    let place = Place::new();
    place.whole("grow.toml -n 4");
    let before = fs::read(place.record()).unwrap();
    let (stdout, stderr) = place.ended("run --resume run.jsonl --full", 0);
    assert!(stderr.contains("run.jsonl is complete: nothing left to measure"), "{stderr}");
    assert!(stdout.contains("all_reduce"), "{stdout}");
    assert_eq!(fs::read(place.record()).unwrap(), before);
}

#[test]
fn a_record_that_cannot_be_resumed_is_refused_and_left_unchanged() {
    let place = Place::new();
    let lines = place.whole("grow.toml -n 4");
    let cut = lines[..8].iter().map(|line| format!("{line}\n")).collect::<String>();
    let whole = lines.iter().map(|line| format!("{line}\n")).collect::<String>();
    let refused = |text: &str, code: i32, said: &[&str]| {
        fs::write(place.record(), text).unwrap();
        let (_, stderr) = place.ended("run --resume run.jsonl", code);
        said.iter().for_each(|said| assert!(stderr.contains(said), "`{said}` is not in {stderr}"));
        assert_eq!(fs::read_to_string(place.record()).unwrap(), text);
    };
    refused("", 2, &["holds no complete line"]);
    refused(&lines[0][..40], 2, &["holds no complete line"]);
    refused("no record\n", 2, &["is not a commgauge record"]);
    refused(&whole.replacen("\"seed\":", "\"seed\":1", 1), 2, &["was changed after it was written", "of line 1"]);
    refused(&cut.replacen("\"slowest_nanoseconds\":[", "\"slowest_nanoseconds\":[1", 1), 2, &["the digest of line 4"]);
    // Without digests, as an older version wrote it.
    let old = cut.lines().map(|line| line.rsplit_once(",\"sha256\"").unwrap().0.to_owned() + "}\n").collect::<String>();
    refused(&old.replacen("\"name\":\"simulated\"", "\"name\":\"imported\"", 1), 2, &["its backend is imported"]);
    refused(
        &old.replacen("\"program_version\":\"", "\"program_version\":\"8", 1),
        7,
        &[
            "this launch differs from the run",
            "--allow-changed",
            "what",
            "in the record",
            "now",
            "version of the program",
        ],
    );
    // A suite with other cases cannot be allowed.
    fs::write(place.0.path().join("grow.toml"), GROWING.replace("'32KiB', ", "")).unwrap();
    refused(&cut, 7, &["cannot resume", "the record plans 6 cases, this launch 4", "suite and its files (SHA-256)"]);
    let (_, stderr) = place.ended("run --resume run.jsonl --allow-changed", 7);
    assert!(stderr.contains("the record plans 6 cases"), "{stderr}");
    let (_, stderr) = place.ended("run --resume nothing.jsonl", 2);
    assert!(stderr.contains("--resume nothing.jsonl: No such file"), "{stderr}");
}

#[test]
fn what_changed_and_was_allowed_is_recorded_and_makes_every_verdict_careful() {
    let place = Place::new();
    let lines = place.whole("grow.toml -n 4");
    place.cut(&lines[..8], "");
    // Another precision, the same cases.
    fs::write(place.0.path().join("grow.toml"), GROWING.replace("precision = 0.05", "precision = 0.04")).unwrap();
    place.ended("run --resume run.jsonl", 7);
    let (stdout, _) = place.ended("run --resume run.jsonl --allow-changed --full", 0);
    let message: String = stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(message.contains("precision was 0.05, is 0.04"), "{message}");
    let record = Record::read(&place.record()).unwrap();
    let changed: Vec<&str> = record.resumes[0].changes.iter().map(|change| change.what.as_str()).collect();
    assert_eq!(changed, ["suite and its files (SHA-256)", "precision"]);
}

#[test]
fn a_time_limit_stops_before_the_next_case_and_the_run_can_be_resumed() {
    let place = Place::new();
    let common = "--backend simulated --machine machine.toml --record run.jsonl";
    let (_, stderr) = place.ended(&format!("run grow.toml -n 4 {common} --time-limit 1ms"), 75);
    assert!(stderr.contains("the time limit of"), "{stderr}");
    assert!(stderr.contains("resume with: commgauge run --resume run.jsonl"), "{stderr}");
    let record = Record::read(&place.record()).unwrap();
    let end = record.end.unwrap();
    assert_eq!((format!("{:?}", end.status), end.exit_code, record.cases.len()), ("OutOfTime".to_owned(), 75, 0));
    let (stdout, _) = place.ended("report run.jsonl", 7);
    assert!(stdout.contains("the run stopped before its time limit"), "{stdout}");
    place.ended("run --resume run.jsonl --time-limit 1h", 0);
    assert!(Record::read(&place.record()).unwrap().is_finished());
}

#[test]
fn a_guess_for_a_fixed_number_of_calls_that_is_far_too_long_holds_no_run_back() {
    for (what, iterations, bytes, limit, cases) in [
        ("the first case is guessed at 134 s or at 67 s", 500, "['128MiB', '64MiB']", "60s", 2),
        (
            "small calls come first or last, and the largest is guessed at 56 s",
            105,
            "{ from = '64KiB', to = '256MiB', factor = 4 }",
            "20s",
            7,
        ),
    ] {
        let place = Place::new();
        let calls = format!(
            "name = 'calls'\n[measure]\niterations = {iterations}\nreplicates = 1\ncadences = 'streaming'\n[[sweep]]\n\
             collectives = 'all_reduce'\nbytes = {bytes}\nplacements = 'out-of-place'\n"
        );
        fs::write(place.0.path().join("calls.toml"), calls).unwrap();
        let run = "run calls.toml -n 4 --backend simulated --machine machine.toml --record run.jsonl --time-limit";
        place.ended(&format!("{run} {limit}"), 0);
        let record = Record::read(&place.record()).unwrap();
        assert_eq!((record.cases.len(), record.is_finished()), (cases, true), "{what}");
    }
}
