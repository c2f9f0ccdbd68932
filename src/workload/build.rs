//! Makes the plan of a run: checked files and a number of ranks -> groups and cases.

use super::training_step::{TrainingStep, layout_name};
use super::{Case, Op, Style, WorkPlan, data, pipeline, sweep, tensor};
use crate::collective::{Collective, Placement};
use crate::config::{Layout, Place, Suite, Sweep};
use crate::error::{Error, Result};
use crate::layout::{Axis, Degrees, Groups};
use crate::sample::Cadence;
use std::collections::HashMap;

/// Most cases in one run; more are a slip in a suite and would run for days.
pub const MOST_CASES: usize = 10_000;

impl WorkPlan {
    /// The plan of a suite on `world_size` ranks: the ops of the model first, then the sweeps.
    ///
    /// # Errors
    /// Usage errors that name file, line and key: degrees that do not fit the ranks or the model, roots outside
    /// their group, too many cases, or none.
    pub fn from_suite(suite: &Suite, world_size: u32) -> Result<WorkPlan> {
        let mut plan = Planner::default();
        let mut placed = Vec::new();
        for layout in &suite.layouts {
            let degrees = degrees_of(layout, world_size)?;
            placed.push((layout, degrees, order_of(layout)));
        }
        if let (Some(model), Some(training)) = (&suite.model, &suite.training) {
            for (layout, degrees, order) in &placed {
                let step = TrainingStep::new(model, training, layout, *degrees)?;
                for op in step_ops(&step, &layout.styles) {
                    plan.use_groups(degrees.groups(op.axis, order)?, &layout.place)?;
                    plan.add(op, &training.placements, &suite.cadences, &layout.place)?;
                }
            }
        }
        for sweep in &suite.sweeps {
            let groups = match sweep::axis_of(sweep) {
                Axis::World => Groups::world(world_size),
                axis => {
                    // The first layout that divides this axis has the groups; of one rank nothing can be swept.
                    let Some((_, degrees, order)) = placed.iter().find(|(_, degrees, _)| degrees.of(axis) > 1) else {
                        if placed.is_empty() {
                            return Err(sweep.place.wrong(format!("axis {axis} needs a [layout] that divides it")));
                        }
                        continue;
                    };
                    degrees.groups(axis, order)?
                }
            };
            plan.add_sweep(sweep, groups)?;
        }
        if plan.cases.is_empty() {
            let path = suite.path.display();
            return Err(Error::usage(format!("{path}: on {world_size} ranks there is nothing to run in this suite")));
        }
        let mut layouts: Vec<_> = placed.iter().map(|(_, degrees, _)| layout_name(degrees)).collect();
        layouts.dedup();
        Ok(WorkPlan {
            groups: plan.groups,
            cases: plan.cases,
            model: suite.model.as_ref().map(|model| model.shown_name()),
            layout: (!layouts.is_empty()).then(|| layouts.join("; ")),
        })
    }

    /// The plan of one sweep on the whole world.
    ///
    /// # Errors
    /// Roots or splits that do not fit the ranks, or too many cases.
    pub fn from_sweep(sweep: &Sweep, world_size: u32) -> Result<WorkPlan> {
        let mut plan = Planner::default();
        plan.add_sweep(sweep, Groups::world(world_size))?;
        Ok(WorkPlan { groups: plan.groups, cases: plan.cases, model: None, layout: None })
    }
}

/// The ops of the wanted styles. A new style is its file and one line here.
fn step_ops(step: &TrainingStep, wanted: &[&str]) -> Vec<Op> {
    type Ops = fn(&TrainingStep) -> Vec<Op>;
    let styles: [(Style, Axis, Ops); 3] = [
        (Style::Tensor, Axis::Tp, tensor::ops),
        (Style::Data, Axis::Dp, data::ops),
        (Style::Pipeline, Axis::Pp, pipeline::ops),
    ];
    let used = styles.iter().filter(|(style, axis, _)| wanted.contains(&style.name()) && step.degrees.of(*axis) > 1);
    used.flat_map(|(_, _, ops)| ops(step)).collect()
}

#[derive(Default)]
struct Planner {
    groups: Vec<Groups>,
    cases: Vec<Case>,
    index_by_name: HashMap<String, usize>,
}

