//! `--backend nccl` between real ranks, on stand-ins for CUDA and NCCL: every call carries the right bytes, the record
//! is marked as synthetic, and whatever is missing or fails is named. Needs the launcher of the MPI that was built
//! with.

use crate::common;

use commgauge::collective::{Collective, ReduceOp};
use commgauge::element::ElementType;
use common::doubles::{with_doubles, with_nccl};
use common::{COMMGAUGE, Ran, STEP, SUITE, SWEEP, launcher, lines, of_kind, record_in, words};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

const QUICKLY: &str = "-n 2 -w 0 --replicates 1 --cadence streaming --warm-buffers";

/// A launch of a program with `--backend nccl` on hosts with this many devices.
fn nccl(ranks: u32, devices: u32, program: &str, flags: &str, record: &Path) -> Command {
    let mut command = launcher(ranks);
    command.arg(program).args(words(flags)).args(["--backend", "nccl", "--quiet", "--record"]).arg(record);
    with_doubles(&mut command, devices);
    command
}

/// A sweep that completes: its plan, and its case lines.
fn swept(ranks: u32, flags: &str) -> (Vec<Value>, Vec<Value>, Value) {
    let folder = tempfile::tempdir().unwrap();
    let record = record_in(&folder);
    Ran::of(&mut nccl(ranks, ranks, SWEEP, flags, &record), 120).ended_with(0);
    read(&record)
}

fn read(record: &Path) -> (Vec<Value>, Vec<Value>, Value) {
    let lines = lines(record);
    let plan = of_kind(&lines, "plan")[0]["cases"].as_array().unwrap().clone();
    let cases = of_kind(&lines, "case").into_iter().cloned().collect();
    (plan, cases, of_kind(&lines, "header")[0].clone())
}

/// Every case was measured and verified but those that NCCL has no form for, and nothing is missing.
fn assert_all_verified(ranks: u32, flags: &str) {
    let (plan, cases, header) = swept(ranks, flags);
    assert_eq!(cases.len(), plan.len());
    let mut seen = BTreeSet::new();
    for case in &cases {
        let facts = &plan[case["case"].as_u64().unwrap() as usize];
        let text = |key: &str| facts[key].as_str().unwrap_or_default().to_owned();
        if case["outcome"]["status"] == "skipped" {
            assert_eq!((text("collective"), text("placement")), ("all_to_all".to_owned(), "in_place".to_owned()));
            continue;
        }
        assert_eq!(case["outcome"]["status"], "measured", "{facts}: {case}");
        assert_eq!(case["outcome"]["verified"], text("collective") != "barrier", "{facts}: {case}");
        seen.insert((text("collective"), text("element_type"), text("reduce_op"), text("placement")));
    }
    for collective in Collective::ALL.into_iter().filter(|collective| *collective != Collective::Barrier) {
        for element in ElementType::ALL {
            let reduce_ops = if collective.reduces() { ReduceOp::ALL.map(ReduceOp::name).to_vec() } else { vec![""] };
            for (op, placement) in reduce_ops.iter().flat_map(|op| collective.placements().iter().map(move |p| (op, p)))
            {
                let placement = placement.name().replace('-', "_");
                let case = (collective.name().to_owned(), element.name().to_owned(), (*op).to_owned(), placement);
                assert!(seen.contains(&case) || (case.0 == "all_to_all" && case.3 == "in_place"), "{case:?}");
            }
        }
    }
    assert_eq!(header["backend"]["synthetic"], true);
    assert!(header["warnings"][0].as_str().unwrap().contains("executed by test doubles"), "{header}");
}

// 1003 B divide neither by the ranks nor by the elements.

#[test]
fn everything_comes_out_verified_on_2_ranks_with_equal_splits() {
    assert_all_verified(2, &format!("all -b 1003 -e 1003 -d all -o all -r 1 {QUICKLY}"));
}

#[test]
fn everything_comes_out_verified_on_3_ranks_with_skewed_splits() {
    assert_all_verified(3, &format!("all -b 1003 -e 1003 -d all -o all -r 2 {QUICKLY} --splits skewed:1.5"));
}

