//! Quality of predictions: errors in percent, the order of runs, and the cost of following them.

use super::runs::{LevelKey, MeasuredRun, MemoryRun};
use crate::planner::compute::{Compute, Constants, Efficiency, PUBLISHED};
use crate::planner::memory::{MemoryFit, MemoryNeed};
use crate::planner::price::{PreparedStep, Pricing, StepPrice, Unpriced};
use crate::planner::rates::{Published, Rates};
use commgauge_base::error::{Error, Result};
use commgauge_base::stats::{median, percentile, sorted};
use commgauge_base::units::three_digits;
use commgauge_cost::cost::PredictionPair;
use commgauge_model::config::machine::Computing;
use commgauge_model::workload::step::TrainingStep;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Errors of predictions, in percent of the measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorSummary {
    /// Mean of the absolute errors.
    pub mean_percent: f64,
    /// Their median.
    pub median_percent: f64,
    /// 95 of 100 are at most this.
    pub p95_percent: f64,
    /// The largest.
    pub max_percent: f64,
    /// Mean of the signed errors: positive if predictions are too long.
    pub bias_percent: f64,
}

/// Percent by which a prediction is too large.
pub(super) fn error_percent(pair: PredictionPair) -> f64 {
    100.0 * pair.error()
}

impl ErrorSummary {
    /// For at least one run; all zero for none.
    pub(super) fn of(pairs: &[PredictionPair]) -> ErrorSummary {
        if pairs.is_empty() {
            return ErrorSummary::default();
        }
        let signed: Vec<f64> = pairs.iter().map(|pair| error_percent(*pair)).collect();
        let mut sizes: Vec<f64> = signed.iter().map(|error| error.abs()).collect();
        sizes.sort_by(f64::total_cmp);
        let (count, middle) = (sizes.len() as f64, sizes.len() / 2);
        let median = if sizes.len() % 2 == 1 { sizes[middle] } else { 0.5 * (sizes[middle - 1] + sizes[middle]) };
        ErrorSummary {
            mean_percent: sizes.iter().sum::<f64>() / count,
            median_percent: median,
            p95_percent: percentile(&sizes, 95.0).or(sizes.last().copied()).unwrap_or(0.0),
            max_percent: sizes.last().copied().unwrap_or(0.0),
            bias_percent: signed.iter().sum::<f64>() / count,
        }
    }
}

/// Kendall's tau-b of predictions and measurements: 1 if both have the same order, -1 if the opposite, 0 if undecided (M. G. Kendall, "The
/// treatment of ties in ranking problems", 1945). `None` for fewer than two runs, or if all values of one side are equal.
pub(super) fn kendall_tau(pairs: &[PredictionPair]) -> Option<f64> {
    let (mut agree, mut tied_predicted, mut tied_measured, mut all) = (0i64, 0i64, 0i64, 0i64);
    for (index, one) in pairs.iter().enumerate() {
        for other in &pairs[index + 1..] {
            let sign = |a: f64, b: f64| i64::from(a > b) - i64::from(a < b);
            let (predicted, measured) = (sign(one.predicted, other.predicted), sign(one.measured, other.measured));
            agree += predicted * measured;
            tied_predicted += i64::from(predicted == 0);
            tied_measured += i64::from(measured == 0);
            all += 1;
        }
    }
    let scale = ((all - tied_predicted) as f64 * (all - tied_measured) as f64).sqrt();
    (scale > 0.0).then(|| agree as f64 / scale)
}

/// Percent by which the run predicted to be the fastest takes longer than the fastest one. `None` without runs.
pub(super) fn top_1_regret_percent(pairs: &[PredictionPair]) -> Option<f64> {
    let chosen = pairs.iter().min_by(|a, b| a.predicted.total_cmp(&b.predicted))?;
    let best = pairs.iter().map(|pair| pair.measured).fold(f64::INFINITY, f64::min);
    Some(100.0 * (chosen.measured / best - 1.0))
}

// The one fitted constant: the share of the peak that the largest matrix products reach.
//
// The seconds of a step are nearly linear in its inverse, so each run is priced at a few shares and interpolated. The loss is robust and in
// logarithms: no single run decides, and long steps weigh no more than short ones.

/// Shares at which every run is priced. The fitted share is between the first and the last.
pub(super) const SHARES: [f64; 6] = [0.1, 0.25, 0.5, 0.65, 0.8, 0.95];

