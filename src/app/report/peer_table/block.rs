//! A table of a peer, written from top to bottom, and the division of rows into tables.

use crate::report::row::{RankMeans, Row, Status};
use crate::report::template::prose;
use crate::report::text::visible;
use commgauge_base::collective::{Collective, Division, Placement};
use commgauge_base::sample::{Cadence, Timing};
use commgauge_base::units::{Rate, Seconds};
use commgauge_base::variant;
use commgauge_base::writing::{ascending, grouped};
use commgauge_model::record::line::Header;
use minijinja::value::Serde;
use minijinja::{Value, context};
use std::collections::HashMap;

/// The rows of one table.
pub(in crate::report) trait Block: Send {
    /// How many lines it has.
    fn line_count(&self) -> usize;
    /// The rows that must be complete before a line is written.
    fn rows_of_line(&self, line: usize) -> Vec<usize>;
    /// Makes the whole block one line where rows have something that belongs above the others.
    fn settle(&mut self, _rows: &[Row], _is_done: &dyn Fn(usize) -> bool) {}
    /// The text above the first line.
    fn begin(&self, header: &Header, rows: &[Row]) -> String;
    /// A line.
    fn line(&self, line: usize, header: &Header, rows: &[Row]) -> String;
    /// The text below the last line.
    fn end(&self, rows: &[Row]) -> String;
}

/// Rows by table, in the order of first appearance, and how far the tables are written.
#[derive(Default)]
pub(in crate::report) struct Divided {
    /// Each with the rows of one table.
    pub blocks: Vec<Box<dyn Block>>,
    /// Rows that have no table.
    pub left_out: Vec<usize>,
    pub(super) block: usize,
    pub(super) line: usize,
}

impl Divided {
    /// The text of all lines whose rows are done and that are not written yet.
    pub fn write(&mut self, header: &Header, rows: &[Row], is_done: &dyn Fn(usize) -> bool) -> String {
        let mut out = String::new();
        while let Some(block) = self.blocks.get_mut(self.block) {
            if self.line == 0 {
                block.settle(rows, is_done);
            }
            if !block.rows_of_line(self.line).into_iter().all(is_done) {
                break;
            }
            if self.line == 0 {
                out += &block.begin(header, rows);
            }
            out += &block.line(self.line, header, rows);
            self.line += 1;
            if self.line == block.line_count() {
                out += &block.end(rows);
                (self.block, self.line) = (self.block + 1, 0);
            }
        }
        out
    }
}

/// What is around the lines of a table.
pub(super) fn said(part: &str, facts: Value) -> String {
    prose("peer.txt", include_str!("../templates/peer.txt"), context! { part, ..facts })
}

/// Divides the rows that have a table into those of the same one; and those that have none.
pub(super) fn divided<'a, K: PartialEq>(
    rows: &'a [Row],
    has_table: impl Fn(&Row) -> bool,
    table_of: impl Fn(&'a Row) -> K,
) -> (Vec<Vec<usize>>, Vec<usize>) {
    let (shown, left_out): (Vec<usize>, _) = (0..rows.len()).partition(|index| has_table(&rows[*index]));
    let blocks = grouped(shown.into_iter().map(|index| (table_of(&rows[index]), index)));
    (blocks.into_iter().map(|(_, members)| members).collect(), left_out)
}

// The report in the columns of nccl-tests (as its versions 2.13 to 2.16 print them), so that programs which parse
// it keep working. <https://github.com/NVIDIA/nccl-tests>
//
// nccl-tests measures one collective, back to back. So there is one block for each collective on each axis. Isolated cases and
// cases that were not measured are left out, with a comment; comments begin with `#` as in that tool.

/// The blocks of the rows.
pub(super) fn divide(rows: &[Row]) -> Divided {
    let has_table = |row: &Row| row.facts.cadence == Cadence::Streaming && row.facts.collective != Collective::Barrier;
    let table_of = |row: &Row| {
        let facts = &row.facts;
        (facts.axis, facts.style, facts.group_size, facts.groups, facts.collective, variant(row))
    };
    let (blocks, left_out) = divided(rows, has_table, table_of);
    let block = |members: Vec<usize>| {
        let mut block = CollectiveBlock { members, table: None };
        block.table = block.only_table(rows);
        Box::new(block) as Box<dyn Block>
    };
    Divided { blocks: blocks.into_iter().map(block).collect(), left_out, ..Divided::default() }
}

