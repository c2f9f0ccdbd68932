//! A rank that is made late is named as the late one, and by how much. Needs the launcher of the MPI that was built with.

use crate::common;

use common::{COMMGAUGE, Ran, SWEEP, launcher, lines, of_kind, skipped, words};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// How often a launch is looked for that no other work of the machine disturbs.
const ATTEMPTS: usize = 5;
/// The median arrival spread without a late rank up to which a machine counts as quiet; a tenth of the delay.
const QUIET_NANOSECONDS: f64 = 0.2e6;

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
    let mut quiet = is_quiet(folder.path());
    for attempt in 0..ATTEMPTS {
        let record = folder.path().join(format!("{attempt}.jsonl"));
        let samples = samples(&measure(&record, Some(ranks_and_late().1)));
        let was_quiet = std::mem::replace(&mut quiet, is_quiet(folder.path()));
        // Where other work makes the other ranks late as well, the spread is anything.
        if was_quiet && quiet {
            let late: Vec<f64> = samples.iter().filter(|one| one.0 == ranks_and_late().1).map(|one| one.1).collect();
            assert!(2 * late.len() > samples.len(), "last in {} of {} samples", late.len(), samples.len());
            let median = quantile(&late, 0.5);
            assert!((1.8e6..2.2e6).contains(&median), "{median} ns");
            return assert_findings_name_the_late_rank_alone(&record);
        }
    }
    skipped("the median of a late rank", "ranks of this machine are late by themselves, as it has other work");
}

/// Whether ranks arrive together if none is delayed.
fn is_quiet(folder: &Path) -> bool {
    let spreads: Vec<f64> = samples(&measure(&folder.join("quiet.jsonl"), None)).iter().map(|one| one.1).collect();
    std::fs::remove_file(folder.join("quiet.jsonl")).unwrap();
    quantile(&spreads, 0.5) < QUIET_NANOSECONDS
}

fn measure(record: &Path, late: Option<u64>) -> Vec<Value> {
    let flags =
        "all_reduce all_gather all_to_all broadcast -b 1K -e 64K -f 64 -n 60 -w 5 --replicates 1 --cadence isolated";
    let mut command = launcher(ranks_and_late().0);
    command.arg(SWEEP).args(words(flags)).args(["--warm-buffers", "--quiet"]);
    command.args(late.iter().flat_map(|rank| ["--inject-delay".to_owned(), format!("{rank}:2ms")]));
    Ran::alone(command.arg("--record").arg(record), 60).ended_with(0);
    let lines = lines(record);
    of_kind(&lines, "case").into_iter().cloned().collect()
}

/// The last rank and the arrival spread in nanoseconds of every sample that counts, of all cases.
fn samples(cases: &[Value]) -> Vec<(u64, f64)> {
    assert!(cases.len() >= 8, "{}", cases.len());
    let mut found = Vec::new();
    for case in cases {
        let samples = &case["samples"];
        let numbers = |key: &str| -> Vec<u64> {
            samples[key].as_array().unwrap().iter().map(|number| number.as_u64().unwrap()).collect()
        };
        let excluded: Vec<u64> = samples["excluded"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|exclusion| exclusion[0].as_u64().unwrap())
            .collect();
        let (last, spreads) = (numbers("last_rank"), numbers("arrival_spread_nanoseconds"));
        let counts = (0..last.len()).filter(|index| !excluded.contains(&(*index as u64)));
        found.extend(counts.map(|index| (last[index], spreads[index] as f64)));
    }
    found
}

fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[(share * (sorted.len() - 1) as f64) as usize]
}

fn assert_findings_name_the_late_rank_alone(record: &Path) {
    let report = Ran::of(Command::new(COMMGAUGE).arg("report").arg(record), 20).ended_with(0).stdout;
    let text = report.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(text.matches("arrived last").count(), 1, "{report}");
    assert!(text.contains(&format!("rank {} (host ", ranks_and_late().1)), "{report}");
    let after = text.split("arrived last").nth(1).unwrap();
    assert!(after.contains("ms after the first") || after.contains("ms to"), "{report}");
}
