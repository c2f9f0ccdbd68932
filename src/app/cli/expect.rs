//! `commgauge expect`: checks machine files, learns one from healthy runs, and tests the rules that use them.

use super::AnswerArguments;
use super::judge::{CONFIDENCE, within};
use super::output::{check_only_format, read_all, records_in, replace};
use crate::report::{selftest_text, visible};
use clap::Subcommand;
use commgauge_base::error::{Error, Result};
use commgauge_base::units::counted;
use commgauge_base::visible::ShownPath;
use commgauge_judge::verdict::{Allowed, LearnRule, LoadedRecord, OwnRecords, SelfTestRule, learn, selftest};
use commgauge_model::config::machine::{Finding, lint};
use commgauge_model::config::{Machine, toml_string};
use std::path::{Path, PathBuf};

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
    /// Find contradictions in machine files, within and between files, and figures that no link allows
    ///
    /// 0 nothing contradicts (advice may be printed); 1 something does; 2 a file cannot be used.
    Lint(LintCommand),
    /// Make a machine file from healthy runs: what they reached is what will be expected
    ///
    /// A record that is synthetic, wrong or incomplete is refused; the exit code is then that of the problem (4 wrong data, 5 to 6 a failed
    /// run, 7 incomplete) or 2. Rows that are unreliable or unverified in one of the runs are excluded and named.
    Learn(Box<LearnCommand>),
    /// Measure how often the rules of judge and compare err
    Selftest(SelfTestCommand),
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
    #[arg(long, value_name = "PERCENT", default_value_t = 2.0, value_parser = within(0.0..=50.0))]
    pub tolerance: f64,

    /// Believe figures above what the links allow: the switches themselves reduce or copy
    #[arg(long, hide_short_help = true)]
    pub in_network: bool,

    /// In what else than hosts the records may differ
    #[arg(long, value_enum, value_delimiter = ',', value_name = "WHAT", hide_short_help = true)]
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
    #[arg(long, value_name = "TIME", requires = "rate", hide_short_help = true)]
    pub latency: Option<String>,

    /// Network adapters of each node
    #[arg(long, value_name = "N", requires = "rate", hide_short_help = true)]
    pub adapters_per_node: Option<u32>,

    /// What one adapter can send, such as 400Gbit/s
    #[arg(long, value_name = "RATE", requires = "rate", hide_short_help = true)]
    pub rate_per_adapter: Option<String>,

    /// Time of an empty message between nodes, such as 14us
    #[arg(long, value_name = "TIME", requires = "rate", hide_short_help = true)]
    pub network_latency: Option<String>,

    /// The rates are guesses, so that they bound nothing
    #[arg(long, requires = "rate", hide_short_help = true)]
    pub assumed: bool,
}

impl ExpectCommand {
    /// Runs the subcommand, and returns the exit code.
    pub fn execute(&self) -> Result<i32> {
        match &self.what {
            What::Lint(command) => command.execute(),
            What::Learn(command) => command.execute(),
            What::Selftest(command) => command.execute(),
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

// `commgauge expect selftest`: tests the error rates of the rules of gate and compare, on synthetic noise and on recorded
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
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0, value_parser = within(0.01..=20.0))]
    pub noise: f64,

    /// Confidence of the rules, in per cent
    #[arg(long, value_name = "PERCENT", default_value_t = 95.0, value_parser = within(CONFIDENCE), hide_short_help = true)]
    pub confidence: f64,

    /// Of the noise
    #[arg(long, default_value_t = 20240613, hide_short_help = true)]
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
        self.shown.show(&tried, |width| selftest_text(&tried, width))?;
        Ok(i32::from(!tried.holds))
    }
}

/// The records of a folder, and the read errors as sentences.
fn read_folder(folder: &Path) -> Result<OwnRecords> {
    let paths = records_in(folder).map_err(|error| Error::usage(format!("--records: {error}")))?;
    if paths.is_empty() {
        return Err(Error::usage(format!("--records: no records (*.jsonl) in {}", folder.shown())));
    }
    let mut own = OwnRecords::default();
    for path in paths {
        match LoadedRecord::read(&path) {
            Ok(loaded) => own.records.push(loaded),
            Err(error) => own.left_out.push(error.to_string()),
        }
    }
    Ok(own)
}
