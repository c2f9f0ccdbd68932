//! The machine file: the link rates of a machine, for bounds of bus bandwidth and for the simulated backend, and its
//! expected performance, for verdicts.
//!
//! Rates are those of the links, per direction. The rates that a library reaches over them have to be measured.

mod bound;
mod description;
mod expect;
mod expectation;
mod fault;
mod fault_table;
mod fault_text;
mod figure;
mod level;
mod lint;
mod number;
mod own_work;
mod read;
mod scope;

pub use description::{Computing, Machine, Network, NodeLinks, Noise};
pub use expectation::{Expectation, ExpectedCall, ExpectedGroup, Limit, NetworkExpectation, Reached};
pub use fault::{Direction, Fault};
pub use level::{ANY_GPU, LayerKind, Level};
pub use lint::{Finding, lint};
pub use own_work::{ExpectedWork, OwnWorkExpectation};
pub use scope::{JudgedRuns, RequiredCoverage, Version};

use crate::config::document::Place;
use crate::config::shipped::{Shipped, read_text};
use commgauge_base::error::{Error, Result};
use commgauge_base::units::Rate;
use std::path::Path;

impl Machine {
    /// Reads and checks a machine file, given by path or name, as [`Shipped::find`] finds it.
    ///
    /// # Errors
    /// A usage error where there is none, an environment error where it cannot be read, else as [`Machine::parse`].
    pub fn load(requested: &Path) -> Result<Machine> {
        let path = Shipped::Machine.find(requested).ok_or_else(|| Error::usage(Shipped::Machine.unknown(requested)))?;
        Machine::parse(&read_text(&path, &Place::flag("--machine"))?, &path)
    }

    /// Checks the text of a machine file; `path` is for the messages.
    ///
    /// # Errors
    /// A usage error that names file, line and key: not TOML, an unknown key, a missing or impossible value.
    pub fn parse(text: &str, path: &Path) -> Result<Machine> {
        read::parse(text, path)
    }

    /// Rate at which one rank can send to `ranks` ranks of its node, including itself: over all its links, or those to
    /// its peers.
    pub fn within_rate_per_rank(&self, ranks: u32) -> Rate {
        let peers = f64::from(ranks.saturating_sub(1).max(1));
        let links = self.within_node.rate_per_peer.map_or(f64::INFINITY, |rate| rate.0 * peers);
        Rate(self.within_node.rate.0.min(links))
    }

    /// What one rank can send over the network while `ranks_at_work` ranks of its node do so.
    ///
    /// A rank drives the adapters that are its own: with fewer ranks than adapters several, otherwise one. That is how
    /// libraries bind ranks to adapters; one that lets a rank send over its neighbours' adapters could be faster.
    pub fn adapter_rate_per_rank(&self, ranks_at_work: u32) -> Rate {
        let adapters = f64::from(self.between_nodes.adapters_per_node);
        let own = (adapters / f64::from(self.ranks_per_node)).max(1.0);
        Rate(own.min(adapters / f64::from(ranks_at_work.max(1))) * self.between_nodes.rate_per_adapter.0)
    }
}
