//! `commgauge gate RECORD --machine FILE`: compares a record with the expectations of a machine file.

use super::output::{VerdictOutput, check_only_format, print_on, read_all, replace};
use super::simulate::ranks_of_nodes;
use super::suite::{SuiteWork, suite_work};
use super::{AnswerArguments, suite};
use crate::report::document::{Column, optional, percent, table as plain};
use crate::report::{visible, wrap};
use clap::Subcommand;
use commgauge_analysis::verdict::locate::LocateOptions;
use commgauge_analysis::verdict::{
    Allowed, Counted, Decision, GateRule, LearnRule, LoadedRecord, OwnRecords, PlannedWork, SelfTest, SelfTestRule,
    TrialKind, Verdict, gate, gate_new_machine, learn, plan_outlook, selftest,
};
use commgauge_base::error::{Error, Result};
use commgauge_base::units::counted;
use commgauge_base::visible::ShownPath;
use commgauge_base::writing::eprintln;
use commgauge_model::config::machine::{Finding, lint};
use commgauge_model::config::{Machine, Shipped, toml_string};
use commgauge_model::layout::Nodes;
use commgauge_model::record::work_lines::{CopyFacts, ProductFacts};
use commgauge_run::session::{Rehearsal, Request};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Hold a record against what a machine file expects, and end with the code of the verdict
///
/// 0 every judged row passed; 1 a row failed; 3 inconclusive; 4 data arrived wrong; 5 to 6 the run failed; 7 something
/// planned was not measured. Missing, unverified, synthetic and unreliable rows never pass.
#[derive(Clone, Debug, clap::Args)]
pub struct GateCommand {
    /// Records of a run (JSON Lines); the replicates of several like runs are taken together
    #[arg(required_unless_present = "plan")]
    pub records: Vec<PathBuf>,

    /// Instead of records: say how many thresholds of the machine a suite will be judged by, and whether a run of it can pass
    #[arg(long, value_name = "SUITE", conflicts_with = "records", requires = "machine")]
    pub plan: Option<PathBuf>,

    /// With --plan: nodes, each with the ranks that the machine file says
    #[arg(long, value_name = "N", default_value_t = 1, requires = "plan", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub nodes: u32,

    /// Machine file whose [[expect]] rows are the limits, or the name of a shipped one; without it the answer is inconclusive
    #[arg(long, value_name = "FILE|NAME")]
    pub machine: Option<PathBuf>,

    /// Also write a file with an [[expect]] to fill in for each row that has none; without --machine, a whole machine file, named as
    /// the file
    #[arg(long, value_name = "FILE", conflicts_with = "plan")]
    pub template: Option<PathBuf>,

    /// Confidence of the bounds, in per cent
    #[arg(long, value_name = "PERCENT", default_value_t = 95.0, value_parser = confidence)]
    pub confidence: f64,

    /// In what several records may differ
    #[arg(long, value_enum, value_delimiter = ',', value_name = "WHAT")]
    pub allow: Vec<Allowed>,

    /// How the verdict is shown.
    #[command(flatten)]
    pub shown: VerdictOutput,
}

impl GateCommand {
    /// Evaluates the records, writes the verdict, and returns its exit code.
    pub fn execute(&self) -> Result<i32> {
        if let (Some(suite), Some(machine)) = (&self.plan, &self.machine) {
            return judge_plan(suite, machine, self.nodes, self.confidence / 100.0, &mut std::io::stdout().lock());
        }
        let file = self.machine.as_deref().and_then(|requested| Shipped::Machine.find(requested));
        let inputs: Vec<&Path> = self.records.iter().chain(&file).map(PathBuf::as_path).collect();
        let format = self.shown.check(&inputs)?;
        if let Some(path) = &self.template {
            check_only_format(path, "toml", &inputs)?;
        }
        let rule = GateRule { confidence: self.confidence / 100.0, allowed: self.allow.clone() };
        let records = read_all(&self.records)?;
        let verdict = match (&self.machine, &self.template) {
            (None, Some(path)) => gate_new_machine(&records, &stem(path), &rule)?,
            (machine, _) => gated(&records, machine.as_deref(), &rule)?,
        };
        if let Some(path) = &self.template {
            write_template(path, verdict.template.as_deref())?;
        }
        self.shown.show(&verdict, format)
    }
}

