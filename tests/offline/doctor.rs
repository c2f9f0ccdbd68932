//! The doctor on real machines: this one, whatever it has, one with stand-ins for a driver and NCCL, and libraries that crash.

use crate::common;

use common::{COMMGAUGE, Ran, doubles};
use serde_json::Value;
use std::process::Command;

fn doctor(change: impl FnOnce(&mut Command), code: i32) -> Value {
    let mut command = Command::new(COMMGAUGE);
    command.args(["doctor", "--format", "json"]);
    change(&mut command);
    let text = Ran::of(&mut command, 60).ended_with(code).stdout;
    let document: Value = serde_json::from_str(&text).expect("one JSON document");
    let schema: Value = serde_json::from_str(include_str!("../../docs/schemas/doctor.schema.json")).unwrap();
    let errors: Vec<String> =
        jsonschema::validator_for(&schema).unwrap().iter_errors(&document).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{errors:?}");
    document
}

/// What was found of an item, with its state.
fn found(document: &Value, section: &str, item: &str) -> String {
    let sections = document["sections"].as_array().unwrap();
    let section = sections.iter().find(|one| one["name"] == section).expect("a section");
    let finding = section["findings"].as_array().unwrap().iter().find(|one| one["item"] == item);
    let finding = finding.unwrap_or_else(|| panic!("no {item} in {section}"));
    format!("{}: {}", finding["state"].as_str().unwrap(), finding["found"].as_str().unwrap())
}

fn backend<'a>(document: &'a Value, name: &str) -> &'a Value {
    document["backends"].as_array().unwrap().iter().find(|one| one["name"] == name).expect("a backend")
}

#[test]
fn the_doctor_works_where_nothing_is_there_and_a_backend_that_cannot_run_ends_with_6() {
    let document = doctor(
        |command| {
            command.env_clear().env("PATH", "/nowhere");
        },
        0,
    );
    assert_eq!(backend(&document, "mpi")["ready"], false);
    assert!(found(&document, "MPI", "launcher").starts_with("missing: no launcher"));
    assert_eq!(backend(&document, "simulated")["ready"], true);
    doctor(
        |command| {
            command.args(["--backend", "mpi"]).env_clear().env("PATH", "/nowhere");
        },
        6,
    );
    doctor(
        |command| {
            command.args(["--backend", "simulated"]);
        },
        0,
    );
}

#[test]
fn devices_and_nccl_are_queried_and_stand_ins_are_marked() {
    let document = doctor(
        |command| {
            doubles::with_cublas(doubles::with_doubles(command, 2));
        },
        0,
    );
    let cublas = found(&document, "cuBLAS", "library");
    assert!(cublas.starts_with("fine: cuBLAS 12.8.4, ") && cublas.contains("libcublas.so"), "{cublas}");
    // The stand-ins have no NVML; a host with GPUs has its own.
    let nvml = found(&document, "Devices now (NVML)", "NVML");
    assert!(nvml.starts_with("fine: ") || nvml.starts_with("warning: it cannot be used: libnvidia-ml.so.1"), "{nvml}");
    let library = found(&document, "NCCL", "library");
    assert!(library.starts_with(&format!("fine: NCCL {}", doubles::NCCL_VERSION)), "{library}");
    assert!(found(&document, "CUDA", "device 1").starts_with("fine: "));
    assert!(found(&document, "CUDA", "libcuda").contains("a stand-in for tests"));
    let nccl = backend(&document, "nccl");
    assert!(nccl["reason"].as_str().unwrap().contains("synthetic"), "{nccl}");
}

#[test]
fn a_library_that_crashes_when_it_is_loaded_does_not_take_the_doctor_along() {
    let folder = tempfile::tempdir().unwrap();
    let (source, library) = (folder.path().join("crash.c"), folder.path().join("libnccl.so.2"));
    std::fs::write(&source, "__attribute__((constructor)) static void crash(void) { *(volatile int *)0 = 1; }\n")
        .unwrap();
    let built = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status();
    assert!(built.is_ok_and(|status| status.success()), "cc builds a library");
    let document = doctor(
        |command| {
            command.arg("--nccl-library").arg(&library);
        },
        0,
    );
    assert_eq!(found(&document, "NCCL", "library"), "broken: asking NCCL ended badly: killed by signal 11 (SIGSEGV)");

    let text = folder.path().join("text.so");
    std::fs::write(&text, "no library").unwrap();
    let document = doctor(
        |command| {
            command.env("COMMGAUGE_NCCL_LIBRARY", &text);
        },
        0,
    );
    assert!(found(&document, "NCCL", "library").contains("text.so"), "{document}");
}
