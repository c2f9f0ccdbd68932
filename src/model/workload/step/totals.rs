//! Payload and wire bytes of a step, axis by axis, on the rank that each axis loads most.

use super::one_step::Step;
use crate::layout::Axis;
use crate::workload::{Op, Style};
use commgauge_base::error::{Error, Result};
use commgauge_base::units::Bytes;

/// The ops of a step and their totals.
#[derive(Clone, Debug, PartialEq)]
pub struct StepOps {
    /// Every op, those of one axis as a rank of that axis's busiest stage performs them.
    pub ops: Vec<Op>,
    /// The totals of every axis that has ops, in the order of the ops.
    pub axes: Vec<AxisTotals>,
}

/// Traffic of the groups of one axis in a step, on the rank that the axis loads most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AxisTotals {
    /// The axis.
    pub axis: Axis,
    /// The stage of that rank; of stages that are loaded equally the first.
    pub stage: u32,
    /// Sum of the size arguments of all calls.
    pub payload_bytes_per_step: Bytes,
    /// Bytes that the rank sends.
    pub wire_bytes_per_step: Bytes,
    /// Exposed part of them.
    pub exposed_wire_bytes_per_step: Bytes,
}

impl StepOps {
    pub(super) fn busiest(step: &Step, wanted: impl Fn(Style) -> bool) -> Result<StepOps> {
        let mut best: Vec<AxisOps> = Vec::new();
        for stage in 0..step.stages().count() {
            for axis in by_axis(step, stage, &wanted)? {
                let totals = &axis.totals;
                match best.iter_mut().find(|known| known.totals.axis == totals.axis) {
                    None => best.push(axis),
                    Some(known) if totals.wire_bytes_per_step > known.totals.wire_bytes_per_step => *known = axis,
                    Some(_) => {}
                }
            }
        }
        Ok(StepOps::of(best))
    }

    /// The ops of the wanted styles on a rank of one stage.
    ///
    /// # Errors
    /// A stage that does not exist, and as [`Step::ops`].
    pub fn of_stage(step: &Step, stage: u32, wanted: impl Fn(Style) -> bool) -> Result<StepOps> {
        let stages = step.stages().count();
        if stage >= stages {
            return Err(Error::usage(format!("--stage: found {stage}; accepted: 0 to {}", stages - 1)));
        }
        Ok(StepOps::of(by_axis(step, stage, &wanted)?))
    }

    fn of(by_axis: Vec<AxisOps>) -> StepOps {
        let (axes, ops): (Vec<_>, Vec<_>) = by_axis.into_iter().map(|axis| (axis.totals, axis.ops)).unzip();
        StepOps { ops: ops.concat(), axes }
    }
}

/// The ops of one axis with their totals.
struct AxisOps {
    totals: AxisTotals,
    ops: Vec<Op>,
}

/// The ops of a stage, axis by axis, with their totals.
fn by_axis(step: &Step, stage: u32, wanted: &impl Fn(Style) -> bool) -> Result<Vec<AxisOps>> {
    let mut axes: Vec<(Axis, Vec<Op>)> = Vec::new();
    for op in step.ops_of_stage(stage)?.into_iter().filter(|op| wanted(op.style)) {
        match axes.iter_mut().find(|(axis, _)| *axis == op.axis) {
            Some((_, ops)) => ops.push(op),
            None => axes.push((op.axis, vec![op])),
        }
    }
    axes.into_iter().map(|(axis, ops)| Ok(AxisOps { totals: AxisTotals::of(step, stage, axis, &ops)?, ops })).collect()
}

impl AxisTotals {
    /// The totals of ops of one axis.
    ///
    /// # Errors
    /// Where a total passes 64 bits.
    pub fn of(step: &Step, stage: u32, axis: Axis, ops: &[Op]) -> Result<AxisTotals> {
        let sum = |of: &dyn Fn(&Op, u64) -> Option<u64>| -> Result<Bytes> {
            let mut total = 0u64;
            for op in ops {
                let bytes = op.when.count_per_step(step.micro_batches()).and_then(|count| of(op, count));
                total = bytes.and_then(|bytes| total.checked_add(bytes)).ok_or_else(|| {
                    Error::usage(format!(
                        "the bytes that {axis} moves in a step of {} do not fit 64 bits; take a smaller batch",
                        step.model().shown_name()
                    ))
                })?;
            }
            Ok(Bytes(total))
        };
        let ranks = step.group_size(axis);
        Ok(AxisTotals {
            axis,
            stage,
            payload_bytes_per_step: sum(&|op, count| op.bytes_total.0.checked_mul(count))?,
            wire_bytes_per_step: sum(&|op, count| op.wire_bytes(ranks, count))?,
            exposed_wire_bytes_per_step: sum(&|op, count| {
                if op.overlap.is_exposed() { op.wire_bytes(ranks, count) } else { Some(0) }
            })?,
        })
    }
}

impl Step<'_> {
    /// The ops of the wanted styles, each axis seen from the rank that it loads most, with their totals.
    ///
    /// # Errors
    /// As [`Step::ops_of_stage`], and totals that pass 64 bits.
    pub fn ops(&self, wanted: impl Fn(Style) -> bool) -> Result<StepOps> {
        StepOps::busiest(self, wanted)
    }
}
