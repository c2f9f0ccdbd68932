//! The axes of a ranking as CSV: one line for each, in base units, with how sure it is.

use super::documents::{AxisDocument, RankDocument};
use commgauge_base::comma_separated::{Column, comma_separated};
use commgauge_base::error::Result;

/// An axis of a ranking.
struct AxisRow<'a> {
    ranking: &'a RankDocument,
    axis: &'a AxisDocument,
}

/// The axes as CSV.
///
/// # Errors
/// Where it cannot be put together, which memory alone could cause.
pub fn csv(document: &RankDocument) -> Result<String> {
    let rows = document.axes.iter().map(|axis| AxisRow { ranking: document, axis });
    comma_separated("the axes as CSV", &columns(), rows)
}

fn columns<'a>() -> Vec<Column<AxisRow<'a>>> {
    vec![
        Column::new("axis", |row| row.axis.axis.to_string()),
        Column::new("parallelism", |row| row.axis.parallelism.unwrap_or_default().to_owned()),
        Column::new("group_size", |row| row.axis.group_size.to_string()),
        Column::new("stage", |row| row.axis.stage.to_string()),
        Column::new("nodes_spanned", |row| row.axis.nodes_spanned.to_string()),
        Column::new("concurrent_groups_per_node", |row| row.axis.concurrent_groups_per_node.to_string()),
        Column::new("stride", |row| row.axis.stride.to_string()),
        Column::new("payload_bytes_per_step", |row| row.axis.payload_bytes_per_step.0.to_string()),
        Column::new("wire_bytes_per_step", |row| row.axis.wire_bytes_per_step.0.to_string()),
        Column::new("exposed_wire_bytes_per_step", |row| row.axis.exposed_wire_bytes_per_step.0.to_string()),
        Column::new("seconds_per_step", |row| number(Some(row.axis.seconds_per_step.value))),
        Column::new("seconds_per_step_low", |row| number(row.axis.seconds_per_step.low)),
        Column::new("seconds_per_step_high", |row| number(row.axis.seconds_per_step.high)),
        Column::new("exposed_seconds_per_step", |row| number(Some(row.axis.exposed_seconds_per_step.value))),
        Column::new("exposed_seconds_per_step_low", |row| number(row.axis.exposed_seconds_per_step.low)),
        Column::new("exposed_seconds_per_step_high", |row| number(row.axis.exposed_seconds_per_step.high)),
        Column::new("ops_interpolated", |row| row.axis.grounds.interpolated.to_string()),
        Column::new("ops_transferred", |row| row.axis.grounds.transferred.to_string()),
        Column::new("ops_extrapolated", |row| row.axis.grounds.extrapolated.to_string()),
        Column::new("ops_refused", |row| row.axis.grounds.refused.to_string()),
        Column::new("calibrated", |row| row.ranking.calibrated.to_string()),
        Column::new("synthetic", |row| row.ranking.synthetic.to_string()),
    ]
}

fn number(value: Option<f64>) -> String {
    value.map_or_else(String::new, |value| format!("{value:e}"))
}
