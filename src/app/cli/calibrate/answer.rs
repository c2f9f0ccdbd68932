//! What a calibration ends with: the ranking of the best layout's parallelisms, and the plan.

use crate::cli::plan::{NOT_SURE, PlanCommand};
use crate::cli::table_or_json::print;
use crate::report::rank::{RankDocument, text};
use commgauge_analysis::planner::rank::RankOptions;
use commgauge_base::error::Result;
use commgauge_base::message::eprintln;
use commgauge_model::workload::step::Step;

/// Exit code where some layouts have no price.
const NOT_ALL: i32 = 7;

/// Prints the ranking and the plan; returns 7 where layouts have no price, 3 where the plan rests on curves that are not to be trusted.
///
/// # Errors
/// Those of planning.
pub(super) fn answer(plan: &PlanCommand) -> Result<i32> {
    let planned = plan.execute_after(|question, best| {
        let ranking = question.with_step(&best.layout, |step| {
            RankDocument::new(
                &Step::Training(step.clone()),
                question.ranks_per_node,
                question.rates,
                RankOptions::default(),
            )
        })?;
        print(&(text(&ranking, plan.shown.to.columns()) + "\n"))
    });
    if let (Err(_), Some(fit)) = (&planned, &plan.rates.fit) {
        eprintln!(
            "what was measured is kept: `commgauge plan --fit {}` with the same flags and --machine FILE plans on it without measuring again",
            fit.display()
        );
    }
    let planned = planned?;
    if !planned.every_layout_has_a_price {
        eprintln!(
            "some layouts have no price, for the reasons above: these ranks cannot measure their calls, so measure on more or name \
             --machine FILE for published rates"
        );
        return Ok(NOT_ALL);
    }
    if !planned.best_is_trusted {
        eprintln!(
            "the plan rests on curves that predict their own sizes badly: measure on a quiet machine, into another folder (-o), before \
             you build on it"
        );
        return Ok(NOT_SURE);
    }
    Ok(0)
}
