//! Measured runs replayed with the model that plans: predicted against measured time, error, order, interval, and memory.
//!
//! One constant is fitted for each set, the share of the peak that matrix products reach; the others are those of every plan
//! ([`crate::planner::compute::PUBLISHED`]). Every run is also predicted with that share fitted on the other models of its set
//! alone, and its interval comes from the errors of other models.

mod coverage;
mod document;
mod fit;
mod memory;
mod pricing;
mod rate_check;
mod runs;
mod score;
mod sets;
#[cfg(test)]
mod tests;

pub use document::{ChoiceResult, Coverage, FORMAT, OWN_RUNS, RunResult, SetOrigin, SetResult, VERSION, Validation};
pub use fit::SHARE_LIMITS;
pub use memory::MemoryResult;
pub use pricing::Site;
pub use runs::{MeasuredRun, read_runs, template};
pub use score::ErrorSummary;

use crate::cost::PredictionPair;
use crate::planner::compute::{Constants, PUBLISHED};
use crate::planner::rates::Published;
use commgauge_base::error::{Error, Result};
use commgauge_base::stats::{median, sorted};
use commgauge_model::config::machine::Computing;
use fit::{Priced, best_share};
use pricing::Replay;
use score::error_percent;
use sets::SetName;

/// The names of the published sets.
pub fn set_names() -> Vec<&'static str> {
    SetName::ALL.iter().map(|set| set.name()).collect()
}

/// Replays the named published sets, or all if none is named.
///
/// # Errors
/// An unknown name.
pub fn validate(names: &[String]) -> Result<Validation> {
    if let Some(unknown) = names.iter().find(|name| !set_names().contains(&name.as_str())) {
        return Err(Error::usage(format!("--set: found `{unknown}`; accepted: {}", set_names().join(", "))));
    }
    let wanted = SetName::ALL.into_iter().filter(|set| names.is_empty() || names.iter().any(|name| name == set.name()));
    let wanted: Vec<SetName> = wanted.collect();
    let sets = wanted.iter().map(|set| published(*set)).collect::<Result<_>>()?;
    let memory = if wanted.contains(&SetName::MegatronSpTable5) { memory::results()? } else { Vec::new() };
    Ok(of(sets, memory))
}

fn of(mut sets: Vec<SetResult>, memory: Vec<MemoryResult>) -> Validation {
    let coverage = coverage::coverage(&mut sets);
    Validation { format: FORMAT.to_owned(), version: VERSION, constants: PUBLISHED, sets, coverage, memory }
}

fn published(set: SetName) -> Result<SetResult> {
    let (runs, machine) = (set.runs()?, set.machine()?);
    let missing = || Error::usage(format!("{}: [computing] is missing", machine.name));
    let rates = Published::new(&machine);
    let gpu = machine.computing.ok_or_else(missing)?;
    let site = Site { gpu, rates: &rates, ranks_per_node: machine.ranks_per_node };
    let gpu = gpu_of(&gpu, &machine.name);
    replay(&SetOrigin { name: set.name(), source: set.source(), gpu: &gpu, assumption: None }, &runs, site)
}

/// What a GPU of a published set reaches at most.
fn gpu_of(gpu: &Computing, machine: &str) -> String {
    format!("{}, memory {}", gpu.peak_by(machine), gpu.memory_by(machine))
}

/// Replays a user's own runs.
///
/// # Errors
/// Names the row and the column: a time that no GPU could reach, or one in another unit than those of other rows.
pub fn validate_runs(origin: &SetOrigin, runs: &[MeasuredRun], site: Site) -> Result<Validation> {
    Ok(of(vec![replay(origin, runs, site)?], Vec::new()))
}

/// Prices every run at some shares, fits, and prices it at what was fitted.
fn replay(origin: &SetOrigin, runs: &[MeasuredRun], site: Site) -> Result<SetResult> {
    let replays = runs.iter().map(|run| Replay::new(run, site)).collect::<Result<Vec<_>>>()?;
    rate_check::check(&replays, &site)?;
    let mut priced = Vec::with_capacity(runs.len());
    for replay in &replays {
        let mut seconds = [0.0; fit::SHARES.len()];
        for (seconds, share) in seconds.iter_mut().zip(fit::SHARES) {
            *seconds = replay.price(&constants(share))?.step_seconds;
        }
        priced.push(Priced { seconds, measured_seconds: replay.run.measured_seconds });
    }
    let share = best_share(&priced.iter().collect::<Vec<_>>());
    let results = replays.iter().map(|replay| {
        let others: Vec<&Priced> = replays
            .iter()
            .zip(&priced)
            .filter(|(other, _)| other.run.model.name != replay.run.model.name)
            .map(|(_, run)| run)
            .collect();
        // Of a single model nothing can be left out: what all plans assume is as blind.
        let left_out = if others.is_empty() { PUBLISHED.share_of_peak } else { best_share(&others) };
        result(replay, share, left_out)
    });
    let results = results.collect::<Result<_>>()?;
    Ok(SetResult::of(origin, &site, share, results, constant_share(&replays).as_deref().map(ErrorSummary::of)))
}

fn constants(share_of_peak: f64) -> Constants {
    Constants { share_of_peak, ..PUBLISHED }
}

/// Every run by the median share that the other models reach, counting nothing but products; none where there is a single model.
fn constant_share(replays: &[Replay]) -> Option<Vec<PredictionPair>> {
    let reached: Vec<(&str, f64, f64)> = replays
        .iter()
        .map(|replay| (replay.run.model.name.as_str(), replay.seconds_at_peak(), replay.run.measured_seconds))
        .collect();
    let of = |(name, at_peak, measured): &(&str, f64, f64)| {
        let others = reached.iter().filter(|(other, ..)| other != name);
        let shares = sorted(others.map(|(_, at_peak, measured)| at_peak / measured));
        Some(PredictionPair { predicted: at_peak / median(&shares)?, measured: *measured })
    };
    reached.iter().map(of).collect()
}

fn result(replay: &Replay, share: f64, left_out_share: f64) -> Result<RunResult> {
    let (run, step) = (replay.run, &replay.step);
    let parts = replay.price(&constants(share))?;
    let left_out = replay.price(&constants(left_out_share))?.step_seconds;
    let degrees = step.layout.degrees;
    let error_percent = |predicted: f64| error_percent(PredictionPair { predicted, measured: run.measured_seconds });
    Ok(RunResult {
        model: run.model.name.clone(),
        variant: run.variant.clone(),
        gpus: degrees.world(),
        tp: degrees.tp,
        cp: degrees.cp,
        ep: degrees.ep,
        pp: degrees.pp,
        dp: degrees.dp,
        virtual_stages: step.stages.chunks(),
        micro_batch: step.training.micro_batch,
        global_batch: run.global_batch,
        measured_seconds: run.measured_seconds,
        predicted_seconds: parts.step_seconds,
        error_percent: error_percent(parts.step_seconds),
        left_out_seconds: left_out,
        left_out_error_percent: error_percent(left_out),
        left_out_share_of_peak: left_out_share,
        low_seconds: None,
        high_seconds: None,
        parts,
    })
}
