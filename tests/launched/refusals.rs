//! Bad launches and bad input end within seconds, with the documented exit code and one clear message. Needs the
//! launcher of the MPI that was built with.

use crate::common;

use common::{COMMGAUGE, FAMILY, Ran, SUITE, SWEEP, launcher, record_in, words};
use std::fs;
use std::path::Path;
use std::process::Command;

/// A small sweep; the flags of a test are appended.
const SMALL: &str = "all_reduce -b 8 -e 8 -n 2 -w 0 --replicates 1 --warm-buffers";

/// Checks that a mistake common to all ranks ends with the code, is reported once, and quickly.
#[track_caller]
fn refused(command: &mut Command, code: i32, expected_error: &[&str]) -> Ran {
    let ran = Ran::of(command, 20).ended_with(code);
    for text in expected_error {
        assert_eq!(ran.stderr.matches(text).count(), 1, "`{text}` is to be said once:\n{}", ran.stderr);
    }
    assert!(!ran.stderr.contains("panicked"), "{}", ran.stderr);
    assert_eq!(ran.stdout, "");
    ran
}

#[test]
fn a_program_that_no_launcher_started_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let record = record_in(&folder);
    let mut single = Command::new(SWEEP);
    single.args(words(SMALL)).arg("--record").arg(&record);
    refused(&mut single, 2, &["a single rank: start it with `mpirun -np 4 ...` or `commgauge run`"]);
    // Four started by hand are four single ranks, and each reports it.
    let by_hand = "for n in 1 2 3 4; do \"$0\" \"$@\" & list=\"$list $!\"; done; for p in $list; do wait $p || code=$?; done; exit $code";
    let mut four = Command::new("sh");
    four.args(["-c", by_hand, SWEEP]).args(words(SMALL)).arg("--record").arg(&record);
    let ran = Ran::of(&mut four, 20).ended_with(2);
    assert_eq!(ran.stderr.matches("a single rank").count(), 4, "{}", ran.stderr);
    let mut few = launcher(2);
    few.arg(SWEEP).args(words(SMALL)).args(["--expect-ranks", "4", "--record"]).arg(&record);
    refused(&mut few, 2, &["--expect-ranks 4: this launch has 2 ranks"]);
    assert!(!record.exists());
}

#[test]
fn flags_that_cannot_be_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let record = record_in(&folder);
    for (flags, expected_error) in [
        ("all_reduce -b 64T -e 64T", &["needs 128 TiB of buffers on each rank; host ", "choose smaller sizes"][..]),
        ("broadcast -b 8 -e 8 -r 4", &["-r/--root: found root 4; on axis world a group has 4 ranks, accepted: 0 to 3"]),
        (
            "all_reduce -b 8 -e 8 -d fp8_e4m3",
            &["all_reduce cannot reduce fp8_e4m3 on host memory", "--backend nccl reduces it"],
        ),
        ("all_reduce -b 0", &["'--minbytes <BYTES>': found a size of 0; accepted: 1 B and more"]),
        ("all_reduce -b 8Q", &["'--minbytes <BYTES>'"]),
        (
            "all_reduce -b 8 -e 8 --backend nccl",
            &["--backend nccl: host ", "no CUDA driver: the loader does not find libcuda.so.1"],
        ),
        ("all_reduce -b 8 -e 8 --timeout 2 --no-watchdog", &["--timeout with --no-watchdog is for --backend nccl"]),
        ("all_reduce -b 8 -e 8 --share-gpu", &["--share-gpu is for --backend nccl; leave it out"]),
        (
            "all_reduce -b 8 -e 8 --backend nccl --algorithm rign",
            &["[possible values: any, ring, tree, collnet-direct"],
        ),
        ("all_reduce -b 8 -e 8 --inject-delay 4:2ms", &["--inject-delay: rank 4 is not in this launch; the last is 3"]),
        ("all_reduce -b 8 -e 8 --inject-panic 9", &["--inject-panic: rank 9 is not in this launch; the last is 3"]),
    ] {
        let mut command = launcher(4);
        command.arg(SWEEP).args(words(flags)).arg("--record").arg(&record);
        refused(&mut command, 2, expected_error);
        assert!(!record.exists(), "{flags}");
    }
}

#[test]
fn a_place_that_cannot_take_the_record_is_refused_and_left_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let taken = folder.path().join("taken");
    fs::write(&taken, "mine").unwrap();
    for (path, expected_error) in [
        (folder.path().join("missing/run.jsonl"), "there is no folder"),
        (taken.join("run.jsonl"), "there is no folder"),
        (taken.clone(), "exists already and records are never overwritten"),
        (folder.path().to_owned(), "this is a folder"),
        // Not even root may make a file there.
        (Path::new("/proc/commgauge.jsonl").to_owned(), "/proc/commgauge.jsonl"),
    ] {
        let mut command = launcher(3);
        command.arg(SWEEP).args(words(SMALL)).arg("--record").arg(&path);
        refused(&mut command, 2, &[expected_error]);
    }
    assert_eq!(fs::read(&taken).unwrap(), b"mine");
}

