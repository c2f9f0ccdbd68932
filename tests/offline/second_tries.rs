//! What scripts/test makes of tests that fail, with a `cargo` whose answers are files: its first, and that of the second try.

use crate::common::programs::write_program;
use std::fs;
use std::path::Path;
use std::process::Command;

const PASSED: &str = "running 2 tests\ntest a::one ... ok\ntest a::two ... ok\n\n\
                      test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.1s\n";
const FAILED: &str = "running 2 tests\ntest a::one ... ok\ntest a::two ... FAILED\n\nfailures:\n\n\
                      ---- a::two stdout ----\n\nthread 'a::two' panicked at tests/a.rs:1:2:\nlate\n\n\nfailures:\n    a::two\n\n\
                      test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.1s\n\n\
                      error: test failed, to rerun pass `--test a`\nerror: 1 target failed:\n    `--test a`\n";
const CRASHED: &str = "running 2 tests\ntest a::one ... ok\nerror: test failed, to rerun pass `--test a`\n\
                       error: 1 target failed:\n    `--test a`\n";
const SECOND_PASSED: &str = "running 1 test\ntest a::two ... ok\n\ntest result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 1 filtered out\n";
const SECOND_FAILED: &str = "running 1 test\ntest a::two ... FAILED\n\n\
                             test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 1 filtered out\n";

/// The steps that failed, the calls of cargo, and the end of what was printed.
fn tried(first: &str, second: &str) -> (String, String, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let answer = "echo \"MPICC=$MPICC $*\" >>calls\ncase \"$*\" in *--exact*) file=second ;; *) file=first ;; esac\n\
                  cat $file\n! grep -q -e FAILED -e error $file";
    write_program(&at("cargo"), format!("#!/bin/sh\n{answer}\n"));
    fs::write(at("first"), first).expect("written");
    fs::write(at("second"), second).expect("written");
    let script = format!(
        "set -euo pipefail\nlog=log stream_log=stream again=again second_log=second_log; touch $log $stream_log $again $second_log\n\
         step() {{ :; }}; failed() {{ echo \"$1\" >>failures; }}\n. {}\n\
         MPICC=mine run_tests --test a -- --test-threads 3 >/dev/null || failed 'the run'\ntry_again >/dev/null\n\
         print_failures\nprint_totals lints\n",
        Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/test.d/tries.sh").display()
    );
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").expect("a PATH"));
    let mut bash = Command::new("bash");
    bash.args(["-c", &script]).env("PATH", path).env_remove("CARGO_TARGET_DIR").current_dir(folder.path());
    let ran = bash.output().expect("bash runs");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let read = |name: &str| fs::read_to_string(at(name)).unwrap_or_default();
    (read("failures"), read("calls"), String::from_utf8_lossy(&ran.stdout).into_owned())
}

const FIRST_CALL: &str = "MPICC=mine test --locked --no-fail-fast --test a -- --test-threads 3\n";

#[test]
fn tests_that_pass_are_not_tried_again() {
    let (failures, calls, printed) = tried(PASSED, "");
    assert_eq!((failures.as_str(), calls.as_str()), ("", FIRST_CALL));
    assert_eq!(printed, "2 passed, 0 failed, 1 ignored; skipped: lints\n");
}

#[test]
fn a_test_that_passes_alone_counts_as_passed_and_is_named_with_what_it_printed() {
    let (failures, calls, printed) = tried(FAILED, SECOND_PASSED);
    let second = "MPICC=mine test --locked --no-fail-fast --test a -- --exact --test-threads 1 a::two\n";
    assert_eq!((failures.as_str(), calls), ("", format!("{FIRST_CALL}{second}")));
    let totals =
        "passed only at the second try, alone on the machine: a::two\n2 passed, 0 failed, 0 ignored; skipped: lints\n";
    assert!(printed.ends_with(totals), "{printed}");
    assert!(printed.contains("---- a::two stdout ----") && printed.contains("tests/a.rs:1:2"), "{printed}");
}

#[test]
fn a_test_whose_children_print_is_named_too_and_one_that_did_not_run_again_has_failed() {
    let broken = SECOND_PASSED.replace("a::two ... ok", "a::two ... of a child\nok");
    let (failures, _, printed) = tried(FAILED, &broken);
    assert_eq!(failures, "");
    assert!(
        printed.contains("passed only at the second try, alone on the machine: a::two\n2 passed, 0 failed"),
        "{printed}"
    );
    let (failures, _, _) = tried(FAILED, &SECOND_PASSED.replace("ok. 1 passed", "ok. 0 passed"));
    assert_eq!(failures, "a test at both tries\n");
}

#[test]
fn a_test_that_fails_twice_has_failed() {
    let (failures, _, printed) = tried(FAILED, SECOND_FAILED);
    assert_eq!(failures, "a test at both tries\n");
    assert!(printed.ends_with("\n1 passed, 1 failed, 0 ignored; skipped: lints\n"), "{printed}");
}

#[test]
fn what_did_not_run_to_its_end_has_failed_without_a_second_try() {
    for output in [CRASHED, "error: could not compile `commgauge`\n", "error: no such command: `test`\n"] {
        let (failures, calls, _) = tried(output, SECOND_PASSED);
        assert_eq!((failures.as_str(), calls.as_str()), ("the run\n", FIRST_CALL), "{output}");
    }
    let (failures, _, _) =
        tried(&format!("{FAILED}{CRASHED}").replace("error: 1 target", "error: 2 targets"), SECOND_PASSED);
    assert_eq!(failures, "the run\n", "one of two targets crashed");
    // The name of a documentation test.
    let (failures, _, _) = tried(&FAILED.replace("a::two", "src/a.rs - two (line 7)"), SECOND_PASSED);
    assert_eq!(failures, "the run\n");
}
