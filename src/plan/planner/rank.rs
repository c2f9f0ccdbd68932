//! Which parallelism of a layout costs most: by payload, wire bytes, predicted time and exposed time; the confidence in the order, the
//! number of tokens at which it flips, and the effect of another order of the axes.
//!
//! Every axis is seen from its busiest rank, as in `commgauge ops`. Times are sums over calls one after another: all calls (nothing
//! hidden), and the exposed ones.

mod order;

pub use order::{Order, OrderPlace, Priced, RankOptions, Rule, TIE, text_of};

use super::communication::{AxisCost, localities};
use super::rates::{RatedCall, Rates};
use commgauge_base::error::Result;
use commgauge_base::stats::{Interval, Span, percentile, sorted};
use commgauge_model::layout::{Axis, Layout, Locality};
use commgauge_model::workload::op::When;
use commgauge_model::workload::step::Step;
use commgauge_model::workload::{Crossing, Family, Measure, Op, Spending, crossing};
use order::{Draws, is_inside, priced, share};
use schemars::JsonSchema;
use serde::Serialize;

/// The parallelisms of a step in a layout, ranked.
#[derive(Clone, Debug, PartialEq)]
pub struct Ranked {
    /// Every axis with communication.
    pub axes: Vec<RankedAxis>,
    /// One per measure.
    pub orders: Vec<Order>,
    /// Crossings of pairs of parallelisms: every pair that crosses, and TP, DP and PP in any case.
    pub flips: Vec<Flip>,
    /// The effect of other orders of the axes.
    pub moves: Moves,
}

/// An axis, and the basis of the time of its costliest call.
#[derive(Clone, Debug, PartialEq)]
pub struct RankedAxis {
    pub cost: AxisCost,
    /// The pipeline stage of its busiest rank.
    pub stage: u32,
    /// Source of the time of its costliest call.
    pub ground: String,
}

/// Crossing of two parallelisms by one measure.
#[derive(Clone, Debug, PartialEq)]
pub struct Flip {
    /// The pair.
    pub families: (Family, Family),
    pub measure: Measure,
    pub crossing: Crossing,
}

/// Ranks the parallelisms of a step on nodes of this many ranks, neighbours in world rank.
///
/// # Errors
/// If the ops of the step cannot be generated, or bytes exceed 64 bits.
pub fn rank(step: &Step, ranks_per_node: u32, rates: &dyn Rates, options: RankOptions) -> Result<Ranked> {
    let chosen = step.ops(|_| true)?;
    let axes: Vec<Axis> = chosen.axes.iter().map(|totals| totals.axis).collect();
    let priced = priced(step, &chosen.ops, &localities(step.layout(), &axes, ranks_per_node), rates)?;
    let mut draws = Draws::new(options);
    let ranked = chosen.axes.iter().map(|totals| {
        let of_axis: Vec<&Priced> = priced.iter().filter(|op| op.op.axis == totals.axis).collect();
        RankedAxis { cost: axis_cost(&of_axis, totals.axis), stage: totals.stage, ground: ground(&of_axis, rates) }
    });
    Ok(Ranked {
        axes: ranked.collect(),
        orders: Measure::ALL.into_iter().map(|measure| Order::of(measure, &priced, &mut draws)).collect(),
        flips: flips(step, &priced),
        moves: Moves::of(step, &chosen.ops, &axes, ranks_per_node, rates, &mut draws)?,
    })
}

/// The parallelisms of some calls by each measure.
pub fn orders_of(priced: &[Priced], options: RankOptions) -> Vec<Order> {
    let mut draws = Draws::new(options);
    Measure::ALL.into_iter().map(|measure| Order::of(measure, priced, &mut draws)).collect()
}

fn axis_cost(priced: &[&Priced], axis: Axis) -> AxisCost {
    let (ranks, locality) = priced.first().map_or((1, Locality::UNKNOWN), |op| (op.cost.ranks, op.locality.clone()));
    let mut cost = AxisCost::nothing(axis, ranks, locality);
    priced.iter().for_each(|op| cost.add(op.op, &op.cost));
    cost
}

