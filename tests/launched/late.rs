//! A rank that is made late is named as the late one, and by how much. Needs the launcher of the MPI that was built with.

use crate::common;

use common::{COMMGAUGE, Ran, SWEEP, launcher, lines, of_kind, skipped, words};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// How often a launch is looked for that no other work of the machine disturbs.
const ATTEMPTS: usize = 3;
/// A rank that arrives this long after the agreed start was held up by other work of the machine; a tenth of the delay.
const ON_TIME_NANOSECONDS: f64 = 0.2e6;

/// A sample that counts.
struct Sample {
    last_rank: u64,
    /// First to last arrival.
    spread_nanoseconds: f64,
    /// Agreed start to first arrival.
    first_nanoseconds: f64,
}

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
    let late = ranks_and_late().1;
    for attempt in 0..ATTEMPTS {
        let record = folder.path().join(format!("{attempt}.jsonl"));
        let lines = measure(&record, late);
        if of_kind(&lines, "clock").iter().any(|clock| !is_compared(clock)) {
            continue;
        }
        let all = samples(&of_kind(&lines, "case"));
        // Other work may hold up any rank; but whoever is on time is ahead of the delayed rank by its delay.
        let on_time: Vec<&Sample> = all.iter().filter(|one| one.first_nanoseconds < ON_TIME_NANOSECONDS).collect();
        let spreads: Vec<f64> = on_time.iter().map(|one| one.spread_nanoseconds).collect();
        let least = spreads.iter().copied().fold(f64::INFINITY, f64::min);
        assert!(least > 1.8e6, "{least} ns");
        if !spreads.is_empty() && 10 * on_time.len() >= 9 * all.len() && quantile(&spreads, 0.5) < 2.2e6 {
            let named = on_time.iter().filter(|one| one.last_rank == late).count();
            assert!(2 * named > all.len(), "last in {named} of {} samples", all.len());
            return assert_findings_name_the_late_rank_alone(&record);
        }
    }
    skipped("the median of a late rank", "ranks of this machine are late by themselves, as it has other work");
}

/// Whether clocks were compared well enough for a common start, and to a tenth of the delay.
fn is_compared(clock: &Value) -> bool {
    let nanoseconds = |key: &str| clock[key].as_f64().is_some_and(|nanoseconds| nanoseconds < ON_TIME_NANOSECONDS);
    clock["method"] == "synchronised"
        && nanoseconds("worst_half_round_trip_nanoseconds")
        && nanoseconds("residual_nanoseconds")
}

fn measure(record: &Path, late: u64) -> Vec<Value> {
    let flags =
        "all_reduce all_gather all_to_all broadcast -b 1K -e 64K -f 64 -n 60 -w 5 --replicates 1 --cadence isolated";
    let mut command = launcher(ranks_and_late().0);
    command.arg(SWEEP).args(words(flags)).args(["--warm-buffers", "--quiet"]);
    command.args(["--inject-delay".to_owned(), format!("{late}:2ms")]);
    Ran::alone(command.arg("--record").arg(record), 60).ended_with(0);
    lines(record)
}

/// Every sample that counts, of all cases.
fn samples(cases: &[&Value]) -> Vec<Sample> {
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
        let (ends, transfers) = (numbers("slowest_nanoseconds"), numbers("transfer_nanoseconds"));
        let counts = (0..last.len()).filter(|index| !excluded.contains(&(*index as u64)));
        found.extend(counts.map(|index| Sample {
            last_rank: last[index],
            spread_nanoseconds: spreads[index] as f64,
            first_nanoseconds: ends[index] as f64 - transfers[index] as f64 - spreads[index] as f64,
        }));
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
