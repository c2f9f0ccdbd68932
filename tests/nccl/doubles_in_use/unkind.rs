//! What real devices and NCCL do to whoever takes them for kind: late submission, waits that no call names, connections on the calling
//! thread, a bounded queue of work, communicators that cost, kernels without room.

use crate::doubles_in_use::api::{Cuda, Kernels, Library, UniqueId, call, good};
use crate::doubles_in_use::nccl::{Config, Rank, eventually};
use std::ffi::c_int;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Long enough that whatever does not wait is through, and a thread that waits is not.
const A_WHILE: Duration = Duration::from_millis(60);

/// Parameters of `occupy` for none.
const NO_TIME: [u64; 8] = [0, 1, 0, 0, 0, 0, 0, 0];

/// A stream that is held by a kernel until it is released.
struct Held {
    word: usize,
}

impl Held {
    fn begin(cuda: &Cuda, kernels: &Kernels) -> Held {
        let (mut word, late) = (0usize, cuda.allocate(4));
        good!(cuda.library, "cuMemHostAlloc", &mut word => *mut usize, 4 => usize, 0 => u32);
        let held = Held { word };
        held.write(0);
        kernels.launch("hold_for_flag", 1, 1, &[word as u64, 1, 60_000_000_000, late as u64]);
        held
    }

    fn write(&self, value: u32) {
        // SAFETY: the driver gave 4 bytes there; the kernel reads them as volatile.
        unsafe { (self.word as *mut u32).write_volatile(value) };
    }

    fn release(self) {
        self.write(1);
    }
}

/// Does something in a thread of its own on the device of this one; its end can be waited for.
fn in_thread(work: impl FnOnce(&Library, &Library) + Send + 'static) -> Receiver<()> {
    let cuda = Library::load("libcuda.so");
    let mut context = 0usize;
    good!(cuda, "cuCtxGetCurrent", &mut context => *mut usize);
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let cuda = Library::load("libcuda.so");
        good!(cuda, "cuCtxSetCurrent", context => usize);
        work(&cuda, &Library::load("libnccl.so.2"));
        let _ = sender.send(());
    });
    receiver
}

#[track_caller]
fn ends(what: &Receiver<()>) {
    what.recv_timeout(Duration::from_secs(20)).expect("it ends");
}

#[track_caller]
fn waits(what: &Receiver<()>) {
    assert!(what.recv_timeout(A_WHILE).is_err(), "it does not wait");
}

/// Work begins 2 to 4 us after the call, a record takes 1 us, and times are multiples of a quantum.
pub fn events_come_late_and_in_steps() {
    for device in 0..2 {
        let cuda = Cuda::start(device);
        for _ in 0..20 {
            let begun = Instant::now();
            let event = cuda.mark();
            cuda.synchronize();
            assert!(begun.elapsed() >= Duration::from_nanos(3_000), "a submission and a record");
            good!(cuda.library, "cuEventDestroy_v2", event => usize);
        }
        let marks: Vec<usize> = (0..21).map(|_| cuda.mark()).collect();
        cuda.synchronize();
        let nanoseconds = |from: usize, to: usize| (f64::from(cuda.milliseconds(from, to)) * 1e6).round();
        assert!(nanoseconds(marks[0], marks[20]) >= 19_500.0, "20 records");
        for pair in marks.windows(2) {
            assert_eq!(nanoseconds(pair[0], pair[1]) % 500.0, 0.0);
        }
    }
    // Of two devices: a stream of one waits for an event of the other, which is recorded on its own streams alone, and has its own clock.
    let (one, mut milliseconds) = (Cuda::start(0), 0f32);
    let of_one = one.mark();
    let other = Cuda::start(1);
    let of_other = other.mark();
    good!(one.library, "cuStreamWaitEvent", one.stream => usize, of_other => usize, 0 => u32);
    assert_eq!(call!(one.library, "cuEventRecord", of_other => usize, one.stream => usize), 400);
    one.synchronize();
    other.synchronize();
    let elapsed =
        call!(one.library, "cuEventElapsedTime", &mut milliseconds => *mut f32, of_one => usize, of_other => usize);
    assert_eq!(elapsed, 400);
}