/// Never replaces a file: it may be one that somebody has begun to fill in.
fn write_template(path: &Path, template: Option<&str>) -> Result<()> {
    let Some(template) = template else {
        eprintln!("gate: --template {} is not written: every row has an expectation", path.shown());
        return Ok(());
    };
    if path.exists() {
        return Err(Error::usage(format!("--template {} is there already; name a new file", path.shown())));
    }
    replace(path, template)
}

/// The verdict on records for a machine given as a file or as a shipped name.
pub(super) fn gated(records: &[LoadedRecord], requested: Option<&Path>, rule: &GateRule) -> Result<Verdict> {
    gate(records, requested.map(Machine::load).transpose()?.as_ref(), rule)
}

/// What the machine that is asked for says of its leaves and racks.
pub(super) fn locate_options(requested: Option<&Path>) -> Result<LocateOptions> {
    Ok(requested.map(Machine::load).transpose()?.as_ref().map(LocateOptions::of_machine).unwrap_or_default())
}

fn stem(requested: &Path) -> String {
    requested.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned())
}

/// Parses a confidence in per cent that some number of replicates can reach, and one alone cannot: of its scatter nothing is known.
pub(super) fn confidence(text: &str) -> std::result::Result<f64, String> {
    match text.parse::<f64>() {
        Ok(percent) if (75.0..=99.999).contains(&percent) => Ok(percent),
        _ => Err(format!("found `{text}`; accepted: a number from 75, which takes two replicates, to 99.999")),
    }
}

// `commgauge gate --plan SUITE --machine M`: how many thresholds a suite will be judged by, before it is run.

/// The exit code of a plan of which no run can pass.
const CANNOT_PASS: i32 = 3;

/// Places of thresholds that are not measured, of which more are only counted.
const MOST_PLACES: usize = 8;

/// Writes how far a suite on so many nodes of a machine can be judged; 0 where a run of it can pass.
pub(super) fn judge_plan(
    suite: &Path,
    machine: &Path,
    nodes: u32,
    confidence: f64,
    out: &mut dyn Write,
) -> Result<i32> {
    suite::report_resolved_file(Shipped::Suite, suite);
    suite::report_resolved_file(Shipped::Machine, machine);
    let machine = Machine::load(machine)?;
    let ranks = ranks_of_nodes(&machine, nodes)?;
    let well = Machine { faults: Vec::new(), ..machine.clone() };
    // Records tell hosts, of which several may make one node of the machine.
    let nodes_of_record = Nodes::filled(ranks, machine.ranks_per_host());
    let SuiteWork { plan, settings, facts } = suite_work(suite, None, &nodes_of_record)?;
    let replicates = settings.replicates;
    let request = Request::simulated(suite::new_run_id(), facts, plan, settings, &well, ranks);
    let seconds = request.plan.estimated_seconds(&request.settings);
    let planned = PlannedWork {
        cases: Rehearsal::new(&request)?.planned_cases(),
        hosts: machine.hosts_of(ranks),
        copies: request.plan.copies.iter().map(CopyFacts::of).collect(),
        products: request.plan.products.iter().map(ProductFacts::of).collect(),
    };
    let outlook = plan_outlook(&machine, &planned, replicates, confidence);
    let missing = outlook.expectations - outlook.expectations_judged;
    let mut text = format!(
        "{} on {} of {} ({ranks} ranks), {replicates} replicates, about {seconds}: {} of {} thresholds will be judged, \
         {missing} not measured\n",
        request.suite.name,
        counted(nodes as usize, "node"),
        machine.name,
        outlook.expectations_judged,
        outlook.expectations,
    );
    text += &match outlook.nodes {
        0 => String::new(),
        1 => "network: not judged, since the run is of one node\n".to_owned(),
        _ => format!("network: {} between nodes will be judged\n", counted(outlook.rows_between_nodes, "row")),
    };
    for place in outlook.not_measured.iter().take(MOST_PLACES) {
        text += &format!("not measured: {place}\n");
    }
    if outlook.not_measured.len() > MOST_PLACES {
        text += &format!("and {} more\n", outlook.not_measured.len() - MOST_PLACES);
    }
    for reason in &outlook.shortfalls {
        text += &format!("cannot pass: {reason}\n");
    }
    if machine.hosts_per_node > 1 && nodes > 1 && !outlook.shortfalls.is_empty() {
        text += &format!(
            "a node of {} is {} hosts: qualify node by node (--nodes 1), each by a run on its hosts alone\n",
            machine.name, machine.hosts_per_node
        );
    }
    if outlook.shortfalls.is_empty() {
        text += "a run of it can pass\n";
    }
    print_on(out, &text)?;
    Ok(if outlook.shortfalls.is_empty() { 0 } else { CANNOT_PASS })
}

