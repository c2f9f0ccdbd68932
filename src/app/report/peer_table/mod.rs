//! The report in the columns of other tools, so that programs which parse those keep working: of nccl-tests, of the OSU
//! micro-benchmarks and of the Intel MPI benchmarks.
//!
//! All have one table for each test. So rows are divided into blocks, each with a table that is written from top to bottom, at once or
//! during a run. Comments begin with `#` as those tools' own do.

mod block;

pub(super) use block::Divided;

use super::row::Row;
use super::view::View;
use crate::report::row::{RankMeans, Status};
use crate::report::text::visible;
use block::{Block, divided};
use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use commgauge_base::units::{Seconds, counted};
use commgauge_base::variant;
use commgauge_model::record::line::{CaseFacts, Header};
use commgauge_readers::interop::{IMB, OSU, PeerProgram, PrintedSize};
use std::collections::BTreeSet;

/// A tool whose columns are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    NcclTests,
    Mpi(Tool),
}

impl Peer {
    /// The text before the first table.
    pub(super) fn begin(self, header: &Header) -> String {
        match self {
            Peer::NcclTests => String::new(),
            Peer::Mpi(tool) => begin(tool, header),
        }
    }

    /// The tables of the rows.
    pub(super) fn divide(self, rows: &[Row]) -> Divided {
        match self {
            Peer::NcclTests => block::divide(rows),
            Peer::Mpi(tool) => divide(tool, rows),
        }
    }

    /// The text after the last table, which says what has none.
    pub(super) fn closing(self, left_out: &[usize], rows: &[Row]) -> String {
        match self {
            Peer::NcclTests => block::closing(left_out),
            Peer::Mpi(tool) => closing(tool, left_out, rows),
        }
    }

    /// The whole report.
    pub(super) fn text(self, view: &View) -> String {
        let Divided { mut blocks, left_out } = self.divide(&view.rows);
        let mut out = self.begin(&view.header);
        for block in &mut blocks {
            block.settle(&view.rows, &|_| true);
            out += &block.begin(&view.header, &view.rows);
            out.extend((0..block.line_count()).map(|line| block.line(line, &view.header, &view.rows)));
            out += &block.end(&view.rows);
        }
        out + &self.closing(&left_out, &view.rows) + &without_columns(view)
    }
}

/// That copies and matrix products have no columns in those tools.
fn without_columns(view: &View) -> String {
    match (view.copies.len(), view.products.len()) {
        (0, 0) => String::new(),
        (copies, products) => format!(
            "# commgauge: copies ({copies}) and matrix products ({products}) have no columns here; see --format table\n"
        ),
    }
}

// Tables of mean times on the ranks, as OSU and IMB print them: one for each call, axis, element type, placement and cadence.
// Calls without a test in the tool are left out, with a comment.

/// A tool whose columns are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tool {
    Osu,
    Imb,
}

/// The text before the first table.
fn begin(tool: Tool, header: &Header) -> String {
    let (version, backend) = (visible(&header.program_version), visible(&header.backend.library));
    let synthetic = if header.backend.synthetic { "# commgauge: SYNTHETIC: not measured\n" } else { "" };
    let name = match tool {
        Tool::Osu => "the OSU micro-benchmarks",
        Tool::Imb => "the Intel(R) MPI Benchmarks",
    };
    format!("# commgauge {version}, {backend}: written in the columns of {name}\n{synthetic}\n")
}

/// The text after the last table: the collectives without a table, and for IMB the line by which parsers recognise success.
fn closing(tool: Tool, left_out: &[usize], rows: &[Row]) -> String {
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
fn divide(tool: Tool, rows: &[Row]) -> Divided {
    let table_of = |row: &'_ Row| {
        let facts = row.facts.clone();
        let call = (facts.collective, facts.element_type, facts.reduce_op, facts.root, facts.placement, facts.cadence);
        let groups = (facts.axis, facts.style, facts.group_size, facts.groups, facts.solo_of.is_some());
        (call, groups, facts.labels, facts.splits)
    };
    let (blocks, left_out) = divided(rows, |row| tool.test(row.facts.collective).is_some(), table_of);
    let block = |members: Vec<usize>| {
        let test = tool.test(rows[members[0]].facts.collective)?;
        Some(Box::new(CallBlock { tool, test, members }) as Box<dyn Block>)
    };
    Divided { blocks: blocks.into_iter().filter_map(block).collect(), left_out }
}

impl Tool {
    fn short_name(self) -> &'static str {
        match self {
            Tool::Osu => "OSU",
            Tool::Imb => "IMB",
        }
    }

    /// The test that measures the collective, and its columns.
    fn test(self, collective: Collective) -> Option<Test> {
        let columns = match (self, collective) {
            (_, Collective::PingPong) | (Tool::Imb, Collective::Bidirectional) => Columns::OneWay,
            // IMB counts what a process sends and what it receives.
            (Tool::Imb, Collective::SendRecv) => Columns::RanksAndRate { messages: 2.0 },
            (Tool::Osu, Collective::SendRecvChain) => Columns::Rate { messages: 1.0 },
            (Tool::Osu, Collective::Bidirectional) => Columns::Rate { messages: 2.0 },
            _ => Columns::Ranks,
        };
        let programs = match self {
            Tool::Osu => &OSU,
            Tool::Imb => &IMB,
        };
        PeerProgram::of(programs, collective).map(|test| Test { name: test.name, size: test.size, columns })
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
        let groups = counted(facts.groups as usize, "group");
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
            Tool::Osu => osu_heading(self.test, facts, &ours),
            Tool::Imb => imb_heading(self.test, facts, &ours),
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
            Tool::Osu => osu_line(self.test, &numbers),
            Tool::Imb => imb_line(self.test, &numbers),
        }
    }

    fn end(&self, _: &[Row]) -> String {
        "\n".to_owned()
    }
}