/// The smallest and the largest share that is fitted.
pub const SHARE_LIMITS: [f64; 2] = [SHARES[0], SHARES[SHARES.len() - 1]];

/// Errors far above this count linearly, below it quadratically.
const SCALE: f64 = 0.05;

/// The golden section.
const SECTION: f64 = 0.618_033_988_749_895;

/// Number of halvings: the share is known to about a millionth of the interval.
const FIT_ROUNDS: u32 = 30;

/// Seconds of a run at each of the shares, and the measured ones.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Priced {
    pub seconds: [f64; SHARES.len()],
    pub measured_seconds: f64,
}

impl Priced {
    /// Seconds at a share, on the chord between two neighbours in its inverse.
    pub(super) fn at(&self, share: f64) -> f64 {
        let behind = SHARES.iter().skip(1).position(|known| share <= *known).unwrap_or(SHARES.len() - 2);
        let (low, high) = (SHARES[behind].recip(), SHARES[behind + 1].recip());
        let part = (share.recip() - low) / (high - low);
        self.seconds[behind] + part * (self.seconds[behind + 1] - self.seconds[behind])
    }
}

/// The share with the smallest error over all runs, each with its weight: a golden section of the sum of soft absolute errors.
pub(super) fn best_share(runs: &[(&Priced, f64)]) -> f64 {
    let loss = |share: f64| -> f64 {
        let of = |(run, weight): &(&Priced, f64)| {
            let error = (run.at(share) / run.measured_seconds).ln() / SCALE;
            weight * ((1.0 + error * error).sqrt() - 1.0)
        };
        runs.iter().map(of).sum()
    };
    let [mut low, mut high] = SHARE_LIMITS;
    for _ in 0..FIT_ROUNDS {
        let (left, right) = (high - SECTION * (high - low), low + SECTION * (high - low));
        if loss(left) <= loss(right) {
            high = right;
        } else {
            low = left;
        }
    }
    0.5 * (low + high)
}

// A measured run, priced by the planner's code.

/// Site of runs whose rows name no machine: a GPU, the times of calls, and the GPUs per node.
#[derive(Clone, Copy)]
pub struct Site<'a> {
    pub gpu: &'a Computing,
    /// Peak and memory rate with their source.
    pub described: &'a str,
    /// Times of calls.
    pub rates: &'a dyn Rates,
    /// GPUs of a node.
    pub ranks_per_node: u32,
}

impl Site<'_> {
    /// The kind of GPU, as levels name it; empty if unknown.
    pub(super) fn kind(&self) -> &str {
        self.gpu.gpu.as_deref().unwrap_or_default()
    }
}

/// A run, ready to price with any constants.
pub(super) struct Replay<'a> {
    pub run: &'a MeasuredRun,
    pub step: TrainingStep<'a>,
    /// The kind of GPU with precision and layers.
    pub key: LevelKey,
    /// Peak rates of a GPU, and their source.
    pub gpu: String,
    prepared: PreparedStep,
    computing: Computing,
    calls: Calls<'a>,
    ranks_per_node: u32,
}

