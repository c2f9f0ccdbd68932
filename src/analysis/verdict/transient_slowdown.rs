//! Transient slowdowns: a period of a run in which the machine was slow, such as from heat, a power limit or another job.
//! Measurements in it do not show what the machine can do. A machine that is slow throughout is not detected here.

use commgauge_base::stats::{densest_stretch, median, sorted};
use commgauge_base::units::{Seconds, three_digits};
use commgauge_model::record::Record;
use commgauge_model::record::line::CaseLine;
use std::collections::{BTreeMap, BTreeSet};

/// Significance level of a stretch of slow measurements.
const LEVEL: f64 = 0.001;
/// Minimum number of replicates of a case.
const MIN_REPLICATES: usize = 3;
/// A measurement is slow if it exceeds the usual time of its case by at least this share, ...
const MIN_SLOWDOWN: f64 = 0.05;
/// ... and by this multiple of the gap between the two fastest replicates of a case (median over all cases).
const GAPS: f64 = 5.0;

/// A period in which a machine was slow.
#[derive(Clone, Debug, PartialEq)]
pub struct TransientSlowdown {
    /// Description as a sentence.
    pub text: String,
    /// The slow replicates of the period, by case.
    pub replicates: BTreeMap<u32, BTreeSet<u32>>,
    /// Usual time of each of these cases, in seconds.
    usual: BTreeMap<u32, f64>,
}

impl TransientSlowdown {
    /// The transient slowdown of a record, if any. `seconds` gives the time of a line, or `None` where it is not valid.
    pub fn of(record: &Record, seconds: impl Fn(&CaseLine) -> Option<f64>) -> Option<TransientSlowdown> {
        let measured: Vec<(&CaseLine, f64)> =
            record.cases.iter().filter_map(|line| Some((line, seconds(line).filter(|time| *time > 0.0)?))).collect();
        let mut of_case: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
        measured.iter().for_each(|(line, time)| of_case.entry(line.case).or_default().push(*time));
        of_case.retain(|_, times| times.len() >= MIN_REPLICATES);
        of_case.values_mut().for_each(|times| times.sort_unstable_by(f64::total_cmp));
        let gaps = sorted(of_case.values().map(|times| times[1] / times[0] - 1.0));
        let slow = MIN_SLOWDOWN.max(GAPS * median(&gaps)?);
        // The lower quartile, so that a slowdown of half of the replicates of a case is still detected.
        let usual: BTreeMap<u32, f64> = of_case.iter().map(|(case, times)| (*case, times[times.len() / 4])).collect();
        let of_time: Vec<TimedLine> = (measured.iter())
            .filter_map(|(line, time)| Some(TimedLine { line, slowdown: time / usual.get(&line.case)? - 1.0 }))
            .collect();
        let marks: Vec<bool> = of_time.iter().map(|timed| timed.slowdown > slow).collect();
        let stretch = densest_stretch(&marks).filter(|stretch| stretch.probability <= LEVEL)?;
        let within = &of_time[stretch.range];
        let mut replicates: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        for TimedLine { line, .. } in within.iter().filter(|timed| timed.slowdown > slow) {
            replicates.entry(line.case).or_default().insert(line.replicate);
        }
        let usual = usual.into_iter().filter(|(case, _)| replicates.contains_key(case)).collect();
        Some(TransientSlowdown { text: sentence(record, within, slow), replicates, usual })
    }

    /// Whether a replicate of a case is one of the slow ones.
    pub fn includes(&self, case: u32, replicate: u32) -> bool {
        self.replicates.get(&case).is_some_and(|replicates| replicates.contains(&replicate))
    }

    /// The time of a replicate without the slowdown: the usual time of its case if it is one of the slow ones, else as
    /// measured.
    pub fn seconds_without(&self, case: u32, replicate: u32, seconds: f64) -> f64 {
        let usual = self.usual.get(&case).filter(|_| self.includes(case, replicate));
        usual.map_or(seconds, |usual| usual.min(seconds))
    }
}

/// A line of a record, and how much longer it took than is usual for its case, as a share.
struct TimedLine<'a> {
    line: &'a CaseLine,
    slowdown: f64,
}