fn ground(priced: &[&Priced], rates: &dyn Rates) -> String {
    let seconds = |op: &&Priced| op.cost.time().map_or(0.0, |time| time.middle);
    let costliest = priced.iter().copied().max_by(|a, b| seconds(a).total_cmp(&seconds(b)));
    costliest.map_or_else(String::new, |op| rates.ground(&RatedCall::of(op.op, op.cost.ranks, &op.locality)))
}

fn flips(step: &Step, priced: &[Priced]) -> Vec<Flip> {
    let grows = |op: &Op, measure| grows(step, op, measure);
    let mut flips = crossings(priced, step.tokens_per_replica(), step.micro_batches(), grows);
    flips.retain(|flip| flip.is_of_rule() || matches!(flip.crossing, Crossing::At { .. }));
    flips
}

impl Flip {
    /// Whether the rule TP > DP > PP is about both.
    pub fn is_of_rule(&self) -> bool {
        Family::RULE.contains(&self.families.0) && Family::RULE.contains(&self.families.1)
    }
}

/// The crossing of every pair of the parallelisms in use by each measure, in a step of this many tokens of a replica. `grows` says of
/// which ops the number grows with the micro-batches.
pub fn crossings(
    priced: &[Priced],
    tokens: u64,
    micro_batches: u64,
    grows: impl Fn(&Op, Measure) -> bool,
) -> Vec<Flip> {
    let of_micro_batch = tokens / micro_batches.max(1);
    let spending = |family: Family, measure: Measure| {
        let sum = |every_micro_batch: bool| {
            let own = priced.iter().filter(|op| Family::of(op.op.axis) == Some(family));
            let chosen = own.filter(|op| grows(op.op, measure) == every_micro_batch);
            chosen.map(|op| op.amount(measure)).try_fold(Span::exact(0.0), |sum, amount| Some(sum.plus(amount?)))
        };
        Some(Spending { family, every_micro_batch: sum(true)?, once: sum(false)? })
    };
    let is_there = |family: &Family| priced.iter().any(|op| Family::of(op.op.axis) == Some(*family));
    let there: Vec<Family> = Family::ALL.into_iter().filter(is_there).collect();
    let mut all = Vec::new();
    for (index, &a) in there.iter().enumerate() {
        for &b in &there[index + 1..] {
            all.extend(Measure::ALL.into_iter().map(|measure| {
                let both = spending(a, measure).zip(spending(b, measure));
                let crossing = both.map_or(Crossing::Unknown, |(a, b)| crossing(&a, &b, tokens, of_micro_batch));
                Flip { families: (a, b), measure, crossing }
            }));
        }
    }
    all
}

/// Whether the number of such calls grows with the number of micro-batches. All messages between stages do; exposed
/// messages only if the schedule has no steady state, since they occur while the pipeline fills and drains.
fn grows(step: &Step, op: &Op, measure: Measure) -> bool {
    use commgauge_model::config::step::ScheduleKind::{GPipe, Naive};
    match op.when {
        When::Step { .. } | When::Outside => false,
        When::Boundary { .. } if measure == Measure::ExposedTime => match step {
            Step::Training(training) => matches!(training.training.pipeline.schedule, GPipe | Naive),
            Step::Serving(_) => true,
        },
        _ => true,
    }
}

// The effect of moving each axis inside or outside the node: every other order of the axes, priced.
//
// Bytes are unchanged; only the placement of the groups changes, and with it the times. Of the orders that move an
// axis, the one whose calls take the least time together is reported.

