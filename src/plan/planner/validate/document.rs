//! The result of a validation, as a document. The published JSON Schema (`commgauge show schema validation`) is made from these types.

use super::runs::LevelKey;
use super::score::{ErrorSummary, MemoryResult, Priced, Replay, best_share, kendall_tau, top_1_regret_percent};
use crate::planner::compute::{Constants, PUBLISHED};
use crate::planner::price::StepPrice;
use crate::planner::step_error::{Residual, SURE, StepError};
use commgauge_base::error::{Error, Result};
use commgauge_base::stats::{Interval, sorted, student_quantile};
use commgauge_base::writing::ascending;
use commgauge_cost::cost::PredictionPair;
use commgauge_model::config::machine::{ANY_GPU, LayerKind, Level};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Name of the JSON document.
pub const FORMAT: &str = "commgauge-validation";

/// Version of the JSON document.
pub const VERSION: u32 = 5;

/// The result of all sets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Validation {
    /// `commgauge-validation`.
    pub format: String,
    /// Version of this document.
    pub version: u32,
    /// The levels that plans use, by kind of GPU, precision and layers, with the errors of left-out sources.
    pub levels: Vec<LevelResult>,
    /// The constants of every plan; the share of the peak is fitted separately for each set.
    pub constants: Constants,
    /// The sets of runs.
    pub sets: Vec<SetResult>,
    /// How often a run was within the interval given by the errors of other sources; absent with a single source.
    pub coverage: Option<Coverage>,
    /// Memory of published runs, unless only some sets were named.
    pub memory: Vec<MemoryResult>,
}

/// A level, and the predictions of its runs by other sources.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LevelResult {
    /// The level, fitted on all runs.
    #[serde(flatten)]
    pub level: Level,
    /// Errors of its runs, each predicted from the runs of other sources and releases; absent with a single source.
    pub left_out: Option<ErrorSummary>,
    /// Whether other sources or releases have runs of the same level for each of its runs; else the level came from another precision or
    /// from other GPUs.
    pub by_own_level: bool,
    /// Share of its runs within the interval given by other sources and releases; absent without one.
    pub within: Option<f64>,
}

/// How often intervals and orders held: every run judged by the errors of other sources, every pair by those of other models.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Coverage {
    /// Runs that have an interval.
    pub runs: usize,
    /// Share of them within it.
    pub within: f64,
    /// Pairs of runs of one question of which one was predicted to be faster in at least 95 of 100 draws.
    pub sure_pairs: usize,
    /// Share of them in which it was faster.
    pub sure_right: f64,
    /// The errors of all runs if another run of the same model, batch and GPUs sets the level; absent with too few of those.
    pub anchored: Option<StepError>,
}

/// The name of a user's own runs.
pub const OWN_RUNS: &str = "runs";

/// Origin of a set of runs.
pub struct SetOrigin<'a> {
    /// Its name; [`OWN_RUNS`] for a user's own.
    pub name: &'a str,
    /// Where the runs were published, or the user's file.
    pub source: &'a str,
    /// The assumed GPU if none is named.
    pub assumption: Option<&'a str>,
}

/// The result of one set of runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SetResult {
    /// Its name, as `--set` takes it; `runs` for a user's own.
    pub name: String,
    /// The kind of GPU, the precision and the kind of layers: a set with several appears several times.
    pub level: String,
    /// Where the runs were published, or the user's file.
    pub source: String,
    /// Source of the times of calls.
    pub machine: String,
    /// Peak rate of products and memory of a GPU, and its source.
    pub gpu: String,
    /// The assumed GPU if none is named.
    pub assumption: Option<String>,
    /// Share of the peak, fitted on all runs of the set.
    pub share_of_peak: f64,
    /// Errors with that.
    pub fitted: ErrorSummary,
    /// Errors if the share is fitted without the model of each run; with a single model the level of plans applies.
    pub left_out: ErrorSummary,
    /// Errors of the simplest baseline, with the model left out: products at one share of the peak, and nothing else. Absent with a single
    /// model.
    pub constant_share: Option<ErrorSummary>,
    /// Kendall's tau-b of all runs, left-out predictions against measurements.
    pub kendall_tau: Option<f64>,
    /// The runs, in order of publication.
    pub runs: Vec<RunResult>,
    /// Runs of one model, between which a user had to choose.
    pub choices: Vec<ChoiceResult>,
}

