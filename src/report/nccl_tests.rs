//! The report in the columns of nccl-tests (as its versions 2.13 to 2.16 print them), so that programs which read
//! those go on working. <https://github.com/NVIDIA/nccl-tests>
//!
//! nccl-tests measures one collective, back to back. So there is one block for each collective on each axis, and the
//! isolated cases are left out, which a comment says, and so is what was not measured; comments begin with `#` as that
//! tool's own do.

use super::row::{Row, Status};
use super::text::visible;
use super::view::View;
use crate::collective::{Collective, Placement};
use crate::sample::Cadence;
use crate::variant;
use std::collections::{BTreeSet, HashMap};

/// All blocks.
pub(super) fn text(view: &View) -> String {
    let mut out = String::new();
    let mut left_out = 0;
    let mut blocks: Vec<Vec<&Row>> = Vec::new();
    for row in &view.rows {
        if row.facts.cadence != Cadence::Streaming || row.facts.collective == Collective::Barrier {
            left_out += 1;
            continue;
        }
        match blocks.iter_mut().find(|block| same_block(block[0], row)) {
            Some(block) => block.push(row),
            None => blocks.push(vec![row]),
        }
    }
    let devices = devices(view);
    let texts: Vec<(bool, String)> = blocks.iter().map(|block| block_text(view, block, &devices)).collect();
    // Notes of calls without a table come first, as nothing may stand behind the last table.
    for has_table in [false, true] {
        texts.iter().filter(|(has, _)| *has == has_table).for_each(|(_, text)| out += text);
    }
    if left_out > 0 {
        out += &format!("# commgauge: {left_out} isolated or barrier cases have no columns here; see --format table\n");
    }
    out
}

fn same_block(a: &Row, b: &Row) -> bool {
    let key =
        |row: &Row| (row.facts.axis, row.facts.style, row.facts.group_size, row.facts.groups, row.facts.collective);
    key(a) == key(b) && variant(a) == variant(b)
}

/// What it was handed over as: that tool has one way for all rows of a block.
fn variant(row: &Row) -> String {
    variant::shown(&row.facts.labels)
}

/// One line of the table: the same call out of place and in place.
#[derive(Default)]
struct Pair<'a> {
    out_of_place: Option<&'a Row>,
    in_place: Option<&'a Row>,
}

fn pairs<'a>(block: &[&'a Row]) -> Vec<Pair<'a>> {
    let key = |row: &Row| {
        let facts = &row.facts;
        (facts.bytes_total, facts.element_type, facts.reduce_op, facts.root, format!("{:?}", facts.splits))
    };
    let mut pairs: Vec<(_, Pair)> = Vec::new();
    for row in block {
        if !pairs.iter().any(|(known, _)| *known == key(row)) {
            pairs.push((key(row), Pair::default()));
        }
        let measured = pairs.iter_mut().filter(|(known, _)| *known == key(row) && row.latency.is_some());
        for (_, pair) in measured {
            match row.facts.placement {
                Placement::OutOfPlace => pair.out_of_place = Some(row),
                Placement::InPlace => pair.in_place = Some(row),
            }
        }
    }
    pairs.into_iter().map(|(_, pair)| pair).collect()
}

/// Whether there is a table, and the text. A block holds what was measured and nothing else, so that every field of its tables is a number as it is there. All notes stand
/// above the headings, as readers look for rows between the line with `out-of-place` and the one with `Out of bounds values`.
fn block_text(view: &View, block: &[&Row], devices: &str) -> (bool, String) {
    let facts = &block[0].facts;
    let program = program_name(facts.collective);
    let synthetic = if view.header.backend.synthetic { ", SYNTHETIC: not measured" } else { "" };
    let mut notes = String::new();
    for row in block {
        if row.latency.is_none() || row.status.reason().is_some() {
            notes += &format!("# commgauge: {}: {}\n", visible(&row.facts.name), visible(&row.status.to_string()));
        }
    }
    let mut tables = tables(pairs(block));
    let wrong = block.iter().filter(|row| matches!(row.status, Status::Wrong { .. })).count();
    match (tables.is_empty(), wrong) {
        (true, 0) => return (false, notes),
        // Wrong data is told where readers look for it, though nothing was timed.
        (true, _) => tables.push((BOTH, Vec::new())),
        (false, _) => {}
    }
    let mut out = format!(
        "# Collective test starting: {program}\n# commgauge: axis {}, {}, {} group{} of {} ranks, backend {}{synthetic}\n",
        facts.axis,
        facts.style.name(),
        facts.groups,
        if facts.groups == 1 { "" } else { "s" },
        facts.group_size,
        visible(&view.header.backend.name)
    );
    out += &parameters(view, block);
    out += devices;
    out += &format!("#\n{notes}");
    for (placements, pairs) in tables {
        out += &headings(placements);
        pairs.iter().for_each(|pair| out += &line(pair, placements));
    }
    out += &format!("# Out of bounds values : {wrong} {}\n", if wrong == 0 { "OK" } else { "FAILED" });
    out += &format!("# Avg bus bandwidth    : {} \n#\n", average_bus_bandwidth(block));
    (true, out + &format!("# Collective test concluded: {program}\n#\n"))
}

