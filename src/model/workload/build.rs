//! Makes the plan of a run: checked files and a number of ranks -> groups and cases.

use super::case::{MOST_CASES, Use};
use super::pairs::{PairsAtOnce, cases_of, cases_of_a_round, inside_rounds, pair_rounds};
use super::step::{Step, layout_on, ranks_of};
use super::{Case, Op, RankedStep, StepFacts, WorkPlan, copies, products, sweep};
use crate::config::{Between, LayoutTable, PairsTable, Place, Suite, Sweep};
use crate::layout::{Axis, Groups, Layout, Nodes};
use commgauge_base::collective::{Collective, Placement};
use commgauge_base::error::{Error, Result};
use commgauge_base::sample::Cadence;
use commgauge_base::units::Bytes;
use commgauge_base::variant::Variant;
use commgauge_base::visible::ShownPath;
use std::collections::HashMap;

impl WorkPlan {
    /// The plan of a suite on `world_size` ranks of one node: see [`WorkPlan::from_suite_on`].
    ///
    /// # Errors
    /// As [`WorkPlan::from_suite_on`].
    pub fn from_suite(suite: &Suite, world_size: u32) -> Result<WorkPlan> {
        WorkPlan::from_suite_on(suite, &Nodes::single(world_size))
    }

    /// The plan of a suite on these nodes: the ops of its models first, then the sweeps, then the pairs. Cases for
    /// several nodes are left out if there are too few.
    ///
    /// # Errors
    /// Usage errors that name file, line and key: degrees that do not fit the ranks or the model, roots outside their
    /// group, too many cases, or none.
    pub fn from_suite_on(suite: &Suite, nodes: &Nodes) -> Result<WorkPlan> {
        let world_size = nodes.ranks();
        let mut planner = Planner::default();
        let mut layouts = Vec::new();
        for table in &suite.layouts {
            layouts.push(layout_on(table, world_size)?);
            for step in Step::all_of(table, world_size)? {
                planner.add_step(&step, table, &suite.cadences)?;
            }
        }
        if let Some(table) = &suite.ranking {
            planner.add_ranking(table, world_size)?;
        }
        for sweep in &suite.sweeps {
            planner.sweep_on(sweep, &layouts, nodes)?;
        }
        if let Some(pairs) = &suite.pairs {
            planner.add_pairs(pairs, nodes)?;
        }
        let products = products::of(&suite.compute)?;
        let copies = copies::of(&suite.copies, nodes);
        if planner.cases.is_empty() && products.is_empty() && copies.is_empty() {
            let path = suite.path.shown();
            return Err(Error::usage(format!(
                "{path}: on {world_size} ranks of {} nodes there is nothing to run in this suite",
                nodes.count()
            )));
        }
        let names = distinct(layouts.iter().map(|layout| layout.degrees.name()));
        let mut solo = std::mem::take(&mut planner.solo);
        solo.sort_unstable();
        solo.dedup();
        let mut plan =
            WorkPlan { products, copies, ..planner.into_plan((!names.is_empty()).then(|| names.join("; "))) };
        plan.add_solo(&solo);
        if let Some(sweep) = suite.sweeps.iter().find(|sweep| sweep.solo && plan.cases.len() > MOST_CASES) {
            return Err(sweep
                .place
                .wrong(format!("with solo the run has {} cases, more than {MOST_CASES}", plan.cases.len())));
        }
        Ok(plan)
    }

    /// The plan of the steps of one layout: every distinct call of them once.
    ///
    /// # Errors
    /// Degrees that do not fit the ranks or the model, and a layout in which nothing is communicated.
    pub fn from_step(table: &LayoutTable, cadences: &[Cadence], world_size: u32) -> Result<WorkPlan> {
        let mut planner = Planner::default();
        let layout = layout_on(table, world_size)?;
        for step in Step::all_of(table, world_size)? {
            planner.add_step(&step, table, cadences)?;
        }
        if planner.cases.is_empty() {
            return Err(table.place.wrong(format!(
                "on {world_size} ranks as {} no group of the wanted styles ({}) has more than one rank, so there is nothing to measure",
                layout.degrees.name(),
                table.styles.join(", ")
            )));
        }
        Ok(planner.into_plan(Some(layout.degrees.name())))
    }