/// The rows of one collective; never empty. Its tables have measured rows only, so that every field is a number, as in
/// nccl-tests.
struct CollectiveBlock {
    members: Vec<usize>,
    /// Its only table, where it can be written line by line.
    table: Option<Lines>,
}

/// Lines that have the same placements.
struct Lines {
    placements: &'static [Placement],
    pairs: Vec<Pair>,
}

/// The variant of the call: all rows of a block have the same.
fn variant(row: &Row) -> String {
    variant::shown(&row.facts.labels)
}

/// One line of the table: the same call out of place and in place.
#[derive(Default)]
struct Pair {
    out_of_place: Option<usize>,
    in_place: Option<usize>,
}

impl Pair {
    /// Indices of its rows.
    fn rows(&self) -> impl Iterator<Item = usize> {
        self.out_of_place.into_iter().chain(self.in_place)
    }
}

impl Block for CollectiveBlock {
    fn line_count(&self) -> usize {
        self.table.as_ref().map_or(1, |lines| lines.pairs.len())
    }

    fn rows_of_line(&self, line: usize) -> Vec<usize> {
        match &self.table {
            Some(lines) => lines.pairs[line].rows().collect(),
            None => self.members.clone(),
        }
    }

    /// Problems are listed above the lines, so that all of them must be known first.
    fn settle(&mut self, rows: &[Row], is_done: &dyn Fn(usize) -> bool) {
        let has_problem =
            |row: &usize| rows[*row].status.reason().is_some() || (is_done(*row) && rows[*row].latency.is_none());
        if self.members.iter().any(has_problem) {
            self.table = None;
        }
    }

    fn begin(&self, header: &Header, rows: &[Row]) -> String {
        match &self.table {
            Some(lines) => self.head(header, rows) + &headings(lines.placements),
            None => String::new(),
        }
    }

    /// A line of its only table, empty where it was not measured after all; or the whole block.
    fn line(&self, line: usize, header: &Header, rows: &[Row]) -> String {
        let Some(lines) = &self.table else { return self.text(header, rows) };
        let pair = &lines.pairs[line];
        let measured = pair.rows().any(|row| rows[row].latency.is_some());
        if measured { self::line(pair, lines.placements, rows) } else { String::new() }
    }

    /// With the notes on its rows, which are known only then.
    fn end(&self, rows: &[Row]) -> String {
        match self.table {
            Some(_) => self.tail(rows) + &self.notes(rows),
            None => String::new(),
        }
    }
}

impl CollectiveBlock {
    fn text(&self, header: &Header, rows: &[Row]) -> String {
        let mut tables = self.tables(rows);
        match (tables.is_empty(), self.wrong(rows)) {
            (true, 0) => return self.notes(rows),
            // Wrong data is shown in the usual place, although nothing was timed.
            (true, _) => tables.push(Lines { placements: BOTH, pairs: Vec::new() }),
            (false, _) => {}
        }
        let mut out = self.head(header, rows) + &self.notes(rows);
        for lines in tables {
            out += &headings(lines.placements);
            out.extend(lines.pairs.iter().map(|pair| line(pair, lines.placements, rows)));
        }
        out + &self.tail(rows)
    }

    /// Its only table, where all of its rows are in one.
    fn only_table(&self, rows: &[Row]) -> Option<Lines> {
        let mut tables = self.tables(rows);
        if tables.len() == 1 { tables.pop() } else { None }
    }

    /// Why rows are not measured, or wrong. Parsers take `out-of-place` for a heading anywhere, so the word is spelled
    /// differently.
    fn notes(&self, rows: &[Row]) -> String {
        let noted = self.of(rows).into_iter().filter(|row| row.latency.is_none() || row.status.reason().is_some());
        let notes: String = noted
            .map(|row| format!("# commgauge: {}: {}\n", visible(&row.facts.name), visible(&row.status.to_string())))
            .collect();
        notes.replace("out-of-place", "out_of_place")
    }

