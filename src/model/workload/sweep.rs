//! The ops of a sweep: every combination of its lists that the collectives support.

use super::op::{MOST_CASES, Op, Style};
use super::{Case, WorkPlan};
use crate::config::{Place, Roots, Sweep};
use crate::layout::Axis;
use commgauge_base::collective::{Collective, ReduceOp};
use commgauge_base::element::ElementType;
use commgauge_base::error::{Error, Result};
use commgauge_base::geometry::Splits;
use commgauge_base::units::Bytes;
use commgauge_base::variant::{Variant, Variants};

/// The ops on groups of `ranks` ranks of an axis, at most `most`.
///
/// # Errors
/// A root outside the group, splits for another number of ranks, or more than `most` ops.
pub(super) fn ops(sweep: &Sweep, axis: Axis, ranks: u32, most: usize) -> Result<Vec<Op>> {
    check(sweep, ranks)?;
    let mut ops = Vec::new();
    for &collective in &sweep.collectives {
        let reduce_ops =
            if collective.reduces() { sweep.reduce_ops.iter().copied().map(Some).collect() } else { vec![None] };
        let roots = if collective.has_root() { roots_of(sweep, ranks) } else { vec![0] };
        let splits = if collective.has_splits() { sweep.splits.clone() } else { vec![Splits::Equal] };
        let sizes = if collective == Collective::Barrier { vec![Bytes(0)] } else { sweep.bytes.clone() };
        // A barrier has no elements, so one type suffices.
        let elements = if collective == Collective::Barrier { &sweep.element_types[..1] } else { &sweep.element_types };
        let combinations = [elements.len(), reduce_ops.len(), roots.len(), splits.len(), sizes.len()];
        let count = combinations.iter().try_fold(1usize, |product, length| product.checked_mul(*length));
        refuse(count.is_none_or(|count| ops.len() + count > most), &sweep.place, || {
            format!("gives more than {most} cases; use fewer sizes, element types, operations or roots")
        })?;
        for &element in elements {
            for &reduce_op in &reduce_ops {
                for &root in &roots {
                    for splits in &splits {
                        for &bytes_total in &sizes {
                            ops.push(Op {
                                reduce_op,
                                root,
                                splits: splits.clone(),
                                ..Op::new(Style::Sweep, axis, collective, element, bytes_total.0)
                            });
                        }
                    }
                }
            }
        }
    }
    Ok(ops)
}

/// A usage error at a place if a condition is true.
pub(super) fn refuse(condition: bool, place: &Place, problem: impl FnOnce() -> String) -> Result<()> {
    if condition { Err(place.wrong(problem())) } else { Ok(()) }
}

fn check(sweep: &Sweep, ranks: u32) -> Result<()> {
    if let Roots::These(roots) = &sweep.roots
        && sweep.collectives.iter().any(|collective| collective.has_root())
        && let Some(root) = roots.iter().find(|root| **root >= ranks)
    {
        let last = ranks.saturating_sub(1);
        return Err(sweep.roots_place.wrong(format!(
            "found root {root}; on axis {} a group has {ranks} ranks, accepted: 0 to {last}, or all",
            sweep.axis
        )));
    }
    if !sweep.collectives.iter().any(|collective| collective.has_splits()) {
        return Ok(());
    }
    for splits in &sweep.splits {
        if let Splits::Routed(routed) = splits {
            routed.check(ranks).map_err(|problem| sweep.place.wrong(problem))?;
            refuse(!sweep.collectives.contains(&Collective::AllToAllV), &sweep.place, || {
                "routed splits apply to all_to_all_v, which is not among the collectives".to_owned()
            })?;
        }
        let given = if let Splits::Given(weights) = splits { weights.len() } else { ranks as usize };
        refuse(given != ranks as usize, &sweep.place, || {
            format!("the splits name {given} ranks; on axis {} a group has {ranks}", sweep.axis)
        })?;
    }
    Ok(())
}

fn roots_of(sweep: &Sweep, ranks: u32) -> Vec<u32> {
    match &sweep.roots {
        Roots::All => (0..ranks).collect(),
        Roots::These(roots) => roots.clone(),
    }
}

// A whole plan in several variants, from flags that apply to every case of a launch.

