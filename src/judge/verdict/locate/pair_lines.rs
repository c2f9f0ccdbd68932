//! The rounds of pairs in records: for every valid line its measure, replicate and the times of its pairs.

use super::super::comparability::LoadedRecord;
use commgauge_base::collective::Collective;
use commgauge_base::error::{Error, Result};
use commgauge_base::stats::low_median;
use commgauge_base::units::Bytes;
use commgauge_base::visible::ShownPath;
use commgauge_model::config::Machine;
use commgauge_model::record::line::{BackendLine, CaseFacts, Outcome, PairTimes, RankFacts};
use commgauge_model::workload::{SCREENING, Style};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The measure between two nodes, or two devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// A small message.
    #[strum(serialize = "latency")]
    Latency,
    /// A large message in a ping-pong.
    #[strum(serialize = "one way")]
    OneWay,
    /// Large messages in both directions at once.
    #[strum(serialize = "both ways")]
    BothWays,
    /// Excess of the slowest tenth of large messages over their median.
    #[strum(serialize = "slowest tenth")]
    Tail,
    /// A collective of all ranks of two hosts, in logs of other tools.
    #[strum(serialize = "a collective")]
    Collective,
}

commgauge_base::error::names!(Measure);

impl Measure {
    pub(super) const ALL: [Measure; 5] =
        [Measure::Latency, Measure::OneWay, Measure::BothWays, Measure::Tail, Measure::Collective];

    /// The measure of a round of pairs whose smallest ping-pong has this many bytes.
    pub(in crate::verdict) fn of(collective: Collective, bytes: Bytes, latency_bytes: Option<Bytes>) -> Measure {
        match collective {
            Collective::Bidirectional => Measure::BothWays,
            Collective::PingPong if Some(bytes) == latency_bytes => Measure::Latency,
            Collective::PingPong => Measure::OneWay,
            _ => Measure::Collective,
        }
    }

