//! A launch that was killed, stopped, or out of time is resumed, and loses nothing that it had written. Needs the
//! launcher of the MPI that was built with.

use crate::common;

use commgauge::record::{Record, Seal};
use common::{
    COMMGAUGE, FAMILY, Ran, SWEEP, Started, concurrent, count_so_far, ending, launcher, lines, of_kind, pids,
    record_in, signal, start, still_running, wait_until, words,
};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// 36 case lines of a few milliseconds each.
const SMALL: &str = "name = 'small'\n[measure]\nminimum_samples = 3\nmaximum_samples = 5\ncase_budget = '5ms'\nreplicates = 3\n\
    cadences = 'streaming'\n[[sweep]]\ncollectives = ['all_reduce', 'all_gather']\n\
    bytes = ['64B', '1KiB', '4KiB']\n";
const RANKS: usize = 4;

/// `commgauge run` with more flags. Ranks that share their cores are configured to yield.
fn commgauge_run(folder: &Path, flags: &str) -> Command {
    let suite = folder.join("small.toml");
    if !suite.exists() {
        std::fs::write(&suite, SMALL).unwrap();
    }
    let mut command = Command::new(COMMGAUGE);
    command.env("NO_COLOR", "1").env("OMPI_MCA_mpi_yield_when_idle", "1");
    // The arguments of the first launch apply to resumed ones too.
    let unbound = if FAMILY == "open-mpi" { "--bind-to" } else { "-bind-to" };
    command.stdin(Stdio::null()).current_dir(folder).arg("run").args(words(flags));
    if !flags.contains("--resume") {
        command.args(["--launcher-arg", unbound, "--launcher-arg", "none"]);
    }
    command
}

/// All descendants of a process, by the parents in `/proc`.
fn family_of(ancestor: u32) -> Vec<u32> {
    let parent_of = |pid: u32| -> Option<u32> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
    };
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let all: Vec<u32> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    let mut found = vec![ancestor];
    let mut at = 0;
    while at < found.len() {
        let parent = found[at];
        found.extend(all.iter().filter(|pid| parent_of(**pid) == Some(parent)));
        at += 1;
    }
    found
}

/// Kills `commgauge run`, its launcher and all ranks at once; nothing of them can clean up.
fn kill_whole_job(child: Started) {
    let family = family_of(child.id());
    let shared = common::shared_memory_of(&family);
    for pid in &family {
        // It may have ended meanwhile, with its parent.
        let _ = kill_process(Pid::from_raw(*pid as i32).unwrap(), Signal::KILL);
    }
    ending(child, 10);
    wait_until(10, "no rank runs", || still_running(&family).is_empty());
    // No process of the job is left to do it.
    shared.iter().for_each(|path| drop(std::fs::remove_file(path)));
}

/// Lines of cases that a record has, as it has them.
fn case_lines(record: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(record).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
    whole.lines().filter(|line| line.starts_with("{\"line\":\"case\"")).map(str::to_owned).collect()
}

/// Every case of every replicate once, and nothing unreliable about the file.
#[track_caller]
fn assert_whole(record: &Path) {
    let read = Record::read(record).unwrap();
    assert_eq!(
        (read.file.seal, read.file.torn, read.file.warnings.len()),
        (Seal::Whole, false, 0),
        "{:?}",
        read.file.warnings
    );
    let done: BTreeSet<(u32, u32)> = read.cases.iter().map(|case| (case.case, case.replicate)).collect();
    assert_eq!((done.len() as u64, read.cases.len()), (read.plan.case_lines, done.len()));
    assert!(read.is_finished());
}

