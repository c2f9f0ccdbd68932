//! Whatever stops a launch (Ctrl-C, a killed rank, a panic) ends all ranks within seconds, stores what was measured,
//! and leaves nothing behind. Needs the launcher of the MPI that was built with.

use crate::common;
use crate::trial::session_folders_of;

use common::{
    COMMGAUGE, FAMILY, Ran, SWEEP, Started, child_of, concurrent, count_so_far, ending, launcher, lines, of_kind, pids,
    record_in, shared_memory_of, signal, start, still_running, wait_until, words,
};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A sweep that would run for minutes.
const LONG: &str = "name = \"long\"\n[measure]\nprecision = 1e-6\nminimum_samples = 10\nmaximum_samples = 1_000_000\ncase_budget = \"200ms\"\nreplicates = 40\n[[sweep]]\ncollectives = [\"all_reduce\", \"broadcast\"]\nbytes = [\"64B\", \"1KiB\"]\n";

/// A sweep of seconds.
const SHORT: &str = "name = 'short'\n[measure]\nreplicates = 3\nminimum_samples = 5\ncase_budget = '300ms'\n[[sweep]]\ncollectives = 'all_reduce'\nbytes = '64KiB'\ncadences = 'streaming'\n";

/// `commgauge run` of the short suite.
fn short_run(folder: &Path, record: &Path, flags: &str) -> Started {
    let suite = folder.join("short.toml");
    std::fs::write(&suite, SHORT).unwrap();
    let mut command = Command::new(COMMGAUGE);
    command.arg("run").arg(&suite).args(words(flags)).arg("--record").arg(record);
    start(command.env("NO_COLOR", "1").stdin(Stdio::null()))
}

/// `commgauge run` of a long suite.
fn long_run(folder: &Path, record: &Path) -> Started {
    start(&mut long_command(folder, record, 4))
}

fn long_command(folder: &Path, record: &Path, ranks: u32) -> Command {
    let suite = folder.join("long.toml");
    std::fs::write(&suite, LONG).unwrap();
    // Processes that a script starts in the background ignore some signals.
    let mut command = Command::new("env");
    command
        .args(["--default-signal=HUP,INT,QUIT", COMMGAUGE, "run"])
        .arg(suite)
        .args(["-n", &ranks.to_string(), "--record"])
        .arg(record);
    command.env("NO_COLOR", "1").stdin(Stdio::null()).current_dir(env!("CARGO_MANIFEST_DIR"));
    command
}

/// Waits for the third case line.
fn wait_for_cases(run: &mut Started, record: &Path) {
    run.wait_until(40, "three cases are measured", || count_so_far(record, "case") >= 3);
}

#[track_caller]
fn assert_reads_and_nothing_is_left(record: &Path, ranks: &[u32], shared: &BTreeSet<String>) {
    wait_until(3, "no rank runs", || still_running(ranks).is_empty());
    let left: Vec<&String> = shared.iter().filter(|path| Path::new(path).exists()).collect();
    assert_eq!(left, Vec::<&String>::new());
    assert!(count_so_far(record, "case") >= 3);
    let report = Command::new(COMMGAUGE).arg("report").arg(record).output().unwrap();
    assert!(String::from_utf8_lossy(&report.stdout).contains("all_reduce"), "{report:?}");
}

#[test]
fn ctrl_c_ends_commgauge_run_with_130_and_keeps_what_was_measured() {
    let folder = tempfile::tempdir().unwrap();
    let record = record_in(&folder);
    let _concurrent = concurrent();
    let mut child = long_run(folder.path(), &record);
    wait_for_cases(&mut child, &record);
    let ranks = pids(&record);
    let shared = shared_memory_of(&ranks);
    signal(child.id(), "INT");
    let ran =
        ending(child, 15).ended_with(130).printed_error("stopped by SIGINT").printed_error("measured cases are kept");
    assert!(ran.stdout.contains(" verified, 0 failed"), "the summary is shown: {}", ran.stdout);
    assert_reads_and_nothing_is_left(&record, &ranks, &shared);
    let last = lines(&record).pop().unwrap();
    if last["line"] == "end" {
        assert_eq!((&last["status"], &last["exit_code"]), (&"interrupted".into(), &130.into()), "{last}");
    } else {
        assert!(ran.stdout.contains("cut off"), "{}", ran.stdout);
    }
}

