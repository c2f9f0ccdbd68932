//! Ranks under the launcher of the MPI that the build found, on this host.

#![cfg(feature = "mpi")]

#[path = "../common/blocks.rs"]
mod blocks;
#[path = "../common/mod.rs"]
mod common;
#[path = "../common/documented_run.rs"]
mod documented_run;
#[path = "../common/trial.rs"]
mod trial;

mod aside;
mod calibrate;
mod check;
mod data;
mod documented;
mod faults;
mod hangs;
mod late;
mod pairs;
mod refusals;
mod resume;
mod routed;
mod run;
mod soak;
mod step;
mod stops;
mod sweep;
mod trace;