/// Times of calls: of the machine in the row, or of the site.
enum Calls<'a> {
    OfRow(Published<'a>),
    OfSite(&'a dyn Rates),
}

impl<'a> Replay<'a> {
    /// Of the machine in the run, else of the site.
    ///
    /// # Errors
    /// Names the row: no machine, a machine without a GPU, 8 bits on a GPU with unknown 8-bit peak, calls without a time.
    pub fn new(run: &'a MeasuredRun, site: Option<Site<'a>>) -> Result<Replay<'a>> {
        let step = run.step()?;
        let prepared = PreparedStep::new(&step).map_err(|problem| unpriced(run, &problem))?;
        let (kind, gpu, computing, calls, ranks_per_node) = match (&run.machine, site) {
            (Some(machine), _) => {
                let missing = || run.wrong("machine", &format!("{}: [computing] is missing", machine.name));
                let gpu = machine.computing.clone().ok_or_else(missing)?;
                let described = format!("{}, memory {}", gpu.peak_by(&machine.name), gpu.memory_by(&machine.name));
                let kind = gpu.gpu.clone().unwrap_or_default();
                (kind, described, gpu, Calls::OfRow(Published::new(machine)), machine.ranks_per_node)
            }
            (None, Some(site)) => {
                let described = site.described.to_owned();
                (site.kind().to_owned(), described, site.gpu.clone(), Calls::OfSite(site.rates), site.ranks_per_node)
            }
            (None, None) => {
                return Err(run.wrong("machine", "is missing; accepted: a machine file, or --machine for all rows"));
            }
        };
        if run.bits < 16 && computing.peak_of_linears(run.bits).is_none() {
            let (key, peak) = (format!("fp{}_linears", run.bits), format!("peak_tflops_fp{}", run.bits));
            return Err(run.wrong(&key, &format!("the machine has no `{peak}`")));
        }
        let key = LevelKey { gpu: kind, bits: run.bits, layers: run.layers() };
        let ranks_per_node = run.ranks_per_node.unwrap_or(ranks_per_node);
        Ok(Replay { run, step, key, gpu, prepared, computing, calls, ranks_per_node })
    }

    /// Times of calls.
    pub fn rates(&self) -> &dyn Rates {
        match &self.calls {
            Calls::OfRow(published) => published,
            Calls::OfSite(rates) => *rates,
        }
    }

    /// The peak of the linear layers of blocks.
    pub fn peak_flops_per_second(&self) -> f64 {
        self.peak_of_linears().unwrap_or(self.computing.peak_flops_per_second)
    }

    fn peak_of_linears(&self) -> Option<f64> {
        self.computing.peak_of_linears(self.run.bits)
    }

    /// Seconds of the products alone, at the peak and evenly on all ranks.
    pub fn seconds_at_peak(&self) -> f64 {
        let compute = Compute {
            peak_of_linears: self.peak_of_linears(),
            kernels: self.run.kernels,
            ..Compute::constant(self.computing.peak_flops_per_second, 1.0)
        };
        let stages = self.step.stages.count();
        let of = |stage: u32| {
            let work = compute.stage(&self.step, stage);
            work.forward_seconds() + work.backward_seconds()
        };
        self.step.micro_batches as f64 * (0..stages).map(of).sum::<f64>() / f64::from(stages)
    }

    /// The price with such constants.
    pub fn price(&self, constants: &Constants) -> Result<StepPrice> {
        let compute = self.in_its_kernels(&constants.compute(&self.computing));
        self.prepared.price(&self.step, self.on(&compute)).map_err(|problem| unpriced(self.run, &problem))
    }

    /// The seconds of its step with such computing, in the kernels and the precision of the run.
    pub fn seconds(&self, compute: &Compute) -> Result<f64> {
        let compute = self.in_its_kernels(compute);
        self.prepared.step_seconds(&self.step, self.on(&compute)).map_err(|problem| unpriced(self.run, &problem))
    }

    /// The seconds of its step at a share of the peak.
    pub fn seconds_at(&self, share_of_peak: f64) -> Result<f64> {
        self.seconds(&Constants { share_of_peak, ..PUBLISHED }.compute(&self.computing))
    }

    fn on<'c>(&'c self, compute: &'c Compute) -> Pricing<'c> {
        Pricing { compute, rates: self.rates(), ranks_per_node: self.ranks_per_node }
    }

    fn in_its_kernels(&self, compute: &Compute) -> Compute {
        Compute { kernels: self.run.kernels, peak_of_linears: self.peak_of_linears(), ..compute.clone() }
    }
}

fn unpriced(run: &MeasuredRun, problem: &Unpriced) -> Error {
    Error::usage(format!("{}: {problem}", run.place))
}

// Memory of the fullest GPU against what published runs held, and the verdict on those that ran out of it.

/// The runs of one publisher and framework.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryResult {
    /// Publisher and release.
    pub source: String,
    /// Runs whose memory was measured.
    pub measured: usize,
    /// Errors of the predicted middle.
    pub errors: ErrorSummary,
    /// Share of them within the predicted range.
    pub within: f64,
    /// Runs that ran and are refused, as they do not fit.
    pub refused: usize,
    /// Runs that ran out of memory.
    pub died: usize,
    /// Those of them that are at the edge of the memory, or do not fit.
    pub foreseen: usize,
}

/// By source, in the order of the file.
pub(super) fn memory_results(runs: &[MemoryRun]) -> Result<Vec<MemoryResult>> {
    let alike = |a: &MemoryRun, b: &MemoryRun| (&a.run.source, &a.run.release) == (&b.run.source, &b.run.release);
    runs.chunk_by(alike).map(memory_result).collect()
}