    /// Whether it depends on the time of a large message.
    pub(super) fn is_of_bandwidth(self) -> bool {
        matches!(self, Measure::OneWay | Measure::BothWays | Measure::Collective)
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

    /// Logarithm of the excess of the slowest tenth over the median.
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
    facts.style == Style::Pairs
}

/// Whether a case is a round of pairs in which nodes meet random others, so that the rounds of its record have some of the pairs only.
pub fn is_screening(facts: &CaseFacts) -> bool {
    facts.name.split('/').nth(1).is_some_and(|label| label.starts_with(SCREENING))
}

/// Every valid line of a round; corrupt and failed ones are skipped.
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

// Times between pairs of nodes, from the rounds of a record: for each measure a matrix over pairs and local ranks.
//
// Values are natural logarithms of the time of a message: 0.1 more is about 10 % slower.

/// One measure between all nodes.
#[derive(Clone, Debug)]
pub(super) struct PairMatrix {
    pub nodes: usize,
    pub locals: usize,
    met: Arc<Met>,
    /// For each replicate: every pair of nodes that met, and in it every local rank; NaN if not measured.
    by_replicate: Vec<Vec<f64>>,
    /// For each replicate and pair, the line that measured it.
    line_of: Vec<Vec<usize>>,
    /// The lower median of the replicates.
    middle: Vec<f64>,
    /// For each pair of nodes the lower median of its local ranks: of their medians, and of each replicate. Precomputed because every
    /// search uses them.
    pair_middle: Vec<f64>,
    pair_by_replicate: Vec<Vec<f64>>,
}

/// The matrices of all measures, and their coverage.
#[derive(Debug)]
pub(super) struct PairMatrices {
    /// In the order of [`Measure::ALL`]; measures without values are absent.
    pub measures: Vec<(Measure, PairMatrix)>,
    /// Pairs of nodes in the plan.
    pub planned: u64,
    /// True if the plan has only some of the pairs of nodes.
    pub screened: bool,
    /// Pairs of nodes with a value for every measure of the plan.
    pub measured: u64,
    /// Local ranks with measurements.
    pub locals: usize,
    pub replicates: usize,
    /// True if pairs ran one at a time, so that links shared by pairs were never loaded together.
    pub one_at_a_time: bool,
}

impl PairMatrices {
    /// Reads the rounds between nodes of all records.
    pub(super) fn of(records: &[LoadedRecord], lines: &[PairLine], places: &Places) -> PairMatrices {
        let nodes = places.nodes();
        // Pairs of equal local ranks use the same rail. If all ranks were paired with all, only those count.
        let equal = |value: &PairValue| value.locals[0] == value.locals[1];
        let rails = lines.iter().any(|line| between_nodes(line, places).any(|value| equal(&value)));
        let is_kept = |value: &PairValue| !rails || equal(value);
        let local = |value: &PairValue| if rails { value.locals[0] } else { 0 };
        let lines: Vec<&PairLine> = lines.iter().filter(|line| between_nodes(line, places).next().is_some()).collect();
        let highest = |line: &&PairLine| between_nodes(line, places).filter(is_kept).map(|value| local(&value)).max();
        let locals = lines.iter().filter_map(highest).max().map_or(0, |most| most + 1);
        let replicates = lines.iter().map(|line| line.replicate + 1).max().unwrap_or(0);
        let pairs = lines.iter().flat_map(|line| between_nodes(line, places)).filter(is_kept);
        let met = Arc::new(Met::of(nodes, pairs.map(|value| value.nodes)));
        let mut measures = Vec::new();
        for measure in Measure::ALL {
            let mut matrix = PairMatrix::empty(Arc::clone(&met), locals, replicates);
            let tail = measure == Measure::Tail;
            let source = if tail { Measure::OneWay } else { measure };
            for (number, line) in lines.iter().enumerate().filter(|(_, line)| line.measure == source) {
                for value in between_nodes(line, places).filter(is_kept) {
                    let Some(pair) = met.index(value.nodes) else { continue };
                    let cell = pair * locals + local(&value);
                    matrix.line_of[line.replicate][pair] = number;
                    matrix.by_replicate[line.replicate][cell] = if tail { value.tail() } else { value.middle() };
                }
            }
            matrix.compute_medians();
            if matrix.middle.iter().any(|value| !value.is_nan()) {
                measures.push((measure, matrix));
            }
        }
        let (planned, screened) = planned(records, places);
        let wanted: Vec<&PairMatrix> =
            measures.iter().filter(|(measure, _)| *measure != Measure::Tail).map(|(_, matrix)| matrix).collect();
        let whole =
            |pair: &[usize; 2]| !wanted.is_empty() && wanted.iter().all(|matrix| matrix.of_pair(*pair).is_some());
        let measured = met.pairs.iter().filter(|pair| whole(pair)).count() as u64;
        let at_once = records.iter().flat_map(|loaded| &loaded.record.plan.cases).filter(|facts| is_pairs(facts));
        let one_at_a_time =
            at_once.map(|facts| facts.groups as usize).max().is_some_and(|most| most <= locals.max(1)) && nodes > 3;
        PairMatrices { measures, planned, screened, measured, locals, replicates, one_at_a_time }
    }
}

/// The times of the pairs of a line whose ends are on different nodes.
fn between_nodes<'a>(line: &'a PairLine, places: &'a Places) -> impl Iterator<Item = PairValue> + 'a {
    line.values(places).filter(|value| value.nodes[0] != value.nodes[1])
}

/// The number of pairs of nodes that should have been measured, and whether these are only some: the rounds of a record form a round-robin
/// tournament, or each of them has as many pairs as the nodes allow, none of them twice. Logs of other tools have a row for each pair.
fn planned(records: &[LoadedRecord], places: &Places) -> (u64, bool) {
    let nodes = places.nodes() as u64;
    let all_pairs = nodes * nodes.saturating_sub(1) / 2;
    let is_of_log = |facts: &&CaseFacts| {
        is_pairs(facts) && Measure::of(facts.collective, facts.bytes_total, None) == Measure::Collective
    };
    let of_logs = records.iter().map(|loaded| loaded.record.plan.cases.iter().filter(is_of_log).count() as u64).max();
    if let Some(pairs) = of_logs.filter(|pairs| *pairs > 0) {
        return (pairs, pairs < all_pairs);
    }
    let rounds_of = |loaded: &LoadedRecord| {
        let both_ways = |facts: &&CaseFacts| is_pairs(facts) && facts.collective == Collective::Bidirectional;
        let rounds: Vec<&CaseFacts> = loaded.record.plan.cases.iter().filter(both_ways).collect();
        let screening = rounds.iter().filter(|facts| is_screening(facts)).count() as u64;
        (rounds.len() as u64, screening)
    };
    match records.iter().map(rounds_of).max() {
        None | Some((0, _)) => (0, false),
        Some((_, 0)) => (all_pairs, false),
        Some((_, screening)) => (screening * (nodes / 2), true),
    }
}

/// Which nodes met.
#[derive(Debug)]
struct Met {
    /// The pairs in ascending order, the lower node first.
    pairs: Vec<[usize; 2]>,
    /// Where the pairs of each lower node begin.
    begins: Vec<usize>,
    /// Of each node, in ascending order.
    partners: Vec<Vec<usize>>,
}

impl Met {
    fn of(nodes: usize, pairs: impl Iterator<Item = [usize; 2]>) -> Met {
        let mut partners = vec![Vec::new(); nodes];
        let mut before = None;
        // The local ranks of two nodes follow each other.
        for [a, b] in pairs.filter(|pair| before.replace(*pair) != Some(*pair)) {
            partners[a].push(b);
            partners[b].push(a);
        }
        for others in &mut partners {
            others.sort_unstable();
            others.dedup();
        }
        let of_lower = |(a, others): (usize, &Vec<usize>)| {
            others.iter().filter(move |b| a < **b).map(move |b| [a, *b]).collect::<Vec<_>>()
        };
        let pairs: Vec<[usize; 2]> = partners.iter().enumerate().flat_map(of_lower).collect();
        let begins = (0..=nodes).map(|node| pairs.partition_point(|[a, _]| *a < node)).collect();
        Met { pairs, begins, partners }
    }

