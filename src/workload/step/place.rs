//! A layout as written and a number of ranks -> the layout, or what would fit.

use crate::config::LayoutTable;
use crate::error::Result;
use crate::layout::{Axis, Degrees, Layout};

/// The layout of a table on so many ranks; dp follows where it was left out.
///
/// # Errors
/// Degrees that do not multiply to the ranks, with the nearest that do; orders and rank lists that do not fit.
pub fn layout_on(table: &LayoutTable, ranks: u32) -> Result<Layout> {
    let degrees = degrees_on(table, ranks)?;
    let order: Vec<Axis> = table.order.iter().filter_map(|name| Axis::named(name)).collect();
    let layout = Layout::new(degrees, &order).map_err(|error| table.place.wrong(error))?;
    match &table.ranks {
        Some(ranks) => layout.with_ranks_at(ranks.clone()).map_err(|problem| table.place.wrong(problem)),
        None => Ok(layout),
    }
}

fn degrees_on(table: &LayoutTable, ranks: u32) -> Result<Degrees> {
    let (tp, cp, pp, world) = (u128::from(table.tp), u128::from(table.cp), u128::from(table.pp), u128::from(ranks));
    let others = tp * cp * pp;
    let written = |dp: &str| format!("tp {tp} x cp {cp} x dp {dp} x pp {pp}");
    let dp = match table.dp {
        Some(dp) if others * u128::from(dp) != world => {
            let needed = others * u128::from(dp);
            let instead = if world.is_multiple_of(others) {
                format!(", or write dp = {}", world / others)
            } else {
                String::new()
            };
            let degrees = written(&dp.to_string());
            return Err(table
                .place
                .wrong(format!("{degrees} = {needed} ranks, but there are {ranks}; start {needed}{instead}")));
        }
        Some(dp) => dp,
        None if !world.is_multiple_of(others) => {
            let below = world / others * others;
            let nearest = if below == 0 { others.to_string() } else { format!("{below} or {}", below + others) };
            let degrees = written("(what is left)");
            return Err(table.place.wrong(format!(
                "{degrees} needs a multiple of {others} ranks, but there are {ranks}; nearest: {nearest}"
            )));
        }
        None => (world / others) as u32,
    };
    Ok(Degrees { tp: table.tp, cp: table.cp, dp, pp: table.pp, ep: table.ep, etp: table.etp.unwrap_or(table.tp) })
}
