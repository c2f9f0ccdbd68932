//! `commgauge simulate SUITE --machine M --nodes N`: rehearses a run on a simulated machine.
//!
//! Unlike `run --backend simulated` it makes few calls of each case and has no stop rule, so that it can be repeated
//! with many seeds.

#[cfg(test)]
mod attribution_tests;

use super::output::{AnswerArguments, check_only_format};
use super::suite;
use super::suite::{SuiteWork, suite_work};
use crate::report::{GateOutlook, Power, REHEARSAL_FORMAT, REHEARSAL_VERSION, Rehearsed, rehearsal_text};
use commgauge_base::error::{Error, Result};
use commgauge_base::stats::proportion_interval;
use commgauge_base::visible::ShownPath;
use commgauge_base::writing::eprintln;
use commgauge_judge::verdict::locate::{Found, LocateOptions, Suspects, expected_suspects, locate};
use commgauge_judge::verdict::{AgainstLimit, Decision, GateRule, LoadedRecord, Metric, Verdict, gate};
use commgauge_model::config::machine::Fault;
use commgauge_model::config::{Machine, Shipped};
use commgauge_model::layout::{Axis, Nodes};
use commgauge_model::record::{Journal, Line, Record};
use commgauge_model::workload::WorkPlan;
use commgauge_run::session::{Rehearsal, Request};
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
    /// Suite file, or the name of one (`commgauge show suites`)
    pub suite: PathBuf,

    /// Machine file, or a name (`commgauge show machines`): latencies, rates, noise, leaf switches, faults
    #[arg(long, value_name = "FILE|NAME")]
    pub machine: PathBuf,

    /// Nodes, each with the ranks of the machine file
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub nodes: u32,

    /// Fault, such as node:17:rate=0.6 or link:3-9:rate=0.5; may be repeated, and a wrong one lists all kinds
    #[arg(long = "fault", value_name = "FAULT")]
    pub faults: Vec<Fault>,

    /// Repeat with this many seeds; says how often the faults are found
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub seeds: Option<u64>,

    /// Write the record of the first rehearsal; marked synthetic; the file must not exist
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
        suite::report_resolved_file(Shipped::Suite, &self.suite);
        suite::report_resolved_file(Shipped::Machine, &self.machine);
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
        let document = Rehearsed {
            format: REHEARSAL_FORMAT.to_owned(),
            version: REHEARSAL_VERSION,
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
        self.shown.show(&document, |width| rehearsal_text(&document, width))?;
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
        let simulated = Request::simulated(suite::new_run_id(), suite, plan, settings, machine, ranks);
        Ok(Request { record, ..simulated })
    }
}

/// The ranks of this many nodes of a machine.
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
        others_suspected: count(|found| found.others_suspected),
    })
}

/// Estimated minimum and maximum duration of the run.
fn durations(plan: &WorkPlan, record: &Record, request: &Request) -> (f64, f64) {
    let settings = &request.settings;
    let most = plan.estimated_seconds(settings).0;
    // The estimate includes set-up and checks of a case.
    let overhead = most - settings.case_budget.0 * (plan.cases.len() as u32 * settings.replicates) as f64;
    let samples = f64::from(settings.iterations.unwrap_or(settings.minimum_samples));
    let own = |line: &commgauge_model::record::line::CaseLine| {
        let times = &line.samples.slowest_nanoseconds;
        let mean = times.iter().map(|time| *time as f64 * 1e-9).sum::<f64>() / times.len().max(1) as f64;
        (samples * mean)
            .min(settings.case_budget.0.max(samples * mean * f64::from(u8::from(settings.iterations.is_some()))))
    };
    let least = record.cases.iter().map(own).sum::<f64>() + overhead.max(0.0);
    (least.min(most), most.max(least))
}

fn pair_rounds(plan: &WorkPlan) -> u64 {
    let rounds = plan.cases.iter().filter(|case| case.op.axis == Axis::Pair).map(|case| case.groups);
    rounds.collect::<BTreeSet<_>>().len() as u64
}