// `commgauge expect`: makes machine files from healthy runs, and checks machine files for contradictions.

/// Machine files: find contradictions in them, or make one from healthy runs
#[derive(Clone, Debug, clap::Args)]
pub struct ExpectCommand {
    /// What to do.
    #[command(subcommand)]
    pub what: What,
}

/// What to do with machine files.
#[derive(Clone, Debug, Subcommand)]
pub enum What {
    /// Find contradictions in machine files, alone and beside each other, and figures that no link allows
    ///
    /// 0 nothing contradicts (advice may be printed); 1 something does; 2 a file cannot be used.
    Lint(LintCommand),
    /// Make a machine file from healthy runs: what they reached is what will be expected
    ///
    /// Nothing is learned from a record that is synthetic, wrong or not whole; the exit code is then that of the trouble (4 wrong
    /// data, 5 to 6 a failed run, 7 not whole) or 2. Rows that are unreliable or unverified in one of the runs are left out and named.
    Learn(Box<LearnCommand>),
}

/// Which files to look through.
#[derive(Clone, Debug, clap::Args)]
pub struct LintCommand {
    /// Machine files, or names of shipped ones
    #[arg(required = true)]
    pub files: Vec<PathBuf>,
}

/// What to learn from.
#[derive(Clone, Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("source of the links").required(true).args(["like", "rate"]))]
pub struct LearnCommand {
    /// Records of healthy runs (JSON Lines), of the same work; hosts may differ
    #[arg(required = true)]
    pub records: Vec<PathBuf>,

    /// The machine file to write
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,

    /// Name of the machine, in letters, digits, `-`, `_` and `.`
    #[arg(long, value_parser = machine_name)]
    pub name: String,

    /// Take ranks per node and link rates from this machine file, or shipped machine
    #[arg(long, value_name = "FILE|NAME", conflicts_with_all = LINKS)]
    pub like: Option<PathBuf>,

    /// Links, where no file is like the machine.
    #[command(flatten)]
    pub links: LinkArguments,

    /// The least tolerance, in per cent
    #[arg(long, value_name = "PERCENT", default_value_t = 2.0, value_parser = tolerance)]
    pub tolerance: f64,

    /// Believe figures above what the links allow: the switches themselves reduce or copy
    #[arg(long)]
    pub in_network: bool,

    /// In what the records may differ, besides their hosts
    #[arg(long, value_enum, value_delimiter = ',', value_name = "WHAT")]
    pub allow: Vec<Allowed>,

    /// Replace the file if it is there
    #[arg(long)]
    pub force: bool,
}

const LINKS: [&str; 6] =
    ["rate", "latency", "ranks_per_node", "adapters_per_node", "rate_per_adapter", "network_latency"];

