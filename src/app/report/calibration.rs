//! The result of a calibration run: for each curve its sizes, its expected error, and the errors of the predictions of added
//! sizes before they were measured.

use super::document::{Block, Column, Table, optional, share};
use super::view::View;
use commgauge_base::units::counted;
use commgauge_model::record::calibration_line::CalibratedCurve;

/// The table of all curves, where sizes were chosen.
pub(super) fn document(view: &View) -> Option<Block> {
    const COLUMNS: [Column; 6] = [
        Column::left("curve", 0),
        Column::right("sizes", 0),
        Column::right("expected error", 0),
        Column::right("last prediction", 1),
        Column::right("worst prediction", 2),
        Column::left("ended", 0),
    ];
    let calibration = view.calibration.as_ref()?;
    let title = format!(
        "calibration: sizes added in {} where curves were least sure, until {}; predictions are of sizes before they were measured",
        counted(calibration.rounds as usize, "round"),
        share(calibration.until_error)
    );
    let rows = calibration.curves.iter().map(|curve| cells(view, curve));
    Some(Block::Table(Table::new(title, &COLUMNS, rows).whole_in("`commgauge report --format json` has every curve")))
}

fn cells(view: &View, curve: &CalibratedCurve) -> Vec<String> {
    vec![
        curve_name(view, curve),
        curve.sizes.to_string(),
        optional(curve.expected_error.map(share)),
        optional(curve.last_error.map(share)),
        optional(curve.largest_error.map(share)),
        curve.outcome.name().to_owned(),
    ]
}

/// The common name of the cases of a curve: the name of one of them without its size.
fn curve_name(view: &View, curve: &CalibratedCurve) -> String {
    view.rows.get(curve.case as usize).map_or_else(String::new, |row| {
        let facts = &row.facts;
        let size = format!("/{}/", facts.name.rsplit('/').nth(2).unwrap_or_default());
        facts.name.replacen(&size, "/", 1)
    })
}
