//! scripts/gpu-check through the stand-ins: one report, which states that it was made on stand-ins and never passes
//! there; wrong data and skipped checks are named. Needs python3 and the launcher of the MPI that was built with.

use crate::common;

use common::doubles::with_doubles;
use common::{COMMGAUGE, Ran, skipped};
use std::path::Path;
use std::process::Command;

const MEASURE: &str = "[measure]\niterations = 2\nwarm_up_iterations = 0\nreplicates = 1\nwarm_buffers = true\ncadences = ['streaming']\n[[sweep]]\n";

/// The lines of each suite of the check in this test, in addition to the ones above.
const SUITES: [(&str, &str); 6] = [
    (
        "data",
        "collectives = ['all_reduce', 'all_to_all']\nelement_types = 'all'\nreduce_ops = 'all'\nbytes = ['1003B']\n",
    ),
    ("times", "collectives = ['all_reduce']\nbytes = ['1003B']\n"),
    (
        "variants",
        "collectives = ['all_reduce']\nbytes = ['1003B']\nbuffers = ['plain', 'allocated', 'registered', 'symmetric']\n\
         submit = ['stream', 'graph']\naggregate = [1, 4]\n",
    ),
    ("copy", "collectives = ['all_reduce']\nbytes = ['64KiB']\nplacements = ['out-of-place']\n"),
    ("peers", "collectives = ['all_reduce']\nbytes = ['64KiB']\nplacements = ['out-of-place']\n"),
    ("torch", "collectives = ['all_reduce']\nbytes = ['64KiB']\nplacements = ['in-place']\n"),
];

/// The simulated programs of the check: their names and actions.
const PLAYED: [(&str, &str); 4] = [
    (
        "bin/all_reduce_perf",
        "#!/bin/sh\ncat <<'END'\n# nThread 1 nGpus 1 minBytes 65536 maxBytes 65536 step: 4(factor) warmup iters: 5 iters: 20 \
         validation: 1\n#\n# Using devices\n#   Rank  0 Pid   2200 on      alpha device  0 [0x0a] Played\n#\n#       size         \
         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error\n#        (B)    (elements)           \
         (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)\n       65536         16384   float     sum    41.20    1.59    0.00  \
         0e+00    40.90    1.60    0.00  0e+00\n# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 0.0\n#\nEND\n",
    ),
    (
        "bin/nvidia-cuda-mps-control",
        "#!/bin/sh\nif [ \"$1\" = -d ]; then echo started >>\"$PLAYED_LOG\"; test -d \"$CUDA_MPS_PIPE_DIRECTORY\"; else cat \
         >>\"$PLAYED_LOG\"; fi\n",
    ),
    ("torch/__init__.py", ""),
    ("torch/distributed/run.py", "print('commgauge-peer 65536 0.0001')\n"),
];