#[test]
fn everything_comes_out_verified_on_4_ranks_with_given_splits() {
    assert_all_verified(4, &format!("all -b 1003 -e 1003 -d all -o all -r 3 {QUICKLY} --splits given:3,1,0,1"));
}

#[test]
fn isolated_iterations_on_cold_buffers_come_out_verified_and_the_late_rank_is_named() {
    let flags = "all_reduce all_to_all -b 1003 -e 1003 -n 12 -w 1 --replicates 2 --cadence isolated";
    let folder = tempfile::tempdir().unwrap();
    let record = record_in(&folder);
    let mut command = nccl(2, 2, SWEEP, flags, &record);
    Ran::alone(command.args(["--inject-delay", "1:20ms"]), 120).ended_with(0);
    let (_, cases, _) = read(&record);
    for case in cases.iter().filter(|case| case["outcome"]["status"] == "measured") {
        assert_eq!(case["outcome"]["verified"], true);
        let last: Vec<_> = case["samples"]["last_rank"].as_array().unwrap().iter().collect();
        let late = last.iter().filter(|rank| ***rank == 1).count();
        assert!(!last.is_empty() && late * 10 >= last.len() * 8, "{last:?}");
    }
}

#[test]
fn without_the_functions_of_2_28_calls_are_groups_and_the_record_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let record = record_in(&folder);
    let flags = format!("all_to_all gather scatter -b 1003 -e 1003 {QUICKLY}");
    let mut command = nccl(3, 3, SWEEP, &flags, &record);
    with_nccl(&mut command, 3, "2.16.2");
    Ran::of(&mut command, 60).ended_with(0);
    let (_, cases, header) = read(&record);
    assert!(cases.iter().any(|case| case["outcome"]["verified"] == true));
    let notes = header["backend"]["notes"].to_string();
    for words in ["gather is grouped ncclSend and ncclRecv", "all_to_all is grouped", "ncclCommSplit needs NCCL 2.18"] {
        assert!(notes.contains(words), "{notes}");
    }
}

#[test]
fn registered_buffers_and_symmetric_windows_come_out_verified_and_are_labelled() {
    for buffers in ["registered", "symmetric"] {
        let flags = format!("all -b 1003 -e 1003 {QUICKLY} --buffers {buffers}");
        let (plan, cases, _) = swept(3, &flags);
        assert!(plan.iter().all(|case| case["labels"]["buffers"] == buffers), "{plan:?}");
        let unverified: Vec<_> = cases.iter().filter(|case| case["outcome"]["verified"] != true).collect();
        assert_eq!(unverified.len(), 2, "the barrier, and all_to_all in place: {unverified:?}");
    }
}

#[test]
fn what_is_missing_or_does_not_fit_together_is_refused_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let record = record_in(&folder);
    let sweep = format!("all_reduce -b 8 -e 8 {QUICKLY}");
    let refused = |ranks, devices, flags: &str, variable: (&str, &str), code, said: &[&str]| {
        let mut command = nccl(ranks, devices, SWEEP, &format!("{sweep} {flags}"), &record);
        let ran = Ran::of(command.env(variable.0, variable.1), 60).ended_with(code);
        said.iter().fold(ran, |ran, words| ran.printed_error(words));
        assert!(!record.exists(), "{flags}");
    };
    let nothing = ("COMMGAUGE_TEST_NOTHING", "");
    refused(2, 0, "", nothing, 2, &["--backend nccl: host ", "finds no device"]);
    refused(2, 1, "", nothing, 2, &["has 2 ranks and 1 CUDA device;", "--share-gpu"]);
    let both = ("CUDA_VISIBLE_DEVICES", "0,1");
    refused(3, 4, "", both, 2, &["has 3 ranks and 2 CUDA devices (CUDA_VISIBLE_DEVICES=0,1)"]);
    let the_same = ("CUDA_VISIBLE_DEVICES", "1");
    refused(
        2,
        2,
        "",
        the_same,
        7,
        &["ranks 0, 1 of host", "are on one device", "is CUDA_VISIBLE_DEVICES the same for all?"],
    );
    let hidden = ("CUDA_VISIBLE_DEVICES", "0,1");
    refused(2, 4, "--device-map 0,3", hidden, 2, &["device 3 is not on host", "(CUDA_VISIBLE_DEVICES=0,1)", "0 to 1"]);
    refused(2, 2, "--device-map 1,1", nothing, 7, &["ranks 0, 1 of host", "are on one device", "--share-gpu"]);
    let blocking = ("CUDA_LAUNCH_BLOCKING", "1");
    refused(2, 2, "", blocking, 2, &["CUDA_LAUNCH_BLOCKING=1 makes every launch synchronous", "unset it"]);
    let no_fabric = ("COMMGAUGE_DOUBLE_INIT", "919");
    refused(2, 2, "", no_fabric, 2, &["cuInit failed with error 919; the system is not ready", "nvidia-fabricmanager"]);
    refused(2, 2, "--nccl-library libc.so.6", nothing, 2, &["libc.so.6 is not NCCL"]);
    refused(2, 2, "--algorithm ring", ("NCCL_ALGO", "Tree"), 2, &["--algorithm requests Ring", "NCCL_ALGO=Tree"]);

    let mut command = nccl(2, 1, SWEEP, &format!("{sweep} --share-gpu"), &record);
    with_nccl(&mut command, 1, "2.27.3");
    Ran::of(&mut command, 60).ended_with(2).printed_error("--share-gpu needs NCCL 2.30, found 2.27.3");
    let mut command = nccl(2, 2, SWEEP, &format!("{sweep} --buffers symmetric"), &record);
    with_nccl(&mut command, 2, "2.16.2");
    Ran::of(&mut command, 60).ended_with(2).printed_error("ncclCommWindowRegister needs NCCL 2.27, found 2.16.2");
}

