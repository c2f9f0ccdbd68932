//! A rank that hangs, loops, is stopped or killed: the launch ends, the rank is named, what was measured is stored,
//! nothing is left. Needs the launcher of the MPI that was built with.

use crate::common;
use crate::trial;

use common::{
    COMMGAUGE, FAMILY, alone, child_of, concurrent, count_so_far, ending, launcher, lines, of_kind, pids, record_in,
    signal, start, still_running, wait_until, words,
};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use trial::{Trial, sweep, sweep_of, trial};

/// Fault, state of the suspect, exit code of the record's end.
const FAULTS: [(&str, &str, i64); 5] = [
    ("hang", "never_entered", 5),
    ("loop", "never_entered", 5),
    ("stop", "stopped_answering", 5),
    ("kill", "died", 6),
    ("exit", "died", 6),
];

/// Whether a list of ranks such as `2` or `0,2-3` is the rank. If a rank dies, the launcher of MPICH kills all others,
/// on a busy machine some of them before the watchdog has asked which are left; then the rank is one of the list.
fn names(list: &Value, rank: u32, code: i64) -> bool {
    let Some(list) = list.as_str() else { return false };
    let within = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        matches!((first.parse::<u32>(), last.parse::<u32>()), (Ok(first), Ok(last)) if (first..=last).contains(&rank))
    };
    list == rank.to_string() || FAMILY == "mpich" && code == 6 && list.split(',').any(within)
}

#[track_caller]
fn check(what: &str, rank: u32, state: &str, code: i64, trial: &Trial) {
    let hang = trial.hang();
    assert!(names(&hang["suspects"], rank, code), "{what}: {}\n{}", trial.report, trial.stderr);
    let held = hang["ranks"].as_array().expect("states").iter().find(|held| held["state"] == state);
    assert!(names(&held.expect("the state")["ranks"], rank, code), "{what}: {hang}");
    let end = trial.end();
    assert_eq!(
        (&end["line"], &end["status"], &end["exit_code"]),
        (&"end".into(), &"failed".into(), &code.into()),
        "{what}"
    );
    assert!(!of_kind(&trial.lines, "case").is_empty(), "{what}: the cases before are kept");
    let named = trial.report.lines().any(|line| names(&line.split("  ").next().into(), rank, code));
    assert!(named, "{what}: {}", trial.report);
    assert!(trial.left.is_empty(), "{what}: {:?}", trial.left);
    if code == 5 {
        assert_eq!(trial.code, Some(5), "{what}: {}", trial.stderr);
        assert!(hang["operation"].as_str().is_some_and(|text| text.starts_with("all_reduce of 64 B, call ")), "{hang}");
    } else {
        assert_ne!(trial.code, Some(0), "{what}");
    }
}

#[test]
fn a_rank_that_holds_the_others_up_is_named_and_the_launch_ends() {
    let folder = tempfile::tempdir().unwrap();
    let _concurrent = concurrent();
    for (kind, state, code) in FAULTS {
        let record = folder.path().join(format!("{kind}.jsonl"));
        let trial = trial(sweep(&record, &format!("2:{kind}:80")), &record, code == 6);
        check(kind, 2, state, code, &trial);
    }
}

#[test]
fn rank_0_may_be_the_one_that_is_stopped_and_commgauge_run_passes_the_deadline_on() {
    let folder = tempfile::tempdir().unwrap();
    let record = record_in(&folder);
    let _concurrent = concurrent();
    let mut run = Command::new(COMMGAUGE);
    run.env("NO_COLOR", "1").current_dir(env!("CARGO_MANIFEST_DIR"));
    run.args(["run", "suites/smoke.toml", "-n", "4", "--timeout", "2", "--record"]).arg(&record);
    run.args(["--", "--inject-fault", "0:stop"]);
    let trial = trial(run, &record, false);
    assert_eq!(trial.code, Some(5), "{}", trial.stderr);
    assert_eq!(trial.hang()["suspects"], "0", "{}", trial.stderr);
    // A launcher may not forward the last output on standard error; the file has it.
    assert!(trial.report.contains("its process is stopped"), "{}", trial.report);
    assert_eq!((&trial.end()["status"], &trial.end()["exit_code"]), (&"failed".into(), &5.into()));
    assert!(trial.left.is_empty(), "{:?}", trial.left);
}

