//! A launch as plain data, and what its program contributes.

use crate::backend::nccl;
use crate::launch_check::LaunchReport;
use crate::session::listener::Listener;
use crate::session::request::{Request, Resume};
use commgauge_base::error::Result;
use commgauge_base::progress::Fault;
use commgauge_base::units::Seconds;
use commgauge_model::layout::Nodes;
use commgauge_model::record::Record;
use commgauge_model::record::line::End;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How a launch is to be carried out, whatever it measures.
#[derive(Clone, Debug)]
pub struct Launch {
    /// When this process began, from which the time limit counts.
    pub begun: Instant,
    /// Who carries the calls out.
    pub backend: LaunchedBackend,
    /// Number of ranks that the launch must have; needed for a launch of one rank.
    pub expected_ranks: Option<u32>,
    /// Whether the launch ends after its check.
    pub only_check: bool,
    /// Whether ranks may differ in environment, libraries or drivers.
    pub allow_mixed: bool,
    /// The record to resume.
    pub resume: Option<ResumedRecord>,
    /// Time after which no work is begun.
    pub time_limit: Option<Seconds>,
    /// Detection of hangs.
    pub watchdog: WatchdogOptions,
}

/// A backend whose ranks are launched.
#[derive(Clone, Debug)]
pub enum LaunchedBackend {
    /// Host memory over MPI.
    Mpi,
    /// Device memory over NCCL.
    Nccl(Box<NcclLaunch>),
}

/// What a launch over NCCL needs to know.
#[derive(Clone, Debug)]
pub struct NcclLaunch {
    /// The variables that NCCL reads.
    pub environment: nccl::Environment,
    /// Options of the backend; its deadlines follow from those of the watchdog.
    pub options: nccl::Options,
    /// Device of each rank of a host, in order.
    pub device_map: Option<Vec<u32>>,
}

/// A record of an earlier launch, with which this one goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResumedRecord {
    /// The file.
    pub path: PathBuf,
    /// What may differ.
    pub options: Resume,
}

/// How hangs are detected.
#[derive(Clone, Debug)]
pub struct WatchdogOptions {
    /// Whether there is a watchdog.
    pub is_enabled: bool,
    /// How long a rank may stay in one operation, instead of what follows from each case.
    pub timeout: Option<Duration>,
    /// A rank that misbehaves, for tests.
    pub fault: Option<Fault>,
}

/// The program of a launch: plans the work once the ranks are known, and shows what the session finds. Messages and
/// results are shown on process 0 only, where nothing else is said.
pub trait Program {
    /// What is to be measured on these nodes. Called on every process.
    ///
    /// # Errors
    /// Usage errors; the other ranks need not have them.
    fn request(&self, nodes: &Nodes) -> Result<Request>;

    /// Looks at a record before it is resumed. Returns its exit code if nothing is left to measure.
    ///
    /// # Errors
    /// If it cannot be resumed.
    fn inspect_resumed(&self, record: &Record, path: &Path) -> Result<Option<i32>>;

    /// Why a launch is refused, as text; empty if it is not.
    fn refusal(&self, report: &LaunchReport) -> String;

    /// Shows the result of the launch check, where nothing else was requested.
    ///
    /// # Errors
    /// If it cannot be written.
    fn show_check(&self, report: &LaunchReport) -> Result<()>;

    /// Receives the lines of the record.
    fn listener(&mut self) -> Listener;

    /// Shows the record, also of a run that failed and so has no end.
    ///
    /// # Errors
    /// If it cannot be read or shown.
    fn show_results(&self, request: &Request, end: Option<&End>) -> Result<()>;

    /// Prints an error. Called on process 0 if all have it, else on the process that has it.
    fn print_error(&self, text: &str);
}
