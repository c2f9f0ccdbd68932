//! What a ranking says, as plain data with a published schema.

use commgauge_analysis::planner::communication::Grounds;
use commgauge_analysis::planner::price::StepPrice;
use commgauge_base::units::Bytes;
use commgauge_model::layout::{Axis, Degrees};
use schemars::JsonSchema;
use serde::Serialize;

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
    pub moves: MovesDocument,
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

/// What another order of the axes would change.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct MovesDocument {
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
    /// For each axis, the best order that puts it where it does not lie now.
    pub moves: Vec<MoveDocument>,
    /// Why there are none, where no order is to be compared.
    pub reason: Option<String>,
}

/// The best order that puts an axis where it does not lie now.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct MoveDocument {
    /// The axis.
    pub axis: Axis,
    /// Whether its groups lie inside a node now.
    pub inside_now: bool,
    /// That order; absent where none puts it there, or none that does has a price.
    pub order: Option<String>,
    /// Change of the time of all calls: below zero where the move is faster.
    pub change_seconds: Option<Quantity>,
    /// Share of resamples in which it is faster.
    pub probability_faster: Option<f64>,
    /// The same of the calls that nothing hides.
    pub change_exposed_seconds: Option<Quantity>,
    /// The same of the calls that nothing hides.
    pub probability_exposed_faster: Option<f64>,
}
