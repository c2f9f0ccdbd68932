//! Changes of whole curves: alpha and beta before and after, one line each.

use super::super::plain_table::{Column, markdown_table, table};
use super::super::text::{signed_percent, visible};
use commgauge_analysis::verdict::{CurveChange, CurvePart};
use commgauge_base::units::{Rate, Seconds};

/// For a terminal.
pub(super) fn text(curves: &[CurveChange], width: u16) -> String {
    match curves.is_empty() {
        true => String::new(),
        false => format!("\nLatency and bandwidth of whole curves:\n{}", table(&columns(), &all_cells(curves), width)),
    }
}

/// For a page.
pub(super) fn markdown(curves: &[CurveChange]) -> String {
    match curves.is_empty() {
        true => String::new(),
        false => format!("\n## Whole curves\n\n{}", markdown_table(&columns(), &all_cells(curves))),
    }
}

fn columns() -> Vec<Column> {
    vec![
        Column::left("curve", 0),
        Column::right("sizes", 4),
        Column::left("part", 0),
        Column::right("base", 2),
        Column::right("new", 2),
        Column::right("costs more", 0),
        Column::left("bounds", 3),
        Column::right("p corrected", 1),
        Column::left("verdict", 0),
    ]
}

/// The worst first.
fn all_cells(curves: &[CurveChange]) -> Vec<Vec<String>> {
    let mut curves: Vec<&CurveChange> = curves.iter().collect();
    curves.sort_by(|a, b| b.worse.cmp(&a.worse).then(b.slowdown.total_cmp(&a.slowdown)));
    curves.into_iter().map(cells).collect()
}

fn cells(curve: &CurveChange) -> Vec<String> {
    let value = |cost: f64| match curve.part {
        CurvePart::Latency => Seconds(cost).to_string(),
        CurvePart::Bandwidth => Rate(1.0 / cost).to_string(),
    };
    let bounds = curve.slowdown_lower_bound.zip(curve.slowdown_upper_bound);
    vec![
        visible(&curve.name),
        curve.cases.to_string(),
        curve.part.name().to_owned(),
        value(curve.base),
        value(curve.new),
        signed_percent(curve.slowdown),
        bounds.map_or_else(
            || "-".to_owned(),
            |(low, high)| format!("{} .. {}", signed_percent(low), signed_percent(high)),
        ),
        format!("{:.4}", curve.p_corrected),
        if curve.worse { "worse" } else { "-" }.to_owned(),
    ]
}
