//! What the watchdog costs: all_reduce of 8 bytes on four ranks, back to back, in blocks watched and not watched in turn; and the
//! processor time of its threads and of its collector. Nothing is judged: a busy machine can only say within what spread.

use commgauge::backend::mpi::{MpiBackend, MpiCall};
use commgauge::backend::{Backend, Binding, Call, Marks, Mismatch};
use commgauge::collective::{Collective, Placement};
use commgauge::element::ElementType;
use commgauge::error::{Error, Result};
use commgauge::host::now_nanoseconds;
use commgauge::launch::{LauncherContext, Request, build, find, probe};
use commgauge::layout::{Axis, Groups};
use commgauge::measure::stream;
use commgauge::mpi_call;
use commgauge::mpi_call::Communicator;
use commgauge::sample::Cadence;
use commgauge::stats::{median, sorted};
use commgauge::watchdog::{self, Activity, COLLECTOR_VARIABLE, CaseDeadlines, DeadlineFollows, Setup, Watch};
use commgauge::workload::{Op, Style};
use commgauge::world::{Located, World};
use std::io::Write;
use std::process::{ExitCode, Stdio};
use std::time::Duration;

const RANKS: u32 = 4;
const BYTES: u64 = 8;
const AS_RANK: &str = "--as-rank";
/// A block has this many samples of this many calls: some milliseconds.
const SAMPLES: u32 = 20;
const CALLS: u32 = 100;
const DEFAULT_SECONDS: u64 = 30;
/// Of everything that this bench does; none is reached.
const DEADLINE: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    if std::env::var_os(COLLECTOR_VARIABLE).is_some() {
        mpi_call::close_inherited_files();
        return ExitCode::from(watchdog::collector::main() as u8);
    }
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let seconds = words.last().and_then(|word| word.parse().ok()).unwrap_or(DEFAULT_SECONDS);
    let end = if words.first().is_some_and(|word| word == AS_RANK) { as_rank(seconds) } else { launch(seconds) };
    match end {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "watchdog: {error}");
            ExitCode::from(error.exit_code() as u8)
        }
    }
}

fn launch(seconds: u64) -> Result<()> {
    let own =
        std::env::current_exe().map_err(|cause| Error::environment(format!("no path of this program: {cause}")))?;
    let request = Request {
        ranks: RANKS,
        cores: find::cores(),
        root: find::is_root(),
        program: own.to_string_lossy().into_owned(),
        program_arguments: vec![AS_RANK.to_owned(), seconds.to_string()],
        ..Request::default()
    };
    let launch = build(&find("auto", LauncherContext::here(), &probe)?, &request)?;
    let status = launch.command().stdin(Stdio::null()).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        other => Err(Error::environment(format!("`{}` ended with {other:?}", launch.for_shell()))),
    }
}

/// The same bound call, handed on, so that it can be watched for one block and not for the next.
struct Lent<'a, 'b>(&'a mut MpiCall<'b>);

impl Call for Lent<'_, '_> {
    fn fill(&mut self) -> Result<()> {
        self.0.fill()
    }
    #[inline]
    fn enqueue(&mut self) -> Result<()> {
        self.0.enqueue()
    }
    fn reserve_marks(&mut self, marks: usize) {
        self.0.reserve_marks(marks);
    }
    #[inline]
    fn mark(&mut self) {
        self.0.mark();
    }
    fn hold_until(&mut self, start: u64) -> bool {
        self.0.hold_until(start)
    }
    fn complete(&mut self, deadline: Duration) -> Result<()> {
        self.0.complete(deadline)
    }
    fn read_marks(&self, marks: &mut Marks) {
        self.0.read_marks(marks);
    }
    fn now_nanoseconds(&self) -> u64 {
        self.0.now_nanoseconds()
    }
    fn buffer_copies(&self) -> u32 {
        self.0.buffer_copies()
    }
    fn check(&mut self) -> Result<Option<Mismatch>> {
        self.0.check()
    }
    fn verifies(&self) -> bool {
        self.0.verifies()
    }
    fn abort(&mut self) {
        self.0.abort();
    }
}

fn as_rank(seconds: u64) -> Result<()> {
    let mpi = mpi_call::initialize()?;
    let world = Communicator::world()?;
    let ranks = world.processes();
    let hosts = vec!["here".to_owned(); ranks as usize];
    let record = std::env::temp_dir().join("commgauge-watchdog-bench.jsonl");
    let (signal, end_launch) = (std::sync::Arc::default(), mpi_call::abort as fn(i32) -> !);
    let setup = Setup { hosts: &hosts, record, backend: "mpi", timeout: None, signal, fault: None, end_launch };
    let watch = watchdog::start(&world, setup)?;
    watch.begin(|| Activity::named("bench", DEADLINE));
    let mut backend = MpiBackend::new(ranks)?;
    let groups = Groups::world(ranks);
    backend.connect(0, &groups)?;
    let op = Op::new(Style::Sweep, Axis::World, Collective::AllReduce, ElementType::Float32, BYTES);
    let geometry = op.geometry(ranks).map_err(Error::usage)?;
    let (placement, seed, warm_buffers) = (Placement::OutOfPlace, 1, true);
    let binding = Binding {
        op: &op,
        placement,
        variant: Default::default(),
        groups: &groups,
        groups_number: 0,
        geometry: &geometry,
        seed,
        warm_buffers,
        cadence: Cadence::Streaming,
        rotation_within: None,
    };
    let mut call = backend.bind_call(&binding)?;
    call.fill()?;
    let rows = measure(&world, &watch, &mut call, seconds)?;
    if world.process() == 0 {
        show(&rows, seconds);
    }
    drop(mpi);
    watch.leave(0, "");
    Ok(())
}

