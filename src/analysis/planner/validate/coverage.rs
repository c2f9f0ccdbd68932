//! How often measured steps lie within their intervals, and how often an order that is called sure is right: every run judged by
//! the errors of other models than its own.

use super::document::{Coverage, RunResult, SetResult};
use crate::planner::price::{Residual, SURE, StepError};

/// Puts an interval to every run, and counts; nothing with a single model.
pub(super) fn coverage(sets: &mut [SetResult]) -> Option<Coverage> {
    let residuals: Vec<Residual> = sets.iter().flat_map(|set| set.runs.iter().map(|run| residual(set, run))).collect();
    let all = StepError::of(&residuals)?;
    let (mut runs, mut within, mut sure_pairs, mut sure_right) = (0, 0, 0, 0);
    for set in sets {
        for run in &mut set.runs {
            let others = others(&residuals, &run.model);
            let Some(error) = StepError::of(&others) else { continue };
            let (low, high) = (run.left_out_seconds * error.low, run.left_out_seconds * error.high);
            (run.low_seconds, run.high_seconds) = (Some(low), Some(high));
            runs += 1;
            within += usize::from((low..=high).contains(&run.measured_seconds));
        }
        for (index, first) in set.runs.iter().enumerate() {
            let Some(error) = StepError::of(&others(&residuals, &first.model)) else { continue };
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
    (runs > 0).then(|| Coverage {
        runs,
        within: share(within, runs),
        sure_pairs,
        sure_right: share(sure_right, sure_pairs),
        error: all,
    })
}

fn residual(set: &SetResult, run: &RunResult) -> Residual {
    let (model, gpus, batch) = run.question();
    Residual {
        model: model.to_owned(),
        question: format!("{} {model} {gpus} {batch}", set.name),
        logarithm: (run.measured_seconds / run.left_out_seconds).ln(),
    }
}

fn others(residuals: &[Residual], model: &str) -> Vec<Residual> {
    residuals.iter().filter(|other| other.model != model).cloned().collect()
}
