//! The columns of the OSU micro-benchmarks, as version 7 writes them without options.
//! <https://mvapich.cse.ohio-state.edu/benchmarks/>

use super::mean_columns::{Columns, Numbers, Size, Test, megabytes_per_second, microseconds, mpi_name};
use commgauge_base::collective::Collective;
use commgauge_model::record::line::CaseFacts;

/// The test that measures the collective, by its title.
pub(super) fn test(collective: Collective) -> Option<Test> {
    use Collective::*;
    use Columns::{OneWay, Ranks, Rate};
    let (name, size, columns) = match collective {
        AllReduce => ("Allreduce Latency", Size::Total, Ranks),
        Reduce => ("Reduce Latency", Size::Total, Ranks),
        Broadcast => ("Broadcast Latency", Size::Total, Ranks),
        ReduceScatter => ("Reduce_scatter Latency", Size::Total, Ranks),
        AllGather => ("Allgather Latency", Size::Block, Ranks),
        AllGatherV => ("Allgatherv Latency", Size::Block, Ranks),
        AllToAll => ("All-to-All Personalized Exchange Latency", Size::Block, Ranks),
        AllToAllV => ("All-to-Allv Personalized Exchange Latency", Size::Block, Ranks),
        Gather => ("Gather Latency", Size::Block, Ranks),
        Scatter => ("Scatter Latency", Size::Block, Ranks),
        Barrier => ("Barrier Latency", Size::None, Ranks),
        PingPong => ("Latency", Size::Total, OneWay),
        SendRecvChain => ("Bandwidth", Size::Total, Rate { messages: 1.0 }),
        Bidirectional => ("Bi-Directional Bandwidth", Size::Total, Rate { messages: 2.0 }),
        ReduceScatterV | SendRecv => return None,
    };
    Some(Test { name, size, columns })
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
        Size::None => format!("{title}# {column}\n"),
        Size::Total | Size::Block => format!("{title}{:<10}{column:>18}\n", "# Size"),
    }
}

pub(super) fn line(test: Test, numbers: &Numbers) -> String {
    let value = match test.columns {
        Columns::Rate { messages } => megabytes_per_second(numbers, messages),
        Columns::OneWay | Columns::Ranks | Columns::RanksAndRate { .. } => microseconds(numbers.times.mean),
    };
    match test.size {
        Size::None => format!("{value:>17.2}\n"),
        Size::Total | Size::Block => format!("{:<10}{value:>18.2}\n", numbers.bytes),
    }
}