    fn of<'a>(&self, rows: &'a [Row]) -> Vec<&'a Row> {
        self.members.iter().map(|index| &rows[*index]).collect()
    }

    fn head(&self, header: &Header, rows: &[Row]) -> String {
        let block = self.of(rows);
        let facts = &block[0].facts;
        let sizes = ascending(block.iter().map(|row| row.facts.bytes_total.0));
        let steps = || sizes.array_windows().map(|[a, b]| (b - a, if *a > 0 && b % a == 0 { b / a } else { 0 }));
        let (difference, factor) = steps().next().unwrap_or((0, 0));
        // Sizes of a model have no fixed step; the difference of the first two is used.
        let is_factor = factor > 1 && steps().all(|(_, other)| other == factor);
        let step = if is_factor { format!("{factor}(factor)") } else { format!("{difference}(bytes)") };
        let calls = block.iter().map(|row| row.counts.repetitions).filter(|calls| *calls > 0);
        let head = context! {
            step, iterations => calls.min().unwrap_or(0), variant => variant(block[0]), devices => devices(header),
            smallest => sizes.first().copied().unwrap_or(0), largest => sizes.last().copied().unwrap_or(0),
            warm_up => block.iter().map(|row| row.counts.warm_up_iterations).max().unwrap_or(0),
            aggregate => facts.labels.get("aggregate").map_or("1", String::as_str),
            is_graph => facts.labels.contains_key("submit"), is_verified => header.settings.verify,
            backend => Serde(&header.backend), ..Serde(facts)
        };
        said("head", head)
    }

    fn tail(&self, rows: &[Row]) -> String {
        let block = self.of(rows);
        let (collective, average) = (block[0].facts.collective.name(), average_bus_bandwidth(&block));
        said("tail", context! { collective, average, wrong => self.wrong(rows) })
    }

    fn wrong(&self, rows: &[Row]) -> usize {
        self.of(rows).iter().filter(|row| matches!(row.status, Status::Wrong { .. })).count()
    }

    fn tables(&self, rows: &[Row]) -> Vec<Lines> {
        tables(pairs(&self.members, rows))
    }
}

/// The pairs of placements of the measured rows.
fn pairs(members: &[usize], rows: &[Row]) -> Vec<Pair> {
    let key = |index: usize| {
        let facts = &rows[index].facts;
        (facts.bytes_total, facts.element_type, facts.reduce_op, facts.root, &facts.splits)
    };
    let mut pairs: Vec<(usize, Pair)> = Vec::new();
    for index in members.iter().copied() {
        if !pairs.iter().any(|(known, _)| key(*known) == key(index)) {
            pairs.push((index, Pair::default()));
        }
        let measured = pairs.iter_mut().filter(|(known, _)| key(*known) == key(index) && rows[index].latency.is_some());
        for (_, pair) in measured {
            match rows[index].facts.placement {
                Placement::OutOfPlace => pair.out_of_place = Some(index),
                Placement::InPlace => pair.in_place = Some(index),
            }
        }
    }
    pairs.into_iter().map(|(_, pair)| pair).collect()
}

const OUT_OF_PLACE_ALONE: &[Placement] = &[Placement::OutOfPlace];

const IN_PLACE_ALONE: &[Placement] = &[Placement::InPlace];

const BOTH: &[Placement] = &[Placement::OutOfPlace, Placement::InPlace];

/// One table for each set of placements, the usual one last, since parsers that expect one table take the last.
fn tables(pairs: Vec<Pair>) -> Vec<Lines> {
    let mut tables: Vec<Lines> =
        [OUT_OF_PLACE_ALONE, IN_PLACE_ALONE, BOTH].map(|placements| Lines { placements, pairs: Vec::new() }).into();
    for pair in pairs {
        let at = match (pair.out_of_place.is_some(), pair.in_place.is_some()) {
            (true, false) => 0,
            (false, true) => 1,
            (true, true) => 2,
            (false, false) => continue,
        };
        tables[at].pairs.push(pair);
    }
    tables.retain(|lines| !lines.pairs.is_empty());
    tables
}