/// The check on 1 and 2 ranks of a host with fake device files: how it ended, and its report.
fn checked(devices: u32, set_up: impl Fn(&mut Command, &Path)) -> Option<(Ran, String)> {
    if !Command::new("python3").arg("--version").output().is_ok_and(|output| output.status.success()) {
        skipped("gpu_check", "there is no python3");
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let (suites, report) = (folder.path().join("suites"), folder.path().join("report"));
    std::fs::create_dir(&suites).unwrap();
    for (name, more) in SUITES {
        let text = format!("name = 'gpu-check-{name}'\n{MEASURE}{more}");
        std::fs::write(suites.join(format!("{name}.toml")), text).unwrap();
    }
    let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/gpu-check"));
    command.args(["--ranks", "1,2", "--commgauge", COMMGAUGE, "--suites"]).arg(&suites).arg("--report").arg(&report);
    command.env("OMPI_MCA_rmaps_base_oversubscribe", "1").env_remove("CUDA_MPS_PIPE_DIRECTORY");
    set_up(with_doubles(&mut command, devices), folder.path());
    let ran = Ran::of(&mut command, 100);
    let text = std::fs::read_to_string(report.join("report.md")).unwrap_or_default();
    Some((ran, text))
}

fn assert_says(report: &str, words: &[&str]) {
    for words in words {
        assert!(report.contains(words), "`{words}` is not in\n{report}");
    }
}

#[test]
fn what_stand_ins_carried_out_is_whole_and_does_not_pass() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let played = |command: &mut Command, folder: &Path| play(command, folder, log.path());
    let Some((ran, report)) = checked(2, played) else { return };
    ran.ended_with(3);
    assert_eq!(std::fs::read_to_string(log.path()).unwrap(), "", "each rank has its GPU, so that no MPS is started");
    assert_says(
        &report,
        &["# gpu-check: NOT PASSED: not proven (exit code 3)", "executed by test doubles", "2 GPUs; ranks 1, 2."],
    );
    for part in [
        "doctor",
        "data, 1 ranks",
        "data, 2 ranks",
        "times, 2 ranks",
        "copies between hosts and GPUs",
        "graphs, groups and kinds of buffers, 2 ranks",
        "what NCCL chooses, 2 ranks",
    ] {
        assert_says(&report, &[&format!("| {part} | ok |")]);
    }
    // The time model of the stand-in.
    assert_says(&report, &["65536 B: ring simple x4"]);
    assert_says(&report, &["nccl-tests was not built with MPI"]);
    for peer in ["nccl-tests", "torch.distributed"] {
        assert_says(&report, &[&format!("| comparison with {peer} | ok |"), "65536 B: ours / theirs"]);
    }
    assert_says(&report, &["GB/s read and written, all_reduce at"]);
    assert_says(&report, &["host to device: ", "both at once, each way: ", "GPU to GPU: ", "(median of 2; "]);
}

#[test]
fn copies_of_a_gpu_that_is_far_behind_the_others_are_named() {
    let lines = "import transfers\nfor finding in transfers.spread('device to host', {'GPU 0': 50e9, 'GPU 1': 20e9, 'GPU 2': 51e9}, False):\n    \
                 print(*finding)";
    let Some(said) = python_says(lines) else { return };
    assert_says(
        &said,
        &[
            "0 device to host: 50.0 GB/s (median of 3; GPU 1 20.0, GPU 2 51.0)",
            "1 device to host: GPU 1 has 20.0 GB/s, less than half of the others",
        ],
    );
}

#[test]
fn wrong_data_is_the_gravest_and_named() {
    let fault = |command: &mut Command, _: &Path| {
        command.env("COMMGAUGE_DOUBLE_FAULTS", "corrupt rank=1 call=all_reduce");
    };
    let Some((ran, report)) = checked(2, fault) else { return };
    ran.ended_with(4);
    assert_says(&report, &["# gpu-check: NOT PASSED: wrong data (exit code 4)", "wrong data at rank 1, element"]);
}

#[test]
fn what_found_no_time_is_missing_and_so_is_a_pass() {
    let hurry = |command: &mut Command, _: &Path| {
        command.args(["--budget", "6"]);
    };
    let Some((ran, report)) = checked(2, hurry) else { return };
    ran.ended_with(7);
    assert_says(
        &report,
        &["NOT PASSED: something is missing (exit code 7)", "times, 2 ranks: no time was left for it"],
    );
}

/// Puts fake programs first in the path, which write a log.
fn play(command: &mut Command, folder: &Path, log: &Path) {
    for (name, text) in PLAYED {
        common::programs::write_program(&folder.join(name), text);
    }
    let mut paths = vec![folder.join("bin")];
    paths.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    command.env("PATH", std::env::join_paths(paths).unwrap()).env("PYTHONPATH", folder).env("PLAYED_LOG", log);
}

