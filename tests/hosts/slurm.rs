//! Jobs of a real Slurm on two virtual hosts: the job's state is the verdict, and no end of a job loses what was measured.
//! Needs root, slurm-wlm and munge; skipped without.

use crate::common;

use common::doubles;
use common::hosts::{VirtualCluster, process_of, script};
use common::{COMMGAUGE, Ran, SUITE, Started, child_of, count_so_far, ending, lines, of_kind, start, wait_until};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

fn shipped(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/slurm").join(file)
}

/// A suite that takes seconds, with enough replicates and bytes for a verdict on the network.
const SHORT: &str = "name = 'short'\n[measure]\nreplicates = 5\nminimum_samples = 5\ncase_budget = '300ms'\n\
    [[sweep]]\ncollectives = ['all_reduce']\nbytes = '1MiB'\ncadences = 'streaming'\n";
/// A suite that takes about three quarters of a minute, more than the time limit of half a minute.
const TURNS: &str = "name = 'turns'\n[measure]\nreplicates = 6\nminimum_samples = 5\ncase_budget = '1200ms'\nprecision = 1e-6\n\
    [[sweep]]\ncollectives = ['all_reduce', 'all_gather', 'broadcast']\nbytes = '64KiB'\ncadences = 'streaming'\n";
/// A suite that takes minutes.
const LONG: &str = "name = 'long'\n[measure]\nreplicates = 1000\nminimum_samples = 5\ncase_budget = '20ms'\n\
    [[sweep]]\ncollectives = ['all_reduce', 'all_gather']\nbytes = '64KiB'\ncadences = 'streaming'\n";

/// Slurm on two virtual hosts, with a folder that all of them see.
struct Slurm {
    cluster: VirtualCluster,
    name: &'static str,
    folder: tempfile::TempDir,
}

impl Slurm {
    fn up(name: &'static str) -> Option<Slurm> {
        Slurm::up_on(name, 2)
    }

