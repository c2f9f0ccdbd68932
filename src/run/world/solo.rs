//! A world of one process: the simulated backend, and tests without a launcher.

use super::{Located, World};
use commgauge_base::error::{Error, Result};

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
