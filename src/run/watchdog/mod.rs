//! Detects hangs, with a watchdog that runs outside of MPI and reports which ranks block the others.
//!
//! Every rank stores its progress in a cell ([`commgauge_base::progress`]). A thread of each rank reads the cell and reports to
//! the collector of its host, a small process that outlives the ranks; the collectors report to the first one, on the
//! host of rank 0. When a rank stays in an operation for longer than its deadline, or dies, the first collector queries
//! all ranks, writes a report, and ends all ranks. Continue with `collector`; `start` starts the watchdog.

mod asked_to_end;
pub mod collector;
mod deadline;
mod reporter;
mod reporting_thread;
pub mod wire;

pub use asked_to_end::keep_mark_when_asked_to_end;
pub use collector::{Setup, start};
pub use deadline::{
    CaseDeadlines, DeadlineFollows, WatchedCall, WatchedWorld, deadline_of_copy, deadline_of_product,
    deadline_of_replay,
};
pub use reporter::Activity;
pub use reporting_thread::LoneReports;
pub use wire::{COLLECTOR_VARIABLE, LAUNCH_MARK, LOST_COLLECTOR, OWN_DEADLINE};

use crate::backend::Call;
use crate::world::World;
use commgauge_base::progress::Progress;
use commgauge_model::record::{Journal, Moved};
use commgauge_model::workload::Case;
use reporter::Reporter;
use std::sync::Arc;
use std::time::Duration;

/// The watchdog of this process's rank; empty if it is disabled.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    reporter: Option<Arc<Reporter>>,
    timeout: Option<Duration>,
    /// The host number of every rank, as the collectors count them.
    node_of_rank: Arc<[u32]>,
}

impl Watch {
    /// A disabled watchdog. Operations with their own deadline then use the user's timeout.
    pub fn disabled(timeout: Option<Duration>) -> Watch {
        Watch { timeout, ..Watch::default() }
    }

    fn of(reporter: Arc<Reporter>, timeout: Option<Duration>, node_of_rank: Vec<u32>) -> Watch {
        Watch { reporter: Some(reporter), timeout, node_of_rank: node_of_rank.into() }
    }

    fn tell(&self, message: impl FnOnce(&Reporter)) {
        if let Some(reporter) = &self.reporter {
            message(reporter);
        }
    }

    /// Timeout of an operation with its own deadline: if the watchdog is active, long enough that it acts first, since it can name the
    /// missing rank.
    pub fn local_timeout(&self, deadline: Duration) -> Duration {
        if self.reporter.is_some() { deadline * 2 } else { deadline }
    }

    fn ranks(&self) -> u32 {
        self.node_of_rank.len() as u32
    }

    /// Starts what ranks do together before or after the cases.
    pub fn begin_setup(&self, name: &'static str) {
        self.begin(|| Activity::named(name, deadline::setup_deadline(self.ranks())));
    }

    /// Starts the next activity, which is the same on every rank. Must be called outside of timed loops.
    pub fn begin(&self, activity: impl FnOnce() -> Activity) {
        self.tell(|reporter| reporter.begin(activity()));
    }

    /// Wraps the control plane with progress reports.
    pub fn world<'a>(&self, world: &'a dyn World) -> WatchedWorld<'a> {
        WatchedWorld::new(world, self.progress())
    }

    /// The deadlines of a case: the user's own, or the maximum for its bytes.
    pub fn deadlines_of(&self, case: &Case) -> CaseDeadlines {
        let (call, follows) = match self.timeout {
            Some(timeout) => (timeout, DeadlineFollows::Request),
            None => (deadline::deadline_of_case(case), DeadlineFollows::MeasuredTimes),
        };
        CaseDeadlines {
            call,
            preparation: deadline::deadline_of_preparation(case, self.ranks(), self.timeout),
            follows,
        }
    }

    /// Wraps a bound call with progress reports.
    pub fn call<'b>(&self, call: Box<dyn Call + 'b>, deadlines: CaseDeadlines) -> Box<dyn Call + 'b> {
        match &self.reporter {
            Some(reporter) => Box::new(deadline::WatchedCall::new(call, reporter.progress(), deadlines)),
            None => call,
        }
    }

    /// The progress cell, for finer steps than calls.
    pub fn progress(&self) -> Option<Arc<Progress>> {
        self.reporter.as_ref().map(|reporter| reporter.progress())
    }

    /// The user's deadline for everything.
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// Starts the last activity, MPI finalisation, in which ranks wait for each other and for their launcher.
    pub fn begin_end(&self) {
        self.begin(|| Activity::named("MPI_Finalize", deadline::deadline_of_end(self.ranks(), self.timeout)));
    }

    /// Sets the name of this rank's device in reports.
    pub fn device(&self, name: &str) {
        self.tell(|reporter| reporter.device(name));
    }

    /// Gives the watchdog access to the record of rank 0, which it needs to end the run.
    pub fn record(&self, journal: &Journal) {
        self.tell(|reporter| reporter.record(journal.access(), journal.path()));
    }

    /// Whether this rank's collector was lost, so that no process would name the blocking ranks.
    pub fn is_lost(&self) -> bool {
        self.reporter.as_ref().is_some_and(|reporter| reporter.is_unwatched())
    }

    /// Reports what all ranks agree on: the collector of this rank's host does not answer.
    pub fn lost_collector_of(&self, rank: u32) {
        if let (Some(reporter), Some(host)) = (&self.reporter, self.node_of_rank.get(rank as usize)) {
            reporter.lost_collector_of(*host);
        }
    }

    /// Reports that the record was removed or renamed.
    pub fn record_moved(&self, moved: &Moved) {
        wire::print_message(&moved.sentence());
        self.tell(|reporter| reporter.record_moved(moved));
    }

    /// Called by rank 0 before it records its run as complete. Does not return if the run is being ended, so that no
    /// normal ending can follow.
    pub fn conclude(&self) {
        self.tell(|reporter| reporter.conclude());
    }

    /// Reports that this rank ends normally with this exit code; if it is not 0, `why` gives the reason.
    pub fn leave(&self, exit_code: i32, why: &str) {
        self.tell(|reporter| reporter.leave(exit_code, why));
    }
}