    /// More hosts run more jobs at the same time.
    fn up_on(name: &'static str, hosts: u32) -> Option<Slurm> {
        let cluster = VirtualCluster::up_for_ranks(name, hosts, "1gbit", &[])?;
        let ran = Ran::of(&mut script(&["slurm", "up", "--name", name, "--gpus", "2"]), 90);
        match ran.code {
            Some(0) => {}
            Some(77) => {
                common::skipped(name, ran.stderr.trim_start_matches("virtual-cluster: skipped: "));
                return None;
            }
            code => panic!("slurm up ended with {code:?}: {}", ran.stderr),
        }
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
        fs::write(folder.path().join("short.toml"), SHORT).expect("written");
        fs::write(folder.path().join("long.toml"), LONG).expect("written");
        fs::write(folder.path().join("turns.toml"), TURNS).expect("written");
        Some(Slurm { cluster, name, folder })
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A shell line on `login`, from where jobs are given to Slurm.
    #[track_caller]
    fn ask(&self, line: &str, seconds: u64) -> Ran {
        let mut command = self.cluster.on("login", "sh");
        command.args(["-c", line]).env("COMMGAUGE", COMMGAUGE).env("COMMGAUGE_RECORDS", self.folder.path());
        ending(start(&mut command), seconds)
    }

    /// Submits a shipped file to Slurm; returns the job's number.
    #[track_caller]
    fn submit(&self, file: &str, flags: &str, environment: &str) -> String {
        let path = shipped(file);
        let line = format!(
            "{environment} sbatch --parsable --ntasks-per-node=2 --output={}/out-%j {flags} {}",
            self.folder.path().display(),
            path.display()
        );
        let ran = self.ask(&line, 30).ended_with(0);
        ran.stdout.trim().to_owned()
    }

    fn facts(&self, job: &str) -> String {
        self.ask(&format!("scontrol show job {job}"), 30).stdout
    }

    /// Waits for a job's end; returns its facts from scontrol, and its output.
    #[track_caller]
    fn ended(&self, job: &str, seconds: u64) -> (String, String) {
        let mut facts = String::new();
        wait_until(seconds, "the job ends", || {
            facts = self.facts(job);
            ["COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL"]
                .iter()
                .any(|state| facts.contains(&format!("JobState={state}")))
        });
        (facts, fs::read_to_string(self.at(&format!("out-{job}"))).unwrap_or_default())
    }

    /// What all jobs printed.
    fn outputs(&self) -> String {
        let files = fs::read_dir(self.folder.path()).expect("a folder").map(|entry| entry.expect("an entry"));
        let outputs = files.filter(|file| file.file_name().to_string_lossy().starts_with("out-"));
        let each = |file: fs::DirEntry| {
            format!("{}:\n{}\n", file.path().display(), fs::read_to_string(file.path()).unwrap_or_default())
        };
        outputs.map(each).collect()
    }

    fn record(&self, job: &str) -> PathBuf {
        self.at(&format!("commgauge-{job}.jsonl"))
    }

    /// Waits until a job has measured something.
    #[track_caller]
    fn measuring(&self, job: &str) {
        let record = self.record(job);
        wait_until(60, "the job measures", || count_so_far(&record, "case") > 2);
    }
}

/// A machine whose links bound nothing, and on which all_reduce must reach a bus bandwidth.
fn machine(floor: &str) -> String {
    format!(
        "name = 'two'\nranks_per_node = 2\n[within_node]\nlatency = '1us'\nrate = '400GB/s'\n[between_nodes]\n\
         latency = '5us'\nadapters_per_node = 2\nrate_per_adapter = '400GB/s'\n[applies_to]\nbackend = 'mpi'\n[coverage]\nexpectations = 1\n\
         [[expect]]\ncollective = 'all_reduce'\n\
         ranks = 4\nbytes = '1MiB'\nfloor = '{floor}'\nsource = 'a test'\ndate = '2026'\n"
    )
}

/// Whether a rank crashed before it measured anything. Under PMIx of Slurm about one start of Open MPI 4.1.4 in fifty does, within
/// MPI_Init, at the address 0.
fn crashed_at_start(out: &str) -> bool {
    out.contains("was killed by SIGSEGV") && out.contains("nothing was measured yet")
}

/// The end line of a record that must have one, and the number of its cases.
#[track_caller]
fn end_of(record: &Path) -> (String, u64, usize) {
    let lines = lines(record);
    let end = of_kind(&lines, "end").pop().expect("an end line");
    (
        end["status"].as_str().expect("a status").to_owned(),
        end["exit_code"].as_u64().expect("a code"),
        of_kind(&lines, "case").len(),
    )
}

#[test]
fn srun_starts_a_suite_over_both_hosts_and_unrelated_copies_are_caught() {
    let Some(slurm) = Slurm::up("slurm-srun") else { return };
    let record = slurm.at("srun.jsonl");
    let short = format!("{SUITE} {} --quiet --record {}", slurm.at("short.toml").display(), record.display());
    slurm.ask(&format!("srun -N2 -n4 --ntasks-per-node=2 --mpi=pmix {short}"), 120).ended_with(0);
    let read = lines(&record);
    let ranks = read[0]["ranks"].as_array().expect("a rank map");
    let hosts: Vec<&str> = ranks.iter().map(|rank| rank["host"].as_str().expect("a host")).collect();
    assert_eq!(hosts, ["host0", "host0", "host1", "host1"]);
    let (status, code, cases) = end_of(&record);
    let planned = of_kind(&read, "plan")[0]["case_lines"].as_u64().expect("a number");
    assert_eq!((status.as_str(), code, cases as u64), ("complete", 0, planned));

    let alone_each = slurm.at("copies.jsonl");
    let copies = format!("srun -N2 -n4 --mpi=none {SUITE} smoke --record {}", alone_each.display());
    slurm.ask(&copies, 60).ended_with(2).printed_error("srun started 4 copies without connecting them (--mpi=none)");
    assert!(!alone_each.exists());
    let twice = format!("srun -N2 -n2 {COMMGAUGE} run smoke");
    slurm.ask(&twice, 60).ended_with(2).printed_error("srun started `commgauge run` 2 times");
}

#[test]
fn a_job_that_asks_for_gpus_alone_has_a_rank_for_each_on_every_host() {
    let Some(slurm) = Slurm::up("slurm-gpus") else { return };
    let (folder, suite, record) = (slurm.folder.path(), slurm.at("short.toml"), slurm.at("gpus.jsonl"));
    let libraries = doubles::folder();
    // Ranks of both hosts are joined by files in a folder that both see.
    let devices = format!(
        "LD_LIBRARY_PATH={} COMMGAUGE_DOUBLE_DEVICES=2 COMMGAUGE_DOUBLE_SHARED={}",
        libraries.display(),
        folder.display()
    );
    let run = format!("{COMMGAUGE} run {} --backend nccl --record {}", suite.display(), record.display());
    let line = format!("{devices} salloc --quiet --nodes=2 --gpus-per-node=2 --exclusive {run}");
    slurm.ask(&line, 120).ended_with(0).printed_error("4 ranks on 2 hosts (host[0-1])");
    let read = lines(&record);
    let ranks = read[0]["ranks"].as_array().expect("a rank map");
    let places: Vec<(&str, &str)> = (ranks.iter())
        .map(|rank| (rank["host"].as_str().expect("a host"), rank["device"].as_str().expect("a device")))
        .map(|(host, device)| (host, device.split(", ").nth(1).expect("an address")))
        .collect();
    let [first, second] = ["0000:10:00.0", "0000:20:00.0"];
    assert_eq!(places, [("host0", first), ("host0", second), ("host1", first), ("host1", second)], "{}", read[0]);
    assert_eq!(end_of(&record).0, "complete");
}

#[test]
fn the_state_of_a_job_is_the_verdict() {
    let Some(slurm) = Slurm::up("slurm-state") else { return };
    fs::write(slurm.at("low.toml"), machine("1KB/s")).expect("written");
    fs::write(slurm.at("high.toml"), machine("10GB/s")).expect("written");
    for (launcher, limits, state, code) in [
        ("srun", "low.toml", "JobState=COMPLETED", "ExitCode=0:0"),
        ("srun", "high.toml", "JobState=FAILED", "ExitCode=1:0"),
        ("mpirun", "low.toml", "JobState=COMPLETED", "ExitCode=0:0"),
    ] {
        let environment = format!(
            "COMMGAUGE_LAUNCHER={launcher} COMMGAUGE_SUITE={} COMMGAUGE_MACHINE={}",
            slurm.at("short.toml").display(),
            slurm.at(limits).display()
        );
        let ended = || {
            let job = slurm.submit("commgauge.sbatch", "", &environment);
            let (facts, out) = slurm.ended(&job, 180);
            (job, facts, out)
        };
        let (mut job, mut facts, mut out) = ended();
        // On a busy machine a call may still become faster when its warm-up is over, and then nothing passes.
        for _ in 0..3 {
            if facts.contains(state) || !(out.contains("unreliable: ") || crashed_at_start(&out)) {
                break;
            }
            (job, facts, out) = ended();
        }
        assert!(facts.contains(state) && facts.contains(code), "{launcher} {limits}: {facts}\n{out}");
        assert!(out.contains(&format!("Slurm job {job}: 4 ranks on 2 hosts (host[0-1])")), "{out}");
        assert_eq!(end_of(&slurm.record(&job)).0, "complete");
        assert!(out.contains("judge: ") && slurm.record(&job).with_extension("html").exists(), "{out}");
    }
    // Without limits no verdict is possible, and a pair takes a host's only job.
    let line = "--array=0-1 --ntasks-per-node=1";
    let pairs = || {
        let job = slurm.submit("commgauge-pairs.sbatch", line, "COMMGAUGE_BYTES=64KiB");
        let facts = [0, 1].map(|index| slurm.ended(&format!("{job}_{index}"), 180).0);
        (job, facts)
    };
    let (mut job, mut each) = pairs();
    for _ in 0..3 {
        if !(each.iter().any(|facts| facts.contains("ExitCode=6:0")) && crashed_at_start(&slurm.outputs())) {
            break;
        }
        (job, each) = pairs();
    }
    for (index, facts) in each.iter().enumerate() {
        let out = slurm.outputs();
        assert!(facts.contains("JobState=FAILED") && facts.contains("ExitCode=3:0"), "{facts}\n{out}");
        let record = slurm.at(&format!("commgauge-pairs-{job}-{index}.jsonl"));
        assert_eq!(end_of(&record).0, "complete", "{out}");
    }
}

#[test]
fn a_job_at_its_limit_or_cancelled_keeps_its_record_and_one_out_of_time_continues_by_itself() {
    let Some(slurm) = Slurm::up_on("slurm-ends", 6) else { return };
    let long = format!("COMMGAUGE_SUITE={}", slurm.at("long.toml").display());
    // Slurm counts limits in minutes, and may warn up to a minute early. All jobs wait at the same time.
    let once = format!("{long} COMMGAUGE_RESTARTS=0 COMMGAUGE_KEEP_SECONDS=0");
    let started_by = |launcher: &'static str, flags: &str, environment: &str| {
        let environment = format!("COMMGAUGE_LAUNCHER={launcher} {environment}");
        (launcher, slurm.submit("commgauge.sbatch", flags, &environment))
    };
    let at_its_limit = ["srun", "mpirun"].map(|launcher| started_by(launcher, "--time=1 --signal=B:USR1@50", &once));
    let turns = format!(
        "COMMGAUGE_SUITE={} COMMGAUGE_MACHINE={} COMMGAUGE_KEEP_SECONDS=54 COMMGAUGE_ALLOW_CHANGED=1",
        slurm.at("turns.toml").display(),
        slurm.at("low.toml").display()
    );
    fs::write(slurm.at("low.toml"), machine("1KB/s")).expect("written");
    let in_turns = slurm.submit("commgauge.sbatch", "--time=1 --signal=B:USR1@1", &turns);
    for (launcher, job) in &at_its_limit {
        let (facts, out) = slurm.ended(job, 100);
        let (status, code, cases) = end_of(&slurm.record(job));
        assert_eq!((status.as_str(), code), ("interrupted", 143), "{launcher}: {out}");
        assert!(cases > 0 && out.contains("measured cases are kept"), "{launcher}: {out}");
        assert!(out.contains("restarted 0 times already; not put back into the queue"), "{launcher}: {out}");
        // The verdict on a run that was stopped: something planned is missing.
        assert!(facts.contains("JobState=FAILED") && facts.contains("ExitCode=7:0"), "{launcher}: {facts}\n{out}");
    }
    let cancelled = ["srun", "mpirun"].map(|launcher| started_by(launcher, "", &long));
    for (launcher, job) in &cancelled {
        slurm.measuring(job);
        slurm.ask(&format!("scancel {job}"), 30).ended_with(0);
        let (facts, out) = slurm.ended(job, 60);
        assert!(facts.contains("JobState=CANCELLED"), "{launcher}: {facts}\n{out}");
        let report = slurm.ask(&format!("{COMMGAUGE} report {}", slurm.record(job).display()), 60);
        assert_eq!(report.code, Some(7), "{launcher}: {}", report.stderr);
        assert_eq!(end_of(&slurm.record(job)).0, "interrupted", "{launcher}: {out}");
    }
    continues_by_itself(&slurm, &in_turns);
}