#[test]
fn ranks_that_share_a_gpu_are_verified_and_marked_and_what_stand_ins_measured_is_no_baseline() {
    let folder = tempfile::tempdir().unwrap();
    let record = record_in(&folder);
    let flags = format!("all_reduce -b 1K -e 1K --share-gpu {QUICKLY}");
    Ran::of(&mut nccl(2, 1, SWEEP, &flags, &record), 60).ended_with(0);
    let (_, cases, header) = read(&record);
    assert!(cases.iter().all(|case| case["outcome"]["verified"] == true));
    let warnings = header["warnings"].to_string();
    assert!(warnings.contains("2 ranks share a GPU (--share-gpu, NCCL_MULTI_RANK_GPU_ENABLE=1"), "{warnings}");
    // Of three ranks on two devices, two share a cache: all use as many copies of their buffers.
    let uneven = folder.path().join("uneven.jsonl");
    let flags =
        "all_reduce -b 64K -e 64K --share-gpu --cadence streaming -n 12 -w 1 --replicates 1 --buffers plain,symmetric";
    Ran::of(&mut nccl(3, 2, SWEEP, flags, &uneven), 60).ended_with(0);
    let (_, cases, header) = read(&uneven);
    // Also where the rank that writes the record has a device for itself.
    let alone = folder.path().join("alone.jsonl");
    let flags = format!("all_reduce -b 1K -e 1K --share-gpu --device-map 0,1,1 {QUICKLY}");
    Ran::of(&mut nccl(3, 2, SWEEP, &flags, &alone), 60).ended_with(0);
    for header in [header, read(&alone).2] {
        assert!(header["warnings"].to_string().contains("2 ranks share a GPU"), "{header}");
    }
    assert!(
        cases.iter().all(|case| case["outcome"]["verified"] == true && case["buffer_copies"].as_u64() > Some(1)),
        "{cases:?}"
    );
    let mut expect = Command::new(COMMGAUGE);
    expect.args(["expect", "learn", "--name", "none", "--like", "h100-nvswitch-ndr", "--output"]);
    expect.arg(folder.path().join("expected.toml")).arg(&record);
    let refused = expect.output().unwrap();
    assert!(!refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("synthetic"), "{refused:?}");
}

