//! The doctor on real machines: this one, whatever it has, and libraries that crash.

use crate::doctor_document::{backend, doctor, found};
use std::process::Command;

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
    assert_eq!(found(&document, "NCCL", "library"), "broken: querying NCCL failed: killed by signal 11 (SIGSEGV)");

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
