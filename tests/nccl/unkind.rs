//! What stand-ins that are as unkind as real devices would show: holds behind which the host waits, kernels without room for one another,
//! clocks that are off. Needs the launcher of the MPI that was built with.

use crate::common;

use common::doubles::with_doubles;
use common::{Ran, STEP, SWEEP, in_three_attempts, launcher, lines, of_kind, record_in, words};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// A model of a few thousand parameters.
const TINY: &str = r#"{"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 4,
    "intermediate_size": 128, "vocab_size": 256, "max_position_embeddings": 512}"#;

fn nccl(ranks: u32, program: &str, flags: &str, record: &Path) -> Command {
    let mut command = launcher(ranks);
    command.arg(program).args(words(flags)).args(["--backend", "nccl", "--quiet", "--record"]).arg(record);
    with_doubles(&mut command, ranks);
    command
}

#[test]
fn isolated_groups_longer_than_the_queue_of_work_are_skipped_and_graphs_of_them_measured() {
    let folder = tempfile::tempdir().unwrap();
    let record = record_in(&folder);
    let flags = "all_to_all all_reduce -b 1K -e 1K -n 2 -w 0 --replicates 1 --warm-buffers --placement out --aggregate 8,64 \
                 --submit stream,graph:1 --cadence both --timeout 20";
    let mut command = nccl(3, SWEEP, flags, &record);
    // Of 64 times 3 messages of 96 bytes; in the usual one there is room for those of 170 ranks.
    Ran::of(command.env("NCCL_WORK_FIFO_BYTES", "16384"), 120).ended_with(0);
    let lines = lines(&record);
    let plan = of_kind(&lines, "plan")[0]["cases"].as_array().unwrap().clone();
    let cases = of_kind(&lines, "case");
    assert_eq!(cases.len(), 16);
    for case in cases {
        let facts = &plan[case["case"].as_u64().unwrap() as usize];
        let is_held = facts["cadence"] == "isolated" && facts["labels"]["submit"].is_null();
        let is_long = facts["collective"] == "all_to_all" && facts["labels"]["aggregate"] == "64";
        let reason = case["outcome"]["reason"].as_str().unwrap_or_default();
        assert_eq!(reason.contains("64 calls of 3 pieces each are 18 KiB of work"), is_held && is_long, "{case}");
        assert!(is_held && is_long || case["outcome"]["verified"] == true, "{case}");
    }
}

/// On a busy machine a device may come so late that the host is done and it need not wait at all.
#[test]
fn starts_whose_hold_gave_up_do_not_count() {
    in_three_attempts(|_| {
        let folder = tempfile::tempdir().unwrap();
        let record = record_in(&folder);
        let flags = "all_reduce -b 1K -e 1K -n 3 -w 0 --replicates 1 --warm-buffers --placement out --cadence isolated";
        let mut command = nccl(2, SWEEP, flags, &record);
        Ran::of(command.env("COMMGAUGE_DOUBLE_LONGEST_HOLD", "1"), 60);
        let lines = lines(&record);
        let samples = &of_kind(&lines, "case")[0]["samples"];
        let [taken, excluded] =
            ["slowest_nanoseconds", "excluded"].map(|column| samples[column].as_array().map_or(0, Vec::len));
        assert!(samples["excluded"].as_array().unwrap().iter().all(|one| one[1] == "missed_start"), "{samples}");
        if taken > 0 && taken == excluded { Ok(()) } else { Err(samples.to_string()) }
    });
}

#[test]
fn what_the_clock_of_each_device_may_be_off_is_in_the_record_batch_by_batch() {
    let folder = tempfile::tempdir().unwrap();
    let record = record_in(&folder);
    let flags = "all_reduce -b 1K -e 1K -n 40 -w 1 --replicates 1 --warm-buffers --placement out";
    Ran::of(&mut nccl(2, SWEEP, flags, &record), 60).ended_with(0);
    let lines = lines(&record);
    let plan = of_kind(&lines, "plan")[0]["cases"].as_array().unwrap().clone();
    for case in of_kind(&lines, "case") {
        let isolated = plan[case["case"].as_u64().unwrap() as usize]["cadence"] == "isolated";
        let batches = case["samples"]["clock_errors"].as_array().cloned().unwrap_or_default();
        assert_eq!(!batches.is_empty(), isolated, "{case}");
        let samples: u64 = batches.iter().map(|batch| batch["samples"].as_u64().unwrap()).sum();
        let all = if isolated { case["samples"]["slowest_nanoseconds"].as_array().unwrap().len() } else { 0 };
        assert_eq!(samples, all as u64, "{batches:?}");
        for batch in batches {
            let by_rank: Vec<u64> = batch["nanoseconds"].as_array().unwrap().iter().filter_map(Value::as_u64).collect();
            // Half of a submission of 2 us and a record of 1 us, and the step of the times.
            assert!(by_rank.len() == 2 && by_rank.iter().all(|error| *error >= 2_000), "{by_rank:?}");
        }
    }
}

