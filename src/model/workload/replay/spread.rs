//! Calls of a step or a micro-batch, spread over the layers that they overlap with.

use crate::layout::Axis;
use crate::workload::Op;

/// An op of a list, by its index, called several times.
#[derive(Clone, Copy, Debug)]
pub(super) struct Repeated {
    pub op: usize,
    pub count: u64,
}

impl Repeated {
    /// The op, once for each call.
    pub fn each(self) -> impl Iterator<Item = usize> {
        std::iter::repeat_n(self.op, self.count as usize)
    }
}

/// Calls on one axis, in order, over this many layers ("units").
#[derive(Clone, Debug)]
pub(super) struct Spread {
    calls: Vec<usize>,
    units: usize,
    started: usize,
}

impl Spread {
    /// The calls of some ops, axis by axis.
    pub(super) fn by_axis(ops: &[Op], calls: &[Repeated], units: usize) -> Vec<Spread> {
        let mut axes: Vec<(Axis, Vec<usize>)> = Vec::new();
        for calls in calls {
            let of = ops[calls.op].axis;
            let repeated = calls.each();
            match axes.iter_mut().find(|(axis, _)| *axis == of) {
                Some((_, known)) => known.extend(repeated),
                None => axes.push((of, repeated.collect())),
            }
        }
        axes.into_iter().map(|(_, calls)| Spread { calls, units: units.max(1), started: 0 }).collect()
    }

    /// The calls whose data is made by the layers up to this one, and that were not given out yet.
    pub(super) fn ready_after(&mut self, unit: usize) -> Vec<usize> {
        self.up_to(self.calls.len() * (unit + 1).min(self.units) / self.units)
    }

    /// The calls whose data the layers up to this one need, and that were not given out yet.
    pub(super) fn needed_before(&mut self, unit: usize) -> Vec<usize> {
        self.up_to((self.calls.len() * (unit + 1).min(self.units)).div_ceil(self.units))
    }

    fn up_to(&mut self, end: usize) -> Vec<usize> {
        let given = self.calls[self.started.min(end)..end].to_vec();
        self.started = self.started.max(end);
        given
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Style;
    use commgauge_base::collective::Collective;
    use commgauge_base::element::ElementType;

    #[test]
    fn calls_come_as_their_layers_are_done_and_before_their_layers_begin() {
        let op = |axis| Op::new(Style::Data, axis, Collective::AllReduce, ElementType::Float32, 64);
        let ops = [op(Axis::Dp), op(Axis::Dp), op(Axis::Edp)];
        let spread = || Spread::by_axis(&ops, &[(0, 3), (1, 1), (2, 1)].map(|(op, count)| Repeated { op, count }), 8);
        let mut dense = spread().remove(0);
        let ready: Vec<_> = (0..8).map(|unit| dense.ready_after(unit)).collect();
        assert_eq!(ready, [vec![], vec![0], vec![], vec![0], vec![], vec![0], vec![], vec![1]]);
        let mut dense = spread().remove(0);
        let needed: Vec<_> = (0..8).map(|unit| dense.needed_before(unit)).collect();
        assert_eq!(needed, [vec![0], vec![], vec![0], vec![], vec![0], vec![], vec![1], vec![]]);
        assert_eq!(spread()[1].ready_after(7), [2]);
        // More calls than layers.
        let mut one = Spread::by_axis(&ops, &[Repeated { op: 0, count: 5 }], 0).remove(0);
        assert_eq!(one.ready_after(0).len(), 5);
    }
}
