//! What a calibration ends with: the ranking of the best layout's parallelisms, and the plan.

use crate::cli::plan::PlanCommand;
use crate::cli::table_or_json::print;
use crate::cli::terminal::columns;
use crate::report::rank::{RankDocument, text};
use commgauge_analysis::planner::rank::RankOptions;
use commgauge_base::error::Result;
use commgauge_base::message::eprintln;
use commgauge_model::workload::step::Step;

/// Exit code where some layouts have no price.
const NOT_ALL: i32 = 7;

/// Prints the ranking and the plan; returns 7 where layouts have no price.
///
/// # Errors
/// Those of planning.
pub(super) fn answer(plan: &PlanCommand) -> Result<i32> {
    let all_priced = plan.execute_after(|question, best| {
        let ranking = question.with_step(&best.layout, |step| {
            RankDocument::new(
                &Step::Training(step.clone()),
                question.ranks_per_node,
                question.rates,
                RankOptions::default(),
            )
        })?;
        print(&(text(&ranking, columns(plan.width)) + "\n"))
    });
    if let (Err(_), Some(fit)) = (&all_priced, &plan.rates.fit) {
        eprintln!(
            "what was measured is kept: `commgauge plan --fit {}` with the same flags, and --allow-untrusted or --machine FILE, plans \
             on it without measuring again",
            fit.display()
        );
    }
    if all_priced? {
        return Ok(0);
    }
    eprintln!(
        "some layouts have no price, for the reasons above: these ranks cannot measure their calls, so measure on more or name \
         --machine FILE for published rates; or their curves are not to be trusted, so measure on a quiet machine or give \
         --allow-untrusted"
    );
    Ok(NOT_ALL)
}