#[test]
fn suites_and_models_with_mistakes_are_refused_with_file_and_key() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    let sweep = "[[sweep]]\ncollectives = \"all_reduce\"\nbytes = \"1KiB\"\n";
    let model = |file: &str| {
        format!(
            "name = \"x\"\n[model]\nconfig = \"{file}\"\n[training]\nsequence = 128\nmicro_batch = 1\n[[layout]]\ntp = 2\nstyles = [\"tensor\"]\n"
        )
    };
    write("unknown-key.toml", &format!("name = \"x\"\n[measure]\nreplicate = 3\n{sweep}"));
    write("unit.toml", &format!("name = \"x\"\n{}", sweep.replace("1KiB", "1KX")));
    write("lacks-field.toml", &model("lacks-field.json"));
    write(
        "lacks-field.json",
        r#"{"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100}"#,
    );
    write("no-json.toml", &model("no-json.json"));
    write("no-json.json", "hidden_size: 4096");
    let quick = concat!(env!("CARGO_MANIFEST_DIR"), "/suites/quick.toml");
    let own = |name: &str| folder.path().join(name).display().to_string();
    for (suite, ranks, expected_error) in [
        (own("unknown-key.toml"), 2, &["unknown-key.toml:3", "`replicates`"][..]),
        (own("unit.toml"), 2, &["unit.toml:4", "1KX"]),
        (own("lacks-field.toml"), 2, &["lacks-field.json", "hidden_size"]),
        (own("no-json.toml"), 2, &["no-json.json", "JSON"]),
        (own("nothing.toml"), 2, &["nothing.toml"]),
        (quick.to_owned(), 3, &["needs a multiple of 2 ranks, but there are 3"]),
    ] {
        let record = record_in(&folder);
        let mut command = launcher(ranks);
        command.args([SUITE, suite.as_str(), "--record"]).arg(&record);
        let ran = Ran::of(&mut command, 20).ended_with(2);
        expected_error.iter().for_each(|text| assert!(ran.stderr.contains(text), "`{text}` in {}", ran.stderr));
        assert_eq!(ran.stderr.matches("commgauge: ").count(), 1, "said once: {}", ran.stderr);
        assert!(!record.exists());
    }
}

/// One program on rank 0 and another on rank 1.
fn two_programs(first: &[String], second: &[String]) -> Command {
    let mut command = launcher(1);
    command.args(first).arg(":").args(if FAMILY == "open-mpi" { ["-np", "1"] } else { ["-n", "1"] }).args(second);
    command
}

#[test]
fn ranks_that_do_not_belong_together_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let record = record_in(&folder);
    let other = folder.path().join("other-binary");
    let mut binary = fs::read(SWEEP).unwrap();
    binary.push(b'x');
    common::programs::write_program(&other, binary);
    let line = |program: &str, flags: &str| words(&format!("{program} {flags} --record {}", record.display()));
    let other = other.display().to_string();
    for (first, second, what) in [
        (line(SWEEP, SMALL), line(&other, SMALL), "the same program (SHA-256 of its binary): "),
        (line(SWEEP, SMALL), line(SWEEP, &SMALL.replace("-e 8", "-e 16")), "the same suite"),
        (line(SWEEP, SMALL), line(SUITE, "suites/smoke.toml"), "the same program"),
    ] {
        let ran = refused(&mut two_programs(&first, &second), 7, &[what]);
        assert!(ran.stderr.contains(" on rank 0; ") && ran.stderr.contains(" on rank 1"), "{}", ran.stderr);
        assert!(!record.exists());
    }
    // With a limit on one rank only, the others would wait for its decision whether there is time left.
    let limited = line(SWEEP, &format!("{SMALL} --time-limit 5m"));
    refused(&mut two_programs(&line(SWEEP, SMALL), &limited), 7, &["rank 1 and rank 0 have different --resume"]);
    assert!(!record.exists());
}

#[test]
fn a_disk_that_fills_up_ends_the_run_and_leaves_a_record_that_reads() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk");
    fs::create_dir(&disk).unwrap();
    let mount = Command::new("mount").args(["-t", "tmpfs", "-o", "size=64k", "commgauge-test"]).arg(&disk).output();
    if !mount.as_ref().is_ok_and(|mount| mount.status.success()) {
        eprintln!("skipped: a small disk cannot be mounted here ({mount:?}); it needs root");
        return;
    }
    let unmount = Unmount(disk.clone());
    let record = disk.join("run.jsonl");
    let mut command = launcher(2);
    let flags =
        "all_reduce all_gather -b 8 -e 1K -f 2 -n 100 -w 0 --warm-buffers --replicates 3 --cadence isolated --quiet";
    command.arg(SWEEP).args(words(flags)).arg("--record").arg(&record);
    let ran = Ran::of(&mut command, 30).ended_with(6);
    assert!(ran.stderr.contains("cannot append to the record"), "{}", ran.stderr);
    assert!(ran.stderr.contains("No space left on device"), "{}", ran.stderr);
    // The launcher may have ended the writer before it could take its last, torn line away.
    assert!(common::count_so_far(&record, "case") > 0, "some fitted");
    let report = Ran::of(Command::new(COMMGAUGE).arg("report").arg(&record), 20);
    assert!(report.stdout.contains("all_reduce") && report.stdout.contains("missing"), "{}", report.stdout);
    drop(unmount);
}

/// Unmounts also where the test fails.
struct Unmount(std::path::PathBuf);

impl Drop for Unmount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
