//! How often measured steps are within their intervals, and how often an order that is called sure is right.

use super::document::{Coverage, RunResult, SetResult};
use crate::planner::step_error::{Residual, SURE, StepError};

/// Counts; nothing where no run has an interval.
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
