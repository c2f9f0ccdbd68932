//! One run from work plan to record: the table of contents of a launch.
//!
//! Every process calls [`run`] with the same request; process 0 writes the record.

mod facts;
mod preflight;
mod signals;
mod steps;

pub use signals::Signals;

use crate::backend::Backend;
use crate::config::{Machine, RunSettings};
use crate::error::{Error, Kind, Result};
use crate::measure::InjectedDelay;
use crate::record::Journal;
use crate::record::line::{End, EndStatus, Line, SuiteFacts};
use crate::units::Seconds;
use crate::workload::WorkPlan;
use crate::world::{World, agree};
use std::path::PathBuf;
use std::time::Instant;
use steps::Steps;

/// All that a run is told.
#[derive(Clone, Debug)]
pub struct Request {
    /// Name of the program that measures.
    pub program: &'static str,
    /// Unique name of the run.
    pub run_id: String,
    /// The suite, or the sweep in its place.
    pub suite: SuiteFacts,
    /// What to run.
    pub plan: WorkPlan,
    /// How samples are taken.
    pub settings: RunSettings,
    /// Where bounds come from, and the times when simulated.
    pub machine: Option<Machine>,
    /// Number of ranks.
    pub world_size: u32,
    /// The record to write.
    pub record: PathBuf,
    /// The launch command, where `commgauge run` built it.
    pub launch_command: Option<Vec<String>>,
    /// A rank to delay in every isolated iteration, to see whether it is named.
    pub injected_delay: Option<InjectedDelay>,
}

/// Runs every case of the plan in every replicate and writes the record. Returns the end line, the same on every process.
///
/// # Errors
/// What stopped the run before its first line, or an error that the launch cannot survive (the caller must then abort
/// it). Once the record is begun, its end line says what happened.
pub fn run(world: &dyn World, backend: &mut dyn Backend, request: &Request, signals: &Signals) -> Result<End> {
    let begun = Instant::now();
    let ranks = preflight::ranks(world, backend, request)?;
    let planned = preflight::plan(&ranks, request);
    preflight::memory(world, backend, request, &planned)?;
    let mut journal = open(world, request)?;
    journal.write(world, || Line::Header(Box::new(facts::header(backend, request, &ranks))))?;
    journal.write(world, || Line::Plan(facts::plan_line(request, &planned)))?;

    let measured = Steps { world, request, planned: &planned, signals }.measure_all(backend, &mut journal);
    let end = end_line(&measured, begun);
    journal.write(world, || Line::End(end.clone()))?;
    journal.finish()?;
    match measured {
        Ok(_) => Ok(end),
        Err(error) => Err(error),
    }
}

/// The record, held by process 0 only; what goes wrong with it goes wrong for all.
pub(crate) struct SharedJournal {
    journal: Option<Journal>,
}

fn open(world: &dyn World, request: &Request) -> Result<SharedJournal> {
    let mine = if world.process() == 0 { Journal::create(&request.record).map(Some) } else { Ok(None) };
    Ok(SharedJournal { journal: agree(world, mine)? })
}

impl SharedJournal {
    fn write(&mut self, world: &dyn World, line: impl FnOnce() -> Line) -> Result<()> {
        let mine = self.journal.as_mut().map_or(Ok(()), |journal| journal.write(&line()));
        agree(world, mine)
    }

    fn finish(self) -> Result<()> {
        self.journal.map_or(Ok(()), Journal::finish)
    }
}

fn end_line(measured: &Result<steps::Tally>, begun: Instant) -> End {
    let elapsed_seconds = Seconds(begun.elapsed().as_secs_f64());
    let end = |status, exit_code, error| End { status, exit_code, error, elapsed_seconds };
    match measured {
        Ok(tally) if tally.signal != 0 => {
            let stopped = Error::from(Kind::Interrupted(tally.signal));
            end(EndStatus::Interrupted, stopped.exit_code(), Some(stopped.to_string()))
        }
        Ok(tally) if tally.corrupt > 0 => {
            end(EndStatus::Complete, 4, Some(format!("{} case lines carry wrong data", tally.corrupt)))
        }
        Ok(_) => end(EndStatus::Complete, 0, None),
        Err(error) => end(EndStatus::Failed, error.exit_code(), Some(error.to_string())),
    }
}
