//! The result of a calibration run: for each curve its sizes, its expected error, and the errors of the predictions of added
//! sizes before they were measured.

use super::plain_table::{Column, TableWriter};
use super::step::Part;
use super::view::View;
use commgauge_base::units::three_digits;
use commgauge_model::record::calibration_line::CalibratedCurve;

/// The table of all curves, where sizes were chosen.
pub(super) fn part(view: &View, table: TableWriter) -> Option<Part> {
    let calibration = view.calibration.as_ref()?;
    let columns = [
        Column::left("curve", 0),
        Column::right("sizes", 0),
        Column::right("expected error", 0),
        Column::right("last prediction", 1),
        Column::right("worst prediction", 2),
        Column::left("ended", 0),
    ];
    let rows: Vec<Vec<String>> = calibration.curves.iter().map(|curve| cells(view, curve)).collect();
    let title = format!(
        "calibration: sizes added in {} rounds where curves were least sure, until {} %; predictions are of sizes before they were measured",
        calibration.rounds,
        three_digits(calibration.until_error * 100.0)
    );
    Some(Part { title, body: table(&columns, &rows), below: false })
}

fn cells(view: &View, curve: &CalibratedCurve) -> Vec<String> {
    let percent =
        |error: Option<f64>| error.map_or_else(|| "-".to_owned(), |error| format!("{} %", three_digits(error * 100.0)));
    vec![
        curve_name(view, curve),
        curve.sizes.to_string(),
        percent(curve.expected_error),
        percent(curve.last_error),
        percent(curve.largest_error),
        curve.outcome.name().to_owned(),
    ]
}

/// The common name of the cases of a curve: the name of one of them without its size.
pub(super) fn curve_name(view: &View, curve: &CalibratedCurve) -> String {
    view.rows.get(curve.case as usize).map_or_else(String::new, |row| {
        let facts = &row.facts;
        let size = format!("/{}/", facts.name.rsplit('/').nth(2).unwrap_or_default());
        facts.name.replacen(&size, "/", 1)
    })
}
