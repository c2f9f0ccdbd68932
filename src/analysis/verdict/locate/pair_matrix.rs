//! Times between pairs of nodes, from the rounds of a record: for each measure a matrix over pairs and local ranks.
//!
//! Values are natural logarithms of the time of a message: 0.1 more is about 10 % slower.

use super::super::loaded_record::LoadedRecord;
use super::pair_lines::{Measure, PairLine, PairValue, is_pairs};
use super::places::Places;
use commgauge_base::stats::low_median;
use std::collections::BTreeSet;

/// One measure between all nodes.
#[derive(Clone, Debug)]
pub(super) struct PairMatrix {
    pub nodes: usize,
    pub locals: usize,
    /// For each replicate: every pair of nodes, and in it every local rank; NaN where nothing was measured.
    by_replicate: Vec<Vec<f64>>,
    /// The lower median of the replicates.
    middle: Vec<f64>,
    /// For each pair of nodes the lower median of its local ranks: of their medians, and of each replicate. Every search asks for them
    /// again and again.
    pair_middle: Vec<f64>,
    pair_by_replicate: Vec<Vec<f64>>,
}

/// The matrices of all measures, and their coverage.
#[derive(Debug)]
pub(super) struct PairMatrices {
    /// In the order of [`Measure::ALL`]; those without any value are left out.
    pub measures: Vec<(Measure, PairMatrix)>,
    /// Pairs of nodes in the plan.
    pub planned: u64,
    /// Pairs of nodes with a value for every measure of the plan.
    pub measured: u64,
    /// Local ranks with measurements.
    pub locals: usize,
    /// Replicates.
    pub replicates: usize,
    /// True where pairs ran one at a time, so that links shared by pairs were never loaded together.
    pub one_at_a_time: bool,
}

impl PairMatrices {
    /// Reads the rounds between nodes of all records.
    pub(super) fn of(records: &[LoadedRecord], lines: &[PairLine], places: &Places) -> PairMatrices {
        let nodes = places.nodes();
        // Pairs of equal local ranks use the same rail. Where all ranks were paired with all, only those are used.
        let equal = |value: &PairValue| value.locals[0] == value.locals[1];
        let rails = lines.iter().any(|line| between_nodes(line, places).any(|value| equal(&value)));
        let is_kept = |value: &PairValue| !rails || equal(value);
        let local = |value: &PairValue| if rails { value.locals[0] } else { 0 };
        let lines: Vec<&PairLine> = lines.iter().filter(|line| between_nodes(line, places).next().is_some()).collect();
        let highest = |line: &&PairLine| between_nodes(line, places).filter(is_kept).map(|value| local(&value)).max();
        let locals = lines.iter().filter_map(highest).max().map_or(0, |most| most + 1);
        let replicates = lines.iter().map(|line| line.replicate + 1).max().unwrap_or(0);
        let mut measures = Vec::new();
        for measure in Measure::ALL {
            let mut matrix = PairMatrix::empty(nodes, locals, replicates);
            let tail = measure == Measure::Tail;
            let source = if tail { Measure::OneWay } else { measure };
            for line in lines.iter().filter(|line| line.measure == source) {
                for value in between_nodes(line, places).filter(is_kept) {
                    let cell = pair(nodes, value.nodes) * locals + local(&value);
                    matrix.by_replicate[line.replicate][cell] = if tail { value.tail() } else { value.middle() };
                }
            }
            matrix.compute_medians();
            if matrix.middle.iter().any(|value| !value.is_nan()) {
                measures.push((measure, matrix));
            }
        }
        let planned = planned(records, places);
        let wanted: Vec<&PairMatrix> =
            measures.iter().filter(|(measure, _)| *measure != Measure::Tail).map(|(_, matrix)| matrix).collect();
        let whole =
            |pair: &[usize; 2]| !wanted.is_empty() && wanted.iter().all(|matrix| matrix.of_pair(*pair).is_some());
        let measured = planned.iter().filter(|pair| whole(pair)).count() as u64;
        let at_once = records.iter().flat_map(|loaded| &loaded.record.plan.cases).filter(|facts| is_pairs(facts));
        let one_at_a_time =
            at_once.map(|facts| facts.groups as usize).max().is_some_and(|most| most <= locals.max(1)) && nodes > 3;
        PairMatrices { measures, planned: planned.len() as u64, measured, locals, replicates, one_at_a_time }
    }
}