/// Memory, code, and the first launch of a kernel wait for what runs, so that a stream that is held holds them too.
pub fn what_waits_without_a_word() {
    let cuda = Cuda::start(0);
    let mut graph = 0usize;
    good!(cuda.library, "cuStreamBeginCapture_v2", cuda.stream => usize, 2 => c_int);
    good!(cuda.library, "cuStreamEndCapture", cuda.stream => usize, &mut graph => *mut usize);
    let kernels = Kernels::load(&cuda);
    let calls: [fn(&Library, usize); 5] = [
        |cuda, _| {
            let mut address = 0usize;
            good!(cuda, "cuMemAlloc_v2", &mut address => *mut usize, 8 => usize);
        },
        |cuda, _| {
            let mut address = 0usize;
            good!(cuda, "cuMemHostAlloc", &mut address => *mut usize, 8 => usize, 0 => u32);
        },
        |_, _| {
            // Loads a module, and launches a kernel of it on a stream that is not held.
            Kernels::load(&Cuda::start(0)).launch("occupy", 1, 1, &NO_TIME);
        },
        |cuda, _| good!(cuda, "cuCtxSynchronize"),
        |cuda, graph| {
            let mut executable = 0usize;
            good!(cuda, "cuGraphInstantiateWithFlags", &mut executable => *mut usize, graph => usize, 0 => u64);
        },
    ];
    for call in calls {
        let held = Held::begin(&cuda, &kernels);
        let waiting = in_thread(move |cuda, _| call(cuda, graph));
        waits(&waiting);
        held.release();
        ends(&waiting);
    }
    // A kernel that was loaded before does not wait.
    let (mut function, mut other) = (0usize, 0usize);
    good!(cuda.library, "cuStreamCreate", &mut other => *mut usize, 1 => u32);
    kernels.get("occupy", &mut function);
    kernels.launch_function(function, other, &NO_TIME);
    let held = Held::begin(&cuda, &kernels);
    kernels.launch_function(function, other, &NO_TIME);
    held.release();
    cuda.synchronize();
}

/// The first message from one rank to another holds the host until the other end comes; the next ones do not.
pub fn messages_connect_on_the_host(rank: Rank) {
    let (buffer, file) = (rank.floats(10, 1.0), |name: &str| rank.me.folder.join(name));
    let write = |name: &str| std::fs::write(file(name), "").expect("the folder is writable");
    match rank.me.rank {
        0 => {
            let begun = Instant::now();
            write("sending");
            assert_eq!(rank.send(buffer, 10, 1), 0);
            assert!(begun.elapsed() >= A_WHILE, "the other end comes later");
            assert_eq!(rank.send(buffer, 10, 1), 0);
            write("sent");
        }
        1 => {
            eventually("the first message", || file("sending").exists());
            std::thread::sleep(A_WHILE);
            assert_eq!(rank.receive(buffer, 10, 0), 0);
            eventually("the second message", || file("sent").exists());
            assert_eq!(rank.receive(buffer, 10, 0), 0);
        }
        _ => {}
    }
    rank.finish();
}

/// More work than the queue of a communicator has room for holds the host at the end of the group; graphs have room of their own.
pub fn a_full_queue_holds_the_host(rank: Rank) {
    let buffer = rank.floats(100, 1.0);
    let out = rank.floats(100, 1.0);
    let all_to_all = move |nccl: &Library, communicator: usize, stream: usize, calls: usize| {
        good!(nccl, "ncclGroupStart");
        for _ in 0..calls {
            good!(
                nccl, "ncclAlltoAll", out => usize, buffer => usize, 1 => usize, 7 => c_int, communicator => usize, stream => usize,
            );
        }
        good!(nccl, "ncclGroupEnd");
    };
    let (communicator, stream) = (rank.communicator, rank.cuda.stream);
    all_to_all(&rank.nccl, communicator, stream, 1);
    rank.cuda.synchronize();
    let kernels = Kernels::load(&rank.cuda);
    // 96 bytes for each of three ranks.
    for (calls, is_too_much) in [(3_000, false), (4_000, true)] {
        let held = Held::begin(&rank.cuda, &kernels);
        let calling = in_thread(move |_, nccl| all_to_all(nccl, communicator, stream, calls));
        if is_too_much {
            waits(&calling)
        } else {
            ends(&calling)
        }
        held.release();
        if is_too_much {
            ends(&calling);
        }
        rank.cuda.synchronize();
    }
    rank.finish();
}

