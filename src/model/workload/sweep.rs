//! The ops of a sweep: every combination of its lists that the collectives know.

use super::op::{Op, Style};
use crate::config::{Place, Roots, Sweep};
use crate::layout::Axis;
use commgauge_base::collective::Collective;
use commgauge_base::error::Result;
use commgauge_base::geometry::Splits;
use commgauge_base::units::Bytes;

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
            format!("gives more than {most} cases; name fewer sizes, element types, operations or roots")
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
                "routed splits are those of all_to_all_v, which is not among the collectives".to_owned()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::BOTH_CADENCES;
    use commgauge_base::collective::ReduceOp;
    use commgauge_base::element::ElementType;

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
                "6 experts do not come out even on 4 ranks; nearest that do: 4 or 8",
            ),
            (Collective::AllGatherV, "routed:random,experts=8,k=2", "routed splits are those of all_to_all_v"),
        ] {
            let mut sweep = sweep(&[collective]);
            sweep.splits = vec![crate::config::parse_splits(routed).unwrap()];
            assert!(ops(&sweep, Axis::World, 4, 1000).unwrap_err().to_string().contains(expected), "{routed}");
        }
        let message = ops(&sweep(&[Collective::Reduce]), Axis::World, 4, 31).unwrap_err().to_string();
        assert!(message.contains("more than 31 cases"), "{message}");
    }
}
