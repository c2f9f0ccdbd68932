//! Levels: one share of the peak for each kind of GPU, precision and kind of layers, fitted on all runs, with the errors of sources that
//! were left out.
//!
//! A model with experts has one level for all precisions: there are too few runs for more. Within a level a source counts by the root of
//! its runs, so that neither a large table decides alone nor a small one as much.

use super::document::{LevelResult, RunResult};
use super::fit::{Priced, best_share};
use super::runs::LevelKey;
use super::score::ErrorSummary;
use crate::cost::PredictionPair;
use crate::planner::compute::PUBLISHED;
use commgauge_base::error::{Error, Result};
use commgauge_base::stats::{Interval, percentile, sorted, student_quantile};
use commgauge_model::config::machine::{ANY_GPU, LayerKind, Level};
use serde::Serialize;
use std::collections::BTreeMap;

/// A priced run with what tells it from others.
pub(super) struct Known<'a> {
    pub key: LevelKey,
    pub source: &'a str,
    pub release: &'a str,
    pub model: &'a str,
    pub priced: Priced,
}

/// From this many values on their own percentiles are an interval; of fewer it is Student's.
const ENOUGH: usize = 40;
/// The probability beyond either end of an interval.
const BEYOND: f64 = 0.025;
/// The beginning of a file of levels.
const HEADING: &str = "\
# What kinds of GPU reach in whole training steps, by precision and kind of layers: printed by `commgauge validate --levels`.
# 95 of 100 steps of other sources take `low` to `high` times what is predicted. `any` is for GPUs that have no level here.
";
/// Digits behind the point that a level is given to.
const DIGITS: f64 = 1e3;
/// Fewer sources do not show how far sources differ: what others show is added.
const SOURCES_THAT_SHOW: usize = 3;

impl Known<'_> {
    fn error(&self, share: f64) -> f64 {
        (self.priced.measured_seconds / self.priced.at(share)).ln()
    }

    fn is_of_unit(&self, other: &Known) -> bool {
        (self.source, self.release) == (other.source, other.release)
    }
}

/// The share of some runs, each source by the root of its runs.
fn share(runs: &[&Known]) -> f64 {
    let mut counts: BTreeMap<(&LevelKey, &str), f64> = BTreeMap::new();
    for run in runs {
        *counts.entry((&run.key, run.source)).or_default() += 1.0;
    }
    let weight = |run: &&Known| counts.get(&(&run.key, run.source)).map_or(1.0, |count| count.sqrt().recip());
    best_share(&runs.iter().map(|run| (&run.priced, weight(run))).collect::<Vec<_>>())
}

/// The runs of each level, with its share.
fn levels<'a, 'b>(runs: &[&'a Known<'b>]) -> Vec<(Vec<&'a Known<'b>>, f64)> {
    let mut levels: Vec<(Vec<&Known>, f64)> = Vec::new();
    for run in runs {
        if !levels.iter().any(|(own, _)| own.iter().any(|other| other.key.shares_level_with(&run.key))) {
            let own = select(runs, |other| other.key.shares_level_with(&run.key));
            let share = share(&own);
            levels.push((own, share));
        }
    }
    levels
}

/// The middle of the shares of several levels, each once.
fn middle(runs: &[&Known]) -> Option<f64> {
    let levels = levels(runs);
    let sum: f64 = levels.iter().map(|(_, share)| share.ln()).sum();
    (!levels.is_empty()).then(|| (sum / levels.len() as f64).exp())
}

fn select<'a, 'b>(runs: &[&'a Known<'b>], wanted: impl Fn(&Known) -> bool) -> Vec<&'a Known<'b>> {
    runs.iter().copied().filter(|run| wanted(run)).collect()
}

/// The ends within which 95 of 100 further values are, as logarithms: percentiles of many values, Student's of few. None of fewer than
/// three.
fn ends(errors: &[f64]) -> Option<[f64; 2]> {
    let ordered = sorted(errors.iter().copied());
    let count = ordered.len() as f64;
    if ordered.len() >= ENOUGH {
        return Some([percentile(&ordered, 100.0 * BEYOND)?, percentile(&ordered, 100.0 * (1.0 - BEYOND))?]);
    }
    if ordered.len() < 3 {
        return None;
    }
    let mean = ordered.iter().sum::<f64>() / count;
    let variance = ordered.iter().map(|error| (error - mean).powi(2)).sum::<f64>() / (count - 1.0);
    let reach = student_quantile(BEYOND, count - 1.0) * (variance * (1.0 + 1.0 / count)).sqrt();
    Some([mean - reach, mean + reach])
}

/// The interval around what a level predicts, from errors, widened by what sources differ.
fn interval(errors: &[f64], between: f64) -> Option<Interval> {
    let [low, high] = ends(errors)?;
    let wider = |end: f64| end.max(0.0).hypot(between);
    Some(Interval { low: (-wider(-low)).exp(), high: wider(high).exp() })
}

