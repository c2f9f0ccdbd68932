//! A rank of a launch, from the start of MPI to its end.

use super::description::Program;
use crate::backend::mpi::host;
use crate::mpi_call;
use crate::watchdog::Watch;
use crate::world::{MpiWorld, World};
use commgauge_base::error::{Error, Result};
use commgauge_model::record::provenance;
use std::time::Duration;

/// Time for a launcher to forward the output of a rank.
const FORWARDING_DELAY: Duration = Duration::from_millis(200);

/// This process as a rank.
pub struct Rank {
    mpi: mpi_call::Session,
    /// The ranks of the launch.
    pub world: MpiWorld,
    /// The watchdog, once it was started.
    pub watch: Watch,
}

impl Rank {
    /// Starts MPI. Does not return if that fails.
    pub fn start(program: &dyn Program) -> Rank {
        let started = mpi_call::initialize().and_then(|mpi| Ok((mpi, MpiWorld::new()?)));
        match started {
            Ok((mpi, world)) => Rank { mpi, world, watch: Watch::default() },
            Err(error) => abort(&error, program),
        }
    }

    /// Ends MPI, and returns the exit code. Does not return if only this rank has an error: the launch is aborted.
    pub fn end(self, measured: Result<i32>, program: &dyn Program) -> i32 {
        let Rank { mpi, world, watch } = self;
        let (exit_code, why) = match measured {
            Ok(exit_code) => (exit_code, String::new()),
            Err(error) if error.is_shared() => {
                if world.process() == 0 {
                    program.print_error(&error.to_string());
                }
                (error.exit_code(), error.to_string())
            }
            Err(error) => {
                watch.leave(error.exit_code(), &error.to_string());
                abort(&error, program)
            }
        };
        watch.begin_end();
        drop(mpi);
        watch.leave(exit_code, &why);
        mpi_call::pause_before_exit(host::processors());
        exit_code
    }
}

/// Ends the whole launch after an error that only this rank knows of.
fn abort(error: &Error, program: &dyn Program) -> ! {
    let (rank, host, text) = (mpi_call::rank_of_this_process(), provenance::rank_facts(0).host, error.to_string());
    // An error of a device is reported with rank and host.
    let place = if text.starts_with("rank ") { String::new() } else { format!("{rank}host {host}: ") };
    program.print_error(&format!("{place}{text}"));
    // A busy MPICH launcher drops output that a rank wrote directly before it aborts.
    std::thread::sleep(FORWARDING_DELAY);
    mpi_call::abort(error.exit_code())
}