/// One run, predicted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunResult {
    /// Publisher; empty for a user's own.
    pub source: String,
    /// Publication; empty if there is only one.
    pub release: String,
    /// The model.
    pub model: String,
    /// Distinguishes the run from others of its model, besides the layout; may be empty.
    pub variant: String,
    /// GPUs.
    pub gpus: u64,
    /// Tensor parallel.
    pub tp: u32,
    /// Context parallel.
    pub cp: u32,
    /// Expert parallel.
    pub ep: u32,
    /// Pipeline parallel.
    pub pp: u32,
    /// Data parallel.
    pub dp: u32,
    /// Model chunks on each rank.
    pub virtual_stages: u32,
    /// Samples of a micro-batch.
    pub micro_batch: u64,
    /// Samples of a step.
    pub global_batch: u64,
    /// Tokens of a sample.
    pub sequence: u64,
    /// Seconds of a step, as measured.
    pub measured_seconds: f64,
    /// Seconds with the share fitted on the whole set.
    pub predicted_seconds: f64,
    /// Its error in percent, positive if too long.
    pub error_percent: f64,
    /// Seconds with the share fitted without this model.
    pub left_out_seconds: f64,
    /// Its error in percent, positive if too long.
    pub left_out_error_percent: f64,
    /// That share.
    pub left_out_share_of_peak: f64,
    /// Seconds with the share from the runs of other sources and releases; absent with a single source.
    pub source_left_out_seconds: Option<f64>,
    /// Lower end of the interval around those, by the errors of other sources and releases.
    pub low_seconds: Option<f64>,
    /// Upper end.
    pub high_seconds: Option<f64>,
    /// The parts of the predicted seconds.
    pub parts: StepPrice,
}

/// All runs of one model and one batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChoiceResult {
    /// The model.
    pub model: String,
    /// GPUs.
    pub gpus: u64,
    /// Its runs.
    pub runs: usize,
    /// Kendall's tau-b of left-out predictions and measurements.
    pub kendall_tau: Option<f64>,
    /// Percent by which the run predicted to be the fastest takes longer than the fastest one.
    pub top_1_regret_percent: f64,
}

impl SetResult {
    pub(super) fn of(
        origin: &SetOrigin,
        first: &Replay,
        share: f64,
        runs: Vec<RunResult>,
        constant_share: Option<ErrorSummary>,
    ) -> SetResult {
        let fitted: Vec<PredictionPair> = runs.iter().map(|run| run.pair(run.predicted_seconds)).collect();
        let left_out: Vec<PredictionPair> = runs.iter().map(RunResult::left_out).collect();
        SetResult {
            name: origin.name.to_owned(),
            source: origin.source.to_owned(),
            level: first.key.to_string(),
            machine: first.rates().name(),
            gpu: first.gpu.clone(),
            assumption: origin.assumption.map(str::to_owned),
            share_of_peak: share,
            fitted: ErrorSummary::of(&fitted),
            left_out: ErrorSummary::of(&left_out),
            constant_share,
            kendall_tau: kendall_tau(&left_out),
            choices: choices(&runs),
            runs,
        }
    }
}

impl RunResult {
    fn pair(&self, predicted: f64) -> PredictionPair {
        PredictionPair { predicted, measured: self.measured_seconds }
    }

    pub(super) fn left_out(&self) -> PredictionPair {
        self.pair(self.left_out_seconds)
    }

    /// With the level of other sources.
    pub(super) fn source_left_out(&self) -> Option<PredictionPair> {
        self.source_left_out_seconds.map(|predicted| self.pair(predicted))
    }

    /// Whether it is within its interval.
    pub(super) fn is_within(&self) -> Option<bool> {
        Some((self.low_seconds?..=self.high_seconds?).contains(&self.measured_seconds))
    }

    /// The choices of a user: one model, one batch, the same GPUs and software.
    pub(super) fn question(&self) -> Question<'_> {
        (&self.model, self.gpus, self.global_batch, self.sequence, &self.release)
    }
}

/// Model, GPUs, samples, tokens of each, and release.
pub(super) type Question<'a> = (&'a str, u64, u64, u64, &'a str);

