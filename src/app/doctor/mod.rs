//! Determines which backends can run on this machine, what is missing, and how to fix it. Needs neither MPI nor a GPU.
//!
//! All facts are read through [`System`], so that tests can supply arbitrary machines.

mod backends;
mod container;
mod cublas;
mod cuda;
mod devices;
mod document;
mod host;
mod launching;
mod machine;
mod nccl_library;
mod network;
mod slurm;
mod system;
#[cfg(test)]
mod tests;

pub use document::{BackendVerdict, DOCTOR_FORMAT, DOCTOR_VERSION, DoctorDocument, Finding, Section, State};
pub use machine::Machine;
pub use system::{Query, Response, System, Volume};

/// Runs all checks.
pub fn examine(system: &dyn System) -> DoctorDocument {
    let launching = launching::check(system);
    let cuda = cuda::check(system);
    let gpus = cuda.devices;
    let driver_cuda = cuda.ready.as_ref().ok().map(|answer| answer.cuda.as_str());
    let nccl = nccl_library::check(system, driver_cuda);
    let devices = devices::check(system, gpus);
    let cublas = cublas::check(system, driver_cuda);
    let sections = vec![
        launching.section,
        slurm::check(system),
        cuda.section,
        devices,
        nccl.section,
        cublas,
        network::check(system, gpus),
        host::check(system),
        container::check(system),
    ];
    DoctorDocument {
        format: DOCTOR_FORMAT.to_owned(),
        version: DOCTOR_VERSION,
        program_version: commgauge_model::record::provenance::program_version().to_owned(),
        host: system.host(),
        backends: backends::verdicts(&launching.ready, &cuda.ready, &nccl.ready),
        sections,
    }
}
