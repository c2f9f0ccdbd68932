//! Two calls of different axes at once: the largest of each, as tiny programs in which the one is timed while the other is under
//! way. A backend carries them out as it does a replay.

use super::replay::{Action, Movement, ReplayPlan, ReplayProgram, Slot};
use super::step::Step;
use super::{Op, Style};
use crate::layout::{Axis, Groups};
use commgauge_base::error::{Error, Result};
use commgauge_base::geometry::Geometry;
use std::collections::BTreeSet;

/// The most memory that calls beside the timed one may take together, in bytes of their size arguments.
const MOST_BYTES_BESIDE: u64 = 256 << 20;
/// The most calls beside the timed one.
const MOST_CALLS_BESIDE: u32 = 64;

/// The calls of two axes that may disturb each other.
#[derive(Clone, Debug, PartialEq)]
pub struct Interference {
    /// Index of the step among those of the plan.
    pub step: u32,
    /// The largest call of each axis.
    pub ops: [Op; 2],
    /// The groups of each axis.
    pub groups: [Groups; 2],
    geometries: [Geometry; 2],
}

impl Interference {
    /// The largest call of each of two axes of a step, by the bytes of one call.
    ///
    /// # Errors
    /// Usage errors if both axes are the same, if one has no call in the step, and if it leaves ranks without a group.
    pub fn of(step: &Step, step_index: u32, axes: [Axis; 2], wanted: impl Fn(Style) -> bool) -> Result<Interference> {
        let place = format!("--interfere {},{}", axes[0], axes[1]);
        if axes[0] == axes[1] {
            return Err(Error::usage(format!("{place}: both are the same axis; name two")));
        }
        let ops = step.ops(wanted)?.ops;
        let largest =
            |axis: Axis| largest_on(step, &ops, axis).map_err(|text| Error::usage(format!("{place}: {text}")));
        let ops = [largest(axes[0])?, largest(axes[1])?];
        let groups = axes.map(|axis| step.layout().groups(axis));
        let geometry = |index: usize| {
            let axis = axes[index];
            ops[index]
                .geometry(groups[index].group_size())
                .map_err(|reason| Error::usage(format!("{place}: {} on {axis}: {reason}", ops[index].collective)))
        };
        let geometries = [geometry(0)?, geometry(1)?];
        Ok(Interference { step: step_index, ops, groups, geometries })
    }

    /// Number of calls of the other axis that together take as long as one of `timed`; fewer if they would need too
    /// much memory.
    pub fn calls_beside(&self, timed: usize, alone_nanoseconds: [u64; 2]) -> u32 {
        let other = 1 - timed;
        let wanted = alone_nanoseconds[timed].div_ceil(alone_nanoseconds[other].max(1));
        let fit = MOST_BYTES_BESIDE / self.ops[other].bytes_total.0.max(1);
        wanted.min(fit).clamp(1, u64::from(MOST_CALLS_BESIDE)) as u32
    }

    /// The program of every rank: `beside` calls of the other are started, then one of `timed`, which is waited for first.
    pub fn program(&self, timed: usize, beside: u32) -> ReplayPlan {
        let slot_of = |op: usize| Slot { op: op as u32, movement: Movement::Together };
        let mut slots = vec![slot_of(timed)];
        slots.extend((0..beside).map(|_| slot_of(1 - timed)));
        let start = |slot: u32| Action::Start { slot };
        let wait = |slot: u32| Action::Wait { slot };
        let others = || 1..=beside;
        let actions = others().map(start).chain([start(0), wait(0)]).chain(others().map(wait)).collect();
        let program = ReplayProgram {
            stage: 0,
            ops: self.ops.to_vec(),
            own_ops: 2,
            geometries: self.geometries.to_vec(),
            groups: vec![0, 1],
            slots,
            actions,
            at_once: Vec::new(),
            check_order: Vec::new(),
        };
        let ranks = self.groups[0].groups.iter().map(Vec::len).sum();
        ReplayPlan {
            schedule: "two calls at once".to_owned(),
            groups: self.groups.to_vec(),
            stage_of_rank: vec![0; ranks],
            programs: vec![Some(program.with_orders())],
            listed: vec![Vec::new()],
            job_nanoseconds: None,
        }
    }
}

fn largest_on(step: &Step, ops: &[Op], axis: Axis) -> std::result::Result<Op, String> {
    if axis == Axis::Embedding {
        return Err(
            "embedding holds the ends of each pipeline only; accepted: an axis whose groups hold every rank".into()
        );
    }
    let ranks = step.group_size(axis);
    let largest = ops.iter().filter(|op| op.axis == axis).max_by_key(|op| op.wire_bytes(ranks, 1));
    largest.cloned().ok_or_else(|| {
        let there: BTreeSet<&str> =
            ops.iter().map(|op| op.axis).filter(|axis| *axis != Axis::Embedding).map(Axis::name).collect();
        let there: Vec<&str> = there.into_iter().collect();
        let layout = step.layout().degrees.name();
        format!("{axis} has no call in this step ({layout}); accepted: two of {}", there.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Suite;
    use std::path::Path;

    fn of(axes: [Axis; 2]) -> Result<Interference> {
        let text = "[model]\npreset = 'llama-2-7b'\nlayers = 4\n[training]\nsequence = 512\nmicro_batches = 2\n[layout]\ntp = 2\n";
        let suites = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../suites/test.toml");
        let suite = Suite::parse(&suites, text).unwrap();
        let step = Step::all_of(&suite.layouts[0], 4).unwrap().remove(0);
        Interference::of(&step, 0, axes, |_| true)
    }

    #[test]
    fn axes_that_cannot_overlap_are_refused() {
        for (axes, expected) in [
            ([Axis::Tp, Axis::Tp], "--interfere tp,tp: both are the same axis"),
            ([Axis::Tp, Axis::Pp], "--interfere tp,pp: pp has no call in this step (tp 2 x dp 2); accepted: two of dp"),
            ([Axis::Embedding, Axis::Tp], "embedding holds the ends of each pipeline only"),
        ] {
            let error = of(axes).unwrap_err();
            assert_eq!(error.exit_code(), 2);
            assert!(error.to_string().contains(expected), "{error}");
        }
    }

    #[test]
    fn the_timed_call_starts_last_and_is_waited_for_first() {
        let pair = of([Axis::Tp, Axis::Dp]).unwrap();
        let plan = pair.program(1, 2);
        let program = plan.program_of_rank(3).unwrap();
        let slots: Vec<u32> = program.slots.iter().map(|slot| slot.op).collect();
        assert_eq!(slots, [1, 0, 0]);
        let [start, wait] = [|slot| Action::Start { slot }, |slot| Action::Wait { slot }];
        assert_eq!(program.actions, [start(1), start(2), start(0), wait(0), wait(1), wait(2)]);
    }

    #[test]
    fn calls_beside_cover_the_timed_one_as_far_as_memory_goes() {
        let pair = of([Axis::Tp, Axis::Dp]).unwrap();
        let fit = (MOST_BYTES_BESIDE / pair.ops[1].bytes_total.0.max(1)).clamp(1, 64) as u32;
        assert_eq!(pair.calls_beside(0, [1000, 300]), 4.min(fit));
        assert_eq!(pair.calls_beside(1, [300, 1000]), 4);
        assert_eq!(
            pair.calls_beside(1, [0, 1_000_000]),
            MOST_CALLS_BESIDE.min((MOST_BYTES_BESIDE / pair.ops[0].bytes_total.0) as u32)
        );
        assert_eq!(pair.calls_beside(0, [10, 1000]), 1);
    }
}
