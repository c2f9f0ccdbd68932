//! Which degrees and which orders make a valid layout: each violated rule is reported with the numbers and with what
//! would satisfy it.

use super::degrees::{either, nearest_divisors};
use super::grid::Grid;
use super::{Axis, DEFAULT_ORDER, Degrees, MOST_RANKS};
use commgauge_base::error::{Error, Result};

/// Degrees are 1 or more, their product is a number of ranks that we can handle, and experts divide the ranks of a stage.
pub(super) fn check_degrees(d: &Degrees) -> Result<()> {
    let all = [("tp", d.tp), ("cp", d.cp), ("dp", d.dp), ("pp", d.pp), ("ep", d.ep), ("etp", d.etp)];
    if let Some((axis, _)) = all.into_iter().find(|(_, degree)| *degree == 0) {
        return Err(Error::usage(format!("{axis} is 0; a degree is 1 or more")));
    }
    let (dense, world) = (dense_name(d), d.world_exactly());
    if world > u128::from(MOST_RANKS) {
        return Err(Error::usage(format!("{dense} x pp {} = {world} ranks; the most are {MOST_RANKS} (2^20)", d.pp)));
    }
    let (stage, etp, ep) = (d.ranks_of_stage(), u64::from(d.etp), u64::from(d.ep));
    if d.edp().is_some() {
        return Ok(());
    }
    let nearest = match stage.is_multiple_of(etp) {
        true => format!("nearest with etp {etp}: ep {}", either(&nearest_divisors(stage / etp, ep))),
        false => format!("nearest that divide: etp {}", either(&nearest_divisors(stage, etp))),
    };
    let divided = u128::from(d.ep) * u128::from(d.etp);
    Err(Error::usage(format!(
        "ep {ep} x etp {etp} = {divided} does not divide the {dense} = {stage} ranks of a stage, out of which experts are \
         carved; {nearest}"
    )))
}

/// Every axis is named once; an axis of degree 1 in both grids may be left out, and is appended.
pub(super) fn complete_order(degrees: &Degrees, order: &[Axis]) -> Result<Vec<Axis>> {
    let written = || order.iter().map(|axis| axis.name()).collect::<Vec<_>>().join("-");
    let mut complete: Vec<Axis> = Vec::with_capacity(DEFAULT_ORDER.len());
    for axis in order {
        if !DEFAULT_ORDER.contains(axis) {
            let accepted = DEFAULT_ORDER.map(Axis::name).join(", ");
            return Err(Error::usage(format!(
                "axis order {}: {axis} is no axis of it; accepted: {accepted}",
                written()
            )));
        }
        if complete.contains(axis) {
            return Err(Error::usage(format!("axis order {}: {axis} is named twice", written())));
        }
        complete.push(*axis);
    }
    for axis in DEFAULT_ORDER {
        if complete.contains(&axis) {
            continue;
        }
        let (dense, experts) = (Grid::Dense.degree(degrees, axis), Grid::Experts.degree(degrees, axis));
        let name = match axis {
            Axis::Tp if dense == 1 => "etp",
            Axis::Dp if dense == 1 => "edp",
            _ => axis.name(),
        };
        // Undivided experts are placed like the dense layers, so their grid adds no condition.
        let degree = if degrees.divides_experts() { dense.max(experts) } else { dense };
        if degree > 1 {
            let degree = if dense > 1 { dense } else { experts };
            return Err(Error::usage(format!(
                "axis order {}: {axis} is left out, but {name} is {degree}; only axes of degree 1 may be left out",
                written()
            )));
        }
        complete.push(axis);
    }
    Ok(complete)
}

/// Dense layers and experts of a rank are in one stage: the pipelines of both grids are the same.
///
/// Megatron-LM asserts the same (`megatron/core/parallel_state.py`, `initialize_model_parallel`: "Pipeline parallel groups
/// are expected to be the same"). Both grids have as many stages, so the pipelines are the same just where their strides
/// are, that is where the degrees named before pp have the same product.
pub(super) fn check_pipelines(degrees: &Degrees, order: &[Axis]) -> Result<()> {
    let stride = |grid: Grid| grid.stride(degrees, order, Axis::Pp);
    let (dense, experts) = (stride(Grid::Dense), stride(Grid::Experts));
    if degrees.pp == 1 || !degrees.divides_experts() || dense == experts {
        return Ok(());
    }
    let before: Vec<Axis> = order.iter().copied().take_while(|axis| *axis != Axis::Pp).collect();
    let product = |grid: Grid, names: &[(Axis, &str)]| {
        let named = names.iter().filter(|(axis, _)| before.contains(axis));
        let parts: Vec<_> = named.map(|(axis, name)| format!("{name} {}", grid.degree(degrees, *axis))).collect();
        if parts.is_empty() { "nothing".to_owned() } else { parts.join(" x ") }
    };
    let of_dense = product(Grid::Dense, &[(Axis::Tp, "tp"), (Axis::Cp, "cp"), (Axis::Dp, "dp")]);
    let of_experts = product(Grid::Experts, &[(Axis::Tp, "etp"), (Axis::Ep, "ep"), (Axis::Dp, "edp")]);
    let order = order.iter().map(|axis| axis.name()).collect::<Vec<_>>().join("-");
    Err(Error::usage(format!(
        "axis order {order}: dense layers and experts would have different pipelines, because before pp are {of_dense} = \
         {dense} ranks for dense layers and {of_experts} = {experts} for experts; put pp last, or choose degrees whose \
         products are equal"
    )))
}

