//! Times of groups of nodes, each node by itself and growing groups, from the histograms of their ranks.

use super::super::loaded_record::LoadedRecord;
use super::document::{MIN_MEMBERS, SuspectKind};
use super::explain::{Finding, percent, rule};
use super::places::Places;
use commgauge_base::stats::{Histogram, low_median};
use commgauge_model::layout::{Axis, Nodes};
use commgauge_model::record::line::{CaseFacts, CaseLine, Outcome};
use std::collections::BTreeMap;

/// A node that is slower inside by less than 5 % is ignored.
const MIN_INSIDE: f64 = 0.05;
/// Growth beyond a straight line by less than 10 % is ignored.
const MIN_GROWTH: f64 = 0.1;

/// Groups of equal size that performed the same call.
#[derive(Debug)]
pub(super) struct Level {
    /// Nodes in each group.
    pub nodes: u32,
    /// The nodes of each group, and the seconds of its slowest rank in each replicate.
    groups: Vec<(Vec<usize>, Vec<f64>)>,
}

/// The groups of one call by ascending size, starting at single nodes.
#[derive(Debug)]
pub(super) struct Growth {
    call: String,
    pub levels: Vec<Level>,
}

/// All calls of nodes or groups of nodes, and whether histograms were too coarse to separate nodes.
pub(super) fn growths(records: &[LoadedRecord], places: &Places) -> (Vec<Growth>, bool) {
    let mut found: BTreeMap<String, BTreeMap<u32, Level>> = BTreeMap::new();
    let mut coarse = false;
    for LoadedRecord { record, .. } in records {
        let nodes = Nodes::of_hosts(&places.node_of);
        for line in &record.cases {
            let Some(facts) = record.plan.cases.get(line.case as usize) else { continue };
            let count = match facts.axis {
                Axis::Node => 1,
                Axis::Nodes => facts.locality.nodes_spanned.max(1),
                _ => continue,
            };
            if !matches!(line.outcome, Outcome::Measured { .. }) {
                continue;
            }
            let level = found.entry(call(facts)).or_default().entry(count).or_insert_with(|| {
                let blocks = (0..nodes.count()).collect::<Vec<_>>();
                let groups = blocks.chunks_exact(count as usize).map(|block| (block.to_vec(), Vec::new())).collect();
                Level { nodes: count, groups }
            });
            match seconds_of_nodes(line, facts, places) {
                None => coarse = true,
                Some(seconds) => {
                    for (members, times) in &mut level.groups {
                        let slowest = members.iter().filter_map(|node| seconds[*node]).fold(f64::NAN, f64::max);
                        times.extend(Some(slowest).filter(|slowest| !slowest.is_nan()));
                    }
                }
            }
        }
    }
    let growths = found.into_iter().map(|(call, levels)| Growth { call, levels: levels.into_values().collect() });
    (growths.collect(), coarse)
}

fn call(facts: &CaseFacts) -> String {
    format!("{} of {} {} {}", facts.collective, facts.bytes_total, facts.element_type.name(), facts.placement)
}

/// The median of each node's slowest rank. `None` where a histogram covers ranks of several nodes.
fn seconds_of_nodes(line: &CaseLine, facts: &CaseFacts, places: &Places) -> Option<Vec<Option<f64>>> {
    let calls = f64::from(line.calls_per_sample.max(1)) * f64::from(facts.transfers_per_call.max(1));
    let mut seconds: Vec<Option<f64>> = vec![None; places.nodes()];
    for histogram in &line.histograms {
        let mut nodes = (histogram.rank..histogram.rank.saturating_add(histogram.ranks))
            .filter_map(|rank| places.node_of.get(rank as usize));
        let node = *nodes.next()? as usize;
        if nodes.any(|other| *other as usize != node) {
            return None;
        }
        let decoded = Histogram::decode(&histogram.hdr_v2_deflate_base64).ok()?;
        let median = decoded.percentile(50.0).or_else(|| decoded.percentile(0.0)).filter(|_| decoded.count() > 0);
        if let Some(median) = median {
            let own = median as f64 * 1e-9 / calls;
            seconds[node] = Some(seconds[node].map_or(own, |other| other.max(own)));
        }
    }
    Some(seconds)
}

