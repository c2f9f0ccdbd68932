//! The communication cost of a step, axis by axis: payload, wire bytes, seconds, and the part that is not overlapped.
//!
//! Input are ops and the localities of their axes, from any source. Times of calls are added up one after another; an event schedule
//! decides how much of them computing hides.

use super::rates::{RatedCall, Rates};
use commgauge_base::error::{Error, Result};
use commgauge_base::stats::{Interval, Span};
use commgauge_base::units::Bytes;
use commgauge_cost::cost::{Prediction, Status};
use commgauge_model::layout::{Axis, Groups, Layout, Locality};
use commgauge_model::workload::Op;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;

/// One op of a step, priced.
#[derive(Clone, Debug, PartialEq)]
pub struct OpCost {
    /// Ranks of a group.
    pub ranks: u32,
    /// Calls in a step.
    pub calls: u64,
    /// Size arguments of all calls.
    pub payload_bytes: Bytes,
    /// Bytes that one rank sends in all calls.
    pub wire_bytes: Bytes,
    pub call: Prediction,
}

/// Basis of an axis's calls: number of ops by the status of their prediction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Grounds {
    /// This very call was measured, at too few sizes for a curve.
    pub measured: u32,
    /// Measured sizes on both sides.
    pub interpolated: u32,
    /// Between measured group sizes.
    pub transferred: u32,
    /// Outside the measured range, or from published rates.
    pub extrapolated: u32,
    /// Without an answer: not in the seconds.
    pub refused: u32,
    /// From curves with a held-out error over 10 %, or uncalibrated.
    pub untrusted: u32,
    /// Why the first op without a prediction has none.
    pub reason: Option<String>,
}

/// Cost of an axis in a step, on the rank with these ops.
#[derive(Clone, Debug, PartialEq)]
pub struct AxisCost {
    pub axis: Axis,
    /// Ranks of a group.
    pub ranks: u32,
    /// Placement of its groups.
    pub locality: Locality,
    pub payload_bytes: Bytes,
    /// Bytes that a rank sends.
    pub wire_bytes: Bytes,
    /// Exposed part of them.
    pub exposed_wire_bytes: Bytes,
    /// Seconds of all calls one after another: the maximum cost of the axis. Excludes calls without a prediction.
    pub time: Span,
    /// Seconds of the exposed calls: the minimum cost, if everything that can be hidden is.
    pub exposed: Span,
    /// Number of ops by status of their prediction.
    pub grounds: Grounds,
}

impl Grounds {
    fn count(&mut self, call: &Prediction) {
        match call.status {
            Status::Measured => self.measured += 1,
            Status::Interpolated => self.interpolated += 1,
            Status::Transferred => self.transferred += 1,
            Status::Extrapolated => self.extrapolated += 1,
            Status::Refused => {
                self.refused += 1;
                self.reason = self.reason.take().or_else(|| call.reason.clone());
            }
        }
        self.untrusted += u32::from(call.untrusted);
    }
}

impl OpCost {
    /// An op in a step with this many micro-batches, in groups of `ranks` ranks with this locality.
    ///
    /// # Errors
    /// If bytes or counts exceed 64 bits.
    pub fn of(op: &Op, ranks: u32, locality: &Locality, micro_batches: u64, rates: &dyn Rates) -> Result<OpCost> {
        let too_many = || {
            Error::usage(format!(
                "the bytes of {} on {} in a step do not fit 64 bits; use a smaller batch",
                op.collective, op.axis
            ))
        };
        let calls = op.when.count_per_step(micro_batches).ok_or_else(too_many)?;
        Ok(OpCost {
            ranks,
            calls,
            payload_bytes: Bytes(op.bytes_total.0.checked_mul(calls).ok_or_else(too_many)?),
            wire_bytes: Bytes(op.wire_bytes(ranks, calls).ok_or_else(too_many)?),
            call: rates.price(&RatedCall::of(op, ranks, locality)),
        })
    }

