//! A rank that is made late is named as the late one, and by how much. Needs the launcher of the MPI that was built with,
//! and 4 cores that are mostly its own.

#![cfg(feature = "mpi")]

mod common;

use common::{COMMGAUGE, Ran, SWEEP, launcher, lines, of_kind, record_in, words};
use std::process::Command;

#[test]
fn a_rank_delayed_by_2_ms_is_named_with_2_ms_in_every_case_and_in_the_findings() {
    let folder = tempfile::tempdir().unwrap();
    let record = record_in(&folder);
    let flags =
        "all_reduce all_gather all_to_all broadcast -b 1K -e 64K -f 64 -n 60 -w 5 --replicates 1 --cadence isolated";
    let mut command = launcher(4);
    command.arg(SWEEP).args(words(flags)).args(["--inject-delay", "2:2ms", "--quiet", "--record"]).arg(&record);
    Ran::of(&mut command, 60).ended_with(0);

    let lines = lines(&record);
    let cases = of_kind(&lines, "case");
    assert!(cases.len() >= 8, "{}", cases.len());
    for case in cases {
        let samples = &case["samples"];
        let numbers = |key: &str| -> Vec<u64> {
            samples[key].as_array().unwrap().iter().map(|number| number.as_u64().unwrap()).collect()
        };
        let last = numbers("last_rank");
        let late = last.iter().filter(|rank| **rank == 2).count();
        assert!(2 * late > last.len(), "rank 2 is last in {late} of {} samples of {}", last.len(), case["name"]);
        let mut spread = numbers("arrival_spread_nanoseconds");
        spread.sort_unstable();
        let median = spread[spread.len() / 2] as f64;
        assert!((median / 2e6 - 1.0).abs() < 0.1, "{median} ns in {}", case["name"]);
    }
    let report = Ran::of(Command::new(COMMGAUGE).arg("report").arg(&record), 20).ended_with(0);
    assert!(report.stdout.contains("rank 2 (host "), "{}", report.stdout);
    assert!(report.stdout.contains("arrived last"), "{}", report.stdout);
}