/// What another order of the axes would change.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "MovesDocument")]
pub struct Moves {
    /// The order as it is.
    pub order: String,
    /// Seconds of all calls of all axes.
    pub seconds_per_step: Quantity,
    /// Of those that nothing hides.
    pub exposed_seconds_per_step: Quantity,
    /// Orders that place some groups differently, this one included.
    pub placements: u32,
    /// Of them, how many have no price.
    pub unpriced: u32,
    /// For each axis, the best order that moves it in or out of the node.
    pub moves: Vec<Move>,
    /// Why there are none, where no order is to be compared.
    pub reason: Option<String>,
}

/// The best order that moves an axis in or out of the node.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "MoveDocument")]
pub struct Move {
    /// The axis.
    pub axis: Axis,
    /// Whether its groups are inside a node now.
    pub inside_now: bool,
    /// That order; absent where none puts it there, or none that does has a price.
    pub order: Option<String>,
    /// Change of the time of all calls: below zero where the move is faster.
    pub change_seconds: Option<Quantity>,
    /// Share of resamples in which it is faster.
    pub probability_faster: Option<f64>,
    /// The same for the calls that nothing hides.
    pub change_exposed_seconds: Option<Quantity>,
    /// The same for the calls that nothing hides.
    pub probability_exposed_faster: Option<f64>,
}

/// A number and where it may lie.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Quantity {
    /// The number.
    pub value: f64,
    /// Lower end of its 95 % interval; absent where none is known.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
}

impl From<Span> for Quantity {
    fn from(span: Span) -> Quantity {
        let interval = span.interval;
        Quantity { value: span.middle, low: interval.map(|i| i.low), high: interval.map(|i| i.high) }
    }
}

/// A difference in seconds of a step; negative if the move is faster.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Change {
    /// The difference, with the interval that contains 95 of 100 resamples of it.
    seconds: Span,
    /// Share of resamples in which the move is faster; `None` if no interval is known.
    probability_faster: Option<f64>,
}

/// An order of the axes, priced.
struct Placement<'o> {
    order: String,
    layout: Layout,
    priced: Vec<Priced<'o>>,
}

impl Moves {
    fn of(
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
        // The current order is the first.
        let now = &placements[0];
        let total = |placement: &Placement| total(&placement.priced, Counted::AllCalls);
        let unpriced = placements.iter().filter(|placement| total(placement).is_none()).count() as u32;
        let reason = match (step.layout().is_placed_by_hand(), total(now).is_none()) {
            (true, _) => Some("ranks were placed by hand".to_owned()),
            (false, true) => Some("some calls of the current order have no time".to_owned()),
            _ => None,
        };
        let mut moves = Vec::new();
        for axis in movable(step.layout()).into_iter().filter(|_| reason.is_none()) {
            let inside_now = is_inside(&now.layout, axis, ranks_per_node);
            let others = placements.iter().filter(|other| is_inside(&other.layout, axis, ranks_per_node) != inside_now);
            let priced = others.filter_map(|other| Some((total(other)?.middle, other)));
            let best = priced.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, best)| best);
            let mut changed = |counted| best.and_then(|best| change(now, best, counted, draws));
            let (time, exposed) = (changed(Counted::AllCalls), changed(Counted::ExposedCalls));
            moves.push(Move {
                axis,
                inside_now,
                order: best.map(|best| best.order.clone()),
                change_seconds: time.map(|change| change.seconds.into()),
                probability_faster: time.and_then(|change| change.probability_faster),
                change_exposed_seconds: exposed.map(|change| change.seconds.into()),
                probability_exposed_faster: exposed.and_then(|change| change.probability_faster),
            });
        }
        Ok(Moves {
            order: now.order.clone(),
            seconds_per_step: known(&now.priced, Counted::AllCalls).into(),
            exposed_seconds_per_step: known(&now.priced, Counted::ExposedCalls).into(),
            placements: placements.len() as u32,
            unpriced,
            moves,
            reason,
        })
    }
}

/// The current layout, then all others that differ in the order of the axes with a degree above 1.
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

/// Calls that a time counts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Counted {
    AllCalls,
    /// The exposed calls.
    ExposedCalls,
}

