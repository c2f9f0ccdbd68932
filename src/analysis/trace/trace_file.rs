//! One file of a trace, whatever left it: its calls, and what of it could not be used.

use super::call::CallKind;
use commgauge_base::element::ElementType;
use commgauge_base::units::{Bytes, Seconds};
use std::collections::BTreeMap;
use std::ops::Range;

/// What left a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TraceFormat {
    /// PyTorch's profiler (Kineto), exported as a Chrome trace.
    Kineto,
    /// A dump of PyTorch's flight recorder, as JSON or as a pickle.
    FlightRecorder,
    /// What PyTorch's `ExecutionTraceObserver` leaves, as JSON.
    ExecutionTrace,
    /// An execution trace of Chakra (MLCommons), as protobuf messages.
    Chakra,
    /// NCCL's inspector, a profiler plugin.
    NcclInspector,
    /// `NCCL_DEBUG=INFO` with `NCCL_DEBUG_SUBSYS=INIT,COLL`.
    NcclLog,
}

impl TraceFormat {
    /// The name in texts.
    pub fn name(self) -> &'static str {
        match self {
            TraceFormat::Kineto => "PyTorch profiler",
            TraceFormat::FlightRecorder => "flight recorder",
            TraceFormat::ExecutionTrace => "PyTorch execution trace",
            TraceFormat::Chakra => "Chakra execution trace",
            TraceFormat::NcclInspector => "NCCL inspector",
            TraceFormat::NcclLog => "NCCL log",
        }
    }
}

/// What a replay needs of a call beyond its size, as far as the trace says it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CallDetail {
    /// When it began, on the clock of its rank.
    pub begin_nanoseconds: Option<u64>,
    /// The other end of a message, as the rank within the group.
    pub peer: Option<u32>,
    /// Its number among the calls of its kind on the group, the same on all ranks.
    pub sequence: Option<u64>,
    /// Of an all_to_all that is uneven: elements to each rank of the group.
    pub elements_to_each: Option<Vec<u64>>,
}

/// The elements of an all_to_all to each rank; the trace has rows of the first dimension (`all_to_all_single` of PyTorch).
pub(super) fn elements_to_each(rows: &str, elements: u64) -> Option<Vec<u64>> {
    let rows: Vec<u64> = listed_ranks(rows)?.into_iter().map(u64::from).collect();
    let all: u64 = rows.iter().sum();
    if all == 0 && elements == 0 && !rows.is_empty() {
        // It comes to the call, and has nothing for anybody.
        return Some(rows);
    }
    let elements_of_row = elements.checked_div(all).filter(|each| each.checked_mul(all) == Some(elements))?;
    rows.into_iter().map(|rows| rows.checked_mul(elements_of_row)).collect()
}

/// A call of a job on one rank.
#[derive(Clone, Debug, PartialEq)]
pub struct TracedCall {
    /// World rank.
    pub rank: u32,
    /// The call.
    pub kind: CallKind,
    /// Type of the elements; none of a barrier, and where the trace does not say it.
    pub element: Option<ElementType>,
    /// The size argument in the sense of nccl-tests; of a message its size.
    pub bytes_total: Bytes,
    /// Index in the trace's groups.
    pub group: usize,
    /// From the first to the last moment of the call on this rank, waiting for others included.
    pub duration: Option<Seconds>,
    /// What a replay needs beyond that.
    pub detail: CallDetail,
}

/// A stretch of computing, in nanoseconds on the clock of its rank.
pub type ComputingSpan = Range<u64>;

/// A call with its group as the file names it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct FileCall {
    /// Absent where the file is of one rank.
    pub rank: Option<u32>,
    pub kind: CallKind,
    pub element: Option<ElementType>,
    pub bytes_total: Bytes,
    /// Index in the file's groups.
    pub group: usize,
    pub duration: Option<Seconds>,
    pub detail: CallDetail,
}

/// A group of ranks that called something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracedGroup {
    /// As the job names it.
    pub name: String,
    /// World ranks in the order of the group, where the trace says them.
    pub ranks: Option<Vec<u32>>,
    /// Number of ranks, where it is known.
    pub size: Option<u32>,
}

/// What a file held.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct FileTrace {
    pub rank: Option<u32>,
    pub world: Option<u32>,
    pub groups: Vec<TracedGroup>,
    pub calls: Vec<FileCall>,
    /// What the rank computed, in no order.
    pub computing: Vec<ComputingSpan>,
    /// Steps that the job marked.
    pub steps: Option<u64>,
    /// Names of events that are calls of a kind that is not known, and how often each came.
    pub unknown: BTreeMap<String, u64>,
    /// Sentences about what was skipped.
    pub notes: Vec<String>,
}

impl FileTrace {
    /// The index of a group, which is added where it is new. Of one without ranks only some calls say how large it is.
    pub(super) fn group(&mut self, group: TracedGroup) -> usize {
        match self.groups.iter().position(|known| known.name == group.name && known.ranks == group.ranks) {
            Some(at) => {
                self.groups[at].size = self.groups[at].size.or(group.size);
                at
            }
            None => {
                self.groups.push(group);
                self.groups.len() - 1
            }
        }
    }

    pub(super) fn skip_unknown(&mut self, name: &str) {
        *self.unknown.entry(name.to_owned()).or_default() += 1;
    }
}

/// The ranks in `[0, 1, 2]`, as PyTorch writes a list. Long ones are cut (`[0, 1, ..., 7]`), and then nothing is known.
pub(super) fn listed_ranks(text: &str) -> Option<Vec<u32>> {
    let inner = text.trim().strip_prefix('[')?.strip_suffix(']')?;
    inner.split(',').map(|rank| rank.trim().parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_ranks_is_read_whole_or_not_at_all() {
        assert_eq!(listed_ranks("[0, 2, 5]"), Some(vec![0, 2, 5]));
        for text in ["[0, 1, ..., 7]", "", "[]", "0, 1", "[0, -1]"] {
            assert_eq!(listed_ranks(text), None, "{text}");
        }
    }
}
