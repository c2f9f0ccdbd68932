//! Was the machine slow for a while within a run? What fell into that while tells of heat, a power limit or a neighbour, not of what
//! the machine can do. A machine that is slow all the time is no business of this file.

use crate::record::Record;
use crate::record::line::CaseLine;
use crate::stats::{densest_stretch, median, sorted};
use crate::units::{Seconds, three_digits};
use std::collections::{BTreeMap, BTreeSet};

/// A stretch that chance makes more often than this is no finding.
const LEVEL: f64 = 0.001;
/// Fewer replicates of a case do not tell the usual from the unusual.
const FEWEST_REPLICATES: usize = 3;
/// A measurement counts as slow that took so much longer than the usual of its case, as a share, ...
const LEAST_SLOWDOWN: f64 = 0.05;
/// ... and so many times the gap between the two fastest replicates of a case, the median over all cases.
const GAPS: f64 = 5.0;

/// A while in which a machine was slow.
#[derive(Clone, Debug, PartialEq)]
pub struct SlowWhile {
    /// It as a sentence.
    pub text: String,
    /// Case, and the replicates of it that fell into the while and were slow.
    pub replicates: BTreeMap<u32, BTreeSet<u32>>,
    /// What each of these cases usually takes, in seconds.
    usual: BTreeMap<u32, f64>,
}

impl SlowWhile {
    /// The while in a record. `seconds` gives what a line measured, where that counts.
    pub fn of(record: &Record, seconds: impl Fn(&CaseLine) -> Option<f64>) -> Option<SlowWhile> {
        let measured: Vec<(&CaseLine, f64)> =
            record.cases.iter().filter_map(|line| Some((line, seconds(line).filter(|time| *time > 0.0)?))).collect();
        let mut of_case: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
        measured.iter().for_each(|(line, time)| of_case.entry(line.case).or_default().push(*time));
        of_case.retain(|_, times| times.len() >= FEWEST_REPLICATES);
        of_case.values_mut().for_each(|times| times.sort_unstable_by(f64::total_cmp));
        let gaps = sorted(of_case.values().map(|times| times[1] / times[0] - 1.0));
        let slow = LEAST_SLOWDOWN.max(GAPS * median(&gaps)?);
        // The lower quartile, so that a while that takes in half of a case's replicates still stands out.
        let usual: BTreeMap<u32, f64> = of_case.iter().map(|(case, times)| (*case, times[times.len() / 4])).collect();
        let of_time: Vec<(&CaseLine, f64)> =
            (measured.iter()).filter_map(|(line, time)| Some((*line, time / usual.get(&line.case)? - 1.0))).collect();
        let marks: Vec<bool> = of_time.iter().map(|(_, slowdown)| *slowdown > slow).collect();
        let stretch = densest_stretch(&marks).filter(|stretch| stretch.probability <= LEVEL)?;
        let within = &of_time[stretch.range];
        let mut replicates: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        for (line, _) in within.iter().filter(|(_, slowdown)| *slowdown > slow) {
            replicates.entry(line.case).or_default().insert(line.replicate);
        }
        let usual = usual.into_iter().filter(|(case, _)| replicates.contains_key(case)).collect();
        Some(SlowWhile { text: sentence(record, within, slow), replicates, usual })
    }

    /// Whether a replicate of a case fell into it and was slow.
    pub fn has(&self, case: u32, replicate: u32) -> bool {
        self.replicates.get(&case).is_some_and(|replicates| replicates.contains(&replicate))
    }

    /// What a replicate would have taken outside of it: as it was, or what its case usually takes.
    pub fn without(&self, case: u32, replicate: u32, seconds: f64) -> f64 {
        let usual = self.usual.get(&case).filter(|_| self.has(case, replicate));
        usual.map_or(seconds, |usual| usual.min(seconds))
    }
}

fn sentence(record: &Record, within: &[(&CaseLine, f64)], slow: f64) -> String {
    let slower = sorted(within.iter().map(|(_, slowdown)| *slowdown).filter(|slowdown| *slowdown > slow));
    let percent = |share: Option<f64>| three_digits(share.unwrap_or_default() * 100.0);
    let place = |line: Option<&(&CaseLine, f64)>| {
        line.map_or_else(String::new, |(line, _)| {
            format!("case {} of replicate {}", u64::from(line.position) + 1, line.replicate)
        })
    };
    format!(
        "the machine was slow for a while, from {} to {} of {}{}: {} of {} measurements took {} % longer than at other times \
         (median). Look for what came and went then: heat, a power limit, another job. Measure again; these say nothing about \
         what the machine can do",
        place(within.first()),
        place(within.last()),
        record.header.settings.replicates,
        when(record, within).unwrap_or_default(),
        slower.len(),
        within.len(),
        percent(median(&slower)),
    )
}

/// Where in the run's time it lies, as far as the lengths of the samples tell: lines carry no time of day.
fn when(record: &Record, within: &[(&CaseLine, f64)]) -> Option<String> {
    let length = |line: &CaseLine| line.samples.slowest_nanoseconds.iter().map(|sample| *sample as f64).sum::<f64>();
    let all: f64 = record.cases.iter().map(length).sum();
    let at = |wanted: &CaseLine| record.cases.iter().position(|line| std::ptr::eq(line, wanted));
    let (first, last) = (at(within.first()?.0)?, at(within.last()?.0)?);
    let before: f64 = record.cases[..first].iter().map(length).sum();
    let until: f64 = record.cases[..=last].iter().map(length).sum();
    if all <= 0.0 {
        return None;
    }
    let (from, to) = (before / all, until / all);
    let whole = record.end.as_ref().filter(|_| record.resumes.is_empty() && !record.header.backend.synthetic);
    Some(match whole {
        Some(end) => {
            let moment = |share: f64| Seconds(share * end.elapsed_seconds.0).to_string();
            format!(", about {} to {} after its start", moment(from), moment(to))
        }
        None => format!(", about {:.0} to {:.0} % of the way through it", from * 100.0, to * 100.0),
    })
}

