//! From pairs of blocks to a table and a verdict for each criterion.

use super::pair::Pair;
use commgauge::error::{Error, Result};
use commgauge::stats::{Interval, median, median_interval, percentile, sorted};
use commgauge::units::Bytes;
use std::collections::BTreeMap;
use std::io::Write;

/// From here on the ratio counts, below it the nanoseconds for each call.
const RATIO_FROM_BYTES: u64 = 4096;
const RATIO_TOLERANCE: f64 = 0.02;
const NANOSECONDS_PER_CALL: f64 = 50.0;

/// A median with its interval at 95 %.
#[derive(Clone, Copy)]
struct Estimate {
    median: f64,
    interval: Interval,
}

#[derive(Clone, Copy, PartialEq)]
enum Verdict {
    Pass,
    Fail,
    Inconclusive,
}

impl Verdict {
    /// Whether an interval is within limits, outside, or on both sides of one. It counts as outside only if it is further out than the
    /// plain loop deviates from `same` against itself.
    fn of(interval: Interval, twin: Interval, same: f64, low: f64, high: f64) -> Verdict {
        let noise = (twin.low - same).abs().max((twin.high - same).abs());
        match interval {
            Interval { low: l, high: h } if l >= low && h <= high => Verdict::Pass,
            Interval { low: l, high: h } if h < low - noise || l > high + noise => Verdict::Fail,
            _ => Verdict::Inconclusive,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Verdict::Pass => "PASS",
            Verdict::Fail => "FAIL",
            Verdict::Inconclusive => "inconclusive",
        }
    }
}

/// Writes a table for each number of ranks and a line for each criterion; false where one was missed.
pub fn show(pairs: &[Pair], out: &mut dyn Write) -> Result<bool> {
    let mut by_ranks: BTreeMap<u32, Vec<&Pair>> = BTreeMap::new();
    pairs.iter().for_each(|pair| by_ranks.entry(pair.ranks).or_default().push(pair));
    let mut text = String::new();
    let mut passed = true;
    for (ranks, pairs) in by_ranks {
        let (table, verdicts) = table_of(&pairs);
        text += &format!("\n### {ranks} ranks\n\n{table}\n");
        for (large, criterion) in [
            (true, "from 4 KiB up, median ratio within 1.00 +- 0.02"),
            (false, "below 4 KiB, at most 50 ns per call more than the plain loop"),
        ] {
            let count = |verdict| verdicts.iter().filter(|found| **found == (large, verdict)).count();
            let (pass, fail, open) = (count(Verdict::Pass), count(Verdict::Fail), count(Verdict::Inconclusive));
            let whole = if fail > 0 {
                "FAIL"
            } else if open > 0 {
                "INCONCLUSIVE"
            } else {
                "PASS"
            };
            text += &format!("{whole}: {criterion} ({pass} pass, {fail} fail, {open} inconclusive)\n");
            passed &= fail == 0;
        }
    }
    out.write_all(text.as_bytes()).map_err(|cause| Error::environment(format!("cannot write the table: {cause}")))?;
    Ok(passed)
}

fn table_of(pairs: &[&Pair]) -> (String, Vec<(bool, Verdict)>) {
    let mut cases: Vec<(&str, u64, Vec<&Pair>)> = Vec::new();
    for pair in pairs {
        match cases.iter_mut().find(|case| (case.0, case.1) == (&pair.collective, pair.bytes)) {
            Some(case) => case.2.push(pair),
            None => cases.push((&pair.collective, pair.bytes, vec![pair])),
        }
    }
    let mut table = String::from(
        "| collective | size | pairs | calls in a block | raw ns per call | ratio (95 %) | ratio, 10th to 90th percentile \
         | ratio by launch | raw against raw (95 %) | ns per call more (95 %) | raw against raw, ns | verdict |\n\
         |---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|\n",
    );
    let mut verdicts = Vec::new();
    for (collective, bytes, pairs) in cases {
        let Some((row, verdict)) = row_of(collective, bytes, &pairs) else { continue };
        table += &row;
        verdicts.push((bytes >= RATIO_FROM_BYTES, verdict));
    }
    (table, verdicts)
}

fn row_of(collective: &str, bytes: u64, pairs: &[&Pair]) -> Option<(String, Verdict)> {
    let ratio_of = |pair: &Pair| pair.ours_nanoseconds / pair.raw_nanoseconds;
    let ratios = sorted(pairs.iter().map(|pair| ratio_of(pair)));
    let ratio = estimate(pairs, ratio_of)?;
    let twin = estimate(pairs, |pair| pair.raw_again_nanoseconds / pair.raw_nanoseconds)?;
    let per_call = |nanoseconds: f64, pair: &Pair| nanoseconds / pair.calls as f64;
    let more = estimate(pairs, |pair| per_call(pair.ours_nanoseconds - pair.raw_nanoseconds, pair))?;
    let twin_more = estimate(pairs, |pair| per_call(pair.raw_again_nanoseconds - pair.raw_nanoseconds, pair))?;
    let raw = estimate(pairs, |pair| per_call(pair.raw_nanoseconds, pair))?;
    let verdict = if bytes >= RATIO_FROM_BYTES {
        Verdict::of(ratio.interval, twin.interval, 1.0, 1.0 - RATIO_TOLERANCE, 1.0 + RATIO_TOLERANCE)
    } else {
        Verdict::of(more.interval, twin_more.interval, 0.0, f64::NEG_INFINITY, NANOSECONDS_PER_CALL)
    };
    let launches = medians_by_launch(pairs, ratio_of);
    let row = format!(
        "| {collective} | {} | {} | {} | {:.0} | {} | {:.3} to {:.3} | {:.3} to {:.3} | {} | {:.1} ({:.1} to {:.1}) | {:.1} | {} |\n",
        Bytes(bytes),
        pairs.len(),
        pairs[0].calls,
        raw.median,
        with_interval(ratio),
        percentile(&ratios, 10.0)?,
        percentile(&ratios, 90.0)?,
        launches.first()?,
        launches.last()?,
        with_interval(twin),
        more.median,
        more.interval.low,
        more.interval.high,
        twin_more.median,
        verdict.name(),
    );
    Some((row, verdict))
}

fn with_interval(estimate: Estimate) -> String {
    format!("{:.4} ({:.4} to {:.4})", estimate.median, estimate.interval.low, estimate.interval.high)
}

/// The median over launches of their medians, and the interval from the pairs of all launches together.
fn estimate(pairs: &[&Pair], value: impl Fn(&Pair) -> f64) -> Option<Estimate> {
    let interval = median_interval(&sorted(pairs.iter().map(|pair| value(pair))), 0.95)?;
    Some(Estimate { median: median(&medians_by_launch(pairs, value))?, interval })
}

/// The median of each launch, ascending.
fn medians_by_launch(pairs: &[&Pair], value: impl Fn(&Pair) -> f64) -> Vec<f64> {
    let mut launches: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    pairs.iter().for_each(|pair| launches.entry(pair.launch).or_default().push(value(pair)));
    sorted(launches.into_values().filter_map(|values| median(&sorted(values))))
}
