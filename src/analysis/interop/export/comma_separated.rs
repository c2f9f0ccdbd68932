//! The measured points of a fit in the columns that `commgauge import --from csv` reads: another fit of them is the same.

use super::files::Export;
use super::pick::Curves;
use commgauge_base::comma_separated::CommaSeparated;
use commgauge_base::error::Result;
use std::collections::BTreeSet;

const HEADING: [&str; 7] = ["collective", "dtype", "ranks", "bytes_total", "latency_us", "locality", "source"];

pub(super) fn files(curves: &Curves) -> Result<Export> {
    // Labels that distinguish families, such as an algorithm, become columns.
    let names: BTreeSet<&String> = curves.families().flat_map(|family| family.key.labels.keys()).collect();
    let heading = HEADING.into_iter().chain(names.iter().map(|name| name.as_str()));
    let mut text = CommaSeparated::new("CSV", heading)?;
    let mut gaps = Vec::new();
    for family in curves.families() {
        // A type is required; for a call that only moves bytes any type will do.
        let element = family.key.element_type.map_or("uint8", |element| element.name());
        for curve in &family.curves {
            for point in &curve.points {
                let microseconds = |seconds: f64| format!("{}", seconds * 1e6);
                let row = [
                    family.key.collective.name().to_owned(),
                    element.to_owned(),
                    curve.ranks.to_string(),
                    point.bytes_total.0.to_string(),
                    microseconds(point.measured_seconds.0),
                    family.key.place.to_string(),
                    curves.source(),
                ];
                let labels = names.iter().map(|name| family.key.labels.get(*name).cloned().unwrap_or_default());
                text.row(row.into_iter().chain(labels))?;
            }
        }
    }
    let left = curves.fit.families.len() - curves.families().count();
    if left > 0 {
        gaps.push(format!("{left} families of isolated calls; the columns know one cadence, streaming"));
    }
    let text = text.finish()?;
    let mut export = Export { gaps, ..Export::default() };
    export.add("calibration.csv", text);
    Ok(export)
}
