//! A rank that is made late is named as the late one, and by how much. Needs the launcher of the MPI that was built with.

use crate::common;

use common::{COMMGAUGE, Ran, SWEEP, launcher, lines, of_kind, words};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// A neighbour on the machine can spoil a launch, whose spread then is too long; a launch that nobody spoils must be right.
const ATTEMPTS: usize = 5;

/// Number of ranks, and the one that is made late. Ranks that take turns on a processor are late by themselves, so a small
/// machine runs two.
fn ranks_and_late() -> (u32, u64) {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    if processors >= 4 {
        return (4, 2);
    }
    eprintln!("{processors} processors: the late rank is looked for among 2 ranks instead of 4");
    (2, 1)
}

#[test]
fn a_rank_delayed_by_2_ms_is_named_with_2_ms_in_the_record_and_in_the_findings() {
    let folder = tempfile::tempdir().unwrap();
    let mut medians = Vec::new();
    for attempt in 0..ATTEMPTS {
        let record = folder.path().join(format!("{attempt}.jsonl"));
        let median = median_spread_nanoseconds(&measure(&record));
        medians.push(median);
        assert!(median > 1.8e6, "nothing but a wrong clock makes the spread shorter than the delay: {median} ns");
        if median < 2.2e6 {
            assert_findings_name_the_late_rank_alone(&record);
            return;
        }
    }
    panic!("the delayed rank is not late by 2 ms in any of {ATTEMPTS} launches: {medians:?} ns");
}

fn measure(record: &Path) -> Vec<Value> {
    let flags =
        "all_reduce all_gather all_to_all broadcast -b 1K -e 64K -f 64 -n 60 -w 5 --replicates 1 --cadence isolated";
    let mut command = launcher(ranks_and_late().0);
    command
        .arg(SWEEP)
        .args(words(flags))
        .args(["--warm-buffers", "--quiet", "--inject-delay"])
        .arg(format!("{}:2ms", ranks_and_late().1));
    Ran::alone(command.arg("--record").arg(record), 60).ended_with(0);
    let lines = lines(record);
    of_kind(&lines, "case").into_iter().cloned().collect()
}

/// The median of the arrival spread over the samples that count, of all cases; infinite where the delayed rank is not the last in most
/// samples of every case.
fn median_spread_nanoseconds(cases: &[Value]) -> f64 {
    assert!(cases.len() >= 8, "{}", cases.len());
    let mut spread = Vec::new();
    let late_rank = ranks_and_late().1;
    for case in cases {
        let samples = &case["samples"];
        let numbers = |key: &str| -> Vec<u64> {
            samples[key].as_array().unwrap().iter().map(|number| number.as_u64().unwrap()).collect()
        };
        let doubtful: Vec<u64> =
            samples["doubtful"].as_array().into_iter().flatten().map(|doubt| doubt[0].as_u64().unwrap()).collect();
        let valid = |index: &usize| !doubtful.contains(&(*index as u64));
        let (last, spreads) = (numbers("last_rank"), numbers("arrival_spread_nanoseconds"));
        let valid: Vec<usize> = (0..last.len()).filter(valid).collect();
        let late = valid.iter().filter(|index| last[**index] == late_rank).count();
        if 2 * late <= valid.len() {
            eprintln!("rank {late_rank} is last in {late} of {} samples of {}", valid.len(), case["name"]);
            return f64::INFINITY;
        }
        spread.extend(valid.iter().map(|index| spreads[*index]));
    }
    spread.sort_unstable();
    spread[spread.len() / 2] as f64
}

fn assert_findings_name_the_late_rank_alone(record: &Path) {
    let report = Ran::of(Command::new(COMMGAUGE).arg("report").arg(record), 20).ended_with(0).stdout;
    let text = report.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(text.matches("arrived last").count(), 1, "{report}");
    assert!(text.contains(&format!("rank {} (host ", ranks_and_late().1)), "{report}");
    let after = text.split("arrived last").nth(1).unwrap();
    assert!(after.contains("ms after the first") || after.contains("ms to"), "{report}");
}
