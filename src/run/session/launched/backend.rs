//! The backend of a launch: first its device, which the launch check compares, then the backend itself.

use super::description::{Launch, LaunchedBackend};
use crate::backend::Backend;
use crate::backend::mpi::MpiBackend;
use crate::backend::nccl::{DeviceFacts, Log, Opened, Options, Placing};
use crate::watchdog::Watch;
use commgauge_base::error::Result;

/// What a rank needs for its backend, found but not used yet.
pub enum OpenedBackend {
    /// Host memory over MPI.
    Mpi {
        /// Ranks on the host of this one.
        ranks_on_host: u32,
    },
    /// A device over NCCL.
    Nccl(Box<OpenedDevice>),
}

/// The device of a rank.
pub struct OpenedDevice {
    opened: Opened,
    placing: Placing,
    options: Options,
}

/// Sets the variables that libraries read. To be called while the process has a single thread, so before MPI starts.
pub fn prepare_environment(launch: &Launch) -> Result<Option<Log>> {
    match &launch.backend {
        LaunchedBackend::Mpi => Ok(None),
        LaunchedBackend::Nccl(nccl) => nccl.environment.prepare(),
    }
}

impl OpenedBackend {
    /// Opens the device of a rank, if the backend needs one. Not collective: ranks agree on the result later.
    pub fn open(launch: &Launch, hosts: &[String], rank: u32) -> Result<OpenedBackend> {
        let me = rank as usize;
        let ranks_on_host = hosts.iter().filter(|host| **host == hosts[me]).count() as u32;
        let LaunchedBackend::Nccl(nccl) = &launch.backend else { return Ok(OpenedBackend::Mpi { ranks_on_host }) };
        let placing = Placing {
            local_rank: hosts[..me].iter().filter(|host| **host == hosts[me]).count() as u32,
            ranks_on_host,
            host: hosts[me].clone(),
            device_map: nccl.device_map.clone(),
            share_gpu: nccl.environment.share_gpu,
        };
        let mut options = nccl.options.clone();
        options.deadlines.communicator = launch.watchdog.timeout;
        let opened = Opened::find(&options, &placing)?;
        Ok(OpenedBackend::Nccl(Box::new(OpenedDevice { opened, placing, options })))
    }

    /// Facts about the device, for the launch check.
    pub fn device_facts(&self) -> Option<DeviceFacts> {
        match self {
            OpenedBackend::Mpi { .. } => None,
            OpenedBackend::Nccl(device) => Some(device.opened.device_facts()),
        }
    }

    /// The backend, after all ranks have what it needs; the watchdog gets the name of the device. Collective.
    pub fn into_backend(self, watch: &Watch, log: Option<Log>) -> Result<Box<dyn Backend>> {
        match self {
            OpenedBackend::Mpi { ranks_on_host } => Ok(Box::new(MpiBackend::new(ranks_on_host)?)),
            OpenedBackend::Nccl(device) => {
                let OpenedDevice { opened, placing, mut options } = *device;
                options.deadlines.replay = watch.timeout().map(|timeout| watch.local_timeout(timeout));
                watch.device(&opened.device());
                Ok(Box::new(opened.into_backend(&options, &placing, log)?))
            }
        }
    }
}
