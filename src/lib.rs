//! commgauge measures the communication of training and serving large models on a real cluster.
//!
//! Data flow: suite file -> `config` -> `layout` -> `workload` -> `backend`, executed by `measure` -> `record` ->
//! `report`. Start reading at [`session`], then follow the names. The rooms live in eight crates, of which each may use
//! only those before it; ARCHITECTURE.md says what is where, and `tests/offline/layers.rs` holds the order of the rooms.

#![forbid(unsafe_code)]

pub use commgauge_app::{chart, cli, doctor, launch, report, store};
pub use commgauge_base::{
    collective, digest, element, error, geometry, host, pattern, progress, random, sample, stats, units, variant,
    visible, writing,
};
pub use commgauge_cost::{cost, machine_time};
pub use commgauge_judge::verdict;
pub use commgauge_model::{config, layout, record, workload};
pub use commgauge_plan::planner;
pub use commgauge_readers::{interop, trace};
#[cfg(feature = "mpi")]
pub use commgauge_run::mpi_call;
pub use commgauge_run::{backend, device_probe, launch_check, measure, session, watchdog, world};

/// Has records, `--version` and reports name the commit of this build. Every program calls it first.
pub fn name_commit() {
    record::header::set_program_version(env!("COMMGAUGE_VERSION"));
}
