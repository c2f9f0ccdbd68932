//! The thin checked layer over the C interface of MPI: every return code is checked.
//!
//! The `mpi` crate provides launch, bindings and handles; its safe calls drop the return codes, so the calls for data
//! and agreement are here. The few `unsafe` blocks of the project are in this module and in `backend::mpi`. Sections
//! named `MPI-3.1 n.m` are those of the MPI standard, version 3.1.

mod communicator;
mod counts;
mod data;
mod exit_pause;
mod inherited;
mod kinds;
mod nonblocking;

pub use communicator::Communicator;
pub use data::Prepared;
pub use exit_pause::pause_before_exit;
pub use inherited::close_inherited_files;
pub use kinds::{Datatype, Operation};
pub use nonblocking::{Message, Request};

use commgauge_base::error::{Error, Result};
use commgauge_base::message::eprintln;
use mpi::ffi;
use std::ffi::c_int;

// An MPI family's handles are pointers (Open MPI) or ints (MPICH): bindings of one and headers of the other would be
// memory corruption, not a link error. It happens when MPICC changes under an existing target directory.
const _: () = assert!(
    (size_of::<ffi::MPI_Comm>() == 8) == cfg!(commgauge_open_mpi),
    "the mpi-sys bindings in this target directory are of another MPI: use one target directory per MPI, or run cargo clean -p mpi-sys"
);

/// Turns a return code into an error that names the call.
#[inline(always)]
pub(crate) fn check(code: c_int, call: &'static str) -> Result<()> {
    if code == ffi::MPI_SUCCESS as c_int { Ok(()) } else { Err(failure(code, call)) }
}

#[cold]
fn failure(code: c_int, call: &'static str) -> Error {
    let (mut class, mut length) = (0, 0);
    let mut text = vec![0u8; ffi::MPI_MAX_ERROR_STRING as usize + 1];
    // SAFETY: the text has room for MPI_MAX_ERROR_STRING characters and a zero (MPI-3.1 8.3), the ints are ours.
    unsafe {
        ffi::MPI_Error_class(code, &mut class);
        ffi::MPI_Error_string(code, text.as_mut_ptr().cast(), &mut length);
    }
    text.truncate(length.clamp(0, ffi::MPI_MAX_ERROR_STRING as c_int) as usize);
    let text = String::from_utf8_lossy(&text).lines().map(str::trim).collect::<Vec<_>>().join("; ");
    Error::environment(format!("{call} failed with MPI error class {class}: {text}"))
}

/// MPI for as long as the process uses it. Dropping it finalises, which waits for all ranks.
pub struct Session {
    _universe: mpi::environment::Universe,
}

/// Initialises MPI. From here on a panic of any thread ends the whole launch with exit code 6, because a rank that
/// unwinds would finalise and leave the others waiting forever.
///
/// # Errors
/// If MPI was initialised before.
pub fn initialize() -> Result<Session> {
    abort_on_panic();
    crash_by_signals();
    let started = mpi::initialize_with_threading(mpi::Threading::Funneled);
    let (universe, _) = started.ok_or_else(|| Error::environment("MPI was initialised before".to_owned()))?;
    // SAFETY: MPI is initialised; both handles are MPI's own constants. Communicators split off inherit the handler (MPI-3.1 8.3).
    let code = unsafe { ffi::MPI_Comm_set_errhandler(ffi::RSMPI_COMM_WORLD, ffi::RSMPI_ERRORS_RETURN) };
    check(code, "MPI_Comm_set_errhandler")?;
    Ok(Session { _universe: universe })
}

/// What a rank does with its processor while it waits for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// Keeps it: each rank has one of its own.
    Spins,
    /// Yields it: ranks share processors, and the rank that is waited for may not be scheduled otherwise.
    Yields,
}

impl Waiting {
    /// How the ranks of a host wait.
    pub fn of_ranks(ranks_on_host: u32, processors: u32) -> Waiting {
        if ranks_on_host > processors { Waiting::Yields } else { Waiting::Spins }
    }