/// A job whose time is too short for its suite ends with all of it measured, in one record.
#[track_caller]
fn continues_by_itself(slurm: &Slurm, job: &str) {
    let (facts, out) = slurm.ended(job, 200);
    assert!(slurm.record(job).exists(), "{facts}\n{out}");
    let read = lines(&slurm.record(job));
    assert!(!of_kind(&read, "resume").is_empty(), "{facts}\n{out}");
    let turns = of_kind(&read, "resume").len();
    assert!(facts.contains(&format!("Restarts={turns} ")), "{facts}\n{out}");
    assert_eq!(out.matches("is back in the queue, to resume").count(), turns, "{out}");
    let (status, code, cases) = end_of(&slurm.record(job));
    let planned = of_kind(&read, "plan")[0]["case_lines"].as_u64().expect("a number");
    assert_eq!((status.as_str(), code, cases as u64), ("complete", 0, planned), "{out}");
    assert!(out.contains("the time limit of") && out.contains("judge: "), "{out}");
}

#[test]
fn a_run_takes_what_the_allocation_gives_and_refuses_more() {
    let Some(slurm) = Slurm::up("slurm-allocation") else { return };
    let job = "salloc --quiet -N2 --ntasks-per-node=2";
    let run = format!("{COMMGAUGE} run {} --dry-run", slurm.at("short.toml").display());
    let shown = slurm.ask(&format!("{job} {run}"), 60).ended_with(0).printed_error("4 ranks on 2 hosts (host[0-1])");
    assert!(shown.stdout.starts_with("srun --ntasks=4 --kill-on-bad-exit=0 --wait=30 --mpi=pmix "), "{}", shown.stdout);
    let mpirun = slurm.ask(&format!("{job} {run} --launcher mpirun -n 2"), 60).ended_with(0);
    assert!(mpirun.stdout.starts_with("mpirun --allow-run-as-root -n 2 "), "{}", mpirun.stdout);
    mpirun.printed_error("2 of its 4 ranks");
    the_launch_is_checked(&slurm, job);
    for (flags, words) in [
        ("-n 5", "-n 5: Slurm job"),
        ("--hosts host0:2,host2:2", "host2 is not of Slurm job"),
        ("--hosts host0:3,host1:1", "has 2 ranks on host0, not 3"),
    ] {
        slurm.ask(&format!("{job} {run} {flags}"), 60).ended_with(2).printed_error(words);
    }
}

