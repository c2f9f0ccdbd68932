//! Copies between hosts and GPUs: from where to where, the rate of the slowest rank and of the fastest.

use super::document::{Block, Column, Row, Table, optional};
use super::work_outcome;
use commgauge_base::units::{Bytes, Rate, Seconds, three_digits};
use commgauge_model::config::{CopyKind, HostMemory};
use commgauge_model::record::copy_times::CopyTime;
use commgauge_model::record::line::{Header, Outcome};
use schemars::JsonSchema;
use serde::Serialize;

/// The table of all copies, where there are any.
pub(super) fn document(copies: &[CopyTime], header: &Header) -> Option<Block> {
    if copies.is_empty() {
        return None;
    }
    let all_right = copies.iter().all(|time| time.times.trouble().is_none());
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
    let rows = copies.iter().map(|time| row(time, header));
    Some(Block::Table(
        Table::new(title, &columns, rows).whole_in("`commgauge report --format json` has every rank of every copy"),
    ))
}

fn row(time: &CopyTime, header: &Header) -> Row {
    let copy = &time.copy;
    let (tone, check) = work_outcome::check(&time.times.outcome, "byte", header);
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
pub(super) fn summary(copies: &[CopyTime], header: &Header) -> Option<String> {
    work_outcome::summary(["copy", "copies"], copies.iter().map(|time| &time.times.outcome), header)
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
    trouble: Option<&'a Outcome>,
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
            trouble: time.times.trouble(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use commgauge_model::record::Record;
    use commgauge_model::record::copy_line::CopyFacts;
    use commgauge_model::record::merged_times::MergedTimes;

    fn copy(trouble: Option<Outcome>) -> CopyTime {
        let copy = CopyFacts {
            kind: CopyKind::ToPeer,
            host_memory: None,
            peer_distance: Some(2),
            bytes: Bytes(1_000_000_000),
            alone: true,
        };
        let (seconds_of_replicate, seconds_of_rank) = match trouble {
            None => (
                [0.020, 0.021, 0.022].map(|time| vec![time; 5]).to_vec(),
                [0.0025, 0.021, 0.0026].map(Seconds).to_vec(),
            ),
            Some(_) => (Vec::new(), Vec::new()),
        };
        let outcome = trouble.unwrap_or(Outcome::Measured { verified: true });
        CopyTime { copy, times: MergedTimes { outcome, seconds_of_replicate }, seconds_of_rank }
    }

    #[test]
    fn the_slowest_rank_and_its_rate_are_in_the_table_and_so_is_what_went_wrong() {
        let skipped = Outcome::Skipped { reason: "devices 0 and 1 do not reach each other directly".into() };
        let all = [copy(None), copy(Some(skipped))];
        let sample = include_bytes!("../../../tests/data/sample-record.jsonl");
        let header = Record::parse(sample, "sample").expect("it is a record").header;
        let cells = |time: &CopyTime| row(time, &header).cells.join(" | ");
        let fine = cells(&all[0]);
        for words in ["to-peer", "+2", "alone", "47.6", "rank 1, 47.6", "rank 0, 400", "right"] {
            assert!(fine.contains(words), "{words}: {fine}");
        }
        assert!(cells(&all[1]).contains("skipped: devices 0 and 1"), "{}", cells(&all[1]));
        assert_eq!(summary(&all, &header).as_deref(), Some("2 copies: 1 right, 1 skipped"));
        assert_eq!(summary(&[], &header), None);
    }
}
