//! What NCCL used, by its own log: recorded, named where it is surprising, and refused by a machine file.

use crate::common;

use common::doubles::with_doubles;
use common::{COMMGAUGE, Ran, SWEEP, launcher, lines, of_kind, record_in, words};
use serde_json::{Value, json};
use std::fs;
use std::process::Command;

/// A sweep of two ranks with these variables: its output, and its lines.
fn swept(environment: &[(&str, &str)]) -> (Ran, Vec<Value>) {
    let folder = tempfile::tempdir().unwrap();
    let record = record_in(&folder);
    let mut command = launcher(2);
    command.arg(SWEEP).args(words("all_reduce -b 1K -e 1K -n 2 --backend nccl --quiet --record")).arg(&record);
    with_doubles(&mut command, 2);
    command.envs(environment.iter().copied()).env("TMPDIR", folder.path());
    let ran = Ran::of(&mut command, 60).ended_with(0);
    let lines = lines(&record);
    let kept = fs::read_dir(folder.path()).unwrap().flatten();
    let kept = kept.filter(|entry| entry.file_name().to_string_lossy().starts_with("commgauge-nccl-")).count();
    let is_unknown = environment.contains(&("COMMGAUGE_DOUBLE_USES", "unknown"));
    assert_eq!(kept, if is_unknown { 2 } else { 0 }, "a log is kept only where it is not understood");
    (ran, lines)
}

#[test]
fn the_network_routes_and_channels_are_in_the_record_unless_the_log_is_the_users() {
    let (_, lines) = swept(&[]);
    let variables = lines[0]["environment"].to_string();
    assert!(!variables.contains("NCCL_DEBUG"), "our own log is no setting of the user: {variables}");
    let used = of_kind(&lines, "library_use");
    assert_eq!(used.len(), 1, "once, as nothing changed: {used:?}");
    assert_eq!(
        used[0]["uses"],
        json!([{
            "ranks": "0-1", "networks": ["Socket"], "adapters": {"Socket": ["eth0"]}, "routes": ["P2P/CUMEM"],
            "channels": ["2 coll, 0 collnet, 0 nvls, 2 p2p, 2 p2p per peer"],
        }])
    );
    let (_, lines) = swept(&[("COMMGAUGE_DOUBLE_USES", "unknown")]);
    let used = of_kind(&lines, "library_use")[0]["uses"].as_array().unwrap().clone();
    assert!(used.iter().all(|used| used["not_understood"].as_str().unwrap().contains("commgauge-nccl-")), "{used:?}");
    let (_, lines) = swept(&[("NCCL_DEBUG", "WARN")]);
    let used = of_kind(&lines, "library_use")[0].clone();
    assert_eq!(used["absent"], "the environment has NCCL_DEBUG, so NCCL's log is not read", "{used}");
}

#[test]
fn a_machine_file_refuses_another_network() {
    let folder = tempfile::tempdir().unwrap();
    let record = record_in(&folder);
    let mut command = launcher(2);
    command.arg(SWEEP).args(words("all_reduce -b 1K -e 1K -n 2 --backend nccl --quiet --record")).arg(&record);
    with_doubles(&mut command, 2);
    Ran::of(&mut command, 60).ended_with(0);
    let judged = |net: &str| {
        let machine = folder.path().join("m.toml");
        let text =
            fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/suites/machines/h100-nvswitch-ndr.toml")).unwrap();
        fs::write(&machine, format!("{text}\n[transport]\nnet = '{net}'\n")).unwrap();
        let output = Command::new(COMMGAUGE).arg("judge").arg(&record).arg("--machine").arg(&machine).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
    };
    let said = judged("IB");
    assert!(said.contains("the network is Socket; IB is required"), "{said}");
    let said = judged("Socket");
    assert!(!said.contains("is required"), "{said}");
}

#[test]
fn variables_of_a_configuration_file_are_recorded_and_named_with_their_file() {
    let folder = tempfile::tempdir().unwrap();
    let conf = folder.path().join("nccl.conf");
    fs::write(&conf, "NCCL_CROSS_NIC=1\n").unwrap();
    let (_, lines) = swept(&[("NCCL_CONF_FILE", conf.to_str().unwrap())]);
    let header = &lines[0];
    assert_eq!(header["environment"]["NCCL_CROSS_NIC"], "1", "{header}");
    assert!(header["notes"].to_string().contains("nccl.conf sets NCCL_CROSS_NIC for NCCL"), "{header}");
}
