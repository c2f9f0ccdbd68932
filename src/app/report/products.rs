//! Matrix products that all ranks computed at the same time: shape, time, rate, interval.

use super::document::{Block, Column, Row, Table, optional, range};
use super::row;
use commgauge_base::units::{Bytes, Rate, Seconds, counted, three_digits};
use commgauge_model::config::{CopyKind, HostMemory};
use commgauge_model::record::line::{Header, Outcome};
use commgauge_model::record::times::{CopyTime, ProductTime};
use schemars::JsonSchema;
use serde::Serialize;

/// The table of all products, where there are any.
pub(super) fn document(products: &[ProductTime], header: &Header) -> Option<Block> {
    let first = products.first()?;
    // Values that are equal in all rows go into the title.
    let one_type = products.iter().all(|time| time.product.element_type == first.product.element_type);
    let all_right = products.iter().all(|time| time.times.problem().is_none());
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
    let (tone, check) = row::check(&time.times.outcome, "element", header);
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
    row::summary(["product", "products"], products.iter().map(|time| &time.times.outcome), header)
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
    #[serde(rename = "trouble")]
    problem: Option<&'a Outcome>,
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
            problem: time.times.problem(),
        }
    }
}

// Copies between hosts and GPUs: from where to where, the rate of the slowest rank and of the fastest.

/// The table of all copies, where there are any.
pub(super) fn copies_document(copies: &[CopyTime], header: &Header) -> Option<Block> {
    if copies.is_empty() {
        return None;
    }
    let all_right = copies.iter().all(|time| time.times.problem().is_none());
    let columns = [
        Column::left("copy", 0),
        Column::left("host memory", 1),
        Column::left("to rank", 1),
        Column::right("size", 0),
        Column::left("each", 0),
        Column::right("repl.", 3),
        Column::right("time", 2),
        Column::right("GB/s", 0),
        Column::left("slowest", 0),
        Column::left("fastest", 1),
        Column::left("check", if all_right { 2 } else { 0 }),
    ];
    let title = "copies by the copy engines of the ranks' GPUs, one rank of a host after the other (alone) or all at once (together): time of \
                 the slowest rank, and its rate in each direction";
    let rows = copies.iter().map(|time| copies_row(time, header));
    Some(Block::Table(
        Table::new(title, &columns, rows).whole_in("`commgauge report --format json` has every rank of every copy"),
    ))
}

fn copies_row(time: &CopyTime, header: &Header) -> Row {
    let copy = &time.copy;
    let (tone, check) = row::check(&time.times.outcome, "byte", header);
    let gigabytes = |rate: Rate| three_digits(rate.gigabytes_per_second());
    let rank = |of: Option<(u32, Rate)>| optional(of.map(|(rank, rate)| format!("rank {rank}, {}", gigabytes(rate))));
    let extremes = time.extremes();
    let cells = vec![
        copy.kind.name().to_owned(),
        optional(copy.host_memory.map(HostMemory::name)),
        optional(copy.peer_distance.map(|distance| format!("+{distance}"))),
        copy.bytes.to_string(),
        each(copy.alone).to_owned(),
        time.times.medians().len().to_string(),
        optional(time.times.median()),
        optional(time.times.median().map(|seconds| gigabytes(time.rate(seconds)))),
        rank(extremes.map(|[slowest, _]| slowest)),
        rank(extremes.map(|[_, fastest]| fastest)),
        check,
    ];
    Row::toned(tone, cells)
}

fn each(alone: bool) -> &'static str {
    if alone { "alone" } else { "together" }
}

/// Number of copies by outcome, such as `12 copies: 12 right`; `None` without copies.
pub(super) fn copies_summary(copies: &[CopyTime], header: &Header) -> Option<String> {
    row::summary(["copy", "copies"], copies.iter().map(|time| &time.times.outcome), header)
}

