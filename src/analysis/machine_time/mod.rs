//! The time that a call takes by the rates of a machine file, without noise and faults.
//!
//! The simulated backend adds these; the planner uses the times as they are.

mod call;
mod formulas;

pub use call::seconds_without_noise;
pub use formulas::{Hop, Paths, Shape, Volume, collective_seconds, message_seconds};