#[test]
fn where_mps_starts_and_does_not_serve_ranks_share_the_gpu_in_turn() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let played = |command: &mut Command, folder: &Path| {
        play(command, folder, log.path());
        command.env("COMMGAUGE_DOUBLE_MPS_REFUSES", "1").args(["--budget", "12"]);
    };
    let Some((_, report)) = checked(1, played) else { return };
    assert_eq!(std::fs::read_to_string(log.path()).unwrap(), "started\nquit\n");
    assert_says(
        &report,
        &["MPS does not start (cuInit answers 805); ranks that share a GPU take turns", "| doctor | ok |"],
    );
    assert_says(&report, &["| data, 1 ranks | ok |"]);
}

#[test]
fn a_bundle_for_other_gpus_or_a_newer_driver_is_refused_before_anything_runs() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("bundle.json"), r#"{"arch": 80, "nccl": "2.30.7", "cuda": 13}"#).unwrap();
    let look = "import pathlib, sys; sys.path.insert(0, sys.argv[1]); import bundle; folder = pathlib.Path(sys.argv[2]); \
                import device; \
                print(*bundle.misfits(folder, bundle.environment(folder, {}), device.look()), sep='\\n')";
    let mut command = Command::new("python3");
    command
        .args(["-B", "-c", look])
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/gpu-check.d"))
        .arg(folder.path());
    let Ok(output) = with_doubles(&mut command, 1).output() else { return skipped("gpu_check", "there is no python3") };
    let said = String::from_utf8_lossy(&output.stdout);
    assert_says(
        &said,
        &["was built with CUDA 13, but the driver supports CUDA 12.8", "compute capability 9.0", "--arch 90"],
    );
}

