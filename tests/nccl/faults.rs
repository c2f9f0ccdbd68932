//! Faults under `--backend nccl`, injected by the stand-ins: every fault ends the launch by its deadline with its
//! code, names rank, host, device and call, and retains what was measured before. Needs the launcher of the MPI that
//! was built with.

use crate::common;

use common::doubles::with_doubles;
use common::{
    Ran, STEP, SWEEP, Started, alone, count_so_far, ending, launcher, lines, of_kind, pids, start, still_running,
    wait_until, words,
};
use serde_json::Value;
use std::path::Path;

/// Seconds from the start of a launch to its end: the start of several at once, two seconds of deadline, and ten more.
const LIMIT_SECONDS: u64 = 25;
/// Launches at once: most only wait.
const AT_ONCE: usize = 4;

/// A sweep of two cases in three replicates, whose first replicate has 12 calls on each rank.
const SWEEP_FLAGS: &str =
    "all_reduce -b 1K -e 4K -f 4 --placement out -n 1 -w 1 --replicates 3 --cadence streaming --warm-buffers";
/// A step whose cases have some 250 calls on each rank, and then its replay.
const STEP_FLAGS: &str = "--tp 2 --sequence 16 --micro-batches 4 --replay --replay-repetitions 3 -n 2 -w 0 --replicates 1 \
                          --cadence streaming --warm-buffers";
/// A model of a few thousand parameters.
const TINY: &str = r#"{"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 4,
    "intermediate_size": 128, "vocab_size": 256, "max_position_embeddings": 512}"#;

/// An injected fault and its expected result.
struct Row {
    fault: &'static str,
    flags: &'static str,
    code: i32,
    /// On standard error.
    said: &'static [&'static str],
    /// Case lines with verified numbers.
    kept: usize,
}

const fn row(fault: &'static str, flags: &'static str, code: i32, said: &'static [&'static str]) -> Row {
    Row { fault, flags, code, said, kept: 2 }
}

const PLACE: &str = "device 1 (commgauge double (no GPU), 0000:20:00.0)";
const OP: &str = "all_reduce of ";

/// Each on rank 1, in the second replicate.
const FAULTS: [Row; 19] = [
    row(
        "hang rank=1 op=15",
        "--timeout 2",
        5,
        &["no progress within 2.00 s", "with no outlier", OP, "rank 1 on ", PLACE],
    ),
    // Which of the two aborts first is chance.
    row(
        "hang rank=1 op=15",
        "--timeout 2 --no-watchdog",
        5,
        &["not done within 2 s; aborted", OP, ", host ", ", device "],
    ),
    // NCCL connects in the first call of a kind, on the thread that calls.
    Row {
        kept: 0,
        ..row(
            "hang rank=1 call=connect",
            "--timeout 2 --no-watchdog",
            5,
            &["the first all_reduce of ", "did not end within 2 s", ", host ", ", device "],
        )
    },
    row("open_group rank=1 op=15", "--timeout 2", 5, &["came through it, the others did not", OP, "rank 1 on ", PLACE]),
    row("init_hang rank=1 communicator=3", "--timeout 2", 5, &["ncclCommInitRankConfig did not end within 2 s"]),
    row(
        "init_hang rank=1 communicator=4",
        "--timeout 2 --no-watchdog",
        5,
        &["ncclCommSplit did not end within 2 s", "rank 1, host ", PLACE],
    ),
    row("init_error rank=1 communicator=3", "", 6, &["ncclCommInitRankConfig failed with ncclSystemError", PLACE]),
    Row {
        kept: 0,
        ..row(
            "init_error rank=1 communicator=1 code=1",
            "",
            6,
            &["built for a later CUDA than the driver supports", PLACE],
        )
    },
    row("async_error rank=1 op=15-", "--timeout 20", 6, &["ncclRemoteError", OP, "rank 1, host ", PLACE]),
    row(
        "error rank=1 op=15",
        "--timeout 20",
        6,
        &["ncclAllReduce failed with ncclInternalError", OP, "rank 1, host ", PLACE],
    ),
    row("error rank=1 op=15 code=5", "--no-watchdog", 6, &["ncclAllReduce failed with ncclInvalidUsage", OP, PLACE]),
    row("lost rank=1 op=15", "--timeout 20", 6, &["CUDA_ERROR_LAUNCH_FAILED", OP, "rank 1, host ", PLACE]),
    // What a driver answers that is newer than our bindings.
    row("lost rank=1 op=15 code=99999", "--timeout 20", 6, &["failed with error 99999", OP, "rank 1, host ", PLACE]),
    row(
        "lost rank=1 op=15 code=214",
        "--timeout 20",
        6,
        &["CUDA_ERROR_ECC_UNCORRECTABLE", "ROW_REMAPPER", OP, "rank 1, host ", PLACE],
    ),
    // NCCL takes memory of its own in the first call.
    Row {
        kept: 0,
        ..row(
            "out_of_memory rank=1 call=connect",
            "--timeout 20",
            6,
            &["ncclAllReduce failed with ncclUnhandledCudaError", "no device memory for NCCL's own buffers", OP, PLACE],
        )
    },
    row("kill rank=1 op=15", "--timeout 20", DIED, &["rank 1 on ", " died while the others", OP, PLACE]),
    row("exit rank=1 op=15", "--timeout 20", DIED, &["rank 1 on ", " died while the others", OP, PLACE]),
    row("corrupt rank=1 op=15-", "--timeout 20", 4, &[]),
    Row { kept: 6, ..row("slow rank=1 op=all microseconds=2000", "--timeout 2", 0, &[]) },
];

