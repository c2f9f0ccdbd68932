//! What commgauge itself costs: an iteration around a call that does nothing, a reading of the clock, filling and checking
//! data, the statistics. Ends with exit code 1 where an iteration on the host path costs more than it may.

use commgauge::backend::{Call, Marks, Mismatch};
use commgauge::config::RunSettings;
use commgauge::element::ElementType;
use commgauge::error::Result;
use commgauge::host;
use commgauge::host::Readings;
use commgauge::measure::{
    Batch, ClockModel, DEFAULT_COMPLETION_DEADLINE, Lead, MeasureContext, isolated_batch, stream,
};
use commgauge::pattern::{Pattern, Source};
use commgauge::stats::{median, median_interval, percentile, sorted};
use commgauge::world::SoloWorld;
use criterion::{Criterion, Throughput};
use std::collections::BTreeMap;
use std::hint::black_box;
use std::io::Write;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// What an iteration on the host path may cost.
const MOST_NANOSECONDS: f64 = 50.0;
const SAMPLES: u32 = 1_000;

/// Nanoseconds for each iteration of the benches that have a limit, as criterion saw them.
static LIMITED: Mutex<BTreeMap<&str, Vec<f64>>> = Mutex::new(BTreeMap::new());

/// A call that does nothing, with the marks of the backend on host memory.
#[derive(Default)]
struct Nothing {
    marks: Readings,
}

impl Call for Nothing {
    fn fill(&mut self) -> Result<()> {
        Ok(())
    }

    fn enqueue(&mut self) -> Result<()> {
        Ok(())
    }

    fn reserve_marks(&mut self, marks: usize) {
        self.marks.reserve(marks);
    }

    fn mark(&mut self) {
        self.marks.take();
    }

    fn hold_until(&mut self, start_nanoseconds: u64) -> bool {
        let in_time = host::now_nanoseconds() < start_nanoseconds;
        while host::now_nanoseconds() < start_nanoseconds {
            std::hint::spin_loop();
        }
        in_time
    }

    fn complete(&mut self, _: Duration) -> Result<()> {
        Ok(())
    }

    fn read_marks(&self, marks: &mut Marks) {
        marks.local_ranks = 1;
        self.marks.copy_to(&mut marks.nanoseconds);
    }

    fn now_nanoseconds(&self) -> u64 {
        host::now_nanoseconds()
    }

    fn buffer_copies(&self) -> u32 {
        1
    }

    fn check(&mut self) -> Result<Option<Mismatch>> {
        Ok(None)
    }

    fn verifies(&self) -> bool {
        false
    }

    fn abort(&mut self) {}
}

fn main() -> ExitCode {
    let mut criterion =
        Criterion::default().warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2));
    criterion = criterion.configure_from_args();
    streaming(&mut criterion, "streaming iteration, 1000 calls in a sample", 1_000);
    streaming(&mut criterion, "streaming iteration, 1 call in a sample", 1);
    limited(&mut criterion, "mark", |iterations| {
        let mut nothing = Nothing::default();
        nothing.reserve_marks(iterations as usize);
        let call: &mut dyn Call = black_box(&mut nothing);
        let begin = Instant::now();
        (0..iterations).for_each(|_| call.mark());
        begin.elapsed()
    });
    isolated();
    patterns(&mut criterion);
    statistics(&mut criterion);
    criterion.final_summary();
    if within_limits() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A bench whose time for each iteration is compared with the limit.
fn limited(criterion: &mut Criterion, name: &'static str, mut run: impl FnMut(u64) -> Duration) {
    criterion.bench_function(name, |bencher| {
        bencher.iter_custom(|iterations| {
            let elapsed = run(iterations);
            let mut seen = LIMITED.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            // Short runs are those of criterion's own warm-up.
            if iterations >= 1_000 {
                seen.entry(name).or_default().push(elapsed.as_nanos() as f64 / iterations as f64);
            }
            elapsed
        });
    });
}

fn streaming(criterion: &mut Criterion, name: &'static str, calls_per_sample: u32) {
    limited(criterion, name, |iterations| {
        let mut nothing = Nothing::default();
        let samples = (iterations as u32).div_ceil(calls_per_sample).max(1);
        nothing.reserve_marks(samples as usize + 1);
        let call: &mut dyn Call = black_box(&mut nothing);
        let begin = Instant::now();
        stream(call, samples, calls_per_sample, DEFAULT_COMPLETION_DEADLINE)
            .expect("a call that does nothing succeeds");
        // Whole samples only: as many iterations as were requested, of the time of those that were run.
        begin.elapsed().mul_f64(iterations as f64 / (f64::from(samples) * f64::from(calls_per_sample)))
    });
}

