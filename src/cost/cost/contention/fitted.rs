//! Fits contention exponents, with intervals and errors, to curves that differ in the number of concurrent groups.

use super::super::coefficient::{Coefficient, middle_95, pick};
use super::super::curve::{Cleaned, Envelope, Point, combined};
use super::super::errors::{Errors, PredictionPair};
use super::super::sharing::{Observation, Sharing};
use super::super::{CurveKey, FitOptions, Measured, Measurements};
use super::{Contention, ErrorsFrom, load};
use crate::cost::place::Labels;
use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use commgauge_base::sample::Cadence;
use commgauge_base::writing::ascending;
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeMap;

const SEED: u64 = 0xc0_117e_4710;
/// Minimum number of replicates for an interval.
const MIN_REPLICATES: usize = 3;
/// Maximum pairs of times for a coefficient; larger sets are thinned evenly.
const MAX_CELLS: usize = 2000;
/// Minimum number of curves for resampling curves as well as replicates.
const MIN_CURVES: usize = 3;

/// One curve for each number of concurrent groups.
type ByGroups<'a> = BTreeMap<u32, &'a Measured>;

/// Key of curves that differ only in the number of concurrent groups.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Alike {
    collective: Collective,
    element_type: Option<ElementType>,
    labels: Labels,
    nodes_spanned: u32,
    stride: u32,
    ranks: u32,
}

/// The times of one size, with the fewest groups and with more.
struct Cell<'a> {
    curve: usize,
    more: f64,
    groups: u32,
    share: f64,
    alone: &'a [f64],
    concurrent: &'a [f64],
}

/// The contention coefficients of some measurements: one for each call measured with several numbers of groups, and one for all other calls
/// if there are several such calls.
pub fn contention(measurements: &Measurements, options: FitOptions) -> Vec<Contention> {
    let FitOptions { resamples, adapters_per_node } = options;
    let mut classes: BTreeMap<(Cadence, bool), BTreeMap<Alike, ByGroups>> = BTreeMap::new();
    for (CurveKey { family, ranks }, measured) in &measurements.curves {
        let place = family.place;
        if place.nodes_spanned == 0 {
            continue;
        }
        let alike = Alike {
            collective: family.collective,
            element_type: family.element_type,
            labels: family.labels.clone(),
            nodes_spanned: place.nodes_spanned,
            stride: place.stride,
            ranks: *ranks,
        };
        let class = classes.entry((family.cadence, place.nodes_spanned > 1)).or_default();
        class.entry(alike).or_default().insert(place.concurrent_groups_per_node, measured);
    }
    let mut found = Vec::new();
    for ((cadence, across_nodes), curves) in classes {
        let adapters = adapters_per_node.filter(|_| across_nodes);
        let of = |collective: Option<Collective>| {
            let wanted = |alike: &Alike| collective.is_none_or(|collective| alike.collective == collective);
            let chosen = curves.iter().filter(|(alike, _)| wanted(alike)).map(|(_, by_groups)| by_groups);
            of_curves(chosen, Header { collective, cadence, across_nodes, adapters }, resamples)
        };
        let collectives: Vec<Collective> = Collective::ALL
            .into_iter()
            .filter(|collective| curves.keys().any(|alike| alike.collective == *collective))
            .collect();
        let single: Vec<Contention> = collectives.iter().filter_map(|collective| of(Some(*collective))).collect();
        let pooled = if single.len() > 1 { of(None) } else { None };
        found.extend(single.into_iter().chain(pooled));
    }
    found
}

/// The calls that a coefficient applies to.
#[derive(Clone, Copy)]
struct Header {
    collective: Option<Collective>,
    cadence: Cadence,
    across_nodes: bool,
    adapters: Option<u32>,
}

fn of_curves<'a>(curves: impl Iterator<Item = &'a ByGroups<'a>>, header: Header, resamples: u32) -> Option<Contention> {
    let mut cells: Vec<Cell> = Vec::new();
    let mut fewest = u32::MAX;
    for (index, by_groups) in curves.enumerate() {
        let before = cells.len();
        let least = add_cells(&mut cells, index, by_groups, header.adapters.unwrap_or(1));
        fewest = if cells.len() > before { fewest.min(least) } else { fewest };
    }
    let every = cells.len().div_ceil(MAX_CELLS).max(1);
    let cells: Vec<Cell> = cells.into_iter().step_by(every).collect();
    let observations: Vec<Observation> = cells.iter().filter_map(|cell| cell.seen(combined)).collect();
    let fitted = Sharing::of(&observations)?;
    let (latency, bandwidth) = bootstrap(&cells, &observations, fitted, resamples);
    let (pairs, errors_from) = predicted(&cells, &observations, fitted);
    let mut curves: Vec<usize> = cells.iter().map(|cell| cell.curve).collect();
    curves.dedup();
    Some(Contention {
        collective: header.collective,
        cadence: header.cadence,
        across_nodes: header.across_nodes,
        adapters_per_node: header.adapters,
        latency_exponent: latency,
        bandwidth_exponent: bandwidth,
        groups_fewest: fewest,
        groups_most: cells.iter().map(|cell| cell.groups).max()?,
        curves: curves.len() as u64,
        errors: Errors::of(pairs)?,
        errors_from,
    })
}