/// Questions with several runs, in order of appearance.
fn choices(runs: &[RunResult]) -> Vec<ChoiceResult> {
    let mut questions: Vec<Question> = Vec::new();
    for run in runs {
        if !questions.contains(&run.question()) {
            questions.push(run.question());
        }
    }
    let answer = |question: Question| {
        let pairs: Vec<PredictionPair> =
            runs.iter().filter(|run| run.question() == question).map(RunResult::left_out).collect();
        (pairs.len() > 1).then(|| ChoiceResult {
            model: question.0.to_owned(),
            gpus: question.1,
            runs: pairs.len(),
            kendall_tau: kendall_tau(&pairs),
            top_1_regret_percent: top_1_regret_percent(&pairs).unwrap_or(0.0),
        })
    };
    questions.into_iter().filter_map(answer).collect()
}

// How often measured steps are within their intervals, and how often a sure order is right.

/// Counts; `None` if no run has an interval.
pub(super) fn coverage(sets: &[SetResult]) -> Option<Coverage> {
    let residuals: Vec<Residual> = sets.iter().flat_map(|set| set.runs.iter().map(|run| residual(set, run))).collect();
    let anchored = StepError::within_questions(&residuals);
    let within: Vec<bool> = sets.iter().flat_map(|set| set.runs.iter().filter_map(RunResult::is_within)).collect();
    let (mut sure_pairs, mut sure_right) = (0, 0);
    for set in sets {
        for (index, first) in set.runs.iter().enumerate() {
            let Some(error) = StepError::within_questions(&others(&residuals, &first.model)) else { continue };
            for second in set.runs[index + 1..].iter().filter(|second| second.question() == first.question()) {
                let faster = error.probability_faster(first.left_out_seconds, second.left_out_seconds);
                if faster.max(1.0 - faster) >= SURE {
                    sure_pairs += 1;
                    sure_right += usize::from((first.measured_seconds < second.measured_seconds) == (faster > 0.5));
                }
            }
        }
    }
    let share = |of: usize, all: usize| of as f64 / all.max(1) as f64;
    (!within.is_empty()).then(|| Coverage {
        runs: within.len(),
        within: share(within.iter().filter(|within| **within).count(), within.len()),
        sure_pairs,
        sure_right: share(sure_right, sure_pairs),
        anchored,
    })
}

fn residual(set: &SetResult, run: &RunResult) -> Residual {
    Residual {
        model: run.model.clone(),
        question: format!("{} {} {:?}", set.name, set.level, run.question()),
        logarithm: (run.measured_seconds / run.left_out_seconds).ln(),
    }
}

fn others(residuals: &[Residual], model: &str) -> Vec<Residual> {
    residuals.iter().filter(|other| other.model != model).cloned().collect()
}

// Levels: one share of the peak per kind of GPU, precision and kind of layers, fitted on all runs, with the errors of left-out sources.
//
// A model with experts has one level for all precisions: there are too few runs for more. Within a level a source is weighted by the root
// of its runs, so that neither a large table decides alone nor a small one as much.

/// A run, priced at some shares, with its identifying facts.
pub(super) struct Known<'a> {
    pub replay: Replay<'a>,
    pub key: LevelKey,
    pub source: &'a str,
    pub release: &'a str,
    pub model: &'a str,
    pub priced: Priced,
}

/// From this many values on their own percentiles form an interval; fewer use Student's.
const ENOUGH: usize = 40;

/// The probability beyond either end of an interval.
const BEYOND: f64 = 0.025;

/// The beginning of a file of levels.
const HEADING: &str = "\
# Share of the peak reached by kinds of GPU in whole training steps, by precision and kind of layers: printed by `commgauge plan validate --levels`.
# 95 of 100 steps of other sources take `low` to `high` times what is predicted. `any` is for GPUs that have no level here.
";

/// Decimal digits of a level.
const DIGITS: f64 = 1e3;

/// With fewer sources the spread between sources is unknown.
const SOURCES_THAT_SHOW: usize = 3;

impl Known<'_> {
    fn error(&self, share: f64) -> f64 {
        (self.priced.measured_seconds / self.priced.at(share)).ln()
    }

    fn is_of_unit(&self, other: &Known) -> bool {
        (self.source, self.release) == (other.source, other.release)
    }
}

