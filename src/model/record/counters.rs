//! What counters of hosts and devices did while cases were measured: errors of ports and links, retransmissions, states of devices.

use crate::config::machine::{CounterKind, known_counter};
use commgauge_base::units::Rate;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
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
    /// The highest of what has a height at any moment, such as `row_remap_pending of GPU 5` and `cpu_pressure of host` in per cent.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub levels: BTreeMap<String, u64>,
    /// Counters that went back, vanished or are full: what they counted in between is unknown.
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
        for (name, level) in later.levels {
            self.levels.entry(name).and_modify(|mine| *mine = level.max(*mine)).or_insert(level);
        }
        self.lost.extend(later.lost);
    }

    /// Whether nothing rose and nothing was lost.
    pub fn is_quiet(&self) -> bool {
        *self == CounterBlock { host: self.host.clone(), during: self.during.clone(), ..CounterBlock::default() }
    }
}

/// By how much counters rose, or how high they were, by host and counter.
pub type Rises<'a> = BTreeMap<(&'a str, &'a str), u64>;

/// What rises or is high on hosts that are not healthy.
pub fn faults<'a>(blocks: impl Iterator<Item = &'a CounterBlock> + Clone) -> Rises<'a> {
    sums(blocks, |block| &block.errors, CounterKind::States)
}

/// What rises or is high under load too.
pub fn loads<'a>(blocks: impl Iterator<Item = &'a CounterBlock> + Clone) -> Rises<'a> {
    sums(blocks, |block| &block.retries, CounterKind::Levels)
}

/// Sums over blocks, and the highest of the levels of a kind.
fn sums<'a>(
    blocks: impl Iterator<Item = &'a CounterBlock>,
    risen: fn(&CounterBlock) -> &BTreeMap<String, u64>,
    high: CounterKind,
) -> Rises<'a> {
    let mut sums = Rises::new();
    for block in blocks {
        for (counter, by) in risen(block) {
            *sums.entry((&*block.host, &**counter)).or_default() += by;
        }
        let levels =
            block.levels.iter().filter(|(name, _)| known_counter(name).is_some_and(|known| known.kind == high));
        for (counter, level) in levels {
            let highest = sums.entry((&*block.host, &**counter)).or_default();
            *highest = (*level).max(*highest);
        }
    }
    sums
}

/// Rises and heights as phrases, states first, then the largest.
pub fn phrases(rises: Rises) -> Vec<String> {
    let kind = |counter: &str| known_counter(counter).map(|known| known.kind);
    let mut all: Vec<_> = rises.into_iter().collect();
    all.sort_by_key(|((_, counter), by)| (kind(counter) != Some(CounterKind::States), Reverse(*by)));
    let phrase = |((host, counter), by): ((&str, &str), u64)| match (kind(counter), counter.split_once(" of ")) {
        (Some(CounterKind::States), Some((name, device))) => format!("{device} of {host}: {name}"),
        (Some(CounterKind::Levels), Some((name, _))) => format!("{host}: {name} {by} %"),
        _ => format!("{counter} on {host} rose by {by}"),
    };
    all.into_iter().map(phrase).collect()
}
// What perftest's `ib_write_bw` reaches between the adapters of two hosts.

/// Writes from an adapter of the second host to one of the first.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PerftestLine {
    /// A rank of the first host, and one of the second, that started it.
    pub ranks: [u32; 2],
    /// Their adapters.
    pub adapters: [String; 2],
    /// Whether the memory is that of their devices (GPUDirect RDMA).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gpudirect: bool,
    /// The average rate.
    pub bytes_per_second: Option<Rate>,
    /// Why there is none, with the host.
    pub problem: Option<String>,
}