    /// Seconds of all calls; none if there is no prediction.
    pub fn time(&self) -> Option<Span> {
        Some(span(&self.call)?.times(self.calls as f64))
    }
}

impl AxisCost {
    pub(super) fn nothing(axis: Axis, ranks: u32, locality: Locality) -> AxisCost {
        AxisCost {
            axis,
            ranks,
            locality,
            payload_bytes: Bytes(0),
            wire_bytes: Bytes(0),
            exposed_wire_bytes: Bytes(0),
            time: Span::exact(0.0),
            exposed: Span::exact(0.0),
            grounds: Grounds::default(),
        }
    }

    pub(super) fn add(&mut self, op: &Op, cost: &OpCost) {
        let add = |sum: &mut Bytes, more: Bytes| sum.0 = sum.0.saturating_add(more.0);
        add(&mut self.payload_bytes, cost.payload_bytes);
        add(&mut self.wire_bytes, cost.wire_bytes);
        self.grounds.count(&cost.call);
        let time = cost.time().unwrap_or(Span::exact(0.0));
        self.time = self.time.plus(time);
        if op.overlap.is_exposed() {
            add(&mut self.exposed_wire_bytes, cost.wire_bytes);
            self.exposed = self.exposed.plus(time);
        }
    }
}

/// Seconds of a call, with the interval if both ends are known; none if there is no prediction.
pub fn span(call: &Prediction) -> Option<Span> {
    let interval = call.low.zip(call.high).map(|(low, high)| Interval { low: low.0, high: high.0 });
    Some(Span { middle: call.seconds?.0, interval })
}

/// Localities of the groups of some axes of a layout on nodes of this many ranks each, neighbours in world rank.
pub fn localities(layout: &Layout, axes: &[Axis], ranks_per_node: u32) -> BTreeMap<Axis, Locality> {
    let ranks = layout.group_size(Axis::World);
    let nodes: Vec<u32> = (0..ranks).map(|rank| rank / ranks_per_node.max(1)).collect();
    let of = |groups: &Groups| Locality::of(groups, &nodes);
    let known = axes.iter().filter(|axis| **axis != Axis::Pair);
    known.map(|axis| (*axis, of(&layout.groups(*axis)))).collect()
}

#[cfg(test)]
mod tests {
    // The cost of axes against figures computed by hand.
    use super::*;
    use crate::planner::rates::Published;
    use commgauge_base::collective::Collective;
    use commgauge_base::element::ElementType;
    use commgauge_model::config::Machine;
    use commgauge_model::layout::Degrees;
    use commgauge_model::workload::Style;
    use commgauge_model::workload::op::{End, Moment, Overlap, Pass, When};
    use std::path::Path;

    /// 1 us and 10 GB/s within; 5 us and 4 adapters of 1 GB/s between.
    fn machine() -> Machine {
        let text = "name = 'm'\nranks_per_node = 4\n[within_node]\nlatency = '1us'\nrate = '10GB/s'\n\
                [between_nodes]\nlatency = '5us'\nadapters_per_node = 4\nrate_per_adapter = '1GB/s'\n";
        Machine::parse(text, Path::new("m.toml")).unwrap()
    }

