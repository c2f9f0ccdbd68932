//! The style sheet of charts.

/// The style sheet that inline charts need; standalone ones carry it.
pub const STYLE: &str = include_str!("chart.css");
