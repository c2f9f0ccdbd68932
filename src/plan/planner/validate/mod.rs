//! Measured runs replayed with the model of the planner: predicted against measured time, error, order, interval, and memory.
//!
//! One constant is fitted per set, the share of the peak that matrix products reach; the others are those of every plan
//! ([`crate::planner::compute::PUBLISHED`]). Every run is also predicted with the share fitted on the other models of its set. Over all
//! sets a level is fitted for each kind of GPU and precision, with the errors of left-out sources.

mod document;
mod runs;
mod score;

pub use document::{
    ChoiceResult, Coverage, FORMAT, LevelResult, OWN_RUNS, RunResult, SetOrigin, SetResult, VERSION, Validation,
    levels_file,
};
pub use runs::{MeasuredRun, layers_of, read_runs, template};
pub use score::{ErrorSummary, MemoryResult, SHARE_LIMITS, Site, anchor};

use crate::planner::compute::{Constants, PUBLISHED};
use commgauge_base::error::{Error, Result};
use commgauge_base::stats::{median, sorted};
use commgauge_cost::cost::PredictionPair;
use commgauge_model::config::machine::Level;
use document::{Known, Levels};
use rayon::prelude::*;
use runs::{LevelKey, PublishedSet, memory_runs};
use score::{Priced, Replay, best_share, error_percent};

/// Replays the named published sets, or all if none is named.
///
/// # Errors
/// If a name is unknown.
pub fn validate(names: &[String]) -> Result<Validation> {
    let all = PublishedSet::all()?;
    if let Some(unknown) = names.iter().find(|name| all.iter().all(|set| set.name != **name)) {
        let known: Vec<&str> = all.iter().map(|set| set.name.as_str()).collect();
        return Err(Error::usage(format!("--set: found `{unknown}`; accepted: {}", known.join(", "))));
    }
    let wanted: Vec<&PublishedSet> = all.iter().filter(|set| names.is_empty() || names.contains(&set.name)).collect();
    let runs = wanted.iter().map(|set| set.runs()).collect::<Result<Vec<_>>>()?;
    let sets: Vec<(SetOrigin, &[MeasuredRun])> = wanted
        .iter()
        .map(|set| SetOrigin { name: &set.name, source: &set.source, assumption: None })
        .zip(runs.iter().map(Vec::as_slice))
        .collect();
    let memory = if names.is_empty() { score::memory_results(&memory_runs()?)? } else { Vec::new() };
    of(&sets, None, memory)
}

/// Replays a user's own runs; the site is for rows that name no machine.
///
/// # Errors
/// Names the row and the column: a time that no GPU could reach, or one in a different unit from those of other rows.
pub fn validate_runs(origin: SetOrigin, runs: &[MeasuredRun], site: Option<Site>) -> Result<Validation> {
    of(&[(origin, runs)], site, Vec::new())
}

fn of(sets: &[(SetOrigin, &[MeasuredRun])], site: Option<Site>, memory: Vec<MemoryResult>) -> Result<Validation> {
    let mut results = Vec::new();
    let mut known = Vec::new();
    for (origin, runs) in sets {
        let mut priced = priced(runs, site)?;
        // A share belongs to one GPU and precision.
        while let Some(first) = priced.first() {
            let key = first.key.clone();
            let (own, others): (Vec<_>, Vec<_>) = priced.into_iter().partition(|run| run.key.shares_level_with(&key));
            results.push(replay(origin, &own)?);
            known.extend(own);
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
        coverage: document::coverage(&results),
        sets: results,
        memory,
    })
}

/// Prices every run at the shares between which fitting interpolates.
fn priced<'a>(runs: &'a [MeasuredRun], site: Option<Site<'a>>) -> Result<Vec<Known<'a>>> {
    let replays = runs.iter().map(|run| Replay::new(run, site)).collect::<Result<Vec<_>>>()?;
    score::check(&replays)?;
    let priced = replays.into_par_iter().map(|replay| {
        let mut seconds = [0.0; score::SHARES.len()];
        for (seconds, share) in seconds.iter_mut().zip(score::SHARES) {
            *seconds = replay.seconds_at(share)?;
        }
        let run = replay.run;
        Ok(Known {
            key: replay.key.clone(),
            source: &run.source,
            release: &run.release,
            model: &run.model.name,
            priced: Priced { seconds, measured_seconds: run.measured_seconds },
            replay,
        })
    });
    priced.collect()
}