/// Result of the launch check in the allocation: by srun itself, and through `commgauge run`.
#[track_caller]
fn the_launch_is_checked(slurm: &Slurm, job: &str) {
    let suite = slurm.at("short.toml");
    for line in [
        format!("srun -N2 -n4 --ntasks-per-node=2 --mpi=pmix {SUITE} {} --check-launch --format json", suite.display()),
        format!("{job} {COMMGAUGE} run {} --check-launch --format json", suite.display()),
    ] {
        let ran = slurm.ask(&line, 120).ended_with(0);
        let report: serde_json::Value = serde_json::from_str(&ran.stdout).expect("one document");
        assert_eq!(report["refusals"].as_array().map(Vec::len), Some(0), "{line}: {report:#}");
        let of = |host: usize| {
            ["host", "ranks"].map(|key| report["hosts"][host][key].as_str().unwrap_or_default().to_owned())
        };
        assert_eq!(
            (of(0), of(1)),
            (["host0", "0, 1"].map(String::from), ["host1", "2, 3"].map(String::from)),
            "{line}"
        );
        assert_eq!(
            (&report["ranks"], &report["launcher_says"]),
            (&4.into(), &"4 (SLURM_STEP_NUM_TASKS)".into()),
            "{line}"
        );
    }
}

#[test]
fn a_hang_under_srun_is_a_hang_in_message_record_exit_code_and_job() {
    let Some(slurm) = Slurm::up("slurm-hangs") else { return };
    let job = "salloc --quiet -N2 --ntasks-per-node=2";
    for (kind, rank, code) in
        [("hang", 0, 5), ("loop", 3, 5), ("stop", 0, 5), ("stop", 2, 5), ("kill", 1, 6), ("exit", 2, 6)]
    {
        let record = slurm.at(&format!("{kind}-{rank}.jsonl"));
        let flags = format!("--timeout 3 --record {} -- --inject-fault {rank}:{kind}:20", record.display());
        let ran = slurm.ask(&format!("{job} {COMMGAUGE} run {} {flags}", slurm.at("long.toml").display()), 90);
        let ran = ran.ended_with(code);
        let read = lines(&record);
        let hang = of_kind(&read, "hang").pop().unwrap_or_else(|| panic!("{kind}: no hang line: {}", ran.stderr));
        assert_eq!(hang["suspects"], rank.to_string(), "{kind}: {hang}");
        let end = read.last().expect("lines");
        assert_eq!((&end["line"], &end["exit_code"]), (&"end".into(), &code.into()), "{kind}: {end}");
        assert!(code == 6 || !ran.stderr.contains("out of memory"), "{kind}: {}", ran.stderr);
    }
    // The state of a job says why its run ended, and not what is missing because of it.
    let environment = format!("COMMGAUGE_SUITE={}", slurm.at("long.toml").display());
    let path = shipped("commgauge.sbatch");
    let line = format!(
        "{environment} sbatch --parsable --ntasks-per-node=2 --output={}/out-%j {} --timeout 3 -- --inject-fault 1:stop:20",
        slurm.folder.path().display(),
        path.display()
    );
    let job = slurm.ask(&line, 30).ended_with(0).stdout.trim().to_owned();
    let (facts, out) = slurm.ended(&job, 120);
    assert!(facts.contains("JobState=FAILED") && facts.contains("ExitCode=5:0"), "{facts}\n{out}");
}