fn memory_result(runs: &[MemoryRun]) -> Result<MemoryResult> {
    let mut result = MemoryResult::default();
    let (mut pairs, mut within) = (Vec::new(), 0);
    for MemoryRun { run, gpu_memory, held } in runs {
        let step = run.step()?;
        let (_, parts) = run.kernels.most_loaded(&step);
        let need = MemoryNeed::of(parts.total(), step.training.framework);
        let fit = need.fit(*gpu_memory);
        let Some(held) = *held else {
            result.died += 1;
            result.foreseen += usize::from(fit != MemoryFit::Fits);
            continue;
        };
        result.refused += usize::from(fit == MemoryFit::DoesNotFit);
        within += usize::from((need.low..=need.high).contains(&held));
        pairs.push(PredictionPair { predicted: need.middle.0 as f64, measured: held.0 as f64 });
    }
    result.source = runs.first().map_or_else(String::new, |first| [&*first.run.source, &first.run.release].join(" "));
    (result.measured, result.errors) = (pairs.len(), ErrorSummary::of(&pairs));
    result.within = within as f64 / pairs.len().max(1) as f64;
    Ok(result)
}

// Impossible times: faster than the GPU's peak, or in a different unit from those of the other rows.

/// A row whose share of the peak differs from the median of all by more than this has a different unit.
const ANOTHER_UNIT: f64 = 50.0;

/// No training step computes at less than this share of the peak.
const FEWEST: f64 = 1e-4;

/// Rejects such rows.
///
/// # Errors
/// The first such row, with its column.
pub(super) fn check(replays: &[Replay]) -> Result<()> {
    let share = |replay: &Replay| replay.seconds_at_peak() / replay.run.measured_seconds;
    let usual = median(&sorted(replays.iter().map(share))).unwrap_or(1.0);
    for replay in replays {
        let (run, share) = (replay.run, share(replay));
        let tera = |share: f64| three_digits(share * replay.peak_flops_per_second() / 1e12);
        let (reached, peak) = (tera(share), tera(1.0));
        if share > 1.0 {
            return Err(run.wrong(
                run.time_column,
                &format!(
                    "{} s would be {reached} TFLOP/s on each GPU, more than its peak of {peak}; is it in another unit, or of fewer \
                     samples?",
                    run.measured_seconds
                ),
            ));
        }
        if share < FEWEST || usual / share > ANOTHER_UNIT {
            return Err(run.wrong(
                run.time_column,
                &format!(
                    "{} s would be {reached} TFLOP/s on each GPU, of a peak of {peak}, where the usual run of the file reaches {}; \
                     is it in another unit?",
                    run.measured_seconds,
                    tera(usual)
                ),
            ));
        }
    }
    Ok(())
}

// A user's own measured steps set the level of a plan.

/// Maximum correction of the speed of products.
const MOST: f64 = 30.0;

/// Halvings: the factor is known to a millionth.
const ANCHOR_ROUNDS: u32 = 24;

/// The factor on the speed of products in `compute` at which the runs take the measured time: the middle of all.
///
/// # Errors
/// Names the row and the column: another model, GPU or precision than the plan's, a step that beats the peak, and one that its calls
/// alone do not explain.
pub fn anchor(runs: &[MeasuredRun], model: &str, bits: u8, site: Site, compute: &Compute) -> Result<f64> {
    let mut logarithms = Vec::with_capacity(runs.len());
    for run in runs {
        let no_anchor = |column: &str, found: &str, planned: &str| {
            run.wrong(
                column,
                &format!("found {found}, but the plan is for {planned}; a step of another does not set its level"),
            )
        };
        if run.model.name != model {
            return Err(no_anchor("model", &run.model.name, model));
        }
        if run.bits != bits {
            return Err(no_anchor("fp8_linears", &format!("{} bits", run.bits), &format!("{bits} bits")));
        }
        let replay = Replay::new(run, Some(site))?;
        if replay.key.gpu != site.kind() {
            let named = |gpu: &str| if gpu.is_empty() { "an unnamed GPU".to_owned() } else { format!("`{gpu}`") };
            return Err(no_anchor("machine", &named(&replay.key.gpu), &named(site.kind())));
        }
        check(std::slice::from_ref(&replay))?;
        logarithms.push(factor(&replay, compute)?.ln());
    }
    Ok((logarithms.iter().sum::<f64>() / logarithms.len().max(1) as f64).exp())
}