/// A communicator takes memory at its first call, and descriptors when it is created, whose number is limited.
pub fn communicators_cost(rank: Rank) {
    let free = || {
        let (mut free, mut total) = (0usize, 0usize);
        good!(rank.cuda.library, "cuMemGetInfo_v2", &mut free => *mut usize, &mut total => *mut usize);
        (free, total)
    };
    let buffer = rank.floats(10, 1.0);
    let (before, total) = free();
    assert_eq!(rank.all_reduce(buffer, 10), 0);
    rank.cuda.synchronize();
    assert_eq!(before - free().0, total / 64);
    assert_eq!(rank.all_reduce(buffer, 9), 0);
    rank.cuda.synchronize();
    assert_eq!(before - free().0, total / 64, "once");
    let (mut alone, mut id) = (0usize, UniqueId([0; 128]));
    good!(rank.nccl, "ncclGetUniqueId", &mut id => *mut UniqueId);
    // SAFETY: the limit is a structure of ours.
    unsafe {
        let few = libc::rlimit { rlim_cur: 3, rlim_max: 4096 };
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &few), 0);
    }
    let code = call!(rank.nccl, "ncclCommInitRank", &mut alone => *mut usize, 1 => c_int, id => UniqueId, 0 => c_int);
    assert_eq!(code, 2, "a system error: no descriptor is left");
}

/// Kernels of two communicators, launched in one order on all ranks, of which the device holds one at a time: with a common order they end,
/// and without one ranks block each other forever if their streams start in another order.
pub fn kernels_without_room(rank: Rank) {
    let none = std::ptr::null::<Config>();
    let split = || {
        let mut part = 0usize;
        good!(
            rank.nccl, "ncclCommSplit", rank.communicator => usize, 0 => c_int, rank.me.rank as c_int => c_int, &mut part => *mut usize,
            none => *const Config,
        );
        let mut stream = 0usize;
        good!(rank.cuda.library, "cuStreamCreate", &mut stream => *mut usize, 1 => u32);
        (part, stream)
    };
    let buffer = rank.floats(10, 1.0);
    let reduce = |(part, stream): (usize, usize)| {
        good!(
            rank.nccl, "ncclAllReduce", buffer => usize, buffer => usize, 10 => usize, 7 => c_int, 2 => c_int, part => usize,
            stream => usize,
        );
    };
    let both = [split(), split()];
    for one in both {
        reduce(one);
        good!(rank.cuda.library, "cuCtxSynchronize");
    }
    let is_idle = || both.iter().all(|(_, stream)| call!(rank.cuda.library, "cuStreamQuery", *stream => usize) == 0);
    for _ in 0..20 {
        both.into_iter().for_each(reduce);
    }
    if std::env::var("COMMGAUGE_TEST_EXPECTS").is_ok_and(|expected| expected == "an end") {
        eventually("all of them", is_idle);
        return rank.finish();
    }
    std::thread::sleep(Duration::from_secs(1));
    assert!(!is_idle(), "streams start in the same order on both ranks");
    for (part, _) in both {
        good!(rank.nccl, "ncclCommAbort", part => usize);
    }
    eventually("the streams after the abort", is_idle);
}

/// Ranks that differ in whether buffers are registered, also where they did not differ at the first call.
pub fn registration_differs(rank: Rank) {
    let (mut memory, mut handle) = (0usize, 0usize);
    good!(rank.nccl, "ncclMemAlloc", &mut memory => *mut usize, 4096 => usize);
    good!(
        rank.nccl, "ncclCommRegister", rank.communicator => usize, memory => usize, 4096 => usize, &mut handle => *mut usize,
    );
    assert_eq!(rank.all_reduce(memory, 10), 0);
    rank.cuda.synchronize();
    assert_eq!(rank.state(), 0);
    if rank.me.rank == 1 {
        good!(rank.nccl, "ncclCommDeregister", rank.communicator => usize, handle => usize);
    }
    assert_eq!(rank.all_reduce(memory, 10), 0);
    eventually("the error", || rank.state() == 5);
    rank.abort();
}
