//! The record as a run writes it: new, or reopened with the work that earlier launches have completed. It is open on process 0 only, with
//! errors that all processes share.

use super::facts::{self, Planned, Ranks};
use super::pace::Tally;
use super::request::{Listener, Request, Resume};
use crate::backend::Backend;
use crate::watchdog::Watch;
use crate::world::{World, agree, from_first};
use commgauge_base::error::{Error, Result};
use commgauge_base::visible::ShownPath;
use commgauge_model::record::launch_lines::{Change, ResumeLine};
use commgauge_model::record::line::{CaseLine, Header, Line, Plan};
use commgauge_model::record::work_lines::{CalibratedCurve, CalibrationEnd, InterferingCall, PlanGrowth};
use commgauge_model::record::{Journal, Moved, Record, Reopened, changes, ensure_same_plan, reopen, table_of_changes};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Writes the lines of a run. Collective unless stated otherwise.
pub(super) struct SharedJournal<'a> {
    world: &'a dyn World,
    journal: Option<Journal>,
    listener: Listener,
    watch: Watch,
    /// Fate of the file, if it was removed or renamed.
    moved: Option<Moved>,
}

impl<'a> SharedJournal<'a> {
    /// The journal opened by process 0; the other processes have none.
    pub(super) fn new(
        world: &'a dyn World,
        journal: Option<Journal>,
        listener: &Listener,
        watch: &Watch,
    ) -> SharedJournal<'a> {
        if let Some(journal) = &journal {
            watch.record(journal);
        }
        SharedJournal { world, journal, listener: listener.clone(), watch: watch.clone(), moved: None }
    }

    /// Writes a line made by process 0.
    pub(super) fn write(&mut self, line: impl FnOnce() -> Line) -> Result<()> {
        let mine = self.write_locally(line);
        agree(self.world, mine)
    }

    /// Writes several lines.
    pub(super) fn write_all(&mut self, lines: impl FnOnce() -> Vec<Line>) -> Result<()> {
        let mine = match self.journal {
            Some(_) => lines().into_iter().try_for_each(|line| self.write_locally(|| line)),
            None => Ok(()),
        };
        agree(self.world, mine)
    }

    /// Writes a line without waiting for the other processes.
    pub(super) fn write_locally(&mut self, line: impl FnOnce() -> Line) -> Result<()> {
        let Some(journal) = self.journal.as_mut() else { return Ok(()) };
        let mut line = line();
        if let Line::End(end) = &mut line {
            end.lines_before = Some(journal.lines());
        }
        journal.write(&line)?;
        if let Some(moved) = journal.take_moved() {
            self.watch.record_moved(&moved);
            let from = self.moved.take().map_or(moved.from, |earlier| earlier.from);
            self.moved = Some(Moved { from, ..moved });
        }
        self.listener.notify(&line);
        Ok(())
    }

    /// Closes the record. An error if it is no longer at the requested path, although no data is lost.
    pub(super) fn finish(self) -> Result<()> {
        let closed = self.journal.map_or(Ok(()), Journal::finish);
        let moved = self.moved.map_or(Ok(()), |moved| Err(Error::environment(moved.sentence())));
        agree(self.world, closed.and(moved))
    }
}

// Callback for every line of the record as it is written, for example for a table that shows finished rows.

/// A piece of work, as plan and record number it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) enum WorkKey {
    Case {
        index: u32,
        replicate: u32,
    },
    Product {
        index: usize,
        replicate: u32,
    },
    Copy {
        index: usize,
        replicate: u32,
    },
    /// `timed` is which of the two calls was timed.
    Interference {
        replicate: u32,
        timed: usize,
    },
    Replay {
        step: u32,
    },
}

impl WorkKey {
    /// Index in the plan and replicate of a case; none for other work.
    pub(super) fn case(&self) -> Option<(u32, u32)> {
        match self {
            WorkKey::Case { index, replicate } => Some((*index, *replicate)),
            _ => None,
        }
    }
}

