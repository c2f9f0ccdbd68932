//! Complete records as files, of any number of rows, replicates and ranks: sealed as a run seals them.

#![allow(dead_code, reason = "each test program uses a part of it")]

use commgauge::record::line::{CaseFacts, RankFacts};
use commgauge::record::{Journal, Line, Parts, Record};
use commgauge::units::Bytes;
use std::path::Path;

const SAMPLE: &str = include_str!("../data/sample-record.jsonl");

/// Rows of a record, with the times of their replicates in microseconds.
pub struct Made {
    /// Name of the run.
    pub run_id: String,
    /// Times, row by row; the same number in each.
    pub rows: Vec<Vec<f64>>,
    /// Samples of each replicate.
    pub samples: usize,
    /// Ranks of the world; the header has an entry for each.
    pub ranks: u32,
}

impl Made {
    /// Rows that scatter by about a per cent, always the same for a seed.
    pub fn steady(run_id: &str, rows: usize, replicates: usize, seed: u64) -> Made {
        // An affine generator is enough: the times only need to differ.
        let mut state = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let mut noise = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f64 / (1u64 << 24) as f64 - 0.5
        };
        let rows = (0..rows)
            .map(|row| (0..replicates).map(|_| (100.0 + row as f64) * (1.0 + 0.01 * noise())).collect())
            .collect();
        Made { run_id: run_id.to_owned(), rows, samples: 3, ranks: 4 }
    }

    /// The lines of the record.
    pub fn lines(&self) -> Vec<Line> {
        let sample: Vec<Line> =
            SAMPLE.lines().map(|line| serde_json::from_str(line).expect("the sample is right")).collect();
        let record = Record::from_lines(sample).expect("the sample is right");
        let is_wanted = |case: &&CaseFacts| {
            case.group_size == 4 && case.collective.name() == "all_reduce" && case.cadence.name() == "streaming"
        };
        let template = record.plan.cases.iter().find(is_wanted).expect("the sample has an all_reduce");
        let facts = |row: u64| {
            let bytes = Bytes((1 << 20) + 1024 * row);
            let (name, uses) = (format!("world/all_reduce/{}", bytes.0), Vec::new());
            CaseFacts {
                name,
                bytes_total: bytes,
                bytes_accounted: bytes,
                bytes_per_rank: bytes,
                uses,
                ..template.clone()
            }
        };
        let samples = |microseconds: &f64| {
            (0..self.samples).map(|sample| (microseconds * 1000.0) as u64 + sample as u64 % 3).collect()
        };
        let mut made = Parts::like(&record, &self.run_id);
        made.header.world_size = self.ranks;
        let place = |rank: u32| RankFacts {
            rank,
            node: rank / 2,
            host: format!("host-{}", rank / 2),
            ..record.header.ranks[0].clone()
        };
        made.header.ranks = (0..self.ranks).map(place).collect();
        let times = self.rows.iter().map(|replicates| replicates.iter().map(samples).collect());
        made.measure((0..).map(facts).zip(times).collect());
        made.lines()
    }

    /// Writes the record as a run does.
    pub fn write(&self, path: &Path) {
        write(path, &self.lines());
    }
}

/// Writes lines as a run does, over a file that is there.
pub fn write(path: &Path, lines: &[Line]) {
    let _ = std::fs::remove_file(path);
    let mut journal = Journal::create(path).expect("the folder is writable");
    for line in lines {
        journal.write(line).expect("there is room");
    }
    journal.finish().expect("there is room");
}

/// A machine file of two hosts with two ranks each that expects the rows to reach a bus bandwidth.
pub fn machine(floor: &str) -> String {
    format!(
        "name = 'm'\nranks_per_node = 2\n[within_node]\nlatency = '1us'\nrate = '400GB/s'\n[between_nodes]\n\
         latency = '5us'\nadapters_per_node = 2\nrate_per_adapter = '400GB/s'\n[applies_to]\nbackend = 'mpi'\n[coverage]\nexpectations = 1\n\
         [[expect]]\ncollective = 'all_reduce'\n\
         ranks = 4\nbytes = ['1MiB', '1GiB']\nfloor = '{floor}'\nsource = 'a test'\ndate = '2026'\n"
    )
}