#[test]
fn without_the_watchdog_of_a_host_a_stopped_rank_still_ends_a_run_under_srun_as_hung() {
    let Some(slurm) = Slurm::up("slurm-loss") else { return };
    // Of the first host, then of the other one; the rank that is stopped is on the host that is still watched.
    for (host, stopped, words) in
        [(0, 2, "rank 2 on host1 stopped answering"), (1, 1, "rank 1 on host0 stopped answering")]
    {
        let record = slurm.at(&format!("lost-{host}.jsonl"));
        let mut child = measuring_job(&slurm, &record, 2, "--timeout 4");
        let watchdog = child_of(&[2 * host, 2 * host + 1].map(|rank| process_of(&record, rank)));
        common::signal(watchdog.expect("a rank of each host has started its watchdog"), "KILL");
        child.wait_until(60, "the record says so", || count_so_far(&record, "unwatched") == 1);
        common::signal(process_of(&record, stopped), "STOP");
        let ran = ending(child, 60).ended_with(5).printed_error(words);
        assert!(!ran.stderr.contains("out of memory"), "a rank ended because of it is not a suspect: {}", ran.stderr);
        let read = lines(&record);
        assert_eq!(of_kind(&read, "unwatched")[0]["host"], format!("host{host}"), "{}", ran.stderr);
        let hang = of_kind(&read, "hang").pop().unwrap_or_else(|| panic!("no hang line: {}", ran.stderr));
        assert_eq!(hang["suspects"], stopped.to_string(), "{hang}");
        // Without the first watchdog, that of the other host has only asked its own ranks.
        let only_of_host = if host == 0 { "host1".into() } else { serde_json::Value::Null };
        assert_eq!(hang["only_of_host"], only_of_host, "{hang}");
        let end = read.last().expect("lines");
        assert_eq!((&end["line"], &end["exit_code"]), (&"end".into(), &5.into()), "{end}");
        assert!(end["error"].as_str().is_some_and(|why| why.contains(words)), "{end}");
    }
}

