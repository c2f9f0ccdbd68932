//! A ranking of the parallelisms of a step as a document: plain data for JSON, with a published schema, and from it a table and
//! CSV.

use crate::report::template::prose;
use crate::report::text::{fields_csv, object};
use commgauge_base::error::Result;
use commgauge_base::units::Bytes;
use commgauge_model::layout::{Axis, Degrees};
use commgauge_model::workload::step::Step;
use commgauge_model::workload::{Crossing, Family};
use commgauge_plan::planner::communication::Grounds;
use commgauge_plan::planner::compute::Compute;
use commgauge_plan::planner::price::{Pricing, StepPrice, price};
use commgauge_plan::planner::rank::{Flip, Moves, Order, OrderPlace, Quantity, RankOptions, Ranked, RankedAxis, rank};
use commgauge_plan::planner::rates::Rates;
use minijinja::context;
use minijinja::value::Serde;
use schemars::JsonSchema;
use serde::Serialize;

const COLUMNS: &str = "axis parallelism group_size stage nodes_spanned concurrent_groups_per_node stride payload_bytes_per_step \
    wire_bytes_per_step exposed_wire_bytes_per_step seconds_per_step=seconds_per_step/value seconds_per_step_low=seconds_per_step/low \
    seconds_per_step_high=seconds_per_step/high exposed_seconds_per_step=exposed_seconds_per_step/value \
    exposed_seconds_per_step_low=exposed_seconds_per_step/low exposed_seconds_per_step_high=exposed_seconds_per_step/high \
    ops_interpolated=grounds/interpolated ops_transferred=grounds/transferred ops_extrapolated=grounds/extrapolated \
    ops_refused=grounds/refused calibrated synthetic";

/// The axes as CSV: one line for each, in base units, with how sure it is.
///
/// # Errors
/// Where it cannot be written.
pub fn csv(document: &RankDocument) -> Result<String> {
    let rows = document.axes.iter().map(|axis| {
        let mut row = object(axis)?;
        row.insert("calibrated".to_owned(), document.calibrated.into());
        row.insert("synthetic".to_owned(), document.synthetic.into());
        Ok(row)
    });
    fields_csv("the axes as CSV", COLUMNS, rows.collect::<Result<Vec<_>>>()?)
}

// What a ranking says, as plain data with a published schema.

/// Name of the format.
pub const FORMAT: &str = "commgauge-rank";

/// Raised when something is taken away or changes its meaning.
pub const VERSION: u32 = 1;

/// Which parallelism of a layout costs most, and how sure that is.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RankDocument {
    /// Always `commgauge-rank`.
    pub format: &'static str,
    /// Version of the format.
    pub version: u32,
    /// The model.
    pub model: String,
    /// The degrees above 1.
    pub layout: String,
    /// The degrees.
    pub degrees: Degrees,
    /// `training`, `prefill` or `decode`.
    pub phase: &'static str,
    /// Ranks of the layout.
    pub ranks: u64,
    /// Ranks on each node, neighbours in world rank.
    pub ranks_per_node: u32,
    /// Micro-batches of one replica in a step.
    pub micro_batches: u64,
    /// Tokens of one replica in a step.
    pub tokens_per_replica: u64,
    /// What the times come from.
    pub rates: String,
    /// True where every time comes from measurements.
    pub calibrated: bool,
    /// True where the measurements were synthetic.
    pub synthetic: bool,
    /// Resamples that the probabilities are shares of.
    pub resamples: u32,
    /// Every axis on which the step communicates, the one that takes longest first.
    pub axes: Vec<AxisDocument>,
    /// The parallelisms by each measure.
    pub rankings: Vec<RankingDocument>,
    /// Where pairs of parallelisms turn round.
    pub flips: Vec<FlipDocument>,
    /// What another order of the axes would change.
    pub moves: Moves,
    /// The step of a training, by the model that `plan` has; absent for serving.
    pub step: Option<StepDocument>,
}

/// A step, priced as `plan` does.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct StepDocument {
    /// Where the times of computing come from.
    pub computing: String,
    /// What it takes; absent where a call has no time.
    pub price: Option<StepPrice>,
    /// Why it has no price.
    pub reason: Option<String>,
}

/// An axis.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct AxisDocument {
    /// The axis.
    pub axis: Axis,
    /// The parallelism that it belongs to; absent where several share it.
    pub parallelism: Option<&'static str>,
    /// Ranks of a group.
    pub group_size: u32,
    /// The pipeline stage of the rank that it loads most.
    pub stage: u32,
    /// Nodes that a group touches.
    pub nodes_spanned: u32,
    /// Most groups with a rank on the same node.
    pub concurrent_groups_per_node: u32,
    /// Distance between neighbouring ranks of a group.
    pub stride: u32,
    /// Size arguments of all calls.
    pub payload_bytes_per_step: Bytes,
    /// What a rank sends.
    pub wire_bytes_per_step: Bytes,
    /// What of it nothing hides.
    pub exposed_wire_bytes_per_step: Bytes,
    /// All calls, one after another: the most that the axis costs.
    pub seconds_per_step: Quantity,
    /// Those that nothing hides: the least that it costs.
    pub exposed_seconds_per_step: Quantity,
    /// On what ground the times of its ops stand.
    pub grounds: Grounds,
    /// What the time of its costliest call was read from.
    pub ground: String,
}

