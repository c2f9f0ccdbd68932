//! The MPIJob is one that the operator would take, its parts agree with each other, and its launcher waits with an end.
//! No cluster runs here.

#![cfg(feature = "mpi")]

use crate::common;

use common::{Ran, ending, start};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

fn text(path: &str) -> String {
    fs::read_to_string(Path::new(ROOT).join(path)).expect("it is shipped")
}

/// The job on host memory, and the one on GPUs.
const JOBS: [&str; 2] = ["mpijob.yaml", "mpijob-gpu.yaml"];

fn job(file: &str) -> Value {
    serde_yaml_ng::from_str(&text(&format!("scripts/kubernetes/{file}"))).expect("YAML")
}

/// What the operator's fields do not allow, in words.
fn complaints(job: &Value) -> Vec<String> {
    let schema: Value = serde_json::from_str(&text("tests/data/mpijob.schema.json")).expect("JSON");
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    validator.iter_errors(job).map(|error| format!("{}: {error}", error.instance_path())).collect()
}

#[test]
fn the_job_has_only_fields_and_values_that_the_operator_knows() {
    for file in JOBS {
        assert_eq!(complaints(&job(file)), Vec::<String>::new(), "{file}");
    }
    // The check itself sees what users get wrong: slips of the pen, values of other versions, fields in the wrong place.
    for (pointer, name, value) in [
        ("/spec", "launcherCreationPolicy", Value::from("WaitForWorkers")),
        ("/spec", "waitForWorkers", Value::from(true)),
        ("/spec", "backoffLimit", Value::from(0)),
        ("/spec", "slotsPerWorker", Value::from("8")),
        ("/spec/runPolicy", "cleanPodPolicy", Value::from("running")),
        ("/spec/runPolicy", "activeDeadlineSeconds", Value::from(0)),
        ("/spec/mpiReplicaSpecs/Launcher/template/spec", "backoffLimit", Value::from(0)),
        ("/spec/mpiReplicaSpecs", "worker", Value::from(1)),
        ("/spec/mpiReplicaSpecs/Worker", "template", Value::Null),
    ] {
        let mut wrong = job(JOBS[0]);
        wrong.pointer_mut(pointer).expect(pointer)[name] = value;
        assert!(!complaints(&wrong).is_empty(), "{pointer}/{name}");
    }
}

#[test]
fn the_jobs_wait_for_their_workers_try_once_and_end_in_time() {
    for file in JOBS {
        waits_for_its_workers(&job(file));
    }
}

#[test]
fn the_job_on_gpus_asks_for_all_of_a_node_and_for_nccl_in_its_image() {
    let job = job("mpijob-gpu.yaml");
    let at = |pointer: &str| job.pointer(pointer).unwrap_or_else(|| panic!("{pointer} is missing")).clone();
    let container = "template/spec/containers/0";
    let worker = format!("/spec/mpiReplicaSpecs/Worker/{container}");
    for kind in ["limits", "requests"] {
        let gpus = at(&format!("{worker}/resources/{kind}/nvidia.com~1gpu"));
        assert_eq!(gpus.as_str().map(str::to_owned), Some(at("/spec/slotsPerWorker").to_string()), "{kind}");
    }
    let arguments = at(&format!("/spec/mpiReplicaSpecs/Launcher/{container}/args"));
    assert_eq!(arguments, serde_json::json!(["qualify-gpu", "--backend", "nccl"]));
    assert!(is_shipped(&at("/spec/mpiReplicaSpecs/Launcher/template/spec/containers/0/env/1/value")));
    let container = text("scripts/kubernetes/Containerfile");
    assert!(container.contains("--build-arg NCCL=nvidia-nccl-cu12") && container.contains("/opt/nccl/nvidia/nccl/lib"));
}

#[test]
fn what_the_image_copies_from_its_build_is_in_the_checkout_or_built_there() {
    let container = text("scripts/kubernetes/Containerfile");
    let joined = container.replace("\\\n", " ");
    let copies = joined.lines().filter_map(|line| line.strip_prefix("COPY --from=build "));
    let copied: Vec<&str> = copies.flat_map(str::split_whitespace).filter(|word| *word != "/usr/local/bin/").collect();
    assert!(copied.len() > 1, "{joined}");
    for path in copied {
        // Paths outside the folder of the build are searched at the top of the image, where nothing is.
        let inside = path.strip_prefix("/build/").unwrap_or_else(|| panic!("{path} does not begin with /build/"));
        match inside.strip_prefix("target/release/") {
            Some(program) => {
                let sources = Path::new(ROOT).join(format!("src/bin/{program}.rs"));
                assert!(sources.exists(), "no program {program}");
            }
            None => assert!(Path::new(ROOT).join(inside).exists(), "{inside} is not in the checkout"),
        }
    }
}

