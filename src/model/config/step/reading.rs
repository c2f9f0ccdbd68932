//! How keys of `[training]` and `[serving]` are read that have a default.

use crate::config::document::Table;
use commgauge_base::element::ElementType;
use commgauge_base::error::Result;

pub(super) fn truth_or(table: &mut Table, key: &'static str, default: bool) -> Result<bool> {
    table.take(key).map_or(Ok(default), |item| item.truth())
}

pub(super) fn parsed_or<T>(
    table: &mut Table,
    key: &'static str,
    default: T,
    parse: impl Fn(&str) -> std::result::Result<T, String>,
) -> Result<T> {
    table.take(key).map_or(Ok(default), |item| item.parsed(parse))
}

pub(super) fn parse_reducible_float(text: &str) -> std::result::Result<ElementType, String> {
    use ElementType::{Bfloat16, Float16, Float32, Float64};
    let element: ElementType = text.parse()?;
    if matches!(element, Float16 | Bfloat16 | Float32 | Float64) {
        return Ok(element);
    }
    Err(format!("found {element}; accepted: bfloat16, float16, float32, float64"))
}

/// Types that are only moved may be 8 bits wide.
pub(super) fn parse_float(text: &str) -> std::result::Result<ElementType, String> {
    let element: ElementType = text.parse()?;
    if element.moves_only() {
        return Ok(element);
    }
    parse_reducible_float(text).map_err(|problem| format!("{problem}, fp8_e4m3, fp8_e5m2"))
}
