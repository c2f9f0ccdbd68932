//! A layout as the planner answers with it, and the price of its step.

use crate::planner::price::StepPrice;
use commgauge_base::units::Bytes;
use commgauge_model::config::step::Recompute;
use commgauge_model::layout::Degrees;

/// A layout, completely.
#[derive(Clone, Debug, PartialEq)]
pub struct Planned {
    /// Its degrees.
    pub degrees: Degrees,
    /// Chunks on each rank.
    pub virtual_stages: u32,
    /// 0 to 3; 3 is FSDP.
    pub zero_stage: u8,
    /// Samples of a micro-batch.
    pub micro_batch: u64,
    /// Micro-batches of a replica in a step.
    pub micro_batches: u64,
    /// What is computed again.
    pub recompute: Recompute,
    /// Axes, the fastest varying first, such as `tp-cp-ep-dp-pp`.
    pub order: String,
    /// Orders of the axes that take just as long, this one included.
    pub orders_alike: u64,
    /// Memory in use on the fullest GPU.
    pub memory: Bytes,
    /// Whether that is within the limit.
    pub fits: bool,
}

/// A layout and the price of its step.
#[derive(Clone, Debug, PartialEq)]
pub struct Priced {
    /// The layout.
    pub layout: Planned,
    /// Its price.
    pub price: StepPrice,
}
