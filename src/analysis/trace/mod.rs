//! What a job really called: traces that PyTorch's profiler, its flight recorder, NCCL's log and others leave, as calls of known
//! size on known groups; how these compare with the list of a step; and who is late in them.
//!
//! Start with `read`; each format has a file of its own in `format`. `process_trace` finds the ranks of processes that only say
//! which communicators they are in. `summary` counts, `compare` holds the counts
//! against a list of `commgauge ops`, `late` looks at the times, `replay` puts what the ranks did into order.

mod call;
mod compare;
mod expected;
#[cfg(test)]
mod figures_tests;
mod format;
mod late;
#[cfg(test)]
mod pickled_dump;
mod places;
mod process_trace;
mod read;
mod replay;
mod roots;
mod skipped;
mod summary;
mod trace_file;

pub use call::CallKind;
pub use compare::{Compared, Difference, OneSide, compare};
pub use expected::{ExpectedOp, ExpectedStep};
pub use late::{LateRank, late_ranks};
pub use places::{GroupPlace, TracedPlaces};
pub use read::{Trace, read_traces};
pub use replay::TracedReplay;
pub use summary::{CountedCall, counted_calls};
pub use trace_file::{CallDetail, ComputingSpan, TraceFormat, TracedCall, TracedGroup};
