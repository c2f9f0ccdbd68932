//! Matrix products that all ranks computed at the same time: shape, time, rate, interval.

use super::document::{Block, Fields, Table, optional, range, signed_percent};
use super::row::{self, Row};
use super::step::StepView;
use super::template::{blocks, lines, mark};
use commgauge_base::stats::{Interval, median, median_interval, sorted};
use commgauge_base::units::{Bytes, Rate, Seconds, three_digits};
use commgauge_model::config::{CopyKind, HostMemory};
use commgauge_model::record::line::{Header, Outcome};
use commgauge_model::record::times::{CopyTime, MergedTimes, ProductTime};
use commgauge_model::record::work_lines::ReplayLine;
use minijinja::context;
use minijinja::value::Serde;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;
use std::collections::HashSet;

/// The table of all products, where there are any.
pub(super) fn document(products: &[ProductTime], header: &Header) -> Vec<Block> {
    let fastest = products.iter().filter_map(ProductTime::flops_per_second).fold(0.0, f64::max);
    let (unit, scale) = flops_unit(fastest);
    let checks = checks(products.iter().map(|time| &time.times), "element", header);
    let products = products.iter().map(JsonProduct::new).collect::<Vec<_>>();
    blocks("work.txt", WORK, context! { part => "products", products => Serde(products), checks, unit, scale })
}

const WORK: &str = include_str!("templates/work.txt");

/// For each the mark of its row, and what its check says.
fn checks<'a>(
    times: impl Iterator<Item = &'a MergedTimes>,
    part: &str,
    header: &Header,
) -> Vec<(&'static str, String)> {
    let mut said = HashSet::new();
    let check = |times: &'a MergedTimes| {
        let (tone, text) = row::check(&times.outcome, part, header);
        let is_new = said.insert(text.clone()) || !matches!(times.outcome, Outcome::Skipped { .. });
        (mark(tone), if is_new { text } else { "skipped, as above".to_owned() })
    };
    times.map(check).collect()
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
pub(super) fn copies_document(copies: &[CopyTime], header: &Header) -> Vec<Block> {
    let end = |(rank, rate): (u32, Rate)| format!("rank {rank}, {}", three_digits(rate.gigabytes_per_second()));
    let ends: Vec<_> = copies.iter().map(|time| time.extremes().map(|ends| ends.map(end))).collect();
    let checks = checks(copies.iter().map(|time| &time.times), "byte", header);
    let copies = copies.iter().map(JsonCopy::new).collect::<Vec<_>>();
    blocks("work.txt", WORK, context! { part => "copies", copies => Serde(copies), ends, checks })
}

/// Number of copies by outcome, such as `12 copies: 12 right`; `None` without copies.
pub(super) fn copies_summary(copies: &[CopyTime], header: &Header) -> Option<String> {
    row::summary(["copy", "copies"], copies.iter().map(|time| &time.times.outcome), header)
}

/// A copy in the report's JSON document.
#[derive(JsonSchema, Serialize)]
pub(super) struct JsonCopy<'a> {
    kind: CopyKind,
    /// The test case of nvbandwidth that measures the same.
    nvbandwidth: Option<&'static str>,
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
            nvbandwidth: time.copy.nvbandwidth_name(),
            host_memory: time.copy.host_memory,
            peer_distance: time.copy.peer_distance,
            bytes: time.copy.bytes,
            each: time.copy.each(),
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

/// The unit that fits a rate, or the fastest of several, and what a rate in FLOP/s is multiplied with.
pub(super) fn flops_unit(per_second: f64) -> (&'static str, f64) {
    if per_second < 1e12 { ("GFLOP/s", 1e-9) } else { ("TFLOP/s", 1e-12) }
}

// A replayed step or trace: its time, the waiting time on each axis, the hidden share, and whether the bytes match the list of ops.

