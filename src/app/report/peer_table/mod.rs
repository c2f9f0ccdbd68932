//! The report in the columns of the OSU micro-benchmarks and of the Intel MPI benchmarks, so that programs which parse
//! those keep working.
//!
//! Both have one table for each test, of mean times on the ranks. Here there is one for each call, axis, element type,
//! placement and cadence; calls without a test in the tool are left out, with a comment. Comments begin with `#` as
//! those tools' own do.

mod imb;
mod osu;

use super::rank_means::RankMeans;
use super::row::{Row, Status};
use super::text::visible;
use super::view::View;
use commgauge_base::collective::Collective;
use commgauge_base::units::Seconds;
use commgauge_base::variant;
use commgauge_model::record::line::Header;
use std::collections::BTreeSet;

/// A tool whose columns are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tool {
    Osu,
    Imb,
}

/// A test of a tool, and the columns of its table.
#[derive(Clone, Copy, Debug)]
struct Test {
    /// Name in the title.
    name: &'static str,
    size: Size,
    columns: Columns,
}

/// Meaning of the size column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Size {
    /// `bytes_total`.
    Total,
    /// One rank's block of it.
    Block,
    /// Nothing, as nothing is moved.
    None,
}

/// Columns after the size.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Columns {
    /// Over the ranks: least, mean and most.
    Ranks,
    /// The mean, and where the tool writes it a rate.
    OneWay,
    /// Over the ranks, and the rate of so many messages.
    RanksAndRate { messages: f64 },
    /// The rate of so many messages.
    Rate { messages: f64 },
}

/// The values of one line.
struct Numbers {
    bytes: u64,
    calls: u64,
    times: RankMeans,
}

/// All tables.
pub(super) fn text(tool: Tool, view: &View) -> String {
    let (blocks, left_out) = blocks(tool, &view.rows);
    let tables = blocks.iter().map(|block| {
        let lines = block.members.iter().map(|index| block.line(&view.rows[*index]));
        block.begin(&view.header, &view.rows) + &lines.collect::<String>() + "\n"
    });
    begin(tool, &view.header) + &tables.collect::<String>() + &closing(tool, &left_out, &view.rows)
}

/// The text before the first table.
pub(super) fn begin(tool: Tool, header: &Header) -> String {
    let (version, backend) = (visible(&header.program_version), visible(&header.backend.library));
    let synthetic = if header.backend.synthetic { "# commgauge: SYNTHETIC: not measured\n" } else { "" };
    let name = match tool {
        Tool::Osu => "the OSU micro-benchmarks",
        Tool::Imb => "the Intel(R) MPI Benchmarks",
    };
    format!("# commgauge {version}, {backend}: written in the columns of {name}\n{synthetic}\n")
}

/// The text after the last table: the collectives without a table, and for IMB the line by which parsers recognise success.
pub(super) fn closing(tool: Tool, left_out: &BTreeSet<&'static str>, rows: &[Row]) -> String {
    let names: Vec<&str> = left_out.iter().copied().collect();
    let note = match names.is_empty() {
        true => String::new(),
        false => {
            format!("# commgauge: {} has no test for {}; see --format table\n", tool.short_name(), names.join(", "))
        }
    };
    let is_bad = |row: &Row| matches!(row.status, Status::Wrong { .. } | Status::Failed(_) | Status::Missing);
    let end = match tool {
        Tool::Imb if !rows.iter().any(is_bad) => "# All processes entering MPI_Finalize\n",
        Tool::Imb | Tool::Osu => "",
    };
    format!("{note}{end}")
}

/// The tables of the rows, and the collectives without a table.
pub(super) fn blocks(tool: Tool, rows: &[Row]) -> (Vec<Block>, BTreeSet<&'static str>) {
    let mut left_out = BTreeSet::new();
    let mut blocks: Vec<Block> = Vec::new();
    for (index, row) in rows.iter().enumerate() {
        let Some(test) = tool.test(row.facts.collective) else {
            left_out.insert(row.facts.collective.name());
            continue;
        };
        match blocks.iter_mut().find(|block| same_block(&rows[block.members[0]], row)) {
            Some(block) => block.members.push(index),
            None => blocks.push(Block { tool, test, members: vec![index] }),
        }
    }
    (blocks, left_out)
}

fn same_block(a: &Row, b: &Row) -> bool {
    let key = |row: &Row| {
        let facts = &row.facts;
        let call = (facts.collective, facts.element_type, facts.reduce_op, facts.root, facts.placement, facts.cadence);
        (call, facts.axis, facts.style, facts.group_size, facts.groups, facts.solo_of.is_some())
    };
    key(a) == key(b) && a.facts.labels == b.facts.labels && a.facts.splits == b.facts.splits
}

impl Tool {
    fn short_name(self) -> &'static str {
        match self {
            Tool::Osu => "OSU",
            Tool::Imb => "IMB",
        }
    }

    fn test(self, collective: Collective) -> Option<Test> {
        match self {
            Tool::Osu => osu::test(collective),
            Tool::Imb => imb::test(collective),
        }
    }
}

/// Indices of the rows of one call; never empty.
pub(super) struct Block {
    tool: Tool,
    test: Test,
    members: Vec<usize>,
}

impl Block {
    /// Indices of its rows.
    pub(super) fn members(&self) -> &[usize] {
        &self.members
    }

    /// The text above the first line.
    pub(super) fn begin(&self, header: &Header, rows: &[Row]) -> String {
        let row = &rows[self.members[0]];
        let facts = &row.facts;
        let variant = Some(variant::shown(&facts.labels)).filter(|shown| !shown.is_empty());
        let variant = variant.map_or_else(String::new, |shown| format!(", {}", visible(&shown)));
        let groups = if facts.groups == 1 { "1 group".to_owned() } else { format!("{} groups", facts.groups) };
        let buffers = if header.settings.warm_buffers { "warm" } else { "cold" };
        let ours = format!(
            "# commgauge: axis {}, {}, {groups} of {} ranks, {}, {}, {buffers} buffers{variant}\n",
            facts.axis,
            facts.style.name(),
            facts.group_size,
            facts.placement,
            facts.cadence
        );
        match self.tool {
            Tool::Osu => osu::heading(self.test, facts, &ours),
            Tool::Imb => imb::heading(self.test, facts, &ours),
        }
    }

    /// The line of a row; a comment where it was not measured or has wrong data.
    pub(super) fn line(&self, row: &Row) -> String {
        let facts = &row.facts;
        let times = row.latency.and_then(|_| RankMeans::of(&row.own_times));
        let Some(times) = times else {
            let why = match row.latency {
                Some(_) => "the record has no times of single ranks".to_owned(),
                None => row.status.to_string(),
            };
            return format!("# commgauge: {}: {}\n", visible(&facts.name), visible(&why));
        };
        let bytes = match self.test.size {
            Size::Block => facts.bytes_total.0 / u64::from(facts.group_size.max(1)),
            Size::Total | Size::None => facts.bytes_total.0,
        };
        let numbers = Numbers { bytes, calls: row.calls, times };
        match self.tool {
            Tool::Osu => osu::line(self.test, &numbers),
            Tool::Imb => imb::line(self.test, &numbers),
        }
    }
}

fn microseconds(time: Seconds) -> f64 {
    time.0 * 1e6
}

/// Rate of `messages` messages in the time of the slowest rank, in 10^6 bytes per second, as both tools count.
fn megabytes_per_second(numbers: &Numbers, messages: f64) -> f64 {
    match numbers.times.most.0 {
        seconds if seconds > 0.0 => messages * numbers.bytes as f64 / seconds * 1e-6,
        _ => 0.0,
    }
}
