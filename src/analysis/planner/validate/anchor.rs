//! A user's own measured steps set the level of a plan.

use super::pricing::{Replay, Site};
use super::rate_check;
use super::runs::MeasuredRun;
use crate::planner::compute::{Compute, Efficiency};
use commgauge_base::error::Result;
use commgauge_base::units::three_digits;

/// How many times as fast or slow products are thought to be at most.
const MOST: f64 = 30.0;
/// Halvings: the factor is known to a millionth.
const ROUNDS: u32 = 24;

/// By how much products have to be faster than in `compute` so that the runs take what was measured: the middle of all.
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
                &format!("found {found}, and the plan is for {planned}; a step of another says nothing of its level"),
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
        rate_check::check(std::slice::from_ref(&replay))?;
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
    // Products at the peak are the fastest there can be.
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
                "{} s is less than the {} s that the step takes with products at the peak; are all settings of the run in its row?",
                run.measured_seconds,
                three_digits(fastest)
            ),
        ));
    }
    if run.measured_seconds > slowest {
        let problem = format!("{} s is {MOST} times as long as the model explains", run.measured_seconds);
        return Err(run.wrong(run.time_column, &problem));
    }
    for _ in 0..ROUNDS {
        let middle = 0.5 * (low + high);
        if seconds(middle)? > run.measured_seconds {
            low = middle;
        } else {
            high = middle;
        }
    }
    Ok((0.5 * (low + high)).exp())
}
