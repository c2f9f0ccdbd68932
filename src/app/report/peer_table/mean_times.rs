//! Tables of mean times on the ranks, as OSU and IMB print them: one for each call, axis, element type, placement and cadence.
//! Calls without a test in the tool are left out, with a comment.

use super::block::{Block, Divided, divided};
use super::mean_columns::{Numbers, Test};
use super::{imb, osu};
use crate::report::rank_means::RankMeans;
use crate::report::row::Row;
use crate::report::status::Status;
use crate::report::text::visible;
use commgauge_analysis::interop::PrintedSize;
use commgauge_base::collective::Collective;
use commgauge_base::variant;
use commgauge_model::record::line::Header;
use std::collections::BTreeSet;

/// A tool whose columns are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tool {
    Osu,
    Imb,
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
pub(super) fn closing(tool: Tool, left_out: &[usize], rows: &[Row]) -> String {
    let names: BTreeSet<&str> = left_out.iter().map(|index| rows[*index].facts.collective.name()).collect();
    let names: Vec<&str> = names.into_iter().collect();
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

/// The tables of the rows.
pub(super) fn divide(tool: Tool, rows: &[Row]) -> Divided {
    let (blocks, left_out) = divided(rows, |row| tool.test(row.facts.collective).is_some(), same_block);
    let block = |members: Vec<usize>| {
        let test = tool.test(rows[members[0]].facts.collective)?;
        Some(Box::new(CallBlock { tool, test, members }) as Box<dyn Block>)
    };
    Divided { blocks: blocks.into_iter().filter_map(block).collect(), left_out }
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

/// The rows of one call; never empty.
struct CallBlock {
    tool: Tool,
    test: Test,
    members: Vec<usize>,
}

impl Block for CallBlock {
    fn line_count(&self) -> usize {
        self.members.len()
    }

    fn rows_of_line(&self, line: usize) -> Vec<usize> {
        vec![self.members[line]]
    }

    fn begin(&self, header: &Header, rows: &[Row]) -> String {
        let row = &rows[self.members[0]];
        let facts = &row.facts;
        let variant = Some(variant::shown(&facts.labels)).filter(|shown| !shown.is_empty());
        let variant = variant.map_or_else(String::new, |shown| format!(", {}", visible(&shown)));
        let groups = if facts.groups == 1 { "1 group".to_owned() } else { format!("{} groups", facts.groups) };
        let buffers = header.buffers();
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
    fn line(&self, line: usize, _: &Header, rows: &[Row]) -> String {
        let row = &rows[self.members[line]];
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
            PrintedSize::Block => facts.bytes_total.0 / u64::from(facts.group_size.max(1)),
            PrintedSize::Total | PrintedSize::Absent => facts.bytes_total.0,
        };
        let numbers = Numbers { bytes, calls: row.counts.repetitions, times };
        match self.tool {
            Tool::Osu => osu::line(self.test, &numbers),
            Tool::Imb => imb::line(self.test, &numbers),
        }
    }

    fn end(&self, _: &[Row]) -> String {
        "\n".to_owned()
    }
}
