//! The exit code and the messages that follow from launcher and record.

use super::super::record_state::Hang;
use super::*;

const OPEN_MPI: &str = "mpirun noticed that process rank 1 with PID 0 on node vm exited on signal 9 (Killed).\n";
const MPICH: &str = "=   PID 101 RUNNING AT vm\n=   EXIT CODE: 9\nEXIT STRING: Killed (signal 9)\n";

fn rank(rank: u32) -> RankFacts {
    RankFacts {
        rank,
        ranks: 1,
        host: "vm.cluster".into(),
        node: 0,
        pid: 100 + rank,
        cores: "0".into(),
        numa_nodes: "0".into(),
        processor: "cpu".into(),
        kernel: "Linux".into(),
        device: None,
        adapters: Vec::new(),
    }
}

fn end(status: EndStatus, exit_code: i32) -> Option<End> {
    let error = (exit_code != 0).then(|| "rank 3: data arrived wrong".to_owned());
    Some(End { status, exit_code, error, elapsed_seconds: Seconds(1.0), lines_before: None, sha256: None })
}

fn check(code: Option<i32>, interrupted_by: Option<i32>, output: &str, end: Option<End>) -> (i32, String) {
    check_with(code, interrupted_by, output, end, (&[], &[]))
}

fn hang(reason: HangReason, suspects: &[u32]) -> Hang {
    Hang { reason, suspects: suspects.to_vec(), launcher_may_have_ended_some: false }
}

fn check_with(
    code: Option<i32>,
    interrupted_by: Option<i32>,
    output: &str,
    end: Option<End>,
    (first_exit, died): (&[u32], &[u32]),
) -> (i32, String) {
    let signal = code.is_none().then_some(9);
    let ending = Ending { code, signal, interrupted_by, output: output.into(), ..Ending::default() };
    let record_state = RecordState {
        round: None,
        resumed: false,
        header: Some(vec![rank(0), rank(1)]),
        planned: Some(80),
        cases: 12,
        end,
        out_of_memory_kills: OutOfMemoryKills {
            host: "vm".to_owned(),
            processes: u64::from(output.contains("no memory")),
        },
        first_exit: first_exit.to_vec(),
        hang: (!died.is_empty()).then(|| hang(HangReason::Death, died)),
        is_unwatched: false,
        lone_report: None,
        moved_to: output.contains("moved").then(|| "elsewhere.jsonl".into()),
    };
    let verdict = conclude(&ending, &record_state);
    (verdict.exit_code, verdict.sentences.join("\n"))
}

#[test]
fn without_an_end_line_nothing_is_a_success() {
    for (code, expected) in
        [(Some(0), 6), (Some(1), 6), (Some(2), 2), (Some(4), 4), (Some(5), 5), (Some(7), 7), (None, 6)]
    {
        let (exit_code, text) = check(code, None, "", None);
        assert_eq!(exit_code, expected, "{text}");
        assert!(text.contains("no end line; 12 of 80 measured cases are kept"), "{text}");
    }
}

#[test]
fn the_record_takes_precedence_over_the_launcher() {
    let complete = || end(EndStatus::Complete, 0);
    for (code, end, expected, words) in [
        (Some(0), complete(), 0, ""),
        (Some(139), complete(), 6, "the record ends as complete, but the launcher ended with status 139"),
        (Some(1), end(EndStatus::Failed, 4), 4, "data arrived wrong"),
        (Some(0), end(EndStatus::Failed, 256), 6, "data arrived wrong"),
        (Some(0), end(EndStatus::Interrupted, 0), 6, "ends as interrupted"),
        (Some(1), end(EndStatus::Interrupted, 143), 143, "data arrived wrong"),
    ] {
        let (exit_code, text) = check(code, None, "", end);
        assert_eq!(exit_code, expected, "{text}");
        assert!(text.contains(words), "{text}");
    }
    assert_eq!(check(Some(0), None, "", complete()).1, "");
}

#[test]
fn a_record_that_was_taken_away_is_the_reason_and_no_rank_is_blamed() {
    let output = "Process name: [[1,1],1] Exit code: 6 moved";
    let (exit_code, text) = check(Some(6), None, output, end(EndStatus::Complete, 0));
    assert_eq!(
        (exit_code, text.as_str()),
        (6, "the run is complete, but its record is in elsewhere.jsonl; 12 of 80 measured cases are kept")
    );
    // Out of time, it would be 75, with which a job goes back into the queue to resume what is not there.
    let (exit_code, text) = check(Some(6), None, output, end(EndStatus::OutOfTime, 75));
    assert!(
        exit_code == 6 && text.contains("out of time, but its record is in elsewhere.jsonl"),
        "{exit_code}: {text}"
    );
    let (exit_code, text) = check(Some(137), None, &format!("{OPEN_MPI} moved"), end(EndStatus::Complete, 0));
    assert!(exit_code == 6 && text.contains("killed by SIGKILL"), "{text}");
}