#[test]
fn a_hang_up_and_a_quit_end_commgauge_run_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let _concurrent = concurrent();
    for (name, code) in [("HUP", 129), ("QUIT", 131)] {
        let record = folder.path().join(format!("{name}.jsonl"));
        let mut child = long_run(folder.path(), &record);
        wait_for_cases(&mut child, &record);
        let ranks = pids(&record);
        let shared = shared_memory_of(&ranks);
        signal(child.id(), name);
        ending(child, 15).ended_with(code).printed_error(&format!("stopped by SIG{name}"));
        assert_reads_and_nothing_is_left(&record, &ranks, &shared);
        let last = lines(&record).pop().unwrap();
        assert_eq!((&last["line"], &last["status"]), (&"end".into(), &"interrupted".into()), "{name}");
        assert_eq!(last["exit_code"], code, "the record has the code of the program: {last}");
        assert!(!record.with_extension("stopped.txt").exists(), "the note is gone");
    }
}

#[test]
fn a_closed_standard_error_ends_commgauge_run_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let record = record_in(&folder);
    let _concurrent = concurrent();
    let mut command = long_command(folder.path(), &record, 4);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
    common::wait_until(40, "three cases are measured", || count_so_far(&record, "case") >= 3);
    let ranks = pids(&record);
    let shared = shared_memory_of(&ranks);
    drop(child.stderr.take());
    let code = child.wait().expect("it is ours").code();
    assert_eq!(code, Some(141), "as of a program that SIGPIPE ends");
    assert_reads_and_nothing_is_left(&record, &ranks, &shared);
    let last = lines(&record).pop().unwrap();
    assert_eq!((&last["status"], &last["exit_code"]), (&"interrupted".into(), &141.into()), "{last}");
}

#[test]
fn a_segmentation_fault_that_another_process_sends_ends_the_launch() {
    let folder = tempfile::tempdir().unwrap();
    let record = record_in(&folder);
    let _concurrent = concurrent();
    let mut child = long_run(folder.path(), &record);
    wait_for_cases(&mut child, &record);
    let ranks = pids(&record);
    signal(ranks[1], "SEGV");
    ending(child, 15).ended_with(6);
    wait_until(3, "no rank runs", || still_running(&ranks).is_empty());
    let last = lines(&record).pop().unwrap();
    assert_eq!((&last["line"], &last["status"]), (&"end".into(), &"failed".into()), "{last}");
}

#[test]
fn ranks_that_are_killed_at_once_are_all_named_in_one_list_and_no_others() {
    let folder = tempfile::tempdir().unwrap();
    let _concurrent = concurrent();
    kill_at_once(folder.path(), "two", 4, &[1, 3], "1,3");
    kill_at_once(folder.path(), "four", 6, &[1, 2, 3, 4], "1-4");
}

/// `scripts/watchdog-trials` runs it.
#[test]
#[ignore = "takes minutes: 20 launches"]
fn twenty_trials_of_four_ranks_that_are_killed_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let trials = std::env::var("TRIALS").ok().and_then(|text| text.parse().ok()).unwrap_or(20);
    let _alone = common::alone();
    let mut unsure = 0;
    for index in 0..trials {
        unsure += u32::from(!kill_at_once(folder.path(), &format!("trial-{index}"), 6, &[1, 2, 3, 4], "1-4"));
    }
    eprintln!(
        "{FAMILY}: four ranks killed at once: {trials} of {trials} named all four, and no others except {unsure}"
    );
}

