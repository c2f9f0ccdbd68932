//! Ranks on several hosts: network namespaces of this machine.

#![cfg(feature = "mpi")]

#[path = "../common/mod.rs"]
mod common;

mod calibrate;
mod crowd;
mod hangs;
mod life;
mod locate;
mod out_of_reach;
mod placement;
mod played;
mod runs;
mod slurm;
mod watchdog;
