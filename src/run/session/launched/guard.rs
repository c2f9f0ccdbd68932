//! The watchdog of a launch: its collectors, its start, and how it learns of panics.

use super::description::{Launch, LaunchedBackend};
use crate::mpi_call;
use crate::session::request::Request;
use crate::session::signals::Signals;
use crate::watchdog::{self, Watch};
use crate::world::World;
use commgauge_base::error::Result;

/// Runs this process as a collector of the watchdog if it was started as one, and returns its exit code. To be called
/// before anything else.
pub fn run_collector() -> Option<i32> {
    std::env::var_os(watchdog::COLLECTOR_VARIABLE)?;
    // A process that is no rank must not hold the launcher's or MPI's files open.
    mpi_call::close_inherited_files();
    Some(watchdog::collector::main())
}

/// Starts the watchdog, unless it is disabled. Collective.
pub fn start(launch: &Launch, world: &dyn World, request: &Request, signals: &Signals) -> Result<Watch> {
    let options = &launch.watchdog;
    if !options.is_enabled {
        return Ok(Watch::disabled(options.timeout));
    }
    let setup = watchdog::Setup {
        hosts: &request.launch.hosts,
        record: request.record.clone(),
        backend: match launch.backend {
            LaunchedBackend::Mpi => "mpi",
            LaunchedBackend::Nccl(_) => "nccl",
        },
        timeout: options.timeout,
        signal: signals.number(),
        fault: options.fault,
        end_launch: mpi_call::abort,
    };
    watchdog::start(world, setup)
}

/// A rank that panics ends the launch; the watchdog is informed first, so that no other rank becomes a suspect.
pub fn report_panics_to(watch: &Watch) {
    let (watch, before) = (watch.clone(), std::panic::take_hook());
    std::panic::set_hook(Box::new(move |panic| {
        watch.leave(6, &format!("a broken assumption: {panic}"));
        before(panic);
    }));
}