fn dense_name(d: &Degrees) -> String {
    format!("tp {} x cp {} x dp {}", d.tp, d.cp, d.dp)
}

#[cfg(test)]
mod tests {
    use crate::layout::{Axis, DEFAULT_ORDER, Degrees, Layout};

    const PP_BEFORE_DP: [Axis; 5] = [Axis::Tp, Axis::Cp, Axis::Ep, Axis::Pp, Axis::Dp];

    fn experts(tp: u32, cp: u32, dp: u32, pp: u32, ep: u32, etp: u32) -> Degrees {
        Degrees { tp, cp, dp, pp, ep, etp }
    }

    #[test]
    fn what_breaks_a_rule_is_refused_with_the_rule() {
        let (tp, cp, ep, dp, pp) = (Axis::Tp, Axis::Cp, Axis::Ep, Axis::Dp, Axis::Pp);
        for (degrees, order, expected) in [
            (Degrees::dense(2, 0, 1, 1), &DEFAULT_ORDER[..], "cp is 0; a degree is 1 or more"),
            (experts(2, 1, 1, 1, 0, 2), &DEFAULT_ORDER, "ep is 0; a degree is 1 or more"),
            (
                Degrees::dense(1 << 20, 1, 1, 2),
                &DEFAULT_ORDER,
                "tp 1048576 x cp 1 x dp 1 x pp 2 = 2097152 ranks; the most are 1048576 (2^20)",
            ),
            (
                Degrees::dense(u32::MAX, u32::MAX, u32::MAX, u32::MAX),
                &DEFAULT_ORDER,
                "= 340282366604025813516997721482669850625 ranks; the most are",
            ),
            (
                experts(8, 1, 4, 1, 8, 8),
                &DEFAULT_ORDER,
                "ep 8 x etp 8 = 64 does not divide the tp 8 x cp 1 x dp 4 = 32 ranks of a stage, out of which experts are \
                 carved; nearest with etp 8: ep 4",
            ),
            (experts(2, 1, 4, 1, 3, 1), &DEFAULT_ORDER, "nearest with etp 1: ep 2 or 4"),
            (experts(2, 1, 4, 1, 1, 3), &DEFAULT_ORDER, "nearest that divide: etp 2 or 4"),
            (
                Degrees::dense(2, 1, 2, 1),
                &[tp],
                "axis order tp: dp is left out, but dp is 2; only axes of degree 1 may",
            ),
            (Degrees::dense(1, 1, 2, 1), &[dp, tp, dp], "axis order dp-tp-dp: dp is named twice"),
            (Degrees::dense(1, 1, 2, 1), &[dp, Axis::Mp], "mp is no axis of it; accepted: tp, cp, ep, dp, pp"),
            (experts(2, 2, 1, 1, 2, 1), &[tp, cp, dp], "ep is left out, but ep is 2"),
            (experts(2, 4, 1, 1, 2, 2), &[tp, cp, ep], "dp is left out, but edp is 2"),
            (experts(1, 1, 4, 1, 1, 2), &[dp], "tp is left out, but etp is 2"),
            (
                experts(2, 1, 4, 2, 4, 2),
                &[tp, cp, ep, pp, dp],
                "before pp are tp 2 x cp 1 = 2 ranks for dense layers and etp 2 x ep 4 = 8 for experts; put pp last",
            ),
        ] {
            let error = Layout::new(degrees, order).unwrap_err();
            assert!(error.to_string().contains(expected), "{error}\n{expected}");
            assert_eq!(error.exit_code(), 2);
        }
    }

    #[test]
    fn pp_may_stand_before_dp_where_both_grids_have_the_same_pipelines() {
        for (degrees, order) in [
            (experts(4, 1, 4, 2, 4, 1), PP_BEFORE_DP),
            (experts(2, 2, 2, 4, 4, 1), PP_BEFORE_DP),
            (experts(2, 1, 4, 2, 4, 2), [Axis::Pp, Axis::Tp, Axis::Cp, Axis::Ep, Axis::Dp]),
            (experts(2, 1, 4, 2, 4, 2), DEFAULT_ORDER),
            // Without separate experts there is one grid only, wherever cp is in the order.
            (Degrees::dense(2, 4, 2, 2), PP_BEFORE_DP),
        ] {
            let layout = Layout::new(degrees, &order).unwrap();
            let stage = |rank: &u32| layout.stage_of(*rank);
            for axis in [Axis::Ep, Axis::Etp, Axis::Edp, Axis::EtpEp, Axis::Tp, Axis::Cp, Axis::Dp] {
                for group in layout.groups(axis).groups {
                    let of_first = stage(&group[0]);
                    assert!(group.iter().all(|rank| stage(rank) == of_first), "{axis} {group:?} leaves its stage");
                }
            }
        }
    }

    #[test]
    fn axes_left_out_of_the_order_come_last() {
        let layout = Layout::new(Degrees::dense(2, 1, 2, 1), &[Axis::Dp, Axis::Tp]).unwrap();
        assert_eq!(layout.order_name(), "dp-tp-cp-ep-pp");
    }
}