#[cfg(test)]
mod network_tests {
    // A cluster whose network is slow never passes: every shipped machine file, from two nodes on, with each fault of a network. Rehearsals are
    // given the marks of measured runs, since nothing simulated ever passes.
    use super::super::suite::{SuiteWork, suite_work};
    use super::{gated, loaded};
    use commgauge_judge::verdict::locate::{LocateOptions, locate};
    use commgauge_judge::verdict::{located_code, most_severe};
    use commgauge_model::config::machine::Fault;
    use commgauge_model::config::{Machine, Shipped};
    use commgauge_model::layout::Nodes;
    use commgauge_model::record::line::Outcome;
    use commgauge_model::record::{Line, Seal};
    use commgauge_run::session::{Rehearsal, Request};
    use rayon::prelude::*;
    use std::path::Path;

    /// The calls of `qualify-gpu` that are judged on some machine, in as few replicates as bound a median.
    const SUITE: &str = r#"
name = "network"
[measure]
replicates = 5
cadences = ["streaming"]
[[sweep]]
axis = "node"
collectives = ["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]
bytes = ["512MiB"]
element_types = ["float16"]
placements = "out-of-place"
[pairs]
between = "nodes"
inside_nodes = true
latency_bytes = "8B"
bandwidth_bytes = "64MiB"
[[sweep]]
axis = "nodes"
collectives = ["all_gather"]
bytes = ["1GiB"]
element_types = ["float32"]
placements = "out-of-place"
"#;
    /// What the file of a rack asks for overheads.
    const RACK: &str = r#"
[[sweep]]
axis = "nodes"
collectives = ["all_reduce"]
bytes = ["512MiB", "1GiB", "2GiB", "4GiB", "8GiB"]
element_types = ["float32"]
placements = "out-of-place"
"#;

    /// What is broken, by its name and as faults of a machine.
    type Broken = (&'static str, fn(&Machine) -> Vec<String>);

    const NETWORK: [Broken; 6] = [
        ("a link at a tenth", |_| vec!["link:0-1:rate=0.1".to_owned()]),
        ("a link at half", |_| vec!["link:0-1:rate=0.5".to_owned()]),
        ("an adapter at half", |_| vec!["adapter:1.0:rate=0.5".to_owned()]),
        ("all adapters at a tenth", |machine| rails(machine, 0.1)),
        ("GPUDirect off", |machine| rails(machine, 0.3)),
        HALF_NVLINK,
    ];
    const HALF_NVLINK: Broken = ("NVLink of a node at half", |machine| {
        (0..machine.ranks_per_host()).map(|device| format!("nvlink:1.{device}:rate=0.5")).collect()
    });

    fn rails(machine: &Machine, rate: f64) -> Vec<String> {
        (0..machine.between_nodes.adapters_per_node).map(|rail| format!("rail:{rail}:rate={rate}")).collect()
    }

    /// The machine files by which runs of ours can be judged.
    fn machines(are_racks: bool) -> Vec<Machine> {
        let all = Shipped::Machine.embedded_names().into_iter();
        let loaded =
            all.map(|name| Machine::load(Path::new(&format!("embedded:suites/machines/{name}.toml"))).unwrap());
        let is_judging = |machine: &Machine| {
            let native = machine.judged_runs.as_ref().is_some_and(|runs| !runs.imported_only);
            native && machine.required_coverage.is_some() && (machine.hosts_per_node > 1) == are_racks
        };
        loaded.filter(is_judging).collect()
    }

    /// The exit code of `commgauge judge` on a run of this many nodes, and what it suspects.
    fn judged(machine: &Machine, nodes: u32, faults: &[String]) -> (i32, Vec<String>) {
        let folder = tempfile::tempdir().unwrap();
        let suite = folder.path().join("network.toml");
        let rack = if machine.hosts_per_node > 1 { RACK } else { "" };
        std::fs::write(&suite, SUITE.to_owned() + rack).unwrap();
        let ranks = nodes * machine.ranks_per_node;
        let placed = Nodes::filled(ranks, machine.ranks_per_host());
        let SuiteWork { plan, settings, facts } = suite_work(&suite, None, &placed).unwrap();
        let mut broken = machine.clone();
        // Times that repeat to the last digit are taken for copies.
        broken.noise.relative_sigma = 0.01;
        broken.faults = faults.iter().map(|fault| fault.parse::<Fault>().unwrap()).collect();
        let request = Request::simulated("network".to_owned(), facts, plan, settings, &broken, ranks);
        let mut lines = Rehearsal::new(&request).unwrap().lines(7).unwrap().0;
        lines.iter_mut().for_each(|line| mark_as_measured(line, machine));
        let mut run = loaded(None, lines).unwrap();
        run.record.file.seal = Seal::Whole;
        let verdict = gated(&run, machine).unwrap();
        let suspects = locate(&[run], &LocateOptions::of_machine(machine)).unwrap();
        let code = most_severe([verdict.exit_code, located_code(&suspects, Some(&verdict))]);
        let why = verdict.problems.into_iter().map(|problem| problem.text);
        (code, suspects.suspects.into_iter().map(|suspect| suspect.name).chain(why).collect())
    }

    fn mark_as_measured(line: &mut Line, machine: &Machine) {
        match line {
            Line::Header(header) => {
                let judged = machine.judged_runs.as_ref().unwrap();
                header.warnings.clear();
                (header.backend.synthetic, header.backend.name) = (false, judged.backend.clone());
                header.backend.library = "NCCL 99.0".to_owned();
                let device = judged.devices.first().map(|device| format!("NVIDIA {device}"));
                header.ranks.iter_mut().for_each(|rank| rank.device.clone_from(&device));
            }
            Line::Case(case) => {
                if let Outcome::Measured { verified } = &mut case.outcome {
                    *verified = true;
                }
            }
            _ => {}
        }
    }

    /// Which of these runs end otherwise than they must: a healthy one passes, and one with a fault fails.
    fn wrong(runs: Vec<(Machine, u32, Option<Broken>)>) -> Vec<String> {
        let one = |(machine, nodes, broken): (Machine, u32, Option<Broken>)| {
            let (name, faults) = broken.map_or(("nothing", Vec::new()), |(name, faults)| (name, faults(&machine)));
            let (code, said) = judged(&machine, nodes, &faults);
            let is_right = code == i32::from(broken.is_some());
            (!is_right)
                .then(|| format!("{} on {nodes} nodes, {name} is broken: exit code {code}, {said:?}", machine.name))
        };
        runs.into_par_iter().filter_map(one).collect()
    }

    #[test]
    fn a_slow_network_of_two_or_three_nodes_fails_on_every_machine_file_and_a_healthy_one_passes() {
        let runs = machines(false).into_iter().enumerate().flat_map(|(turn, machine)| {
            // Faults in turn; the table below has all of them.
            let nodes = 2 + turn as u32 % 2;
            let broken = [None, Some(NETWORK[turn % NETWORK.len()])];
            broken.map(|broken| (machine.clone(), nodes, broken))
        });
        assert_eq!(wrong(runs.collect()), Vec::<String>::new());
        let racks = machines(true)
            .into_iter()
            .flat_map(|machine| [None, Some(HALF_NVLINK)].map(|broken| (machine.clone(), 1, broken)));
        assert_eq!(wrong(racks.collect()), Vec::<String>::new());
    }

    /// In `scripts/test --all`: half a minute of processor time.
    #[test]
    fn every_fault_of_a_network_fails_on_every_machine_file_from_2_to_64_nodes() {
        let broken = || std::iter::once(None).chain(NETWORK.map(Some));
        let mut runs = Vec::new();
        for machine in machines(false) {
            // Machines differ in rates alone, so one of them represents all where runs are long.
            let sizes = if machine.name == "h100-nvswitch-ndr" { &[2, 3, 4, 8, 64][..] } else { &[2, 3, 4, 8] };
            runs.extend(sizes.iter().flat_map(|nodes| broken().map(|broken| (machine.clone(), *nodes, broken))));
        }
        assert_eq!(wrong(runs), Vec::<String>::new());
    }
}