/// What a few lines of Python say that use the files of the check.
fn python_says(lines: &str) -> Option<String> {
    let mut command = Command::new("python3");
    let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/gpu-check.d");
    command.args(["-B", "-c", &format!("import sys; sys.path.insert(0, sys.argv[1])\n{lines}")]).arg(files);
    let Ok(output) = command.output() else {
        skipped("gpu_check", "there is no python3");
        return None;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn a_bundle_runs_on_newer_gpus_of_the_same_generation() {
    let pairs = "[(80, 80), (80, 86), (80, 89), (86, 80), (80, 90), (90, 90), (100, 103)]";
    let Some(said) = python_says(&format!("import bundle; print([bundle.runs_on(*pair) for pair in {pairs}])")) else {
        return;
    };
    assert_eq!(said.trim(), "[True, True, True, False, False, True, True]");
}

#[test]
fn data_are_checked_on_all_gpus_unless_other_ranks_are_asked_for() {
    // A job of Slurm, of whatever tasks, changes nothing: it is this host that is checked.
    for (ranks, expected) in [(None, "1 2 4 8"), (Some("2"), "2")] {
        let folder = tempfile::tempdir().unwrap();
        let (program, log) = (folder.path().join("commgauge"), folder.path().join("log"));
        // Only how it is started counts here.
        let text = format!("#!/bin/sh\necho \"$@\" $SLURM_JOB_ID >>{}\nexit 6\n", log.display());
        common::programs::write_program(&program, text);
        let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/gpu-check"));
        command.arg("--commgauge").arg(&program).arg("--report").arg(folder.path().join("report"));
        if let Some(ranks) = ranks {
            command.args(["--ranks", ranks]);
        }
        if Command::new("python3").arg("--version").output().is_err() {
            return skipped("gpu_check", "there is no python3");
        }
        command.env("SLURM_JOB_ID", "job-of-slurm").env("SLURM_NTASKS", "1");
        Ran::of(with_doubles(&mut command, 8).env("PATH", "/usr/bin:/bin"), 60);
        let started = std::fs::read_to_string(&log).unwrap();
        assert!(!started.contains("job-of-slurm"), "{started}");
        for suite in ["data.toml", "times.toml"] {
            let runs = started.lines().filter(|line| line.contains(suite));
            let ranks: Vec<&str> = runs.filter_map(|line| line.split(" -n ").nth(1)?.split(' ').next()).collect();
            assert_eq!(ranks.join(" "), expected, "{suite}: {started}");
        }
    }
}

#[test]
fn a_tool_run_alternately_is_slower_only_where_every_round_says_so() {
    let lines = "import peers\npeer = peers.Peer('nccl-tests', '')\n\
                 of = lambda ours, theirs: list(zip(ours, theirs))\n\
                 times = {1 << 16: of([1.03, 0.7, 1.2], [1, 1, 1]), 1 << 17: of([1.05, 1.1, 1.3], [1, 1.07, 1]), \
                 1 << 18: of([1.05, 1.03, 1.2], [1, 1, 1]), 1 << 19: of([0.9, 0.8, 0.9], [1, 1, 1.1]), 1 << 24: of([2.06, 2.02, 2.1], [2.01, 1.99, 2]), \
                 1 << 25: of([3.09, 2.97, 3.12], [3, 3, 3]), 1 << 26: of([3.6, 3.64, 3.8], [4, 4, 4]), 1 << 27: of([4.04, 4, 3.96], [4, 4, 4]), \
                 1 << 28: of([8.3, 8.4, 8.5], [8, 8, 8]), 8: of([1.05] * 8, [1] * 8), 16: of([1.05] * 7 + [0.9], [1] * 8)}\nsure = peers.sizes_beyond_starting(times)\n\
                 for size, rounds in times.items():\n    print(peers.judged(peer, size, rounds, True, size in sure)[0])\n";
    let Some(said) = python_says(lines) else { return };
    assert_eq!(said.lines().collect::<Vec<_>>(), ["0", "3", "3", "3", "3", "3", "3", "0", "1", "1", "0"]);
}

#[test]
fn rounds_continue_while_a_size_is_in_question_and_there_is_time() {
    // Ours of a small size, round by round, the seconds that are left, the rounds that are wanted, and the answer.
    for (ours, left, rounds, answer) in [
        ("[1.0, 1.1, 0.9]", 100, "3", "0"),
        ("[1.1, 1.1, 1.1, 1.1, 0.9]", 100, "5", "0"),
        ("[1.1] * 8", 100, "8", "1"),
        ("[0.9] * 8", 100, "8", "3"),
        ("[1.1] * 3", 0, "3", "3"),
    ] {
        let lines = format!(
            "import peers, types\nfrom launch import Part\nours = iter({ours})\nseen = []\n\
             check = types.SimpleNamespace(devices=1, synthetic=False, folder=peers.Path('.'), judged=lambda *_: None,\n\
             \x20   launch=lambda *words, **more: (Part('', record='r'), []), seconds_left_for=lambda kind: {left})\n\
             def mine(check, path):\n    seen.append(next(ours))\n    return {{64: seen[-1], 1024: 4.0}}\n\
             peer = peers.Peer('nccl-tests', '', times=lambda check, ranks: {{64: 1.0, 1024: 4.0}}, ours=mine)\n\
             found = peers.compare(check, peer)\nprint(len(seen), max(code for code, _ in found))"
        );
        let Some(said) = python_says(&lines) else { return };
        assert_eq!(said.trim(), format!("{rounds} {answer}"), "{ours}, {left} s left");
    }
}

#[test]
fn other_tools_are_compared_like_with_like() {
    let suite = Path::new(env!("CARGO_MANIFEST_DIR")).join("suites/gpu-check/peers.toml");
    let suite = std::fs::read_to_string(suite).unwrap();
    // As nccl-tests times its calls, and as many.
    for words in [
        "timing = \"whole\"",
        "iterations = 100",
        "warm_up_iterations = 5",
        "from = \"64KiB\", to = \"256MiB\", factor = 4",
    ] {
        assert!(suite.contains(words), "{words}: {suite}");
    }
    let folder = tempfile::tempdir().unwrap();
    for (name, linked) in [("all_reduce_perf", "libc.so.6"), ("all_reduce_perf_mpi", "libmpi.so.40")] {
        let text = format!("#!/bin/sh\n# {linked}\n");
        common::programs::write_program(&folder.path().join(name), text);
    }
    let lines = format!(
        "import peers, pathlib\nfolder = pathlib.Path({:?})\nprint(peers.command(peers.tests_program(folder), 8, '/bin/mpirun'))\n\
         (folder / 'all_reduce_perf_mpi').unlink()\nprint(peers.command(peers.tests_program(folder), 8, '/bin/mpirun'))\n",
        folder.path()
    );
    let Some(said) = python_says(&lines) else { return };
    let lines: Vec<&str> = said.lines().collect();
    let [by_processes, by_threads] = lines[..] else { panic!("{said}") };
    let is_by_processes = by_processes.contains("'/bin/mpirun'") && by_processes.contains("'-t', '1'");
    assert!(is_by_processes, "one process for each GPU: {by_processes}");
    assert!(!by_threads.contains("mpirun") && by_threads.contains("'-t', '8'"), "{by_threads}");
    // The same sizes, calls and mean over the ranks.
    for words in ["'-b', '64K', '-e', '256M', '-f', '4'", "'-w', '5', '-n', '100'", "'-a', '1'"] {
        assert!(lines.iter().all(|line| line.contains(words)), "{words}: {said}");
    }
}

#[test]
fn every_part_has_its_time_and_together_they_take_less_than_ten_minutes_on_eight_gpus() {
    let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/gpu-check"));
    let Ok(output) = command.args(["--plan", "--gpus", "8"]).output() else { return };
    let said = String::from_utf8_lossy(&output.stdout);
    let seconds = |line: &str| line.split_whitespace().next().and_then(|number| number.parse::<f64>().ok());
    let (last, parts) =
        said.lines().collect::<Vec<_>>().split_last().map(|(last, parts)| (*last, parts.to_vec())).unwrap();
    let together: f64 = parts.iter().filter_map(|line| seconds(line)).sum();
    assert!(seconds(last).is_some_and(|total| total < 600.0 && (total - together).abs() < 20.0), "{said}");
    assert!(last.contains("together"), "{said}");
    for part in ["data, 8 ranks", "times, 8 ranks", "nccl-tests, round 3", "torch.distributed, round 3"] {
        assert!(parts.iter().any(|line| line.contains(part) && seconds(line) >= Some(5.0)), "{part}: {said}");
    }
}

#[test]
fn a_part_has_what_those_before_it_left_over_and_never_the_time_of_a_later_one() {
    let lines = "import plan\nnow = 0.0\nclock = plan.Clock(plan.parts([1, 2], 2, []), 1000, lambda: now)\n\
                 print(round(clock.left_for('data', 0), 3), round(clock.left_for('data', 1), 3))\nnow = 30.0\n\
                 print(round(clock.left_for('data', 0), 3), round(clock.left_for('times', 1), 3))\n\
                 short = plan.fitted(plan.parts([1, 2], 2, []), 105)\nprint(round(sum(part.seconds for part in short), 3))";
    let Some(said) = python_says(lines) else { return };
    // Host 5 s, doctor 15 s, then 60 s for each: data of 1 and 2 ranks, times of 1 and 2.
    assert_eq!(said.split_whitespace().collect::<Vec<_>>(), ["80.0", "140.0", "50.0", "230.0", "100.0"]);
}

#[test]
fn ranks_that_share_a_gpu_run_through_mps_and_a_tool_that_moves_nothing_there_is_not_compared() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let played = |command: &mut Command, folder: &Path| {
        play(command, folder, log.path());
    };
    let Some((ran, report)) = checked(1, played) else { return };
    ran.ended_with(3);
    assert_eq!(std::fs::read_to_string(log.path()).unwrap(), "started\nquit\n");
    assert_says(&report, &["ranks that share a GPU run through MPS", "2 ranks share a GPU"]);
    assert_says(
        &report,
        &["| comparison with nccl-tests | ok |", "not compared with torch.distributed: its all_reduce is in place"],
    );
}
