//! The axes of a ranking as CSV: one line for each, in base units, with how sure it is.

use super::{Quantity, RankDocument};
use commgauge_base::comma_separated::CommaSeparated;
use commgauge_base::error::Result;

const HEADING: [&str; 22] = [
    "axis",
    "parallelism",
    "group_size",
    "stage",
    "nodes_spanned",
    "concurrent_groups_per_node",
    "stride",
    "payload_bytes_per_step",
    "wire_bytes_per_step",
    "exposed_wire_bytes_per_step",
    "seconds_per_step",
    "seconds_per_step_low",
    "seconds_per_step_high",
    "exposed_seconds_per_step",
    "exposed_seconds_per_step_low",
    "exposed_seconds_per_step_high",
    "ops_interpolated",
    "ops_transferred",
    "ops_extrapolated",
    "ops_refused",
    "calibrated",
    "synthetic",
];

/// The axes as CSV.
///
/// # Errors
/// Where it cannot be put together, which memory alone could cause.
pub fn csv(document: &RankDocument) -> Result<String> {
    let mut text = CommaSeparated::new("the axes as CSV", HEADING)?;
    for axis in &document.axes {
        let mut row = vec![
            axis.axis.to_string(),
            axis.parallelism.unwrap_or_default().to_owned(),
            axis.group_size.to_string(),
            axis.stage.to_string(),
            axis.nodes_spanned.to_string(),
            axis.concurrent_groups_per_node.to_string(),
            axis.stride.to_string(),
        ];
        let bytes = [axis.payload_bytes_per_step, axis.wire_bytes_per_step, axis.exposed_wire_bytes_per_step];
        row.extend(bytes.map(|bytes| bytes.0.to_string()));
        row.extend([axis.seconds_per_step, axis.exposed_seconds_per_step].into_iter().flat_map(numbers));
        let grounds = &axis.grounds;
        let counts = [grounds.interpolated, grounds.transferred, grounds.extrapolated, grounds.refused];
        row.extend(counts.map(|count| count.to_string()));
        row.extend([document.calibrated, document.synthetic].map(|said| said.to_string()));
        text.row(&row)?;
    }
    text.finish()
}

fn numbers(quantity: Quantity) -> [String; 3] {
    let number = |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value:e}"));
    [number(Some(quantity.value)), number(quantity.low), number(quantity.high)]
}