fn factor(replay: &Replay, compute: &Compute) -> Result<f64> {
    let run = replay.run;
    let seconds = |logarithm: f64| -> Result<f64> {
        let efficiency = compute.efficiency.times(logarithm.exp());
        replay.seconds(&Compute { efficiency, ..compute.clone() })
    };
    // Products cannot be faster than at the peak.
    let most = match &compute.efficiency {
        Efficiency::Saturating(form) => form.best.recip().ln(),
        Efficiency::Measured(_) => MOST.ln(),
    };
    let (mut low, mut high) = (-MOST.ln(), most);
    let (slowest, fastest) = (seconds(low)?, seconds(high)?);
    if run.measured_seconds < fastest {
        return Err(run.wrong(
            run.time_column,
            &format!(
                "{} s is less than the {} s that the step takes with products at the peak; does its row have all settings of the run?",
                run.measured_seconds,
                three_digits(fastest)
            ),
        ));
    }
    if run.measured_seconds > slowest {
        let problem = format!("{} s is {MOST} times as long as the model explains", run.measured_seconds);
        return Err(run.wrong(run.time_column, &problem));
    }
    for _ in 0..ANCHOR_ROUNDS {
        let middle = 0.5 * (low + high);
        if seconds(middle)? > run.measured_seconds {
            low = middle;
        } else {
            high = middle;
        }
    }
    Ok((0.5 * (low + high)).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(predicted: f64, measured: f64) -> PredictionPair {
        PredictionPair { predicted, measured }
    }

    #[test]
    fn errors_are_those_worked_out_by_hand() {
        let found = ErrorSummary::of(&[pair(1.1, 1.0), pair(1.8, 2.0), pair(3.6, 3.0), pair(4.0, 4.0)]);
        let expected = [10.0, 10.0, 20.0, 5.0];
        let found = [found.mean_percent, found.median_percent, found.max_percent, found.bias_percent];
        assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-9), "{found:?}");
        assert_eq!(ErrorSummary::of(&[]), ErrorSummary::default());
        assert!((ErrorSummary::of(&[pair(1.1, 1.0)]).median_percent - 10.0).abs() < 1e-9);
    }

    #[test]
    fn the_rank_correlation_is_that_of_kendall() {
        let of = |predicted: &[f64]| {
            let pairs: Vec<PredictionPair> =
                predicted.iter().zip(1..).map(|(predicted, measured)| pair(*predicted, f64::from(measured))).collect();
            kendall_tau(&pairs)
        };
        assert_eq!((of(&[1.0, 2.0, 3.0]), of(&[3.0, 2.0, 1.0])), (Some(1.0), Some(-1.0)));
        // Of six pairs five agree.
        assert!((of(&[1.0, 3.0, 2.0, 4.0]).unwrap() - 4.0 / 6.0).abs() < 1e-12);
        // One tie: 5 of sqrt(5 x 6).
        assert!((of(&[1.0, 2.0, 2.0, 4.0]).unwrap() - 5.0 / 30f64.sqrt()).abs() < 1e-12);
        assert_eq!((of(&[1.0]), of(&[2.0, 2.0])), (None, None));
    }

    #[test]
    fn regret_is_the_cost_of_following_the_prediction() {
        assert_eq!(top_1_regret_percent(&[pair(1.0, 3.0), pair(2.0, 2.0)]), Some(50.0));
        assert_eq!(top_1_regret_percent(&[pair(2.0, 3.0), pair(1.0, 2.0)]), Some(0.0));
        assert_eq!(top_1_regret_percent(&[]), None);
    }

    /// A run with this computing time at a share of 1, and this time for everything else.
    fn run(compute: f64, hidden: f64, measured: f64) -> Priced {
        Priced { seconds: SHARES.map(|share| compute / share + hidden), measured_seconds: measured }
    }

    #[test]
    fn a_known_share_is_found_again_in_spite_of_an_outlier() {
        let share = 0.72;
        let mut runs: Vec<Priced> = (1..=9).map(f64::from).map(|n| run(n, 0.1 * n, n / share + 0.1 * n)).collect();
        runs.push(run(1.0, 0.1, 10.0));
        let found = best_share(&runs.iter().map(|run| (run, 1.0)).collect::<Vec<_>>());
        assert!((found - share).abs() < 0.005, "{found}");
    }

    #[test]
    fn a_price_linear_in_the_inverse_share_is_interpolated_exactly() {
        for share in [0.4, 0.5, 0.6, 0.7, 0.8, 0.93, 0.95, 0.99] {
            let found = run(3.0, 0.5, 1.0).at(share);
            assert!((found - (3.0 / share + 0.5)).abs() < 1e-12, "{share}: {found}");
        }
    }
}
