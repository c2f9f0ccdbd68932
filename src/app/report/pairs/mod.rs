//! All pairs of ranks: the matrix, the median of each locality, slow pairs, and averages of each host.
//!
//! Derived from the record alone. `slow` decides which pairs are slow; rendering is in the other modules.

pub(super) mod csv;
mod document;
mod gather;
mod heat_map;
pub(super) mod json;
mod slow;
mod view;

pub(super) use document::{document, localities, measured, pairs, standings, text};

pub use view::{Measure, Pair, PairLocality, PairValue, PairsView};

use commgauge_base::collective::Collective;
use commgauge_model::record::Record;
use commgauge_model::record::line::CaseFacts;
use commgauge_model::workload::Style;

impl PairsView {
    /// The pairs of a record; `None` where it has no round of pairs.
    pub fn new(record: &Record) -> Option<PairsView> {
        let rounds: Vec<&CaseFacts> = record.plan.cases.iter().filter(|facts| facts.style == Style::Pairs).collect();
        let ping_pongs = || rounds.iter().filter(|facts| facts.collective == Collective::PingPong);
        let latency_bytes = ping_pongs().map(|facts| facts.bytes_total).min()?;
        let bandwidth_bytes = rounds.iter().map(|facts| facts.bytes_total).max()?;
        let of_latency = || ping_pongs().filter(|facts| facts.bytes_total == latency_bytes);
        let found = gather::gather(record, latency_bytes);
        let mut view = PairsView {
            ranks: found.ranks,
            rounds: of_latency().count(),
            pairs_at_once: rounds.iter().map(|facts| facts.groups).max().unwrap_or(0),
            pairs_planned: of_latency().map(|facts| u64::from(facts.groups)).sum(),
            latency_bytes,
            bandwidth_bytes,
            pairs: found.pairs,
            middles: [[None; 3]; 2],
            compared: 0,
            slow: Vec::new(),
            hosts: Vec::new(),
            standings: Vec::new(),
        };
        gather::compare_with_medians(&mut view);
        (view.compared, view.slow) = slow::slow_pairs(&view);
        (view.hosts, view.standings) = gather::standings(&view);
        Some(view)
    }

    /// The slow pairs and the rule, as sentences.
    pub fn findings(&self) -> Vec<String> {
        slow::findings(self)
    }
}

#[cfg(test)]
pub(super) mod tests;