/// Work completed by earlier launches; empty for a new run.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct CompletedWork {
    done: BTreeSet<WorkKey>,
    /// Whether choosing sizes was completed.
    pub calibrated: bool,
    /// The outcomes.
    pub tally: Tally,
    #[serde(skip)]
    lines: Vec<CaseLine>,
    /// Cases added to the plan; on process 0 only.
    #[serde(skip)]
    growths: Vec<PlanGrowth>,
}

impl CompletedWork {
    pub(super) fn has(&self, work: WorkKey) -> bool {
        self.done.contains(&work)
    }

    /// The lines of some cases of the plan; empty except on process 0.
    pub(super) fn lines_of(&self, cases: std::ops::Range<usize>) -> Vec<CaseLine> {
        self.lines.iter().filter(|line| cases.contains(&(line.case as usize))).cloned().collect()
    }

    /// Seconds spent on sampling the cases from this one on; 0 except on process 0.
    pub(super) fn sampling_seconds_from(&self, first_case: usize) -> f64 {
        let lines = self.lines.iter().filter(|line| line.case as usize >= first_case);
        lines.flat_map(|line| &line.samples.slowest_nanoseconds).map(|time| *time as f64 * 1e-9).sum()
    }

    /// A round added to the plan, counted from 1; none except on process 0.
    pub(super) fn growth(&self, round: u32) -> Option<&PlanGrowth> {
        self.growths.iter().find(|growth| growth.round == round)
    }

    /// The part of the requested work that the record holds.
    pub(super) fn of(reopened: &Reopened, request: &Request) -> CompletedWork {
        let record = &reopened.record;
        let lines: Vec<CaseLine> = record.cases.iter().filter(|line| !line.was_cut_short()).cloned().collect();
        let tally = tally(record, &lines);
        let ended = |curve: &CalibratedCurve| curve.outcome != CalibrationEnd::Interrupted;
        let calibration = record.calibration.as_ref();
        let case = |line: &CaseLine| WorkKey::Case { index: line.case, replicate: line.replicate };
        let mut done: BTreeSet<WorkKey> = lines.iter().map(case).collect();
        let all_measured = done.len() as u64 == record.plan.case_lines;
        done.extend(further_work(record, request));
        CompletedWork {
            done,
            calibrated: all_measured && calibration.is_some_and(|line| line.curves.iter().all(ended)),
            tally,
            lines,
            growths: reopened.growths.clone(),
        }
    }
}

/// What the record has of the work after the cases, as far as it is still in the plan.
fn further_work(record: &Record, request: &Request) -> Vec<WorkKey> {
    let calls: Vec<InterferingCall> =
        request.after_plan.interference.iter().flat_map(|pair| &pair.ops).map(InterferingCall::of).collect();
    let products = record.products.iter().filter_map(|line| {
        let index = request.plan.products.iter().position(|shape| *shape == line.product)?;
        Some(WorkKey::Product { index, replicate: line.replicate })
    });
    let copies = record.copies.iter().filter_map(|line| {
        let index = request.plan.copies.iter().position(|shape| *shape == line.copy)?;
        Some(WorkKey::Copy { index, replicate: line.replicate })
    });
    let interference = record.interference.iter().filter_map(|line| {
        let timed = calls.iter().position(|call| *call == line.timed)?;
        Some(WorkKey::Interference { replicate: line.replicate, timed })
    });
    let replays = record.replays.iter().map(|replay| WorkKey::Replay { step: replay.step });
    products.chain(copies).chain(interference).chain(replays).collect()
}

fn tally(record: &Record, lines: &[CaseLine]) -> Tally {
    let outcomes = (lines.iter().map(|line| &line.outcome))
        .chain(record.products.iter().map(|line| &line.outcome))
        .chain(record.copies.iter().map(|line| &line.outcome))
        .chain(record.interference.iter().map(|line| &line.outcome))
        .chain(record.replays.iter().map(|line| &line.outcome));
    let mut tally = Tally::default();
    outcomes.for_each(|outcome| tally.count(outcome));
    tally
}

// Resumes the record of a run that ended early: checks whether this launch may, and determines the completed work.
//
// Process 0 reads the record and broadcasts what the others need, before anything is measured.

