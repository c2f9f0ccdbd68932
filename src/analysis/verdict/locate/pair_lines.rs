//! The rounds of pairs in records: for every valid line its measure, replicate and the times of its pairs.

use super::super::loaded_record::LoadedRecord;
use super::places::Places;
use commgauge_base::collective::Collective;
use commgauge_base::units::Bytes;
use commgauge_model::record::line::{CaseFacts, Outcome, PairTimes};
use commgauge_model::workload::Style;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is measured between two nodes, or two devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// A small message.
    Latency,
    /// A large message in a ping-pong.
    OneWay,
    /// Large messages in both directions at once.
    BothWays,
    /// How much longer the slowest tenth of large messages takes than their median.
    Tail,
}

impl Measure {
    pub(super) const ALL: [Measure; 4] = [Measure::Latency, Measure::OneWay, Measure::BothWays, Measure::Tail];

    /// What a round of pairs measures, where the smallest of the ping-pongs has so many bytes.
    pub(in super::super) fn of(collective: Collective, bytes: Bytes, latency_bytes: Option<Bytes>) -> Measure {
        match collective {
            Collective::Bidirectional => Measure::BothWays,
            _ if Some(bytes) == latency_bytes => Measure::Latency,
            _ => Measure::OneWay,
        }
    }

    /// Whether it takes as long as a large message needs.
    pub(super) fn is_of_bandwidth(self) -> bool {
        matches!(self, Measure::OneWay | Measure::BothWays)
    }

    /// What it is called in sentences.
    pub fn name(self) -> &'static str {
        match self {
            Measure::Latency => "latency",
            Measure::OneWay => "one way",
            Measure::BothWays => "both ways",
            Measure::Tail => "slowest tenth",
        }
    }
}

/// A valid line of a round.
pub(super) struct PairLine<'a> {
    /// Numbered over all records.
    pub replicate: usize,
    pub measure: Measure,
    /// Messages in a sample, one after another.
    messages: f64,
    times: Option<&'a PairTimes>,
}

/// The times of a pair of ranks, the end on the lower node (or the lower local rank) first.
#[derive(Clone, Copy)]
pub(super) struct PairValue {
    pub nodes: [usize; 2],
    pub locals: [usize; 2],
    median: u64,
    p90: u64,
    messages: f64,
}

impl PairValue {
    /// Logarithm of the seconds of a message.
    pub(super) fn middle(&self) -> f64 {
        (self.median as f64 / self.messages).ln()
    }

    /// Logarithm of how much longer the slowest tenth takes than the median.
    pub(super) fn tail(&self) -> f64 {
        if self.p90 >= self.median { (self.p90 as f64 / self.median as f64).ln() } else { f64::NAN }
    }
}

impl PairLine<'_> {
    /// The times of the line.
    pub(super) fn values<'b>(&'b self, places: &'b Places) -> impl Iterator<Item = PairValue> + 'b {
        self.times.into_iter().flat_map(move |times| {
            let ranks = times.rank_a.iter().zip(&times.rank_b);
            let times = times.median_nanoseconds.iter().zip(&times.p90_nanoseconds);
            ranks.zip(times).filter_map(move |((a, b), (median, p90))| {
                let place = |rank: u32| {
                    let rank = rank as usize;
                    Some((*places.node_of.get(rank)? as usize, *places.local_of.get(rank)? as usize))
                };
                let mut ends = [place(*a)?, place(*b)?];
                ends.sort_unstable();
                let nodes = ends.map(|(node, _)| node);
                let locals = ends.map(|(_, local)| local);
                let value = PairValue { nodes, locals, median: *median, p90: *p90, messages: self.messages };
                (*median > 0).then_some(value)
            })
        })
    }
}

/// Whether a case is a round of pairs.
pub(super) fn is_pairs(facts: &CaseFacts) -> bool {
    facts.style == Style::Pairs && matches!(facts.collective, Collective::PingPong | Collective::Bidirectional)
}

/// Every valid line of a round; corrupt and failed ones are left out.
pub(super) fn pair_lines(records: &[LoadedRecord]) -> Vec<PairLine<'_>> {
    let mut found = Vec::new();
    let mut before = 0;
    for LoadedRecord { record, .. } in records {
        let rounds = || record.plan.cases.iter().filter(|facts| is_pairs(facts));
        let ping_pongs = rounds().filter(|facts| facts.collective == Collective::PingPong);
        let latency_bytes = ping_pongs.map(|facts| facts.bytes_total).min();
        for line in &record.cases {
            let Some(facts) = record.plan.cases.get(line.case as usize).filter(|facts| is_pairs(facts)) else {
                continue;
            };
            let measure = Measure::of(facts.collective, facts.bytes_total, latency_bytes);
            if matches!(line.outcome, Outcome::Measured { .. }) {
                found.push(PairLine {
                    replicate: before + line.replicate as usize,
                    measure,
                    messages: f64::from(line.calls_per_sample.max(1)) * f64::from(facts.transfers_per_call.max(1)),
                    times: line.pairs.as_deref(),
                });
            }
        }
        before += record.header.settings.replicates as usize;
    }
    found
}
