//! One run from plan to record: backends, the timed loop, the checks of a launch, the watchdog, the session. Start reading at [`session`].

// Messages go through `message::eprintln`, which does not panic where standard error is closed.
#![warn(clippy::print_stderr)]

pub mod backend;
pub mod device_probe;
pub mod launch_check;
pub mod launcher;
pub mod measure;
#[cfg(feature = "mpi")]
pub mod mpi_call;
pub mod session;
pub mod watchdog;
pub mod world;
