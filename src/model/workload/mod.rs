//! The work of a run, as plain data: the ops of sweeps and of the parallel styles of a model, and the cases made of them.

mod build;
pub mod op;
mod pairs;
mod plan;
mod products;
pub mod replay;
pub mod schedule;
pub mod step;
mod style;
mod sweep;

pub use op::{Case, Family, MOST_CASES, Measure, Op, StepUse, Style};
pub use pairs::{Interference, PairsRequest, SCREENING, rounds};
pub use plan::{
    Communicators, CopyShape, Crossing, Estimate, RankedCall, RankedStep, Spending, StepFacts, WorkPlan, crossing,
    estimated_case, estimated_copy, estimated_replay_seconds, size_on,
};
pub use products::{ProductShape, attention_linears};
pub use sweep::nccl_only_reason;