/// A copy in the report's JSON document.
#[derive(JsonSchema, Serialize)]
pub(super) struct JsonCopy<'a> {
    kind: CopyKind,
    host_memory: Option<HostMemory>,
    peer_distance: Option<u32>,
    bytes: Bytes,
    each: &'static str,
    seconds_per_replicate: Vec<Seconds>,
    seconds_median: Option<Seconds>,
    bytes_per_second: Option<Rate>,
    seconds_median_of_rank: &'a [Seconds],
    samples: u64,
    #[serde(rename = "trouble")]
    problem: Option<&'a Outcome>,
}

impl<'a> JsonCopy<'a> {
    /// The copy.
    pub(super) fn new(time: &'a CopyTime) -> JsonCopy<'a> {
        JsonCopy {
            kind: time.copy.kind,
            host_memory: time.copy.host_memory,
            peer_distance: time.copy.peer_distance,
            bytes: time.copy.bytes,
            each: each(time.copy.alone),
            seconds_per_replicate: time.times.medians(),
            seconds_median: time.times.median(),
            bytes_per_second: time.times.median().map(|seconds| time.rate(seconds)),
            seconds_median_of_rank: &time.seconds_of_rank,
            samples: time.times.samples(),
            problem: time.times.problem(),
        }
    }
}

// The unit in which rates of computing are shown.

/// A unit of floating-point operations per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlopsUnit {
    Giga,
    Tera,
}

impl FlopsUnit {
    /// The one that fits a rate, or the fastest of several.
    pub fn of(per_second: f64) -> FlopsUnit {
        if per_second < 1e12 { FlopsUnit::Giga } else { FlopsUnit::Tera }
    }

    pub fn name(self) -> &'static str {
        match self {
            FlopsUnit::Giga => "GFLOP/s",
            FlopsUnit::Tera => "TFLOP/s",
        }
    }

    /// A rate in it.
    pub fn number(self, per_second: f64) -> String {
        let scale = match self {
            FlopsUnit::Giga => 1e-9,
            FlopsUnit::Tera => 1e-12,
        };
        three_digits(per_second * scale)
    }
}

#[cfg(test)]
mod tests {

    use super::*;
    use commgauge_model::record::Record;
    use commgauge_model::record::times::MergedTimes;
    use commgauge_model::record::work_lines::CopyShape;

    fn copy(problem: Option<Outcome>) -> CopyTime {
        let copy = CopyShape {
            kind: CopyKind::ToPeer,
            host_memory: None,
            peer_distance: Some(2),
            bytes: Bytes(1_000_000_000),
            alone: true,
        };
        let (seconds_of_replicate, seconds_of_rank) = match problem {
            None => (
                [0.020, 0.021, 0.022].map(|time| vec![time; 5]).to_vec(),
                [0.0025, 0.021, 0.0026].map(Seconds).to_vec(),
            ),
            Some(_) => (Vec::new(), Vec::new()),
        };
        let outcome = problem.unwrap_or(Outcome::Measured { verified: true });
        CopyTime { copy, times: MergedTimes { outcome, seconds_of_replicate }, seconds_of_rank }
    }

    #[test]
    fn the_slowest_rank_and_its_rate_are_in_the_table_and_so_is_what_went_wrong() {
        let skipped = Outcome::Skipped { reason: "devices 0 and 1 do not reach each other directly".into() };
        let all = [copy(None), copy(Some(skipped))];
        let sample = include_bytes!("../../../tests/data/sample-record.jsonl");
        let header = Record::parse(sample, "sample").expect("it is a record").header;
        let cells = |time: &CopyTime| copies_row(time, &header).cells.join(" | ");
        let fine = cells(&all[0]);
        for words in ["to-peer", "+2", "alone", "47.6", "rank 1, 47.6", "rank 0, 400", "right"] {
            assert!(fine.contains(words), "{words}: {fine}");
        }
        assert!(cells(&all[1]).contains("skipped: devices 0 and 1"), "{}", cells(&all[1]));
        assert_eq!(copies_summary(&all, &header).as_deref(), Some("2 copies: 1 right, 1 skipped"));
        assert_eq!(copies_summary(&[], &header), None);
    }
}