/// The time inside an isolated iteration, which is what ends up in a sample, and the time around it, which does not.
fn isolated() {
    let settings = RunSettings::default();
    let interrupted = AtomicBool::new(false);
    let context = MeasureContext {
        world: &SoloWorld,
        local_ranks: 0..1,
        world_size: 1,
        clock: ClockModel::identity(),
        start: commgauge::record::line::ClockMethod::Synchronised,
        clock_resolution_nanoseconds: host::seen_resolution_nanoseconds(),
        settings: &settings,
        interrupted: &interrupted,
        injected_delay: None,
        completion_deadline: DEFAULT_COMPLETION_DEADLINE,
    };
    let (mut call, mut lead, mut batch) = (Nothing::default(), Lead::default(), Batch::default());
    let mut run = move |iterations: u64| {
        let mut inside = 0;
        let mut left = iterations as u32;
        while left > 0 {
            let now = left.min(SAMPLES);
            isolated_batch(&context, black_box(&mut call), now, &mut lead, &mut batch)
                .expect("a call that does nothing succeeds");
            inside += batch.samples.iter().map(|sample| sample.transfer_nanoseconds).sum::<u64>();
            left -= now;
        }
        Duration::from_nanos(inside)
    };
    // Not through criterion: iterations wait for their starts, so that its warm-up would make far too many of them.
    let mut seen = Vec::new();
    for _ in 0..30 {
        seen.push(run(u64::from(SAMPLES)).as_nanos() as f64 / f64::from(SAMPLES));
    }
    LIMITED
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
        .insert("isolated iteration, inside its sample", seen);
    let begin = Instant::now();
    run(10 * u64::from(SAMPLES));
    let around = begin.elapsed().as_nanos() as f64 / (10.0 * f64::from(SAMPLES));
    tell(&format!("isolated iteration with its wait for the start: {around:.0} ns, the wait being 2000 ns or more"));
}

fn patterns(criterion: &mut Criterion) {
    const BYTES: usize = 1 << 20;
    let mut group = criterion.benchmark_group("pattern");
    group.throughput(Throughput::Bytes(BYTES as u64)).sample_size(10).measurement_time(Duration::from_millis(400));
    group.warm_up_time(Duration::from_millis(100));
    for element in ElementType::ALL {
        let mut buffer = vec![0u8; BYTES];
        let pattern = Pattern::new(element, None, 4, 1);
        let source = Source::Moved { rank: 1, first: 0 };
        group.bench_function(format!("fill {element}"), |bencher| {
            bencher.iter(|| pattern.write(source, black_box(&mut buffer)));
        });
        pattern.write(source, &mut buffer);
        group.bench_function(format!("check {element}"), |bencher| {
            bencher.iter(|| assert!(pattern.check(source, black_box(&buffer)).is_none()));
        });
        if element.moves_only() {
            continue;
        }
        let pattern = Pattern::new(element, Some(commgauge::collective::ReduceOp::Sum), 4, 1);
        let source = Source::Reduced { first: 0 };
        pattern.write(source, &mut buffer);
        group.bench_function(format!("check the sum of {element}"), |bencher| {
            bencher.iter(|| assert!(pattern.check(source, black_box(&buffer)).is_none()));
        });
    }
    group.finish();
}

fn statistics(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("10,000 samples");
    group.sample_size(20).measurement_time(Duration::from_secs(1));
    let unsorted: Vec<f64> = (0..10_000u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as f64).collect();
    let ascending = sorted(unsorted.iter().copied());
    group.bench_function("sort", |bencher| bencher.iter(|| sorted(black_box(&unsorted).iter().copied())));
    group.bench_function("interval", |bencher| bencher.iter(|| median_interval(black_box(&ascending), 0.95)));
    group.bench_function("percentile", |bencher| bencher.iter(|| percentile(black_box(&ascending), 99.0)));
    group.finish();
}

/// Says for each limited bench what it costs; false where one costs more by more than noise.
fn within_limits() -> bool {
    let seen = LIMITED.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let mut within = true;
    for (name, nanoseconds) in seen.iter() {
        let ascending = sorted(nanoseconds.iter().copied());
        let (Some(middle), Some(interval)) = (median(&ascending), median_interval(&ascending, 0.95)) else { continue };
        let verdict = match () {
            () if interval.low > MOST_NANOSECONDS => "FAIL",
            () if interval.high > MOST_NANOSECONDS => "inconclusive",
            () => "PASS",
        };
        within &= verdict != "FAIL";
        tell(&format!(
            "{verdict}: {name}: {middle:.1} ns ({:.1} to {:.1}), at most {MOST_NANOSECONDS} ns",
            interval.low, interval.high
        ));
    }
    within
}

/// A closed pipe is no reason to fail.
fn tell(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}