    fn index(&self, [a, b]: [usize; 2]) -> Option<usize> {
        let begin = *self.begins.get(a)?;
        let of_lower = self.pairs.get(begin..*self.begins.get(a + 1)?)?;
        Some(begin + of_lower.binary_search(&[a, b]).ok()?)
    }
}

impl PairMatrix {
    fn empty(met: Arc<Met>, locals: usize, replicates: usize) -> PairMatrix {
        let (pairs, cells) = (met.pairs.len(), met.pairs.len() * locals);
        PairMatrix {
            nodes: met.partners.len(),
            locals,
            met,
            by_replicate: vec![vec![f64::NAN; cells]; replicates],
            line_of: vec![vec![0; pairs]; replicates],
            middle: vec![f64::NAN; cells],
            pair_middle: Vec::new(),
            pair_by_replicate: Vec::new(),
        }
    }

    /// A matrix of these logarithms, by pair, local rank and replicate.
    #[cfg(test)]
    pub(super) fn of(
        nodes: usize,
        locals: usize,
        replicates: usize,
        mut value: impl FnMut([usize; 2], usize, usize) -> f64,
    ) -> PairMatrix {
        let all = (0..nodes).flat_map(|a| (a + 1..nodes).map(move |b| [a, b]));
        PairMatrix::of_pairs(nodes, all, [locals, replicates], &mut value)
    }

    /// As above, of nodes of which only these met; numbers of local ranks and of replicates.
    #[cfg(test)]
    pub(super) fn of_pairs(
        nodes: usize,
        pairs: impl Iterator<Item = [usize; 2]>,
        [locals, replicates]: [usize; 2],
        value: &mut dyn FnMut([usize; 2], usize, usize) -> f64,
    ) -> PairMatrix {
        let met = Arc::new(Met::of(nodes, pairs));
        let mut matrix = PairMatrix::empty(Arc::clone(&met), locals, replicates);
        for (index, pair_of_nodes) in met.pairs.iter().copied().enumerate() {
            for local in 0..locals {
                for replicate in 0..replicates {
                    let cell = index * locals + local;
                    matrix.by_replicate[replicate][cell] = value(pair_of_nodes, local, replicate);
                }
            }
        }
        matrix.compute_medians();
        matrix
    }

    /// Measures the pairs of each round by a line of their own.
    #[cfg(test)]
    pub(super) fn measure_in(&mut self, rounds: &[Vec<[usize; 2]>]) {
        for (number, pair) in
            rounds.iter().enumerate().flat_map(|(number, round)| round.iter().map(move |pair| (number, pair)))
        {
            let index = self.met.index(*pair).unwrap();
            self.line_of.iter_mut().for_each(|lines| lines[index] = number);
        }
    }

    fn compute_medians(&mut self) {
        for (cell, middle) in self.middle.iter_mut().enumerate() {
            let values = self.by_replicate.iter().map(|replicate| replicate[cell]).filter(|value| !value.is_nan());
            *middle = low_median(values).unwrap_or(f64::NAN);
        }
        let locals = self.locals;
        self.pair_middle = medians_of_pairs(&self.middle, locals);
        self.pair_by_replicate = self.by_replicate.iter().map(|cells| medians_of_pairs(cells, locals)).collect();
    }

