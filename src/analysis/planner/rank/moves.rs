//! The effect of moving each axis inside or outside the node: every other order of the axes, priced.
//!
//! Bytes are unchanged; only the placement of the groups changes, and with it the times. Of the orders that move an
//! axis, the one whose calls take the least time together is reported.

use super::draws::{Draws, share};
use super::priced::{Priced, is_inside, priced};
use crate::planner::communication::localities;
use crate::planner::rates::Rates;
use commgauge_base::error::Result;
use commgauge_base::stats::{Interval, Span, percentile, sorted};
use commgauge_model::layout::{Axis, Layout};
use commgauge_model::workload::Op;
use commgauge_model::workload::step::Step;

/// The effect of other orders.
#[derive(Clone, Debug, PartialEq)]
pub struct Moves {
    /// The present order, such as `tp-cp-ep-dp-pp`.
    pub order: String,
    /// Seconds of all calls of all axes, one after another, and of those that nothing hides.
    pub now: [Span; 2],
    /// Orders that place some groups differently, this one included.
    pub placements: u32,
    /// Number of them without a price, because a call has no time there.
    pub unpriced: u32,
    /// One for each axis with more than one rank.
    pub moves: Vec<Move>,
    /// Why there are none, if no order can be compared.
    pub reason: Option<String>,
}

/// The best order that moves an axis inside or outside the node.
#[derive(Clone, Debug, PartialEq)]
pub struct Move {
    /// The axis.
    pub axis: Axis,
    /// Whether its groups are inside a node now.
    pub inside_now: bool,
    /// That order; none if no order moves it, or none that does has a price.
    pub order: Option<String>,
    /// Change of the time of all calls.
    pub time: Option<Change>,
    /// Change of the time of exposed calls.
    pub exposed: Option<Change>,
}

/// A difference in seconds of a step; below zero where the move is faster.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// The difference, with the interval that contains 95 of 100 resamples of it.
    pub seconds: Span,
    /// Share of resamples in which the move is faster; none if no interval is known.
    pub probability_faster: Option<f64>,
}

/// An order of the axes, priced.
struct Placement<'o> {
    order: String,
    layout: Layout,
    priced: Vec<Priced<'o>>,
}

impl Moves {
    pub(super) fn of(
        step: &Step,
        ops: &[Op],
        axes: &[Axis],
        ranks_per_node: u32,
        rates: &dyn Rates,
        draws: &mut Draws,
    ) -> Result<Moves> {
        let mut placements: Vec<Placement> = Vec::new();
        let mut seen = Vec::new();
        for layout in layouts(step.layout()) {
            let places = localities(&layout, axes, ranks_per_node);
            if seen.contains(&places) {
                continue;
            }
            let priced = priced(step, ops, &places, rates)?;
            placements.push(Placement { order: layout.order_name(), layout, priced });
            seen.push(places);
        }
        // The present order is the first.
        let now = &placements[0];
        let total = |placement: &Placement| total(&placement.priced, Counted::AllCalls);
        let unpriced = placements.iter().filter(|placement| total(placement).is_none()).count() as u32;
        let reason = match (step.layout().is_placed_by_hand(), total(now).is_none()) {
            (true, _) => Some("ranks were placed by hand".to_owned()),
            (false, true) => Some("some calls of the present order have no time".to_owned()),
            _ => None,
        };
        let mut moves = Vec::new();
        for axis in movable(step.layout()).into_iter().filter(|_| reason.is_none()) {
            let inside_now = is_inside(&now.layout, axis, ranks_per_node);
            let others = placements.iter().filter(|other| is_inside(&other.layout, axis, ranks_per_node) != inside_now);
            let priced = others.filter_map(|other| Some((total(other)?.middle, other)));
            let best = priced.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, best)| best);
            moves.push(Move {
                axis,
                inside_now,
                order: best.map(|best| best.order.clone()),
                time: best.and_then(|best| change(now, best, Counted::AllCalls, draws)),
                exposed: best.and_then(|best| change(now, best, Counted::ExposedCalls, draws)),
            });
        }
        Ok(Moves {
            order: now.order.clone(),
            now: [Counted::AllCalls, Counted::ExposedCalls].map(|counted| known(&now.priced, counted)),
            placements: placements.len() as u32,
            unpriced,
            moves,
            reason,
        })
    }
}

/// The present layout, then all others that differ in the order of the axes with a degree.
fn layouts(layout: &Layout) -> Vec<Layout> {
    let mut all = vec![layout.clone()];
    if layout.is_placed_by_hand() {
        return all;
    }
    let mut orders = vec![Vec::new()];
    for axis in movable(layout) {
        let longer = orders.iter().flat_map(|order: &Vec<Axis>| {
            (0..=order.len()).map(move |at| [&order[..at], &[axis], &order[at..]].concat())
        });
        orders = longer.collect();
    }
    all.extend(orders.iter().filter_map(|order| layout.reordered(order).ok()));
    all
}

/// The axes that an order can place: those that divide ranks.
fn movable(layout: &Layout) -> Vec<Axis> {
    layout.order().iter().copied().filter(|axis| layout.group_size(*axis) > 1).collect()
}

/// Which calls a time is of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Counted {
    AllCalls,
    /// Those that nothing hides.
    ExposedCalls,
}

fn chosen<'p, 'o>(priced: &'p [Priced<'o>], counted: Counted) -> impl Iterator<Item = &'p Priced<'o>> {
    priced.iter().filter(move |op| counted == Counted::AllCalls || op.op.overlap.is_exposed())
}

/// Seconds of the counted calls; none if one has no time.
fn total(priced: &[Priced], counted: Counted) -> Option<Span> {
    chosen(priced, counted).map(|op| op.cost.time()).try_fold(Span::exact(0.0), |sum, time| Some(sum.plus(time?)))
}

/// Seconds of the counted calls that have a time.
fn known(priced: &[Priced], counted: Counted) -> Span {
    chosen(priced, counted).filter_map(|op| op.cost.time()).fold(Span::exact(0.0), Span::plus)
}

fn change(now: &Placement, then: &Placement, counted: Counted, draws: &mut Draws) -> Option<Change> {
    let middle = total(&then.priced, counted)?.middle - total(&now.priced, counted)?.middle;
    // Calls in the same place have the same draw in both orders and cancel out.
    let drawn = draws.sums(chosen(&now.priced, counted)).zip(draws.sums(chosen(&then.priced, counted)));
    let Some((before, after)) = drawn else {
        return Some(Change { seconds: Span { middle, interval: None }, probability_faster: None });
    };
    let ordered = sorted(before.iter().zip(&after).map(|(before, after)| after - before));
    let interval = percentile(&ordered, 2.5).zip(percentile(&ordered, 97.5));
    let interval = interval.map(|(low, high)| Interval { low, high });
    let faster = share(before.len(), |index| after[index] < before[index]);
    Some(Change { seconds: Span { middle, interval }, probability_faster: Some(faster) })
}
