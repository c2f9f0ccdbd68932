//! How long reading, gating, comparing and reporting take on records of many rows and of many ranks.
//!
//! `cargo bench --bench verdict`. The promise is five seconds and one GiB for 100,000 rows; here are a tenth of them, so that
//! a round is quick: all of it grows with the number of rows.

#[path = "../tests/common/records.rs"]
mod records;

use commgauge::config::Machine;
use commgauge::report::{Format, Paint, VerdictFormat, VerdictLook, View, render, verdict_text};
use commgauge::verdict::{CompareRule, GateRule, LoadedRecord, compare, gate};
use criterion::{Criterion, criterion_group, criterion_main};
use records::Made;
use std::hint::black_box;
use std::path::Path;

const ROWS: usize = 10_000;
const REPLICATES: usize = 5;

fn verdicts(criterion: &mut Criterion) {
    let folder = tempfile::tempdir().expect("a folder");
    let loaded = |name: &str, seed: u64, rows: usize, ranks: u32| {
        let path = folder.path().join(format!("{name}.jsonl"));
        Made { ranks, ..Made::steady(name, rows, REPLICATES, seed) }.write(&path);
        LoadedRecord::read(&path).expect("what was written is read")
    };
    let (base, new) = ([loaded("a", 1, ROWS, 4)], [loaded("b", 2, ROWS, 4)]);
    let wide = loaded("wide", 3, 100, 4096);
    let machine = Machine::parse(&records::machine("1GB/s"), Path::new("m.toml")).expect("right");
    let gates = GateRule { confidence: 0.95, allowed: Vec::new() };
    let compares = CompareRule { false_alarm_level: 0.05, relevant_slowdown: 0.03, allowed: Vec::new() };
    let mut group = criterion.benchmark_group("verdict");
    group.sample_size(10);
    group.bench_function("read 10,000 rows x 5", |bencher| {
        bencher.iter(|| LoadedRecord::read(black_box(&base[0].path)).expect("read"));
    });
    group.bench_function("gate 10,000 rows x 5", |bencher| {
        bencher.iter(|| gate(black_box(&base), Some(&machine), &gates).expect("judged"));
    });
    group.bench_function("compare 10,000 rows x 5 and 5", |bencher| {
        bencher.iter(|| compare(black_box(&base), &new, &compares).expect("judged"));
    });
    let verdict = gate(&base, Some(&machine), &gates).expect("judged");
    let look = VerdictLook { format: VerdictFormat::Table, width: 120, ..VerdictLook::WHOLE };
    group.bench_function("table of a verdict of 10,000 rows", |bencher| {
        bencher.iter(|| verdict_text(black_box(&verdict), look).expect("text"));
    });
    group.bench_function("report of 10,000 rows x 5", |bencher| {
        bencher.iter(|| shown(black_box(&base[0])));
    });
    group.bench_function("report of 4,096 ranks", |bencher| {
        bencher.iter(|| shown(black_box(&wide)));
    });
    group.finish();
}

fn shown(loaded: &LoadedRecord) -> usize {
    let mut out = Vec::new();
    render(&View::new(&loaded.record), Format::Table, 120, Paint::Plain, &mut out).expect("a vector takes all");
    out.len()
}

criterion_group!(benches, verdicts);
criterion_main!(benches);
