//! The pairs of a record as plain data.

use commgauge_base::collective::Collective;
use commgauge_base::units::{Bytes, Rate, Seconds};
use commgauge_model::record::line::CaseFacts;
use std::fmt;

/// What is measured between two ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// One-way time of a small message, half the round trip.
    Latency,
    /// Rate of a large message in a ping-pong.
    OneWay,
    /// Rate of a large message in each direction at the same time.
    BothWays,
}

impl Measure {
    /// Every one, in the order in which they are shown.
    pub const ALL: [Measure; 3] = [Measure::Latency, Measure::OneWay, Measure::BothWays];

    /// What a round of pairs measures; `latency_bytes` is the small message.
    pub(in crate::report) fn of(round: &CaseFacts, latency_bytes: Bytes) -> Measure {
        match round.collective {
            Collective::Bidirectional => Measure::BothWays,
            _ if round.bytes_total == latency_bytes => Measure::Latency,
            _ => Measure::OneWay,
        }
    }

    /// Name in headings.
    pub fn name(self) -> &'static str {
        match self {
            Measure::Latency => "latency",
            Measure::OneWay => "bandwidth one way",
            Measure::BothWays => "bandwidth both ways",
        }
    }

    /// Name in table columns.
    pub(in crate::report) fn short_name(self) -> &'static str {
        match self {
            Measure::Latency => "latency",
            Measure::OneWay => "one way",
            Measure::BothWays => "both ways",
        }
    }

    /// A share of the median in per cent, inverted where smaller values are better, so that below 100 is always worse.
    pub(in crate::report) fn goodness(self, percent: f64) -> f64 {
        if self == Measure::Latency { 1e4 / percent } else { percent }
    }

    /// A value with its unit.
    pub(in crate::report) fn shown(self, value: f64) -> String {
        if self == Measure::Latency { Seconds(value).to_string() } else { Rate(value).to_string() }
    }
}

/// Relative location of two ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairLocality {
    /// On one host.
    SameHost,
    /// On different hosts.
    DifferentHosts,
}

impl PairLocality {
    /// Both, in the order in which they are shown.
    pub const ALL: [PairLocality; 2] = [PairLocality::SameHost, PairLocality::DifferentHosts];

    /// The name in files.
    pub fn name(self) -> &'static str {
        match self {
            PairLocality::SameHost => "same_host",
            PairLocality::DifferentHosts => "different_hosts",
        }
    }
}

impl fmt::Display for PairLocality {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            PairLocality::SameHost => "same host",
            PairLocality::DifferentHosts => "different hosts",
        })
    }
}

/// A rank that takes part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairRank {
    /// World rank.
    pub rank: u32,
    /// Its host.
    pub host: String,
    /// Number of the host in order of first appearance.
    pub node: u32,
}

/// The value of one measure between two ranks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PairValue {
    /// Seconds, or bytes per second: the median of the replicates' medians.
    pub value: f64,
    /// The same for the best replicate.
    pub best: f64,
    /// Share of the median of all pairs of the same locality, in per cent.
    pub percent: f64,
    /// Samples of all replicates.
    pub samples: u64,
    /// Replicates in which it was measured.
    pub replicates: u32,
}

/// Two ranks.
#[derive(Clone, Debug, PartialEq)]
pub struct Pair {
    /// Index of the lower rank in [`PairsView::ranks`].
    pub a: usize,
    /// Index of the higher one.
    pub b: usize,
    /// Their relative location.
    pub locality: PairLocality,
    /// Whether both ranks are on one device (`--share-gpu`), so that no link is between them.
    pub shares_device: bool,
    /// The values in the order of [`Measure::ALL`]; `None` where nothing was measured or the case has no values.
    pub values: [Option<PairValue>; 3],
}

/// Statistics over all pairs of a locality.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LocalityStatistics {
    /// Pairs with a value.
    pub pairs: usize,
    /// The least.
    pub minimum: f64,
    /// The median.
    pub median: f64,
    /// The greatest.
    pub maximum: f64,
}

/// A pair that is slower than the scatter of its locality explains.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SlowPair {
    /// Index in [`PairsView::pairs`].
    pub pair: usize,
    /// By which measure.
    pub measure: Measure,
    /// Distance of its best replicate from the median, in robust standard deviations.
    pub deviations: f64,
    /// The allowed distance.
    pub allowed: f64,
}

/// Averages of a rank, or of all ranks of a host, over all of its pairs.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    /// The host, or `rank N`.
    pub name: String,
    /// Pairs that it is in.
    pub pairs: usize,
    /// Mean over its pairs of the share of the median, in per cent, in the order of [`Measure::ALL`].
    pub percent: [Option<f64>; 3],
}

/// The pairs of a record.
#[derive(Clone, Debug, PartialEq)]
pub struct PairsView {
    /// The participating ranks, in rank order.
    pub ranks: Vec<PairRank>,
    /// Rounds of the plan.
    pub rounds: usize,
    /// Maximum number of pairs that ran at the same time.
    pub pairs_at_once: u32,
    /// Pairs of the plan.
    pub pairs_planned: u64,
    /// The small message.
    pub latency_bytes: Bytes,
    /// The large one.
    pub bandwidth_bytes: Bytes,
    /// Every pair in the record, in rank order.
    pub pairs: Vec<Pair>,
    /// Middle of each measure (inner) in each locality (outer), where there are such pairs.
    pub middles: [[Option<LocalityStatistics>; 3]; 2],
    /// Values that were compared with the others of their locality.
    pub compared: usize,
    /// The slow ones, the worst first.
    pub slow: Vec<SlowPair>,
    /// Every host, where there are several.
    pub hosts: Vec<Standing>,
    /// Every rank.
    pub standings: Vec<Standing>,
}

impl PairsView {
    /// Number of hosts.
    pub fn host_count(&self) -> usize {
        let mut nodes: Vec<u32> = self.ranks.iter().map(|rank| rank.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes.len()
    }

    /// Pairs for which every measure has a value.
    pub fn complete_pairs(&self) -> usize {
        self.pairs.iter().filter(|pair| pair.values.iter().all(Option::is_some)).count()
    }

    /// What was measured, in one sentence.
    pub fn sentence(&self) -> String {
        let (ranks, hosts, complete) = (self.ranks.len(), self.host_count(), self.complete_pairs());
        let measured = if complete as u64 == self.pairs_planned { "measured" } else { "measured by every measure" };
        let at_once = match self.pairs_at_once {
            0 | 1 => "one pair at a time".to_owned(),
            pairs => format!("in {} rounds of up to {pairs} pairs at once", self.rounds),
        };
        format!(
            "{complete} of {} pairs of {ranks} ranks on {hosts} host{} {measured}, {at_once}",
            self.pairs_planned,
            if hosts == 1 { "" } else { "s" }
        )
    }
}
