//! Published runs replayed: predicted against measured time, error, order, and memory.
//!
//! One constant is fitted, the share of the peak that matrix products reach; everything else is set by hand and
//! documented. Every run is also predicted with that constant fitted on the other models of its set alone.

mod fit;
mod memory;
mod pricing;
mod score;
mod sets;
#[cfg(test)]
mod tests;

pub use memory::MemoryResult;
pub use pricing::{Constants, Parts};
pub use score::ErrorSummary;

use commgauge_base::error::{Error, Result};
use commgauge_base::stats::{median, sorted};
use fit::{Priced, best_share};
use pricing::Replay;
use schemars::JsonSchema;
use score::{Pair, error_percent, kendall_tau, top_1_regret_percent};
use serde::{Deserialize, Serialize};
use sets::SetName;

/// Name of the JSON document.
pub const FORMAT: &str = "commgauge-validation";
/// Version of the JSON document.
pub const VERSION: u32 = 1;

/// What came of all sets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Validation {
    /// `commgauge-validation`.
    pub format: String,
    /// Version of this document.
    pub version: u32,
    /// What was set by hand.
    pub constants: Constants,
    /// The sets of runs.
    pub sets: Vec<SetResult>,
    /// Memory of the first stage, where it was published.
    pub memory: Vec<MemoryResult>,
}

/// What came of one set of runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SetResult {
    /// Its name, as `--set` takes it.
    pub name: String,
    /// Where the runs were published.
    pub source: String,
    /// The machine file that stands for the machine.
    pub machine: String,
    /// Share of the peak, fitted on all runs of the set.
    pub share_of_peak: f64,
    /// Errors with that.
    pub fitted: ErrorSummary,
    /// Errors where the share was fitted without the model of each run.
    pub left_out: ErrorSummary,
    /// Errors of the simplest rival, model left out: products at one share of the peak, and nothing else.
    pub constant_share: ErrorSummary,
    /// Kendall's tau-b of all runs, left-out predictions against measurements.
    pub kendall_tau: Option<f64>,
    /// The runs, in the order in which they were published.
    pub runs: Vec<RunResult>,
    /// Runs of one model, which are the choices that somebody had.
    pub choices: Vec<ChoiceResult>,
}

/// One run, predicted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunResult {
    /// The model.
    pub model: String,
    /// What tells the run from others of its model beside the layout; empty where nothing does.
    pub variant: String,
    /// GPUs.
    pub gpus: u32,
    /// Tensor parallel.
    pub tp: u32,
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
    /// Seconds of a step, as published.
    pub measured_seconds: f64,
    /// Seconds with the share fitted on the whole set.
    pub predicted_seconds: f64,
    /// Percent by which that is too long.
    pub error_percent: f64,
    /// Seconds with the share fitted without this model.
    pub left_out_seconds: f64,
    /// Percent by which that is too long.
    pub left_out_error_percent: f64,
    /// That share.
    pub left_out_share_of_peak: f64,
    /// What the predicted seconds are made of.
    pub parts: Parts,
}

/// All runs of one model and one batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChoiceResult {
    /// The model.
    pub model: String,
    /// Its runs.
    pub runs: usize,
    /// Kendall's tau-b of left-out predictions and measurements.
    pub kendall_tau: Option<f64>,
    /// Percent by which the run predicted to be the fastest takes longer than the one that was.
    pub top_1_regret_percent: f64,
}

/// The names of the sets.
pub fn set_names() -> Vec<&'static str> {
    SetName::ALL.iter().map(|set| set.name()).collect()
}

/// Replays the named sets, or all if none is named.
///
/// # Errors
/// An unknown name.
pub fn validate(names: &[String]) -> Result<Validation> {
    if let Some(unknown) = names.iter().find(|name| !set_names().contains(&name.as_str())) {
        return Err(Error::usage(format!("--set: found `{unknown}`; accepted: {}", set_names().join(", "))));
    }
    let wanted = SetName::ALL.into_iter().filter(|set| names.is_empty() || names.iter().any(|name| name == set.name()));
    let wanted: Vec<SetName> = wanted.collect();
    let constants = Constants::default();
    Ok(Validation {
        format: FORMAT.to_owned(),
        version: VERSION,
        constants,
        sets: wanted.iter().map(|set| replay(*set, &constants)).collect::<Result<_>>()?,
        memory: if wanted.contains(&SetName::MegatronSpTable5) { memory::results()? } else { Vec::new() },
    })
}