    pub(super) fn replicates(&self) -> usize {
        self.by_replicate.len()
    }

    /// Every pair of nodes that met, the lower node first.
    pub(super) fn pairs(&self) -> impl Iterator<Item = [usize; 2]> + '_ {
        self.met.pairs.iter().copied()
    }

    /// The nodes that a node met.
    pub(super) fn partners(&self, node: usize) -> impl Iterator<Item = usize> + '_ {
        self.met.partners[node].iter().copied()
    }

    fn index(&self, [a, b]: [usize; 2]) -> Option<usize> {
        self.met.index([a.min(b), a.max(b)])
    }

    /// Value of one local rank of a pair.
    pub(super) fn of_local(&self, pair: [usize; 2], local: usize) -> Option<f64> {
        let cell = self.index(pair)? * self.locals + local;
        self.middle.get(cell).copied().filter(|value| !value.is_nan())
    }

    /// Value of a pair: the lower median of its local ranks, so that a slow rail does not count.
    pub(super) fn of_pair(&self, pair: [usize; 2]) -> Option<f64> {
        self.pair_middle.get(self.index(pair)?).copied().filter(|value| !value.is_nan())
    }

    /// The line that measured a pair in a replicate, by its number.
    pub(super) fn line_of(&self, pair: [usize; 2], replicate: usize) -> Option<usize> {
        self.line_of.get(replicate)?.get(self.index(pair)?).copied()
    }

    pub(super) fn of_pair_in(&self, pair: [usize; 2], replicate: usize) -> Option<f64> {
        let of_pairs = self.pair_by_replicate.get(replicate)?;
        of_pairs.get(self.index(pair)?).copied().filter(|value| !value.is_nan())
    }
}

/// The median of the local ranks of each pair of nodes.
fn medians_of_pairs(cells: &[f64], locals: usize) -> Vec<f64> {
    let known = |pair: &[f64]| low_median(pair.iter().copied().filter(|value| !value.is_nan()));
    cells.chunks(locals.max(1)).map(|pair| known(pair).unwrap_or(f64::NAN)).collect()
}

// The placement of ranks: nodes by number with their hosts, local ranks, and leaf switches, from the records.

/// Facts about the machine in addition to the records.
#[derive(Clone, Debug, Default)]
pub struct LocateOptions {
    /// Nodes behind each leaf switch, counted from node 0; `None` takes the value from the records.
    pub nodes_per_leaf: Option<u32>,
    /// Nodes that the links of a rack join, counted from node 0 (18 in an NVL72 rack); `None` takes the value from the records.
    pub nodes_per_rack: Option<u32>,
    /// The machine file with the expected rates of pairs; without it, pairs are only compared with each other.
    pub machine: Option<Machine>,
}

impl LocateOptions {
    /// The options from a machine file.
    pub fn of_machine(machine: &Machine) -> LocateOptions {
        let machine = machine.clone();
        LocateOptions {
            nodes_per_leaf: machine.hosts_per_leaf(),
            nodes_per_rack: machine.hosts_per_rack(),
            machine: Some(machine),
        }
    }
}

/// The placement of a run's ranks.
#[derive(Clone, Debug)]
pub(super) struct Places {
    /// Host of each node, by number.
    pub hosts: Vec<String>,
    /// Node of each rank, as an index of `hosts`.
    pub node_of: Vec<u32>,
    /// Local rank of each rank on its node.
    pub local_of: Vec<u32>,
    /// Ranks on each node.
    pub ranks_on: Vec<u32>,
    /// Nodes behind each leaf switch, if known.
    pub nodes_per_leaf: Option<u32>,
    /// Nodes that the links inside a rack join, if any.
    pub nodes_per_rack: Option<u32>,
}

/// The connection of two nodes; each kind has its own times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// The links of one rack.
    WithinRack,
    /// One leaf switch, or a network whose leaves are unknown.
    SameLeaf,
    AcrossLeaves,
}

impl Way {
    pub(super) const ALL: [Way; 3] = [Way::WithinRack, Way::SameLeaf, Way::AcrossLeaves];
}

