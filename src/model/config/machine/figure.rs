//! What all expectations have beside their figure: sizes, tolerance, where it comes from.

use crate::config::document::{Item, Table};
use commgauge_base::error::Result;
use commgauge_base::units::Bytes;

/// A tolerance above this would set a floor of less than a tenth of the figure, which checks nothing.
pub(super) const MOST_TOLERANCE: f64 = 0.9;

/// One size, or the smallest and the largest.
pub(super) fn range(item: Item) -> Result<(Bytes, Bytes)> {
    let place = item.place.clone();
    let sizes = item.items()?.iter().map(|item| item.parsed(Bytes::parse)).collect::<Result<Vec<Bytes>>>()?;
    match sizes.as_slice() {
        [one] => Ok((*one, *one)),
        [low, high] if low <= high => Ok((*low, *high)),
        _ => Err(place.wrong("accepted: one size, or the smallest and the largest of a range")),
    }
}

/// A text that may be left out.
pub(super) fn optional_text(table: &mut Table, key: &'static str, example: &str) -> Result<Option<String>> {
    table.take(key).map(|item| item.text_such_as(example).map(str::to_owned)).transpose()
}

/// Origin of a figure.
pub(super) fn source(table: &mut Table) -> Result<String> {
    let item = table.require("source", "who published or measured it, and where")?;
    Ok(item.text_such_as("measured here")?.to_owned())
}

/// When a figure was published or measured.
pub(super) fn date(table: &mut Table) -> Result<String> {
    table.require("date", "when, such as \"2026-03\"")?.parsed(day)
}

/// A year, a month or a day, as written.
fn day(text: &str) -> std::result::Result<String, String> {
    let day = match text.len() {
        4 => format!("{text}-01-01"),
        7 => format!("{text}-01"),
        _ => text.to_owned(),
    };
    match day.parse::<jiff::civil::Date>() {
        Ok(_) if day.len() == 10 => Ok(text.to_owned()),
        _ => Err(format!("found `{text}`; accepted: a year, month or day such as 2026, 2026-03 or 2026-03-14")),
    }
}
