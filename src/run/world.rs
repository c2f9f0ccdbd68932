//! The control plane of a launch: number of processes, collective exchange and agreement. Never part of the timed data
//! path.

pub use commgauge_base::sample::Located;

use commgauge_base::error::{Error, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The MPI that the launched programs are built for, `open-mpi` or `mpich`; `None` in a build without MPI.
pub const MPI_FLAVOR: Option<&str> = option_env!("COMMGAUGE_MPI_FLAVOR");

/// The processes of one launch. All processes must call every method except `rank` and `processes` in the same order, except `send` and
/// `receive`, which pair up.
///
/// A process runs one rank, or, on the simulated backend, a single process simulates all of them.
pub trait World {
    /// Index of this process; process 0 decides, writes and prints.
    fn process(&self) -> u32;
    /// Number of processes.
    fn processes(&self) -> u32;
    /// Waits until every process has called it.
    fn barrier(&self) -> Result<()>;
    /// Copies process 0's bytes to all.
    fn broadcast(&self, bytes: &mut Vec<u8>) -> Result<()>;
    fn broadcast_u64(&self, values: &mut [u64]) -> Result<()>;
    /// Collects every process's bytes on process 0, in process order; empty elsewhere.
    fn gather(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>>;
    /// Replaces every element by the largest over all processes and its rank (the lower rank on a tie).
    fn all_max(&self, values: &mut [Located]) -> Result<()>;
    /// Replaces every element by the smallest over all processes and its rank (the lower rank on a tie).
    fn all_min(&self, values: &mut [Located]) -> Result<()>;
    /// Sends one number to a process.
    fn send(&self, process: u32, value: u64) -> Result<()>;
    /// Receives one number from a process.
    fn receive(&self, process: u32) -> Result<u64>;
    /// Ends all processes of the launch at once with an exit code.
    fn abort(&self, exit_code: i32) -> !;
}

/// Turns one process's error into an error of all: `Ok` only if every process passed `Ok`, else, on every process, the
/// error of the first process that failed, prefixed with its number.
pub fn agree<T>(world: &dyn World, mine: Result<T>) -> Result<T> {
    let failed = if mine.is_err() { 1.0 } else { 0.0 };
    let mut worst = [Located { value: failed, rank: world.process() as i32 }];
    world.all_max(&mut worst)?;
    if worst[0].value == 0.0 {
        return mine;
    }
    let text = match &mine {
        Err(error) => format!("{} {error}", error.exit_code()),
        Ok(_) => String::new(),
    };
    let mut first = world.gather(text.as_bytes())?.into_iter().nth(worst[0].rank as usize).unwrap_or_default();
    world.broadcast(&mut first)?;
    let report = String::from_utf8_lossy(&first).into_owned();
    let (code, text) = report.split_once(' ').unwrap_or(("6", &report));
    let named = if world.processes() > 1 { format!("rank {}: {text}", worst[0].rank) } else { text.to_owned() };
    Err(Error::from_exit_code(code.parse().unwrap_or(6), named).shared())
}

/// The decision of process 0, on every process.
pub fn decided(world: &dyn World, mine: bool) -> Result<bool> {
    let mut decision = [u64::from(mine)];
    world.broadcast_u64(&mut decision)?;
    Ok(decision[0] != 0)
}

/// The value of process 0, on every process; the others' own is ignored.
pub fn from_first<T: DeserializeOwned>(world: &dyn World, mine: &impl Serialize) -> Result<T> {
    let mut bytes = if world.process() == 0 { encoded(mine)? } else { Vec::new() };
    world.broadcast(&mut bytes)?;
    decoded(&bytes)
}

/// The values of all processes, on process 0 in process order; empty elsewhere.
pub fn gather_all<T: DeserializeOwned>(world: &dyn World, mine: &impl Serialize) -> Result<Vec<T>> {
    world.gather(&encoded(mine)?)?.iter().map(|bytes| decoded(bytes)).collect()
}

/// The values of all processes, on every process.
pub fn share_all<T: Serialize + DeserializeOwned>(world: &dyn World, mine: &T) -> Result<Vec<T>> {
    from_first(world, &gather_all::<T>(world, mine)?)
}

/// The value of the lowest process that has one, on every process.
pub fn from_lowest<T: Serialize + DeserializeOwned>(world: &dyn World, mine: Option<T>) -> Result<Option<T>> {
    let mut lowest = [Located { value: f64::from(u8::from(mine.is_none())), rank: world.process() as i32 }];
    world.all_min(&mut lowest)?;
    if lowest[0].value > 0.0 {
        return Ok(None);
    }
    let mut found = world.gather(&encoded(&mine)?)?.into_iter().nth(lowest[0].rank as usize).unwrap_or_default();
    world.broadcast(&mut found)?;
    decoded(&found)
}

fn encoded(value: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(value).map_err(unshared)
}

fn decoded<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    serde_json::from_slice(bytes).map_err(unshared)
}

fn unshared(cause: serde_json::Error) -> Error {
    Error::environment(format!("ranks cannot share a value: {cause}"))
}

/// The ranks that MPI starts: one process, one rank, on a separate communicator.
#[cfg(feature = "mpi")]
impl World for crate::mpi_call::Communicator {
    fn process(&self) -> u32 {
        self.rank()
    }

    fn processes(&self) -> u32 {
        self.ranks()
    }

    fn barrier(&self) -> Result<()> {
        self.barrier()
    }

    fn broadcast(&self, bytes: &mut Vec<u8>) -> Result<()> {
        self.broadcast(bytes)
    }

    fn broadcast_u64(&self, values: &mut [u64]) -> Result<()> {
        self.broadcast_u64(values)
    }

    fn gather(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.gather(bytes)
    }

    fn all_max(&self, values: &mut [Located]) -> Result<()> {
        self.all_max(values)
    }

    fn all_min(&self, values: &mut [Located]) -> Result<()> {
        self.all_min(values)
    }

    fn send(&self, process: u32, value: u64) -> Result<()> {
        self.send(process, value)
    }

    fn receive(&self, process: u32) -> Result<u64> {
        self.receive(process)
    }

    fn abort(&self, exit_code: i32) -> ! {
        crate::mpi_call::abort(exit_code)
    }
}

// A world of one process: the simulated backend, and tests without a launcher.

/// A world of one process, without communication.
#[derive(Debug, Default)]
pub struct SoloWorld;

impl World for SoloWorld {
    fn process(&self) -> u32 {
        0
    }

    fn processes(&self) -> u32 {
        1
    }

    fn barrier(&self) -> Result<()> {
        Ok(())
    }

    fn broadcast(&self, _: &mut Vec<u8>) -> Result<()> {
        Ok(())
    }

    fn broadcast_u64(&self, _: &mut [u64]) -> Result<()> {
        Ok(())
    }

    fn gather(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        Ok(vec![bytes.to_vec()])
    }

    fn all_max(&self, _: &mut [Located]) -> Result<()> {
        Ok(())
    }

    fn all_min(&self, _: &mut [Located]) -> Result<()> {
        Ok(())
    }

    fn send(&self, process: u32, _: u64) -> Result<()> {
        Err(Error::environment(format!("this launch has one process; there is no process {process} to send to")))
    }

    fn receive(&self, process: u32) -> Result<u64> {
        Err(Error::environment(format!("this launch has one process; there is no process {process} to receive from")))
    }

    fn abort(&self, exit_code: i32) -> ! {
        std::process::exit(exit_code)
    }
}