#[test]
fn a_step_that_hangs_in_its_replay_names_the_rank_that_differs() {
    let folder = tempfile::tempdir().unwrap();
    let record = record_in(&folder);
    let _concurrent = concurrent();
    let mut command = launcher(4);
    command.arg(common::STEP).arg("--record").arg(&record);
    let step = "--model llama-3-8b --layers 2 --tp 2 --pp 2 --sequence 64 --micro-batches 2 --style pipeline --replay -n 2 \
                --replicates 1 --timeout 3 --inject-fault 1:hang:200";
    let trial = trial(
        {
            command.args(words(step));
            command
        },
        &record,
        false,
    );
    assert_eq!((trial.code, &trial.hang()["suspects"]), (Some(5), &"1".into()), "{}", trial.stderr);
}

#[test]
fn a_stopped_rank_that_the_launcher_wakes_on_termination_is_no_normal_end() {
    let folder = tempfile::tempdir().unwrap();
    let record = record_in(&folder);
    let _concurrent = concurrent();
    let mut command = launcher(4);
    let flags = "all_reduce -b 64 -e 1K -f 2 -n 50 -w 5 --cadence streaming --warm-buffers --replicates 1000 --timeout 60 --record";
    let mut child = start(command.arg(common::SWEEP).args(words(flags)).arg(&record));
    child.wait_until(60, "a case is measured", || count_so_far(&record, "case") >= 1);
    let ranks = pids(&record);
    signal(ranks[1], "STOP");
    std::thread::sleep(std::time::Duration::from_millis(300));
    signal(child.id(), "TERM");
    let ran = ending(child, 40);
    assert_ne!(ran.code, Some(0), "{}", ran.stderr);
    wait_until(5, "no rank runs", || still_running(&ranks).is_empty());
    wait_until(5, "the record has its end", || count_so_far(&record, "end") == 1);
    let last = lines(&record).pop().unwrap();
    assert!(last["status"] == "interrupted" || last["status"] == "failed", "{last}");
}

#[test]
fn a_rank_that_spins_outside_the_call_is_distinguished_from_one_inside_by_state_and_stack() {
    let folder = tempfile::tempdir().unwrap();
    let _concurrent = concurrent();
    for (kind, state, suspects) in [("loop", "never_entered", "2"), ("loop-inside", "entered_not_finished", "")] {
        let record = folder.path().join(format!("{kind}.jsonl"));
        let trial = trial(sweep(&record, &format!("2:{kind}:80")), &record, false);
        let hang = trial.hang();
        assert_eq!((trial.code, &hang["suspects"]), (Some(5), &suspects.into()), "{kind}: {hang}");
        let of_state = hang["ranks"].as_array().unwrap().iter().find(|of| of["state"] == state);
        let ranks = of_state.and_then(|of| of["ranks"].as_str()).unwrap_or_default();
        assert!(ranks == "2" || ranks == "0-3", "{kind}: {hang}");
        let Some(stack) = stack_of(hang, 2) else { panic!("{kind}: no stack: {hang}") };
        if let Some(why) = stack.strip_prefix("not known: ") {
            common::skipped("the stack of a rank", why);
            continue;
        }
        assert!(stack.contains("loop_forever"), "{kind}: {stack}");
        assert_eq!(stack.contains("instead_of_entering"), kind == "loop", "{kind}: {stack}");
        assert!(trial.report.contains(&format!("stack of rank 2: {stack}")), "{kind}: {}", trial.report);
        // The others are in the library.
        let waits = kind == "loop" || stack_of(hang, 0).is_some_and(|stack| stack.contains("MPI_Allreduce"));
        assert!(waits, "{kind}: {hang}");
    }
}

