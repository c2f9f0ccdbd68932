//! A layout as written and a number of ranks -> degrees that multiply to it, or what would.

use crate::config::Layout;
use crate::error::Result;
use crate::layout::{Axis, Degrees};

/// The degrees of a layout on so many ranks; dp follows where it was left out.
pub(super) fn degrees_of(layout: &Layout, ranks: u32) -> Result<Degrees> {
    let (tp, cp, pp, world) = (u128::from(layout.tp), u128::from(layout.cp), u128::from(layout.pp), u128::from(ranks));
    let others = tp * cp * pp;
    let written = |dp: &str| format!("tp {tp} x cp {cp} x dp {dp} x pp {pp}");
    let dp = match layout.dp {
        Some(dp) if others * u128::from(dp) != world => {
            let needed = others * u128::from(dp);
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

/// The axis order of a layout.
pub(super) fn order_of(layout: &Layout) -> Vec<Axis> {
    let all = [Axis::Tp, Axis::Cp, Axis::Ep, Axis::Dp, Axis::Pp];
    layout.order.iter().filter_map(|name| all.into_iter().find(|axis| axis.name() == *name)).collect()
}

/// The degrees above 1, such as `tp 2 x dp 2`.
pub(super) fn layout_name(degrees: &Degrees) -> String {
    let axes = [Axis::Tp, Axis::Cp, Axis::Dp, Axis::Pp].into_iter().filter(|axis| degrees.of(*axis) > 1);
    let parts: Vec<_> = axes.map(|axis| format!("{axis} {}", degrees.of(axis))).collect();
    if parts.is_empty() { "one rank".to_owned() } else { parts.join(" x ") }
}
