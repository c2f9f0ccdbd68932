//! Counters of hosts that rose while cases were measured: errors of ports and links, and retransmissions.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What the hosts' counters did since the line before, or since the run began.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CountersLine {
    /// Hosts whose counters were read.
    pub hosts_read: u32,
    /// The counters that each of them has, such as `symbol_error`.
    pub on_all_hosts: Vec<String>,
    /// The blocks of cases in which any rose.
    pub blocks: Vec<CounterBlock>,
}

/// Counters of one host that rose in a block of consecutive cases.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CounterBlock {
    /// Host.
    pub host: String,
    /// The cases, each as its index in the plan and its replicate; empty between cases.
    pub during: Vec<(u32, u32)>,
    /// By how much each counter rose that never rises on a healthy host, such as `symbol_error of mlx5_4 port 1`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub errors: BTreeMap<String, u64>,
    /// By how much each rose that rises with load, such as `RetransSegs of Tcp`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub retries: BTreeMap<String, u64>,
    /// Counters that went back or vanished: what they counted in between is unknown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<String>,
}

impl CounterBlock {
    /// Adds a later block of the same host.
    pub fn merge(&mut self, later: CounterBlock) {
        self.during.extend(later.during);
        for (mine, more) in [(&mut self.errors, later.errors), (&mut self.retries, later.retries)] {
            more.into_iter().for_each(|(name, by)| *mine.entry(name).or_default() += by);
        }
        self.lost.extend(later.lost);
    }

    /// Whether nothing rose and nothing was lost.
    pub fn is_quiet(&self) -> bool {
        self.errors.is_empty() && self.retries.is_empty() && self.lost.is_empty()
    }
}

/// By how much counters rose, by host and counter.
pub type Rises<'a> = BTreeMap<(&'a str, &'a str), u64>;

/// The sums over blocks of their errors, or of their retries.
pub fn rises<'a>(
    blocks: impl Iterator<Item = &'a CounterBlock>,
    of: fn(&CounterBlock) -> &BTreeMap<String, u64>,
) -> Rises<'a> {
    let mut sums = Rises::new();
    for block in blocks {
        for (counter, by) in of(block) {
            *sums.entry((&*block.host, &**counter)).or_default() += by;
        }
    }
    sums
}