#[test]
fn steps_are_replayed_where_the_device_has_room_for_one_collective_and_streams_start_in_any_order() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("config.json");
    std::fs::write(&model, TINY).unwrap();
    let how = "--sequence 16 --micro-batches 2 --replay --replay-repetitions 2 --forward-per-layer 100us -n 1 -w 0 --replicates 1 \
               --cadence streaming --warm-buffers --timeout 30";
    // Gathers and sums over dp are in flight during calls over tp: without a common order of their kernels all of these but the last hang.
    for layout in ["--tp 2 --dp 2 --data-style zero3", "--tp 2 --dp 2 --bucket-parameters 1000", "--tp 2 --pp 2"] {
        let record = folder.path().join(format!("{}.jsonl", layout.replace(' ', "")));
        let mut command = nccl(4, STEP, &format!("--model {} {layout} {how}", model.display()), &record);
        // For collectives one at a time, concurrent with messages.
        command.env("COMMGAUGE_DOUBLE_BLOCKS", "12").env("COMMGAUGE_DOUBLE_ORDER", "1");
        Ran::of(&mut command, 120).ended_with(0);
        let lines = lines(&record);
        let outcome = &of_kind(&lines, "replay")[0]["outcome"];
        assert_eq!(outcome["verified"], true, "{layout}: {outcome}");
    }
}

#[test]
fn memory_on_which_graphs_captured_calls_is_kept_while_nccl_may_have_it_registered() {
    let folder = tempfile::tempdir().unwrap();
    let record = record_in(&folder);
    // By turns from NCCL and from the driver, of several lengths, in each of three orders: the stand-in refuses to free what it has
    // registered, where NCCL would carry wrong data later.
    let flags = "all_reduce all_gather -b 1K -e 64K -f 8 -n 2 -w 0 --replicates 3 --placement out --cadence streaming \
                 --buffers plain,allocated,registered,symmetric --submit stream,graph:2";
    Ran::of(&mut nccl(2, SWEEP, flags, &record), 120).ended_with(0);
    let lines = lines(&record);
    let cases = of_kind(&lines, "case");
    assert_eq!(cases.len(), 2 * 3 * 4 * 2 * 3);
    assert!(cases.iter().all(|case| case["outcome"]["verified"] == true), "{cases:?}");
}

#[test]
fn eight_bit_averages_of_one_rank_are_skipped_and_everything_else_of_one_rank_is_verified() {
    let folder = tempfile::tempdir().unwrap();
    let record = record_in(&folder);
    let flags = "all_reduce reduce reduce_scatter reduce_scatter_v all_gather -b 1003 -e 1003 -d all -o all -n 2 -w 0 --replicates 1 \
                 --cadence streaming --warm-buffers";
    Ran::of(&mut nccl(1, SWEEP, &format!("{flags} --expect-ranks 1"), &record), 120).ended_with(0);
    let lines = lines(&record);
    let plan = of_kind(&lines, "plan")[0]["cases"].as_array().unwrap().clone();
    let mut skipped = 0;
    for case in of_kind(&lines, "case") {
        let facts = &plan[case["case"].as_u64().unwrap() as usize];
        let is_eight_bit = facts["element_type"].as_str().unwrap().starts_with("fp8");
        let is_skipped = is_eight_bit && facts["reduce_op"] == "avg";
        skipped += u32::from(is_skipped);
        match is_skipped {
            true => assert!(case["outcome"]["reason"].as_str().unwrap().contains("in a group of one rank"), "{case}"),
            false => assert_eq!(case["outcome"]["verified"], true, "{facts}: {case}"),
        }
    }
    assert!(skipped >= 8, "{skipped}");
}