/// Rows in the table of changes.
const MAX_CHANGES: usize = 20;

/// Opens the record of the request, new or resumed, and writes the lines before the first measurement.
pub(super) fn open<'a>(
    world: &'a dyn World,
    backend: &dyn Backend,
    request: &Request,
    ranks: &Ranks,
    planned: &[Planned],
) -> Result<(SharedJournal<'a>, CompletedWork)> {
    let header = || facts::header(backend, request, ranks);
    let plan = || facts::plan_line(request, planned);
    let is_first = world.process() == 0;
    let Some(resume) = request.resume else {
        let mine = is_first.then(|| Journal::create(&request.record)).transpose();
        let mut journal = SharedJournal::new(world, agree(world, mine)?, &request.listener, &request.watch);
        journal.write(|| Line::Header(Box::new(header())))?;
        journal.write(|| Line::Plan(plan()))?;
        return Ok((journal, CompletedWork::default()));
    };
    let mut mine = None;
    let check = || {
        let header = header();
        let (reopened, changes) = checked(request, resume, &header, &plan())?;
        let completed = CompletedWork::of(&reopened, request);
        mine = Some((completed, reopened.plan.is_none(), resume_line(header, &reopened, changes)));
        Ok(reopened)
    };
    let reopened = agree(world, is_first.then(check).transpose())?;
    // The file is not changed before this point: the launch matches.
    let journal = agree(world, reopened.map(Reopened::resume).transpose())?;
    let mut journal = SharedJournal::new(world, journal, &request.listener, &request.watch);
    // Whether the record was cut off before the plan.
    let found = mine.as_ref().map(|(completed, lacks_plan, _)| (completed, *lacks_plan));
    let (shared, lacks_plan): (_, bool) = from_first(world, &found)?;
    let (completed, line) = mine.map_or((shared, None), |(completed, _, line)| (completed, Some(line)));
    journal.write_all(|| {
        let line = line.map(|line| Line::Resume(Box::new(line)));
        line.into_iter().chain(lacks_plan.then(|| Line::Plan(plan()))).collect()
    })?;
    Ok((journal, completed))
}

/// Opens the record if this launch may resume it, and lists the differences.
fn checked(request: &Request, resume: Resume, header: &Header, plan: &Plan) -> Result<(Reopened, Vec<Change>)> {
    let reopened = reopen(&request.record)?;
    let name = request.record.shown();
    if reopened.record.is_finished() {
        return Err(Error::usage(format!("{name} is complete: nothing left to measure")));
    }
    // Serialised and parsed, so that rounding does not count as a difference.
    let (header, plan): (Header, Plan) = (as_read(header)?, as_read(plan)?);
    let changes = changes(&reopened.record.header, &header);
    let other_plan = reopened.plan.as_ref().and_then(|before| ensure_same_plan(before, &plan).err());
    let table =
        || if changes.is_empty() { String::new() } else { format!(":\n{}", table_of_changes(&changes, MAX_CHANGES)) };
    if let Some(why) = other_plan {
        return Err(Error::mismatch(format!(
            "this launch cannot resume {name}: {why}; start a new record, or use the arguments of the original run{}",
            table()
        )));
    }
    if !changes.is_empty() && !resume.allow_changed {
        return Err(Error::mismatch(format!(
            "this launch differs from the run that wrote {name}; make them equal, or use --allow-changed to record both{}",
            table()
        )));
    }
    Ok((reopened, changes))
}

fn as_read<T: Serialize + DeserializeOwned>(value: &T) -> Result<T> {
    let unreadable = |cause| Error::environment(format!("this launch cannot be compared with the record: {cause}"));
    serde_json::from_slice(&serde_json::to_vec(value).map_err(unreadable)?).map_err(unreadable)
}

fn resume_line(header: Header, reopened: &Reopened, changes: Vec<Change>) -> ResumeLine {
    let Header { started_at: resumed_at, command_line, launch_command, ranks, warnings, .. } = header;
    ResumeLine { resumed_at, command_line, launch_command, ranks, cut_bytes: reopened.torn_bytes, changes, warnings }
}