/// The whole step's time: the median over the repetitions of the slowest rank's, with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReplayTime {
    /// The median.
    pub median: Seconds,
    /// Its interval; `None` with fewer than 6 repetitions. Repetitions share communicators, so it does not cover other
    /// launches.
    pub interval: Option<Interval<Seconds>>,
}

/// The time of a replay; `None` where there is none.
pub fn replay_time(replay: &ReplayLine) -> Option<ReplayTime> {
    let times = sorted(replay.slowest_nanoseconds.iter().map(|time| *time as f64 * 1e-9));
    let interval = median_interval(&times, 0.95).map(|interval| interval.map(Seconds));
    matches!(replay.outcome, Outcome::Measured { .. })
        .then(|| Some(ReplayTime { median: Seconds(median(&times)?), interval }))
        .flatten()
}

/// A replay: as recorded, and what its repetitions come to.
#[derive(JsonSchema, Serialize)]
pub(super) struct JsonReplay<'a> {
    #[serde(flatten)]
    line: &'a ReplayLine,
    seconds_median: Option<Seconds>,
    seconds_interval_low: Option<Seconds>,
    seconds_interval_high: Option<Seconds>,
}

impl<'a> JsonReplay<'a> {
    /// The replay.
    pub(super) fn new(line: &'a ReplayLine) -> JsonReplay<'a> {
        let time = replay_time(line);
        let interval = time.and_then(|time| time.interval);
        JsonReplay {
            line,
            seconds_median: time.map(|time| time.median),
            seconds_interval_low: interval.map(|interval| interval.low),
            seconds_interval_high: interval.map(|interval| interval.high),
        }
    }
}

/// A table and sentences for each replay.
pub(super) fn replays_document(replays: &[ReplayLine], steps: &[StepView]) -> impl Iterator<Item = Block> {
    replays.iter().flat_map(|replay| axes(steps, replay).into_iter().chain([Block::list(sentences(replay))]))
}

/// What the ranks of a replay did in its last repetition; `None` where nothing was timed.
pub(super) fn timeline(replay: &ReplayLine) -> Option<Block> {
    let (whole, last) = (replay_time(replay)?, Seconds::from_nanoseconds(*replay.slowest_nanoseconds.last()?));
    let Some(timeline) = &replay.timeline else {
        return Some(Block::absent(
            "No timeline: the record has totals only, as earlier versions wrote it; measure again with --replay.",
        ));
    };
    let resolution = Seconds::from_nanoseconds(timeline.resolution_nanoseconds);
    let ranks = (timeline.ranks.len(), replay.rank_nanoseconds_median.len());
    let mut notes = vec![format!(
        "the last of {} repetitions, {last}; the median is {}",
        replay.slowest_nanoseconds.len(),
        whole.median
    )];
    if ranks.0 < ranks.1 {
        notes.push(format!("{} of {} ranks, as many from every stage", ranks.0, ranks.1));
    }
    if resolution.0 > 0.0 {
        notes.push(format!("a slot of {resolution} shows what the rank did for most of it"));
    }
    let what = match (replay.is_of_trace(), replay.step) {
        (true, _) => "trace".to_owned(),
        (false, 0) => "step".to_owned(),
        (false, step) => format!("step {}", step + 1),
    };
    Some(Block::Timeline(json!({
        "kind": "timeline",
        "title": format!("The replayed {what}, rank by rank"),
        "nanoseconds": replay.slowest_nanoseconds.last(),
        "axes": replay.axes.iter().map(|axis| axis.axis).collect::<Vec<_>>(),
        "has_stages": timeline.ranks.iter().any(|rank| rank.stage > 0),
        "ranks": timeline.ranks,
        "note": notes.join("; "),
    })))
}

fn axes(steps: &[StepView], replay: &ReplayLine) -> Vec<Block> {
    let step = steps.get(replay.step as usize).map(|step| format!("{}, {}, ", step.facts.model, step.facts.layout));
    let context = context! {
        part => "axes", of_trace => replay.is_of_trace(), step, schedule => &replay.schedule,
        forward => replay.forward_seconds_per_layer.0, axes => Serde(&replay.axes),
    };
    blocks("replay.txt", REPLAY, context)
}

const REPLAY: &str = include_str!("templates/replay.txt");

fn sentences(replay: &ReplayLine) -> Vec<String> {
    let (time, seconds) = (replay_time(replay), |nanoseconds| Seconds::from_nanoseconds(nanoseconds).0);
    // Without the timeline, which may be long.
    let context = context! {
        part => "sentences", of_trace => replay.is_of_trace(), outcome => Serde(&replay.outcome), wrong => replay.outcome.mismatch(),
        median => time.map(|time| time.median.0), interval => range(time.and_then(|time| time.interval)),
        repetitions => replay.slowest_nanoseconds.len(), computing => seconds(replay.computing_nanoseconds_median),
        job => replay.job_nanoseconds.map(seconds), bytes_as_listed => replay.bytes_as_listed,
    };
    lines("replay.txt", REPLAY, context)
}

// The rates of a soak over its time: each case in the first and the last quarter of the rounds, and in its slowest round.

/// A table of all cases of a soak.
pub(super) fn soak_document(rows: &[Row], header: &Header) -> Option<Table> {
    let settings = &header.settings;
    let time = settings.within.filter(|_| settings.soak)?;
    let round = Seconds(time.0 / f64::from(settings.replicates.max(1)));
    let title = format!("over the {time} of the soak: busbw, and how the time of a call changed");
    let start = |of: usize| if of == 0 { "start".to_owned() } else { Seconds(round.0 * of as f64).to_string() };
    let table = Fields::of(rows.iter().filter_map(Soaked::of))
        .left("case", 0, |soaked| row::in_words(&soaked.row.facts))
        .right("rounds", 2, |soaked| soaked.rounds)
        .right("first quarter GB/s", 0, |soaked| soaked.rate(soaked.first))
        .right("last quarter GB/s", 0, |soaked| soaked.rate(soaked.last))
        .right("time of a call", 0, |soaked| signed_percent(soaked.last / soaked.first - 1.0))
        .right("slowest round", 0, |soaked| signed_percent(soaked.longest / soaked.whole - 1.0))
        .right("from", 1, |soaked| start(soaked.slowest));
    Some(table.table(title))
}

/// The rounds of a row: their number, medians of parts of them in seconds, and the slowest.
struct Soaked<'a> {
    row: &'a Row,
    rounds: usize,
    whole: f64,
    first: f64,
    last: f64,
    slowest: usize,
    longest: f64,
}