    /// The plan of one sweep on the whole world.
    ///
    /// # Errors
    /// Roots or splits that do not fit the ranks, or too many cases.
    pub fn from_sweep(sweep: &Sweep, world_size: u32) -> Result<WorkPlan> {
        let mut planner = Planner::default();
        planner.add_sweep(sweep, Groups::world(world_size))?;
        Ok(planner.into_plan(None))
    }
}

#[derive(Default)]
struct Planner {
    groups: Vec<Groups>,
    labels: Vec<String>,
    cases: Vec<Case>,
    index_by_name: HashMap<String, usize>,
    steps: Vec<StepFacts>,
    ranking: Option<RankedStep>,
    /// Cases that are to come once more on one group alone.
    solo: Vec<usize>,
}

impl Planner {
    fn into_plan(self, layout: Option<String>) -> WorkPlan {
        let models = distinct(self.steps.iter().map(|step| step.model.clone()));
        let model = (!models.is_empty()).then(|| models.join("; "));
        WorkPlan {
            groups: self.groups,
            cases: self.cases,
            products: Vec::new(),
            copies: Vec::new(),
            model,
            layout,
            steps: self.steps,
            ranking: self.ranking,
        }
    }

    /// The cases for ranking a layout: its step if the ranks suffice, with more replicas on more ranks; else every
    /// call of it separately, in the largest possible groups.
    fn add_ranking(&mut self, table: &LayoutTable, world_size: u32) -> Result<()> {
        let filled = LayoutTable { dp: None, ..table.clone() };
        let fits = |layout: &Layout| table.dp.is_some_and(|dp| layout.degrees.dp >= dp);
        if layout_on(&filled, world_size).is_ok_and(|layout| fits(&layout)) {
            for step in Step::all_of(&filled, world_size)? {
                self.add_step(&step, &filled, &[Cadence::Streaming])?;
            }
            return Ok(());
        }
        let ranks = ranks_of(table)?.unwrap_or(world_size);
        for step in Step::all_of(table, ranks)? {
            let Step::Training(training) = &step else { continue };
            let placements = training.training.placements.clone();
            let ranked = RankedStep::of(&step, |style| table.styles.contains(&style.name()))?;
            for call in &ranked.calls {
                for (group_size, bytes) in call.measured_as(world_size) {
                    let groups = self.use_named_groups(call.groups(group_size, world_size), || "apart".to_owned());
                    let modes = MeasurementModes {
                        placements: &placements,
                        cadences: &[Cadence::Streaming],
                        variants: &[Variant::default()],
                    };
                    self.add(Op { bytes_total: bytes, ..call.op() }, groups, None, modes, &table.place)?;
                }
            }
            self.ranking = Some(ranked);
        }
        Ok(())
    }

    /// The cases of the wanted styles of a step.
    fn add_step(&mut self, step: &Step, table: &LayoutTable, cadences: &[Cadence]) -> Result<()> {
        let ops = step.ops(|style| table.styles.contains(&style.name()))?.ops;
        if ops.is_empty() {
            return Ok(());
        }
        let index = self.steps.len();
        self.steps.push(StepFacts::of(step));
        let placements = match step {
            Step::Training(step) => step.training.placements.clone(),
            Step::Serving(_) => vec![Placement::InPlace],
        };
        for op in ops {
            let groups = self.use_groups(step.layout().groups(op.axis), step.layout());
            let count_per_step = op.when.count_per_step(step.micro_batches()).unwrap_or(0);
            // The totals of the step were checked, so this fits.
            let wire_bytes = op.wire_bytes(step.group_size(op.axis), count_per_step).unwrap_or(u64::MAX);
            let use_ = Use {
                step: index,
                style: op.style,
                when: op.when,
                count_per_step,
                wire_bytes_per_step: Bytes(wire_bytes),
                overlap: op.overlap,
                why: op.why.clone(),
            };
            let modes = MeasurementModes { placements: &placements, cadences, variants: &[Variant::default()] };
            self.add(op, groups, Some(use_), modes, &table.place)?;
        }
        Ok(())
    }

