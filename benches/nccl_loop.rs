//! Host time that the streaming cadence adds to a bare `ncclAllReduce`: both enqueue on a stream of the stand-ins for CUDA and NCCL
//! (tests/doubles), in blocks that follow each other. Both streams are held meanwhile, so that no thread of the stand-ins takes part.

#[path = "../tests/common/doubles.rs"]
#[allow(dead_code, reason = "the tests use the rest of it")]
mod doubles;

use commgauge::backend::nccl::{NcclBackend, Opened, Options, Placing};
use commgauge::backend::{Backend, Binding, Call};
use commgauge::collective::{Collective, Placement};
use commgauge::element::ElementType;
use commgauge::error::{Error, Result};
use commgauge::host::now_nanoseconds;
use commgauge::layout::{Axis, Groups};
use commgauge::measure::enqueue_stream;
use commgauge::mpi_call;
use commgauge::sample::Cadence;
use commgauge::stats::{median, median_interval, sorted};
use commgauge::workload::{Op, Style};
use criterion::Criterion;
use std::ffi::{c_int, c_void};
use std::hint::black_box;
use std::io::Write;
use std::process::{Command, ExitCode};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// What an iteration may cost the host above the bare call.
const MOST_NANOSECONDS: f64 = 150.0;
const BYTES: u64 = 8;
const DEADLINE: Duration = Duration::from_secs(60);
/// Blocks are so short that what else runs on the machine strikes few of them.
const CALLS: u32 = 200;
const ROUNDS: usize = 4_000;
/// Longer than any block.
const HELD_NANOSECONDS: u64 = 10_000_000_000;
/// Set in the process that runs with the stand-ins in its way: the loader reads the path to libraries only at the start.
const INSIDE: &str = "COMMGAUGE_BENCH_INSIDE";

fn main() -> ExitCode {
    if std::env::var_os(INSIDE).is_none() {
        return again_with_the_stand_ins();
    }
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "nccl_loop: {error}");
            ExitCode::from(error.exit_code() as u8)
        }
    }
}

fn again_with_the_stand_ins() -> ExitCode {
    let mut command = Command::new(std::env::current_exe().expect("this program has a file"));
    doubles::with_doubles(&mut command, 1).args(std::env::args_os().skip(1)).env(INSIDE, "1");
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    let status = command.status().expect("this program can be started again");
    ExitCode::from(status.code().unwrap_or(1) as u8)
}

fn run() -> Result<bool> {
    let _mpi = mpi_call::initialize()?;
    let mut backend = open()?;
    let groups = Groups::world(1);
    backend.connect(0, &groups)?;
    let bare = Bare::connect();
    let op = Op::new(Style::Sweep, Axis::World, Collective::AllReduce, ElementType::Float32, BYTES);
    let geometry = op.geometry(1).map_err(Error::usage)?;
    let binding = Binding {
        op: &op,
        placement: Placement::OutOfPlace,
        groups: &groups,
        groups_number: 0,
        geometry: &geometry,
        seed: 1,
        warm_buffers: false,
        variant: Default::default(),
        cadence: Cadence::Streaming,
        rotation_within: None,
    };
    let mut call = backend.bind(&binding)?;
    call.fill()?;
    let quick = std::env::args().any(|word| word == "--quick");
    if !quick {
        criterion_of(call.as_mut(), &bare);
    }
    let mut within = true;
    for (name, calls) in [("all calls in one sample", CALLS), ("10 calls in a sample", 10)] {
        within &= paired(call.as_mut(), &bare, name, calls, if quick { ROUNDS / 20 } else { ROUNDS })?;
    }
    Ok(within)
}

fn open() -> Result<NcclBackend> {
    let placing = Placing { ranks_on_host: 1, host: "here".to_owned(), ..Placing::default() };
    Opened::find(Options::default(), placing)?.into_backend(None)
}