#[test]
fn ranks_that_see_one_gpu_each_take_the_one_that_they_see() {
    let folder = tempfile::tempdir().unwrap();
    let record = record_in(&folder);
    let mut command = launcher(2);
    let shown = r#"CUDA_VISIBLE_DEVICES=${OMPI_COMM_WORLD_LOCAL_RANK:-${MPI_LOCALRANKID:?}} exec "$@""#;
    command.args(["sh", "-c", shown, "sh", SWEEP]).args(words(&format!("all_reduce -b 8 -e 8 {QUICKLY}")));
    command.args(["--backend", "nccl", "--quiet", "--record"]).arg(&record);
    Ran::of(with_doubles(&mut command, 2), 60).ended_with(0);
    let (_, cases, header) = read(&record);
    assert!(cases.iter().all(|case| case["outcome"]["verified"] == true), "{cases:?}");
    let devices: BTreeSet<String> =
        header["ranks"].as_array().unwrap().iter().map(|rank| rank["device"].to_string()).collect();
    assert_eq!(devices.len(), 2, "{header}");
}

#[test]
fn different_gpus_are_warned_of_and_a_case_that_one_of_them_cannot_hold_is_skipped_on_all_ranks_alone() {
    let folder = tempfile::tempdir().unwrap();
    let record = record_in(&folder);
    let flags = format!("all_reduce -b 1M -e 256M -f 16 --placement out {QUICKLY}");
    let mut command = nccl(2, 2, SWEEP, &flags, &record);
    command.env("COMMGAUGE_DOUBLE_MODELS", "A,B").env("COMMGAUGE_DOUBLE_MEMORY", "1073741824,402653184");
    Ran::of(&mut command, 60).ended_with(0);
    let (_, cases, header) = read(&record);
    let outcome = |index: u64| &cases.iter().find(|case| case["case"] == index).unwrap()["outcome"];
    assert_eq!((&outcome(0)["verified"], &outcome(1)["verified"]), (&true.into(), &true.into()));
    let reason = outcome(2)["reason"].as_str().unwrap();
    let words = ["needs 512 MiB of device memory", "rank 1, host ", "device 1 (commgauge double (no GPU) B"];
    assert!(outcome(2)["status"] == "skipped" && words.iter().all(|word| reason.contains(word)), "{reason}");
    let warnings = header["warnings"].to_string();
    for words in ["do not have the same device: ", "(no GPU) A on rank 0", "(no GPU) B on rank 1"] {
        assert!(warnings.contains(words), "{warnings}");
    }
    let device = |rank: usize| header["ranks"][rank]["device"].as_str().unwrap();
    assert!(
        device(0).starts_with("commgauge double (no GPU) A") && device(1).starts_with("commgauge double (no GPU) B")
    );
}

#[test]
fn memory_that_a_case_does_not_get_fails_that_case_alone() {
    let folder = tempfile::tempdir().unwrap();
    let record = record_in(&folder);
    let flags = format!("all_reduce -b 1K -e 1M -f 1024 --placement out {QUICKLY}");
    let mut command = nccl(2, 2, SWEEP, &flags, &record);
    // The third allocation is for a buffer.
    Ran::of(command.env("COMMGAUGE_DOUBLE_FAULTS", "out_of_memory rank=1 allocation=3"), 60).ended_with(6);
    let (_, cases, _) = read(&record);
    let status: BTreeSet<&str> = cases.iter().map(|case| case["outcome"]["status"].as_str().unwrap()).collect();
    assert_eq!(status, BTreeSet::from(["failed", "measured"]), "{cases:?}");
}

#[test]
fn a_suite_lists_the_same_cases_on_both_backends() {
    let folder = tempfile::tempdir().unwrap();
    let suite = folder.path().join("small.toml");
    let quick = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("suites/quick.toml")).unwrap();
    // Its first two layouts, at shorter sequences and one sample of each.
    let end = quick.match_indices("[[layout]]").nth(2).unwrap().0;
    let mut small = quick[..end].to_owned();
    for (long, short) in [
        ("\"120ms\"", "\"1ms\""),
        ("minimum_samples = 10", "minimum_samples = 1"),
        ("maximum_samples = 20_000", "maximum_samples = 1"),
        ("replicates = 3", "replicates = 1"),
        ("sequence = 2048", "sequence = 64"),
    ] {
        assert!(small.contains(long), "{long}");
        small = small.replace(long, short);
    }
    std::fs::write(&suite, small).unwrap();
    let mut names = Vec::new();
    for backend in ["mpi", "nccl"] {
        let record = folder.path().join(format!("{backend}.jsonl"));
        let mut command = launcher(2);
        command.arg(SUITE).arg(&suite).args(["--backend", backend, "--quiet", "--record"]).arg(&record);
        Ran::of(with_doubles(&mut command, 2), 120).ended_with(0);
        let (plan, cases, _) = read(&record);
        assert!(cases.iter().all(|case| case["outcome"]["status"] == "measured"), "{backend}");
        names.push(plan.into_iter().map(|case| case["name"].clone()).collect::<Vec<_>>());
    }
    assert!(names[0].len() >= 10 && names[0] == names[1], "{names:?}");
}