#[cfg(test)]
mod tests {
    use super::super::evidence::slow_while as found;
    use super::super::testing::{judged, lines};
    use super::*;

    /// So many rows and replicates; of the lines in the order of time those of a range take `factor` times as long.
    fn record(rows: usize, replicates: usize, slow: std::ops::Range<usize>, factor: f64) -> Record {
        let time = |row: usize, replicate: usize| {
            let jitter = 1.0 + 0.001 * ((row * 7 + replicate * 13) % 10) as f64;
            let line = replicate * rows + row;
            100.0 * (row + 1) as f64 * jitter * if slow.contains(&line) { factor } else { 1.0 }
        };
        let rows: Vec<Vec<f64>> =
            (0..rows).map(|row| (0..replicates).map(|replicate| time(row, replicate)).collect()).collect();
        judged("r.jsonl", lines("r", &rows)).record
    }

    #[test]
    fn too_few_lines_a_machine_that_is_always_slow_and_rows_that_scatter_are_no_while() {
        for (name, record) in [
            ("nothing", record(10, 5, 0..0, 1.0)),
            ("two replicates", record(10, 2, 3..9, 2.0)),
            ("one row", record(1, 5, 1..3, 2.0)),
            ("always", record(10, 5, 0..50, 2.0)),
            ("by less than matters", record(10, 5, 12..24, 1.03)),
            ("a few lines", record(10, 5, 12..14, 2.0)),
        ] {
            assert_eq!(found(&record), None, "{name}");
        }
        // Every third line is slow: no while, but noise.
        let rows: Vec<Vec<f64>> = (0..10)
            .map(|row| (0..6).map(|replicate| if (row + replicate * 2) % 3 == 0 { 150.0 } else { 100.0 }).collect())
            .collect();
        assert_eq!(found(&judged("r.jsonl", lines("r", &rows)).record), None);
    }

    #[test]
    fn a_while_is_found_with_its_place_and_the_replicates_in_it_and_no_others() {
        for (range, text) in [
            (12..24, "from case 3 of replicate 1 to case 4 of replicate 2 of 5"),
            (0..20, "from case 1 of replicate 0 to case 10 of replicate 1 of 5"),
            (38..50, "from case 9 of replicate 3 to case 10 of replicate 4 of 5"),
        ] {
            let record = record(10, 5, range.clone(), 1.5);
            let while_ = found(&record).unwrap_or_else(|| panic!("{range:?}"));
            assert!(while_.text.contains(text) && while_.text.contains("measurements took 5"), "{}", while_.text);
            let in_it: usize = while_.replicates.values().map(BTreeSet::len).sum();
            assert_eq!(in_it, range.len());
            for line in range {
                let (row, replicate) = ((line % 10) as u32, (line / 10) as u32);
                assert!(while_.has(row, replicate) && !while_.has(row, replicate + 3));
                let usual = 1e-4 * f64::from(row + 1);
                assert!((while_.without(row, replicate, usual * 1.5) / usual - 1.0).abs() < 0.02);
                assert_eq!(while_.without(row, replicate + 3, 9.0), 9.0);
            }
        }
    }

    #[test]
    fn a_while_neither_fails_a_good_row_nor_saves_a_bad_one_and_nothing_passes_that_fell_into_it() {
        use super::super::testing::machine;
        use super::super::{Decision, GateRule, gate};
        let verdict = |slow, floor: &str| {
            let judged = super::super::Judged { path: "r.jsonl".into(), record: record(4, 40, slow, 3.0) };
            gate(&[judged], Some(&machine(floor)), &GateRule { confidence: 0.95, allowed: Vec::new() }).unwrap()
        };
        let decisions = |slow, floor: &str| -> Vec<Option<Decision>> {
            verdict(slow, floor).rows.iter().map(|row| row.decision).collect()
        };
        let all = |decision| vec![Some(decision); 4];
        // Row r moves 2^(20+r) bytes in (r + 1) 100 us: from 15 to 31 GB/s of bus bandwidth.
        assert_eq!(decisions(0..0, "12GB/s"), all(Decision::Pass));
        assert_eq!(decisions(20..32, "12GB/s"), all(Decision::Inconclusive), "3 of 40 replicates");
        // So many that the median lies in the while.
        assert_eq!(decisions(20..128, "12GB/s"), all(Decision::Inconclusive), "27 of 40 replicates");
        for slow in [0..0, 20..32, 20..128] {
            assert_eq!(decisions(slow.clone(), "500GB/s"), all(Decision::Fail), "a bad machine stays one: {slow:?}");
        }
        let told = verdict(20..32, "12GB/s");
        assert_eq!(told.exit_code, 3);
        assert!(told.troubles.iter().any(|trouble| trouble.text.contains("slow for a while")), "{:?}", told.troubles);
        assert!(told.rows[0].reasons.iter().any(|reason| reason.contains("fell into a slow period")));
    }
}
