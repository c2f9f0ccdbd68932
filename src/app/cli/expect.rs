//! `commgauge expect`: makes machine files from healthy runs, and checks machine files for contradictions.

use super::text_output::{check_only_format, replace};
use super::verdict_output::read_all;
use crate::report::visible;
use clap::Subcommand;
use commgauge_analysis::verdict::{Allowed, LearnRule, learn};
use commgauge_base::error::{Error, Result};
use commgauge_base::units::counted;
use commgauge_base::visible::ShownPath;
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
        super::table_or_json::print(&text)?;
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
        super::table_or_json::print(&text)?;
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
