//! From a step and rates to the document of its ranking.

use super::documents::{
    AxisDocument, FORMAT, FlipDocument, MoveDocument, MovesDocument, PlaceDocument, Quantity, RankDocument,
    RankingDocument, StepDocument, VERSION,
};
use commgauge_analysis::planner::compute::Compute;
use commgauge_analysis::planner::price::price;
use commgauge_analysis::planner::rank::{Change, Flip, Move, Order, OrderPlace, RankOptions, Ranked, RankedAxis, rank};
use commgauge_analysis::planner::rates::Rates;
use commgauge_base::error::Result;
use commgauge_base::stats::Span;
use commgauge_model::workload::step::Step;
use commgauge_model::workload::{Crossing, Family};

impl StepDocument {
    /// The price of a training's step; nothing for serving.
    pub fn of(
        step: &Step,
        ranks_per_node: u32,
        rates: &dyn Rates,
        compute: &Compute,
        computing: &str,
    ) -> Option<StepDocument> {
        let Step::Training(training) = step else { return None };
        let priced = price(training, compute, rates, ranks_per_node);
        let reason = priced.as_ref().err().map(ToString::to_string);
        Some(StepDocument { computing: computing.to_owned(), price: priced.ok(), reason })
    }
}

impl RankDocument {
    /// Ranks the parallelisms of a step.
    ///
    /// # Errors
    /// As [`commgauge_analysis::planner::rank::rank`].
    pub fn new(step: &Step, ranks_per_node: u32, rates: &dyn Rates, options: RankOptions) -> Result<RankDocument> {
        let ranked = rank(step, ranks_per_node, rates, options)?;
        let Ranked { axes, orders, flips, moves } = ranked;
        let degrees = step.layout().degrees;
        let mut axes: Vec<AxisDocument> = axes.into_iter().map(axis).collect();
        axes.sort_by(|a, b| b.seconds_per_step.value.total_cmp(&a.seconds_per_step.value));
        Ok(RankDocument {
            format: FORMAT,
            version: VERSION,
            model: step.model().shown_name(),
            layout: degrees.name(),
            degrees,
            phase: step.phase_name(),
            ranks: degrees.world(),
            ranks_per_node,
            micro_batches: step.micro_batches(),
            tokens_per_replica: step.tokens_per_replica(),
            rates: rates.name(),
            calibrated: rates.calibrated(),
            synthetic: rates.synthetic(),
            resamples: options.resamples,
            axes,
            rankings: orders.into_iter().map(ranking).collect(),
            flips: flips.into_iter().map(flip).collect(),
            moves: MovesDocument {
                order: moves.order,
                seconds_per_step: Quantity::of(moves.now[0]),
                exposed_seconds_per_step: Quantity::of(moves.now[1]),
                placements: moves.placements,
                unpriced: moves.unpriced,
                moves: moves.moves.into_iter().map(moved).collect(),
                reason: moves.reason,
            },
            step: None,
        })
    }
}

impl Quantity {
    fn of(span: Span) -> Quantity {
        let interval = span.interval;
        Quantity { value: span.middle, low: interval.map(|i| i.low), high: interval.map(|i| i.high) }
    }
}

fn axis(ranked: RankedAxis) -> AxisDocument {
    let RankedAxis { cost, stage, ground } = ranked;
    AxisDocument {
        axis: cost.axis,
        parallelism: Family::of(cost.axis).map(Family::name),
        group_size: cost.ranks,
        stage,
        nodes_spanned: cost.locality.nodes_spanned,
        concurrent_groups_per_node: cost.locality.concurrent_groups_per_node,
        stride: cost.locality.stride,
        payload_bytes_per_step: cost.payload_bytes,
        wire_bytes_per_step: cost.wire_bytes,
        exposed_wire_bytes_per_step: cost.exposed_wire_bytes,
        seconds_per_step: Quantity::of(cost.time),
        exposed_seconds_per_step: Quantity::of(cost.exposed),
        grounds: cost.grounds,
        ground,
    }
}

fn ranking(order: Order) -> RankingDocument {
    let text = order.text();
    let place = |place: OrderPlace| PlaceDocument {
        parallelism: place.family.name(),
        amount: Quantity::of(place.value),
        probability_above_next: place.probability_above_next,
    };
    RankingDocument {
        by: order.measure.name(),
        order: order.places.into_iter().map(place).collect(),
        text,
        probability: order.probability,
        rule: order.rule.name(),
        rule_probability: order.rule_probability,
        incomplete: order.incomplete,
    }
}

fn flip(flip: Flip) -> FlipDocument {
    let (tokens, larger_above, always_larger) = match flip.crossing {
        Crossing::At { tokens, larger_above } => (Some(Quantity::of(tokens)), Some(larger_above), None),
        Crossing::Never(larger) => (None, None, Some(larger)),
        Crossing::Unknown => (None, None, None),
    };
    FlipDocument {
        between: [flip.families.0.name(), flip.families.1.name()],
        by: flip.measure.name(),
        tokens_per_replica: tokens,
        larger_above: larger_above.map(Family::name),
        always_larger: always_larger.map(Family::name),
    }
}

fn moved(moved: Move) -> MoveDocument {
    let seconds = |change: Option<Change>| change.map(|change| Quantity::of(change.seconds));
    let probability = |change: Option<Change>| change.and_then(|change| change.probability_faster);
    MoveDocument {
        axis: moved.axis,
        inside_now: moved.inside_now,
        order: moved.order,
        change_seconds: seconds(moved.time),
        probability_faster: probability(moved.time),
        change_exposed_seconds: seconds(moved.exposed),
        probability_exposed_faster: probability(moved.exposed),
    }
}
