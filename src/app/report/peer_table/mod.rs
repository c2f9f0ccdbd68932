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
use block::{Block, divided, said};
use commgauge_base::collective::Collective;
use commgauge_base::units::Seconds;
use commgauge_base::variant;
use commgauge_base::writing::ascending;
use commgauge_model::record::line::Header;
use commgauge_readers::interop::{IMB, OSU, PeerProgram, PrintedSize};
use minijinja::value::Serde;
use minijinja::{Value, context};

/// A tool whose columns are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
pub(super) enum Peer {
    #[strum(serialize = "nccl-tests")]
    NcclTests,
    #[strum(serialize = "OSU")]
    Osu,
    #[strum(serialize = "IMB")]
    Imb,
}

commgauge_base::error::names!(Peer);

impl Peer {
    /// The text before the first table.
    pub(super) fn begin(self, header: &Header) -> String {
        let backend = Serde(&header.backend);
        self.said("begin", context! { backend, program_version => &header.program_version })
    }

    /// The tables of the rows.
    pub(super) fn divide(self, rows: &[Row]) -> Divided {
        if self == Peer::NcclTests { block::divide(rows) } else { divide(self, rows) }
    }

    /// The text after the last table: what has none, and for IMB the line by which parsers recognise success.
    pub(super) fn closing(self, left_out: &[usize], rows: &[Row]) -> String {
        let is_bad = |row: &Row| matches!(row.status, Status::Wrong { .. } | Status::Failed(_) | Status::Missing);
        let collectives = ascending(left_out.iter().map(|index| rows[*index].facts.collective.name()));
        let is_complete = !rows.iter().any(is_bad);
        self.said("closing", context! { collectives, is_complete, left_out => left_out.len() })
    }

    /// The whole report.
    pub(super) fn text(self, view: &View) -> String {
        let mut tables = self.divide(&view.rows);
        let out = self.begin(&view.header) + &tables.write(&view.header, &view.rows, &|_| true);
        let without_columns = context! { copies => view.copies.len(), products => view.products.len() };
        out + &self.closing(&tables.left_out, &view.rows) + &self.said("without columns", without_columns)
    }

    /// A part of what is around the lines of a table.
    fn said(self, part: &str, facts: Value) -> String {
        said(part, context! { tool => self.name(), ..facts })
    }
}

// Tables of mean times on the ranks, as OSU and IMB print them: one for each call, axis, element type, placement and cadence.
// Calls without a test in the tool are left out, with a comment.

/// The tables of the rows.
fn divide(tool: Peer, rows: &[Row]) -> Divided {
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
    Divided { blocks: blocks.into_iter().filter_map(block).collect(), left_out, ..Divided::default() }
}

impl Peer {
    /// The test that measures the collective, and its columns.
    fn test(self, collective: Collective) -> Option<Test> {
        let columns = match (self, collective) {
            (_, Collective::PingPong) | (Peer::Imb, Collective::Bidirectional) => Columns::OneWay,
            // IMB counts what a process sends and what it receives.
            (Peer::Imb, Collective::SendRecv) => Columns::RanksAndRate { messages: 2.0 },
            (Peer::Osu, Collective::SendRecvChain) => Columns::Rate { messages: 1.0 },
            (Peer::Osu, Collective::Bidirectional) => Columns::Rate { messages: 2.0 },
            _ => Columns::Ranks,
        };
        let programs = if self == Peer::Osu { &OSU } else { &IMB };
        PeerProgram::of(programs, collective).map(|test| Test { name: test.name, size: test.size, columns })
    }
}

/// The rows of one call; never empty.
struct CallBlock {
    tool: Peer,
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
        let facts = &rows[self.members[0]].facts;
        let heading = context! {
            test => self.test.name, has_size => self.test.size != PrintedSize::Absent, buffers => header.buffers(),
            columns => <&str>::from(self.test.columns), variant => variant::shown(&facts.labels),
            between => facts.placement.to_string(), operation => facts.reduce_op.map(|op| op.name()), ..Serde(facts)
        };
        self.tool.said("heading", heading)
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
        if self.tool == Peer::Osu { osu_line(self.test, &numbers) } else { imb_line(self.test, &numbers) }
    }

    fn end(&self, _: &[Row]) -> String {
        "\n".to_owned()
    }
}

// The columns of the Intel MPI benchmarks, IMB-MPI1 (`src_c/IMB_output.c`). <https://github.com/intel/mpi-benchmarks>

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
#[derive(Clone, Copy, Debug, PartialEq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
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
