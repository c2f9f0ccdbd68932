//! No input makes a parser panic, loop or exhaust memory: each reads its samples damaged in many ways, the same ones
//! every time.
//!
//! Brief here. `scripts/fuzz PARSER EXECUTIONS` runs it long, optimised and with a limit on memory; there an input
//! that takes over a second fails too, which a debug build on a busy machine cannot guarantee.

mod mutate;
#[path = "../common/nccl_log.rs"]
mod nccl_log;
mod parsers;
mod plausible;

use mutate::Mutator;
use parsers::{PARSERS, Parser};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Executions of each parser in a run of all tests.
const BRIEF: u64 = 2_000;
/// Commands on plausible logs in a run of all tests.
const BRIEF_COMMANDS: u64 = 100;
/// Longest that one input may take.
const LONGEST: Duration = Duration::from_secs(1);
/// Memory limit of the process: inputs have at most 64 KiB.
const MOST_MEMORY_KIB: u64 = 1 << 20;

thread_local! {
    /// Message of the last panic of this thread.
    static PANIC_MESSAGE: Cell<Option<String>> = const { Cell::new(None) };
}

/// What to do, from the environment that `scripts/fuzz` sets.
struct Work {
    executions: u64,
    seed: u64,
    threads: u64,
    long: bool,
}

impl Work {
    fn from_arguments() -> Work {
        let number = |name: &str| {
            std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text}: no number")))
        };
        let long = number("FUZZ_EXECUTIONS");
        Work {
            executions: long.unwrap_or(BRIEF),
            seed: number("FUZZ_SEED").unwrap_or(1),
            threads: number("FUZZ_THREADS").unwrap_or(1).max(1),
            long: long.is_some(),
        }
    }
}

/// The slowest input so far.
#[derive(Clone, Default)]
struct Slowest {
    took: Duration,
    number: u64,
}

fn fuzz(name: &str) {
    let parser = PARSERS.iter().find(|parser| parser.name == name).expect("a parser of that name");
    let work = Work::from_arguments();
    remember_panics();
    let samples = parser.samples();
    assert!(!samples.is_empty(), "no samples in tests/corpus/{name}");
    for (number, sample) in samples.iter().enumerate() {
        execute(parser, sample, &format!("sample {number}"));
    }
    let (mutator, next, begun) = (Mutator::new(samples, work.seed), AtomicU64::new(0), Instant::now());
    let some = || {
        let (mut input, mut slowest) = (Vec::new(), Slowest::default());
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= work.executions {
                return slowest;
            }
            mutator.make(number, &mut input);
            let took = execute(parser, &input, &format!("seed {}, number {number}", work.seed));
            if took > slowest.took {
                slowest = Slowest { took, number };
            }
        }
    };
    let slowest = std::thread::scope(|scope| {
        let all: Vec<_> = (0..work.threads).map(|_| scope.spawn(some)).collect();
        all.into_iter().map(|one| one.join().expect("the reason is above")).max_by_key(|slowest| slowest.took)
    });
    let slowest = again(parser, &mutator, slowest.unwrap_or_default());
    let seconds = begun.elapsed().as_secs_f64();
    let memory = peak_memory_kib();
    eprintln!(
        "fuzz {name}: {} executions, {:.0} per second, slowest input {:.1} ms (number {}), peak memory {} MiB",
        work.executions,
        work.executions as f64 / seconds,
        slowest.took.as_secs_f64() * 1e3,
        slowest.number,
        memory / 1024
    );
    assert!(memory < MOST_MEMORY_KIB, "{memory} KiB at the worst moment");
    assert!(
        !work.long || slowest.took < LONGEST,
        "number {} of seed {} takes {:?}",
        slowest.number,
        work.seed,
        slowest.took
    );
}

/// Commands on whole and uneven, overlapping, merged and cut logs end with a documented code, and pass nothing that is cut off, failed or
/// slow.
#[test]
fn plausible_logs() {
    let work = Work::from_arguments();
    let commands = if work.long { work.executions } else { BRIEF_COMMANDS };
    let (progress, begun) = (plausible::Progress::default(), Instant::now());
    let counts = std::thread::scope(|scope| {
        let some = || plausible::run(work.seed, commands, &progress);
        let all: Vec<_> = (0..work.threads).map(|_| scope.spawn(some)).collect();
        let counts = all.into_iter().map(|one| one.join().expect("the reason is above"));
        counts.reduce(|sum, more| std::array::from_fn(|code| sum[code] + more[code]))
    });
    let counts = counts.unwrap_or_default();
    let ended: Vec<String> =
        plausible::CODES.iter().zip(counts).map(|(code, count)| format!("{count} with {code}")).collect();
    eprintln!(
        "fuzz plausible-logs: {} commands in {:.0} s; ended {}",
        counts.iter().sum::<u64>(),
        begun.elapsed().as_secs_f64(),
        ended.join(", ")
    );
    assert!(counts.iter().sum::<u64>() >= commands);
}

/// The slowest input once more, three times: a moment without a processor is not the parser's fault.
fn again(parser: &Parser, mutator: &Mutator, slowest: Slowest) -> Slowest {
    let mut input = Vec::new();
    mutator.make(slowest.number, &mut input);
    let least = (0..3).map(|_| execute(parser, &input, "the slowest")).min().unwrap_or_default();
    Slowest { took: least, ..slowest }
}

/// Runs the parser; a panic stores the input in a file and fails.
fn execute(parser: &Parser, input: &[u8], which: &str) -> Duration {
    let begun = Instant::now();
    if catch_unwind(AssertUnwindSafe(|| (parser.read)(input))).is_err() {
        let stored = store_input(parser.name, input);
        let message = PANIC_MESSAGE.take().unwrap_or_default();
        panic!(
            "{} broke at {which}: {message}\n  the input is in {}; once fixed, it belongs into tests/corpus/{}/",
            parser.name,
            stored.display(),
            parser.name
        );
    }
    begun.elapsed()
}

fn store_input(name: &str, input: &[u8]) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fuzz-{name}"));
    std::fs::write(&path, input).expect("the folder of the tests is writable");
    path
}

/// Panics are reported with the input that caused them, not one by one.
fn remember_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let message = info.to_string();
            if !message.contains("tests/fuzz/main.rs") {
                PANIC_MESSAGE.set(Some(message));
            } else {
                usual(info);
            }
        }));
    });
}

/// Peak memory of the process.
fn peak_memory_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).expect("Linux tells a process's peak memory")
}

macro_rules! parsers {
    ($($test:ident $name:literal)*) => {
        $(#[test]
        fn $test() {
            fuzz($name);
        })*

        #[test]
        fn every_parser_is_fuzzed() {
            let named = [$($name),*];
            assert!(PARSERS.iter().map(|parser| parser.name).eq(named));
        }
    };
}

parsers! {
    trace "trace"
    suite "suite"
    model "model"
    machine "machine"
    line "line"
    record "record"
    fit "fit"
    fault "fault"
    hosts "hosts"
    ranks "ranks"
    nccl_tests "nccl-tests"
    osu "osu"
    imb "imb"
    recipe "recipe"
    nccl_log "nccl-log"
    csv "csv"
}
