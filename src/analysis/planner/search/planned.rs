//! A layout as the planner answers with it, and the price of its step.

use super::only::Only;
use crate::planner::price::StepPrice;
use commgauge_base::units::Bytes;
use commgauge_model::config::step::{Recompute, ScheduleKind, parse_order};
use commgauge_model::layout::{Axis, Degrees};

/// A layout, completely.
#[derive(Clone, Debug, PartialEq)]
pub struct Planned {
    /// Its degrees.
    pub degrees: Degrees,
    /// Order of the passes.
    pub schedule: ScheduleKind,
    /// Layers of each chunk of the model, where they are not shared out evenly.
    pub stage_layers: Option<Vec<u32>>,
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

impl Planned {
    /// The layout in the syntax of `--only`.
    pub fn name(&self) -> String {
        let Degrees { tp, cp, ep, pp, dp, etp } = self.degrees;
        let usual_schedule =
            if self.virtual_stages > 1 { ScheduleKind::Interleaved } else { ScheduleKind::OneForwardOneBackward };
        let usual_etp = if ep == 1 { tp } else { 1 };
        let schedule =
            if self.schedule == usual_schedule { String::new() } else { format!("schedule={},", self.schedule) };
        let within_experts = if etp == usual_etp { String::new() } else { format!("etp={etp},") };
        format!(
            "tp={tp},cp={cp},ep={ep},{within_experts}pp={pp},{schedule}virtual_stages={},dp={dp},zero_stage={},micro_batch={},\
             recompute={},order={}",
            self.virtual_stages, self.zero_stage, self.micro_batch, self.recompute, self.order
        )
    }

    /// Only this layout.
    pub(super) fn only(&self) -> Only {
        let Degrees { tp, cp, ep, pp, dp, etp } = self.degrees;
        let order = parse_order(&self.order).unwrap_or_default();
        Only {
            tp: vec![tp],
            cp: vec![cp],
            ep: vec![ep],
            etp: vec![etp],
            schedule: vec![self.schedule],
            pp: vec![pp],
            virtual_stages: vec![self.virtual_stages],
            dp: vec![dp],
            zero_stage: vec![self.zero_stage],
            micro_batch: vec![self.micro_batch],
            recompute: vec![self.recompute],
            order: vec![order.into_iter().filter_map(Axis::named).collect()],
        }
    }
}

/// A layout and the price of its step.
#[derive(Clone, Debug, PartialEq)]
pub struct Priced {
    /// The layout.
    pub layout: Planned,
    /// Its price.
    pub price: StepPrice,
}