/// How a run comes out by runs of other sources.
#[derive(Clone, Copy)]
struct LeftOut {
    share: f64,
    /// Whether other sources have runs of its own level.
    by_own_level: bool,
}

/// All runs, and what they say.
pub(super) struct Levels<'a> {
    known: Vec<&'a Known<'a>>,
    left_out: Vec<Option<LeftOut>>,
    /// By how much sources of one level differ, to an end of 95 %.
    between: f64,
}

impl<'a> Levels<'a> {
    pub fn of(known: &'a [Known<'a>]) -> Levels<'a> {
        let known: Vec<&Known> = known.iter().collect();
        let mut shares: BTreeMap<(&str, &str, &LevelKey), Option<LeftOut>> = BTreeMap::new();
        let left_out = known
            .iter()
            .map(|run| *shares.entry((run.source, run.release, &run.key)).or_insert_with(|| without(&known, run)));
        let left_out = left_out.collect();
        let between = between(&known);
        Levels { known, left_out, between }
    }

    /// The share by which a run is predicted without its source.
    pub fn left_out_share(&self, index: usize) -> Option<f64> {
        self.left_out.get(index).copied().flatten().map(|left_out| left_out.share)
    }

    /// The interval of every run, by errors of other sources. Runs of one level and release share it.
    pub fn intervals(&self) -> Vec<Option<Interval>> {
        let mut intervals: BTreeMap<(&str, &str, &LevelKey), Option<Interval>> = BTreeMap::new();
        let interval = |(run, left_out): (&&'a Known<'a>, &Option<LeftOut>)| {
            let of_unit = || left_out.and_then(|left_out| self.interval(run, left_out));
            *intervals.entry((run.source, run.release, &run.key)).or_insert_with(of_unit)
        };
        self.known.iter().zip(&self.left_out).map(interval).collect()
    }

    fn interval(&self, run: &Known, left_out: LeftOut) -> Option<Interval> {
        let others: Vec<f64> = match left_out.by_own_level {
            true => self.errors(|other| other.key.shares_level_with(&run.key) && !other.is_of_unit(run)),
            false => Vec::new(),
        };
        let between = self.between_of(&run.key);
        interval(&others, between)
            .or_else(|| self.interval_of_any(|other| other.key.layers == run.key.layers && !other.is_of_unit(run)))
    }

    /// Errors of runs whose level other sources give, each predicted without its own.
    fn errors(&self, wanted: impl Fn(&Known) -> bool) -> Vec<f64> {
        let runs = self.known.iter().zip(&self.left_out).filter(|(run, _)| wanted(run));
        runs.filter_map(|(run, left_out)| left_out.filter(|one| one.by_own_level).map(|one| run.error(one.share)))
            .collect()
    }

    /// The interval around the middle of several levels: how far levels differ, and runs from their own.
    fn interval_of_any(&self, wanted: impl Fn(&Known) -> bool) -> Option<Interval> {
        let runs = select(&self.known, wanted);
        let levels = levels(&runs);
        let errors = levels.iter().flat_map(|(own, share)| own.iter().map(|run| run.error(*share)));
        let [low, high] = ends(&levels.iter().map(|(_, share)| share.ln()).collect::<Vec<_>>())?;
        interval(&errors.collect::<Vec<_>>(), 0.5 * (high - low))
    }

    /// What is added to the errors of a level with few sources.
    fn between_of(&self, key: &LevelKey) -> f64 {
        let runs = select(&self.known, |run| run.key.shares_level_with(key));
        if sources(&runs).len() >= SOURCES_THAT_SHOW { 0.0 } else { self.between }
    }

    /// Every level with its errors, dense ones first, and at the end those of any GPU.
    pub fn results(&self, runs: &[&RunResult]) -> Vec<LevelResult> {
        let levels = levels(&self.known);
        let mut keys: Vec<&LevelKey> = levels.iter().filter_map(|(own, _)| own.first()).map(|run| &run.key).collect();
        keys.retain(|key| !key.gpu.is_empty());
        keys.sort();
        let of_key = |key: &&LevelKey| self.result(Some(key), key.layers, runs);
        let mut results: Vec<LevelResult> = keys.iter().filter_map(of_key).collect();
        if keys.len() > 1 {
            let layers = [LayerKind::Dense, LayerKind::Experts];
            results.extend(layers.into_iter().filter_map(|layers| self.result(None, layers, runs)));
        }
        results
    }

    fn result(&self, key: Option<&LevelKey>, layers: LayerKind, runs: &[&RunResult]) -> Option<LevelResult> {
        let is_own = |run: &Known| key.map_or(run.key.layers == layers, |key| run.key.shares_level_with(key));
        let own = select(&self.known, is_own);
        let share = if key.is_some() { share(&own) } else { middle(&own)? };
        let ends = match key {
            None => self.interval_of_any(is_own),
            Some(key) => {
                let errors = self.errors(is_own);
                let errors = if errors.len() < own.len() { models_left_out(&own) } else { errors };
                interval(&errors, self.between_of(key))
            }
        };
        let ends = ends.or_else(|| self.interval_of_any(|run| run.key.layers == layers))?;
        let results: Vec<&RunResult> =
            self.known.iter().zip(runs).filter(|(known, _)| is_own(known)).map(|(_, run)| *run).collect();
        let pairs: Vec<PredictionPair> = results.iter().filter_map(|run| run.source_left_out()).collect();
        let within = results.iter().filter_map(|run| run.is_within()).collect::<Vec<bool>>();
        Some(LevelResult {
            level: Level {
                gpu: key.map_or(ANY_GPU, |key| &key.gpu).to_owned(),
                bits: key.map(|key| key.bits).filter(|_| layers == LayerKind::Dense),
                layers,
                share_of_peak: rounded(share),
                share_of_memory_rate: PUBLISHED.share_of_memory_rate,
                low: rounded(ends.low),
                high: rounded(ends.high),
                runs: own.len() as u32,
                sources: sources(&own).into_iter().map(str::to_owned).collect(),
            },
            left_out: (!pairs.is_empty()).then(|| ErrorSummary::of(&pairs)),
            by_own_level: key.is_some_and(|key| self.errors(|run| run.key.shares_level_with(key)).len() == own.len()),
            within: (!within.is_empty())
                .then(|| within.iter().filter(|within| **within).count() as f64 / within.len() as f64),
        })
    }
}