impl Soaked<'_> {
    fn of(row: &Row) -> Option<Soaked<'_>> {
        let seconds: Vec<f64> = row.latency_seconds_of_replicate.values().copied().collect();
        let quarter = seconds.len().div_ceil(4);
        let middle = |seconds: &[f64]| median(&sorted(seconds.iter().copied()));
        let slowest = row.latency_seconds_of_replicate.iter().max_by(|a, b| a.1.total_cmp(b.1))?;
        Some(Soaked {
            row,
            rounds: seconds.len(),
            whole: middle(&seconds)?,
            first: middle(&seconds[..quarter])?,
            last: middle(&seconds[seconds.len() - quarter..])?,
            slowest: *slowest.0,
            longest: *slowest.1,
        })
    }

    fn rate(&self, seconds: f64) -> String {
        let rate = self.row.busbw.zip(self.row.latency).map(|(rate, latency)| rate.0 * latency.median.0 / seconds);
        optional(rate.map(|rate| three_digits(rate * 1e-9)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::View;
    use crate::report::document::html;
    use commgauge_model::record::Record;
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
        let shown = copies_document(&all, &header);
        let [Block::Table(table)] = &shown[..] else { panic!("{shown:?}") };
        let cells = |row: usize| table.rows[row].cells.join(" | ");
        let fine = cells(0);
        for words in ["to-peer", "+2", "alone", "47.6", "rank 1, 47.6", "rank 0, 400", "right"] {
            assert!(fine.contains(words), "{words}: {fine}");
        }
        assert!(cells(1).contains("skipped: devices 0 and 1"), "{}", cells(1));
        assert_eq!(copies_summary(&all, &header).as_deref(), Some("2 copies: 1 right, 1 skipped"));
        assert_eq!(copies_summary(&[], &header), None);
    }

    #[test]
    fn a_replay_is_drawn_rank_by_rank_and_an_old_record_says_that_it_has_no_timeline() {
        let axis = json!({
            "axis": "tp", "waiting_nanoseconds_median": 250, "under_way_nanoseconds_median": 500, "calls_counted": 1,
            "payload_bytes_counted": 8, "payload_bytes_listed": 8, "wire_bytes_counted": 8, "wire_bytes_listed": 8
        });
        let spans = json!([
            { "activity": "computing", "begin_and_length": [[0, 500], [750, 250]] },
            { "activity": { "waiting": "tp" }, "begin_and_length": [[500, 250]] },
            { "activity": { "in_flight": "tp" }, "begin_and_length": [[250, 500]] }
        ]);
        let ranks = json!([{ "rank": 0, "stage": 0, "spans": spans }, { "rank": 9, "stage": 1, "spans": [] }]);
        let mut replay: ReplayLine = serde_json::from_value(json!({
            "step": 0, "schedule": "1f1b", "forward_seconds_per_layer": 0.001,
            "outcome": { "status": "measured", "verified": true }, "warm_up_repetitions": 1, "slowest_nanoseconds": [900, 1000],
            "slowest_rank": [0, 0], "computing_nanoseconds_median": 750, "axes": [axis],
            "rank_nanoseconds_median": vec![1000; 16], "bytes_as_listed": true,
            "timeline": { "resolution_nanoseconds": 40, "ranks": ranks }
        }))
        .expect("a line");
        let drawn = |replay: &ReplayLine| html(&[timeline(replay).expect("it was timed")]);
        let page = drawn(&replay);
        for words in [
            "rank 9, stage 1</text>",
            "d=\"M0 1h500000v19h-500000zM750000 1h250000v19h-250000z\"><title>rank 0, computing</title>",
            "<path class=\"cg-f0\" d=\"M500000 1h250000v19h-250000z\"><title>rank 0, waiting for tp</title>",
            "d=\"M250000 21h500000v10.7h-500000z\"><title>rank 0, tp in flight</title>",
            "the last of 2 repetitions, 1.00 us",
            "2 of 16 ranks, as many from every stage",
            "a slot of 40.0 ns shows",
        ] {
            assert!(page.contains(words), "{words}: {page}");
        }
        replay.timeline = None;
        assert!(drawn(&replay).contains("No timeline: the record has totals only"));
        replay.slowest_nanoseconds.clear();
        assert_eq!(timeline(&replay), None);
    }

    #[test]
    fn a_case_that_became_slower_shows_it_and_its_slowest_round() {
        let text = include_bytes!("../../../tests/data/sample-record.jsonl");
        let mut record = Record::parse(text, "sample").unwrap();
        let view = View::new(&record);
        assert_eq!(soak_document(&view.rows, &view.header), None);
        let settings = &mut record.header.settings;
        (settings.soak, settings.within, settings.replicates) = (true, Some(Seconds(80.0)), 8);
        let mut view = View::new(&record);
        view.rows[0].latency_seconds_of_replicate =
            [1.0, 1.0, 1.0, 1.0, 4.0, 1.0, 1.5, 1.5].into_iter().map(|time| time * 1e-3).enumerate().collect();
        let cells = &soak_document(&view.rows, &view.header).unwrap().rows[0].cells;
        assert_eq!(cells[1], "8");
        assert_eq!(cells[4..], ["+50.0 %", "+300 %", "40.0 s"]);
    }
}