/// The links of a machine, from its data sheet.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct LinkArguments {
    /// Ranks on each node
    #[arg(long, value_name = "N")]
    pub ranks_per_node: Option<u32>,

    /// What one rank can send within its node, one direction, such as 450GB/s
    #[arg(long, value_name = "RATE", requires_all = &LINKS[1..])]
    pub rate: Option<String>,

    /// Time of an empty message within a node, such as 3us
    #[arg(long, value_name = "TIME", requires = "rate")]
    pub latency: Option<String>,

    /// Network adapters of each node
    #[arg(long, value_name = "N", requires = "rate")]
    pub adapters_per_node: Option<u32>,

    /// What one adapter can send, such as 400Gbit/s
    #[arg(long, value_name = "RATE", requires = "rate")]
    pub rate_per_adapter: Option<String>,

    /// Time of an empty message between nodes, such as 14us
    #[arg(long, value_name = "TIME", requires = "rate")]
    pub network_latency: Option<String>,

    /// The rates are guesses, so that they bound nothing
    #[arg(long, requires = "rate")]
    pub assumed: bool,
}

impl ExpectCommand {
    /// Runs the subcommand, and returns the exit code.
    pub fn execute(&self) -> Result<i32> {
        match &self.what {
            What::Lint(command) => command.execute(),
            What::Learn(command) => command.execute(),
        }
    }
}

impl LintCommand {
    fn execute(&self) -> Result<i32> {
        let (mut machines, mut text, mut code) = (Vec::new(), String::new(), 0);
        for requested in &self.files {
            match Machine::load(requested) {
                Ok(machine) => machines.push(machine),
                Err(error) => {
                    text += &format!("unusable: {}\n", visible(&error.to_string()));
                    code = 2;
                }
            }
        }
        let today = jiff::Zoned::now().date().to_string();
        let mut found = lint(&machines, &today);
        found.sort_by_key(|finding| !finding.grave);
        for Finding { grave, place, text: finding } in &found {
            let kind = if *grave { "contradiction" } else { "advice" };
            text += &format!("{kind}: {}: {}\n", visible(place), visible(finding));
        }
        let graves = found.iter().filter(|finding| finding.grave).count();
        let expectations: usize = machines.iter().map(Machine::thresholds).sum();
        text += &format!(
            "{} of {} machine files read, {expectations} expectations, {graves} contradictions\n",
            machines.len(),
            self.files.len()
        );
        super::output::print(&text)?;
        Ok(if code == 2 { 2 } else { i32::from(graves > 0) })
    }
}

impl LearnCommand {
    fn execute(&self) -> Result<i32> {
        self.check_output()?;
        let links = match &self.like {
            Some(requested) => Machine::load(requested)?,
            None => self.links.machine()?,
        };
        let rule = LearnRule {
            name: self.name.clone(),
            least_tolerance: self.tolerance / 100.0,
            in_network: self.in_network,
            allowed: self.allow.clone(),
        };
        let learned = learn(&read_all(&self.records)?, &links, &rule)?;
        replace(&self.output, &learned.text)?;
        let shown = self.output.shown();
        let (expectations, runs) = (counted(learned.expectations, "expectation"), counted(self.records.len(), "run"));
        let mut text = format!("{shown}: {expectations} from {runs}\n");
        for left_out in &learned.left_out {
            text += &format!("left out: {left_out}\n");
        }
        super::output::print(&text)?;
        Ok(0)
    }

    fn check_output(&self) -> Result<()> {
        let (path, shown) = (&self.output, self.output.shown());
        check_only_format(path, "toml", &self.records.iter().map(PathBuf::as_path).collect::<Vec<_>>())?;
        // What is there and is no file, as a pipe, is not replaced.
        if path.is_file() && !self.force {
            return Err(Error::usage(format!("--output {shown} is there already; use --force to replace it")));
        }
        Ok(())
    }
}