fn rounded(number: f64) -> f64 {
    (DIGITS * number).round() / DIGITS
}

/// The share for a run by other sources: of its own level, else of the same GPU in another precision, else of any GPU.
fn without(known: &[&Known], run: &Known) -> Option<LeftOut> {
    let others = select(known, |other| !other.is_of_unit(run) && other.key.layers == run.key.layers);
    let own = select(&others, |other| other.key.shares_level_with(&run.key));
    if !own.is_empty() {
        return Some(LeftOut { share: share(&own), by_own_level: true });
    }
    let of_gpu = select(&others, |other| other.key.is_alike(&run.key));
    let share = if of_gpu.is_empty() { middle(&others)? } else { share(&of_gpu) };
    Some(LeftOut { share, by_own_level: false })
}

/// The distinct sources.
fn sources<'a>(runs: &[&Known<'a>]) -> Vec<&'a str> {
    let mut sources: Vec<&str> = runs.iter().map(|run| run.source).collect();
    sources.sort_unstable();
    sources.dedup();
    sources
}

/// To an end of 95 %: how far the shares of sources scatter where a level has several.
fn between(known: &[&Known]) -> f64 {
    let mut scatter: Vec<f64> = Vec::new();
    for (own, _) in levels(known) {
        let shares: Vec<f64> =
            sources(&own).iter().map(|source| share(&select(&own, |run| run.source == *source)).ln()).collect();
        if shares.len() >= SOURCES_THAT_SHOW {
            let mean = shares.iter().sum::<f64>() / shares.len() as f64;
            let squares = shares.iter().map(|share| (share - mean).powi(2)).sum::<f64>();
            scatter.push(squares / (shares.len() - 1) as f64);
        }
    }
    student_quantile(BEYOND, 1e9) * (scatter.iter().sum::<f64>() / scatter.len().max(1) as f64).sqrt()
}

/// The levels as a file: `suites/published/levels.toml`, or tables for a user's machine file.
///
/// # Errors
/// Never: a level is a table.
pub fn levels_file(results: &[LevelResult]) -> Result<String> {
    #[derive(Serialize)]
    struct File<'a> {
        level: Vec<&'a Level>,
    }
    let file = File { level: results.iter().map(|result| &result.level).collect() };
    let tables = toml::to_string(&file).map_err(|cause| Error::usage(format!("the levels as TOML: {cause}")))?;
    Ok(format!("{HEADING}\n{tables}"))
}

/// Errors of the runs of a level that a single source has, each predicted by its other models.
fn models_left_out<'a>(own: &[&Known<'a>]) -> Vec<f64> {
    let mut shares: BTreeMap<&str, f64> = BTreeMap::new();
    let of = |run: &&Known<'a>| {
        let share = *shares.entry(run.model).or_insert_with(|| {
            let others = select(own, |other| other.model != run.model);
            share(if others.is_empty() { own } else { &others })
        });
        run.error(share)
    };
    own.iter().map(of).collect()
}
