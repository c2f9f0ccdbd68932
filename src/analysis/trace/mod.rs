//! What a job really called: traces that PyTorch's profiler, its flight recorder and NCCL's log leave, as calls of known size
//! on known groups; how these compare with the list of a step; and who is late in them.
//!
//! Start with `read`, which tells the formats apart; each has a file of its own. `summary` counts, `compare` holds the counts
//! against a list of `commgauge ops`, `late` looks at the times.

mod call;
mod compare;
mod flight_recorder;
mod kineto;
mod late;
mod nccl_log;
mod pickle;
mod places;
mod read;
mod skipped;
mod summary;
mod trace_file;

pub use call::CallKind;
pub use compare::{Compared, Difference, ExpectedOp, ExpectedStep, OneSide, compare};
pub use late::{LateRank, late_ranks};
pub use places::{GroupPlace, TracedPlaces};
pub use read::{Trace, TracedCall, read_traces};
pub use summary::{CountedCall, counted_calls};
pub use trace_file::{TraceFormat, TracedGroup};
