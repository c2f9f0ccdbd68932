//! Decisions from a model, a machine's rates and a layout: communication cost, whether a layout fits into memory, the
//! time of its step, and which layout to choose.
//!
//! Only plain data goes in and out: no launch, no files. `workload` describes the communication of a step, `cost` the
//! time of a call.

pub mod calibration_suite;
pub mod communication;
pub mod compute;
pub mod explain;
pub mod kernels;
pub mod memory;
pub mod plan_document;
pub mod price;
pub mod rank;
pub mod rates;
pub mod requested;
pub mod search;
pub mod step_error;
#[cfg(test)]
pub(crate) mod testing;
pub mod validate;
