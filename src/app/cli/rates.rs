//! Source of predicted times, given by flags: a fit, a machine file, or both.

use super::places::report_resolved_file;
use commgauge_analysis::cost::{Fit, PlaceQuery};
use commgauge_analysis::planner::rates::{Both, Fitted, Published, Rates};
use commgauge_base::error::{Error, Result};
use commgauge_model::config::{Machine, Shipped};
use std::path::{Path, PathBuf};

/// The group of the flags of which one at least has to be given.
const SOURCE: &str = "rates_source";

/// The flags that name a fit or a machine.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Rates", group(clap::ArgGroup::new(SOURCE).required(true).multiple(true)))]
pub struct RatesFlags {
    /// The fit, from `commgauge fit -o`
    #[arg(long, value_name = "FILE", group = SOURCE)]
    pub fit: Option<PathBuf>,

    /// A machine file, for published link rates: not calibrated. With --fit, for the calls that the fit does not hold
    #[arg(long, value_name = "FILE", group = SOURCE)]
    pub machine: Option<PathBuf>,

    /// Where the groups of the fit were placed whose records do not say it, as far as you know: 1n for any groups inside a
    /// host, 1n/1g for one at a time
    #[arg(long, value_name = "PLACE", requires = "fit")]
    pub unknown_locality: Option<PlaceQuery>,
}

/// Times of calls, and the ranks of a node.
pub struct Calls<'a> {
    /// Times of calls.
    pub rates: &'a dyn Rates,
    /// Ranks of a node.
    pub ranks_per_node: u32,
}

/// The files that the flags name, parsed.
#[derive(Debug)]
pub struct RatesSource {
    named: Named,
    unknown: Option<PlaceQuery>,
}

#[derive(Debug)]
enum Named {
    Fit(Box<Fit>, String),
    Machine(Box<Machine>),
    Both(Box<Fit>, String, Box<Machine>),
}

impl RatesFlags {
    /// The files that the flags name.
    pub fn files(&self) -> Vec<&Path> {
        self.fit.iter().chain(&self.machine).map(PathBuf::as_path).collect()
    }

    /// Reads the named files.
    ///
    /// # Errors
    /// If a file cannot be read or is invalid.
    pub fn read(&self) -> Result<RatesSource> {
        let fit = self.fit.as_ref().map(|path| Fit::read(path).map(|fit| (Box::new(fit), path.display().to_string())));
        self.machine.iter().for_each(|machine| report_resolved_file(Shipped::Machine, machine));
        let machine = self.machine.as_ref().map(|path| Machine::load(path).map(Box::new));
        let named = match (fit.transpose()?, machine.transpose()?) {
            (Some((fit, name)), Some(machine)) => Named::Both(fit, name, machine),
            (Some((fit, name)), None) => Named::Fit(fit, name),
            (None, Some(machine)) => Named::Machine(machine),
            (None, None) => return Err(Error::usage("give --fit FILE, or --machine FILE for published rates")),
        };
        Ok(RatesSource { named, unknown: self.unknown_locality })
    }
}

impl RatesSource {
    /// The rates, for queries.
    pub fn rates(&self) -> Box<dyn Rates + '_> {
        match &self.named {
            Named::Fit(fit, name) => Box::new(Fitted::new(fit, name, self.unknown)),
            Named::Machine(machine) => Box::new(Published::new(machine)),
            Named::Both(fit, name, machine) => {
                Box::new(Both::new(Fitted::new(fit, name, self.unknown), Published::new(machine)))
            }
        }
    }

    /// The fit, where one was named.
    pub fn fit(&self) -> Option<&Fit> {
        match &self.named {
            Named::Fit(fit, _) | Named::Both(fit, ..) => Some(fit),
            Named::Machine(_) => None,
        }
    }

    /// The machine, where one was named.
    pub fn machine(&self) -> Option<&Machine> {
        match &self.named {
            Named::Machine(machine) | Named::Both(_, _, machine) => Some(machine),
            Named::Fit(..) => None,
        }
    }

    /// What calls take, for steps to be priced.
    ///
    /// # Errors
    /// As [`ranks_per_node`].
    pub fn calls<'a>(&self, rates: &'a dyn Rates, requested: Option<u32>) -> Result<Calls<'a>> {
        Ok(Calls { rates, ranks_per_node: self.ranks_per_node(requested)? })
    }

    /// Ranks on each node: see [`ranks_per_node`].
    ///
    /// # Errors
    /// As there.
    pub fn ranks_per_node(&self, requested: Option<u32>) -> Result<u32> {
        ranks_per_node(requested, self.machine())
    }
}

/// Ranks on each node: as requested, else from the machine file.
///
/// # Errors
/// If neither gives a number, or it is 0.
pub fn ranks_per_node(requested: Option<u32>, machine: Option<&Machine>) -> Result<u32> {
    match requested.or_else(|| machine.map(|machine| machine.ranks_per_node)) {
        Some(0) => Err(Error::usage("--ranks-per-node: found 0; accepted: 1 or more")),
        Some(ranks) => Ok(ranks),
        None => Err(Error::usage(
            "--ranks-per-node is missing; a fit does not say how many ranks a node has (a machine file does)",
        )),
    }
}
