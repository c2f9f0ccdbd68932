//! Complete and valid records for tests: a few cases of the sample record with synthetic times.

use super::comparability::LoadedRecord;
use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use commgauge_base::sample::Cadence;
use commgauge_base::units::Bytes;
use commgauge_model::config::{CopyKind, HostMemory, Machine};
use commgauge_model::record::line::{CaseFacts, Outcome};
use commgauge_model::record::work_lines::{CopyLine, CopyShape, ProductLine, ProductShape};
use commgauge_model::record::{Journal, Line, Parts, Record};
use std::path::Path;

/// A record of verified all_reduces on 4 ranks of 2 hosts, one row for each list: the times of its replicates in
/// microseconds. Row r has 2^(20+r) bytes.
pub fn lines(run_id: &str, rows: &[Vec<f64>]) -> Vec<Line> {
    let record = commgauge_model::record::testing::sample();
    let template = record.plan.cases.iter().find(|case| {
        case.group_size == 4 && case.collective == Collective::AllReduce && case.cadence == Cadence::Streaming
    });
    let template = template.unwrap();
    let facts = |row: usize| {
        let (name, bytes) = (format!("world/all_reduce/{row}"), Bytes(1 << (20 + row % 30)));
        let uses = Vec::new();
        CaseFacts { name, bytes_total: bytes, bytes_accounted: bytes, bytes_per_rank: bytes, uses, ..template.clone() }
    };
    let samples = |microseconds: &f64| vec![(microseconds * 1000.0) as u64; 3];
    let mut made = Parts::like(&record, run_id);
    let times = rows.iter().map(|replicates| replicates.iter().map(samples).collect());
    made.measure((0..).map(facts).zip(times).collect());
    made.lines()
}

/// With lines of work that each rank does alone, starting at the first line of every copy or product.
pub fn with_own_work(mut lines: Vec<Line>, own_work: Vec<Line>) -> Vec<Line> {
    if let Some(Line::Plan(plan)) = lines.get_mut(1) {
        plan.product_lines = own_work.len() as u64;
    }
    let added = own_work.len() as u64;
    let at = lines.len() - 2;
    lines.splice(at..at, own_work);
    if let Some(Line::End(end)) = lines.last_mut() {
        end.lines_before = end.lines_before.map(|before| before + added);
    }
    lines
}

/// Lines of a copy of a gigabyte from page-locked host memory, with these times of each replicate in milliseconds.
pub fn copy_lines(milliseconds: &[f64]) -> Vec<Line> {
    let copy = CopyShape {
        kind: CopyKind::HostToDevice,
        host_memory: Some(HostMemory::Pinned),
        peer_distance: None,
        bytes: Bytes(1_000_000_000),
        alone: true,
    };
    let line = |(replicate, time): (u32, &f64)| {
        let nanoseconds = (time * 1e6) as u64;
        Line::Copy(Box::new(CopyLine {
            copy,
            replicate,
            outcome: Outcome::Measured { verified: true },
            copies_per_sample: 1,
            slowest_nanoseconds: vec![nanoseconds; 3],
            slowest_rank: vec![0; 3],
            median_nanoseconds: vec![nanoseconds; 4],
        }))
    };
    (0..).zip(milliseconds).map(line).collect()
}

/// Lines of a 1000 x 1000 x 1000 product, two billion operations, with these times of each replicate in milliseconds.
pub fn product_lines(milliseconds: &[f64]) -> Vec<Line> {
    let product =
        ProductShape { m: 1000, n: 1000, k: 1000, element_type: ElementType::Float32, uses: vec!["qkv".to_owned()] };
    let line = |(replicate, time): (u32, &f64)| {
        Line::Product(Box::new(ProductLine {
            product: product.clone(),
            replicate,
            library: "a test".to_owned(),
            ranks_per_host: 2,
            threads_per_rank: 1,
            outcome: Outcome::Measured { verified: true },
            warm_up_products: 1,
            slowest_nanoseconds: vec![(time * 1e6) as u64; 3],
            slowest_rank: vec![0; 3],
        }))
    };
    (0..).zip(milliseconds).map(line).collect()
}

/// A record made of lines, as if read from a file.
pub fn loaded(path: &str, lines: Vec<Line>) -> LoadedRecord {
    LoadedRecord { path: path.into(), record: Record::from_lines(lines).unwrap() }
}

/// The file that a run with these lines writes.
pub fn written(lines: &[Line]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r.jsonl");
    let mut journal = Journal::create(&path).unwrap();
    lines.iter().for_each(|line| journal.write(line).unwrap());
    journal.finish().unwrap();
    std::fs::read_to_string(&path).unwrap()
}

/// A machine of two hosts that expects the rows of [`lines`] to reach a bus bandwidth, in bytes per second, at every size.
pub fn machine(floor: &str) -> Machine {
    let text = format!(
        "name = 'm'\nranks_per_node = 2\n[within_node]\nlatency = '1us'\nrate = '400GB/s'\n[between_nodes]\n\
         latency = '5us'\nadapters_per_node = 2\nrate_per_adapter = '400GB/s'\n\
         [applies_to]\nbackend = 'mpi'\n[coverage]\nexpectations = 1\n\
         [[expect]]\ncollective = 'all_reduce'\nranks = 4\nbytes = ['1MiB', '1GiB']\nfloor = '{floor}'\n\
         source = 'a test'\ndate = '2026'\n"
    );
    Machine::parse(&text, Path::new("m.toml")).unwrap()
}