/// Whether a machine file of that name is shipped.
fn is_shipped(machine: &Value) -> bool {
    Path::new(ROOT).join(format!("suites/machines/{}.toml", machine.as_str().unwrap())).exists()
}

/// What keeps a job from failing at its start and from holding its nodes.
#[track_caller]
fn waits_for_its_workers(job: &Value) {
    let at = |pointer: &str| job.pointer(pointer).unwrap_or_else(|| panic!("{pointer} is missing")).clone();
    let worker = "/spec/mpiReplicaSpecs/Worker/template/spec/containers/0";
    let launcher = "/spec/mpiReplicaSpecs/Launcher/template/spec/containers/0";
    assert_eq!(at("/spec/launcherCreationPolicy"), "WaitForWorkersReady");
    assert_eq!(at("/spec/runPolicy/backoffLimit"), 0);
    assert_eq!(at("/spec/runPolicy/cleanPodPolicy"), "Running");
    for role in ["Launcher", "Worker"] {
        assert_eq!(at(&format!("/spec/mpiReplicaSpecs/{role}/restartPolicy")), "Never");
    }
    // Ready means that sshd listens, on the port that the image's clients use, with the keys that its user may read.
    let container = text("scripts/kubernetes/Containerfile");
    let port = at(&format!("{worker}/readinessProbe/tcpSocket/port"));
    assert!(container.contains(&format!("'Port {port}'")) && container.contains(&format!("'    Port {port}'")));
    let keys = at("/spec/sshAuthMountPath");
    assert!(container.contains(&format!("HostKey {}/id_rsa", keys.as_str().expect("a path"))), "{keys}");
    for container_of in [worker, launcher] {
        assert_eq!(at(&format!("{container_of}/securityContext/runAsUser")), 1000);
    }
    assert!(container.contains("--uid 1000"));
    // The file that chooses the toolchain of a checkout would have rustup fetch the newest, whatever the image has.
    assert!(container.contains("RUSTUP_TOOLCHAIN=$RUST_VERSION cargo build"));
    // A processor for each rank at least, or they would share.
    let ranks = at("/spec/slotsPerWorker").as_u64().expect("ranks");
    let processors = at(&format!("{worker}/resources/limits/cpu"));
    assert!(processors.as_str().and_then(|text| text.parse().ok()).is_some_and(|processors: u64| processors >= ranks));
    let wait: u64 = at(&format!("{launcher}/env/2/value")).as_str().expect("text").parse().expect("seconds");
    assert!(wait < at("/spec/runPolicy/activeDeadlineSeconds").as_u64().expect("seconds"));
    let command = at(&format!("{launcher}/command/0"));
    assert!(container.contains("scripts/kubernetes/run-and-judge /usr/local/bin/"), "{command}");
    let machine = at(&format!("{launcher}/env/1/value"));
    // Limits are shipped, or lie where the records do.
    let volume = at(&format!("{launcher}/volumeMounts/0/mountPath"));
    let is_with_records = machine.as_str().unwrap().starts_with(&format!("{}/", volume.as_str().unwrap()));
    assert!(is_shipped(&machine) || is_with_records, "{machine}");
    assert!(
        Path::new(ROOT).join(format!("suites/{}.toml", at(&format!("{launcher}/args/0")).as_str().unwrap())).exists()
    );
}

/// Runs the launcher's command where `ssh` and `commgauge` are played by shell lines.
fn launched(ssh: &str, commgauge: &str) -> (Ran, String) {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    for (name, line) in [("ssh", ssh), ("commgauge", commgauge)] {
        common::programs::write_program(&folder.path().join(name), format!("#!/bin/sh\n{line}\n"));
    }
    fs::write(folder.path().join("hostfile"), "w-0.w.default.svc slots=8\nw-1.w.default.svc slots=4\n")
        .expect("written");
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").expect("a PATH"));
    let mut command = Command::new(Path::new(ROOT).join("scripts/kubernetes/run-and-judge"));
    command.args(["quick", "--", "-x"]).env("PATH", path).stdin(Stdio::null()).current_dir(folder.path());
    command.env("OMPI_MCA_orte_default_hostfile", folder.path().join("hostfile"));
    command
        .env_remove("COMMGAUGE")
        .env_remove("COMMGAUGE_JOB")
        .env("COMMGAUGE_RECORDS", folder.path())
        .env("COMMGAUGE_WAIT_SECONDS", "2")
        .env("COMMGAUGE_MACHINE", "m");
    let ran = ending(start(&mut command), 60);
    let calls = fs::read_to_string(folder.path().join("calls")).unwrap_or_default();
    (ran, calls)
}