/// Whether exactly those who were killed are named. On a busy machine the launcher may have ended all before the first one is
/// noticed, and then it is said that some may not have died by themselves.
fn kill_at_once(folder: &Path, name: &str, ranks: u32, victims: &[usize], suspects: &str) -> bool {
    let record = folder.join(format!("{name}.jsonl"));
    let mut child = start(&mut long_command(folder, &record, ranks));
    wait_for_cases(&mut child, &record);
    let processes = pids(&record);
    victims.iter().for_each(|rank| signal(processes[*rank], "KILL"));
    let ran = ending(child, 15).ended_with(6);
    wait_until(3, "no rank runs", || still_running(&processes).is_empty());
    // The launcher of MPICH kills the others as soon as one is gone; who was first is then not always known.
    if FAMILY != "open-mpi" {
        return true;
    }
    let read = lines(&record);
    let hang = of_kind(&read, "hang")[0];
    let is_sure = hang["launcher_may_have_ended_some"] != true;
    assert!(!is_sure || hang["suspects"] == suspects, "{name}: {hang}: {}", ran.stderr);
    let words =
        if is_sure { " ranks died at the same time: " } else { " ranks died at the same time, some of them perhaps" };
    let list = ran.stderr.lines().find(|line| line.contains(words));
    let list = list.unwrap_or_else(|| panic!("{name}: no list: {}", ran.stderr));
    for (rank, process) in processes.iter().enumerate() {
        let is_named = list.contains(&format!("rank {rank} (process {process} on "));
        assert!(is_named == victims.contains(&rank) || is_named && !is_sure, "{name}: rank {rank}: {}", ran.stderr);
    }
    is_sure
}

#[test]
fn a_launcher_that_is_stopped_before_its_ranks_finalise_is_ended_with_them() {
    let folder = tempfile::tempdir().unwrap();
    let record = record_in(&folder);
    let _concurrent = concurrent();
    let mut child = short_run(folder.path(), &record, "-n 4 --timeout 4");
    child.wait_until(40, "the ranks are connected", || count_so_far(&record, "plan") == 1);
    let (ranks, launcher) = (pids(&record), child_of(&[child.id()]).expect("a launcher"));
    signal(launcher, "STOP");
    let ran =
        ending(child, 40).ended_with(5).printed_error("the launcher did not end within 15.0 s of the end of the run");
    assert!(still_running(&ranks).is_empty(), "{}", ran.stderr);
    assert_eq!(lines(&record).pop().unwrap()["status"], "complete", "what was measured is whole");
    assert_eq!(session_folders_of(launcher), Vec::<PathBuf>::new());
}

#[test]
fn nothing_is_left_of_a_launcher_that_was_killed() {
    let folder = tempfile::tempdir().unwrap();
    let record = record_in(&folder);
    let _concurrent = concurrent();
    let mut child = long_run(folder.path(), &record);
    wait_for_cases(&mut child, &record);
    let (ranks, launcher) = (pids(&record), child_of(&[child.id()]).expect("a launcher"));
    let shared = shared_memory_of(&ranks);
    signal(launcher, "KILL");
    ending(child, 20).ended_with(6).printed_error("the launcher was ended by SIGKILL, and its ranks with it");
    assert_reads_and_nothing_is_left(&record, &ranks, &shared);
    assert_eq!(session_folders_of(launcher), Vec::<PathBuf>::new());
}

#[test]
fn a_record_that_is_removed_meanwhile_is_kept_under_another_name() {
    let folder = tempfile::tempdir().unwrap();
    let record = record_in(&folder);
    let _concurrent = concurrent();
    let mut child = short_run(folder.path(), &record, "-n 4");
    child.wait_until(40, "the record is begun", || count_so_far(&record, "plan") == 1);
    std::fs::remove_file(&record).unwrap();
    let kept = folder.path().join("run.kept.jsonl");
    let ran = ending(child, 40).ended_with(6).printed_error(&format!(
        "the record {} was removed while it was written; all of it is in {}",
        record.display(),
        kept.display()
    ));
    assert!(ran.stdout.contains("2 verified, 0 failed"), "the summary is shown: {}", ran.stdout);
    let read = lines(&kept);
    assert_eq!((&read[0]["line"], &read.last().unwrap()["status"]), (&"header".into(), &"complete".into()));
    assert!(!record.exists());
}

#[test]
fn a_record_that_is_damaged_meanwhile_ends_its_run_with_7_and_is_no_usage_error() {
    let emptied = |record: &Path| std::fs::write(record, "").unwrap();
    let cut = |record: &Path| std::fs::OpenOptions::new().write(true).open(record).unwrap().set_len(1000).unwrap();
    let added = |record: &Path| {
        let mut file = std::fs::OpenOptions::new().append(true).open(record).unwrap();
        std::io::Write::write_all(&mut file, b"no line of a record\n").unwrap();
    };
    for damage in [emptied as fn(&Path), cut, added] {
        let folder = tempfile::tempdir().unwrap();
        let record = record_in(&folder);
        let _concurrent = concurrent();
        let mut child = short_run(folder.path(), &record, "-n 2");
        child.wait_until(40, "the record is begun", || count_so_far(&record, "plan") == 1);
        damage(&record);
        ending(child, 40).ended_with(7).printed_error("the record was changed while it was written");
    }
}

