//! A plan as text: the best layouts as a table with the breakdown of the first, as CSV, and two layouts side by side.

mod explain;
mod table;
#[cfg(test)]
mod tests;

pub use explain::text as explain_text;
pub use table::text;

use commgauge_analysis::planner::plan_document::{PlanDocument, PlannedLayout};
use commgauge_analysis::planner::price::Exposed;
use commgauge_base::comma_separated::CommaSeparated;
use commgauge_base::error::Result;

/// The layouts as CSV: one line for each, in base units.
///
/// # Errors
/// Where it cannot be written.
pub fn csv(document: &PlanDocument) -> Result<String> {
    let exposed = Exposed::NAMES.map(|name| format!("exposed_{name}_seconds"));
    let first = [
        "tp",
        "cp",
        "ep",
        "pp",
        "virtual_stages",
        "dp",
        "zero_stage",
        "micro_batch",
        "micro_batches",
        "recompute",
        "order",
        "memory_bytes",
        "fits",
        "step_seconds",
        "step_seconds_low",
        "step_seconds_high",
        "compute_seconds",
        "host_seconds",
        "bubble_seconds",
        "optimizer_seconds",
    ];
    let last = ["limited_by", "calibrated", "synthetic"];
    let heading = first.into_iter().chain(exposed.iter().map(String::as_str)).chain(last);
    let mut text = CommaSeparated::new("the plan as CSV", heading)?;
    for layout in &document.layouts {
        text.row(line(document, layout))?;
    }
    text.finish()
}

fn line(document: &PlanDocument, layout: &PlannedLayout) -> Vec<String> {
    let number = |seconds: f64| format!("{seconds:e}");
    let optional = |seconds: Option<f64>| seconds.map_or_else(String::new, number);
    let mut line = vec![
        layout.tp.to_string(),
        layout.cp.to_string(),
        layout.ep.to_string(),
        layout.pp.to_string(),
        layout.virtual_stages.to_string(),
        layout.dp.to_string(),
        layout.zero_stage.to_string(),
        layout.micro_batch.to_string(),
        layout.micro_batches.to_string(),
        layout.recompute.to_string(),
        layout.order.clone(),
        layout.memory_bytes.to_string(),
        layout.fits.to_string(),
        number(layout.step_seconds),
        optional(layout.step_seconds_low),
        optional(layout.step_seconds_high),
        number(layout.compute_seconds),
        number(layout.host_seconds),
        number(layout.bubble_seconds),
        number(layout.optimizer_seconds),
    ];
    line.extend(layout.exposed_communication_seconds.values().map(number));
    line.extend([layout.limited_by.clone(), document.calibrated.to_string(), document.synthetic.to_string()]);
    line
}