/// The absolute times, as criterion sees them.
fn criterion_of(call: &mut dyn Call, bare: &Bare) {
    let mut criterion =
        Criterion::default().warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2));
    for (name, which) in [("ncclAllReduce alone", Which::Bare), ("streaming iteration over NCCL", Which::Ours(CALLS))] {
        criterion.bench_function(name, |bencher| {
            bencher.iter_custom(|iterations| {
                let blocks = iterations.div_ceil(u64::from(CALLS));
                let nanoseconds: f64 = (0..blocks).map(|_| block(call, bare, which).expect("the call runs")).sum();
                Duration::from_nanos((nanoseconds * iterations as f64 / blocks as f64) as u64)
            });
        });
    }
    criterion.final_summary();
}

/// What a block calls.
#[derive(Clone, Copy)]
enum Which {
    /// The streaming cadence, with this many calls per sample.
    Ours(u32),
    Bare,
}

/// Nanoseconds of host time for each call of a block. Both streams are held for either kind, so that all else is alike.
fn block(call: &mut dyn Call, bare: &Bare, which: Which) -> Result<f64> {
    let (calls_per_sample, ours) = match which {
        Which::Ours(calls) => (calls, true),
        Which::Bare => (CALLS, false),
    };
    let samples = CALLS / calls_per_sample;
    call.reserve_marks(samples as usize + 1);
    let call = black_box(call);
    call.hold_until(now_nanoseconds() + HELD_NANOSECONDS);
    bare.hold();
    let begin = now_nanoseconds();
    if ours {
        enqueue_stream(call, samples, calls_per_sample)?;
    } else {
        bare.enqueue();
    }
    let nanoseconds = now_nanoseconds() - begin;
    bare.release();
    // Moves the end of the hold to now.
    call.hold_until(now_nanoseconds());
    call.complete(DEADLINE)?;
    Ok(nanoseconds as f64 / f64::from(CALLS))
}

/// Blocks of ours, of the bare call and of the bare call again, in every order equally often.
fn paired(call: &mut dyn Call, bare: &Bare, name: &str, calls_per_sample: u32, rounds: usize) -> Result<bool> {
    let mut rows = Vec::with_capacity(rounds);
    for round in 0..rounds {
        let mut row = [0.0; 3];
        for turn in 0..3 {
            let kind = (turn + round) % 3;
            row[kind] = block(call, bare, if kind == 0 { Which::Ours(calls_per_sample) } else { Which::Bare })?;
        }
        rows.push(row);
    }
    let middle = |kind: usize| median(&sorted(rows.iter().map(|row| row[kind]))).unwrap_or(f64::NAN);
    let (more, high) = differences(&rows, 0);
    let (again, _) = differences(&rows, 2);
    let verdict = if high <= MOST_NANOSECONDS { "PASS" } else { "FAIL" };
    let text = format!(
        "{name}: {:.0} ns for each iteration, the bare call {:.0} ns; {more} more (limit {MOST_NANOSECONDS:.0} ns); \
         bare against bare {again}: {verdict}\n",
        middle(0),
        middle(1)
    );
    let _ = std::io::stdout().write_all(text.as_bytes());
    Ok(verdict == "PASS")
}

/// The median difference of a kind to the bare call next to it, in words, and the upper end of its interval.
fn differences(rows: &[[f64; 3]], kind: usize) -> (String, f64) {
    let differences = sorted(rows.iter().map(|row| row[kind] - row[1]));
    let at = |share: f64| differences[(share * (differences.len() - 1) as f64) as usize];
    let (low, high) = median_interval(&differences, 0.95)
        .map_or((f64::NEG_INFINITY, f64::INFINITY), |interval| (interval.low, interval.high));
    (
        format!(
            "{:.1} ns [{low:.1}, {high:.1}], half of the blocks within {:.1} to {:.1}",
            at(0.5),
            at(0.25),
            at(0.75)
        ),
        high,
    )
}

/// The call with nothing around it: a communicator of one rank, a stream and a buffer of its own.
struct Bare {
    all_reduce: AllReduce,
    synchronize: unsafe extern "C" fn(*mut c_void) -> c_int,
    launch_host: LaunchHost,
    communicator: *mut c_void,
    stream: *mut c_void,
    send: u64,
    receive: u64,
}

type AllReduce =
    unsafe extern "C" fn(*const c_void, *mut c_void, usize, c_int, c_int, *mut c_void, *mut c_void) -> c_int;