fn chosen<'p, 'o>(priced: &'p [Priced<'o>], counted: Counted) -> impl Iterator<Item = &'p Priced<'o>> {
    priced.iter().filter(move |op| counted == Counted::AllCalls || op.op.overlap.is_exposed())
}

/// Seconds of the counted calls; `None` if one has no time.
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

#[cfg(test)]
mod tests {
    // Properties of a ranking: ties are reported, orders have the known probability, orders flip at the published threshold, and moves have
    // the hand-computed price.
    use super::super::communication::OpCost;
    use super::*;
    use crate::planner::rates::Published;
    use commgauge_base::collective::Collective;
    use commgauge_base::element::ElementType;
    use commgauge_base::units::Seconds;
    use commgauge_cost::cost::{Prediction, Status};
    use commgauge_model::config::{LayoutTable, Machine, Suite};
    use commgauge_model::workload::Style;
    use commgauge_model::workload::op::{Moment, Overlap};
    use std::path::Path;

    const OPTIONS: RankOptions = RankOptions { resamples: 20_000, seed: 7 };

    /// Rates for tests: seconds inside a node and outside, and the half width of the interval as a factor.
    struct FixedRates {
        inside: f64,
        outside: f64,
        factor: Option<f64>,
        refuses: Option<Collective>,
    }

    impl Rates for FixedRates {
        fn price(&self, call: &RatedCall) -> Prediction {
            if self.refuses == Some(call.collective) {
                return Prediction::refused(format!("{} was not measured", call.collective));
            }
            let seconds = if call.locality.nodes_spanned == 1 { self.inside } else { self.outside };
            Prediction {
                seconds: Some(Seconds(seconds)),
                low: self.factor.map(|factor| Seconds(seconds / factor)),
                high: self.factor.map(|factor| Seconds(seconds * factor)),
                status: Status::Interpolated,
                reason: None,
                untrusted: false,
            }
        }

        fn ground(&self, _: &RatedCall) -> String {
            "told".to_owned()
        }

        fn calibrated(&self) -> bool {
            true
        }

        fn synthetic(&self) -> bool {
            false
        }

        fn name(&self) -> String {
            "told".to_owned()
        }
    }

    /// One call of an axis in a step.
    fn op(axis: Axis, overlap: Overlap) -> Op {
        Op {
            when: When::Step { moment: Moment::Optimizer, calls: 1 },
            overlap,
            ..Op::new(Style::Data, axis, Collective::AllReduce, ElementType::Bfloat16, 1000)
        }
    }

    fn order(measure: Measure, ops: &[(Op, f64)], factor: Option<f64>) -> Order {
        let priced: Vec<Priced> = ops
            .iter()
            .map(|(op, seconds)| {
                let rates = FixedRates { inside: *seconds, outside: *seconds, factor, refuses: None };
                let cost = OpCost::of(op, 2, &Locality::UNKNOWN, 1, &rates).unwrap();
                Priced { op, cost, locality: Locality::UNKNOWN }
            })
            .collect();
        Order::of(measure, &priced, &mut Draws::new(OPTIONS))
    }

    fn table(preset: &str, training: &str, layout: &str) -> LayoutTable {
        let text = format!("[model]\npreset = '{preset}'\n[training]\n{training}\n[layout]\n{layout}\n");
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../suites/test.toml");
        Suite::parse(&path, &text).unwrap_or_else(|error| panic!("{error}")).layouts.remove(0)
    }

    fn ranked(table: &LayoutTable, ranks: u32, ranks_per_node: u32, rates: &dyn Rates) -> Ranked {
        let steps = Step::all_of(table, ranks).unwrap();
        rank(&steps[0], ranks_per_node, rates, OPTIONS).unwrap()
    }

    fn crossing_of(ranked: &Ranked, families: (Family, Family), measure: Measure) -> Crossing {
        let flip = ranked.flips.iter().find(|flip| flip.families == families && flip.measure == measure);
        flip.expect("a pair of the rule").crossing
    }