fn sentence(record: &Record, within: &[TimedLine], slow: f64) -> String {
    let slower = sorted(within.iter().map(|timed| timed.slowdown).filter(|slowdown| *slowdown > slow));
    let percent = |share: Option<f64>| three_digits(share.unwrap_or_default() * 100.0);
    let place = |timed: Option<&TimedLine>| {
        timed.map_or_else(String::new, |TimedLine { line, .. }| {
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

/// Where in the run it lies, estimated from the lengths of the samples, since lines have no timestamps.
fn when(record: &Record, within: &[TimedLine]) -> Option<String> {
    let length = |line: &CaseLine| line.samples.slowest_nanoseconds.iter().map(|sample| *sample as f64).sum::<f64>();
    let all: f64 = record.cases.iter().map(length).sum();
    let at = |wanted: &CaseLine| record.cases.iter().position(|line| std::ptr::eq(line, wanted));
    let (first, last) = (at(within.first()?.line)?, at(within.last()?.line)?);
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
    use super::super::evidence::transient_slowdown as found;
    use super::super::testing::{lines, loaded};
    use super::*;

    /// A record in which the lines of a range, in the order of time, take `factor` times as long.
    fn record(rows: usize, replicates: usize, slow: std::ops::Range<usize>, factor: f64) -> Record {
        let time = |row: usize, replicate: usize| {
            let jitter = 1.0 + 0.001 * ((row * 7 + replicate * 13) % 10) as f64;
            let line = replicate * rows + row;
            100.0 * (row + 1) as f64 * jitter * if slow.contains(&line) { factor } else { 1.0 }
        };
        let rows: Vec<Vec<f64>> =
            (0..rows).map(|row| (0..replicates).map(|replicate| time(row, replicate)).collect()).collect();
        loaded("r.jsonl", lines("r", &rows)).record
    }

    #[test]
    fn short_records_constant_slowness_and_scatter_are_no_transient_slowdown() {
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
        // Every third line is slow: noise, not a transient slowdown.
        let rows: Vec<Vec<f64>> = (0..10)
            .map(|row| (0..6).map(|replicate| if (row + replicate * 2) % 3 == 0 { 150.0 } else { 100.0 }).collect())
            .collect();
        assert_eq!(found(&loaded("r.jsonl", lines("r", &rows)).record), None);
    }

    #[test]
    fn a_transient_slowdown_is_found_with_its_place_and_exactly_its_replicates() {
        for (range, text) in [
            (12..24, "from case 3 of replicate 1 to case 4 of replicate 2 of 5"),
            (0..20, "from case 1 of replicate 0 to case 10 of replicate 1 of 5"),
            (38..50, "from case 9 of replicate 3 to case 10 of replicate 4 of 5"),
        ] {
            let record = record(10, 5, range.clone(), 1.5);
            let slowdown = found(&record).unwrap_or_else(|| panic!("{range:?}"));
            assert!(slowdown.text.contains(text) && slowdown.text.contains("measurements took 5"), "{}", slowdown.text);
            let in_it: usize = slowdown.replicates.values().map(BTreeSet::len).sum();
            assert_eq!(in_it, range.len());
            for line in range {
                let (row, replicate) = ((line % 10) as u32, (line / 10) as u32);
                assert!(slowdown.includes(row, replicate) && !slowdown.includes(row, replicate + 3));
                let usual = 1e-4 * f64::from(row + 1);
                assert!((slowdown.seconds_without(row, replicate, usual * 1.5) / usual - 1.0).abs() < 0.02);
                assert_eq!(slowdown.seconds_without(row, replicate + 3, 9.0), 9.0);
            }
        }
    }

    #[test]
    fn a_transient_slowdown_neither_fails_a_good_row_nor_saves_a_bad_one() {
        use super::super::testing::machine;
        use super::super::{Decision, GateRule, gate};
        use commgauge_model::config::Machine;
        let gate_of = |slow, machine: Option<&Machine>| {
            let loaded = super::super::LoadedRecord { path: "r.jsonl".into(), record: record(4, 40, slow, 3.0) };
            gate(&[loaded], machine, &GateRule { confidence: 0.95, allowed: Vec::new() }).unwrap()
        };
        let verdict = |slow, floor: &str| gate_of(slow, Some(&machine(floor)));
        let decisions = |slow, floor: &str| -> Vec<Option<Decision>> {
            verdict(slow, floor).rows.iter().map(|row| row.decision).collect()
        };
        let all = |decision| vec![Some(decision); 4];
        // Row r moves 2^(20+r) bytes in (r + 1) 100 us: from 15 to 31 GB/s of bus bandwidth.
        assert_eq!(decisions(0..0, "12GB/s"), all(Decision::Pass));
        assert_eq!(decisions(20..32, "12GB/s"), all(Decision::Inconclusive), "3 of 40 replicates");
        // So many that the median lies in the slow period.
        assert_eq!(decisions(20..128, "12GB/s"), all(Decision::Inconclusive), "27 of 40 replicates");
        assert_eq!(decisions(20..128, "4GB/s"), all(Decision::Pass), "the slow ones meet the limit too");
        let slow_period = |verdict: &super::super::Verdict| {
            verdict.troubles.iter().find(|trouble| trouble.text.contains("slow for a while")).cloned().expect("one")
        };
        let met = slow_period(&verdict(20..32, "4GB/s"));
        assert!(
            met.exit_code == 0 && met.text.ends_with("; the judged rows of that while meet their thresholds even so"),
            "{met:?}"
        );
        for slow in [0..0, 20..32, 20..128] {
            assert_eq!(decisions(slow.clone(), "500GB/s"), all(Decision::Fail), "a bad machine stays one: {slow:?}");
        }
        let verdict = verdict(20..32, "12GB/s");
        assert_eq!(verdict.exit_code, 3);
        assert_eq!(slow_period(&verdict).exit_code, 3);
        let nothing = gate_of(20..32, None);
        assert_eq!(slow_period(&nothing).exit_code, 3, "nothing is judged, so nothing is met");
        assert!(verdict.rows[0].reasons.iter().any(|reason| reason.contains("fell into a slow period")));
    }
}