impl LinkArguments {
    /// The flags as a machine file, so that the same checks apply.
    fn machine(&self) -> Result<Machine> {
        let quoted = |text: &Option<String>| toml_string(text.as_deref().unwrap_or_default());
        let text = format!(
            "name = \"flags\"\nranks_per_node = {}\n[within_node]\nlatency = {}\nrate = {}\nassumed = {}\n[between_nodes]\n\
             latency = {}\nadapters_per_node = {}\nrate_per_adapter = {}\nassumed = {}\n",
            self.ranks_per_node.unwrap_or(0),
            quoted(&self.latency),
            quoted(&self.rate),
            self.assumed,
            quoted(&self.network_latency),
            self.adapters_per_node.unwrap_or(0),
            quoted(&self.rate_per_adapter),
            self.assumed,
        );
        Machine::parse(&text, Path::new("the flags"))
    }
}

fn machine_name(text: &str) -> std::result::Result<String, String> {
    let is_good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    match !text.is_empty() && text.len() <= 100 && text.chars().all(is_good) {
        true => Ok(text.to_owned()),
        false => Err(format!("found `{text}`; accepted: up to 100 letters, digits, `-`, `_` and `.`")),
    }
}

fn tolerance(text: &str) -> std::result::Result<f64, String> {
    match text.parse::<f64>() {
        Ok(percent) if (0.0..=50.0).contains(&percent) => Ok(percent),
        _ => Err(format!("found `{text}`; accepted: a number from 0 to 50")),
    }
}

// `commgauge selftest`: tests the error rates of the rules of gate and compare, on synthetic noise and on recorded
// runs.

/// Measure the false-alarm rate and the power of the rules of gate and compare
///
/// Made-up runs with normal, left-skewed, bimodal and drifting noise are judged by the very code that judges records. The same
/// flags give the same answer everywhere. 0 every promise held, as far as could be seen; 1 a promise is broken beyond chance.
#[derive(Clone, Debug, clap::Args)]
pub struct SelfTestCommand {
    /// Folder with records of a machine that did not change: each is compared with the next like it
    #[arg(long, value_name = "DIR")]
    pub records: Option<PathBuf>,

    /// Comparisons of each kind
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub comparisons: u32,

    /// Rows in each comparison
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub rows: u32,

    /// Replicates of each side
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(2..=20))]
    pub replicates: u32,

    /// Noise from run to run, in per cent of the time
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0, value_parser = noise)]
    pub noise: f64,

    /// Confidence of the rules, in per cent
    #[arg(long, value_name = "PERCENT", default_value_t = 95.0, value_parser = confidence)]
    pub confidence: f64,

    /// Of the noise
    #[arg(long, default_value_t = 20240613)]
    pub seed: u64,

    /// How the answer is shown.
    #[command(flatten)]
    pub shown: AnswerArguments,
}

impl SelfTestCommand {
    /// Runs the trials, prints the results, and returns the exit code.
    pub fn execute(&self) -> Result<i32> {
        let rule = SelfTestRule {
            level: 1.0 - self.confidence / 100.0,
            relevant_slowdown: 0.03,
            comparisons: self.comparisons,
            rows: self.rows,
            replicates: self.replicates,
            sigma: self.noise / 100.0,
            seed: self.seed,
        };
        let own = self.records.as_deref().map(read_folder).transpose()?;
        let tried = selftest(&rule, own)?;
        self.shown.show(&tried, |width| table(&tried, width))?;
        Ok(i32::from(!tried.holds))
    }
}

/// The records of a folder, and the read errors as sentences.
fn read_folder(folder: &Path) -> Result<OwnRecords> {
    let refused = |cause: std::io::Error| Error::usage(format!("--records: cannot read {}: {cause}", folder.shown()));
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(refused)? {
        let path = entry.map_err(refused)?.path();
        if path.extension().is_some_and(|extension| extension == "jsonl") {
            paths.push(path);
        }
    }
    if paths.is_empty() {
        return Err(Error::usage(format!("--records: no records (*.jsonl) in {}", folder.shown())));
    }
    paths.sort();
    let mut own = OwnRecords::default();
    for path in paths {
        match LoadedRecord::read(&path) {
            Ok(loaded) => own.records.push(loaded),
            Err(error) => own.left_out.push(error.to_string()),
        }
    }
    Ok(own)
}