/// A run of the long suite on two hosts, once it measures.
fn measuring_job(slurm: &Slurm, record: &Path, ranks_per_host: u32, flags: &str) -> Started {
    let line = format!(
        "salloc --quiet -N2 --ntasks-per-node={ranks_per_host} {COMMGAUGE} run {} {flags} --record {}",
        slurm.at("long.toml").display(),
        record.display()
    );
    let mut child = start(slurm.cluster.on("login", "sh").args(["-c", &line]));
    child.wait_until(60, "the job measures", || count_so_far(record, "case") > 2);
    child
}

/// `scripts/watchdog-trials slurm` runs it.
#[test]
#[ignore = "takes minutes: 30 launches"]
fn trials_of_a_stopped_leaf_and_of_four_ranks_that_are_killed_at_once_under_srun() {
    let Some(slurm) = Slurm::up("slurm-trials") else { return };
    let trials = std::env::var("TRIALS").ok().and_then(|text| text.parse().ok()).unwrap_or(5);
    for collective in ["broadcast", "reduce"] {
        let suite = slurm.at(&format!("{collective}.toml"));
        fs::write(&suite, LONG.replace("['all_reduce', 'all_gather']", &format!("'{collective}'"))).unwrap();
        for index in 0..trials {
            let record = slurm.at(&format!("{collective}-{index}.jsonl"));
            let flags = format!("--timeout 3 --record {} -- --inject-fault 3:stop:20", record.display());
            let line = format!("salloc --quiet -N2 --ntasks-per-node=2 {COMMGAUGE} run {} {flags}", suite.display());
            let ran = slurm.ask(&line, 90).ended_with(5);
            let read = lines(&record);
            assert_eq!(of_kind(&read, "hang")[0]["suspects"], "3", "{collective} {index}: {}", ran.stderr);
            assert_eq!(end_of(&record).1, 5, "{collective} {index}");
            eprintln!("srun: leaf of {collective} stopped: {index}: {:.1} s from the start", ran.elapsed.as_secs_f64());
        }
    }
    let killed = std::env::var("TRIALS_KILLED").ok().and_then(|text| text.parse().ok()).unwrap_or(20);
    let named = (0..killed).filter(|index| four_killed_are_named(&slurm, *index)).count();
    eprintln!("srun: four ranks killed at once: {named} of {killed} named all four and no others");
    assert_eq!(named, killed);
}