#[test]
fn the_stack_of_a_rank_is_in_report_record_and_output_whatever_tool_shows_it() {
    let folder = tempfile::tempdir().unwrap();
    let tool = folder.path().join("eu-stack");
    let shows = "#!/bin/sh\necho \"TID $3:\"; echo '#0  0x00007f poll'; echo \"#1  0x000001 of_process_$3\"\n";
    common::programs::write_program(&tool, shows);
    let record = record_in(&folder);
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap_or_default());
    let mut command = sweep(&record, "2:loop:80");
    command.env("PATH", path);
    let _concurrent = concurrent();
    let trial = trial(command, &record, false);
    let expected = format!("poll < of_process_{}", pids(&record)[2]);
    assert_eq!(stack_of(trial.hang(), 2), Some(expected.as_str()), "{}", trial.stderr);
    assert!(trial.report.contains(&format!("stack of rank 2: {expected}")), "{}", trial.report);
}

/// The functions of a rank in a report.
fn stack_of(hang: &Value, rank: u32) -> Option<&str> {
    let place = hang["places"].as_array()?.iter().find(|place| place["rank"] == rank)?;
    place["stack"].as_str()
}

#[test]
fn without_its_watchdog_a_stopped_rank_still_ends_the_run_and_the_record_says_that_it_was_unwatched() {
    let folder = tempfile::tempdir().unwrap();
    let _concurrent = concurrent();
    lose(folder.path(), "KILL", 2, "is gone");
    lose(folder.path(), "STOP", 2, "does not answer");
}

#[test]
fn a_rank_that_stops_right_after_its_watchdog_ends_the_run_also_where_it_writes_the_record() {
    let folder = tempfile::tempdir().unwrap();
    let _concurrent = concurrent();
    lose_both(folder.path(), 1);
    lose_both(folder.path(), 0);
}

/// A run of nothing but calls, whose deadline is the one that was asked for, of which a case is measured, and its watchdog.
fn watched_run(folder: &Path, record: &Path) -> (common::Started, u32) {
    let suite = folder.join("calls.toml");
    let text = "name = 'calls'\n[measure]\nreplicates = 1000\nwarm_up_iterations = 1\niterations = 20_000\n[[sweep]]\n\
                collectives = 'all_reduce'\nbytes = '64B'\ncadences = 'streaming'\n";
    std::fs::write(&suite, text).unwrap();
    let mut run = Command::new(COMMGAUGE);
    run.env("NO_COLOR", "1").arg("run").arg(&suite).args(["-n", "4", "--timeout", "4", "--record"]).arg(record);
    let mut child = start(&mut run);
    child.wait_until(60, "a case is measured", || count_so_far(record, "case") >= 1);
    let watchdog = child_of(&pids(record)).expect("a watchdog");
    (child, watchdog)
}

/// The record says that the watchdog is lost before the rank is stopped.
fn lose(folder: &Path, collector: &str, rank: usize, words: &str) {
    let record = folder.join(format!("{collector}.jsonl"));
    let (mut child, watchdog) = watched_run(folder, &record);
    signal(watchdog, collector);
    child.wait_until(60, "the record says so", || count_so_far(&record, "unwatched") == 1);
    let ranks = pids(&record);
    signal(ranks[rank], "STOP");
    let ran = ending(child, 60).ended_with(5).printed_error(words);
    ended_unwatched(&record, &ranks, watchdog, &ran.stderr);
}

/// Nothing is measured between the loss of the watchdog and that of the rank.
fn lose_both(folder: &Path, rank: usize) {
    let record = folder.join(format!("both-{rank}.jsonl"));
    let (child, watchdog) = watched_run(folder, &record);
    let ranks = pids(&record);
    signal(ranks[rank], "STOP");
    signal(watchdog, "KILL");
    let ran = ending(child, 60).ended_with(5).printed_error("ends the launch by its own deadline");
    ended_unwatched(&record, &ranks, watchdog, &ran.stderr);
}

