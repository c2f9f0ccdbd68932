//! Resumes the record of a run that ended early: checks whether this launch may, and determines the completed work.
//!
//! Process 0 reads the record and broadcasts what the others need, before anything is measured.

use super::completed::CompletedWork;
use super::facts;
use super::journal::SharedJournal;
use super::preflight::{Planned, Ranks};
use super::request::{Request, Resume};
use crate::backend::Backend;
use crate::world::{World, agree};
use commgauge_base::error::{Error, Result};
use commgauge_base::visible::ShownPath;
use commgauge_model::record::line::{Header, Line, Plan, RankFacts};
use commgauge_model::record::resume_line::{Change, ResumeLine};
use commgauge_model::record::{Journal, Reopened, changes, ensure_same_plan, reopen, table_of_changes};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Rows in the table of changes.
const MAX_CHANGES: usize = 20;

/// The first two lines that this launch would write to a record of its own.
struct FirstLines {
    header: Header,
    plan: Plan,
}

/// What process 0 found in the record.
struct Found {
    completed: CompletedWork,
    /// The line for the record; on process 0 only.
    line: Option<ResumeLine>,
    /// Whether the record was cut off before the plan.
    lacks_plan: bool,
}

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
    let checked = if is_first {
        let now = FirstLines { header: header(), plan: plan() };
        checked(request, resume, &now).map(|(reopened, changes)| {
            let line = Some(resume_line(&now.header, &reopened, changes));
            let completed = CompletedWork::of(&reopened, request);
            mine = Some(Found { completed, line, lacks_plan: reopened.plan.is_none() });
            Some(reopened)
        })
    } else {
        Ok(None)
    };
    let reopened = agree(world, checked)?;
    // The file is not changed before this point: the launch matches.
    let journal = agree(world, reopened.map(Reopened::resume).transpose())?;
    let mut journal = SharedJournal::new(world, journal, &request.listener, &request.watch);
    let found = broadcast(world, mine)?;
    journal.write_all(|| {
        let line = found.line.map(|line| Line::Resume(Box::new(line)));
        line.into_iter().chain(found.lacks_plan.then(|| Line::Plan(plan()))).collect()
    })?;
    Ok((journal, found.completed))
}

/// Broadcasts what process 0 found, but for the line.
fn broadcast(world: &dyn World, mine: Option<Found>) -> Result<Found> {
    let unserialisable =
        |cause| Error::environment(format!("what the record holds cannot be sent to the ranks: {cause}"));
    let mut bytes = match &mine {
        Some(found) => serde_json::to_vec(&(&found.completed, found.lacks_plan)).map_err(unserialisable)?,
        None => Vec::new(),
    };
    world.broadcast(&mut bytes)?;
    if let Some(found) = mine {
        return Ok(found);
    }
    let (completed, lacks_plan) = serde_json::from_slice(&bytes).map_err(unserialisable)?;
    Ok(Found { completed, line: None, lacks_plan })
}

/// Opens the record if this launch may resume it, and lists the differences.
fn checked(request: &Request, resume: Resume, now: &FirstLines) -> Result<(Reopened, Vec<Change>)> {
    let reopened = reopen(&request.record)?;
    let name = request.record.shown();
    if reopened.record.is_finished() {
        return Err(Error::usage(format!("{name} is complete: nothing is left to measure")));
    }
    // Serialised and parsed, so that rounding does not count as a difference.
    let (header, plan): (Header, Plan) = (as_read(&now.header)?, as_read(&now.plan)?);
    let changes = changes(&reopened.record.header, &header);
    let other_plan = reopened.plan.as_ref().and_then(|before| ensure_same_plan(before, &plan).err());
    let table =
        || if changes.is_empty() { String::new() } else { format!(":\n{}", table_of_changes(&changes, MAX_CHANGES)) };
    if let Some(why) = other_plan {
        return Err(Error::mismatch(format!(
            "this launch cannot resume {name}: {why}; start a new record, or give what the run was started with{}",
            table()
        )));
    }
    if !changes.is_empty() && !resume.allow_changed {
        return Err(Error::mismatch(format!(
            "this launch is not as the run that wrote {name}; make it so, or use --allow-changed and have both recorded{}",
            table()
        )));
    }
    Ok((reopened, changes))
}

fn as_read<T: Serialize + DeserializeOwned>(value: &T) -> Result<T> {
    let unreadable = |cause| Error::environment(format!("this launch cannot be compared with the record: {cause}"));
    serde_json::from_slice(&serde_json::to_vec(value).map_err(unreadable)?).map_err(unreadable)
}

fn resume_line(header: &Header, reopened: &Reopened, changes: Vec<Change>) -> ResumeLine {
    let ranks: Vec<RankFacts> = header.ranks.clone();
    ResumeLine {
        resumed_at: header.started_at.clone(),
        command_line: header.command_line.clone(),
        launch_command: header.launch_command.clone(),
        ranks,
        cut_bytes: reopened.torn_bytes,
        changes,
        warnings: header.warnings.clone(),
    }
}