/// A launcher makes what it will of a rank that died, but no success.
const DIED: i32 = i32::MIN;

fn launch(program: &str, flags: &str, fault: &str, record: &Path) -> Started {
    let mut command = launcher(2);
    command.arg(program).args(words(flags)).args(["--backend", "nccl", "--quiet", "--record"]).arg(record);
    start(with_doubles(&mut command, 2).env("COMMGAUGE_DOUBLE_FAULTS", fault))
}

/// Two lines have the numbers of the first replicate; the message names the place; no rank keeps running.
#[track_caller]
fn check(row: &Row, ran: &Ran, record: &Path) {
    let what = format!("{} {}: {:?}\n{}", row.fault, row.flags, ran.code, ran.stderr);
    match row.code {
        DIED => assert_ne!(ran.code, Some(0), "{what}"),
        code => assert_eq!(ran.code, Some(code), "{what}"),
    }
    for words in row.said {
        assert!(ran.stderr.contains(words), "`{words}` is not in {what}");
    }
    wait_until(5, "no rank runs", || still_running(&pids(record)).is_empty());
    // The end of the record after a lost rank is written by the watchdog, a moment later; without one, by the rank
    // that ended first.
    if !row.flags.contains("--no-watchdog") && row.code != 6 {
        wait_until(5, "the record has its end", || count_so_far(record, "end") == 1);
        let end: Value = lines(record).pop().unwrap();
        let code = if row.code == DIED { 6 } else { row.code };
        assert_eq!(end["exit_code"], code, "{end} {what}");
    }
    let lines = lines(record);
    let verified = of_kind(&lines, "case").iter().filter(|case| case["outcome"]["verified"] == true).count();
    assert_eq!(verified, row.kept, "{what}");
    for corrupt in of_kind(&lines, "case").iter().filter(|case| case["outcome"]["status"] == "corrupt") {
        assert_eq!((row.code, &corrupt["outcome"]["rank"]), (4, &1.into()), "{what}");
    }
}

#[test]
fn every_fault_of_a_gpu_ends_by_its_deadline_with_its_code_its_place_and_what_was_measured() {
    let folder = tempfile::tempdir().unwrap();
    let _alone = alone();
    for (wave, rows) in FAULTS.chunks(AT_ONCE).enumerate() {
        let record = |index: usize| folder.path().join(format!("{wave}-{index}.jsonl"));
        let begin = |(index, row): (usize, &Row)| {
            launch(SWEEP, &format!("{SWEEP_FLAGS} {}", row.flags), row.fault, &record(index))
        };
        let started: Vec<Started> = rows.iter().enumerate().map(begin).collect();
        for (index, (row, started)) in rows.iter().zip(started).enumerate() {
            check(row, &ending(started, LIMIT_SECONDS), &record(index));
        }
    }
}

#[test]
fn a_replayed_step_that_hangs_on_a_gpu_ends_with_and_without_a_watchdog() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("config.json");
    std::fs::write(&model, TINY).unwrap();
    let _alone = alone();
    for (name, flags, said) in [
        ("watched", "--timeout 2", ["no progress within 2.00 s", "the replay of a step", PLACE]),
        ("alone", "--timeout 2 --no-watchdog", ["replay: not done within 2 s; aborted", ", host ", ", device "]),
    ] {
        let record = folder.path().join(format!("{name}.jsonl"));
        let flags = format!("--model {} {STEP_FLAGS} {flags}", model.display());
        let ran = ending(launch(STEP, &flags, "hang rank=1 op=400-", &record), LIMIT_SECONDS).ended_with(5);
        let ran = said.iter().fold(ran, |ran, words| ran.printed_error(words));
        let cases = count_so_far(&record, "case");
        assert!(cases > 3, "{}", ran.stderr);
    }
}
