//! From a model, a machine and a fit to decisions: whether a layout fits into memory, how long its step takes, which is best.
//!
//! Only plain data goes in and comes out: no launch, no files. What a step communicates is told by `workload`, how long a call
//! takes by `cost`.

pub mod communication;
pub mod compute;
pub mod explain;
pub mod memory;
pub mod plan_document;
pub mod price;
pub mod rank;
pub mod rates;
pub mod search;
