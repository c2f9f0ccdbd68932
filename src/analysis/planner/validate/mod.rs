//! Measured runs replayed with the model that plans: predicted against measured time, error, order, interval, and memory.
//!
//! One constant is fitted for each set, the share of the peak that matrix products reach; the others are those of every plan
//! ([`crate::planner::compute::PUBLISHED`]). Every run is also predicted with that share fitted on the other models of its set
//! alone. Over all sets a level is fitted for each kind of GPU and precision, with the errors of sources that were left out.

mod anchor;
mod coverage;
mod document;
mod fit;
mod levels;
mod memory;
mod pricing;
mod rate_check;
mod runs;
mod score;
mod sets;
#[cfg(test)]
mod tests;

pub use anchor::anchor;
pub use document::{
    ChoiceResult, Coverage, FORMAT, LevelResult, OWN_RUNS, RunResult, SetOrigin, SetResult, VERSION, Validation,
};
pub use fit::SHARE_LIMITS;
pub use levels::levels_file;
pub use memory::MemoryResult;
pub use pricing::Site;
pub use runs::{MeasuredRun, layers_of, read_runs, template};
pub use score::ErrorSummary;

use crate::cost::PredictionPair;
use crate::planner::compute::{Constants, PUBLISHED};
use commgauge_base::error::{Error, Result};
use commgauge_base::stats::{median, sorted};
use commgauge_model::config::machine::Level;
use fit::{Priced, best_share};
use levels::{Known, Levels};
use pricing::Replay;
use rayon::prelude::*;
use runs::LevelKey;
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
    let runs = wanted.iter().map(|set| set.runs()).collect::<Result<Vec<_>>>()?;
    let origin = |set: &SetName| SetOrigin { name: set.name(), source: set.source(), assumption: None };
    let sets: Vec<(SetOrigin, &[MeasuredRun])> =
        wanted.iter().map(origin).zip(runs.iter().map(Vec::as_slice)).collect();
    let memory = if wanted.contains(&SetName::MegatronSpTable5) { memory::results()? } else { Vec::new() };
    of(&sets, None, memory)
}

/// Replays a user's own runs; the site is for rows that name no machine.
///
/// # Errors
/// Names the row and the column: a time that no GPU could reach, or one in another unit than those of other rows.
pub fn validate_runs(origin: SetOrigin, runs: &[MeasuredRun], site: Option<Site>) -> Result<Validation> {
    of(&[(origin, runs)], site, Vec::new())
}

/// A run, priced at some shares.
struct PricedRun<'a> {
    replay: Replay<'a>,
    known: Known<'a>,
}

fn of(sets: &[(SetOrigin, &[MeasuredRun])], site: Option<Site>, memory: Vec<MemoryResult>) -> Result<Validation> {
    let mut results = Vec::new();
    let mut known = Vec::new();
    for (origin, runs) in sets {
        let mut priced = priced(runs, site)?;
        // A share is of one GPU and precision.
        while let Some(first) = priced.first() {
            let key = first.known.key.clone();
            let (own, others): (Vec<_>, Vec<_>) =
                priced.into_iter().partition(|run| run.known.key.shares_level_with(&key));
            results.push(replay(origin, &own)?);
            known.extend(own.into_iter().map(|run| run.known));
            priced = others;
        }
    }
    let levels = Levels::of(&known);
    let intervals = levels.intervals();
    for (index, run) in results.iter_mut().flat_map(|set: &mut SetResult| &mut set.runs).enumerate() {
        let seconds = levels.left_out_share(index).map(|share| known[index].priced.at(share));
        let interval = seconds.and_then(|seconds| Some((seconds, intervals[index]?)));
        run.source_left_out_seconds = seconds;
        (run.low_seconds, run.high_seconds) =
            interval.map(|(seconds, ends)| (seconds * ends.low, seconds * ends.high)).unzip();
    }
    let runs: Vec<&RunResult> = results.iter().flat_map(|set| &set.runs).collect();
    Ok(Validation {
        format: FORMAT.to_owned(),
        version: VERSION,
        levels: levels.results(&runs),
        constants: PUBLISHED,
        coverage: coverage::coverage(&results),
        sets: results,
        memory,
    })
}

/// Prices every run at the shares between which shares are fitted.
fn priced<'a>(runs: &'a [MeasuredRun], site: Option<Site<'a>>) -> Result<Vec<PricedRun<'a>>> {
    let replays = runs.iter().map(|run| Replay::new(run, site)).collect::<Result<Vec<_>>>()?;
    rate_check::check(&replays)?;
    let priced = replays.into_par_iter().map(|replay| {
        let mut seconds = [0.0; fit::SHARES.len()];
        for (seconds, share) in seconds.iter_mut().zip(fit::SHARES) {
            *seconds = replay.seconds_at(share)?;
        }
        let run = replay.run;
        let known = Known {
            key: replay.key.clone(),
            source: &run.source,
            release: &run.release,
            model: &run.model.name,
            priced: Priced { seconds, measured_seconds: run.measured_seconds },
        };
        Ok(PricedRun { replay, known })
    });
    priced.collect()
}

/// Fits one share to runs of one level, and prices them at it.
fn replay(origin: &SetOrigin, runs: &[PricedRun]) -> Result<SetResult> {
    let fitted = |runs: &[&PricedRun]| best_share(&runs.iter().map(|run| (&run.known.priced, 1.0)).collect::<Vec<_>>());
    let share = fitted(&runs.iter().collect::<Vec<_>>());
    let first = runs.first().map(|run| &run.replay);
    let first = first.ok_or_else(|| Error::usage(format!("{}: there is no run in it", origin.source)))?;
    let LevelKey { gpu, bits, layers } = &first.key;
    let planned = Level::of(&Level::shipped()?, Some(gpu), *bits, *layers);
    let results = runs.iter().map(|run| {
        let others: Vec<&PricedRun> = runs.iter().filter(|other| other.known.model != run.known.model).collect();
        // Of a single model nothing can be left out: the level of plans has to do.
        let left_out = match &planned {
            Some(level) if others.is_empty() => level.share_of_peak,
            _ => fitted(&others),
        };
        result(&run.replay, share, left_out)
    });
    let results = results.collect::<Result<_>>()?;
    let rival = constant_share(runs).as_deref().map(ErrorSummary::of);
    Ok(SetResult::of(origin, first, share, results, rival))
}

fn constants(share_of_peak: f64) -> Constants {
    Constants { share_of_peak, ..PUBLISHED }
}

/// Every run by the median share that the other models reach, counting nothing but products; none where there is a single model.
fn constant_share(runs: &[PricedRun]) -> Option<Vec<PredictionPair>> {
    let reached: Vec<(&str, f64, f64)> = runs
        .iter()
        .map(|PricedRun { replay, known }| (known.model, replay.seconds_at_peak(), replay.run.measured_seconds))
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
    let left_out = replay.seconds_at(left_out_share)?;
    let degrees = step.layout.degrees;
    let error_percent = |predicted: f64| error_percent(PredictionPair { predicted, measured: run.measured_seconds });
    Ok(RunResult {
        source: run.source.clone(),
        release: run.release.clone(),
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
        sequence: step.training.sequence,
        measured_seconds: run.measured_seconds,
        predicted_seconds: parts.step_seconds,
        error_percent: error_percent(parts.step_seconds),
        left_out_seconds: left_out,
        left_out_error_percent: error_percent(left_out),
        left_out_share_of_peak: left_out_share,
        source_left_out_seconds: None,
        low_seconds: None,
        high_seconds: None,
        parts,
    })
}
