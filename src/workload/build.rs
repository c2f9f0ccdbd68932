//! Makes the plan of a run: checked files and a number of ranks -> groups and cases.

use super::degrees::{degrees_of, layout_name, order_of};
use super::training_step::TrainingStep;
use super::{Case, Op, Style, WorkPlan, data, pipeline, sweep, tensor};
use crate::collective::{Collective, Placement};
use crate::config::{Place, Suite, Sweep};
use crate::error::{Error, Result};
use crate::layout::{Axis, Groups};
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::strategy::Strategy;
    use std::collections::HashSet;
    use std::fmt::Write;
    use std::path::{Path, PathBuf};

    fn shipped(file: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("suites").join(file)
    }

    /// A suite that lies beside the shipped ones, so that it finds their models.
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
            let groups = plan.groups_of(case.op.axis);
            writeln!(text, "\n{}", case.name()).unwrap();
            writeln!(text, "  groups {:?}", groups.groups).unwrap();
            writeln!(text, "  calls per step {:?}", case.op.count_per_step).unwrap();
            writeln!(text, "  {}", case.op.why).unwrap();
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
            (
                "tp = 2\npp = 2",
                6,
                "dp (what is left) x pp 2 needs a multiple of 4 ranks, but there are 6; nearest: 4 or 8",
            ),
            ("tp = 2\npp = 2", 2, "needs a multiple of 4 ranks, but there are 2; nearest: 4"),
            (
                "tp = 3",
                3,
                "tp = 3 does not divide the 32 query heads of llama-3-8b (num_attention_heads); those that do: 1, 2, 4",
            ),
            (
                "pp = 3",
                3,
                "pp = 3 does not divide the 32 layers of llama-3-8b (num_hidden_layers); those that do: 1, 2, 4, 8, 16, 32",
            ),
            ("cp = 2", 2, "context parallelism is not offered yet"),
            ("dp = 3", 3, "16 samples are no multiple of micro-batch 1 x 3 replicas = 3; nearest: 15, 18"),
            ("dp = 1", 1, "on 1 ranks there is nothing to run"),
        ] {
            let error = WorkPlan::from_suite(&llama(layout), ranks).unwrap_err();
            assert!(error.to_string().contains(expected), "{layout}: {error}");
            assert!(error.to_string().contains("test.toml"), "{error}");
            assert_eq!(error.exit_code(), 2, "{error}");
        }
    }

    #[test]
    fn two_layouts_that_want_different_groups_of_one_axis_are_refused() {
        let both = |second: &str| {
            let text = "[model]\npreset = 'llama-2-7b'\n[training]\nsequence = 512\nmicro_batches = 2\n[[layout]]\ntp = 2\n[[layout]]\n";
            WorkPlan::from_suite(&suite(&format!("{text}{second}\n")), 8)
        };
        let message = both("tp = 4").unwrap_err().to_string();
        assert!(message.contains("layout[1]: the groups of tp have 4 ranks here and 2 in another layout"), "{message}");
        let plan = both("tp = 2\npp = 4\nstyles = ['tensor', 'pipeline']").unwrap();
        assert_eq!(plan.layout.as_deref(), Some("tp 2 x dp 4; tp 2 x pp 4"));
        let tensor = plan.cases.iter().find(|case| case.op.style == Style::Tensor).unwrap();
        assert!(tensor.op.why.contains("; also tp 2 x pp 4: "), "{}", tensor.op.why);
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
    fn gradients_say_what_the_rank_holds() {
        let text = "[model]\npreset = 'gpt2'\n[training]\nsequence = 512\nmicro_batches = 2\n[layout]\npp = 2\n";
        let plan = WorkPlan::from_suite(&suite(text), 4).unwrap();
        let data: Vec<_> = plan.cases.iter().filter(|case| case.op.style == Style::Data).collect();
        // Six layers of 7,087,872, then 50,304 words and 1,024 positions of 768 each: 2 buckets and a rest.
        let held: u64 = 6 * 7_087_872 + (50_304 + 1_024) * 768;
        let bytes: Vec<_> = data.iter().map(|case| case.op.bytes_total.0).step_by(2).collect();
        assert_eq!(bytes, [160_000_000, 4 * (held - 80_000_000)]);
        assert_eq!(data[0].op.count_per_step, Some(2));
        for said in ["vocabulary padded from 50257 to 50304", "counted for the first stage", &held.to_string()] {
            assert!(data[0].op.why.contains(said), "{}", data[0].op.why);
        }
    }

    #[test]
    fn what_a_suite_leaves_out_of_the_model_is_in_its_name() {
        let text = "[model]\npreset = 'llama-3-8b'\nlayers = 2\n[training]\nsequence = 512\nmicro_batches = 2\n[layout]\ntp = 2\n";
        let plan = WorkPlan::from_suite(&suite(text), 4).unwrap();
        assert_eq!(plan.model.as_deref(), Some("llama-3-8b (num_hidden_layers 2 of 32)"));
        assert_eq!(plan.cases[0].op.count_per_step, Some(2 * (4 * 2 + 2)));
    }

    #[test]
    fn a_sweep_of_an_axis_runs_on_the_groups_of_the_layout() {
        let sweep = "[[sweep]]\naxis = 'pp'\ncollectives = ['send_recv_chain', 'barrier']\nbytes = '1KiB'\n";
        let plan = WorkPlan::from_suite(&suite(&format!("[layout]\npp = 2\n{sweep}")), 4).unwrap();
        assert_eq!(plan.groups_of(Axis::Pp).groups, [[0, 2], [1, 3]]);
        assert_eq!(plan.cases.len(), 4);
        let message = WorkPlan::from_suite(&suite(sweep), 4).unwrap_err().to_string();
        assert!(message.contains("sweep[0]: axis pp needs a [layout]"), "{message}");
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
            for ranks in [2, 4, 8, 64] {
                let plan = WorkPlan::from_suite(&suite, ranks).unwrap();
                let names: HashSet<_> = plan.cases.iter().map(Case::name).collect();
                assert_eq!(names.len(), plan.cases.len(), "{} on {ranks}", path.display());
                assert!(plan.cases.iter().all(|case| plan.groups_of(case.op.axis).group_size() > 0));
            }
        }
        assert!(found >= 2);
    }

    #[test]
    fn the_quick_suite_stays_quick_and_small() {
        let suite = Suite::load(&shipped("quick.toml")).unwrap();
        let plan = WorkPlan::from_suite(&suite, 4).unwrap();
        let estimate = plan.estimated_seconds(&suite.settings);
        assert!(estimate.0 < 45.0, "{estimate}");
        assert_eq!(plan.largest_bytes(), crate::units::Bytes(25 << 20));
        assert_eq!(plan.layout.as_deref(), Some("tp 2 x dp 2; dp 2 x pp 2"));
        assert!(WorkPlan::from_suite(&suite, 16_384).is_ok());
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
        fn whatever_numbers_are_written_there_is_a_plan_or_a_message(
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