/// Notes its words, writes a record when it runs, and ends with one code for `run` and another for `judge`.
fn played(run: i32, judge: i32) -> String {
    format!(
        "echo \"$@\" >>calls\nif [ \"$1\" = judge ]; then exit {judge}; fi\n\
         while [ \"$1\" != --record ]; do shift; done\necho '{{}}' >\"$2\"\nexit {run}"
    )
}

/// The real `commgauge` under the launcher's command, whose workers' names are known from when on `named` is there, and which `ssh`
/// reaches once `up` is there. The launcher of MPI is a script that notes that it was called.
fn waiting(folder: &Path, shim: &Path, seconds: &str) -> Command {
    let version = if common::FAMILY == "open-mpi" {
        "mpirun (Open MPI) 4.1.4"
    } else {
        "HYDRA build details:\n    Version: 4.0.2"
    };
    for (name, line) in [
        ("ssh", "[ -e up ]".to_owned()),
        ("mpirun", format!("if [ \"$1\" = --version ]; then echo '{version}'; else ls >launched; fi")),
    ] {
        common::programs::write_program(&folder.join(name), format!("#!/bin/sh\n{line}\n"));
    }
    fs::write(folder.join("hostfile"), "late-0 slots=2\nlate-1 slots=2\n").expect("written");
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").expect("a PATH"));
    let mut command = Command::new(Path::new(ROOT).join("scripts/kubernetes/run-and-judge"));
    command.arg(Path::new(ROOT).join("suites/smoke.toml")).env("PATH", path).stdin(Stdio::null()).current_dir(folder);
    command.env("OMPI_MCA_orte_default_hostfile", folder.join("hostfile")).env("COMMGAUGE", common::COMMGAUGE);
    command.env_remove("COMMGAUGE_MACHINE").env_remove("OMPI_MCA_plm_rsh_agent").env_remove("HYDRA_LAUNCHER");
    command.env("COMMGAUGE_RECORDS", folder).env("COMMGAUGE_WAIT_SECONDS", seconds);
    command.env("LD_PRELOAD", shim).env("FAULT_LATE_NAMES", folder.join("named"));
    command
}

#[test]
fn workers_whose_names_come_late_are_waited_for_and_those_that_never_come_are_named_with_6() {
    let Some(shim) = common::shim() else { return };
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let at = folder.path();
    let ran = ending(start(&mut waiting(at, &shim, "1")), 60).ended_with(6);
    ran.printed_error(
        "after 1 s 2 of 2 hosts are not ready: late-0 (its name is not known), late-1 (its name is not known)",
    );
    fs::write(at.join("named"), "").expect("written");
    let ran = ending(start(&mut waiting(at, &shim, "1")), 60).ended_with(6);
    ran.printed_error("2 of 2 hosts are not ready: late-0 (ssh does not reach it), late-1 (ssh does not reach it)");
    fs::remove_file(at.join("named")).expect("it was there");
    assert!(!at.join("launched").exists(), "nothing is launched on hosts that are not there");

    let late = start(&mut waiting(at, &shim, "60"));
    for name in ["named", "up"] {
        std::thread::sleep(std::time::Duration::from_millis(700));
        assert!(!at.join("launched").exists());
        fs::write(at.join(name), "").expect("written");
    }
    // What was launched then measures nothing, which is no success.
    let ran = ending(late, 60).ended_with(6);
    ran.printed_error("commgauge: waits for 2 hosts, 60.0 s at most")
        .printed_error("commgauge: 2 hosts ready after")
        .printed_error("+ mpirun ");
    assert!(at.join("launched").exists());
    let _ = fs::remove_file(shim);
}

#[test]
fn the_end_of_the_launcher_is_the_verdict_unless_the_run_itself_failed() {
    for (run, judge, expected) in [(0, 0, 0), (0, 1, 1), (0, 3, 3), (4, 4, 4), (143, 7, 7), (6, 0, 6)] {
        let (ran, calls) = launched("exit 0", &played(run, judge));
        ran.ended_with(expected);
        let calls: Vec<&str> = calls.lines().collect();
        assert!(calls[0].starts_with("run quick -n 12 --launcher mpirun --hostfile ") && calls[0].ends_with(" -- -x"));
        let judge = calls[1].strip_suffix(".html").expect("a page");
        assert!(judge.starts_with("judge ") && judge.contains(" --machine m --page "), "{judge}");
    }
    // Without a record there is nothing to judge, and nothing is no success.
    assert_eq!(launched("exit 0", "exit 0").0.code, Some(6));
    assert_eq!(launched("exit 0", "exit 2").0.code, Some(2));
}