/// Kills a job at this many moments of its life, and resumes it each time until it is complete.
fn killed_at(moments: u32, seed: u64) -> (u32, u32) {
    let folder = tempfile::tempdir().unwrap();
    let (mut random, mut without_record, mut kills_of_resumed) = (seed, 0, 0);
    let mut next = |most: u64| {
        // Knuth's multiplier: any spread will do.
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        Duration::from_millis((random >> 33) % most)
    };
    let mut killed = 0;
    while killed < moments {
        let record = record_in(&folder);
        let _ = std::fs::remove_file(&record);
        let mut command = commgauge_run(folder.path(), &format!("small.toml -n {RANKS} --record {}", record.display()));
        let _concurrent = concurrent();
        let mut reported = Vec::new();
        loop {
            let child = start(&mut command);
            std::thread::sleep(Duration::from_millis(300) + next(2000));
            let finished = Record::read(&record).is_ok_and(|record| record.is_finished());
            if finished || killed == moments {
                break drop(ending(child, 240).ended_with(0));
            }
            kill_whole_job(child);
            killed += 1;
            let now = case_lines(&record);
            assert!(now.len() >= reported.len() && now[..reported.len()] == reported[..], "a line was lost");
            kills_of_resumed += u32::from(!reported.is_empty());
            reported = now;
            match Record::read(&record) {
                Ok(_) => command = commgauge_run(folder.path(), &format!("--resume {}", record.display())),
                // Killed before the first line was written: there is nothing to resume.
                Err(error) => {
                    assert!(reported.is_empty(), "{error}");
                    let empty = std::fs::metadata(&record).map_or(0, |facts| facts.len());
                    assert_eq!(empty, 0, "{error}");
                    let _ = std::fs::remove_file(&record);
                    without_record += 1;
                }
            }
        }
        assert_whole(&record);
        let last = case_lines(&record);
        assert_eq!(last[..reported.len()], reported[..], "a case was lost that had been reported as done");
    }
    (without_record, kills_of_resumed)
}

#[test]
fn a_job_killed_at_any_moment_resumes_and_loses_no_case() {
    killed_at(3, 7);
}

/// The figure of docs/evidence.md: `cargo test --test launched resume:: -- --ignored --nocapture`.
#[test]
#[ignore = "takes minutes"]
fn a_job_killed_at_a_hundred_random_moments_resumes_and_loses_no_case() {
    let (without_record, resumed) = killed_at(100, 20_261_121);
    eprintln!(
        "100 kills: {without_record} before the first line, {resumed} of a launch that had resumed or measured before"
    );
}

#[test]
fn sigterm_ends_in_order_and_the_named_command_resumes() {
    let folder = tempfile::tempdir().unwrap();
    let record = record_in(&folder);
    let concurrent = concurrent();
    let mut child =
        start(&mut commgauge_run(folder.path(), &format!("small.toml -n {RANKS} --record {}", record.display())));
    child.wait_until(120, "three cases are measured", || count_so_far(&record, "case") >= 3);
    let ranks = pids(&record);
    signal(child.id(), "TERM");
    let ran = ending(child, 15).ended_with(143).printed_error("stopped by SIGTERM");
    let ran = ran.printed_error(&format!("resume with: commgauge run --resume {}", record.display()));
    wait_until(3, "no rank runs", || still_running(&ranks).is_empty());
    let last = lines(&record).pop().unwrap();
    assert_eq!(
        (&last["line"], &last["status"], &last["exit_code"]),
        (&"end".into(), &"interrupted".into(), &143.into()),
        "{}",
        ran.stderr
    );
    // What a signal cut short is measured again, so not every line need stay.
    let before = Record::read(&record).unwrap().measured_lines();
    drop(concurrent);
    let ran = Ran::of(&mut commgauge_run(folder.path(), &format!("--resume {}", record.display())), 180).ended_with(0);
    ran.printed_error(&format!("holds {before} of ")).printed_error("--resume");
    assert_whole(&record);
    Ran::of(&mut commgauge_run(folder.path(), &format!("--resume {}", record.display())), 20)
        .ended_with(0)
        .printed_error("is complete: nothing left to measure");
}

