//! Ranks under the launcher of the MPI that the build found, on this host.

#![cfg(feature = "mpi")]

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/trial.rs"]
mod trial;

mod aside;
mod calibrate;
mod check;
mod data;
mod faults;
mod hangs;
mod late;
mod pairs;
mod refusals;
mod resume;
mod routed;
mod run;
mod step;
mod stops;