/// Headings; a placement without measurements has no columns.
fn headings(placements: &[Placement]) -> String {
    let placements: Vec<String> = placements.iter().map(Placement::to_string).collect();
    said("columns", context! { placements })
}

fn devices(header: &Header) -> String {
    let mut out = String::new();
    let mut devices_on_host: HashMap<&str, u32> = HashMap::new();
    for entry in &header.ranks {
        let model = entry.device.as_ref().unwrap_or(&entry.processor);
        let next = devices_on_host.entry(&entry.host).or_default();
        for rank in (entry.rank..header.world_size).take(entry.ranks as usize) {
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

fn line(pair: &Pair, placements: &[Placement], rows: &[Row]) -> String {
    let (out_of_place, in_place) =
        (pair.out_of_place.map(|index| &rows[index]), pair.in_place.map(|index| &rows[index]));
    let Some(row) = out_of_place.or(in_place) else { return String::new() };
    let facts = &row.facts;
    let redop = facts.reduce_op.map_or("none", |op| op.name());
    let root = facts.root.map_or(-1, i64::from);
    let halves: String = placements
        .iter()
        .map(|placement| match placement {
            Placement::OutOfPlace => half(out_of_place),
            Placement::InPlace => half(in_place),
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
    let facts = &row.facts;
    let elements = facts.bytes_total.0 / facts.element_type.size();
    match facts.collective.division() {
        Division::EqualBlocks | Division::OwnBlocks => elements / u64::from(facts.group_size),
        Division::Whole | Division::Nothing => elements,
    }
}

/// What is printed of a measured row.
struct Numbers {
    seconds: Seconds,
    algbw: Option<Rate>,
    busbw: Option<Rate>,
}

impl Numbers {
    /// Where the calls were timed as nccl-tests does, also its mean over the ranks (`-a 1`); else the median of the slowest rank.
    fn of(row: &Row) -> Option<Numbers> {
        let usual = Numbers { seconds: row.latency?.median, algbw: row.algbw, busbw: row.busbw };
        let mean = if row.timing == Timing::Whole { RankMeans::of(&row.own_times) } else { None };
        let Some(RankMeans { mean, .. }) = mean.filter(|times| times.mean.0 > 0.0) else { return Some(usual) };
        let over = |rate: Rate| Rate(rate.0 * usual.seconds.0 / mean.0);
        Some(Numbers { seconds: mean, algbw: usual.algbw.map(over), busbw: usual.busbw.map(over) })
    }
}

/// Time, bandwidths and wrong elements of one placement.
fn half(row: Option<&Row>) -> String {
    let numbers = row.and_then(Numbers::of);
    let microseconds = numbers.as_ref().map_or_else(na, |numbers| match numbers.seconds.0 * 1e6 {
        long if long >= 10_000.0 => format!("{long:.0}"),
        middle if middle >= 100.0 => format!("{middle:.1}"),
        short => format!("{short:.2}"),
    });
    let rate = |rate: Option<Rate>| rate.map_or_else(na, |rate| format!("{:.2}", rate.gigabytes_per_second()));
    let wrong = match row.map(|row| &row.status) {
        Some(Status::Verified) => "0".to_owned(),
        Some(Status::Wrong { wrong_elements, .. }) => general(*wrong_elements as f64),
        _ => na(),
    };
    let (algbw, busbw) = numbers.map_or_else(|| (na(), na()), |numbers| (rate(numbers.algbw), rate(numbers.busbw)));
    format!("  {microseconds:>7}  {algbw:>6}  {busbw:>6}  {wrong:>5}")
}

fn na() -> String {
    "N/A".to_owned()
}

/// The mean over all sizes and placements. Rates are averaged nowhere else in commgauge; nccl-tests prints this
/// mean.
fn average_bus_bandwidth(block: &[&Row]) -> String {
    let rates = block.iter().filter_map(|row| Numbers::of(row)?.busbw);
    let rates: Vec<f64> = rates.map(Rate::gigabytes_per_second).collect();
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
    fn numbers_are_formatted_as_in_c() {
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