type LaunchHost = unsafe extern "C" fn(*mut c_void, extern "C" fn(*mut c_void), *mut c_void) -> c_int;
type InitRank = unsafe extern "C" fn(*mut *mut c_void, c_int, [u8; 128], c_int) -> c_int;

/// ncclFloat32 and ncclSum (nccl.h).
const FLOAT32: c_int = 7;
const SUM: c_int = 0;

impl Bare {
    fn connect() -> Bare {
        let (mut communicator, mut stream, mut id) = (null_mut(), null_mut(), [0u8; 128]);
        let (mut send, mut receive) = (0u64, 0u64);
        // SAFETY: the types are those of nccl.h and cuda.h, an id being 128 bytes; the device's context is current in this thread;
        // both libraries stay loaded, as they are never closed.
        unsafe {
            let cuda = open_library("libcuda.so.1");
            let nccl = open_library("libnccl.so.2");
            let create: unsafe extern "C" fn(*mut *mut c_void, u32) -> c_int = symbol(cuda, "cuStreamCreate");
            let allocate: unsafe extern "C" fn(*mut u64, usize) -> c_int = symbol(cuda, "cuMemAlloc_v2");
            let unique_id: unsafe extern "C" fn(*mut [u8; 128]) -> c_int = symbol(nccl, "ncclGetUniqueId");
            let init_rank: InitRank = symbol(nccl, "ncclCommInitRank");
            assert_eq!(create(&mut stream, 1), 0, "cuStreamCreate");
            assert_eq!([allocate(&mut send, BYTES as usize), allocate(&mut receive, BYTES as usize)], [0, 0]);
            assert_eq!(unique_id(&mut id), 0, "ncclGetUniqueId");
            assert_eq!(init_rank(&mut communicator, 1, id, 0), 0, "ncclCommInitRank");
            let all_reduce: AllReduce = symbol(nccl, "ncclAllReduce");
            let synchronize = symbol(cuda, "cuStreamSynchronize");
            let launch_host = symbol(cuda, "cuLaunchHostFunc");
            Bare { all_reduce, synchronize, launch_host, communicator, stream, send, receive }
        }
    }

    fn hold(&self) {
        HELD.store(true, Ordering::Release);
        // SAFETY: the stream lives, and the function takes nothing.
        assert_eq!(unsafe { (self.launch_host)(self.stream, held, null_mut()) }, 0, "cuLaunchHostFunc");
    }

    fn enqueue(&self) {
        let count = BYTES as usize / 4;
        let Bare { communicator, stream, .. } = *black_box(self);
        let (send, receive) = (self.send as *const c_void, self.receive as *mut c_void);
        for _ in 0..CALLS {
            // SAFETY: buffers, communicator and stream are this value's, which lives as long as the process.
            let code = unsafe { (self.all_reduce)(send, receive, count, FLOAT32, SUM, communicator, stream) };
            assert_eq!(code, 0, "ncclAllReduce");
        }
    }

    fn release(&self) {
        HELD.store(false, Ordering::Release);
        // SAFETY: the stream lives.
        assert_eq!(unsafe { (self.synchronize)(self.stream) }, 0, "cuStreamSynchronize");
    }
}

/// Whether the bare call's stream is held.
static HELD: AtomicBool = AtomicBool::new(false);

/// What holds it, asleep: a second thread that spins would be one more for the processors than a run has.
extern "C" fn held(_: *mut c_void) {
    while HELD.load(Ordering::Acquire) {
        std::thread::sleep(Duration::from_micros(50));
    }
}

fn open_library(name: &str) -> &'static libloading::Library {
    // SAFETY: the stand-ins' initialisers do nothing.
    let library = unsafe { libloading::Library::new(name) };
    Box::leak(Box::new(library.unwrap_or_else(|error| panic!("{name}: {error}"))))
}

/// # Safety
/// The function has this type.
unsafe fn symbol<F: Copy>(library: &libloading::Library, name: &str) -> F {
    // SAFETY: promised by the caller.
    *unsafe { library.get(name.as_bytes()) }.unwrap_or_else(|error| panic!("{name}: {error}"))
}