impl Growth {
    /// Finds nodes that are slower inside than the others, the worst first. Returns how many were compared.
    pub(super) fn inside(&self, places: &Places, findings: &mut Vec<Finding>) -> u32 {
        let Some(level) = self.levels.first().filter(|level| level.nodes == 1) else { return 0 };
        let mut left: Vec<(usize, f64)> = (level.groups.iter())
            .filter_map(|(members, times)| Some((*members.first()?, low_median(times.iter().copied())?.ln())))
            .collect();
        let all = left.len();
        while left.len() >= MIN_MEMBERS - 1 && all >= MIN_MEMBERS {
            let scores: Vec<f64> = left.iter().map(|(_, score)| *score).collect();
            let Some(usual) = rule(all, MIN_INSIDE).usual(&scores) else { break };
            let worst = left.iter().copied().enumerate().max_by(|a, b| a.1.1.total_cmp(&b.1.1));
            let Some((index, (node, slower))) = worst.filter(|(_, (_, slower))| usual.strength(*slower) > 1.0) else {
                break;
            };
            left.remove(index);
            let excess = slower - usual.middle;
            findings.push(Finding {
                suspect: SuspectKind::Node { node: node as u32 },
                slower: excess,
                strength: usual.strength(slower),
                intermittent: false,
                inside: true,
                evidence: format!(
                    "inside {}: {} takes {} longer than on other nodes",
                    places.name(node),
                    self.call,
                    percent(excess)
                ),
            });
        }
        all as u32
    }

    /// Finds group sizes that take longer than a straight line through the smaller ones allows. The time of a healthy
    /// collective grows at most in proportion to the nodes (its steps), and mostly less, as the share of each falls; so
    /// twice the nodes may cost twice the last increase. Groups with a suspect are left out. Returns whether all sizes
    /// could be checked.
    pub(super) fn at_scale(&self, is_suspected: &dyn Fn(&[usize]) -> bool, findings: &mut Vec<Finding>) -> bool {
        let clean: Vec<(u32, Vec<f64>)> = (self.levels.iter())
            .map(|level| (level.nodes, of_replicates(level, is_suspected)))
            .filter(|(_, times)| !times.is_empty())
            .collect();
        let whole = clean.len() == self.levels.len();
        let middle = |times: &[f64]| low_median(times.iter().copied()).unwrap_or(f64::NAN);
        for [(nodes_a, a), (nodes_b, b), (nodes, times)] in clean.array_windows() {
            let slope = ((middle(b) - middle(a)) / f64::from(nodes_b - nodes_a)).max(0.0);
            let line = middle(b) + slope * f64::from(nodes - nodes_b);
            let least = times.iter().copied().fold(f64::INFINITY, f64::min);
            let (excess, always) = ((middle(times) / line).ln(), (least / line).ln());
            if always > MIN_GROWTH {
                findings.push(Finding {
                    suspect: SuspectKind::OnlyAtScale { from_nodes: *nodes },
                    slower: excess,
                    strength: excess / MIN_GROWTH,
                    intermittent: false,
                    inside: false,
                    evidence: format!(
                        "{} takes {} longer on {nodes} nodes than its growth from {nodes_a} to {nodes_b} nodes allows, while groups of {nodes_b} are normal",
                        self.call, percent(excess)
                    ),
                });
                break;
            }
        }
        whole
    }
}

/// In each replicate the lower median of the groups without a suspect.
fn of_replicates(level: &Level, is_suspected: &dyn Fn(&[usize]) -> bool) -> Vec<f64> {
    let clean: Vec<&Vec<f64>> =
        level.groups.iter().filter(|(members, _)| !is_suspected(members)).map(|(_, times)| times).collect();
    let replicates = clean.iter().map(|times| times.len()).max().unwrap_or(0);
    (0..replicates)
        .filter_map(|replicate| low_median(clean.iter().filter_map(|times| times.get(replicate).copied())))
        .collect()
}