#[test]
fn a_dead_rank_is_named_with_its_process_and_host() {
    for output in [OPEN_MPI, MPICH] {
        let (exit_code, text) = check(Some(9), None, output, None);
        assert_eq!(exit_code, 6);
        assert!(text.contains("rank 1 (process 101 on vm.cluster) was killed by SIGKILL"), "{text}");
    }
}

#[test]
fn a_rank_that_died_during_oom_kills_on_its_host_is_reported_with_them() {
    let text = check(Some(9), None, &format!("{OPEN_MPI}no memory"), None).1;
    assert!(text.contains("rank 1 (process 101 on vm.cluster) was killed by SIGKILL; vm ran out of memory"), "{text}");
    // An OOM kill on another host does not explain this rank's death.
    let text =
        check(Some(9), None, &format!("{} no memory", OPEN_MPI.replace("rank 1", "rank 7").replace("vm", "b")), None).1;
    assert!(text.contains("may have run out of memory"), "{text}");
}

#[test]
fn the_process_that_mpich_names_yields_to_the_one_that_was_seen_to_end_first() {
    for (first_exit, died, expected) in [
        (&[][..], &[][..], "rank 1 (process 101 on vm.cluster) was killed"),
        (&[100], &[], "rank 0 (process 100 on vm.cluster) was killed"),
        (&[100, 101], &[], "one of these ended badly, and the others with it: rank 0 (process 100"),
        // The watchdog is more reliable.
        (&[101], &[0], "rank 0 (process 100 on vm.cluster) was killed"),
    ] {
        let text = check_with(Some(9), None, MPICH, None, (first_exit, died)).1;
        assert!(text.contains(expected), "{text}");
    }
    let text = check_with(Some(137), None, OPEN_MPI, None, (&[100], &[0])).1;
    assert!(text.contains("rank 1 (process 101 on vm.cluster)"), "Open MPI knows: {text}");
}

#[test]
fn ranks_that_were_stopped_because_another_died_are_no_interruption() {
    let (exit_code, text) = check(Some(137), None, OPEN_MPI, end(EndStatus::Interrupted, 143));
    assert_eq!(exit_code, 6);
    assert!(text.contains("rank 1 (process 101 on vm.cluster) was killed by SIGKILL"), "{text}");
}

#[test]
fn a_killed_launcher_is_reported_before_its_ranks() {
    let failed = |code| end(EndStatus::Failed, code);
    for (interrupted_by, output, end, expected, begins) in [
        (None, "", failed(6), 6, "the launcher was ended by SIGKILL, and its ranks with it; 12 of 80 measured cases"),
        (None, "", end(EndStatus::Interrupted, 143), 6, "the launcher was ended by SIGKILL, and its ranks with it"),
        // The launcher was still alive when the rank died.
        (None, OPEN_MPI, failed(6), 6, "rank 3: data arrived wrong"),
        // Errors that the ranks found themselves.
        (None, "", failed(4), 4, "rank 3: data arrived wrong"),
        (None, "", failed(5), 5, "rank 3: data arrived wrong"),
        // Interrupted through us.
        (Some(15), "", failed(6), 143, "stopped by SIGTERM"),
    ] {
        let (exit_code, text) = check(None, interrupted_by, output, end);
        assert_eq!(exit_code, expected, "{text}");
        assert!(text.starts_with(begins), "{text}");
    }
    assert!(check(None, None, "", failed(6)).1.ends_with("after that the record says: rank 3: data arrived wrong"));
}

#[test]
fn a_signal_that_happens_to_have_the_number_of_a_family_is_not_taken_for_it() {
    let output = MPICH.replace("9", "7");
    assert_eq!(check(Some(7), None, &output, None).0, 6);
}

#[test]
fn ranks_that_the_launcher_ended_because_of_another_are_not_blamed() {
    let output = "srun: error: vm: tasks 0-1: Killed\n";
    let text = check_with(Some(9), None, output, end(EndStatus::Failed, 6), (&[], &[1])).1;
    assert!(text.contains("rank 1 (process 101 on vm.cluster) was killed by SIGKILL"), "{text}");
    assert!(!text.contains("rank 0"), "{text}");
    let text = check_with(Some(9), None, output, end(EndStatus::Failed, 6), (&[], &[7])).1;
    assert!(!text.contains("SIGKILL"), "the suspect ended by itself: {text}");
    let hang = Some(hang(HangReason::Deadline, &[1]));
    let record_state = RecordState { hang, end: end(EndStatus::Failed, 5), ..RecordState::default() };
    let ending = Ending { code: Some(5), output: output.into(), ..Ending::default() };
    let verdict = conclude(&ending, &record_state);
    assert_eq!((verdict.exit_code, verdict.sentences.len()), (5, 1), "{:?}", verdict.sentences);
}