/// The parallelisms by one measure.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RankingDocument {
    /// `payload bytes`, `wire bytes`, `time` or `exposed time`.
    pub by: &'static str,
    /// The largest first.
    pub order: Vec<PlaceDocument>,
    /// In words: `>` is sure, `=` a tie, `?` not known.
    pub text: String,
    /// Share of resamples in which they come out in exactly this order.
    pub probability: Option<f64>,
    /// Whether TP > DP > PP: `holds`, `does not hold`, `tie`, `not known` or `nothing to compare`.
    pub rule: &'static str,
    /// Share of resamples in which it holds.
    pub rule_probability: Option<f64>,
    /// What has no time, and why.
    pub incomplete: Vec<String>,
}

/// A parallelism in a ranking.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct PlaceDocument {
    /// TP, CP, EP, DP or PP.
    pub parallelism: &'static str,
    /// Bytes or seconds of a step.
    pub amount: Quantity,
    /// Share of resamples in which it is larger than the next.
    pub probability_above_next: Option<f64>,
}

/// Where two parallelisms turn round.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct FlipDocument {
    /// The two.
    pub between: [&'static str; 2],
    /// By what.
    pub by: &'static str,
    /// Tokens of a replica in a step at which both are equal; absent where they never are.
    pub tokens_per_replica: Option<Quantity>,
    /// The larger above it.
    pub larger_above: Option<&'static str>,
    /// The larger whatever the tokens, where it is one.
    pub always_larger: Option<&'static str>,
}

// From a step and rates to the document of its ranking.

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
        let priced = price(training, Pricing { compute, rates, ranks_per_node });
        let reason = priced.as_ref().err().map(ToString::to_string);
        Some(StepDocument { computing: computing.to_owned(), price: priced.ok(), reason })
    }
}

impl RankDocument {
    /// Ranks the parallelisms of a step.
    ///
    /// # Errors
    /// As [`commgauge_plan::planner::rank::rank`].
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
            moves,
            step: None,
        })
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
        seconds_per_step: Quantity::from(cost.time),
        exposed_seconds_per_step: Quantity::from(cost.exposed),
        grounds: cost.grounds,
        ground,
    }
}

fn ranking(order: Order) -> RankingDocument {
    let text = order.text();
    let place = |place: OrderPlace| PlaceDocument {
        parallelism: place.family.name(),
        amount: Quantity::from(place.value),
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
        Crossing::At { tokens, larger_above } => (Some(Quantity::from(tokens)), Some(larger_above), None),
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

// A ranking for people: the axes, the orders and the rule, where they flip, and the effect of moving an axis.

/// The whole answer, for a terminal of this width.
pub fn text(document: &RankDocument, width: u16) -> String {
    prose("rank.txt", include_str!("templates/rank.txt"), context! { width, ..Serde(document) })
}

#[cfg(test)]
mod tests {
    // What a ranking looks like at 80 and 140 columns and as CSV; the words that must not be missed.
    use super::*;
    use commgauge_model::config::{LayoutTable, Machine, Suite};
    use commgauge_model::workload::step::Step;
    use commgauge_plan::planner::rank::RankOptions;
    use commgauge_plan::planner::rates::Published;
    use std::path::Path;

    fn document() -> RankDocument {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let text = "[model]\npreset = 'llama-3-8b'\n[training]\nsequence = 8192\nglobal_batch = 16\n\
                [layout]\ntp = 2\npp = 2\ndp = 4\n";
        let table: LayoutTable = Suite::parse(&root.join("suites/test.toml"), text).unwrap().layouts.remove(0);
        let steps = Step::all_of(&table, 16).unwrap();
        let machine = Machine::load(&root.join("suites/machines/h100-nvswitch-ndr.toml")).unwrap();
        RankDocument::new(&steps[0], 8, &Published::new(&machine), RankOptions::default()).unwrap()
    }

    #[test]
    fn synthetic_or_uncalibrated_results_are_marked_first() {
        let document = document();
        assert!(text(&document, 100).starts_with("NOT CALIBRATED"));
        assert!(text(&RankDocument { synthetic: true, calibrated: true, ..document }, 100).starts_with("SYNTHETIC"));
    }

    #[test]
    fn a_ranking_reads_well_at_80_and_140_columns_and_as_csv() {
        let document = document();
        for width in [80, 140] {
            insta::assert_snapshot!(format!("rank_{width}"), text(&document, width));
        }
        insta::assert_snapshot!("rank_csv", csv(&document).unwrap());
    }
}