/// A model of a few thousand parameters.
const TINY: &str = r#"{"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 4,
    "intermediate_size": 128, "vocab_size": 256, "max_position_embeddings": 512}"#;

#[test]
fn calls_of_several_communicators_at_once_have_one_order_or_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("config.json");
    std::fs::write(&model, TINY).unwrap();
    let how = "--pp 2 --sequence 16 --micro-batches 2 --replay --replay-repetitions 1 --forward-per-layer 20us";
    let flags = format!("--model {} {how} {QUICKLY}", model.display());
    let record = folder.path().join("refused.jsonl");
    Ran::of(with_nccl(&mut nccl(2, 2, STEP, &flags, &record), 2, "2.25.1"), 60)
        .ended_with(2)
        .printed_error("need NCCL 2.26 (NCCL_LAUNCH_ORDER_IMPLICIT), found 2.25.1");
    assert!(!record.exists(), "it is refused before anything is measured");
    let record = folder.path().join("replayed.jsonl");
    Ran::of(with_nccl(&mut nccl(2, 2, STEP, &flags, &record), 2, "2.26.2"), 60).ended_with(0);
    let of_run = lines(&record);
    assert_eq!(of_run[0]["environment"]["NCCL_LAUNCH_ORDER_IMPLICIT"], "1");
    assert_eq!(of_kind(&of_run, "replay")[0]["outcome"]["verified"], true);
    let mut command = nccl(2, 2, STEP, &flags, &folder.path().join("never.jsonl"));
    Ran::of(command.env("NCCL_LAUNCH_ORDER_IMPLICIT", "0"), 60)
        .ended_with(2)
        .printed_error("the environment has NCCL_LAUNCH_ORDER_IMPLICIT=0");
    let mut command =
        nccl(2, 2, SWEEP, &format!("all_reduce -b 1K -e 1K {QUICKLY}"), &folder.path().join("sweep.jsonl"));
    Ran::of(&mut command, 60).ended_with(0);
    let alone = &lines(&folder.path().join("sweep.jsonl"))[0]["environment"]["NCCL_LAUNCH_ORDER_IMPLICIT"];
    assert!(alone.is_null(), "it would add to the time of single calls: {alone}");
}

#[test]
fn ranks_that_each_see_some_of_the_devices_of_a_host_take_one_each() {
    let folder = tempfile::tempdir().unwrap();
    let record = record_in(&folder);
    // As Slurm's --gpu-bind=closest does on a host of two sockets.
    let choose = "rank=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}; if [ $rank -lt 2 ]; then seen=0,1; else seen=2,3; fi; \
                  CUDA_VISIBLE_DEVICES=$seen exec \"$@\"";
    let mut command = launcher(4);
    command.args(["sh", "-c", choose, "sh", SWEEP]);
    command.args(words(&format!("all_reduce -b 1K -e 1K --placement out {QUICKLY}")));
    command.args(["--backend", "nccl", "--quiet", "--record"]).arg(&record);
    Ran::of(with_doubles(&mut command, 4), 60).ended_with(0);
    let (_, cases, header) = read(&record);
    assert_eq!(cases[0]["outcome"]["verified"], true, "{}", cases[0]);
    let devices = header["ranks"].as_array().unwrap().iter().map(|rank| rank["device"].as_str().unwrap().to_owned());
    assert_eq!(devices.collect::<BTreeSet<_>>().len(), 4, "{header}");
}