#[test]
fn ranks_that_died_together_are_one_list_with_the_causes_that_are_known() {
    for (output, list) in [
        (
            OPEN_MPI,
            "rank 0 (process 100 on vm.cluster), rank 1 (process 101 on vm.cluster, killed by SIGKILL); if no person",
        ),
        (
            "srun: error: vm: tasks 0-1: Killed\n",
            "rank 0 (process 100 on vm.cluster, killed by SIGKILL), rank 1 (process 101 on vm.cluster, killed by SIGKILL); if",
        ),
        // Its launcher names a process that it may have killed itself.
        (MPICH, "rank 0 (process 100 on vm.cluster), rank 1 (process 101 on vm.cluster)"),
    ] {
        let text = check_with(Some(137), None, output, end(EndStatus::Failed, 6), (&[100], &[0, 1])).1;
        assert!(text.contains(&format!("\n2 ranks died at the same time: {list}")), "{text}");
        assert_eq!(text.matches("rank 1 (").count(), 1, "each once: {text}");
    }
}

#[test]
fn where_the_launcher_may_have_ended_some_of_a_list_it_says_so() {
    let hang = Some(Hang { launcher_may_have_ended_some: true, ..hang(HangReason::Death, &[0, 1]) });
    let header = Some(vec![rank(0), rank(1)]);
    let record_state = RecordState { hang, header, end: end(EndStatus::Failed, 6), ..RecordState::default() };
    let ending = Ending { code: Some(137), output: OPEN_MPI.into(), ..Ending::default() };
    let text = conclude(&ending, &record_state).sentences.join("\n");
    let list = "2 ranks died at the same time, some of them perhaps ended by the launcher after one had died: rank 0 (";
    assert!(text.contains(list), "{text}");
}

#[test]
fn a_launch_that_was_overdue_counts_as_hung_however_the_terminated_launcher_ended() {
    let overdue = || Ending { overdue: Some("it is late".into()), ..Ending::default() };
    let by_signal = || Ending { signal: Some(15), ..overdue() };
    let with_success = || Ending { code: Some(0), ..overdue() };
    for (end, words) in [
        (None, "nothing was measured yet"),
        (end(EndStatus::Complete, 0), "the run is complete"),
        (end(EndStatus::Failed, 5), "data arrived wrong"),
    ] {
        for ending in [by_signal(), with_success()] {
            let verdict = conclude(&ending, &RecordState { end: end.clone(), ..RecordState::default() });
            assert_eq!(verdict.exit_code, 5, "{words}");
            let text = verdict.sentences.join("\n");
            assert!(text.contains(words) && text.ends_with("it is late; it was terminated"), "{text}");
        }
    }
}

#[test]
fn an_interrupted_run_reports_its_measured_cases() {
    for (signal, expected) in [(2, 130), (15, 143)] {
        let (exit_code, text) = check(Some(1), Some(signal), "", end(EndStatus::Interrupted, 130));
        assert_eq!(exit_code, expected);
        assert!(text.contains("12 of 80 measured cases are kept"), "{text}");
    }
}

#[test]
fn a_host_whose_watchdog_decided_alone_is_the_cause_and_the_ends_of_the_other_ranks_are_not() {
    let report: HangLine = serde_json::from_value(serde_json::json!({
        "reason": "deadline", "deadline_seconds": 4.0, "operation": "a barrier", "activity": {"name": "case 1 of 2"},
        "suspects": "2", "ranks": [{"state": "stopped_answering", "ranks": "2", "count": 1, "hosts": ["host1"]}],
    }))
    .expect("a line");
    let sentence =
        "no progress within 4.00 s: rank 2 on host1 stopped answering; the others are at a barrier (case 1 of 2)";
    let ending = Ending { code: Some(5), output: SLURM_KILLED.into(), ..Ending::default() };
    let state = |end, reason| RecordState {
        header: Some(vec![rank(0), rank(1)]),
        end,
        lone_report: Some(HangLine { reason, ..report.clone() }),
        ..RecordState::default()
    };
    for end in [None, end(EndStatus::Interrupted, 143)] {
        let state = state(end, HangReason::Deadline);
        let verdict = conclude(&ending, &state);
        assert_eq!(verdict.exit_code, 5);
        assert_eq!(verdict.sentences, [format!("{sentence}; nothing was measured yet")]);
        let end = missing_end(&ending, &state, 5, Duration::ZERO);
        assert_eq!((end.exit_code, end.error), (5, Some(sentence.to_owned())));
    }
    assert_eq!(conclude(&ending, &state(None, HangReason::Death)).exit_code, 6, "a rank died");
    assert_eq!(
        conclude(&ending, &state(end(EndStatus::Complete, 0), HangReason::Deadline)).exit_code,
        6,
        "not over in vain"
    );
}

/// What srun prints when a step is ended.
const SLURM_KILLED: &str = "srun: error: host1: task 2: Killed\nsrun: error: host1: task 3: Exited with exit code 5\nsrun: error: host0: tasks 0-1: Killed\n";
