//! Matrix products that all ranks computed at the same time: shape, time, rate, interval.

use super::document::{Block, Column, Row, Table, optional, range};
use super::flops_unit::FlopsUnit;
use super::work_outcome;
use commgauge_base::units::{Seconds, counted};
use commgauge_model::record::line::{Header, Outcome};
use commgauge_model::record::product_times::ProductTime;
use schemars::JsonSchema;
use serde::Serialize;

/// The table of all products, where there are any.
pub(super) fn document(products: &[ProductTime], header: &Header) -> Option<Block> {
    let first = products.first()?;
    // Values that are equal in all rows go into the title.
    let one_type = products.iter().all(|time| time.product.element_type == first.product.element_type);
    let all_right = products.iter().all(|time| time.times.trouble().is_none());
    let fastest = products.iter().filter_map(ProductTime::flops_per_second).fold(0.0, f64::max);
    let unit = FlopsUnit::of(fastest);
    let columns = [
        Column::left("layer", 0),
        Column::right("m", 0),
        Column::right("n", 0),
        Column::right("k", 0),
        Column::left("type", if one_type { 3 } else { 0 }),
        Column::right("repl.", 2),
        Column::right("time", 0),
        Column::left("[95 %]", 1),
        Column::right(unit.name(), 0),
        Column::left("check", if all_right { 2 } else { 0 }),
        Column::left("all layers", Column::PAGES_ONLY),
    ];
    let title = format!(
        "matrix products of m x k by k x n{}: time of the slowest of {} on a host that compute at once, and its rate; {}",
        if one_type { format!(" in {}", first.product.element_type) } else { String::new() },
        counted(first.ranks_per_host as usize, "rank"),
        first.library
    );
    let rows = products.iter().map(|time| row(time, unit, header));
    Some(Block::Table(Table::new(title, &columns, rows).whole_in("`commgauge report --format json` has every product")))
}

fn row(time: &ProductTime, unit: FlopsUnit, header: &Header) -> Row {
    let product = &time.product;
    let layer = match product.uses.as_slice() {
        [] => optional(None::<String>),
        [one] => one.clone(),
        [first, others @ ..] => format!("{first} and {} more", others.len()),
    };
    let (tone, check) = work_outcome::check(&time.times.outcome, "element", header);
    let cells = vec![
        layer,
        product.m.to_string(),
        product.n.to_string(),
        product.k.to_string(),
        product.element_type.to_string(),
        time.times.medians().len().to_string(),
        optional(time.times.median()),
        range(time.times.interval()),
        optional(time.flops_per_second().map(|rate| unit.number(rate))),
        check,
        product.uses.join(", "),
    ];
    Row::toned(tone, cells)
}

/// Number of products by outcome, such as `12 products: 12 right`; `None` without products.
pub(super) fn summary(products: &[ProductTime], header: &Header) -> Option<String> {
    work_outcome::summary(["product", "products"], products.iter().map(|time| &time.times.outcome), header)
}

/// A product in the report's JSON document.
#[derive(JsonSchema, Serialize)]
pub(super) struct JsonProduct<'a> {
    m: u64,
    n: u64,
    k: u64,
    element_type: &'static str,
    uses: &'a [String],
    library: &'a str,
    ranks_per_host: u32,
    flops: f64,
    seconds_per_replicate: Vec<Seconds>,
    seconds_median: Option<Seconds>,
    seconds_interval_low: Option<Seconds>,
    seconds_interval_high: Option<Seconds>,
    flops_per_second: Option<f64>,
    repetitions: u64,
    trouble: Option<&'a Outcome>,
}

impl<'a> JsonProduct<'a> {
    /// The product.
    pub(super) fn new(time: &'a ProductTime) -> JsonProduct<'a> {
        let interval = time.times.interval();
        JsonProduct {
            m: time.product.m,
            n: time.product.n,
            k: time.product.k,
            element_type: time.product.element_type.name(),
            uses: &time.product.uses,
            library: &time.library,
            ranks_per_host: time.ranks_per_host,
            flops: time.product.flops(),
            seconds_per_replicate: time.times.medians(),
            seconds_median: time.times.median(),
            seconds_interval_low: interval.map(|interval| interval.low),
            seconds_interval_high: interval.map(|interval| interval.high),
            flops_per_second: time.flops_per_second(),
            repetitions: time.times.samples(),
            trouble: time.times.trouble(),
        }
    }
}