fn four_killed_are_named(slurm: &Slurm, index: usize) -> bool {
    let record = slurm.at(&format!("killed-{index}.jsonl"));
    let child = measuring_job(slurm, &record, 3, "");
    let victims: Vec<u32> = (1..5).map(|rank| process_of(&record, rank)).collect();
    victims.iter().for_each(|victim| common::signal(*victim, "KILL"));
    let ran = ending(child, 60);
    let suspects = of_kind(&lines(&record), "hang").pop().map(|hang| hang["suspects"].clone());
    eprintln!("srun: killed 1-4: {index}: {suspects:?}, exit {:?}", ran.code);
    ran.code == Some(6) && suspects == Some("1-4".into())
}

#[test]
fn slurm_ends_by_its_own_pid_files_and_comes_again() {
    let Some(slurm) = Slurm::up("slurm-life") else { return };
    Ran::of(&mut script(&["slurm", "up", "--name", slurm.name]), 30)
        .ended_with(2)
        .printed_error("runs on slurm-life already");
    let state = Path::new(env!("CARGO_TARGET_TMPDIR")).join("virtual-clusters").join(slurm.name);
    let daemons = || {
        let mark = state.join("slurm").display().to_string();
        let processes = fs::read_dir("/proc").expect("Linux").flatten();
        processes
            .filter(|process| {
                let words = fs::read_to_string(process.path().join("cmdline")).unwrap_or_default();
                let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
                words.contains(&mark) && ["munged", "slurmctld", "slurmd"].contains(&name.trim())
            })
            .count()
    };
    let folder = || fs::metadata(state.join("slurm")).expect("a folder").ino();
    let seen_by_hosts = folder();
    assert_eq!(daemons(), 4, "munged, slurmctld and two slurmd");
    // Also with a job that would run on.
    slurm.ask("sbatch --quiet -N2 --output=/dev/null --wrap='sleep 1000'", 30).ended_with(0);
    Ran::of(&mut script(&["slurm", "down", "--name", slurm.name]), 60).ended_with(0);
    assert_eq!(daemons(), 0);
    assert_eq!(fs::read_dir(state.join("slurm")).expect("a folder").count(), 0);
    assert_eq!(folder(), seen_by_hosts, "hosts with a /tmp of their own would not see another folder");
    Ran::of(&mut script(&["slurm", "down", "--name", slurm.name]), 30).ended_with(0).printed_error("no Slurm runs");
    Ran::of(&mut script(&["slurm", "up", "--name", slurm.name]), 60).ended_with(0);
    // Removing the cluster ends Slurm with it.
    Ran::of(&mut script(&["down", "--name", slurm.name]), 60).ended_with(0);
    assert_eq!(daemons(), 0);
}
