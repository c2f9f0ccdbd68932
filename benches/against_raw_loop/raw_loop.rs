//! The plain loop in C (benches/raw_loop.c), called on the buffers of a bound call. The only `unsafe` of the bench.

use commgauge::backend::mpi::{MpiCall, Rotation};
use commgauge::collective::Collective;
use commgauge::error::{Error, Result};
use commgauge::geometry::Geometry;
use commgauge::mpi_call::Datatype;
use mpi::ffi;
use std::ffi::{c_int, c_long};

unsafe extern "C" {
    fn commgauge_raw_loop(
        collective: c_int,
        calls: c_long,
        send: *const u8,
        receive: *mut u8,
        rotation: *mut Rotation,
        count: c_int,
        datatype: ffi::MPI_Datatype,
        communicator: ffi::MPI_Comm,
        partner: c_int,
        first: c_int,
    ) -> c_int;
}

/// The arguments that stay the same from block to block.
pub struct RawLoop {
    collective: c_int,
    count: c_int,
    datatype: Datatype,
    partner: c_int,
    first: c_int,
}

impl RawLoop {
    /// The same call as one that is bound with this geometry over the whole world.
    pub fn new(collective: Collective, geometry: &Geometry, datatype: Datatype, rank: u32) -> Result<RawLoop> {
        let number = match collective {
            Collective::AllReduce => 0,
            Collective::AllGather => 1,
            Collective::AllToAll => 2,
            Collective::PingPong => 3,
            other => return Err(Error::usage(format!("the plain loop has no {other}"))),
        };
        let half = geometry.ranks() / 2;
        Ok(RawLoop {
            collective: number,
            count: geometry.blocks[rank as usize] as c_int,
            datatype,
            partner: if rank < half { rank + half } else { rank - half } as c_int,
            first: c_int::from(rank < half),
        })
    }

    /// Calls `calls` times on the next buffers of the call's rotation.
    pub fn run(&self, call: &mut MpiCall, calls: u64) -> Result<()> {
        let parts = call.parts();
        // SAFETY: the buffers were reserved for this very call and all copies of the rotation, which is laid out as in
        // C; the communicator is alive as long as the call; count and datatype are those with which the call was bound.
        let code = unsafe {
            commgauge_raw_loop(
                self.collective,
                calls as c_long,
                parts.send,
                parts.receive,
                parts.rotation,
                self.count,
                self.datatype.raw(),
                parts.communicator,
                self.partner,
                self.first,
            )
        };
        match code {
            0 => Ok(()),
            code => Err(Error::environment(format!("the plain loop failed with MPI error code {code}"))),
        }
    }
}