#[test]
fn gpus_of_every_generation_that_nccl_serves_load_the_kernels_and_check_data() {
    for capability in ["60", "70", "75", "120"] {
        let folder = tempfile::tempdir().unwrap();
        let record = record_in(&folder);
        let flags = format!("all_reduce -b 1K -e 1K --placement out {QUICKLY}");
        let mut command = nccl(2, 2, SWEEP, &flags, &record);
        Ran::of(command.env("COMMGAUGE_DOUBLE_CAPABILITY", capability), 60).ended_with(0);
        let (_, cases, _) = read(&record);
        assert_eq!(cases[0]["outcome"]["verified"], true, "{capability}: {}", cases[0]);
    }
}

/// In a chain the last of four stages waits for four communicators before its own: 20 s, of which a deadline of 14 s is the limit.
#[test]
fn channels_of_a_pipeline_open_in_time_where_communicators_take_long() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("config.json");
    std::fs::write(&model, TINY).unwrap();
    let how = "--pp 4 --sequence 16 --micro-batches 4 --replay --replay-repetitions 1 --forward-per-layer 20us";
    let flags = format!("--model {} {how} {QUICKLY} --timeout 14 --no-watchdog", model.display());
    let record = folder.path().join("replayed.jsonl");
    let mut command = nccl(4, 4, STEP, &flags, &record);
    Ran::of(command.env("COMMGAUGE_DOUBLE_FAULTS", "init_slow microseconds=4000000"), 180).ended_with(0);
    assert_eq!(of_kind(&lines(&record), "replay")[0]["outcome"]["verified"], true);
}

#[test]
fn a_step_whose_streams_would_share_queues_to_the_device_is_not_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let (record, model) = (record_in(&folder), folder.path().join("config.json"));
    std::fs::write(&model, TINY).unwrap();
    let how = "--pp 2 --sequence 16 --micro-batches 2 --replay --replay-repetitions 1 --forward-per-layer 20us";
    // Six streams of ours (of single calls, two axes, two channels, computing), and ten of NCCL's communicators: of all ranks, of the two axes, of
    // the two channels.
    for queues in ["1", "15"] {
        let mut command = nccl(2, 2, STEP, &format!("--model {} {how} {QUICKLY}", model.display()), &record);
        Ran::of(command.env("CUDA_DEVICE_MAX_CONNECTIONS", queues), 60)
            .ended_with(2)
            .printed_error("this step has 6 streams and NCCL's communicators 10")
            .printed_error(&format!("for {queues} queues to the device"))
            .printed_error("set CUDA_DEVICE_MAX_CONNECTIONS=32");
        assert!(!record.exists(), "it is refused before anything is measured");
    }
    let mut command = nccl(2, 2, STEP, &format!("--model {} {how} {QUICKLY}", model.display()), &record);
    Ran::of(command.env("CUDA_DEVICE_MAX_CONNECTIONS", "16"), 60).ended_with(0);
}

#[test]
fn a_replayed_step_moves_the_listed_bytes_on_streams_and_two_axes_are_timed_at_once() {
    for (layout, more) in [("--tp 2 --pp 2", ""), ("--dp 2 --pp 2", ""), ("--tp 2 --dp 2", "--interfere tp,dp")] {
        let folder = tempfile::tempdir().unwrap();
        let (record, model) = (record_in(&folder), folder.path().join("config.json"));
        std::fs::write(&model, TINY).unwrap();
        let how = "--sequence 16 --micro-batches 4 --replay --replay-repetitions 3 --forward-per-layer 200us";
        let flags = format!("--model {} {layout} {how} {more} {QUICKLY}", model.display());
        Ran::of(&mut nccl(4, 4, STEP, &flags, &record), 120).ended_with(0);
        let lines = lines(&record);
        let replay = &of_kind(&lines, "replay")[0];
        assert_eq!(
            (&replay["outcome"]["verified"], &replay["bytes_as_listed"]),
            (&true.into(), &true.into()),
            "{replay}"
        );
        // Two layers of each stage, three passes, four micro-batches.
        assert!(replay["computing_nanoseconds_median"].as_u64().unwrap() >= 4 * 3 * 2 * 200_000, "{replay}");
        assert_eq!(of_kind(&lines, "interference").len(), if more.is_empty() { 0 } else { 2 });
    }
}