/// Prices every run at some shares, fits, and prices it at what was fitted.
fn replay(set: SetName, constants: &Constants) -> Result<SetResult> {
    let (runs, machine) = (set.runs()?, set.machine()?);
    let replays = runs.iter().map(|run| Replay::new(run, &machine, constants)).collect::<Result<Vec<_>>>()?;
    let mut priced = Vec::with_capacity(runs.len());
    for replay in &replays {
        let mut seconds = [0.0; fit::SHARES.len()];
        for (seconds, share) in seconds.iter_mut().zip(fit::SHARES) {
            *seconds = replay.parts(share)?.total();
        }
        priced.push(Priced { seconds, measured_seconds: replay.run.measured_seconds });
    }
    let share = best_share(&priced.iter().collect::<Vec<_>>());
    let results = replays.iter().map(|replay| {
        let others: Vec<&Priced> = replays
            .iter()
            .zip(&priced)
            .filter(|(other, _)| other.run.name != replay.run.name)
            .map(|(_, run)| run)
            .collect();
        result(replay, share, best_share(&others))
    });
    let results = results.collect::<Result<_>>()?;
    Ok(SetResult::of(set, machine.name.clone(), share, results, ErrorSummary::of(&constant_share(&replays))))
}

/// Every run by the median share that the other models reach, counting nothing but products.
fn constant_share(replays: &[Replay]) -> Vec<Pair> {
    let reached: Vec<(&str, f64, f64)> = replays
        .iter()
        .map(|replay| (replay.run.name.as_str(), replay.seconds_at_peak(), replay.run.measured_seconds))
        .collect();
    let of = |(name, at_peak, measured): &(&str, f64, f64)| {
        let others = reached.iter().filter(|(other, ..)| other != name);
        let shares = sorted(others.map(|(_, at_peak, measured)| at_peak / measured));
        Some((at_peak / median(&shares)?, *measured))
    };
    reached.iter().filter_map(of).collect()
}

fn result(replay: &Replay, share: f64, left_out_share: f64) -> Result<RunResult> {
    let (run, step) = (replay.run, &replay.step);
    let (parts, left_out) = (replay.parts(share)?, replay.parts(left_out_share)?.total());
    let degrees = step.layout.degrees;
    Ok(RunResult {
        model: run.name.clone(),
        variant: run.variant.to_owned(),
        gpus: run.gpus,
        tp: degrees.tp,
        pp: degrees.pp,
        dp: degrees.dp,
        virtual_stages: step.stages.chunks(),
        micro_batch: step.training.micro_batch,
        global_batch: run.global_batch,
        measured_seconds: run.measured_seconds,
        predicted_seconds: parts.total(),
        error_percent: error_percent((parts.total(), run.measured_seconds)),
        left_out_seconds: left_out,
        left_out_error_percent: error_percent((left_out, run.measured_seconds)),
        left_out_share_of_peak: left_out_share,
        parts,
    })
}

impl SetResult {
    fn of(set: SetName, machine: String, share: f64, runs: Vec<RunResult>, constant_share: ErrorSummary) -> SetResult {
        let fitted: Vec<Pair> = runs.iter().map(|run| (run.predicted_seconds, run.measured_seconds)).collect();
        let left_out: Vec<Pair> = runs.iter().map(left_out_pair).collect();
        SetResult {
            name: set.name().to_owned(),
            source: set.source().to_owned(),
            machine,
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

fn left_out_pair(run: &RunResult) -> Pair {
    (run.left_out_seconds, run.measured_seconds)
}

/// Models with several runs, in order of appearance.
fn choices(runs: &[RunResult]) -> Vec<ChoiceResult> {
    let mut models: Vec<&str> = runs.iter().map(|run| run.model.as_str()).collect();
    models.dedup();
    let of_model = |model: &str| {
        let pairs: Vec<Pair> = runs.iter().filter(|run| run.model == model).map(left_out_pair).collect();
        (pairs.len() > 1).then(|| ChoiceResult {
            model: model.to_owned(),
            runs: pairs.len(),
            kendall_tau: kendall_tau(&pairs),
            top_1_regret_percent: top_1_regret_percent(&pairs).unwrap_or(0.0),
        })
    };
    models.into_iter().filter_map(of_model).collect()
}