    const SIXTEEN: (&str, &str) = ("sequence = 2048\nglobal_batch = 64", "tp = 2\npp = 4\ndp = 2");

    #[test]
    fn calls_without_a_time_leave_the_rule_undecided_and_are_named() {
        let rates =
            FixedRates { inside: 1e-3, outside: 1e-3, factor: Some(1.1), refuses: Some(Collective::SendRecvChain) };
        let ranked = ranked(&table("gpt-7.5b", SIXTEEN.0, SIXTEEN.1), 16, 8, &rates);
        let by = |measure: Measure| ranked.orders.iter().find(|order| order.measure == measure).unwrap();
        assert_eq!((by(Measure::Time).rule, by(Measure::Time).probability), (Rule::NotKnown, None));
        assert_eq!(by(Measure::Time).incomplete, ["PP: 4 of 5 ops without a time: send_recv_chain was not measured"]);
        assert_eq!(by(Measure::WireBytes).probability, Some(1.0), "bytes need no times");
        assert_eq!(crossing_of(&ranked, (Family::Data, Family::Pipeline), Measure::Time), Crossing::Unknown);
        assert!(ranked.moves.moves.is_empty() && ranked.moves.reason.is_some());
    }

    #[test]
    fn without_intervals_an_order_has_no_probability() {
        let order =
            order(Measure::Time, &[(op(Axis::Tp, Overlap::Exposed), 2.0), (op(Axis::Dp, Overlap::Exposed), 1.0)], None);
        assert_eq!((order.text().as_str(), order.probability, order.rule), ("TP ? DP", None, Rule::Holds));
    }

    #[test]
    fn how_sure_an_order_is_agrees_with_the_normal_distribution() {
        // 95 of 100 within a factor of 1.2 on both sides: the log differs by ln(1.1) with sigma sqrt(2) ln(1.2)/1.96.
        // P = Phi(0.09531 / (1.41421 * 0.18232 / 1.95996)) = Phi(0.7245) = 0.7656.
        let ops = [(op(Axis::Tp, Overlap::Exposed), 1.1), (op(Axis::Dp, Overlap::Exposed), 1.0)];
        let found = order(Measure::Time, &ops, Some(1.2));
        let probability = found.probability.unwrap();
        assert!((probability - 0.7656).abs() < 0.01, "{probability}");
        assert_eq!(
            (found.text().as_str(), found.rule, found.rule_probability),
            ("TP = DP", Rule::Tie, Some(probability))
        );
        assert_eq!(found, order(Measure::Time, &ops, Some(1.2)), "the same seed gives the same answer");
        // P = Phi(ln 2 / 0.13155) = Phi(5.27).
        let sure = order(
            Measure::Time,
            &[(op(Axis::Dp, Overlap::Exposed), 2.0), (op(Axis::Tp, Overlap::Exposed), 1.0)],
            Some(1.2),
        );
        assert_eq!((sure.text().as_str(), sure.rule, sure.rule_probability), ("DP > TP", Rule::DoesNotHold, Some(0.0)));
    }

    #[test]
    fn equal_bytes_are_a_tie_and_a_single_axis_is_not_compared() {
        let both = [(op(Axis::Tp, Overlap::Exposed), 1.0), (op(Axis::Dp, Overlap::Exposed), 1.0)];
        let tied = order(Measure::WireBytes, &both, None);
        assert_eq!((tied.text().as_str(), tied.rule), ("TP = DP", Rule::Tie));
        assert_eq!(order(Measure::Time, &both[..1], None).rule, Rule::NothingToCompare);
    }

    #[test]
    fn what_is_hidden_counts_in_time_and_not_in_exposed_time() {
        let ops = [(op(Axis::Tp, Overlap::WeightGradient), 9.0), (op(Axis::Dp, Overlap::Exposed), 1.0)];
        assert_eq!(order(Measure::Time, &ops, Some(1.1)).text(), "TP > DP");
        assert_eq!(order(Measure::ExposedTime, &ops, Some(1.1)).text(), "DP > TP");
    }

