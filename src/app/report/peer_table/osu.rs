//! The columns of the OSU micro-benchmarks, as version 7 writes them without options.
//! <https://mvapich.cse.ohio-state.edu/benchmarks/>

use super::mean_columns::{Columns, Numbers, Test, megabytes_per_second, microseconds, mpi_name};
use commgauge_analysis::interop::{OSU, PeerProgram, PrintedSize};
use commgauge_base::collective::Collective;
use commgauge_model::record::line::CaseFacts;

/// The test that measures the collective, and its columns.
pub(super) fn test(collective: Collective) -> Option<Test> {
    let columns = match collective {
        Collective::PingPong => Columns::OneWay,
        Collective::SendRecvChain => Columns::Rate { messages: 1.0 },
        Collective::Bidirectional => Columns::Rate { messages: 2.0 },
        _ => Columns::Ranks,
    };
    PeerProgram::of(&OSU, collective).map(|test| Test { name: test.name, size: test.size, columns })
}

pub(super) fn heading(test: Test, facts: &CaseFacts, ours: &str) -> String {
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

pub(super) fn line(test: Test, numbers: &Numbers) -> String {
    let value = match test.columns {
        Columns::Rate { messages } => megabytes_per_second(numbers, messages),
        Columns::OneWay | Columns::Ranks | Columns::RanksAndRate { .. } => microseconds(numbers.times.mean),
    };
    match test.size {
        PrintedSize::Absent => format!("{value:>17.2}\n"),
        PrintedSize::Total | PrintedSize::Block => format!("{:<10}{value:>18.2}\n", numbers.bytes),
    }
}