#[test]
fn a_launch_that_is_not_as_the_run_was_is_refused_with_a_table_unless_that_is_allowed() {
    let folder = tempfile::tempdir().unwrap();
    let record = record_in(&folder);
    let flags = "all_reduce -b 8 -e 64 -f 2 -n 3 -w 0 --replicates 2 --warm-buffers";
    let mut first = launcher(2);
    first.arg(SWEEP).args(words(flags)).arg("--record").arg(&record);
    Ran::of(&mut first, 40).ended_with(0);
    let all = std::fs::read_to_string(&record).unwrap();
    let cut: String = all.lines().take(6).map(|line| format!("{line}\n")).collect();
    std::fs::write(&record, &cut).unwrap();
    let again = |more: &str, environment: (&str, &str)| {
        let mut command = launcher(2);
        command.env(environment.0, environment.1);
        command.arg(SWEEP).args(words(flags)).args(words(more)).arg("--resume").arg(&record);
        command
    };
    // Another value, and the same transports: over UCX's TCP MPICH 4.0 does not always come out of MPI_Finalize.
    let changed = ("UCX_TLS", "all");
    let ran = Ran::of(&mut again("", changed), 40).ended_with(7);
    let ran = ran.printed_error("this launch differs from the run that wrote").printed_error("--allow-changed");
    let table: Vec<&str> = ran.stderr.lines().filter(|line| line.starts_with("  ")).collect();
    assert_eq!(table[0].split_whitespace().collect::<Vec<_>>(), ["what", "in", "the", "record", "now"], "{table:?}");
    assert_eq!(table[1].split_whitespace().collect::<Vec<_>>(), ["transport", "none", "UCX_TLS=all"], "{table:?}");
    Ran::of(&mut again("--precision 5%", ("A", "b")), 40).ended_with(7).printed_error("precision");
    Ran::of(&mut again("--cadence isolated --allow-changed", ("A", "b")), 40)
        .ended_with(7)
        .printed_error("cannot resume");
    assert_eq!(std::fs::read_to_string(&record).unwrap(), cut, "refused, so untouched");
    let ran = Ran::of(&mut again("--allow-changed", changed), 40).ended_with(0);
    let output_text = words(&ran.stdout).join(" ");
    assert!(output_text.contains("transport was none, is UCX_TLS=all"), "{output_text}");
    assert_whole(&record);
    let resume = &of_kind(&lines(&record), "resume")[0].clone();
    assert_eq!(
        (&resume["changes"][0]["what"], &resume["changes"][1]["what"]),
        (&"transport".into(), &"UCX_TLS".into())
    );
    assert_eq!(resume["ranks"].as_array().unwrap().len(), 2);
}

#[test]
fn two_launches_cannot_resume_one_record_and_a_time_limit_ends_with_75() {
    let folder = tempfile::tempdir().unwrap();
    let record = record_in(&folder);
    let concurrent = concurrent();
    let resume = format!("--resume {}", record.display());
    let mut child =
        start(&mut commgauge_run(folder.path(), &format!("small.toml -n {RANKS} --record {}", record.display())));
    child.wait_until(120, "a case is measured", || count_so_far(&record, "case") >= 1);
    let second = ending(start(&mut commgauge_run(folder.path(), &resume)), 20).ended_with(2);
    second.printed_error("the run that writes it is in progress");
    signal(child.id(), "TERM");
    ending(child, 15).ended_with(143);
    drop(concurrent);
    // 5 ms are over before the launch is.
    let limited = Ran::of(&mut commgauge_run(folder.path(), &format!("{resume} --time-limit 5ms")), 40).ended_with(75);
    limited.printed_error("the time limit of").printed_error("resume with: commgauge run --resume");
    let last = lines(&record).pop().unwrap();
    assert_eq!((&last["status"], &last["exit_code"]), (&"out_of_time".into(), &75.into()));
    Ran::of(&mut commgauge_run(folder.path(), &format!("{resume} --time-limit 10m")), 180).ended_with(0);
    assert_whole(&record);
    assert!(Record::read(&record).unwrap().resumes.len() >= 2);
}
