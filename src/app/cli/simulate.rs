//! `commgauge simulate SUITE --machine M --nodes N`: rehearses a run on a simulated machine.
//!
//! Unlike `run --backend simulated` it makes few calls of each case and has no stop rule, so that it can be repeated
//! with many seeds.

#[cfg(test)]
mod attribution_tests;
mod document;
#[cfg(test)]
mod network_tests;

pub(super) use document::schema;

use super::places;
use super::suite::{SuiteWork, suite_work};
use super::table_or_json::AnswerArguments;
use super::text_output::check_only_format;
use commgauge_analysis::verdict::locate::{Found, LocateOptions, Suspects, expected_suspects, locate};
use commgauge_analysis::verdict::{AgainstLimit, Decision, GateRule, LoadedRecord, Metric, Verdict, gate};
use commgauge_base::error::{Error, Result};
use commgauge_base::message::eprintln;
use commgauge_base::stats::proportion_interval;
use commgauge_base::visible::ShownPath;
use commgauge_model::config::machine::Fault;
use commgauge_model::config::{Machine, Shipped};
use commgauge_model::layout::{Axis, Nodes};
use commgauge_model::record::{Journal, Line, Record};
use commgauge_model::workload::WorkPlan;
use commgauge_run::session::{Rehearsal, Request};
use document::{FORMAT, GateOutlook, Power, RehearsalDocument, VERSION};
use rayon::prelude::*;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Rehearse a suite on a simulated machine: how long it takes, what it covers, and what it would find
///
/// Faults are planted by the machine file or by --fault, and the same rules that judge real runs look for them. With --seeds
/// the rehearsal is repeated, and the share of those in which class and name of every fault are found (and nothing else is
/// suspected) is given with its interval. Ends with 0 whatever is found.
#[derive(Clone, Debug, clap::Args)]
pub struct SimulateCommand {
    /// Suite file, or the name of one (`commgauge list suites`)
    pub suite: PathBuf,

    /// Machine file, or the name of one (`commgauge list machines`): latencies, rates, noise, leaf switches, faults
    #[arg(long, value_name = "FILE|NAME")]
    pub machine: PathBuf,

    /// Nodes, each with the ranks that the machine file says
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub nodes: u32,

    /// Something to break, such as node:17:rate=0.6 or link:3-9:rate=0.5; may be given again, and a wrong one lists all kinds
    #[arg(long = "fault", value_name = "FAULT")]
    pub faults: Vec<Fault>,

    /// Repeat with so many seeds and say how often the faults are found
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub seeds: Option<u64>,

    /// Write the record of the first rehearsal, marked synthetic; the file must not exist
    #[arg(short, long, value_name = "RECORD")]
    pub output: Option<PathBuf>,

    /// How the answer is shown.
    #[command(flatten)]
    pub shown: AnswerArguments,
}

impl SimulateCommand {
    /// Runs the rehearsals and prints the result.
    pub fn execute(&self) -> Result<i32> {
        if let Some(path) = &self.output {
            check_only_format(path, "record", &[])?;
        }
        let machine = self.machine()?;
        places::report_resolved_file(Shipped::Suite, &self.suite);
        places::report_resolved_file(Shipped::Machine, &self.machine);
        let request = self.request(&machine)?;
        let rehearsal = Rehearsal::new(&request)?;
        let first = request.settings.seed;
        let (lines, _) = rehearsal.lines(first)?;
        if let Some(path) = &self.output {
            write(path, &lines)?;
        }
        let loaded = loaded(self.output.as_deref(), lines)?;
        let suspects = locate(std::slice::from_ref(&loaded), &LocateOptions::of_machine(&machine))?;
        let power = self.seeds.map(|seeds| power(&rehearsal, first, seeds)).transpose()?;
        let (least, most) = durations(&request.plan, &loaded.record, &request);
        let document = RehearsalDocument {
            format: FORMAT.to_owned(),
            version: VERSION,
            synthetic: true,
            suite: request.suite.name.clone(),
            machine: machine.name.clone(),
            nodes: self.nodes,
            hosts: rehearsal.hosts(),
            ranks: request.world_size,
            faults: machine.faults.iter().map(Fault::to_string).collect(),
            cases: request.plan.cases.len() as u64,
            pair_rounds: pair_rounds(&request.plan),
            replicates: request.settings.replicates,
            seconds_least: least,
            seconds_most: most,
            gate: outlook(&loaded, &machine, || healthy(&rehearsal, first))?,
            suspects,
            power,
        };
        self.shown.show(&document, |width| document::text(&document, width))?;
        if let Some(path) = &self.output {
            eprintln!("record: {}", path.shown());
        }
        Ok(0)
    }

    /// The machine with the injected faults.
    fn machine(&self) -> Result<Machine> {
        let mut machine = Machine::load(&self.machine)?;
        machine.faults.extend(self.faults.iter().cloned());
        Ok(machine)
    }

    fn request(&self, machine: &Machine) -> Result<Request> {
        let ranks = ranks_of_nodes(machine, self.nodes)?;
        let nodes = Nodes::filled(ranks, machine.ranks_per_host());
        let SuiteWork { plan, settings, facts: suite } = suite_work(&self.suite, None, &nodes)?;
        let record = self.output.clone().unwrap_or_default();
        let simulated = Request::simulated(places::new_run_id(), suite, plan, settings, machine, ranks);
        Ok(Request { record, ..simulated })
    }
}

