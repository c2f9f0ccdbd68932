//! The check of a launch, on ranks that really differ. Needs the launcher of the MPI that was built with.

use crate::common;

use common::{COMMGAUGE, FAMILY, Ran, SWEEP, by_rank, doubles, launcher, lines, record_in, skipped, words};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

const SMALL: &str = "all_reduce -b 8 -e 8 -n 2 -w 0 --replicates 1 --warm-buffers";

/// A rank for each shell command, in which `"$@"` is replaced by the program and its arguments.
fn ranks(scripts: &[&str], flags: &str) -> Command {
    let mut command = launcher(scripts.len() as u32);
    command.args(["sh", "-c", &by_rank(scripts), "sh", SWEEP]).args(words(SMALL)).args(words(flags));
    command
}

/// The document of `--check-launch --format json`, after validation against the schema.
fn document(text: &str) -> Value {
    let document: Value = serde_json::from_str(text).expect("one JSON document");
    common::fits_schema("launch", &document);
    document
}

/// The sentences of one kind, joined.
fn messages(document: &Value, kind: &str) -> String {
    document[kind].as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect::<Vec<_>>().join("\n")
}

#[test]
fn ranks_with_another_environment_are_refused_by_variable_and_may_be_allowed() {
    let folder = tempfile::tempdir().unwrap();
    let record = record_in(&folder);
    let to = format!("--record {}", record.display());
    let mixed =
        [r#"NCCL_ALGO=Ring exec "$@""#, r#"OMP_NUM_THREADS=3 NCCL_ALGO=Tree exec "$@""#, r#"NCCL_ALGO=Ring exec "$@""#];
    let ran = Ran::of(&mut ranks(&mixed, &to), 20).ended_with(7);
    let ran = ran.printed_error("the ranks do not have the same NCCL_ALGO: Ring on ranks 0, 2; Tree on rank 1");
    let ran = ran.printed_error("OMP_NUM_THREADS  not set  0, 2").printed_error("--allow-mixed");
    assert_eq!((ran.stdout.as_str(), record.exists()), ("", false));

    Ran::of(&mut ranks(&mixed, &format!("--allow-mixed --quiet {to}")), 30).ended_with(0);
    let warnings = lines(&record)[0]["warnings"].to_string();
    assert!(warnings.contains("do not have the same NCCL_ALGO: Ring on ranks 0, 2; Tree on rank 1"), "{warnings}");
}

#[test]
fn a_launch_check_measures_nothing_and_reports_what_the_ranks_share() {
    let folder = tempfile::tempdir().unwrap();
    let record = record_in(&folder);
    let mut command = Command::new(COMMGAUGE);
    command.args(["run", "smoke", "-n", "2", "--check-launch", "--format", "json", "--record"]).arg(&record);
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    if FAMILY == "mpich" {
        command.args(["--launcher", "mpiexec.mpich"]);
    }
    let document = document(&Ran::of(&mut command, 30).ended_with(0).stdout);
    assert_eq!((document["ranks"].as_u64(), document["refusals"].as_array().unwrap().len()), (Some(2), 0));
    assert_eq!(document["hosts"][0]["ranks"], "0, 1");
    let shared = document["shared"].to_string();
    assert!(shared.contains("program") && shared.contains("MPI library"), "{shared}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "no record and no report stays behind");

    let mut nothing = Command::new(COMMGAUGE);
    nothing.args(["run", "smoke", "--backend", "simulated", "--machine", "h100-sxm", "--check-launch"]);
    Ran::of(nothing.current_dir(env!("CARGO_MANIFEST_DIR")), 20).ended_with(2);
}

#[test]
fn a_launcher_that_says_another_number_of_ranks_is_refused_where_it_is_not_an_inherited_word() {
    let lie = r#"OMPI_COMM_WORLD_SIZE=8 exec "$@""#;
    let ran = Ran::of(&mut ranks(&[lie, lie], "--check-launch --format json"), 20);
    if FAMILY == "open-mpi" {
        let ran = ran.ended_with(7);
        let refusals = messages(&document(&ran.stdout), "refusals");
        assert!(refusals.contains("the launcher reports 8 ranks (OMPI_COMM_WORLD_SIZE), MPI reports 2"), "{refusals}");
    } else {
        // MPICH's own launcher reports 2, which is correct.
        document(&ran.ended_with(0).stdout);
    }
}

/// UCX, which Debian's MPICH uses, opens files of the other rank, which such ranks may not.
#[test]
fn ranks_in_containers_of_their_own_are_noted_with_what_to_set() {
    let may_be_made = Command::new("unshare").args(["--map-root-user", "true"]).status();
    if FAMILY == "mpich" || !may_be_made.is_ok_and(|status| status.success()) {
        return skipped("ranks in containers of their own", "MPICH, or this user may not make user namespaces");
    }
    let alone = r#"exec unshare --map-root-user "$@""#;
    let mut command = ranks(&[alone, alone], "--check-launch --format json");
    command.env("OMPI_MCA_btl_vader_single_copy_mechanism", "none");
    let notes = messages(&document(&Ran::of(&mut command, 30).ended_with(0).stdout), "notes");
    let expected = "in different user namespaces (ranks 0, 1), as with one container per rank";
    assert!(notes.contains(expected) && notes.contains("OMPI_MCA_btl_vader_single_copy_mechanism=none"), "{notes}");
}

/// Two hosts that are one machine: their kernel is the same, their names are not, or MPI does not share between them.
fn two_hosts_of_one_machine(folder: &Path, flags: &str) -> Option<Command> {
    let limited = r#"ulimit -n 200; exec "$@""#;
    if FAMILY == "mpich" {
        let mut command = ranks(&[r#"exec "$@""#, limited], flags);
        command.env("MPIR_CVAR_NOLOCAL", "1");
        return Some(command);
    }
    // Open MPI's remote shell, which gives each host a separate name instead of connecting anywhere.
    let agent = folder.join("agent");
    let text =
        "#!/bin/sh\nhost=$1; shift\nexec unshare --uts sh -c 'hostname \"$0\"; exec sh -c \"$*\"' \"$host\" \"$@\"\n";
    common::programs::write_program(&agent, text);
    if !Command::new("unshare").args(["--uts", "true"]).status().is_ok_and(|status| status.success()) {
        skipped("two hosts of one machine", "this user may not make host names of its own");
        return None;
    }
    let mut command = Command::new("mpirun");
    command
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .env("OMPI_MCA_plm_rsh_agent", &agent)
        .env("PRTE_MCA_plm_ssh_agent", &agent);
    // By routes, as Debian's Open MPI 5 asks for them, two hosts with one address do not reach each other.
    command.env("OMPI_MCA_reachable", "weighted");
    command.env("OMPI_MCA_plm", "rsh").env("PRTE_MCA_plm", "ssh").current_dir(env!("CARGO_MANIFEST_DIR"));
    command.args(["--bind-to", "none", "-np", "2", "--host", "hosta:1,hostb:1"]);
    command.args(["sh", "-c", &by_rank(&[r#"exec "$@""#, limited]), "sh", SWEEP]);
    command.args(words(SMALL)).args(words(flags));
    Some(command)
}

#[test]
fn hosts_of_one_machine_are_distinguished_with_a_warning_and_a_low_limit_names_its_host() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut command) = two_hosts_of_one_machine(folder.path(), "--check-launch --format json") else { return };
    let document = document(&Ran::of(&mut command, 30).ended_with(0).stdout);
    let hosts: Vec<&str> =
        document["hosts"].as_array().unwrap().iter().map(|host| host["host"].as_str().unwrap()).collect();
    let warnings = messages(&document, "warnings");
    if FAMILY == "mpich" {
        assert!(hosts[0].ends_with("#1") && hosts[1].ends_with("#2"), "{hosts:?}");
        assert!(warnings.contains("MPI finds no shared memory between some ranks"), "{warnings}");
    } else {
        assert_eq!(hosts, ["hosta", "hostb"]);
        assert!(warnings.contains("hosts hosta, hostb have the same boot id"), "{warnings}");
    }
    assert!(warnings.contains(&format!("200 on {}", hosts[1])), "{warnings}");
}

#[test]
fn two_ranks_on_one_device_are_refused_by_its_uuid_and_another_nccl_by_its_version() {
    let flags = "--backend nccl --check-launch --format json";
    let rank = r#"exec "$@""#;
    let mut shared = ranks(&[rank, rank], &format!("{flags} --device-map 0,0"));
    let ran = Ran::of(doubles::with_doubles(&mut shared, 2), 60).ended_with(7);
    let refusals = messages(&document(&ran.stdout), "refusals");
    assert!(refusals.contains("ranks 0, 1 of host ") && refusals.contains("are on one device ("), "{refusals}");

    let older = doubles::folder_with_nccl("2.27.3");
    let other = format!(r#"LD_LIBRARY_PATH={}:$LD_LIBRARY_PATH exec "$@""#, older.display());
    let mut mixed = ranks(&[rank, &other], flags);
    let ran = Ran::of(doubles::with_doubles(&mut mixed, 2), 60).ended_with(7);
    let refusals = messages(&document(&ran.stdout), "refusals");
    assert!(refusals.contains("the same version of NCCL: 2.30.7") && refusals.contains("2.27.3"), "{refusals}");
}