/// Nanoseconds of each block on its slowest rank: watched, not watched, not watched again.
fn measure(world: &dyn World, watch: &Watch, call: &mut MpiCall, seconds: u64) -> Result<Vec<[f64; 3]>> {
    let begun = now_nanoseconds();
    let mut rows = Vec::new();
    loop {
        let mut continues = [u64::from(now_nanoseconds() - begun < seconds * 1_000_000_000)];
        world.broadcast_u64(&mut continues)?;
        if continues[0] == 0 {
            return Ok(rows);
        }
        let mut times = [Located { value: 0.0, rank: world.process() as i32 }; 3];
        // Every order comes equally often.
        for turn in 0..3 {
            let kind = (turn + rows.len()) % 3;
            let mut lent: Box<dyn Call + '_> = Box::new(Lent(call));
            if kind == 0 {
                let follows = DeadlineFollows::MeasuredTimes;
                lent = watch.call(lent, CaseDeadlines { call: DEADLINE, preparation: DEADLINE, follows });
            }
            lent.reserve_marks(SAMPLES as usize + 1);
            world.barrier()?;
            let begin = now_nanoseconds();
            stream(std::hint::black_box(lent.as_mut()), SAMPLES, CALLS, DEADLINE)?;
            times[kind].value = (now_nanoseconds() - begin) as f64;
        }
        world.all_max(&mut times)?;
        rows.push(times.map(|time| time.value / f64::from(SAMPLES * CALLS)));
    }
}

fn show(rows: &[[f64; 3]], seconds: u64) {
    let mut text = format!("all_reduce of {BYTES} B on {RANKS} ranks, {} blocks of each kind\n", rows.len());
    let middle = |kind: usize| median(&sorted(rows.iter().map(|row| row[kind]))).unwrap_or(f64::NAN);
    text += &format!(
        "nanoseconds of a call: watched {:.1}, not watched {:.1}, again {:.1}\n",
        middle(0),
        middle(1),
        middle(2)
    );
    for (name, kind) in [("watched / not watched", 0), ("not watched again / not watched", 2)] {
        let ratios = sorted(rows.iter().map(|row| row[kind] / row[1]));
        let n = ratios.len() as f64;
        // Order statistics around the middle: 95 % by the binomial distribution's normal approximation.
        let at = |index: f64| ratios[(index.max(0.0) as usize).min(ratios.len() - 1)];
        let (low, high) = (at(n / 2.0 - 0.98 * n.sqrt()), at(n / 2.0 + 0.98 * n.sqrt()));
        text += &format!(
            "{name}: median of the pairs {:.4} [{low:.4}, {high:.4}], half of them within {:.3} to {:.3}\n",
            at(n / 2.0),
            at(n / 4.0),
            at(3.0 * n / 4.0)
        );
    }
    text += &format!(
        "processor time in {seconds} s: the thread of a rank {:.3} %, the collector {:.3} % of a core\n",
        100.0 * thread_seconds() / seconds as f64,
        100.0 * collector_seconds() / seconds as f64
    );
    let _ = std::io::stdout().write_all(text.as_bytes());
}

/// Of the watchdog's thread in this process.
fn thread_seconds() -> f64 {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let is_watchdog = |path: &std::path::PathBuf| {
        std::fs::read_to_string(path.join("comm")).is_ok_and(|name| name.trim() == "watchdog")
    };
    tasks.map(|task| task.path()).filter(is_watchdog).map(|path| seconds_of(&path.join("schedstat"))).sum()
}

/// Of this process's children.
fn collector_seconds() -> f64 {
    let own = std::process::id();
    let children = std::fs::read_to_string(format!("/proc/self/task/{own}/children")).unwrap_or_default();
    let path = |pid: &str| std::path::PathBuf::from(format!("/proc/{pid}/schedstat"));
    children.split_whitespace().map(|pid| seconds_of(&path(pid))).sum()
}

/// Nanoseconds on a processor are the first number.
fn seconds_of(path: &std::path::Path) -> f64 {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace().next().and_then(|number| number.parse::<f64>().ok()).unwrap_or(0.0) * 1e-9
}
