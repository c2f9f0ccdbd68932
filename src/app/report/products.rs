//! Matrix products that all ranks computed at the same time: shape, time, rate, interval.

use super::plain_table::{Column, TableWriter};
use super::step::Part;
use super::text::visible;
use super::view::View;
use commgauge_base::units::{Seconds, three_digits};
use commgauge_model::record::line::Outcome;
use commgauge_model::record::product_times::ProductTime;
use schemars::JsonSchema;
use serde::Serialize;

/// The table of all products, where there are any.
pub(super) fn part(view: &View, table: TableWriter) -> Option<Part> {
    let first = view.products.first()?;
    // Values that are equal in all rows go into the heading.
    let one_type = view.products.iter().all(|time| time.product.element_type == first.product.element_type);
    let all_right = view.products.iter().all(|time| time.trouble.is_none());
    let columns = [
        Column::left("layer", 0),
        Column::right("m", 0),
        Column::right("n", 0),
        Column::right("k", 0),
        Column::left("type", if one_type { 3 } else { 0 }),
        Column::right("repl.", 2),
        Column::right("time", 0),
        Column::left("[95 %]", 1),
        Column::right("GFLOP/s", 0),
        Column::left("check", if all_right { 2 } else { 0 }),
    ];
    let rows: Vec<Vec<String>> = view.products.iter().map(|time| cells(time, view.header.backend.synthetic)).collect();
    let title = format!(
        "matrix products of m x k by k x n{}: time of the slowest of {} ranks on a host that compute at once, and its rate; {}",
        if one_type { format!(" in {}", first.product.element_type) } else { String::new() },
        first.ranks_per_host,
        visible(&first.library)
    );
    Some(Part { title, body: table(&columns, &rows), below: false })
}

/// Label of a correct product.
fn right(synthetic: bool) -> &'static str {
    if synthetic { "synthetic" } else { "right" }
}

fn cells(time: &ProductTime, synthetic: bool) -> Vec<String> {
    let dash = || "-".to_owned();
    let product = &time.product;
    let layer = match product.uses.as_slice() {
        [] => dash(),
        [one] => visible(one),
        [first, others @ ..] => format!("{} and {} more", visible(first), others.len()),
    };
    let check = match &time.trouble {
        None => right(synthetic).to_owned(),
        Some(Outcome::Corrupt { rank, element, .. }) => format!("WRONG on rank {rank}, element {element}"),
        Some(Outcome::Waived { .. }) => "skipped".to_owned(),
        Some(Outcome::Failed { reason }) => format!("failed: {}", visible(reason)),
        Some(Outcome::Measured { .. }) => dash(),
    };
    vec![
        layer,
        product.m.to_string(),
        product.n.to_string(),
        product.k.to_string(),
        product.element_type.to_string(),
        time.seconds.len().to_string(),
        time.median().map_or_else(dash, |seconds| seconds.to_string()),
        time.interval.map_or_else(|| "n/a".to_owned(), |(low, high)| format!("{low}..{high}")),
        time.flops_per_second().map_or_else(dash, |rate| three_digits(rate * 1e-9)),
        check,
    ]
}

/// Number of products by outcome, such as `12 products: 12 right`; `None` without products.
pub(super) fn summary(products: &[ProductTime], synthetic: bool) -> Option<String> {
    let ends = [right(synthetic), "WRONG", "failed", "skipped"];
    let of = |time: &ProductTime| match &time.trouble {
        Some(Outcome::Corrupt { .. }) => ends[1],
        Some(Outcome::Failed { .. }) => ends[2],
        Some(Outcome::Waived { .. }) => ends[3],
        None | Some(Outcome::Measured { .. }) => ends[0],
    };
    let counted = |end: &str| {
        let count = products.iter().filter(|time| of(time) == end).count();
        (count > 0).then(|| format!("{count} {end}"))
    };
    let parts: Vec<String> = ends.into_iter().filter_map(counted).collect();
    let plural = if products.len() == 1 { "" } else { "s" };
    (!products.is_empty()).then(|| format!("{} product{plural}: {}", products.len(), parts.join(", ")))
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
    seconds_per_replicate: &'a [Seconds],
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
        JsonProduct {
            m: time.product.m,
            n: time.product.n,
            k: time.product.k,
            element_type: time.product.element_type.name(),
            uses: &time.product.uses,
            library: &time.library,
            ranks_per_host: time.ranks_per_host,
            flops: time.product.flops(),
            seconds_per_replicate: &time.seconds,
            seconds_median: time.median(),
            seconds_interval_low: time.interval.map(|(low, _)| low),
            seconds_interval_high: time.interval.map(|(_, high)| high),
            flops_per_second: time.flops_per_second(),
            repetitions: time.repetitions,
            trouble: time.trouble.as_ref(),
        }
    }
}
