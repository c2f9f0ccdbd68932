//! Synthetic records for the self-test: complete, verified and reliable, so that only their times decide.

use super::super::comparability::LoadedRecord;
use commgauge_base::collective::{Collective, Placement, ReduceOp};
use commgauge_base::element::ElementType;
use commgauge_base::error::Result;
use commgauge_base::random::{normal, uniform};
use commgauge_base::sample::{Cadence, Timing};
use commgauge_base::units::{Bytes, Seconds};
use commgauge_model::config::Machine;
use commgauge_model::layout::{Axis, Locality};
use commgauge_model::record::line::{
    BackendLine, CaseFacts, CaseLine, ClockLine, ClockMethod, ClockMoment, End, EndStatus, Header, Outcome, Plan,
    RankFacts, Samples, Settings, SuiteFacts,
};
use commgauge_model::record::{FORMAT, Line, Record, VERSION};
use commgauge_model::workload::Style;
use rand::{Rng, RngExt};
use rand_xoshiro::Xoshiro256PlusPlus;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// Ranks of the synthetic groups, all on one host.
const RANKS: u32 = 8;

/// Bytes of the first row; each row has one KiB more.
const BYTES: u64 = 1 << 20;

/// Time of a call without noise.
const MICROSECONDS: f64 = 100_000.0;

/// A record whose row r has these times, as multiples of the time without noise; the same number of replicates in each.
pub(super) fn loaded(run_id: &str, rows: &[Vec<f64>]) -> Result<LoadedRecord> {
    let replicates = rows.first().map_or(0, Vec::len);
    let cases: Vec<CaseFacts> = (0..rows.len()).map(facts).collect();
    let mut lines = vec![
        Line::Header(Box::new(header(run_id, replicates as u32))),
        Line::Plan(Plan {
            product_lines: 0,
            case_lines: (rows.len() * replicates) as u64,
            cases: cases.clone(),
            estimated_seconds: Seconds(0.0),
            steps: Vec::new(),
            ranking: None,
        }),
        Line::Clock(clock(ClockMoment::Start)),
    ];
    for replicate in 0..replicates {
        for (case, times) in rows.iter().enumerate() {
            lines.push(Line::Case(Box::new(case_line(case, &cases[case].name, replicate, times[replicate]))));
        }
    }
    lines.push(Line::Clock(clock(ClockMoment::End)));
    lines.push(Line::End(End {
        status: EndStatus::Complete,
        exit_code: 0,
        error: None,
        elapsed_seconds: Seconds(0.0),
        lines_before: Some(lines.len() as u64),
        sha256: None,
    }));
    Ok(LoadedRecord { path: format!("{run_id}.jsonl").into(), record: Record::from_lines(lines)? })
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

fn facts(row: usize) -> CaseFacts {
    let bytes = Bytes(BYTES + 1024 * row as u64);
    CaseFacts {
        name: format!("world/all_reduce/{}", bytes.0),
        style: Style::Sweep,
        axis: Axis::World,
        group_size: RANKS,
        groups: 1,
        locality: Locality { nodes_spanned: 1, ranks_per_node: RANKS, stride: 1, concurrent_groups_per_node: 1 },
        collective: Collective::AllReduce,
        element_type: ElementType::Float32,
        reduce_op: Some(ReduceOp::Sum),
        root: None,
        bytes_total: bytes,
        bytes_accounted: bytes,
        bytes_per_rank: bytes,
        splits: None,
        placement: Placement::OutOfPlace,
        cadence: Cadence::Streaming,
        transfers_per_call: 1,
        bus_factor: Collective::AllReduce.bus_factor(RANKS),
        bound_bytes_per_second: None,
        uses: Vec::new(),
        solo_of: None,
        labels: BTreeMap::new(),
    }
}

fn header(run_id: &str, replicates: u32) -> Header {
    Header {
        format: FORMAT.to_owned(),
        version: VERSION,
        run_id: run_id.to_owned(),
        started_at: String::new(),
        program: "commgauge expect selftest".to_owned(),
        program_version: String::new(),
        program_sha256: String::new(),
        command_line: Vec::new(),
        launch_command: None,
        suite: SuiteFacts { name: "selftest".to_owned(), path: None, sha256: String::new(), model: None, layout: None },
        // Not marked synthetic, since a synthetic record never passes; it never leaves this program.
        backend: BackendLine {
            nodes_per_leaf: None,
            nodes_per_rack: None,
            name: "made up".to_owned(),
            measured_by: None,
            synthetic: false,
            library: String::new(),
            transport: None,
            notes: Vec::new(),
            machine: None,
        },
        world_size: RANKS,
        seed: 0,
        settings: Settings {
            precision: 0.0,
            minimum_samples: 1,
            maximum_samples: 1,
            case_budget_seconds: Seconds(0.0),
            replicates,
            warm_buffers: false,
            start: ClockMethod::default(),
            timing: Timing::default(),
            verify: true,
            within_seconds: None,
            soak: false,
            iterations: None,
            calls_like: None,
        },
        ranks: vec![ranks()],
        environment: BTreeMap::new(),
        warnings: Vec::new(),
        notes: Vec::new(),
    }
}

fn ranks() -> RankFacts {
    RankFacts {
        rank: 0,
        ranks: RANKS,
        host: "selftest".to_owned(),
        node: 0,
        pid: 0,
        cores: String::new(),
        numa_nodes: String::new(),
        processor: String::new(),
        kernel: String::new(),
        device: None,
        adapters: Vec::new(),
    }
}

fn clock(moment: ClockMoment) -> ClockLine {
    ClockLine {
        moment,
        method: ClockMethod::Synchronised,
        resolution_nanoseconds: 1,
        residual_nanoseconds: 1,
        worst_half_round_trip_nanoseconds: 1,
        worst_drift_ppm: 0.0,
    }
}

fn case_line(case: usize, name: &str, replicate: usize, time: f64) -> CaseLine {
    let nanoseconds = (MICROSECONDS * 1000.0 * time).max(1.0) as u64;
    CaseLine {
        case: case as u32,
        name: name.into(),
        replicate: replicate as u32,
        position: case as u32,
        replaces: Vec::new(),
        outcome: Outcome::Measured { verified: true },
        warm_up_iterations: 0,
        calls_per_sample: 1,
        stop: None,
        precision_reached: None,
        samples: Samples { slowest_nanoseconds: vec![nanoseconds], slowest_rank: vec![0], ..Samples::default() },
        histograms: Vec::new(),
        pairs: None,
        buffer_copies: 1,
        library_estimate_seconds: None,
        library_choice: None,
        warnings: Vec::new(),
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
