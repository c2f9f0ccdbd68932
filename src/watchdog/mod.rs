//! Who holds the others up, said by a watchdog that stands beside MPI and not in it.
//!
//! Every rank stores how far it has come in a cell ([`crate::progress`]). A thread of each rank reads the cell and tells the
//! collector of its host, a small process that outlives any rank; the collectors tell the first, on the host of rank 0. When a
//! rank stays where it is for longer than its deadline, or dies, the first collector asks everybody, reports, and has all ranks
//! ended. Read on in `collector`; who begins the watch is in `start`.

mod activity;
pub mod collector;
mod deadline;
mod reporter;
mod start;
mod watched;
pub mod wire;

pub use activity::Activity;
pub use deadline::{SETUP_DEADLINE, deadline_of_case, deadline_of_product, deadline_of_replay};
pub use start::{Setup, start};
pub use watched::{WatchedCall, WatchedWorld};

use crate::backend::Call;
use crate::progress::Progress;
use crate::world::World;
use reporter::Reporter;
use std::sync::Arc;
use std::time::Duration;

/// Set in the environment of a process that is to be a host's collector and no rank, to the mark of the launch where it has one.
pub const COLLECTOR_VARIABLE: &str = "COMMGAUGE_COLLECTOR";

/// Marks every process of a launch in its environment, but for the collectors.
pub const LAUNCH_MARK: &str = "COMMGAUGE_LAUNCH";

/// The watch over this process's rank; of none where a run is not watched.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    reporter: Option<Arc<Reporter>>,
    timeout: Option<Duration>,
}

impl Watch {
    /// Nobody watches. The deadline that a user gave is then for those who can give up a call by themselves.
    pub fn of_nobody(timeout: Option<Duration>) -> Watch {
        Watch { reporter: None, timeout }
    }

    fn of(reporter: Arc<Reporter>, timeout: Option<Duration>) -> Watch {
        Watch { reporter: Some(reporter), timeout }
    }

    /// How long to wait for something that is to be given up at a deadline: where the run is watched, so long that the watchdog,
    /// who can say who is missing, comes first.
    pub fn patience(&self, deadline: Duration) -> Duration {
        if self.reporter.is_some() { deadline * 2 } else { deadline }
    }

    /// What comes next, the same on every rank. Outside of timed loops.
    pub fn begin(&self, activity: impl FnOnce() -> Activity) {
        if let Some(reporter) = &self.reporter {
            reporter.begin(activity());
        }
    }

    /// The control plane, watched.
    pub fn world<'a>(&self, world: &'a dyn World) -> WatchedWorld<'a> {
        WatchedWorld::new(world, self.progress())
    }

    /// A bound call, watched: how long it may take, until it is known how long it does.
    pub fn call<'b>(&self, call: Box<dyn Call + 'b>, deadline: Duration) -> Box<dyn Call + 'b> {
        match &self.reporter {
            Some(reporter) => {
                let fixed = self.timeout.is_some();
                Box::new(watched::WatchedCall::new(call, reporter.progress(), deadline, fixed))
            }
            None => call,
        }
    }

    /// The cell, for whoever stores finer steps than calls.
    pub fn progress(&self) -> Option<Arc<Progress>> {
        self.reporter.as_ref().map(|reporter| reporter.progress())
    }

    /// The deadline that a user gave, for everything.
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// The device of this rank, as reports should name it.
    pub fn device(&self, name: &str) {
        if let Some(reporter) = &self.reporter {
            reporter.device(name);
        }
    }

    /// Asked by rank 0 before it calls its run complete. Returns where it is; never returns where the run is being ended, so that
    /// nothing that looks like a normal ending can follow.
    pub fn conclude(&self) {
        if let Some(reporter) = &self.reporter {
            reporter.conclude();
        }
    }

    /// The last word of this rank: it ends in order, with this exit code, and where that is not 0, why.
    pub fn leave(&self, exit_code: i32, why: &str) {
        if let Some(reporter) = &self.reporter {
            reporter.leave(exit_code, why);
        }
    }
}
