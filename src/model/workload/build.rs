//! Builds the plan of a run: checked files and a number of ranks -> groups and cases.

use super::op::{MOST_CASES, StepUse};
use super::pairs::{MOST_NODES_OF_ALL_PAIRS, PairsAtOnce, cases_of, cases_of_a_round, inside_rounds, pair_rounds};
use super::step::{Step, layout_on, ranks_of};
use super::{Case, Op, RankedStep, StepFacts, WorkPlan, plan, products, sweep};
use crate::config::{Between, LayoutTable, PairsTable, Place, Selection, Suite, Sweep};
use crate::layout::{Axis, Groups, Layout, Nodes};
use commgauge_base::collective::{Collective, Placement};
use commgauge_base::error::{Error, Result};
use commgauge_base::sample::Cadence;
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

    /// The plan of a suite on these nodes: the ops of its models first, then the sweeps, then the pairs. Cases for several nodes are
    /// skipped if there are too few.
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
        let copies = plan::of(&suite.copies, nodes);
        if planner.cases.is_empty() && products.is_empty() && copies.is_empty() {
            let path = suite.path.shown();
            return Err(Error::usage(format!(
                "{path}: nothing to run on {world_size} ranks of {} nodes",
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

    /// The plan of the steps of one layout: every distinct call once.
    ///
    /// # Errors
    /// Degrees that do not fit the ranks or the model, and a layout without communication.
    pub fn from_step(table: &LayoutTable, cadences: &[Cadence], world_size: u32) -> Result<WorkPlan> {
        let mut planner = Planner::default();
        let layout = layout_on(table, world_size)?;
        for step in Step::all_of(table, world_size)? {
            planner.add_step(&step, table, cadences)?;
        }
        if planner.cases.is_empty() {
            return Err(table.place.wrong(format!(
                "on {world_size} ranks as {} no group of the selected styles ({}) has more than one rank, so there is nothing to measure",
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
    /// Cases to repeat on one group alone.
    solo: Vec<usize>,
}

impl Planner {
    fn into_plan(self, layout: Option<String>) -> WorkPlan {
        let models = distinct(self.steps.iter().map(|step| step.model.clone()));
        let model = (!models.is_empty()).then(|| models.join("; "));
        WorkPlan {
            groups: self.groups,
            cases: self.cases,
            model,
            layout,
            steps: self.steps,
            ranking: self.ranking,
            ..WorkPlan::default()
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
            let used = StepUse::of(&op, index as u32, step.micro_batches(), step.group_size(op.axis));
            let modes = MeasurementModes { placements: &placements, cadences, variants: &[Variant::default()] };
            self.add(op, groups, Some(used), modes, &table.place)?;
        }
        Ok(())
    }

    /// Index of the groups, which are created once. Further groups of the same axis get a label.
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
        // The first layout that divides this axis provides the groups; with one rank there is nothing to sweep.
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

    /// Pairs of nodes, all of them or as many as screen them, or all pairs of ranks.
    fn add_pairs(&mut self, pairs: &PairsTable, nodes: &Nodes) -> Result<()> {
        let players: Vec<Vec<u32>> = match pairs.between {
            Between::Nodes => nodes.ranks_of.clone(),
            Between::Ranks => (0..nodes.ranks()).map(|rank| vec![rank]).collect(),
        };
        let inside = if pairs.inside_nodes { nodes.ranks_of.clone() } else { Vec::new() };
        let largest = inside.iter().map(Vec::len).max().unwrap_or(0);
        let are_many = pairs.between == Between::Nodes && players.len() > MOST_NODES_OF_ALL_PAIRS;
        let at_once = match pairs.selection.unwrap_or(if are_many { Selection::Screen } else { Selection::All }) {
            Selection::Screen if !pairs.one_at_a_time => PairsAtOnce::Screened,
            _ => PairsAtOnce::of(pairs.one_at_a_time),
        };
        let inside_cases = cases_of(largest, PairsAtOnce::WholeRound);
        // Counted before anything is created.
        let cases = cases_of(players.len(), at_once) + inside_cases + self.cases.len() as u64;
        sweep::refuse(cases > MOST_CASES as u64, &pairs.place, || {
            let inside = if largest > 0 { format!(" and of the {largest} ranks of a node") } else { String::new() };
            format!("with these pairs of {}{inside} the run has {cases} cases, more than {MOST_CASES}", players.len())
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
        use_: Option<StepUse>,
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

/// The requested placements that the collective supports; all supported ones if none was requested.
fn placements_of(collective: Collective, wanted: &[Placement]) -> Vec<Placement> {
    let offered = collective.placements();
    let both: Vec<_> = offered.iter().copied().filter(|placement| wanted.contains(placement)).collect();
    if both.is_empty() { offered.to_vec() } else { both }
}

#[cfg(test)]
mod tests {
    // Properties of plans: the cases of a suite on a number of ranks, and what is refused.
    use super::*;
    use crate::workload::Style;
    use proptest::strategy::Strategy;
    use std::collections::HashSet;
    use std::fmt::Write;
    use std::path::{Path, PathBuf};

    fn shipped(file: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../suites").join(file)
    }

    /// A suite in the folder of the shipped ones, so that it finds their models.
    fn suite(text: &str) -> Suite {
        Suite::parse(&shipped("test.toml"), text).unwrap()
    }

    fn llama(layout: &str) -> Suite {
        suite(&format!(
            "[model]\npreset = 'llama-3-8b'\n[training]\nsequence = 8192\nglobal_batch = 16\n[layout]\n{layout}\n"
        ))
    }

    fn table(plan: &WorkPlan) -> String {
        let mut text = format!("model {:?}, layout {:?}\n", plan.model, plan.layout);
        for case in plan.cases.iter().filter(|case| case.cadence == Cadence::Streaming) {
            let groups = plan.groups_of(case);
            writeln!(text, "\n{}", case.name()).unwrap();
            writeln!(text, "  groups {:?}", groups.groups).unwrap();
            for used in &case.uses {
                let (count, hidden) = (used.count_per_step, used.overlaps_with.as_deref().unwrap_or("exposed"));
                writeln!(text, "  {} x {count} per step, {hidden}: {}", used.style.name(), used.why).unwrap();
            }
        }
        text
    }

    #[test]
    fn degrees_that_do_not_fit_are_refused_with_the_nearest_that_do() {
        for (layout, ranks, expected) in [
            (
                "tp = 2\ndp = 4",
                4,
                "layout: tp 2 x cp 1 x dp 4 x pp 1 = 8 ranks, but there are 4; start 8, or write dp = 2",
            ),
            ("tp = 2\ndp = 4", 5, "= 8 ranks, but there are 5; start 8"),
            ("tp = 2\npp = 2", 6, "dp (the rest) x pp 2 needs a multiple of 4 ranks, but there are 6; nearest: 4 or 8"),
            ("tp = 2\npp = 2", 2, "needs a multiple of 4 ranks, but there are 2; nearest: 4"),
            (
                "tp = 3",
                3,
                "tp = 3 does not divide the 32 query heads of llama-3-8b (num_attention_heads); nearest that do: 2, 4",
            ),
            (
                "pp = 3",
                3,
                "llama-3-8b: pp = 3 does not divide the 32 layers (num_hidden_layers), nor 34 with embedding and output projection counted as a layer each; nearest that do: 2, 4",
            ),
            ("dp = 3", 3, "16 samples are not a multiple of micro-batch 1 x 3 replicas = 3; nearest: 15, 18"),
            ("dp = 1", 1, "nothing to run on 1 ranks of 1 nodes"),
        ] {
            let error = WorkPlan::from_suite(&llama(layout), ranks).unwrap_err();
            assert!(error.to_string().contains(expected), "{layout}: {error}");
            assert!(error.to_string().contains("test.toml"), "{error}");
            assert_eq!(error.exit_code(), 2, "{error}");
        }
    }

    #[test]
    fn axes_whose_calls_no_list_has_are_refused_for_the_architectures_that_need_them() {
        for (kind, layout, expected) in [
            ("olmo3", "tp = 2", "span all heads, and with tp = 2 their sums cross the ranks"),
            ("minimax_m2", "tp = 2", "accepted: tp = 1"),
            ("deepseek_v32", "cp = 2", "whose traffic with cp = 2 is not modelled; accepted: cp = 1"),
        ] {
            let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/transformers").join(kind);
            let config = config.join("config.json");
            let training = "[training]\nsequence = 2048\nmicro_batches = 2\n[layout]";
            let plan = |layout: &str| {
                let suite = suite(&format!("[model]\nconfig = {:?}\n{training}\n{layout}\n", config.display()));
                WorkPlan::from_suite(&suite, 2)
            };
            let error = plan(layout).unwrap_err();
            assert!(error.to_string().contains(expected) && error.exit_code() == 2, "{kind} {layout}: {error}");
            assert!(!plan("dp = 2").unwrap().cases.is_empty(), "{kind}");
        }
    }

    #[test]
    fn layouts_with_different_groups_of_one_axis_get_separate_cases() {
        let text = "[model]\npreset = 'llama-2-7b'\n[training]\nsequence = 512\nmicro_batches = 2\n[[layout]]\ntp = 2\n[[layout]]\ntp = 4\nstyles = ['tensor']\n";
        let plan = WorkPlan::from_suite(&suite(text), 8).unwrap();
        assert_eq!(plan.layout.as_deref(), Some("tp 2 x dp 4; tp 4 x dp 2"));
        let tensor: Vec<_> = plan.cases.iter().filter(|case| case.op.style == Style::Tensor).collect();
        let sizes: Vec<_> = tensor.iter().map(|case| plan.groups_of(case).group_size()).collect();
        assert_eq!(sizes, [2, 2, 4, 4]);
        assert!(tensor[2].name().starts_with("tp/tp4-dp2/all_reduce/"), "{}", tensor[2].name());
    }

    #[test]
    fn a_call_shared_by_two_steps_is_measured_once_and_lists_both() {
        let text = "[model]\npreset = 'llama-2-7b'\n[training]\nsequence = 512\nmicro_batches = 2\n[[layout]]\ntp = 2\n[[layout]]\ntp = 2\npp = 4\nstyles = ['tensor']\n";
        let plan = WorkPlan::from_suite(&suite(text), 8).unwrap();
        let tensor = plan.cases.iter().find(|case| case.op.style == Style::Tensor).unwrap();
        let steps: Vec<_> = tensor.uses.iter().map(|used| used.step).collect();
        assert_eq!((steps.first(), steps.last()), (Some(&0), Some(&1)));
    }

    #[test]
    fn the_ops_of_llama_3_8b_under_tp_2_and_dp_2() {
        insta::assert_snapshot!(table(&WorkPlan::from_suite(&llama("tp = 2\ndp = 2"), 4).unwrap()));
    }

    #[test]
    fn the_ops_of_llama_3_8b_under_tp_2_and_pp_2() {
        insta::assert_snapshot!(table(&WorkPlan::from_suite(&llama("tp = 2\npp = 2"), 4).unwrap()));
    }

    #[test]
    fn a_reduced_model_of_a_suite_is_named_as_such() {
        let text = "[model]\npreset = 'llama-3-8b'\nlayers = 2\n[training]\nsequence = 512\nmicro_batches = 2\n[layout]\ntp = 2\n";
        let plan = WorkPlan::from_suite(&suite(text), 4).unwrap();
        assert_eq!(plan.model.as_deref(), Some("llama-3-8b (num_hidden_layers 2 of 32)"));
        assert_eq!(plan.cases[0].uses[0].count_per_step, 2 * 2 * 2);
    }

    #[test]
    fn a_sweep_of_an_axis_runs_on_the_groups_of_the_layout() {
        let sweep = "[[sweep]]\naxis = 'pp'\ncollectives = ['send_recv_chain', 'barrier']\nbytes = '1KiB'\n";
        let plan = WorkPlan::from_suite(&suite(&format!("[layout]\npp = 2\n{sweep}")), 4).unwrap();
        assert_eq!(plan.groups_of(&plan.cases[0]).groups, [[0, 2], [1, 3]]);
        assert_eq!(plan.cases.len(), 4);
        let message = WorkPlan::from_suite(&suite(sweep), 4).unwrap_err().to_string();
        assert!(message.contains("sweep[0]: axis pp needs a [[layout]]"), "{message}");
    }

    /// Ranks on which a shipped suite must run.
    fn ranks_of(name: &str) -> &'static [u32] {
        match name {
            "180b-128gpu" => &[128],
            "70b-64gpu" => &[64],
            "codegeex" => &[16, 1536],
            "deepseek-v3" => &[2048],
            "gpt-7.5b-16gpu" => &[16],
            "llama-3-405b-16k" => &[16_384],
            "llama-3-8b" | "serving" | "qualify" | "qualify-host" | "qualify-gpu" => &[4, 8, 64],
            _ => &[2, 4, 8, 64, 16_384],
        }
    }

    #[test]
    fn every_shipped_suite_loads_and_plans_with_unique_names() {
        let mut found = 0;
        for entry in std::fs::read_dir(shipped("")).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|extension| extension != "toml") {
                continue;
            }
            found += 1;
            let suite = Suite::load(&path).unwrap();
            for ranks in ranks_of(&suite.name) {
                let plan = WorkPlan::from_suite(&suite, *ranks).unwrap();
                let names: HashSet<_> = plan.cases.iter().map(Case::name).collect();
                assert_eq!(names.len(), plan.cases.len(), "{} on {ranks}", path.display());
                assert!(plan.cases.iter().all(|case| plan.groups_of(case).group_size() > 0));
            }
        }
        assert!(found >= 10);
    }

    #[test]
    fn the_quick_suite_stays_quick_and_small() {
        let suite = Suite::load(&shipped("quick.toml")).unwrap();
        let plan = WorkPlan::from_suite(&suite, 4).unwrap();
        let estimate = plan.estimated_seconds(&suite.settings);
        assert!(estimate.0 < 45.0, "{estimate}");
        assert_eq!(plan.largest_bytes(), commgauge_base::units::Bytes(25 << 20));
        assert_eq!(plan.layout.as_deref(), Some("tp 2 x dp 2; dp 2 x pp 2; cp 2 x dp 2; dp 4 x ep 2"));
        assert!(WorkPlan::from_suite(&suite, 16_384).is_ok());
        let styles: HashSet<_> = plan.cases.iter().flat_map(|case| case.uses.iter().map(|used| used.style)).collect();
        assert!(Style::OF_A_STEP.iter().all(|style| styles.contains(style)), "every style is in it: {styles:?}");
        let message = WorkPlan::from_suite(&suite, 3).unwrap_err().to_string();
        assert!(message.contains("needs a multiple of 2 ranks, but there are 3; nearest: 2 or 4"), "{message}");
    }

    #[test]
    fn the_examples_of_the_readme_make_a_suite() {
        let readme = std::fs::read_to_string(shipped("README.md")).unwrap();
        let blocks = readme.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
        let plan = WorkPlan::from_suite(&suite(&blocks.collect::<String>()), 4).unwrap();
        assert!(plan.cases.len() > 100 && plan.model.as_deref() == Some("llama-3-8b"), "{}", plan.cases.len());
    }

    proptest::proptest! {
        #[test]
        fn any_numbers_give_a_plan_or_an_error_message(
            degrees in proptest::collection::vec((0u32..4).prop_map(|bits| 1u64 << bits), 4),
            numbers in proptest::collection::vec((0u32..63).prop_map(|bits| 1u64 << bits), 4),
            sequence in 1u64..5000,
        ) {
            let ([tp, dp, pp, cp], [micro, batch, bucket, huge]) = (&degrees[..], &numbers[..]) else { unreachable!() };
            for (cp, tp) in [(&1, tp), (&1, huge), (cp, tp)] {
                let text = format!(
                    "[model]\npreset = 'llama-2-7b'\n[layout]\ntp = {tp}\ncp = {cp}\npp = {pp}\n[training]\nsequence = \
                     {sequence}\nmicro_batch = {micro}\nmicro_batches = {batch}\nbucket_parameters = {bucket}\n"
                );
                let suite = Suite::parse(&shipped("test.toml"), &text);
                let plan = suite.and_then(|suite| WorkPlan::from_suite(&suite, tp.saturating_mul(cp * pp * dp).min(4096) as u32));
                proptest::prop_assert!(plan.is_ok() || plan.unwrap_err().exit_code() == 2);
            }
        }


        #[test]
        fn case_names_are_unique_and_groups_are_there(
            collectives in proptest::sample::subsequence(Collective::ALL.to_vec(), 1..6),
            sizes in proptest::collection::vec(1u64..1 << 20, 1..6),
            ranks in 1u32..9,
        ) {
            let names: Vec<_> = collectives.iter().map(|collective| format!("'{collective}'")).collect();
            let one = format!("[[sweep]]\ncollectives = [{}]\nbytes = {sizes:?}\n", names.join(", "));
            let plan = WorkPlan::from_suite(&suite(&format!("{one}{one}")), ranks).unwrap();
            let unique: HashSet<_> = plan.cases.iter().map(Case::name).collect();
            proptest::prop_assert_eq!(unique.len(), plan.cases.len());
        }
    }
}