impl WorkPlan {
    /// The same plan with every case once in each variant.
    ///
    /// # Errors
    /// Usage errors: if a suite varies the same property itself, and if there are too many cases.
    pub fn in_variants(mut self, variants: &Variants) -> Result<WorkPlan> {
        let named = variants.named();
        let varies = |what: &str| self.cases.iter().any(|case| case.variant.labels().contains_key(what));
        if let Some(twice) = named.iter().find(|what| varies(what)) {
            let flag = twice.replace('_', "-");
            return Err(Error::usage(format!("--{flag}: the suite varies `{twice}` itself; remove one of the two")));
        }
        let all = variants.all();
        if self.cases.len().saturating_mul(variants.count()) > MOST_CASES {
            return Err(Error::usage(format!(
                "{} cases in {} variants exceed {MOST_CASES}; use fewer",
                self.cases.len(),
                all.len()
            )));
        }
        let each = all.len();
        let varied = |(number, variant): (usize, &Variant), case: &Case| Case {
            variant: combined(case.variant, *variant).resolved(case.cadence),
            solo_of: case.solo_of.map(|index| index * each + number),
            ..case.clone()
        };
        self.cases = (self.cases.iter())
            .flat_map(|case| all.iter().enumerate().map(move |numbered| varied(numbered, case)))
            .collect();
        Ok(self)
    }
}

/// The variant of a case: the settings of the suite, and the flags for the rest.
fn combined(of_suite: Variant, of_flags: Variant) -> Variant {
    let usual = Variant::default();
    Variant {
        buffers: if of_suite.buffers == usual.buffers { of_flags.buffers } else { of_suite.buffers },
        submit: if of_suite.submit == usual.submit { of_flags.submit } else { of_suite.submit },
        aggregate: if of_suite.aggregate == usual.aggregate { of_flags.aggregate } else { of_suite.aggregate },
        max_ctas: of_suite.max_ctas.or(of_flags.max_ctas),
    }
}

// Reductions that only NCCL can execute: eight-bit floats, and sums with a premultiplied scalar.

/// Why only NCCL executes an op; `None` if others do too.
pub fn nccl_only_reason(op: &Op) -> Option<String> {
    if !op.collective.reduces() {
        return None;
    }
    if op.reduce_op == Some(ReduceOp::PreMulSum) {
        return Some(format!(
            "{} with mulsum is an NCCL operation (ncclRedOpCreatePreMulSum); use --backend nccl",
            op.collective
        ));
    }
    let others = || ElementType::ALL.into_iter().filter(|element| !element.moves_only()).map(ElementType::name);
    op.element.moves_only().then(|| {
        format!(
            "{} cannot reduce {} on host memory, which can only move it; --backend nccl reduces it from NCCL 2.24 and compute \
             capability 9.0 on. Accepted here: {}",
            op.collective,
            op.element,
            others().collect::<Vec<_>>().join(", ")
        )
    })
}

impl WorkPlan {
    /// Refuses a plan if no case of it can run on any other backend than NCCL.
    ///
    /// # Errors
    /// A usage error that names the feature only NCCL has.
    pub fn ensure_portable(&self) -> Result<()> {
        let mut reasons = self.cases.iter().map(|case| nccl_only_reason(&case.op));
        match reasons.next().flatten() {
            Some(first)
                if self.products.is_empty() && self.copies.is_empty() && reasons.all(|reason| reason.is_some()) =>
            {
                Err(Error::usage(first))
            }
            _ => Ok(()),
        }
    }
}

// The curves of a plan: cases that differ only in size, and further cases of the same curve. The next size is chosen
// elsewhere.

impl WorkPlan {
    /// The cases of sweeps by curve, each as indices in the plan, in order of first appearance. Barriers have no size, and with uneven
    /// blocks the time does not follow the size alone, so neither is a curve; nor is a single size.
    pub fn curves(&self) -> Vec<Vec<usize>> {
        let mut curves: Vec<Vec<usize>> = Vec::new();
        for (index, case) in self.cases.iter().enumerate().filter(|(_, case)| has_curve(case)) {
            let is_like = |first: &Case| first.with_bytes(case.op.bytes_total) == *case;
            match curves.iter_mut().find(|curve| is_like(&self.cases[curve[0]])) {
                Some(curve) => curve.push(index),
                None => curves.push(vec![index]),
            }
        }
        curves.retain(|curve| curve.len() >= 2);
        curves
    }
}

impl Case {
    /// The same call at another size.
    pub fn with_bytes(&self, bytes_total: Bytes) -> Case {
        let mut case = self.clone();
        case.op.bytes_total = bytes_total;
        case
    }
}