impl Planner {
    /// One set of groups serves an axis throughout a run, so two layouts must not want different ones.
    fn use_groups(&mut self, groups: Groups, place: &Place) -> Result<()> {
        match self.groups.iter().find(|known| known.axis == groups.axis) {
            None => self.groups.push(groups),
            Some(known) if *known == groups => {}
            Some(known) => {
                return Err(place.wrong(format!(
                    "the groups of {} have {} ranks here and {} in another layout of this suite, or lie differently; \
                     name `styles` so that one layout only measures {}, or write two suites",
                    groups.axis,
                    groups.group_size(),
                    known.group_size(),
                    groups.axis
                )));
            }
        }
        Ok(())
    }

    fn add_sweep(&mut self, sweep: &Sweep, groups: Groups) -> Result<()> {
        let ops = sweep::ops(sweep, groups.group_size(), MOST_CASES)?;
        self.use_groups(groups, &sweep.place)?;
        ops.into_iter().try_for_each(|op| self.add(op, &sweep.placements, &sweep.cadences, &sweep.place))
    }

    /// Adds the cases of an op. One that is there already is run once; a second reason for it is noted beside the first.
    fn add(&mut self, op: Op, placements: &[Placement], cadences: &[Cadence], place: &Place) -> Result<()> {
        for placement in placements_of(op.collective, placements) {
            for &cadence in cadences {
                let case = Case { op: op.clone(), placement, cadence };
                let name = case.name();
                if let Some(index) = self.index_by_name.get(&name) {
                    let known = &mut self.cases[*index].op;
                    if known.why != op.why {
                        known.why = format!("{}; also {}", known.why, op.why);
                    }
                    continue;
                }
                sweep::refuse(self.cases.len() == MOST_CASES, place, || {
                    format!("brings the run above {MOST_CASES} cases; divide it into several suites")
                })?;
                self.index_by_name.insert(name, self.cases.len());
                self.cases.push(case);
            }
        }
        Ok(())
    }
}

/// The wanted placements that the collective offers; all that it offers where none was wanted of it.
fn placements_of(collective: Collective, wanted: &[Placement]) -> Vec<Placement> {
    let offered = collective.placements();
    let both: Vec<_> = offered.iter().copied().filter(|placement| wanted.contains(placement)).collect();
    if both.is_empty() { offered.to_vec() } else { both }
}

/// The degrees of a layout on so many ranks; dp follows where it was left out.
fn degrees_of(layout: &Layout, ranks: u32) -> Result<Degrees> {
    let (tp, cp, pp, world) = (u64::from(layout.tp), u64::from(layout.cp), u64::from(layout.pp), u64::from(ranks));
    let others = tp * cp * pp;
    let written = |dp: &str| format!("tp {tp} x cp {cp} x dp {dp} x pp {pp}");
    let dp = match layout.dp {
        Some(dp) if others * u64::from(dp) != world => {
            let needed = others * u64::from(dp);
            let instead = if world.is_multiple_of(others) {
                format!(", or write dp = {}", world / others)
            } else {
                String::new()
            };
            let degrees = written(&dp.to_string());
            return Err(layout
                .place
                .wrong(format!("{degrees} = {needed} ranks, but there are {ranks}; start {needed}{instead}")));
        }
        Some(dp) => dp,
        None if !world.is_multiple_of(others) => {
            let below = world / others * others;
            let nearest = if below == 0 { others.to_string() } else { format!("{below} or {}", below + others) };
            let degrees = written("(what is left)");
            return Err(layout.place.wrong(format!(
                "{degrees} needs a multiple of {others} ranks, but there are {ranks}; nearest: {nearest}"
            )));
        }
        None => (world / others) as u32,
    };
    Ok(Degrees { tp: layout.tp, cp: layout.cp, dp, pp: layout.pp })
}

fn order_of(layout: &Layout) -> Vec<Axis> {
    let all = [Axis::Tp, Axis::Cp, Axis::Ep, Axis::Dp, Axis::Pp];
    layout.order.iter().filter_map(|name| all.into_iter().find(|axis| axis.name() == *name)).collect()
}