// The columns of the Intel MPI benchmarks, IMB-MPI1 (`src_c/IMB_output.c`). <https://github.com/intel/mpi-benchmarks>

fn imb_heading(test: Test, facts: &CaseFacts, ours: &str) -> String {
    let rule = format!("#{}\n", "-".repeat(77));
    let datatype = mpi_name(facts.element_type);
    let types = match facts.reduce_op {
        Some(op) => format!(
            "# MPI_Datatype for reductions    :   {datatype} \n# MPI_Op                         :   MPI_{} \n",
            op.name().to_uppercase()
        ),
        None => format!("# MPI_Datatype                   :   {datatype} \n"),
    };
    let size = if test.size == PrintedSize::Absent { String::new() } else { format!("{:>13}", "#bytes") };
    let times = match test.columns {
        Columns::OneWay => format!("{:>13}{:>13}", "t[usec]", "Mbytes/sec"),
        Columns::Rate { .. } => format!("{:>13}", "Mbytes/sec"),
        Columns::Ranks | Columns::RanksAndRate { .. } => {
            format!("{:>13}{:>13}{:>13}", "t_min[usec]", "t_max[usec]", "t_avg[usec]")
        }
    };
    let rate = if matches!(test.columns, Columns::RanksAndRate { .. }) { "   Mbytes/sec" } else { "" };
    format!(
        "{rule}# Benchmarking {} \n# #processes = {} \n{ours}{types}{rule}{size}{:>13}{times}{rate}\n",
        test.name, facts.group_size, "#repetitions"
    )
}

fn imb_line(test: Test, numbers: &Numbers) -> String {
    let times = numbers.times;
    let bytes = if test.size == PrintedSize::Absent { String::new() } else { format!("{:>13}", numbers.bytes) };
    let rate = |messages: f64| format!("{:>13.2}", megabytes_per_second(numbers, messages));
    let columns = match test.columns {
        Columns::OneWay => format!("{:>13.2}{}", microseconds(times.mean), rate(1.0)),
        Columns::Rate { messages } => rate(messages),
        Columns::Ranks | Columns::RanksAndRate { .. } => {
            let [least, most, mean] = [times.least, times.most, times.mean].map(microseconds);
            format!("{least:>13.2}{most:>13.2}{mean:>13.2}")
        }
    };
    let rate = match test.columns {
        Columns::RanksAndRate { messages } => rate(messages),
        Columns::OneWay | Columns::Ranks | Columns::Rate { .. } => String::new(),
    };
    format!("{bytes}{:>13}{columns}{rate}\n", numbers.calls)
}

// The columns of the OSU micro-benchmarks, as version 7 writes them without options.
// <https://mvapich.cse.ohio-state.edu/benchmarks/>

fn osu_heading(test: Test, facts: &CaseFacts, ours: &str) -> String {
    let datatype = mpi_name(facts.element_type);
    let title = format!("# OSU MPI {} Test\n{ours}# Datatype: {datatype}.\n", test.name);
    let column = match test.columns {
        Columns::OneWay => "Latency (us)",
        Columns::Rate { .. } => "Bandwidth (MB/s)",
        Columns::Ranks | Columns::RanksAndRate { .. } => "Avg Latency(us)",
    };
    match test.size {
        PrintedSize::Absent => format!("{title}# {column}\n"),
        PrintedSize::Total | PrintedSize::Block => format!("{title}{:<10}{column:>18}\n", "# Size"),
    }
}

fn osu_line(test: Test, numbers: &Numbers) -> String {
    let value = match test.columns {
        Columns::Rate { messages } => megabytes_per_second(numbers, messages),
        Columns::OneWay | Columns::Ranks | Columns::RanksAndRate { .. } => microseconds(numbers.times.mean),
    };
    match test.size {
        PrintedSize::Absent => format!("{value:>17.2}\n"),
        PrintedSize::Total | PrintedSize::Block => format!("{:<10}{value:>18.2}\n", numbers.bytes),
    }
}

// What the tests of OSU and IMB have in their columns, and the names that both take from MPI.

/// A test of a tool, and the columns of its table.
#[derive(Clone, Copy, Debug)]
struct Test {
    /// Name in the title.
    pub name: &'static str,
    pub size: PrintedSize,
    pub columns: Columns,
}

/// Columns after the size.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Columns {
    /// Over the ranks: least, mean and most.
    Ranks,
    /// The mean, and where the tool writes it a rate.
    OneWay,
    /// Over the ranks, and the rate of this many messages.
    RanksAndRate { messages: f64 },
    /// The rate of this many messages.
    Rate { messages: f64 },
}

/// The values of one line.
struct Numbers {
    pub bytes: u64,
    pub calls: u64,
    pub times: RankMeans,
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

/// The name that MPI has for the type, or ours where it has none.
fn mpi_name(element_type: ElementType) -> &'static str {
    match element_type {
        ElementType::Int8 => "MPI_CHAR",
        ElementType::Uint8 => "MPI_BYTE",
        ElementType::Int32 => "MPI_INT",
        ElementType::Uint32 => "MPI_UINT32_T",
        ElementType::Int64 => "MPI_LONG",
        ElementType::Uint64 => "MPI_UINT64_T",
        ElementType::Float32 => "MPI_FLOAT",
        ElementType::Float64 => "MPI_DOUBLE",
        other => other.name(),
    }
}
