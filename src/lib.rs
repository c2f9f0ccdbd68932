//! commgauge measures the communication of training and serving large models on a real cluster.
//!
//! Data flow: suite file -> `config` -> `layout` -> `workload` -> `backend`, executed by `measure` -> `record` ->
//! `report`. Start reading at [`session`], then follow the names. ARCHITECTURE.md lists the layers and which module
//! may import which; `tests/offline/layers.rs` enforces it.

pub mod comma_separated;
pub mod digest;
pub mod element;
pub mod error;
pub mod host_clock;
pub mod progress;
pub mod random;
pub mod rank_list;
pub mod shared_memory;
pub mod units;
pub mod variant;

pub mod chart;
pub mod collective;
pub mod device_probe;
pub mod geometry;
#[cfg(feature = "mpi")]
pub mod mpi_call;
pub mod pattern;
pub mod sample;
pub mod stats;

pub mod config;

pub mod layout;
pub mod machine_time;
pub mod world;

pub mod workload;

pub mod backend;
pub mod record;

pub mod cost;
pub mod launch_check;
pub mod measure;
pub mod watchdog;

pub mod interop;
pub mod launch;
pub mod planner;
pub mod session;
pub mod verdict;

pub mod doctor;
pub mod report;

pub mod cli;