    /// The cost of every axis that the ops name, in their order.
    fn axis_costs<'o>(
        ops: impl IntoIterator<Item = &'o Op>,
        micro_batches: u64,
        place: impl Fn(Axis) -> Option<(u32, Locality)>,
        rates: &dyn Rates,
    ) -> Result<Vec<AxisCost>> {
        let mut axes: Vec<AxisCost> = Vec::new();
        for op in ops {
            let index = match axes.iter().position(|cost| cost.axis == op.axis) {
                Some(index) => index,
                None => {
                    let Some((ranks, locality)) = place(op.axis) else { continue };
                    axes.push(AxisCost::nothing(op.axis, ranks, locality));
                    axes.len() - 1
                }
            };
            let axis = &mut axes[index];
            let cost = OpCost::of(op, axis.ranks, &axis.locality, micro_batches, rates)?;
            axis.add(op, &cost);
        }
        Ok(axes)
    }

    fn ops() -> Vec<Op> {
        let tensor = Op {
            when: When::MicroBatch { pass: Pass::Forward, end: End::Whole, calls: 2, one_in: 1 },
            ..Op::new(Style::Tensor, Axis::Tp, Collective::AllReduce, ElementType::Bfloat16, 8_000_000)
        };
        let data = Op {
            when: When::Step { moment: Moment::LastBackward, calls: 3 },
            overlap: Overlap::LastBackward,
            ..Op::new(Style::Data, Axis::Dp, Collective::ReduceScatter, ElementType::Float32, 4_000_000)
        };
        vec![tensor.clone(), data.clone(), Op { overlap: Overlap::WeightGradient, ..tensor }, data]
    }

    #[test]
    fn bytes_that_pass_64_bits_are_refused() {
        let op = Op { bytes_total: Bytes(u64::MAX / 2), ..ops().remove(0) };
        let place = |_| Some((4, Locality::UNKNOWN));
        let error = axis_costs([&op], 8, place, &Published::new(&machine())).unwrap_err();
        assert!(error.exit_code() == 2 && error.to_string().contains("all_reduce on tp"), "{error}");
    }

    #[test]
    fn refused_calls_are_counted_and_not_taken_as_zero() {
        let place = |_| Some((4, Locality::UNKNOWN));
        let machine = machine();
        let costs = axis_costs(&ops(), 8, place, &Published::new(&machine)).unwrap();
        assert_eq!(costs[0].grounds.refused, 2);
        assert!(costs[0].grounds.reason.as_ref().unwrap().contains("unknown placement on the nodes"));
        assert_eq!(costs[0].payload_bytes, Bytes(2 * 16 * 8_000_000));
    }

    #[test]
    fn axes_cost_what_was_worked_out_by_hand() {
        let layout = Layout::new(Degrees::dense(4, 1, 2, 1), &commgauge_model::layout::DEFAULT_ORDER).unwrap();
        let localities = localities(&layout, &[Axis::Tp, Axis::Dp], 4);
        let place = |axis| Some((layout.group_size(axis), localities.get(&axis)?.clone()));
        let machine = machine();
        let costs = axis_costs(&ops(), 8, place, &Published::new(&machine)).unwrap();
        let [tensor, data] = costs.as_slice() else { panic!("{costs:?}") };
        // all_reduce of 8 MB on 4 ranks: 6 us + 12 MB at 10 GB/s, 2 calls in each of 8 micro-batches, of two ops.
        let call = 6e-6 + 1.2e-3;
        assert!(
            (tensor.time.middle - 32.0 * call).abs() < 1e-12 && (tensor.exposed.middle - 16.0 * call).abs() < 1e-12
        );
        assert_eq!((tensor.wire_bytes, tensor.exposed_wire_bytes), (Bytes(32 * 12_000_000), Bytes(16 * 12_000_000)));
        // reduce_scatter of 4 MB on 2 ranks of 2 nodes: 5 us + 2 MB at 1 GB/s, 6 calls, all hidden.
        assert!((data.time.middle - 6.0 * 2.005e-3).abs() < 1e-12, "{data:?}");
        assert_eq!((data.exposed.middle, data.exposed_wire_bytes, data.wire_bytes), (0.0, Bytes(0), Bytes(12_000_000)));
        assert_eq!((data.time.interval, data.grounds.extrapolated, data.grounds.untrusted), (None, 2, 2));
        assert_eq!(
            data.locality,
            Locality { nodes_spanned: 2, ranks_per_node: 1, stride: 4, concurrent_groups_per_node: 4 }
        );
    }
}