#[track_caller]
fn ended_unwatched(record: &Path, ranks: &[u32], watchdog: u32, stderr: &str) {
    let read = lines(record);
    assert_eq!(of_kind(&read, "unwatched").len(), 1, "{stderr}");
    let end = read.last().unwrap();
    assert_eq!((&end["line"], &end["exit_code"]), (&"end".into(), &5.into()), "{end}: {stderr}");
    assert!(end["error"].as_str().is_some_and(|why| why.contains("by its own deadline")), "{end}");
    wait_until(5, "no rank runs", || still_running(ranks).is_empty());
    assert!(still_running(&[watchdog]).is_empty());
    let report = Command::new(COMMGAUGE).arg("report").arg(record).output().unwrap();
    let shown = String::from_utf8_lossy(&report.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(shown.contains("from then on the run was unwatched"), "{shown}");
}

/// A rank that others neither send to nor wait for blocks the others later than in its call. `scripts/watchdog-trials` runs it.
#[test]
#[ignore = "takes minutes: 5 launches of each collective"]
fn trials_of_a_stopped_leaf_of_a_tree() {
    let folder = tempfile::tempdir().unwrap();
    let trials = std::env::var("TRIALS").ok().and_then(|text| text.parse().ok()).unwrap_or(5);
    let _alone = alone();
    for collective in ["broadcast", "reduce", "all_reduce"] {
        let mut gone = Vec::new();
        for index in 0..trials {
            let record = folder.path().join(format!("{collective}-{index}.jsonl"));
            let trial = trial(sweep_of(collective, &record, "3:stop:80"), &record, false);
            let hang = trial.hang();
            assert_eq!(
                (trial.code, &hang["suspects"]),
                (Some(5), &"3".into()),
                "{collective} {index}: {}",
                trial.stderr
            );
            assert_eq!((&trial.end()["line"], &trial.end()["exit_code"]), (&"end".into(), &5.into()), "{collective}");
            assert!(trial.gone_seconds < 10.0 && trial.left.is_empty(), "{collective} {index}: {trial:?}");
            gone.push(trial.gone_seconds);
        }
        let worst = gone.iter().copied().fold(f64::MIN, f64::max);
        eprintln!("{FAMILY}: leaf of {collective} stopped: {trials} of {trials}, all gone after {worst:.1} s at most");
    }
}

/// Figures of docs/evidence.md: `scripts/watchdog-trials bare` runs it.
#[test]
#[ignore = "takes minutes: 20 launches of each fault"]
fn twenty_trials_of_each_fault() {
    let folder = tempfile::tempdir().unwrap();
    let trials = std::env::var("TRIALS").ok().and_then(|text| text.parse().ok()).unwrap_or(20);
    let _alone = alone();
    let chosen = std::env::var("FAULT").ok();
    for (kind, state, code) in FAULTS.into_iter().filter(|fault| chosen.as_deref().is_none_or(|kind| kind == fault.0)) {
        let (mut report, mut gone) = (Vec::new(), Vec::new());
        for index in 0..trials {
            let record = folder.path().join(format!("{kind}-{index}.jsonl"));
            let rank = index % 4;
            let trial = trial(sweep(&record, &format!("{rank}:{kind}:80")), &record, code == 6);
            check(&format!("{kind} {index}"), rank, state, code, &trial);
            assert!(trial.gone_seconds < 8.0 && trial.report_seconds < 8.0, "{kind} {index}: {trial:?}");
            eprintln!("{FAMILY}: {kind} {index}: gone after {:.2} s", trial.gone_seconds);
            report.push(trial.report_seconds);
            gone.push(trial.gone_seconds);
        }
        let worst = |seconds: &[f64]| seconds.iter().copied().fold(f64::MIN, f64::max);
        let middle = |seconds: &mut Vec<f64>| {
            seconds.sort_by(f64::total_cmp);
            seconds[seconds.len() / 2]
        };
        eprintln!(
            "{FAMILY}: {kind}: {trials} of {trials}; report after the deadline {:.2} s (at most {:.2}), all gone {:.2} s (at most {:.2})",
            middle(&mut report),
            worst(&report),
            middle(&mut gone),
            worst(&gone)
        );
    }
}
