//! What planning costs: all layouts of Llama-3 405B on 16,384 and on 131,072 GPUs, and of DeepSeek-V3 on 2,048. Ends with exit code 1
//! where one of them takes longer than it may, or the process more memory.

use commgauge::config::{Machine, Model, Table, Training};
use commgauge::planner::compute::{Compute, PUBLISHED};
use commgauge::planner::rates::Published;
use commgauge::planner::search::{Bases, Only, Question, Results, search};
use commgauge::units::Bytes;
use criterion::Criterion;
use std::hint::black_box;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

/// What is planned, the seconds that it may take, and the memory that the process may have had by then.
struct Limit {
    model: &'static str,
    gpus: u32,
    global_batch: u64,
    sequence: u64,
    seconds: f64,
    bytes: u64,
}

/// The largest last, as a process keeps the most memory that it had.
const LIMITS: [Limit; 3] = [
    limit("llama-3-405b", [131_072, 16_384, 8192], 1.0, 200_000_000),
    limit("llama-3-405b", [16_384, 2048, 8192], 0.7, 200_000_000),
    limit("deepseek-v3", [2048, 15_360, 4096], 1.0, 200_000_000),
];

const fn limit(model: &'static str, [gpus, global_batch, sequence]: [u64; 3], seconds: f64, bytes: u64) -> Limit {
    Limit { model, gpus: gpus as u32, global_batch, sequence, seconds, bytes }
}

/// Searches of each, of which the fastest counts.
const RUNS: u32 = 3;

fn question<'a>(model: &'a Model, compute: &'a Compute, rates: &'a Published<'a>, limit: &Limit) -> Question<'a> {
    let flags = [
        ("--sequence", "sequence", limit.sequence.to_string()),
        ("--global-batch", "global_batch", limit.global_batch.to_string()),
        ("--training", "sequence_parallel", "true".to_owned()),
    ];
    Question {
        model,
        bases: Bases::of(model, &Training::read(Table::of_flags(flags)).expect("a training")).expect("effective keys"),
        global_batch: limit.global_batch,
        gpus: limit.gpus,
        ranks_per_node: 8,
        gpu_memory: Bytes(80_000_000_000),
        compute,
        rates,
        only: Only::default(),
        wanted: 10,
        results: Results::Layouts,
    }
}

/// The most memory that this process had, from `/proc/self/status`.
fn most_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(1024 * line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?)
}

fn main() -> ExitCode {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("suites/machines/h100-nvswitch-ndr.toml");
    let machine = Machine::load(&path).expect("a machine");
    let rates = Published::new(&machine);
    let compute = PUBLISHED.compute(machine.computing.as_ref().expect("a GPU"));
    let mut late = false;
    for limit in &LIMITS {
        let model = Model::load(limit.model).expect("a model");
        let question = question(&model, &compute, &rates, limit);
        let timed = || {
            let started = Instant::now();
            let found = black_box(search(&question));
            (started.elapsed().as_secs_f64(), found)
        };
        // The best of several: other processes of the machine can only make it longer.
        let (mut seconds, found) = timed();
        (1..RUNS).for_each(|_| seconds = seconds.min(timed().0));
        let Limit { model, gpus, seconds: most, bytes: most_memory, .. } = limit;
        let (considered, priced, bytes) = (found.considered, found.priced, most_bytes().unwrap_or(0));
        eprintln!(
            "{model} on {gpus} GPUs: {considered} layouts, {priced} priced, {seconds:.2} s of {most} s, {} MB of {} MB",
            bytes / 1_000_000,
            most_memory / 1_000_000
        );
        late |= seconds > *most || bytes > *most_memory;
    }
    let mut criterion = Criterion::default().configure_from_args().sample_size(10);
    let model = Model::load("llama-3-405b").expect("a model");
    let small = limit("llama-3-405b", [1024, 512, 8192], f64::INFINITY, u64::MAX);
    let small = question(&model, &compute, &rates, &small);
    criterion
        .bench_function("plan of llama-3-405b on 1,024 GPUs", |bencher| bencher.iter(|| search(black_box(&small))));
    criterion.final_summary();
    if late { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
