//! Ranks launched by MPI: one process, one rank.

use super::{Located, World};
use crate::mpi_call::{self, Communicator};
use commgauge_base::error::Result;

/// The ranks of an MPI launch, on a separate communicator.
pub struct MpiWorld {
    control: Communicator,
}

impl MpiWorld {
    /// The world of this launch. Collective; MPI must be initialised.
    pub fn new() -> Result<MpiWorld> {
        Ok(MpiWorld { control: Communicator::world()? })
    }

    /// The lowest rank that shares memory with this one, according to MPI. Collective.
    pub fn shared_memory_leader(&self) -> Result<u32> {
        self.control.shared_memory_leader()
    }
}

impl World for MpiWorld {
    fn process(&self) -> u32 {
        self.control.rank()
    }

    fn processes(&self) -> u32 {
        self.control.ranks()
    }

    fn barrier(&self) -> Result<()> {
        self.control.barrier()
    }

    fn broadcast(&self, bytes: &mut Vec<u8>) -> Result<()> {
        self.control.broadcast_bytes(bytes)
    }

    fn broadcast_u64(&self, values: &mut [u64]) -> Result<()> {
        self.control.broadcast(values)
    }

    fn gather(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.control.gather_bytes(bytes)
    }

    fn all_max(&self, values: &mut [Located]) -> Result<()> {
        self.control.all_max(values)
    }

    fn all_min(&self, values: &mut [Located]) -> Result<()> {
        self.control.all_min(values)
    }

    fn send(&self, process: u32, value: u64) -> Result<()> {
        self.control.send(process, value)
    }

    fn receive(&self, process: u32) -> Result<u64> {
        self.control.receive(process)
    }

    fn abort(&self, exit_code: i32) -> ! {
        mpi_call::abort(exit_code)
    }
}