    #[test]
    fn tensor_and_data_cross_over_where_the_closed_form_says() {
        // Per rank and step: TP sends 16 (t-1)/t T h L/p, DP G (d-1)/d P_l L/(p t) bytes with G = 8 for fp32 gradients and
        // 12 h^2 + 13 h parameters in a layer; equal at T* = G P_l (d-1)/d / (16 h (t-1)). The embedding, which both have
        // in addition, is 2 % here.
        let (h, t, d) = (12288.0, 8.0, 16.0);
        let expected = 8.0 * (12.0 * h + 13.0) * (d - 1.0) / d / (16.0 * (t - 1.0));
        let table = table(
            "gpt3-175b",
            "sequence = 2048\nglobal_batch = 1536\ndata_style = 'ddp'\ngradient_element_type = 'float32'",
            "tp = 8\npp = 4\ndp = 16",
        );
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../suites/machines/h100-nvswitch-ndr.toml");
        let machine = Machine::load(&path).unwrap();
        let ranked = ranked(&table, 512, 8, &Published::new(&machine));
        let Crossing::At { tokens, larger_above } =
            crossing_of(&ranked, (Family::Tensor, Family::Data), Measure::WireBytes)
        else {
            panic!("{:?}", ranked.flips)
        };
        assert!(
            (tokens.middle / expected - 1.0).abs() < 0.03,
            "{} tokens, the closed form says {expected}",
            tokens.middle
        );
        assert_eq!(larger_above, Family::Tensor);
        // A byte over NVLink is cheaper than one over the network, so in time DP is the larger for longer.
        let Crossing::At { tokens: in_time, .. } = crossing_of(&ranked, (Family::Tensor, Family::Data), Measure::Time)
        else {
            panic!("{:?}", ranked.flips)
        };
        assert!(in_time.middle > 3.0 * tokens.middle, "{} {}", in_time.middle, tokens.middle);
    }

    #[test]
    fn moving_an_axis_changes_times_as_computed_by_hand() {
        let table = table("gpt-7.5b", SIXTEEN.0, SIXTEEN.1);
        let rates = FixedRates { inside: 1e-3, outside: 4e-3, factor: Some(1.01), refuses: None };
        let ranked = ranked(&table, 16, 8, &rates);
        let calls = |axis: Axis| {
            let of_axis = ranked.axes.iter().find(|ranked| ranked.cost.axis == axis).unwrap();
            let seconds = if of_axis.cost.locality.nodes_spanned == 1 { 1e-3 } else { 4e-3 };
            of_axis.cost.time.middle / seconds
        };
        let moves = &ranked.moves;
        assert_eq!((moves.order.as_str(), moves.unpriced), ("tp-cp-ep-dp-pp", 0));
        let of = |axis| moves.moves.iter().find(|moved| moved.axis == axis).unwrap();
        // tp and dp are inside now, pp and mp span both nodes. With dp outermost pp and mp move inside and dp outside.
        let outside = of(Axis::Dp);
        let expected = 3e-3 * (calls(Axis::Dp) - calls(Axis::Pp) - calls(Axis::Mp) + embedding(&ranked));
        let change = outside.change_seconds.unwrap();
        assert!(outside.inside_now && !of(Axis::Pp).inside_now, "{moves:?}");
        assert!((change.value - expected).abs() < 1e-9, "{change:?}, {expected}");
        assert!(change.low.unwrap() <= change.value && change.value <= change.high.unwrap());
        assert_eq!(outside.probability_faster, Some(if expected < 0.0 { 1.0 } else { 0.0 }));
    }

    /// The ends of the pipeline are on both nodes now and on one then.
    fn embedding(ranked: &Ranked) -> f64 {
        let of_axis = ranked.axes.iter().find(|ranked| ranked.cost.axis == Axis::Embedding);
        of_axis.map_or(0.0, |ends| -ends.cost.time.middle / 4e-3)
    }
}