const OUT_OF_PLACE_ALONE: &[Placement] = &[Placement::OutOfPlace];
const IN_PLACE_ALONE: &[Placement] = &[Placement::InPlace];
const BOTH: &[Placement] = &[Placement::OutOfPlace, Placement::InPlace];

/// The lines that have the same placements, the usual ones last: readers that know one table take the last.
fn tables(pairs: Vec<Pair>) -> Vec<(&'static [Placement], Vec<Pair>)> {
    let mut tables: Vec<(&'static [Placement], Vec<Pair>)> =
        [OUT_OF_PLACE_ALONE, IN_PLACE_ALONE, BOTH].map(|placements| (placements, Vec::new())).into();
    for pair in pairs {
        let at = match (pair.out_of_place.is_some(), pair.in_place.is_some()) {
            (true, false) => 0,
            (false, true) => 1,
            (true, true) => 2,
            (false, false) => continue,
        };
        tables[at].1.push(pair);
    }
    tables.retain(|(_, pairs)| !pairs.is_empty());
    tables
}

/// A placement of which nothing was measured has no columns.
fn headings(placements: &[Placement]) -> String {
    let names = |placement: &Placement| match placement {
        Placement::OutOfPlace => format!("{:11}out-of-place{:9}", "", ""),
        Placement::InPlace => format!("{:14}in-place{:10}", "", ""),
    };
    // Some readers look for the word before they look for the columns.
    let alone = if placements == IN_PLACE_ALONE { "# commgauge: nothing was measured out-of-place\n" } else { "" };
    format!(
        "{alone}{:52}{}\n{:52}{}\n{:52}{}\n",
        "#",
        placements.iter().map(names).collect::<String>(),
        "#       size         count      type   redop    root",
        "     time   algbw   busbw #wrong".repeat(placements.len()),
        "#        (B)    (elements)",
        "     (us)  (GB/s)  (GB/s)       ".repeat(placements.len())
    )
}

/// The name of the program of nccl-tests that measures the collective, or would.
fn program_name(collective: Collective) -> String {
    match collective {
        Collective::AllToAll => "alltoall_perf".to_owned(),
        Collective::AllToAllV => "alltoallv_perf".to_owned(),
        Collective::SendRecv => "sendrecv_perf".to_owned(),
        other => format!("{}_perf", other.name()),
    }
}

fn parameters(view: &View, block: &[&Row]) -> String {
    let sizes: BTreeSet<u64> = block.iter().map(|row| row.facts.bytes_total.0).collect();
    let (smallest, largest) = (sizes.first().copied().unwrap_or(0), sizes.last().copied().unwrap_or(0));
    let sizes: Vec<u64> = sizes.into_iter().collect();
    let steps = || sizes.array_windows().map(|[a, b]| (b - a, if *a > 0 && b % a == 0 { b / a } else { 0 }));
    let (difference, factor) = steps().next().unwrap_or((0, 0));
    let step = match factor {
        2.. if steps().all(|(_, other)| other == factor) => format!("{factor}(factor)"),
        // Sizes of a model follow no rule; the difference of the first two is as good as any.
        _ => format!("{difference}(bytes)"),
    };
    let warm_up = block.iter().map(|row| row.warm_up_iterations).max().unwrap_or(0);
    let iterations = block.iter().map(|row| row.calls).filter(|calls| *calls > 0).min().unwrap_or(0);
    let labels = &block[0].facts.labels;
    let aggregate = labels.get("aggregate").map_or("1", String::as_str);
    let graph = u32::from(labels.contains_key("submit"));
    let variant = Some(variant(block[0])).filter(|shown| !shown.is_empty());
    let variant = variant.map_or_else(String::new, |shown| format!("# commgauge: variant {}\n", visible(&shown)));
    let validation = u32::from(view.header.settings.verify);
    format!(
        "# nThread 1 nGpus 1 minBytes {smallest} maxBytes {largest} step: {step} warmup iters: {warm_up} iters: {iterations} \
         agg iters: {aggregate} validation: {validation} graph: {graph}\n{variant}#\n"
    )
}

fn devices(view: &View) -> String {
    let mut out = "# Using devices\n".to_owned();
    let mut devices_on_host: HashMap<&str, u32> = HashMap::new();
    for entry in &view.header.ranks {
        let model = entry.device.as_ref().unwrap_or(&entry.processor);
        let next = devices_on_host.entry(&entry.host).or_default();
        for rank in (entry.rank..view.header.world_size).take(entry.ranks as usize) {
            let device = *next;
            *next += 1;
            out += &format!(
                "#  Rank {rank:2} Group  0 Pid {:6} on {:>10} device {device:2} [0x00] {}\n",
                entry.pid,
                visible(&entry.host),
                visible(model)
            );
        }
    }
    out
}

fn line(pair: &Pair, placements: &[Placement]) -> String {
    let Some(row) = pair.out_of_place.or(pair.in_place) else { return String::new() };
    let facts = &row.facts;
    let redop = facts.reduce_op.map_or("none", |op| op.name());
    let root = facts.root.map_or(-1, i64::from);
    let halves: String = placements
        .iter()
        .map(|placement| match placement {
            Placement::OutOfPlace => half(pair.out_of_place),
            Placement::InPlace => half(pair.in_place),
        })
        .collect();
    format!(
        "{:12}  {:12}  {:>8}  {redop:>6}  {root:6}{halves}\n",
        facts.bytes_total.0,
        count(row),
        facts.element_type.nccl_tests_name(),
    )
}

/// The count argument of the call: elements of one block where the buffer has a block for each rank.
fn count(row: &Row) -> u64 {
    use Collective::*;
    let facts = &row.facts;
    let elements = facts.bytes_total.0 / facts.element_type.size();
    match facts.collective {
        AllGather | AllGatherV | ReduceScatter | ReduceScatterV | Gather | Scatter | AllToAll | AllToAllV => {
            elements / u64::from(facts.group_size)
        }
        AllReduce | Broadcast | Reduce | SendRecv | SendRecvChain | PingPong | Bidirectional | Barrier => elements,
    }
}

/// Time, bandwidths and wrong elements of one placement.
fn half(row: Option<&Row>) -> String {
    let latency = row.and_then(|row| row.latency);
    let microseconds = latency.map_or_else(na, |latency| match latency.median.0 * 1e6 {
        long if long >= 10_000.0 => format!("{long:.0}"),
        middle if middle >= 100.0 => format!("{middle:.1}"),
        short => format!("{short:.2}"),
    });
    let rate =
        |rate: Option<crate::units::Rate>| rate.map_or_else(na, |rate| format!("{:.2}", rate.gigabytes_per_second()));
    let wrong = match row.map(|row| &row.status) {
        Some(Status::Verified) => "0".to_owned(),
        Some(Status::Wrong { wrong_elements, .. }) => general(*wrong_elements as f64),
        _ => na(),
    };
    let (algbw, busbw) = (rate(row.and_then(|row| row.algbw)), rate(row.and_then(|row| row.busbw)));
    format!("  {microseconds:>7}  {algbw:>6}  {busbw:>6}  {wrong:>5}")
}

fn na() -> String {
    "N/A".to_owned()
}

/// The mean over all sizes and placements. Rates are averaged nowhere else in commgauge; this is what nccl-tests calls
/// by that name.
fn average_bus_bandwidth(block: &[&Row]) -> String {
    let rates: Vec<f64> = block.iter().filter_map(|row| row.busbw).map(|rate| rate.gigabytes_per_second()).collect();
    if rates.is_empty() { na() } else { general(rates.iter().sum::<f64>() / rates.len() as f64) }
}

/// C's `%g`: six significant digits, no trailing zeros, an exponent where the number is very large or very small.
fn general(value: f64) -> String {
    let scientific = format!("{value:.5e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trimmed = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if value == 0.0 || (-4..6).contains(&exponent) {
        return trimmed(&format!("{value:.*}", (5 - exponent).max(0) as usize));
    }
    format!("{}e{}{:02}", trimmed(digits), if exponent < 0 { '-' } else { '+' }, exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_look_as_c_prints_them() {
        for (value, text) in [
            (0.0, "0"),
            (179.465, "179.465"),
            (220.921_34, "220.921"),
            (0.000_123_4, "0.0001234"),
            (0.000_012_34, "1.234e-05"),
            (262_144.0, "262144"),
            (4_194_304.0, "4.1943e+06"),
            (1.0, "1"),
            (999_999.7, "1e+06"),
        ] {
            assert_eq!(general(value), text);
        }
    }
}
