//! The columns of the Intel MPI benchmarks, IMB-MPI1 (`src_c/IMB_output.c`). <https://github.com/intel/mpi-benchmarks>

use super::mean_columns::{Columns, Numbers, Test, megabytes_per_second, microseconds, mpi_name};
use commgauge_analysis::interop::{IMB, PeerProgram, PrintedSize};
use commgauge_base::collective::Collective;
use commgauge_model::record::line::CaseFacts;

/// The benchmark that measures the collective, and its columns.
pub(super) fn test(collective: Collective) -> Option<Test> {
    let columns = match collective {
        Collective::PingPong | Collective::Bidirectional => Columns::OneWay,
        // It counts what a process sends and what it receives.
        Collective::SendRecv => Columns::RanksAndRate { messages: 2.0 },
        _ => Columns::Ranks,
    };
    PeerProgram::of(&IMB, collective).map(|test| Test { name: test.name, size: test.size, columns })
}

pub(super) fn heading(test: Test, facts: &CaseFacts, ours: &str) -> String {
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

pub(super) fn line(test: Test, numbers: &Numbers) -> String {
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