/// Fits one share to runs of one level, and prices them at it.
fn replay(origin: &SetOrigin, runs: &[Known]) -> Result<SetResult> {
    let fitted = |runs: &[&Known]| best_share(&runs.iter().map(|run| (&run.priced, 1.0)).collect::<Vec<_>>());
    let share = fitted(&runs.iter().collect::<Vec<_>>());
    let first = runs.first().map(|run| &run.replay);
    let first = first.ok_or_else(|| Error::usage(format!("{}: no runs", origin.source)))?;
    let LevelKey { gpu, bits, layers } = &first.key;
    let planned = Level::of(&Level::shipped()?, Some(gpu), *bits, *layers);
    let results = runs.iter().map(|run| {
        let others: Vec<&Known> = runs.iter().filter(|other| other.model != run.model).collect();
        // With a single model nothing can be left out: the level of plans applies.
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

/// Every run by the median share that the other models reach, counting only products; `None` with a single model.
fn constant_share<'a>(runs: &[Known<'a>]) -> Option<Vec<PredictionPair>> {
    let of_run = |run: &Known<'a>| (run.model, run.replay.seconds_at_peak(), run.priced.measured_seconds);
    let reached: Vec<(&str, f64, f64)> = runs.iter().map(of_run).collect();
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

#[cfg(test)]
mod tests {
    // The accuracy that the step model must retain.
    use super::*;
    use crate::planner::memory::{MemoryFit, MemoryNeed};
    use crate::planner::rates::Published;
    use crate::planner::step_error::ANCHORED;
    use commgauge_base::units::Bytes;
    use commgauge_model::config::Machine;
    use commgauge_model::config::machine::{ANY_GPU, LayerKind, Level};
    use commgauge_model::config::step::Recompute;
    use commgauge_model::workload::step::TrainingStep;
    use std::sync::LazyLock;

    /// Replayed once for all tests.
    static ALL: LazyLock<Validation> = LazyLock::new(|| validate(&[]).unwrap());

    fn set(name: &str) -> &'static SetResult {
        ALL.sets.iter().find(|set| set.name == name).unwrap()
    }

    #[test]
    fn an_unknown_set_is_refused_with_the_known_ones() {
        let error = validate(&["vtrain".to_owned(), "table-6".to_owned()]).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        let expected = "--set: found `table-6`; accepted: megatron-table-1, megatron-table-2, megatron-sp-table-5, vtrain, bloom, \
                    internevo, llm-foundry, megatron-bridge, dgx-cloud";
        assert_eq!(error.to_string(), expected);
    }

    /// Calculon, tuned by hand, has a mean error of 3.65 % and a maximum of 8.87 % on these eight runs.
    #[test]
    fn table_5_of_megatron_sp_comes_out_within_3_6_percent_and_8_8_at_worst() {
        let set = set("megatron-sp-table-5");
        for errors in [&set.fitted, &set.left_out] {
            assert!(errors.mean_percent <= 3.6 && errors.max_percent <= 8.8, "{errors:?}");
        }
        assert!(set.choices.iter().all(|choice| choice.top_1_regret_percent == 0.0), "{:?}", set.choices);
        assert!(set.kendall_tau.unwrap() > 0.95);
    }

    #[test]
    fn table_1_of_megatron_comes_out_within_4_percent_with_the_model_left_out() {
        let set = set("megatron-table-1");
        assert!(set.left_out.mean_percent <= 4.0 && set.left_out.max_percent <= 12.0, "{:?}", set.left_out);
        assert!(set.kendall_tau.unwrap() > 0.95);
    }

    /// vTrain itself prints 14.73 % for runs over several nodes.
    #[test]
    fn the_109_runs_of_vtrain_are_predicted_within_8_percent_with_the_model_left_out() {
        let set = set("vtrain");
        assert!(set.left_out.mean_percent <= 8.0, "{:?}", set.left_out);
        for choice in &set.choices {
            assert!(choice.top_1_regret_percent <= 5.0 && choice.kendall_tau.unwrap() > 0.4, "{choice:?}");
        }
    }

    /// ZeRO-3 of 2021 copied each rank's part of each tensor; the number of copies in its source explains the time within a fifth.
    #[test]
    fn all_six_choices_of_table_2_are_right() {
        let set = set("megatron-table-2");
        let of = |variant: &str| set.runs.iter().filter(|run| run.variant == variant).collect::<Vec<_>>();
        let (zero, ptd) = (of("zero-3"), of("ptd"));
        assert!(ptd.iter().all(|run| run.left_out_error_percent.abs() < 4.0), "{ptd:?}");
        assert!(zero.iter().all(|run| run.left_out_error_percent.abs() < 20.0), "{zero:?}");
        let samples_per_gpu = |run: &RunResult| run.global_batch as f64 / run.gpus as f64 / run.predicted_seconds;
        let right = zero.iter().zip(&ptd).map(|(zero, ptd)| samples_per_gpu(zero) < samples_per_gpu(ptd));
        assert_eq!(right.collect::<Vec<_>>(), [true; 6]);
        assert!(set.choices.iter().all(|choice| choice.top_1_regret_percent == 0.0), "{:?}", set.choices);
    }

    /// Not on the four models with experts of GB200 and the nine runs of H100 in 8 bits.
    #[test]
    fn a_constant_share_of_the_peak_is_the_worse_planner_in_all_sets_but_two() {
        let judged = |set: &&SetResult| !["GB200, experts", "H100, 8 bits"].contains(&set.level.as_str());
        for set in ALL.sets.iter().filter(judged) {
            let Some(rival) = set.constant_share else { continue };
            let (own, rival) = (set.left_out.mean_percent, rival.mean_percent);
            assert!(own < 0.99 * rival, "{}: {own} against {rival}", set.name);
        }
    }

    #[test]
    fn every_run_lists_its_parts_and_was_left_out_of_its_own_fit() {
        for set in &ALL.sets {
            assert!(SHARE_LIMITS[0] <= set.share_of_peak && set.share_of_peak <= SHARE_LIMITS[1], "{}", set.name);
            for run in &set.runs {
                let parts = &run.parts;
                let sum = parts.compute_seconds + parts.host_seconds + parts.bubble_seconds + parts.optimizer_seconds;
                assert!(((sum + parts.exposed.total()) / run.predicted_seconds - 1.0).abs() < 1e-9, "{run:?}");
                assert!(run.left_out_share_of_peak != set.share_of_peak, "{run:?}");
            }
        }
    }

    /// Accuracy of each level from other sources and releases only: mean error, error of 95 of 100, and bias, as upper bounds in percent.
    /// Dense runs of H100 in 16 bits have two sources: PyTorch's FSDP of 2023, and NeMo of 2024, which reaches a sixth more.
    #[test]
    fn levels_keep_the_errors_of_sources_that_are_left_out() {
        let dense = LayerKind::Dense;
        for (gpu, bits, layers, runs, mean, p95, bias, within) in [
            ("A100", Some(16), dense, 317, 12.0, 30.0, 3.0, 0.93),
            ("GB200", Some(4), dense, 5, 5.5, 9.0, 3.0, 0.93),
            ("GB300", Some(4), dense, 7, 5.5, 7.5, 3.0, 0.93),
            ("GB200", Some(8), dense, 18, 4.5, 12.0, 3.0, 0.93),
            ("GB300", Some(8), dense, 19, 6.0, 30.0, 3.0, 0.93),
            ("H100", Some(8), dense, 41, 7.5, 12.0, 3.0, 0.93),
            ("H100", Some(16), dense, 102, 12.0, 21.5, 6.5, 0.95),
            ("B200", None, LayerKind::Experts, 18, 9.5, 32.0, 3.0, 0.93),
            ("GB200", None, LayerKind::Experts, 21, 17.5, 36.0, 3.0, 0.93),
            ("GB300", None, LayerKind::Experts, 24, 11.0, 29.0, 3.5, 0.93),
            ("H100", None, LayerKind::Experts, 15, 9.5, 50.0, 5.0, 0.93),
            (ANY_GPU, Some(16), dense, 509, 10.5, 22.0, 2.0, 0.93),
            (ANY_GPU, None, LayerKind::Experts, 78, 12.0, 36.0, 2.0, 0.93),
        ] {
            let of = |found: &&LevelResult| {
                let level = &found.level;
                (level.gpu.as_str(), level.layers) == (gpu, layers) && (gpu == ANY_GPU || level.bits == bits)
            };
            let found = ALL.levels.iter().find(of).unwrap();
            let errors = found.left_out.unwrap();
            assert_eq!(found.level.runs, runs, "{gpu}");
            assert!(errors.mean_percent <= mean && errors.p95_percent <= p95, "{gpu} {bits:?}: {errors:?}");
            assert!(errors.bias_percent.abs() <= bias && found.within.unwrap() >= within, "{gpu} {bits:?}: {found:?}");
        }
    }

    #[test]
    fn the_shipped_levels_are_those_that_the_runs_give() {
        let shipped = Level::shipped().unwrap();
        assert_eq!(shipped.len(), ALL.levels.len());
        for (shipped, LevelResult { level, .. }) in shipped.iter().zip(&ALL.levels) {
            let near = |a: f64, b: f64| (a - b).abs() < 0.0015;
            let same = near(shipped.share_of_peak, level.share_of_peak)
                && near(shipped.low, level.low)
                && near(shipped.high, level.high);
            assert!(
                same,
                "suites/published/levels.toml has {shipped:?}, the runs give {level:?}: `commgauge plan validate --levels`"
            );
            let facts =
                |level: &Level| (level.gpu.clone(), level.bits, level.layers, level.runs, level.sources.clone());
            assert_eq!(facts(shipped), facts(level));
        }
    }

    #[test]
    fn intervals_cover_what_they_promise_and_plans_use_the_errors_that_were_found() {
        let coverage = ALL.coverage.unwrap();
        assert_eq!(coverage.runs, 587);
        assert!((0.93..=0.97).contains(&coverage.within), "{coverage:?}");
        assert!(coverage.sure_pairs > 400 && coverage.sure_right > 0.93, "{coverage:?}");
        let (found, used) = (coverage.anchored.unwrap(), ANCHORED);
        for (found, used) in [(found.low, used.low), (found.high, used.high), (found.of_a_layout, used.of_a_layout)] {
            assert!((found / used - 1.0).abs() < 0.01, "{coverage:?} was found, {ANCHORED:?} is used");
        }
        for run in ALL.sets.iter().flat_map(|set| &set.runs) {
            let predicted = run.source_left_out_seconds.unwrap();
            assert!(run.low_seconds.unwrap() < predicted && predicted < run.high_seconds.unwrap(), "{run:?}");
        }
    }

    /// The factor that a row of vTrain's 3.6B model gives a plan of such a model on such machines.
    fn anchored(machine: &str, model: &str, fp8: &str, seconds: &str) -> Result<f64> {
        let machine = format!("embedded:suites/{machine}.toml");
        let text = format!(
            "machine,model,tp,dp,sequence,global_batch,recompute,fused_attention,fp8_linears,step_seconds\n\
         {machine},{model},4,16,2048,512,full,false,{fp8},{seconds}\n"
        );
        let planned = Machine::load(std::path::Path::new("embedded:suites/published/a100-800gbit.toml")).unwrap();
        let (rates, gpu) = (Published::new(&planned), planned.computing.clone().unwrap());
        let site = Site { gpu: &gpu, described: "", rates: &rates, ranks_per_node: 8 };
        anchor(&read_runs(&text, "step.csv")?, "megatron-3.6b", 16, site, &PUBLISHED.compute(&gpu))
    }

    #[test]
    fn a_measured_step_sets_the_level_and_one_of_another_model_gpu_or_precision_is_refused_by_row_and_column() {
        let a100 = "published/a100-800gbit";
        let of = |seconds: &str| anchored(a100, "megatron-3.6b", "false", seconds).unwrap();
        let (fast, slow) = (of("4.5"), of("5.5"));
        assert!(slow < fast && fast < 1.27 && slow > 0.4, "{fast} {slow}");
        for ((machine, model, fp8, seconds), expected) in [
            (
                (a100, "megatron-18.4b", "false", "9"),
                "line 2: model: found megatron-18.4b, but the plan is for megatron-3.6b",
            ),
            (
                ("machines/h100-nvswitch-ndr", "megatron-3.6b", "false", "4"),
                "line 2: machine: found `H100`, but the plan is for `A100`",
            ),
            (("machines/h100-nvswitch-ndr", "megatron-3.6b", "true", "4"), "line 2: fp8_linears: found 8 bits"),
            ((a100, "megatron-3.6b", "false", "0.4"), "line 2: step_seconds: 0.4 s would be"),
            ((a100, "megatron-3.6b", "false", "2.9"), "that the step takes with products at the peak"),
            ((a100, "megatron-3.6b", "false", "400"), "line 2: step_seconds: 400 s is 30 times as long"),
        ] {
            let error = anchored(machine, model, fp8, seconds).unwrap_err();
            assert!(error.to_string().contains(expected) && error.exit_code() == 2, "{seconds} s: {error}");
        }
    }

    /// Means over the runs of a publisher. InternEvo's optimizer holds the state nearly twice, and no framework that plans know.
    #[test]
    fn memory_of_published_runs_is_predicted_and_deaths_are_foreseen() {
        for (source, runs, [mean, bias, each], within, died) in [
            ("bigscience-workshop/bigscience ", 35, [4.0, 1.0, 22.0], 1.0, 6),
            ("bigscience-workshop/bigscience 2022-02-20", 11, [3.0, 1.5, 10.0], 1.0, 0),
            ("InternLM/InternEvo ", 16, [30.0, 30.0, 45.0], 0.0, 0),
            ("pytorch/torchtitan 2024-12", 18, [6.0, 5.0, 15.0], 0.9, 0),
            ("pytorch/torchtitan 2025-06", 2, [9.0, 9.0, 10.0], 1.0, 0),
        ] {
            let found = ALL.memory.iter().find(|result| result.source == source).unwrap();
            assert_eq!((found.measured, found.died, found.foreseen, found.refused), (runs, died, died, 0), "{source}");
            assert!(found.errors.mean_percent <= mean && found.errors.bias_percent.abs() <= bias, "{found:?}");
            assert!(found.errors.max_percent <= each, "of a single run: {found:?}");
            assert!(found.within >= within, "{found:?}");
        }
        let errors = |result: &MemoryResult| result.errors.mean_percent * result.measured as f64;
        let all: usize = ALL.memory.iter().map(|result| result.measured).sum();
        assert!(ALL.memory.iter().map(errors).sum::<f64>() / all as f64 <= 12.0);
    }

    /// The memory of a GPU of each machine, in GB as it is sold.
    fn memory_of_a_gpu(machine: &str) -> f64 {
        match machine {
            "a100-40gb-hdr" => 40e9,
            "b200-nvswitch-ndr" => 180e9,
            "gb200-nvl72" => 192e9,
            "gb300-nvl72" => 288e9,
            _ => 80e9,
        }
    }

    /// Megatron-Bridge prints no recomputation and ZeRO-1 within a node cannot be said, so these runs count with the least that they may
    /// have needed.
    #[test]
    fn runs_that_ran_are_rarely_refused() {
        let mut refused = Vec::new();
        let mut all = 0;
        for set in PublishedSet::all().unwrap() {
            for run in set.runs().unwrap() {
                let step = run.step().unwrap();
                let mut training = step.training.clone();
                if set.name == "megatron-bridge" {
                    training.tensor.recompute = Recompute::Full;
                }
                let least = TrainingStep { training: &training, ..step.clone() };
                let parts = run.kernels.most_loaded(&least).1.total();
                let gpu_memory = memory_of_a_gpu(&run.machine.as_ref().unwrap().name);
                let need = MemoryNeed::of(parts, training.framework);
                all += 1;
                if need.fit(Bytes(gpu_memory as u64)) == MemoryFit::DoesNotFit {
                    refused.push(format!("{} of {gpu_memory}: {need:?}", run.place));
                }
            }
        }
        assert!(all > 500 && refused.len() * 20 <= all, "{} of {all}: {refused:#?}", refused.len());
    }

    #[test]
    fn times_that_no_gpu_reaches_or_in_another_unit_are_refused_with_row_and_column() {
        let heading = "machine,model,tp,dp,sequence,global_batch,recompute,step_seconds,step_milliseconds\n";
        let row = |time: &str| {
            format!("embedded:suites/published/a100-800gbit.toml,megatron-3.6b,4,16,2048,512,full,{time}\n")
        };
        let of = |text: &str| {
            let origin = SetOrigin { name: OWN_RUNS, source: "runs.csv", assumption: None };
            validate_runs(origin, &read_runs(&(heading.to_owned() + text), "runs.csv").unwrap(), None)
        };
        let good = row("4.5,") + &row(",4600");
        assert!(of(&good).unwrap().sets[0].fitted.mean_percent < 15.0);
        let message = |text: &str| of(text).unwrap_err().to_string();
        let fast = message(&(good.clone() + &row("0.45,")));
        assert!(
            fast.contains("line 4: step_seconds: 0.45 s would be") && fast.contains("more than its peak"),
            "{fast}"
        );
        let slow = message(&(good.clone() + &row(",4600000")));
        assert!(
            slow.contains("line 4: step_milliseconds: 4600 s would be") && slow.contains("another unit?"),
            "{slow}"
        );
    }

    /// Half widths of products, and shares of the memory's rate.
    const GRID: [[f64; 5]; 2] = [[50.0, 100.0, 150.0, 200.0, 300.0], [0.5, 0.64, 0.75, 0.9, 1.0]];

    /// Mean errors of a set with models left out, for each pair of the grid.
    fn left_out_over_the_grid(set: &str) -> Vec<f64> {
        let sets = PublishedSet::all().unwrap();
        let runs = sets.iter().find(|other| other.name == set).unwrap().runs().unwrap();
        let replays: Vec<Replay> = runs.iter().map(|run| Replay::new(run, None).unwrap()).collect();
        let mut errors = Vec::new();
        for half_width in GRID[0] {
            for share_of_memory_rate in GRID[1] {
                let price = |replay: &Replay| {
                    let at = |share_of_peak| Constants { share_of_peak, half_width, share_of_memory_rate, ..PUBLISHED };
                    let seconds = super::score::SHARES.map(|share| replay.price(&at(share)).unwrap().step_seconds);
                    Priced { seconds, measured_seconds: replay.run.measured_seconds }
                };
                let priced: Vec<Priced> = replays.iter().map(price).collect();
                let error = |(replay, own): (&Replay, &Priced)| {
                    let others =
                        replays.iter().zip(&priced).filter(|(other, _)| other.run.model.name != replay.run.model.name);
                    let share = best_share(&others.map(|(_, run)| (run, 1.0)).collect::<Vec<_>>());
                    (own.at(share) / own.measured_seconds - 1.0).abs()
                };
                errors.push(100.0 * replays.iter().zip(&priced).map(error).sum::<f64>() / replays.len() as f64);
            }
        }
        errors
    }

    /// The half width and the share of the memory rate were chosen with all sets in view. Here the pair that does best on the other sets
    /// judges each set.
    #[test]
    #[ignore = "prices every run at 100 sets of constants; run it with --release"]
    #[expect(clippy::print_stderr, reason = "the harness catches it")]
    fn each_set_is_predicted_with_constants_that_the_other_sets_choose() {
        let judged = ["vtrain", "megatron-sp-table-5", "megatron-table-1"];
        let errors: Vec<Vec<f64>> = judged.into_iter().map(left_out_over_the_grid).collect();
        let mut wrong = Vec::new();
        for ((set, own), most) in judged.iter().zip(&errors).zip([8.0, 5.0, 6.0]) {
            let others: Vec<&Vec<f64>> = errors.iter().filter(|other| !std::ptr::eq(*other, own)).collect();
            let sum = |pair: &usize| others.iter().map(|errors| errors[*pair]).sum::<f64>();
            let best = (0..own.len()).min_by(|a, b| sum(a).total_cmp(&sum(b))).unwrap();
            let (half_width, memory) = (GRID[0][best / GRID[1].len()], GRID[1][best % GRID[1].len()]);
            let found = format!("{set}: {:.1} % with {half_width}, {memory}", own[best]);
            eprintln!("{found}");
            wrong.extend((own[best] > most).then_some(found));
        }
        assert!(wrong.is_empty(), "{wrong:?}");
    }
}