    /// Index of the groups, which are created once. Further ones of the same axis get a label.
    fn use_groups(&mut self, groups: Groups, layout: &Layout) -> usize {
        self.use_named_groups(groups, || layout.degrees.name().replace(" x ", "-").replace(' ', ""))
    }

    fn use_named_groups(&mut self, groups: Groups, name: impl Fn() -> String) -> usize {
        if let Some(known) = self.groups.iter().position(|known| *known == groups) {
            return known;
        }
        let others = self.groups.iter().filter(|known| known.axis == groups.axis).count();
        let name = name();
        self.labels.push(match others {
            0 => String::new(),
            _ if self.labels.contains(&name) => format!("{name}-{others}"),
            _ => name,
        });
        self.groups.push(groups);
        self.groups.len() - 1
    }

    fn sweep_on(&mut self, sweep: &Sweep, layouts: &[Layout], nodes: &Nodes) -> Result<()> {
        let Some(axis) = Axis::named(sweep.axis) else { return self.sweep_over_places(sweep, nodes) };
        match axis {
            Axis::World => return self.add_sweep(sweep, Groups::world(nodes.ranks())),
            // A sweep needs more than one rank.
            Axis::Node if nodes.ranks_on_each() < 2 => return Ok(()),
            Axis::Node => return self.add_sweep(sweep, nodes.inside()),
            Axis::Nodes => {
                let mut growing = nodes.growing().into_iter();
                return growing
                    .try_for_each(|count| self.add_labelled(sweep, nodes.together(count), &format!("of-{count}")));
            }
            _ => {}
        }
        if layouts.is_empty() {
            return Err(sweep.place.wrong(format!("axis {axis} needs a [[layout]] that divides it")));
        }
        // The first layout that divides this axis has the groups; of one rank nothing can be swept.
        match layouts.iter().find(|layout| layout.group_size(axis) > 1) {
            Some(layout) => self.add_sweep(sweep, layout.groups(axis)),
            None => Ok(()),
        }
    }

    /// Groups of every size inside the nodes, and across growing numbers of nodes with every number of ranks of each.
    fn sweep_over_places(&mut self, sweep: &Sweep, nodes: &Nodes) -> Result<()> {
        let whole = nodes.ranks_on_each();
        for ranks in nodes.group_sizes_inside() {
            let label = if ranks == whole { String::new() } else { format!("by-{ranks}") };
            self.add_labelled(sweep, nodes.inside_by(ranks), &label)?;
        }
        for count in nodes.growing() {
            for ranks in std::iter::once(1).chain(nodes.group_sizes_inside()) {
                let label = if ranks == whole { format!("of-{count}") } else { format!("of-{count}-by-{ranks}") };
                self.add_labelled(sweep, nodes.across(count, ranks), &label)?;
            }
        }
        Ok(())
    }

