//! From a model, a machine's rates and a layout to seconds and bytes: what communication costs, and which layout to take.

pub mod communication;
pub mod rank;
pub mod rates;
