//! The backend of a launch: first its device, which the launch check compares, then the backend itself.

use super::description::{Launch, LaunchedBackend};
use crate::backend::Backend;
use crate::backend::mpi::MpiBackend;
use crate::backend::nccl::{DeviceFacts, Log, Opened, Options, Placing, visible_devices};
use crate::watchdog::Watch;
use crate::world::World;
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

/// Unique names of the devices that each rank sees. Collective.
fn seen_by_all(world: &dyn World) -> Result<Vec<Vec<String>>> {
    let mut all = world.gather(visible_devices().join("\n").as_bytes())?.join(&b'\0');
    world.broadcast(&mut all)?;
    let names = |rank: &str| rank.lines().map(str::to_owned).collect();
    Ok(String::from_utf8_lossy(&all).split('\0').map(names).collect())
}

impl OpenedBackend {
    /// Opens the device of a rank, if the backend needs one. Collective in what devices the ranks see; they agree on the result
    /// later.
    pub fn open(launch: &Launch, hosts: &[String], world: &dyn World) -> Result<OpenedBackend> {
        let me = world.process() as usize;
        let ranks_on_host = hosts.iter().filter(|host| **host == hosts[me]).count() as u32;
        let LaunchedBackend::Nccl(nccl) = &launch.backend else { return Ok(OpenedBackend::Mpi { ranks_on_host }) };
        let seen = seen_by_all(world)?;
        let on_this_host = |(host, seen): (&String, Vec<String>)| (*host == hosts[me]).then_some(seen);
        let placing = Placing {
            visible: hosts.iter().zip(seen).filter_map(on_this_host).collect(),
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