/// The share of some runs, each source weighted by the root of its runs.
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

/// The ends within which 95 of 100 further values are, as logarithms. A further value is beyond the k-th of n with a probability of
/// k/(n+1) (S. Wilks, Ann. Math. Statist. 12, 1941); of few values Student's ends are taken. `None` for fewer than three.
fn ends(errors: &[f64]) -> Option<[f64; 2]> {
    let ordered = sorted(errors.iter().copied());
    let count = ordered.len() as f64;
    if ordered.len() >= ENOUGH {
        let beyond = (BEYOND * (count + 1.0)) as usize;
        return Some([ordered[beyond - 1], ordered[ordered.len() - beyond]]);
    }
    if ordered.len() < 3 {
        return None;
    }
    let mean = ordered.iter().sum::<f64>() / count;
    let variance = ordered.iter().map(|error| (error - mean).powi(2)).sum::<f64>() / (count - 1.0);
    let reach = student_quantile(BEYOND, count - 1.0) * (variance * (1.0 + 1.0 / count)).sqrt();
    Some([mean - reach, mean + reach])
}

/// The interval around the prediction of a level, from errors, widened by the spread between sources.
fn interval(errors: &[f64], between: f64) -> Option<Interval> {
    let [low, high] = ends(errors)?;
    let wider = |end: f64| end.max(0.0).hypot(between);
    Some(Interval { low: (-wider(-low)).exp(), high: wider(high).exp() })
}

/// The prediction of a run from the runs of other sources.
#[derive(Clone, Copy)]
struct LeftOut {
    share: f64,
    /// Whether other sources have runs of its own level.
    by_own_level: bool,
}

/// All runs, and their common results.
pub(super) struct Levels<'a> {
    known: Vec<&'a Known<'a>>,
    left_out: Vec<Option<LeftOut>>,
    /// The spread between sources of one level, to an end of 95 %.
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

    /// The share that predicts a run without its source.
    pub fn left_out_share(&self, index: usize) -> Option<f64> {
        self.left_out.get(index).copied().flatten().map(|left_out| left_out.share)
    }

    /// The interval of every run, from errors of other sources. Runs of one level and release share it.
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
        self.around(&run.key, &others)
            .or_else(|| self.interval_of_any(|other| other.key.layers == run.key.layers && !other.is_of_unit(run)))
    }

    /// Errors of runs whose level other sources give, each predicted without its own.
    fn errors(&self, wanted: impl Fn(&Known) -> bool) -> Vec<f64> {
        let runs = self.known.iter().zip(&self.left_out).filter(|(run, _)| wanted(run));
        runs.filter_map(|(run, left_out)| left_out.filter(|one| one.by_own_level).map(|one| run.error(one.share)))
            .collect()
    }

    /// The interval around the middle of several levels: the spread of levels, and of runs within theirs.
    fn interval_of_any(&self, wanted: impl Fn(&Known) -> bool) -> Option<Interval> {
        let runs = select(&self.known, wanted);
        let levels = levels(&runs);
        let errors = levels.iter().flat_map(|(own, share)| own.iter().map(|run| run.error(*share)));
        let [low, high] = ends(&levels.iter().map(|(_, share)| share.ln()).collect::<Vec<_>>())?;
        interval(&errors.collect::<Vec<_>>(), 0.5 * (high - low))
    }

    /// The interval around the prediction of a level. Of few sources, that one is slower than the other says nothing of the next: each error
    /// counts with either sign, and the spread between sources is added.
    fn around(&self, key: &LevelKey, errors: &[f64]) -> Option<Interval> {
        let runs = select(&self.known, |run| run.key.shares_level_with(key));
        if sources(&runs).len() >= SOURCES_THAT_SHOW {
            return interval(errors, 0.0);
        }
        interval(&errors.iter().flat_map(|error| [*error, -error]).collect::<Vec<_>>(), self.between)
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
                self.around(key, &errors)
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

/// The share for a run from other sources: of its own level, else of the same GPU in another precision, else of any GPU.
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

fn sources<'a>(runs: &[&Known<'a>]) -> Vec<&'a str> {
    ascending(runs.iter().map(|run| run.source))
}

/// To an end of 95 %: the spread of the shares of sources if a level has several.
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

/// Errors of the runs of a level with a single source, each predicted by its other models.
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