impl Places {
    /// The placement that all records share.
    ///
    /// # Errors
    /// A usage error if records have different machines or placements, or one is given twice.
    pub(super) fn of(records: &[LoadedRecord], options: &LocateOptions) -> Result<Places> {
        let (first, others) = records.split_first().ok_or_else(|| Error::usage("name at least one record"))?;
        let places = Places::of_ranks(&first.record.header.ranks, first.record.header.world_size);
        for (index, other) in others.iter().enumerate() {
            let header = &other.record.header;
            if let Some(twin) = records[..=index].iter().find(|twin| twin.record.header.run_id == header.run_id) {
                let (a, b) = (twin.path.shown(), other.path.shown());
                return Err(Error::usage(format!("{a} and {b} are the same run ({}); it counts once", header.run_id)));
            }
            let theirs = Places::of_ranks(&header.ranks, header.world_size);
            if (&theirs.hosts, &theirs.node_of) != (&places.hosts, &places.node_of) {
                let (a, b) = (first.path.shown(), other.path.shown());
                return Err(Error::usage(format!(
                    "{a} and {b} have their ranks on different hosts; judge them separately"
                )));
            }
        }
        let recorded =
            |of: fn(&BackendLine) -> Option<u32>| records.iter().find_map(|loaded| of(&loaded.record.header.backend));
        let nodes_per_leaf = options.nodes_per_leaf.or_else(|| recorded(|backend| backend.nodes_per_leaf));
        let nodes_per_rack = options.nodes_per_rack.or_else(|| recorded(|backend| backend.nodes_per_rack));
        Ok(Places {
            nodes_per_leaf: nodes_per_leaf.filter(|each| *each > 0),
            nodes_per_rack: nodes_per_rack.filter(|each| *each > 1),
            ..places
        })
    }

    fn of_ranks(ranks: &[RankFacts], world_size: u32) -> Places {
        let mut places = Places {
            hosts: Vec::new(),
            node_of: vec![0; world_size as usize],
            local_of: vec![0; world_size as usize],
            ranks_on: Vec::new(),
            nodes_per_leaf: None,
            nodes_per_rack: None,
        };
        for facts in ranks {
            // Nodes are numbered in the order of first appearance, but a record may have been written by hand.
            let node = match places.hosts.iter().rposition(|host| *host == facts.host) {
                Some(node) => node,
                None => {
                    places.hosts.push(facts.host.clone());
                    places.ranks_on.push(0);
                    places.hosts.len() - 1
                }
            };
            for rank in facts.rank..facts.rank.saturating_add(facts.ranks).min(world_size) {
                places.node_of[rank as usize] = node as u32;
                places.local_of[rank as usize] = places.ranks_on[node];
                places.ranks_on[node] += 1;
            }
        }
        places
    }

    pub(super) fn nodes(&self) -> usize {
        self.hosts.len()
    }

    /// The leaf of a node; 0 for all if leaves are unknown.
    pub(super) fn leaf_of(&self, node: usize) -> usize {
        self.nodes_per_leaf.map_or(0, |each| node / each as usize)
    }

    /// The rack of a node; without links that join several nodes, each node is its own rack.
    pub(super) fn rack_of(&self, node: usize) -> usize {
        self.nodes_per_rack.map_or(node, |each| node / each as usize)
    }

    /// Whether nodes belong to several racks of more than one node each.
    pub(super) fn has_racks(&self) -> bool {
        self.nodes_per_rack.is_some_and(|each| self.nodes() > each as usize)
    }

    /// Whether the links of one rack join all nodes.
    pub(super) fn is_one_rack(&self) -> bool {
        self.nodes_per_rack.is_some() && !self.has_racks()
    }

    pub(super) fn way(&self, [a, b]: [usize; 2]) -> Way {
        if self.rack_of(a) == self.rack_of(b) {
            Way::WithinRack
        } else if self.leaf_of(a) == self.leaf_of(b) {
            Way::SameLeaf
        } else {
            Way::AcrossLeaves
        }
    }

    /// Number of leaves; one if unknown.
    pub(super) fn leaves(&self) -> usize {
        self.nodes().checked_sub(1).map_or(0, |last| self.leaf_of(last) + 1)
    }

    /// The nodes behind a leaf.
    pub(super) fn behind(&self, leaf: usize) -> Vec<usize> {
        (0..self.nodes()).filter(|node| self.leaf_of(*node) == leaf).collect()
    }

    /// Node and host in a few words.
    pub(super) fn name(&self, node: usize) -> String {
        format!("node {node} ({})", self.hosts.get(node).map_or("unknown host", String::as_str))
    }
}
