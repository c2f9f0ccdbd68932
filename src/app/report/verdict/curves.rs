//! Changes of whole curves: alpha and beta before and after, one line each.

use crate::report::document::{Block, Column, Row, Table, Tone, signed_bounds, signed_percent};
use commgauge_analysis::verdict::{CurveChange, CurvePart};
use commgauge_base::units::{Rate, Seconds};

/// The table, the worst first, where there are any.
pub(in crate::report) fn document(curves: &[CurveChange]) -> Option<Block> {
    const COLUMNS: [Column; 9] = [
        Column::left("curve", 0),
        Column::right("sizes", 4),
        Column::left("part", 0),
        Column::right("base", 2),
        Column::right("new", 2),
        Column::right("costs more", 0),
        Column::left("bounds", 3),
        Column::right("p corrected", 1),
        Column::left("verdict", 0),
    ];
    let mut curves: Vec<&CurveChange> = curves.iter().collect();
    curves.sort_by(|a, b| b.worse.cmp(&a.worse).then(b.slowdown.total_cmp(&a.slowdown)));
    let table = Table::new("Latency and bandwidth of whole curves:", &COLUMNS, curves.into_iter().map(row))
        .whole_in("`commgauge compare --format json` has every curve");
    (!table.rows.is_empty()).then_some(Block::Table(table))
}

fn row(curve: &CurveChange) -> Row {
    let value = |cost: f64| match curve.part {
        CurvePart::Latency => Seconds(cost).to_string(),
        CurvePart::Bandwidth => Rate(1.0 / cost).to_string(),
    };
    let (tone, verdict) = if curve.worse { (Tone::Bad, "worse") } else { (Tone::Plain, "-") };
    let cells = vec![
        curve.name.clone(),
        curve.cases.to_string(),
        curve.part.name().to_owned(),
        value(curve.base),
        value(curve.new),
        signed_percent(curve.slowdown),
        signed_bounds(curve.slowdown_lower_bound, curve.slowdown_upper_bound),
        format!("{:.4}", curve.p_corrected),
        verdict.to_owned(),
    ];
    Row::toned(tone, cells)
}