fn table(tried: &SelfTest, width: u16) -> String {
    let columns = [
        Column::left("what", 0),
        Column::left("noise", 0),
        Column::right("counted", 0),
        Column::right("share", 2),
        Column::right("95 % interval", 1),
        Column::right("promised", 0),
        Column::left("held", 0),
    ];
    let rows: Vec<Vec<String>> = (tried.trials.iter())
        .map(|trial| {
            let side = if trial.asked.is_power() { "at least" } else { "at most" };
            let promised =
                trial.promised.map_or("nothing".to_owned(), |promised| format!("{side} {}", percent(promised, 1)));
            let [count, share, interval] = cells(&trial.counted);
            let decision_text = trial.decision.map_or("-", decision_text).to_owned();
            vec![
                what(trial.asked).to_owned(),
                trial.noise.name().to_owned(),
                count,
                share,
                interval,
                promised,
                decision_text,
            ]
        })
        .collect();
    let mut out = plain(&columns, &rows, width);
    let mut say = |text: String| out += &(wrap(&visible(&text), usize::from(width), 4) + "\n");
    if let Some(history) = &tried.history {
        say(format!("own runs: {} records", history.records));
        for (name, counted) in [
            ("runs against the next like them", &history.run_against_run),
            ("halves of runs", &history.half_against_half),
        ] {
            let [count, share, interval] = cells(counted);
            say(format!("{name}: false alarms in {count} comparisons, {share} ({interval})"));
        }
        for left_out in &history.left_out {
            say(format!("left out: {left_out}"));
        }
    }
    say(format!(
        "comparisons of {} rows, {} replicates of each side, noise {} from run to run, seed {}; gates of one row",
        tried.rows,
        tried.replicates,
        percent(tried.sigma, 1),
        tried.seed
    ));
    say("gates are tried on a machine whose true median lies at the limit, and 5 % beyond it; nothing is promised where a \
         machine drifts on from run to run, which no rule can separate from a change".to_owned());
    say(tried.summary());
    say(match tried.holds {
        true => "no promise is broken".to_owned(),
        false => "a promise is BROKEN beyond chance".to_owned(),
    });
    out
}

fn what(asked: TrialKind) -> &'static str {
    match asked {
        TrialKind::CompareFalseAlarm => "compare: false alarm",
        TrialKind::ComparePower => "compare: 5 % found",
        TrialKind::GateFalsePass => "gate: false pass",
        TrialKind::GateFalseFail => "gate: false fail",
        TrialKind::GatePower => "gate: 5 % found",
    }
}

/// A share that is on the promised side by a statistically insignificant margin is called likely, not shown.
fn decision_text(decision: Decision) -> &'static str {
    match decision {
        Decision::Pass => "shown",
        Decision::Fail | Decision::Error => "BROKEN",
        Decision::Inconclusive => "not refuted",
    }
}

fn cells(counted: &Counted) -> [String; 3] {
    let share = match counted.of {
        0 => "-".to_owned(),
        of => percent(counted.count as f64 / of as f64, 1),
    };
    let interval = counted.lower_bound.zip(counted.upper_bound);
    let interval = optional(interval.map(|(low, high)| format!("{} .. {}", percent(low, 1), percent(high, 1))));
    [format!("{} of {}", counted.count, counted.of), share, interval]
}

fn noise(text: &str) -> std::result::Result<f64, String> {
    match text.parse::<f64>() {
        Ok(percent) if (0.01..=20.0).contains(&percent) => Ok(percent),
        _ => Err(format!("found `{text}`; accepted: a number from 0.01 to 20")),
    }
}