/// Adds the cells of curves that differ in the number of groups, and returns the fewest groups.
fn add_cells<'a>(cells: &mut Vec<Cell<'a>>, curve: usize, by_groups: &ByGroups<'a>, adapters: u32) -> u32 {
    let Some((&fewest, &alone)) = by_groups.first_key_value() else { return 0 };
    if by_groups.len() < 2 {
        return fewest;
    }
    let points = alone.iter().filter_map(|(bytes, times)| Some(Point::new(*bytes as f64, combined(times)?)));
    let Some(envelope) = Envelope::of(&Cleaned::of(&points.collect::<Vec<_>>()).points) else { return fewest };
    for (&groups, &concurrent) in by_groups.iter().skip(1) {
        let more = load(groups, adapters) / load(fewest, adapters);
        let both = alone.iter().filter_map(|(bytes, times)| Some((*bytes, times, concurrent.get(bytes)?)));
        cells.extend(both.filter(|_| more > 1.0).map(|(bytes, alone, concurrent)| {
            let share = envelope.bandwidth_share(bytes as f64);
            Cell { curve, more, groups, share, alone, concurrent }
        }));
    }
    fewest
}

impl Cell<'_> {
    fn seen(&self, mut of: impl FnMut(&[f64]) -> Option<f64>) -> Option<Observation> {
        let (alone, concurrent) = (of(self.alone)?, of(self.concurrent)?);
        let log_slower = (concurrent / alone).ln();
        log_slower.is_finite().then_some(Observation { more: self.more, share: self.share, log_slower })
    }
}

/// The exponents with their intervals, by resampling replicates, and curves if there are several; by resampling residuals without
/// replicates.
fn bootstrap(
    cells: &[Cell],
    observations: &[Observation],
    fitted: Sharing,
    resamples: u32,
) -> (Option<Coefficient>, Option<Coefficient>) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(SEED);
    let replicated = |cell: &&Cell| cell.alone.len().min(cell.concurrent.len()) >= MIN_REPLICATES;
    let from_replicates = 2 * cells.iter().filter(replicated).count() >= cells.len();
    let of_curve = cells.chunk_by(|a, b| a.curve == b.curve).collect::<Vec<_>>();
    let residual = |seen: &Observation| Some(seen.log_slower - fitted.slower(seen.more, seen.share)?.ln());
    let residuals: Vec<f64> = observations.iter().filter_map(residual).collect();
    let (mut latencies, mut bandwidths) = (Vec::new(), Vec::new());
    for _ in 0..resamples {
        let drawn: Vec<Observation> = if from_replicates {
            let curves: Vec<&[Cell]> = match of_curve.len() {
                MIN_CURVES.. => of_curve.iter().map(|_| *pick(&of_curve, &mut random)).collect(),
                _ => of_curve.clone(),
            };
            let again = |times: &[f64], random: &mut Xoshiro256PlusPlus| {
                combined(&times.iter().map(|_| *pick(times, random)).collect::<Vec<_>>())
            };
            curves.into_iter().flatten().filter_map(|cell| cell.seen(|times| again(times, &mut random))).collect()
        } else if observations.len() >= MIN_REPLICATES && !residuals.is_empty() {
            let moved = |seen: &Observation| {
                let law = fitted.slower(seen.more, seen.share)?.ln();
                Some(Observation { log_slower: law + pick(&residuals, &mut random), ..*seen })
            };
            observations.iter().filter_map(moved).collect()
        } else {
            break;
        };
        if let Some(sharing) = Sharing::of(&drawn) {
            latencies.extend(sharing.latency);
            bandwidths.extend(sharing.bandwidth);
        }
    }
    let measurements: usize = cells.iter().map(|cell| cell.alone.len() + cell.concurrent.len()).sum();
    let with = |value: Option<f64>, drawn| value.map(|value| Coefficient::new(value, middle_95(drawn), measurements));
    (with(fitted.latency, latencies), with(fitted.bandwidth, bandwidths))
}

/// Slowdowns as predicted and as measured, at curves or numbers of groups that were left out, if possible.
fn predicted(cells: &[Cell], observations: &[Observation], fitted: Sharing) -> (Vec<PredictionPair>, ErrorsFrom) {
    let pair = |law: Sharing, seen: &Observation| {
        let predicted = law.slower(seen.more, seen.share)?;
        Some(PredictionPair { predicted, measured: seen.log_slower.exp() })
    };
    let left_out = |tag: fn(&Cell) -> usize| {
        let tags: Vec<usize> = ascending(cells.iter().map(tag));
        if tags.len() < 2 || cells.len() != observations.len() {
            return Vec::new();
        }
        let part = |out: usize, wanted: bool| {
            let both = cells.iter().zip(observations);
            both.filter(move |(cell, _)| (tag(cell) == out) == wanted).map(|(_, seen)| *seen).collect::<Vec<_>>()
        };
        let of_one = |out: usize| {
            let law = Sharing::of(&part(out, false));
            part(out, true).iter().filter_map(|seen| pair(law?, seen)).collect::<Vec<_>>()
        };
        // At most 20 refits.
        tags.iter().step_by(tags.len().div_ceil(20)).flat_map(|out| of_one(*out)).collect()
    };
    for (pairs, from) in [
        (left_out(|cell| cell.curve), ErrorsFrom::CurvesLeftOut),
        (left_out(|cell| cell.groups as usize), ErrorsFrom::GroupsLeftOut),
    ] {
        if !pairs.is_empty() {
            return (pairs, from);
        }
    }
    (observations.iter().filter_map(|seen| pair(fitted, seen)).collect(), ErrorsFrom::Residuals)
}