fn has_curve(case: &Case) -> bool {
    case.op.style == Style::Sweep
        && case.op.bytes_total.0 > 0
        && case.op.splits == Splits::Equal
        && case.uses.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{BOTH_CADENCES, Suite};
    use commgauge_base::collective::ReduceOp;
    use commgauge_base::element::ElementType;
    use commgauge_base::variant::{Buffers, Submit};
    use std::collections::HashSet;
    use std::path::Path;

    fn sweep(collectives: &[Collective]) -> Sweep {
        Sweep {
            place: Place::flag("sweep"),
            roots_place: Place::flag("--root"),
            axis: "world",
            collectives: collectives.to_vec(),
            element_types: vec![ElementType::Float32, ElementType::Int8],
            reduce_ops: vec![ReduceOp::Sum, ReduceOp::Max],
            roots: Roots::All,
            bytes: vec![Bytes(1024), Bytes(2048)],
            placements: Vec::new(),
            splits: vec![Splits::Equal, Splits::Skewed { exponent: 1.0 }],
            cadences: BOTH_CADENCES.to_vec(),
            variants: commgauge_base::variant::Variants::default(),
            solo: false,
        }
    }

    #[test]
    fn lists_multiply_only_where_they_apply() {
        for (collective, expected) in [
            (Collective::AllGather, 2 * 2),
            (Collective::AllReduce, 2 * 2 * 2),
            (Collective::Broadcast, 2 * 4 * 2),
            (Collective::Reduce, 2 * 2 * 4 * 2),
            (Collective::AllGatherV, 2 * 2 * 2),
            (Collective::Barrier, 1),
        ] {
            assert_eq!(ops(&sweep(&[collective]), Axis::World, 4, 1000).unwrap().len(), expected, "{collective}");
        }
    }

    #[test]
    fn sweeps_that_do_not_fit_the_group_are_refused() {
        let mut rooted = sweep(&[Collective::Broadcast]);
        rooted.roots = Roots::These(vec![0, 4]);
        let message = ops(&rooted, Axis::World, 4, 1000).unwrap_err().to_string();
        assert_eq!(message, "--root: found root 4; on axis world a group has 4 ranks, accepted: 0 to 3, or all");
        let mut given = sweep(&[Collective::AllToAllV]);
        given.splits = vec![Splits::Given(vec![1, 2])];
        assert!(ops(&given, Axis::World, 4, 1000).unwrap_err().to_string().contains("the splits name 2 ranks"));
        for (collective, routed, expected) in [
            (
                Collective::AllToAllV,
                "routed:random,experts=6,k=2",
                "6 experts do not divide evenly over 4 ranks; nearest that do: 4 or 8",
            ),
            (Collective::AllGatherV, "routed:random,experts=8,k=2", "routed splits apply to all_to_all_v"),
        ] {
            let mut sweep = sweep(&[collective]);
            sweep.splits = vec![crate::config::parse_splits(routed).unwrap()];
            assert!(ops(&sweep, Axis::World, 4, 1000).unwrap_err().to_string().contains(expected), "{routed}");
        }
        let message = ops(&sweep(&[Collective::Reduce]), Axis::World, 4, 31).unwrap_err().to_string();
        assert!(message.contains("more than 31 cases"), "{message}");
    }

    const SWEEP: &str = "[[sweep]]\ncollectives = 'all_reduce'\nbytes = '1KiB'\nplacements = 'in-place'\n";

    fn plan(more: &str) -> Result<WorkPlan> {
        WorkPlan::from_suite(&Suite::parse(Path::new("test.toml"), &format!("{SWEEP}{more}"))?, 4)
    }

    fn flags() -> Variants {
        Variants { buffers: vec![Buffers::Plain, Buffers::Symmetric], ..Variants::default() }
    }

    #[test]
    fn contradictory_suite_settings_are_refused_with_their_place() {
        for (more, words) in [
            ("buffers = 'pinned'", "test.toml:5: sweep[0].buffers"),
            ("submit = ['graph:5000']", "graph:CALLS with 1 to 1024"),
            ("aggregate = [0]", "1 to 64"),
            ("max_ctas = 'most'", "1 to 64 thread blocks, or any"),
            ("buffers = []", "found an empty list"),
        ] {
            let error = plan(more).unwrap_err();
            assert_eq!(error.exit_code(), 2);
            assert!(error.to_string().contains(words), "{error}");
        }
        let error = plan("buffers = ['plain', 'registered']").unwrap().in_variants(&flags()).unwrap_err();
        assert!(error.to_string().contains("--buffers: the suite varies `buffers` itself"), "{error}");
    }

    #[test]
    fn lists_of_a_suite_and_of_flags_multiply_and_case_names_are_unique() {
        let usual = plan("").unwrap();
        assert_eq!(usual.clone().in_variants(&Variants::default()).unwrap(), usual);
        let varied = plan("submit = ['stream', 'graph']\naggregate = [1, 8]\nmax_ctas = ['any', 2]").unwrap();
        assert_eq!(varied.cases.len(), 2 * 8, "both cadences");
        let all = varied.in_variants(&flags()).unwrap();
        let names: HashSet<String> = all.cases.iter().map(Case::name).collect();
        assert_eq!((all.cases.len(), names.len()), (32, 32));
        for name in [
            "world/all_reduce/sum/float32/1024/in-place/streaming",
            "world/all_reduce/sum/float32/1024/in-place/streaming/symmetric/graph-20/aggregate-8/max-ctas-2",
            "world/all_reduce/sum/float32/1024/in-place/isolated/graph-1",
        ] {
            assert!(names.contains(name), "{name} in {names:?}");
        }
        assert!(all.cases.iter().all(|case| case.variant.submit != Submit::Graph(None)));
    }

    #[test]
    fn a_single_group_is_compared_with_all_groups_in_the_same_variant() {
        let text = "[model]\npreset = 'llama-2-7b'\nlayers = 4\n[training]\nsequence = 512\nmicro_batches = 2\n[layout]\ntp = 2\n";
        let suites = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../suites/test.toml");
        let plan = WorkPlan::from_suite(&Suite::parse(&suites, text).unwrap(), 4).unwrap().with_solo().unwrap();
        let varied = plan.in_variants(&flags()).unwrap();
        let solo: Vec<&Case> = varied.cases.iter().filter(|case| case.solo_of.is_some()).collect();
        assert!(!solo.is_empty());
        for case in solo {
            let whole = &varied.cases[case.solo_of.unwrap()];
            assert_eq!((case.variant, &case.op), (whole.variant, &whole.op));
        }
    }

    #[test]
    fn a_plan_that_only_nccl_can_run_is_refused_by_other_backends_unless_a_part_runs() {
        for (sweep, words) in [
            (
                "collectives = 'all_reduce'\nelement_types = 'fp8_e4m3'",
                Some("from NCCL 2.24 and compute capability 9.0 on"),
            ),
            ("collectives = 'reduce'\nreduce_ops = 'mulsum'", Some("reduce with mulsum is an NCCL operation")),
            ("collectives = 'all_gather'\nelement_types = 'fp8_e4m3'", None),
            ("collectives = 'all_reduce'\nreduce_ops = ['sum', 'mulsum']", None),
        ] {
            let suite = Suite::parse(Path::new("test.toml"), &format!("[[sweep]]\nbytes = '1KiB'\n{sweep}\n")).unwrap();
            let refused = WorkPlan::from_suite(&suite, 4).unwrap().ensure_portable();
            match words {
                None => assert!(refused.is_ok(), "{sweep}"),
                Some(words) => {
                    let error = refused.unwrap_err();
                    assert!(error.exit_code() == 2 && error.to_string().contains(words), "{error}");
                }
            }
        }
    }

    #[test]
    fn cases_that_differ_in_their_size_only_are_a_curve() {
        let text = "[[sweep]]\ncollectives = ['all_reduce', 'barrier', 'all_to_all_v']\nbytes = ['1KiB', '1MiB', '64MiB']\n\
                    splits = { skewed = 1.0 }\nplacements = 'out-of-place'\n\
                    [[sweep]]\ncollectives = 'broadcast'\nbytes = '1KiB'\n";
        let suite = Suite::parse(Path::new("test.toml"), text).unwrap();
        let plan = WorkPlan::from_suite(&suite, 4).unwrap();
        let curves = plan.curves();
        let names: Vec<Vec<String>> =
            curves.iter().map(|curve| curve.iter().map(|index| plan.cases[*index].name()).collect()).collect();
        assert_eq!(names.len(), 2, "all_reduce in both cadences: {names:?}");
        assert_eq!(
            names[0],
            [1024, 1 << 20, 64 << 20]
                .map(|bytes| format!("world/all_reduce/sum/float32/{bytes}/out-of-place/streaming"))
        );
        let further = plan.cases[curves[1][0]].with_bytes(Bytes(4096));
        assert_eq!(further.name(), "world/all_reduce/sum/float32/4096/out-of-place/isolated");
    }
}