    /// One pause between two looks at what is waited for.
    #[inline]
    pub fn pause(self) {
        match self {
            Waiting::Spins => std::hint::spin_loop(),
            Waiting::Yields => std::thread::yield_now(),
        }
    }
}

/// Sets how this process waits inside calls of MPI. It yields from its start; before measuring it is set to spin if each
/// rank has a processor of its own. For MPICH, which has no setting for it (`yielding.c`); launchers configure Open MPI
/// themselves.
pub fn set_waiting(waiting: Waiting) {
    #[cfg(not(commgauge_open_mpi))]
    {
        unsafe extern "C" {
            fn commgauge_yield_while_waiting(on: c_int);
        }
        // SAFETY: the function stores a number, atomically.
        unsafe { commgauge_yield_while_waiting(c_int::from(waiting == Waiting::Yields)) };
    }
    #[cfg(commgauge_open_mpi)]
    let _ = waiting;
}

/// Ends all processes of the launch with an exit code. Codes survive the launchers only through `MPI_Abort`.
pub fn abort(exit_code: i32) -> ! {
    if mpi::environment::is_initialized() && !mpi::environment::is_finalized() {
        // SAFETY: MPI is initialised and not finalised; the call does not return (MPI-3.1 8.7).
        unsafe { ffi::MPI_Abort(ffi::RSMPI_COMM_WORLD, exit_code) };
    }
    std::process::exit(exit_code)
}

/// The library's own name and version, in short.
pub fn library_version() -> String {
    mpi::environment::library_version().map_or_else(|_| "unknown MPI".to_owned(), |text| name_and_version(&text))
}

/// The first line of what a library says of itself, without the package of Open MPI, and without the label that MPICH and its kin
/// put before the number.
fn name_and_version(text: &str) -> String {
    let first = text.lines().next().unwrap_or_default().split(", package").next().unwrap_or_default();
    let words: Vec<&str> =
        first.split_whitespace().filter(|word| !matches!(*word, "Version:" | "Version" | ":")).collect();
    words.join(" ")
}

/// Has SIGSEGV and SIGBUS end this process also when another process sends them. Rust's handler takes them for a fault
/// of the running instruction and returns to repeat it, so that the first one from outside has no effect. MPI libraries
/// install handlers of their own, which print a backtrace, only where there is none.
fn crash_by_signals() {
    for signal in [libc::SIGSEGV, libc::SIGBUS] {
        // SAFETY: restores the default of the system, which runs no code of ours (signal(2)).
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

fn abort_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        eprintln!("commgauge: {}a broken assumption on host {host}; ending the whole launch", rank_of_this_process());
        report(panic);
        abort(6);
    }));
}

/// `rank 3: `, or nothing before MPI knows.
pub fn rank_of_this_process() -> String {
    if !mpi::environment::is_initialized() || mpi::environment::is_finalized() {
        return String::new();
    }
    let mut rank = 0;
    // SAFETY: MPI is initialised and not finalised; `rank` is ours.
    unsafe { ffi::MPI_Comm_rank(ffi::RSMPI_COMM_WORLD, &mut rank) };
    format!("rank {rank}: ")
}

#[cfg(test)]
mod tests {
    use super::name_and_version;

    #[test]
    fn what_libraries_say_of_themselves_becomes_a_name_and_a_version() {
        for (text, expected) in [
            (
                "Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4, repo rev: v4.1.4, May 26, 2022",
                "Open MPI v4.1.4",
            ),
            ("MPICH Version:\t4.0.2\nMPICH Release date:\tThu Apr  7 12:34:45 CDT 2022\n", "MPICH 4.0.2"),
            ("MVAPICH2 Version      :\t2.3.7\n", "MVAPICH2 2.3.7"),
            ("Intel(R) MPI Library 2021.18 for Linux* OS\n", "Intel(R) MPI Library 2021.18 for Linux* OS"),
        ] {
            assert_eq!(name_and_version(text), expected);
        }
    }
}