/// The ranks of so many nodes of a machine.
///
/// # Errors
/// A usage error where that is no number of ranks.
pub(super) fn ranks_of_nodes(machine: &Machine, nodes: u32) -> Result<u32> {
    nodes.checked_mul(machine.ranks_per_node).ok_or_else(|| {
        Error::usage(format!("--nodes {nodes}: too many, with {} ranks on each", machine.ranks_per_node))
    })
}

fn write(path: &Path, lines: &[Line]) -> Result<()> {
    let mut journal = Journal::create(path)?;
    lines.iter().try_for_each(|line| journal.write(line))?;
    journal.finish()
}

fn loaded(path: Option<&Path>, lines: Vec<Line>) -> Result<LoadedRecord> {
    Ok(LoadedRecord { path: path.unwrap_or(Path::new("rehearsal")).to_owned(), record: Record::from_lines(lines)? })
}

/// The same rehearsal with nothing broken.
fn healthy(rehearsal: &Rehearsal, seed: u64) -> Result<LoadedRecord> {
    loaded(None, rehearsal.with_faults(Vec::new()).lines(seed)?.0)
}

/// The rehearsal's verdict for a machine file with expectations. `healthy` is one of the same machine with nothing broken.
fn outlook(
    loaded: &LoadedRecord,
    machine: &Machine,
    healthy: impl FnOnce() -> Result<LoadedRecord>,
) -> Result<Option<GateOutlook>> {
    if machine.thresholds() == 0 {
        return Ok(None);
    }
    let verdict = gated(loaded, machine)?;
    let failed = names_of_failed(&verdict);
    let failed_healthy = match failed.is_empty() || machine.faults.is_empty() {
        true => failed.len(),
        false => names_of_failed(&gated(&healthy()?, machine)?).intersection(&failed).count(),
    };
    let meets = |against: &AgainstLimit| {
        against.median.is_some_and(|median| match against.metric {
            Metric::LatencySeconds => median <= against.limit,
            Metric::BusBandwidthBytesPerSecond | Metric::CopyBytesPerSecond | Metric::FlopsPerSecond => {
                median >= against.limit
            }
        })
    };
    let not_failed = verdict.rows.iter().filter(|row| row.decision != Some(Decision::Fail));
    Ok(Some(GateOutlook {
        rows: verdict.coverage.rows,
        rows_judged: verdict.coverage.rows_judged,
        rows_failed: verdict.coverage.rows_failed,
        rows_failed_healthy: failed_healthy as u32,
        rows_that_would_meet: not_failed.filter_map(|row| row.against_limit.as_ref()).filter(|one| meets(one)).count()
            as u32,
    }))
}

fn gated(loaded: &LoadedRecord, machine: &Machine) -> Result<Verdict> {
    let rule = GateRule { confidence: 0.95, allowed: Vec::new() };
    gate(std::slice::from_ref(loaded), Some(machine), &rule)
}

/// The names of the rows that fail.
fn names_of_failed(verdict: &Verdict) -> BTreeSet<String> {
    let failed = verdict.rows.iter().filter(|row| row.decision == Some(Decision::Fail));
    failed.map(|row| row.name.clone()).collect()
}

/// The detection rate of the faults, with the seeds distributed over the processors.
fn power(rehearsal: &Rehearsal, first: u64, seeds: u64) -> Result<Power> {
    let planted = expected_suspects(&rehearsal.machine().by_hosts(), rehearsal.hosts());
    let options = LocateOptions::of_machine(rehearsal.machine());
    let one = |seed: u64| -> Result<Found> {
        let (lines, _) = rehearsal.lines(first.wrapping_add(seed))?;
        let suspects: Suspects = locate(&[loaded(None, lines)?], &options)?;
        Ok(Found::of(&suspects, &planted))
    };
    let found: Vec<Found> = (0..seeds).into_par_iter().map(one).collect::<Result<_>>()?;
    let count = |which: fn(&Found) -> bool| found.iter().filter(|found| which(found)).count() as u64;
    let right = count(|found| found.right());
    let right_share = proportion_interval(right, seeds, 0.95);
    Ok(Power {
        seeds,
        planted,
        right,
        right_share_low: right_share.low,
        right_share_high: right_share.high,
        all_named: count(|found| found.all_named),
        others_accused: count(|found| found.others_suspected),
    })
}

/// Estimated minimum and maximum duration of the run.
fn durations(plan: &WorkPlan, record: &Record, request: &Request) -> (f64, f64) {
    let settings = &request.settings;
    let most = plan.estimated_seconds(settings).0;
    // The estimate includes the time of a case besides its samples.
    let beside = most - settings.case_budget.0 * (plan.cases.len() as u32 * settings.replicates) as f64;
    let samples = f64::from(settings.fixed_iterations.unwrap_or(settings.minimum_samples));
    let own = |line: &commgauge_model::record::line::CaseLine| {
        let times = &line.samples.slowest_nanoseconds;
        let mean = times.iter().map(|time| *time as f64 * 1e-9).sum::<f64>() / times.len().max(1) as f64;
        (samples * mean)
            .min(settings.case_budget.0.max(samples * mean * f64::from(u8::from(settings.fixed_iterations.is_some()))))
    };
    let least = record.cases.iter().map(own).sum::<f64>() + beside.max(0.0);
    (least.min(most), most.max(least))
}

fn pair_rounds(plan: &WorkPlan) -> u64 {
    let rounds = plan.cases.iter().filter(|case| case.op.axis == Axis::Pair).map(|case| case.groups);
    rounds.collect::<BTreeSet<_>>().len() as u64
}
