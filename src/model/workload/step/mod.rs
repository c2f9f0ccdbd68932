//! One step of a model in a layout: training or serving, checked, with the ops of each of its stages.

mod check;
mod one_step;
mod serving;
mod stages;
mod training;

pub use one_step::{AxisTotals, Step, StepOps, wire_bytes_of_layers};
pub use serving::{PassTokens, Phase, ServingStep, undivided_axis};
pub use stages::{Messages, Stages, must_divide};
pub use training::{RankParameters, TrainingStep};
pub(super) use training::{routed, share_of_tokens};

use crate::config::LayoutTable;
use crate::layout::{Axis, Degrees, Division, Layout, MOST_RANKS, either, nearest_divisors};
use commgauge_base::error::Result;

// A layout as written and a number of ranks -> the layout, or the nearest valid ones.

/// The layout of a table on this many ranks; a missing dp is derived.
///
/// # Errors
/// If the product of the degrees is not the number of ranks, with the nearest valid ones; orders and rank lists that do not fit.
pub fn layout_on(table: &LayoutTable, ranks: u32) -> Result<Layout> {
    let degrees = degrees_on(table, ranks)?;
    let order: Vec<Axis> = table.order.iter().filter_map(|name| Axis::named(name)).collect();
    let layout = Layout::new(degrees, &order).map_err(|error| table.place.wrong(error))?;
    let layout = match &table.ranks {
        Some(ranks) => layout.with_ranks_at(ranks.clone()).map_err(|problem| table.place.wrong(problem))?,
        None => layout,
    };
    let copies = table.replicas_of_shards.unwrap_or(1);
    layout.divided(Division::ReplicasOfShards, copies).map_err(|problem| table.place.wrong(problem))
}

/// The product of a table's degrees, or `None` if dp follows from the ranks.
///
/// # Errors
/// If the maximum number of ranks is exceeded.
pub fn ranks_of(table: &LayoutTable) -> Result<Option<u32>> {
    let Some(dp) = table.dp else { return Ok(None) };
    let needed = product_without_dp(table) * u128::from(dp);
    if needed > u128::from(MOST_RANKS) {
        let degrees = written(table, &dp.to_string());
        return Err(table.place.wrong(format!("{degrees} = {needed} ranks; the maximum is {MOST_RANKS} (2^20)")));
    }
    Ok(Some(needed as u32))
}

fn degrees_on(table: &LayoutTable, ranks: u32) -> Result<Degrees> {
    let (others, world) = (product_without_dp(table), u128::from(ranks));
    let dp = match table.dp {
        Some(dp) if others * u128::from(dp) != world => {
            let needed = others * u128::from(dp);
            let degrees = written(table, &dp.to_string());
            let instead = instead(table, ranks);
            let problem = format!("{degrees} = {needed} ranks, but there are {ranks}; start {needed}{instead}");
            return Err(table.place.wrong(problem));
        }
        Some(dp) => dp,
        None if !world.is_multiple_of(others) => {
            let below = world / others * others;
            let nearest = if below == 0 { others.to_string() } else { format!("{below} or {}", below + others) };
            let degrees = written(table, "(the rest)");
            let instead = instead(table, ranks);
            return Err(table.place.wrong(format!(
                "{degrees} needs a multiple of {others} ranks, but there are {ranks}; nearest: {nearest}{instead}"
            )));
        }
        None => (world / others) as u32,
    };
    // What serves keeps experts whole on the ranks of ep.
    let only_serves = table.work.as_ref().is_some_and(|work| work.serving.is_some() && work.training.is_none());
    let etp = table.etp.unwrap_or(if only_serves && table.ep > 1 { 1 } else { table.tp });
    Ok(Degrees { tp: table.tp, cp: table.cp, dp, pp: table.pp, ep: table.ep, etp })
}

fn product_without_dp(table: &LayoutTable) -> u128 {
    [table.tp, table.cp, table.pp].into_iter().map(u128::from).product()
}

fn written(table: &LayoutTable, dp: &str) -> String {
    format!("tp {} x cp {} x dp {dp} x pp {}", table.tp, table.cp, table.pp)
}

/// For each degree, its required value on these ranks with the others unchanged; or, with a derived dp, the nearest values for an integer
/// dp.
fn instead(table: &LayoutTable, ranks: u32) -> String {
    let world = u128::from(ranks);
    let all = product_without_dp(table) * table.dp.map_or(1, u128::from);
    let dp = table.dp.map(|dp| ("dp", dp));
    let degrees = dp.into_iter().chain([("tp", table.tp), ("cp", table.cp), ("pp", table.pp)]);
    let change = |(name, degree): (&str, u32)| {
        let others = all / u128::from(degree);
        // A degree of 1 that was not requested is not the mistake.
        let is_candidate = others != 0 && world.is_multiple_of(others) && (degree > 1 || name == "dp");
        let room = is_candidate.then(|| (world / others) as u64)?;
        let fitting = if table.dp.is_some() { vec![room] } else { nearest_divisors(room, u64::from(degree)) };
        Some(format!(", or write {name} = {}", either(&fitting)))
    };
    degrees.filter_map(change).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Table;

    fn table(line: &str) -> LayoutTable {
        let flags = line.split_whitespace().map(|word| word.split_once('=').unwrap());
        let key = |name: &str| ["tp", "cp", "dp", "pp", "ep", "etp"].into_iter().find(|key| *key == name).unwrap();
        LayoutTable::read(Table::of_flags(flags.map(|(name, text)| (key(name), key(name), text.to_owned())))).unwrap()
    }

    #[test]
    fn degrees_that_do_not_divide_the_ranks_are_refused_with_those_that_do() {
        for (line, ranks, expected) in [
            ("tp=2 dp=3 pp=4", 16, "tp 2 x cp 1 x dp 3 x pp 4 = 24 ranks, but there are 16; start 24, or write dp = 2"),
            ("tp=2 dp=3 pp=4", 12, "start 24, or write tp = 1, or write pp = 2"),
            ("tp=3 pp=4", 16, "nearest: 12 or 24, or write tp = 2 or 4"),
            ("tp=8 pp=4", 16, "nearest: 32, or write tp = 4, or write pp = 2"),
            ("tp=5 pp=7", 16, "nearest: 35"),
            ("tp=1048576 cp=1048576 pp=1048576", 16, "a multiple of 1152921504606846976 ranks, but there are 16"),
        ] {
            let error = layout_on(&table(line), ranks).unwrap_err();
            assert!(error.to_string().contains(expected), "{line}: {error}");
            assert_eq!(error.exit_code(), 2);
        }
    }

    #[test]
    fn dp_follows_from_the_ranks_and_the_ranks_from_all_degrees() {
        assert_eq!(layout_on(&table("tp=2 pp=4"), 16).unwrap().degrees, Degrees::dense(2, 1, 2, 4));
        assert_eq!(ranks_of(&table("tp=2 pp=4 dp=2")).unwrap(), Some(16));
        assert_eq!(ranks_of(&table("tp=2 pp=4")).unwrap(), None);
        let message = ranks_of(&table("tp=1048576 cp=1048576 pp=1048576 dp=1048576")).unwrap_err().to_string();
        assert!(message.ends_with("= 1208925819614629174706176 ranks; the maximum is 1048576 (2^20)"), "{message}");
    }
}