/// The times of the pairs of a line whose ends are on different nodes.
fn between_nodes<'a>(line: &'a PairLine, places: &'a Places) -> impl Iterator<Item = PairValue> + 'a {
    line.values(places).filter(|value| value.nodes[0] != value.nodes[1])
}

/// The pairs of nodes that should have been measured: all of them, since the rounds of a record form a round-robin tournament.
fn planned(records: &[LoadedRecord], places: &Places) -> BTreeSet<[usize; 2]> {
    let rounds = records.iter().any(|loaded| loaded.record.plan.cases.iter().any(is_pairs));
    let nodes = if rounds { places.nodes() } else { 0 };
    (0..nodes).flat_map(|a| (a + 1..nodes).map(move |b| [a, b])).collect()
}

/// Index of a pair, the lower node first.
fn pair(nodes: usize, [a, b]: [usize; 2]) -> usize {
    a * (2 * nodes - a - 1) / 2 + (b - a - 1)
}

impl PairMatrix {
    fn empty(nodes: usize, locals: usize, replicates: usize) -> PairMatrix {
        let cells = nodes * nodes.saturating_sub(1) / 2 * locals;
        PairMatrix {
            nodes,
            locals,
            by_replicate: vec![vec![f64::NAN; cells]; replicates],
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
        let mut matrix = PairMatrix::empty(nodes, locals, replicates);
        for pair_of_nodes in matrix.pairs() {
            for local in 0..locals {
                for replicate in 0..replicates {
                    let cell = pair(nodes, pair_of_nodes) * locals + local;
                    matrix.by_replicate[replicate][cell] = value(pair_of_nodes, local, replicate);
                }
            }
        }
        matrix.compute_medians();
        matrix
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

    /// Every pair of nodes, the lower first.
    pub(super) fn pairs(&self) -> impl Iterator<Item = [usize; 2]> + use<> {
        let nodes = self.nodes;
        (0..nodes).flat_map(move |a| (a + 1..nodes).map(move |b| [a, b]))
    }

    /// Value of one local rank of a pair.
    pub(super) fn of_local(&self, [a, b]: [usize; 2], local: usize) -> Option<f64> {
        let cell = pair(self.nodes, [a.min(b), a.max(b)]) * self.locals + local;
        self.middle.get(cell).copied().filter(|value| !value.is_nan())
    }

    /// Value of a pair: the lower median of its local ranks, so that a slow rail does not count.
    pub(super) fn of_pair(&self, [a, b]: [usize; 2]) -> Option<f64> {
        self.pair_middle.get(pair(self.nodes, [a.min(b), a.max(b)])).copied().filter(|value| !value.is_nan())
    }

    /// The same in one replicate.
    pub(super) fn of_pair_in(&self, [a, b]: [usize; 2], replicate: usize) -> Option<f64> {
        let of_pairs = self.pair_by_replicate.get(replicate)?;
        of_pairs.get(pair(self.nodes, [a.min(b), a.max(b)])).copied().filter(|value| !value.is_nan())
    }
}

/// The median of the local ranks of each pair of nodes.
fn medians_of_pairs(cells: &[f64], locals: usize) -> Vec<f64> {
    let known = |pair: &[f64]| low_median(pair.iter().copied().filter(|value| !value.is_nan()));
    cells.chunks(locals.max(1)).map(|pair| known(pair).unwrap_or(f64::NAN)).collect()
}