    /// Every two nodes, or every two ranks.
    fn add_pairs(&mut self, pairs: &PairsTable, nodes: &Nodes) -> Result<()> {
        let players: Vec<Vec<u32>> = match pairs.between {
            Between::Nodes => nodes.ranks_of().to_vec(),
            Between::Ranks => (0..nodes.ranks()).map(|rank| vec![rank]).collect(),
        };
        let inside = if pairs.inside_nodes { nodes.ranks_of().to_vec() } else { Vec::new() };
        let largest = inside.iter().map(Vec::len).max().unwrap_or(0);
        let at_once = PairsAtOnce::of(pairs.one_at_a_time);
        let inside_cases = cases_of(largest, PairsAtOnce::WholeRound);
        // Counted before anything is made.
        let cases = cases_of(players.len(), at_once) + inside_cases + self.cases.len() as u64;
        sweep::refuse(cases > MOST_CASES as u64, &pairs.place, || {
            let inside = if largest > 0 { format!(" and of the {largest} ranks of a node") } else { String::new() };
            format!("with all pairs of {}{inside} the run has {cases} cases, more than {MOST_CASES}", players.len())
        })?;
        for (label, groups) in inside_rounds(&inside).into_iter().chain(pair_rounds(&players, at_once)) {
            self.groups.push(groups);
            self.labels.push(label.clone());
            let (latency, bandwidth) = (pairs.latency_bytes, pairs.bandwidth_bytes);
            self.cases.extend(cases_of_a_round(self.groups.len() - 1, &label, latency, bandwidth));
        }
        Ok(())
    }

    fn add_sweep(&mut self, sweep: &Sweep, groups: Groups) -> Result<()> {
        self.add_labelled(sweep, groups, "")
    }

    fn add_labelled(&mut self, sweep: &Sweep, groups: Groups, label: &str) -> Result<()> {
        let ops = sweep::ops(sweep, groups.axis, groups.group_size(), MOST_CASES)?;
        let known = self.groups.iter().position(|known| *known == groups);
        let index = known.unwrap_or_else(|| {
            self.groups.push(groups);
            self.labels.push(label.to_owned());
            self.groups.len() - 1
        });
        let variants = sweep.variants.all();
        let modes = MeasurementModes { placements: &sweep.placements, cadences: &sweep.cadences, variants: &variants };
        for op in ops {
            let cases = self.add(op, index, None, modes, &sweep.place)?;
            if sweep.solo {
                self.solo.extend(cases);
            }
        }
        Ok(())
    }

    /// Adds the cases of an op, and returns their indices. An existing case is run once, and gets one more use.
    fn add(
        &mut self,
        op: Op,
        groups: usize,
        use_: Option<Use>,
        modes: MeasurementModes,
        place: &Place,
    ) -> Result<Vec<usize>> {
        let mut indices = Vec::new();
        for placement in placements_of(op.collective, modes.placements) {
            for (&cadence, &variant) in modes.cadences.iter().flat_map(|c| modes.variants.iter().map(move |v| (c, v))) {
                let variant = variant.resolved(cadence);
                let groups_label = self.labels[groups].clone();
                let uses = use_.iter().cloned().collect();
                let case =
                    Case { op: op.clone(), groups, groups_label, placement, cadence, variant, uses, solo_of: None };
                let name = case.name();
                if let Some(index) = self.index_by_name.get(&name) {
                    self.cases[*index].uses.extend(use_.iter().cloned());
                    indices.push(*index);
                    continue;
                }
                sweep::refuse(self.cases.len() == MOST_CASES, place, || {
                    format!("brings the run above {MOST_CASES} cases; divide it into several suites")
                })?;
                self.index_by_name.insert(name, self.cases.len());
                indices.push(self.cases.len());
                self.cases.push(case);
            }
        }
        Ok(indices)
    }
}

/// The modes in which each op of a table is measured.
#[derive(Clone, Copy)]
struct MeasurementModes<'a> {
    placements: &'a [Placement],
    cadences: &'a [Cadence],
    variants: &'a [Variant],
}

/// Each name once, in the order of first appearance.
fn distinct(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut once: Vec<String> = Vec::new();
    for name in names.filter(|name| !name.is_empty()) {
        if !once.contains(&name) {
            once.push(name);
        }
    }
    once
}

/// The wanted placements that the collective supports; all that it supports if none was wanted.
fn placements_of(collective: Collective, wanted: &[Placement]) -> Vec<Placement> {
    let offered = collective.placements();
    let both: Vec<_> = offered.iter().copied().filter(|placement| wanted.contains(placement)).collect();
    if both.is_empty() { offered.to_vec() } else { both }
}

#[cfg(test)]
#[path = "build_tests.rs"]
mod tests;
