//! Synthetic records for the self-test: complete, verified and reliable, so that only their times decide.

use super::super::comparability::LoadedRecord;
use commgauge_base::collective::{Collective, ReduceOp};
use commgauge_base::element::ElementType;
use commgauge_base::error::Result;
use commgauge_base::random::{normal, uniform};
use commgauge_base::units::Bytes;
use commgauge_model::config::Machine;
use commgauge_model::layout::Locality;
use commgauge_model::record::line::{BackendLine, CaseFacts, ClockLine, ClockMoment, Header, RankFacts, SuiteFacts};
use commgauge_model::record::{Parts, Record};
use rand::{Rng, RngExt};
use rand_xoshiro::Xoshiro256PlusPlus;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Ranks of the synthetic groups, all on one host.
const RANKS: u32 = 8;

/// Bytes of the first row; each row has one KiB more.
const BYTES: u64 = 1 << 20;

/// Time of a call without noise.
const MICROSECONDS: f64 = 100_000.0;

/// A record whose row r has these times, as multiples of the time without noise; the same number of replicates in each.
pub(super) fn loaded(run_id: &str, rows: &[Vec<f64>]) -> Result<LoadedRecord> {
    let nanoseconds = |time: &f64| vec![(MICROSECONDS * 1000.0 * time).max(1.0) as u64];
    let times = rows.iter().map(|replicates| replicates.iter().map(nanoseconds).collect());
    let mut record = Parts::new(header(run_id));
    record.measure((0..).map(facts).zip(times).collect());
    record.clocks = Some([ClockMoment::Start, ClockMoment::End].map(|moment| ClockLine::synchronised(moment, 1)));
    Ok(LoadedRecord { path: format!("{run_id}.jsonl").into(), record: Record::from_lines(record.lines())? })
}

/// A machine on which the first row, without noise, takes `share` of its allowed time.
pub(super) fn machine(share: f64) -> Result<Machine> {
    let ceiling = MICROSECONDS / share;
    let text = format!(
        "name = 'selftest'\nranks_per_node = {RANKS}\n[within_node]\nlatency = '1us'\nrate = '400GB/s'\n[between_nodes]\n\
         latency = '5us'\nadapters_per_node = 1\nrate_per_adapter = '50GB/s'\n[applies_to]\nbackend = 'mpi'\n[coverage]\nexpectations = 1\n\
         [[expect]]\ncollective = 'all_reduce'\n\
         ranks = {RANKS}\nbytes = ['1B', '1TiB']\nceiling = '{ceiling:.6}us'\nsource = 'selftest'\ndate = '2026'\n"
    );
    Machine::parse(&text, Path::new("selftest.toml"))
}

fn facts(row: u64) -> CaseFacts {
    let bytes = Bytes(BYTES + 1024 * row);
    CaseFacts {
        name: format!("world/all_reduce/{}", bytes.0),
        locality: Locality { nodes_spanned: 1, ranks_per_node: RANKS, stride: 1, concurrent_groups_per_node: 1 },
        reduce_op: Some(ReduceOp::Sum),
        ..CaseFacts::new(Collective::AllReduce, ElementType::Float32, RANKS, bytes)
    }
}

/// Not marked synthetic, since a synthetic record never passes; it never leaves this program.
fn header(run_id: &str) -> Header {
    Header {
        suite: SuiteFacts { name: "selftest".to_owned(), ..SuiteFacts::default() },
        backend: BackendLine { name: "made up".to_owned(), ..BackendLine::default() },
        world_size: RANKS,
        ranks: vec![RankFacts { ranks: RANKS, ..RankFacts::on_host(0, "selftest") }],
        ..Header::new("commgauge expect selftest", run_id)
    }
}

// The kinds of noise of synthetic runs.

/// Distribution of the medians of replicates; each kind has about the same standard deviation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Noise {
    Normal,
    /// Most runs near the slowest, some much faster than the rest.
    LeftSkewed,
    /// Two equally frequent states, with little noise around both.
    Bimodal,
    /// Slower from replicate to replicate, restarting with every run.
    DriftingWithinRuns,
    /// Slower from replicate to replicate; the second run continues where the first ended.
    DriftingOn,
}

impl Noise {
    /// All kinds.
    pub const ALL: [Noise; 5] =
        [Noise::Normal, Noise::LeftSkewed, Noise::Bimodal, Noise::DriftingWithinRuns, Noise::DriftingOn];

    pub fn name(self) -> &'static str {
        match self {
            Noise::Normal => "normal",
            Noise::LeftSkewed => "left-skewed",
            Noise::Bimodal => "bimodal",
            Noise::DriftingWithinRuns => "drift in runs",
            Noise::DriftingOn => "drifting on",
        }
    }

    /// False if no error rate is guaranteed: drift across replicates is a real change.
    pub fn is_promised(self) -> bool {
        self != Noise::DriftingOn
    }

    /// Times around 1 with a median of about 1: for each replicate of the `run`-th run of a pair.
    pub(super) fn draw(self, sigma: f64, replicates: usize, run: usize, random: &mut Xoshiro256PlusPlus) -> Vec<f64> {
        let count = replicates as f64;
        (0..replicates)
            .map(|index| {
                let position = (index as f64 + 0.5) / count;
                let deviate = match self {
                    Noise::Normal => deviate(random),
                    // The median of 1 + ln u is 1 - ln 2.
                    Noise::LeftSkewed => uniform(random.next_u64()).ln() + std::f64::consts::LN_2,
                    Noise::Bimodal => deviate(random) * 0.25 + if random.random_bool(0.5) { 0.97 } else { -0.97 },
                    Noise::DriftingWithinRuns => deviate(random) * 0.5 + 3.0 * (position - 0.5),
                    Noise::DriftingOn => deviate(random) * 0.5 + 3.0 * (position - 0.5 + run as f64),
                };
                1.0 + sigma * deviate
            })
            .collect()
    }
}

fn deviate(random: &mut Xoshiro256PlusPlus) -> f64 {
    normal([random.next_u64(), random.next_u64()])
}

#[cfg(test)]
mod tests {

    use super::*;
    use rand::SeedableRng;

    #[test]
    fn every_noise_kind_has_the_same_scale_around_one() {
        for noise in [Noise::Normal, Noise::LeftSkewed, Noise::Bimodal, Noise::DriftingWithinRuns] {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
            let drawn: Vec<f64> = (0..2000).flat_map(|_| noise.draw(0.01, 7, 0, &mut random)).collect();
            let mean = drawn.iter().sum::<f64>() / drawn.len() as f64;
            let deviation = (drawn.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / drawn.len() as f64).sqrt();
            // Half of the times are on either side; a bimodal distribution has none in between.
            let above = drawn.iter().filter(|time| **time > 1.0).count() as f64 / drawn.len() as f64;
            assert!((0.48..0.52).contains(&above), "{noise:?}: {above}");
            assert!((0.008..0.012).contains(&deviation), "{noise:?}: {deviation}");
        }
    }
}
