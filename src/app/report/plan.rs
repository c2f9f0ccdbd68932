//! A plan as text: the best layouts as a table with the breakdown of the first, as CSV, and two layouts side by side.

mod explain;
mod table;
#[cfg(test)]
mod tests;

pub use explain::text as explain_text;
pub(in crate::report) use table::blocks;
pub use table::text;

use commgauge_analysis::planner::plan_document::{PlanDocument, PlannedLayout};
use commgauge_analysis::planner::price::Exposed;
use commgauge_base::comma_separated::{Column, CommaSeparated, cells, names};
use commgauge_base::error::Result;

/// The layouts as CSV: one line for each, in base units.
///
/// # Errors
/// Where it cannot be written.
pub fn csv(document: &PlanDocument) -> Result<String> {
    let (first, last) = (columns(), last_columns());
    let exposed = Exposed::NAMES.map(|name| format!("exposed_{name}_seconds"));
    let owned = |name: &str| name.to_owned();
    let heading = names(&first).map(owned).chain(exposed).chain(names(&last).map(owned));
    let mut text = CommaSeparated::new("the plan as CSV", heading)?;
    for layout in &document.layouts {
        let row = LayoutRow { plan: document, layout };
        let exposed = layout.exposed_communication_seconds.values().map(number);
        text.row(cells(&first, &row).chain(exposed).chain(cells(&last, &row)))?;
    }
    text.finish()
}

/// A layout of a plan.
struct LayoutRow<'a> {
    plan: &'a PlanDocument,
    layout: &'a PlannedLayout,
}

fn columns<'a>() -> Vec<Column<LayoutRow<'a>>> {
    vec![
        Column::new("tp", |row| row.layout.tp.to_string()),
        Column::new("cp", |row| row.layout.cp.to_string()),
        Column::new("ep", |row| row.layout.ep.to_string()),
        Column::new("pp", |row| row.layout.pp.to_string()),
        Column::new("virtual_stages", |row| row.layout.virtual_stages.to_string()),
        Column::new("dp", |row| row.layout.dp.to_string()),
        Column::new("zero_stage", |row| row.layout.zero_stage.to_string()),
        Column::new("micro_batch", |row| row.layout.micro_batch.to_string()),
        Column::new("micro_batches", |row| row.layout.micro_batches.to_string()),
        Column::new("recompute", |row| row.layout.recompute.to_string()),
        Column::new("order", |row| row.layout.order.clone()),
        Column::new("memory_bytes", |row| row.layout.memory_bytes.to_string()),
        Column::new("fits", |row| row.layout.fits.to_string()),
        Column::new("step_seconds", |row| number(row.layout.step_seconds)),
        Column::new("step_seconds_low", |row| number(row.layout.step_seconds_low)),
        Column::new("step_seconds_high", |row| number(row.layout.step_seconds_high)),
        Column::new("compute_seconds", |row| number(row.layout.compute_seconds)),
        Column::new("host_seconds", |row| number(row.layout.host_seconds)),
        Column::new("bubble_seconds", |row| number(row.layout.bubble_seconds)),
        Column::new("optimizer_seconds", |row| number(row.layout.optimizer_seconds)),
    ]
}

fn last_columns<'a>() -> Vec<Column<LayoutRow<'a>>> {
    vec![
        Column::new("limited_by", |row| row.layout.limited_by.clone()),
        Column::new("calibrated", |row| row.plan.calibrated.to_string()),
        Column::new("synthetic", |row| row.plan.synthetic.to_string()),
        Column::new("untrusted", |row| (!row.layout.untrusted.is_empty()).to_string()),
    ]
}

fn number(seconds: f64) -> String {
    format!("{seconds:e}")
}