#[test]
fn ctrl_c_at_a_launcher_keeps_what_was_measured() {
    let folder = tempfile::tempdir().unwrap();
    let record = record_in(&folder);
    let _concurrent = concurrent();
    let flags = "all_reduce -b 64 -e 4K -f 2 --precision 0.0001 --budget 200ms --replicates 40 --quiet";
    let mut command = launcher(3);
    let mut child = start(command.arg(SWEEP).args(words(flags)).arg("--record").arg(&record));
    wait_for_cases(&mut child, &record);
    let ranks = pids(&record);
    let shared = shared_memory_of(&ranks);
    signal(child.id(), "INT");
    let ran = ending(child, 15);
    assert_ne!(ran.code, Some(0), "{}", ran.stderr);
    wait_until(5, "no rank runs", || still_running(&ranks).is_empty());
    assert_reads_and_nothing_is_left(&record, &ranks, &shared);
}

#[test]
fn a_killed_rank_is_named_with_its_host_and_the_others_end() {
    let folder = tempfile::tempdir().unwrap();
    let record = record_in(&folder);
    let _concurrent = concurrent();
    let mut child = long_run(folder.path(), &record);
    wait_for_cases(&mut child, &record);
    let ranks = pids(&record);
    signal(ranks[2], "KILL");
    let ran = ending(child, 15).ended_with(6);
    let host = lines(&record)[0]["ranks"][2]["host"].as_str().unwrap().to_owned();
    ran.printed_error(&format!("rank 2 (process {} on {host}) was killed by SIGKILL", ranks[2]));
    wait_until(3, "no rank runs", || still_running(&ranks).is_empty());
    assert!(count_so_far(&record, "case") >= 3);
}

#[test]
fn a_panicking_rank_ends_the_launch_and_is_named_with_its_host() {
    let folder = tempfile::tempdir().unwrap();
    let record = record_in(&folder);
    let mut run = Command::new(COMMGAUGE);
    run.env("NO_COLOR", "1").current_dir(env!("CARGO_MANIFEST_DIR"));
    run.args(["run", "suites/smoke.toml", "-n", "4", "--record"]).arg(&record).args(["--", "--inject-panic", "2"]);
    let ran = Ran::of(&mut run, 20).ended_with(6);
    let host = lines(&record)[0]["ranks"][2]["host"].as_str().unwrap().to_owned();
    let ran = ran.printed_error(&format!("commgauge: rank 2: a broken assumption on host {host}"));
    ran.printed_error("requested by --inject-panic");
    // The launcher ends when it has signalled them; the system needs a moment to reap them.
    wait_until(3, "no rank runs", || still_running(&pids(&record)).is_empty());

    let mut direct = launcher(4);
    direct.arg(SWEEP).args(words("all_reduce -b 8 -e 8 --inject-panic 0 --record"));
    let ran = Ran::of(direct.arg(folder.path().join("direct.jsonl")), 20).ended_with(6);
    ran.printed_error("rank 0: a broken assumption on host");
}

#[test]
fn a_run_whose_record_was_changed_while_it_was_written_ends_with_7() {
    let folder = tempfile::tempdir().unwrap();
    let record = record_in(&folder);
    let _concurrent = concurrent();
    let mut run = short_run(folder.path(), &record, "-n 2");
    run.wait_until(40, "a case is measured", || count_so_far(&record, "case") >= 1);
    let text = std::fs::read_to_string(&record).unwrap();
    let year = text.find("\"started_at\":\"2").unwrap() + "\"started_at\":\"".len();
    let file = std::fs::OpenOptions::new().write(true).open(&record).unwrap();
    // In place, as an editor that keeps the file does.
    std::os::unix::fs::FileExt::write_all_at(&file, b"1", year as u64).unwrap();
    ending(run, 30).ended_with(7).printed_error("the digest of line 1 does not fit");
}
