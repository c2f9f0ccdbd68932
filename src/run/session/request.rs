//! The request for a run, checked and as plain data.

use crate::launch_check::LaunchFacts;
use crate::measure::InjectedDelay;
use crate::watchdog::Watch;
use commgauge_model::config::{LayoutTable, Machine, RunSettings};
use commgauge_model::record::line::{Line, SuiteFacts};
use commgauge_model::workload::replay::{ReplayOptions, TracedReplay};
use commgauge_model::workload::{Interference, WorkPlan};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// Everything that a session needs to measure and to write its header.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Name of the measuring program.
    pub program: &'static str,
    /// Unique name of the run.
    pub run_id: String,
    /// The suite, or the sweep that replaces it.
    pub suite: SuiteFacts,
    /// The cases and matrix products to run.
    pub plan: WorkPlan,
    pub settings: RunSettings,
    /// Machine from which bounds are derived; when simulated, also the times.
    pub machine: Option<Machine>,
    /// Number of ranks.
    pub world_size: u32,
    /// The record to write or to resume.
    pub record: PathBuf,
    /// Options for resuming the record of an earlier launch.
    pub resume: Option<Resume>,
    /// Result of the launch check; empty for a run without launch.
    pub launch: LaunchFacts,
    /// The launch command, where `commgauge run` built it.
    pub launch_command: Option<Vec<String>>,
    /// Requested faults.
    pub injected: InjectedFaults,
    /// Labels that distinguish all cases of this run from the same cases of others, such as a forced algorithm.
    pub labels: BTreeMap<String, String>,
    /// What is measured after the plan.
    pub after_plan: AfterPlan,
    /// The watchdog of this rank; disabled by default.
    pub watch: Watch,
    /// Receives the lines of the record as they are written; empty by default.
    pub listener: Listener,
}

/// Faults to verify that they are reported.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct InjectedFaults {
    /// A rank to delay in every isolated iteration.
    pub delay: Option<InjectedDelay>,
    /// A rank to panic at its first case, so that the launch must end and name it.
    pub panicking_rank: Option<u32>,
}

/// Measured after the cases, products and copies of a plan, in this order.
#[derive(Clone, Debug, Default)]
pub struct AfterPlan {
    /// Two calls to measure concurrently.
    pub interference: Option<Interference>,
    /// Steps to replay as a whole.
    pub replay: Option<ReplayRequest>,
    /// Adapters over which `ib_write_bw` writes between the first two hosts, by their names on both; empty for those next to the devices.
    pub perftest: Option<Vec<String>>,
}

impl Request {
    /// Notes for the record: those of the launch, and the parts that a replayed trace omits.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = self.launch.notes.clone();
        if let Some(ReplaySource::Trace(trace)) = self.after_plan.replay.as_ref().map(|replay| &replay.source) {
            notes.extend(trace.notes.iter().map(|note| format!("trace: {note}")));
        }
        notes
    }

    /// A run of all ranks in this process on a simulated machine, without a record and without work in addition to the plan.
    pub fn simulated(
        run_id: String,
        suite: SuiteFacts,
        plan: WorkPlan,
        settings: RunSettings,
        machine: &Machine,
        world_size: u32,
    ) -> Request {
        Request {
            program: "commgauge",
            run_id,
            suite,
            plan,
            settings,
            machine: Some(machine.clone()),
            world_size,
            ..Request::default()
        }
    }
}

/// Options for resuming a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resume {
    /// Whether hosts, binary, versions and environment may differ from the record; the differences are then recorded.
    pub allow_changed: bool,
}

/// A step or a trace to replay.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplayRequest {
    pub source: ReplaySource,
    pub options: ReplayOptions,
}

/// Where the calls of a replay come from.
#[derive(Clone, Debug, PartialEq)]
pub enum ReplaySource {
    /// The steps of a layout with as many ranks as the run; they have the indices of those of the plan.
    Steps(Box<LayoutTable>),
    /// The trace of a job with as many ranks as the run.
    Trace(Arc<TracedReplay>),
}

type LineCallback = dyn FnMut(&Line) + Send;

/// Receives the lines of process 0, between cases; empty by default.
#[derive(Clone, Default)]
pub struct Listener(Option<Arc<Mutex<LineCallback>>>);

impl Listener {
    /// Calls `callback` with every line after it is written to the record.
    pub fn new(notify: impl FnMut(&Line) + Send + 'static) -> Listener {
        Listener(Some(Arc::new(Mutex::new(notify))))
    }

    pub(super) fn notify(&self, line: &Line) {
        // A callback that panicked is not called again.
        if let Some(Ok(mut notify)) = self.0.as_ref().map(|notify| notify.lock()) {
            notify(line);
        }
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Listener" } else { "Listener without callback" })
    }
}
