//! What to run, as plain data: the ops of sweeps and of the parallel styles of a model, and the cases made of them.

mod build;
mod calibrate;
mod case;
mod crossing;
mod estimate;
mod family;
mod interference;
mod op;
mod pairs;
mod plan;
mod products;
mod ranking;
mod reducible;
pub mod replay;
pub mod schedule;
mod solo;
pub mod step;
mod step_facts;
mod style;
mod sweep;
mod variants;
pub mod when;
mod wire;

pub use case::{Case, MOST_CASES, Use};
pub use crossing::{Crossing, Spending, crossing};
pub use estimate::{estimated_case_seconds, estimated_replay_seconds};
pub use family::{Family, Measure};
pub use interference::Interference;
pub use op::{Op, Style};
pub use pairs::{PairsRequest, rounds};
pub use plan::WorkPlan;
pub use products::ProductShape;
pub use ranking::{RankedCall, RankedStep, size_on};
pub use reducible::nccl_only_reason;
pub use step_facts::StepFacts;
