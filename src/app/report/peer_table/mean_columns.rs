//! What the tests of OSU and IMB have in their columns, and the names that both take from MPI.

use crate::report::rank_means::RankMeans;
use commgauge_analysis::interop::PrintedSize;
use commgauge_base::element::ElementType;
use commgauge_base::units::Seconds;

/// A test of a tool, and the columns of its table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Test {
    /// Name in the title.
    pub name: &'static str,
    pub size: PrintedSize,
    pub columns: Columns,
}

/// Columns after the size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Columns {
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
pub(super) struct Numbers {
    pub bytes: u64,
    pub calls: u64,
    pub times: RankMeans,
}

pub(super) fn microseconds(time: Seconds) -> f64 {
    time.0 * 1e6
}

/// Rate of `messages` messages in the time of the slowest rank, in 10^6 bytes per second, as both tools count.
pub(super) fn megabytes_per_second(numbers: &Numbers, messages: f64) -> f64 {
    match numbers.times.most.0 {
        seconds if seconds > 0.0 => messages * numbers.bytes as f64 / seconds * 1e-6,
        _ => 0.0,
    }
}

/// The name that MPI has for the type, or ours where it has none.
pub(super) fn mpi_name(element_type: ElementType) -> &'static str {
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
