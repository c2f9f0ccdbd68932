//! The simulated backend plays all ranks in this process, so there is nothing to launch.

use super::arguments::RunArguments;
use super::nodes::predicted_nodes;
use super::summary::summarise;
use super::{resumable, work};
use crate::cli::places;
use crate::cli::programs::PlannedWork;
use crate::cli::suite::{SuiteWork, plan_text};
use crate::cli::table_or_json::print_on;
use commgauge_base::error::{Error, Result};
use commgauge_base::message::eprintln;
use commgauge_model::config::Machine;
use commgauge_model::layout::Nodes;
use commgauge_model::record::line::EndStatus;
use commgauge_run::backend::simulated::SimulatedBackend;
use commgauge_run::session::{self, Resume, TimeLimit};
use commgauge_run::world::SoloWorld;
use std::io::Write;
use std::time::Instant;

/// Resumes a simulated run.
pub(super) fn run_simulated(arguments: &RunArguments, out: &mut dyn Write) -> Result<i32> {
    let machine = arguments.machine.as_deref().map(Machine::load).transpose()?;
    let nodes = predicted_nodes(arguments, None, machine.as_ref())?;
    let wanted = work::of(arguments, &nodes)?;
    run_in_process(arguments, wanted, &nodes, machine, out)
}

/// The simulated backend runs all ranks in this process, so there is nothing to launch.
pub(super) fn run_in_process(
    arguments: &RunArguments,
    wanted: PlannedWork,
    nodes: &Nodes,
    machine: Option<Machine>,
    out: &mut dyn Write,
) -> Result<i32> {
    if arguments.dry_run {
        print_on(out, "runs in this process, without a launcher\n")?;
        print_on(out, &plan_text(&wanted.work, nodes))?;
        return Ok(0);
    }
    let machine = machine.ok_or_else(|| {
        Error::usage(
            "--backend simulated needs --machine FILE: the latencies and rates to simulate (suites/machines/*.toml)",
        )
    })?;
    let SuiteWork { plan, settings, facts: suite } = wanted.work;
    let record = match &arguments.resume {
        Some(record) => record.clone(),
        None => places::record_path(arguments.record.as_deref())?,
    };
    let request = session::Request {
        record: record.clone(),
        resume: arguments.resume.is_some().then_some(Resume { allow_changed: arguments.allow_changed }),
        after_plan: wanted.after_plan,
        ..session::Request::simulated(places::run_id_of(&record), suite, plan, settings, &machine, arguments.ranks)
    };
    let mut backend = SimulatedBackend::new(&machine, arguments.ranks, request.settings.seed)?;
    let limit = arguments.time_limit.map(|limit| TimeLimit::of(limit, Instant::now()));
    let signals = session::Signals::catch()?.with_limit(limit);
    let end = session::run(&SoloWorld, &mut backend, &request, &signals)?;
    if let Some(error) = &end.error {
        eprintln!("commgauge: {error}");
    }
    if end.status != EndStatus::Complete {
        eprintln!("commgauge: resume with: {}", resumable::command(&request.record));
    }
    summarise(arguments, &request.record, out)?;
    Ok(end.exit_code)
}
