//! One communication call as data.

use super::schedule::PassDirection;
use crate::config::{Blocks, FeedForward, LayerParts, Mixer, Model};
use crate::layout::Axis;
use commgauge_base::collective::{Collective, Placement, ReduceOp};
use commgauge_base::element::ElementType;
use commgauge_base::geometry::{Geometry, Splits};
use commgauge_base::sample::Cadence;
use commgauge_base::units::Bytes;
use commgauge_base::variant::Variant;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The origin of an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
// Its name in files and in output.
#[derive(Serialize, Deserialize, JsonSchema, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Style {
    /// A sweep over sizes.
    Sweep,
    /// All pairs of ranks.
    Pairs,
    /// Tensor parallelism of a model's layers.
    Tensor,
    /// Tensor parallelism with Megatron-LM's sequence parallelism.
    Sequence,
    /// Vocabulary-parallel embedding, output projection and loss.
    Vocabulary,
    /// Data parallelism of a model.
    Data,
    /// Pipeline parallelism of a model.
    Pipeline,
    /// Context parallelism of a model.
    Context,
    /// Expert parallelism of a model.
    Expert,
    /// Small calls that all ranks wait for: norms, flags, averages.
    Control,
    /// A model that serves requests.
    Serving,
}

impl Style {
    /// Every style of a model's step, in the order in which they are listed.
    pub const OF_A_STEP: [Style; 9] = [
        Style::Tensor,
        Style::Sequence,
        Style::Vocabulary,
        Style::Data,
        Style::Pipeline,
        Style::Context,
        Style::Expert,
        Style::Control,
        Style::Serving,
    ];

    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// One communication call: collective, size, groups, number and formula.
#[derive(Clone, Debug, PartialEq)]
pub struct Op {
    /// The style that performs it.
    pub style: Style,
    /// The axis whose groups execute it, all at once.
    pub axis: Axis,
    /// The call.
    pub collective: Collective,
    pub element: ElementType,
    /// How elements are combined, if the collective reduces.
    pub reduce_op: Option<ReduceOp>,
    /// The root rank within the group, if the collective has one.
    pub root: u32,
    /// The size argument, in the sense of nccl-tests (see [`commgauge_base::geometry`]).
    pub bytes_total: Bytes,
    /// How the vector forms divide their elements.
    pub splits: Splits,
    /// Number and position in a step.
    pub when: When,
    /// Whether the ranks compute meanwhile.
    pub overlap: Overlap,
    /// Tensors that the host copies one after another for each call, because the call takes a list of them.
    pub copies_per_call: u64,
    /// Derivation of the bytes: formula with numbers, and its source; empty for sweeps.
    pub why: String,
}

impl Op {
    /// A call of a step with equal blocks, exposed; styles complete it with `..`.
    pub fn new(style: Style, axis: Axis, collective: Collective, element: ElementType, bytes_total: u64) -> Op {
        Op {
            style,
            axis,
            collective,
            element,
            reduce_op: collective.reduces().then_some(ReduceOp::Sum),
            root: 0,
            bytes_total: Bytes(bytes_total),
            splits: Splits::Equal,
            when: When::Outside,
            overlap: Overlap::Exposed,
            copies_per_call: 0,
            why: String::new(),
        }
    }

    /// The element counts on a group of `ranks` ranks, or why the call does not exist there.
    pub fn geometry(&self, ranks: u32) -> Result<Geometry, String> {
        if self.collective.has_root() && self.root >= ranks {
            return Err(format!("root {} is not in a group of {ranks} ranks; the last is {}", self.root, ranks - 1));
        }
        Geometry::new(self.collective, self.element, self.bytes_total, ranks, &self.splits)
    }
}

// One call at one size with one placement and one cadence: the unit of measurement, and the steps that use it.

/// Maximum number of cases in one run; more are a mistake in a suite and would run for days.
pub const MOST_CASES: usize = 10_000;

/// The work measured as one row.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// The call. Its style, moment and reason come from the first use.
    pub op: Op,
    /// Index of the groups in the plan.
    pub groups: usize,
    /// Distinguishes these groups from others of the same axis in the plan; empty for the first.
    pub groups_label: String,
    /// Whether the result replaces the input.
    pub placement: Placement,
    /// Cadence.
    pub cadence: Cadence,
    /// How it is submitted.
    pub variant: Variant,
    /// The steps of the plan that perform the call. Empty for sweeps.
    pub uses: Vec<StepUse>,
    /// Index in the plan of the same case on all groups at once, if this case runs on one group alone.
    pub solo_of: Option<usize>,
}

/// A step that performs a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StepUse {
    /// Index of the step in the plan.
    pub step: u32,
    /// The style that issues the call.
    pub style: Style,
    /// Position and number in the step.
    pub when: When,
    /// Calls per step on the busiest rank of the axis.
    pub count_per_step: u64,
    /// Bytes that this rank sends per step.
    pub wire_bytes_per_step: Bytes,
    /// Whether the ranks wait for it.
    pub exposed: bool,
    /// The computing that hides it, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlaps_with: Option<String>,
    /// Formula of the bytes.
    pub why: String,
}

impl StepUse {
    /// The use of an op in a step of this index, whose groups of this axis have `ranks` ranks.
    pub fn of(op: &Op, step: u32, micro_batches: u64, ranks: u32) -> StepUse {
        // The totals of the step were checked, so both fit.
        let count_per_step = op.when.count_per_step(micro_batches).unwrap_or(0);
        let wire_bytes = op.wire_bytes(ranks, count_per_step).unwrap_or(u64::MAX);
        StepUse {
            step,
            style: op.style,
            when: op.when,
            count_per_step,
            wire_bytes_per_step: Bytes(wire_bytes),
            exposed: op.overlap.is_exposed(),
            overlaps_with: op.overlap.hidden_by().map(str::to_owned),
            why: op.why.clone(),
        }
    }
}

impl Case {
    /// The name, built from the parts so that it is always consistent; unique within a run.
    ///
    /// `tp/all_reduce/sum/bfloat16/67108864/in-place/streaming`
    pub fn name(&self) -> String {
        let op = &self.op;
        let mut parts = vec![op.axis.name().to_owned()];
        if !self.groups_label.is_empty() {
            parts.push(self.groups_label.clone());
        }
        parts.push(op.collective.name().to_owned());
        parts.extend(op.reduce_op.map(|reduce| reduce.name().to_owned()));
        if op.collective.has_root() {
            parts.push(format!("root{}", op.root));
        }
        if op.collective.has_splits() {
            parts.push(match &op.splits {
                Splits::Equal => "equal".to_owned(),
                Splits::Given(weights) => {
                    format!("given-{}", weights.iter().map(u64::to_string).collect::<Vec<_>>().join("-"))
                }
                Splits::Skewed { exponent } => format!("skewed-{exponent}"),
                Splits::Routed(routed) => routed.name(),
            });
        }
        parts.push(op.element.name().to_owned());
        parts.push(op.bytes_total.0.to_string());
        parts.push(self.placement.name().to_owned());
        parts.push(self.cadence.name().to_owned());
        parts.extend(self.variant.name_parts());
        parts.join("/")
    }
}

// The traffic of one rank in a call: wire bytes, as opposed to the payload in the size argument.
//
// The counts are those of bandwidth-optimal algorithms, which are also the factors from bandwidth to bus bandwidth: all_reduce
// 2(n-1)/n S, reduce_scatter and all_gather (n-1)/n S with S the full buffer, all_to_all (n-1)/n S with S this rank's send buffer,
// a message S (Chan et al. 2007, "Collective communication: theory, practice, and experience", section 4; NCCL's ring).

impl Op {
    /// Bytes that one rank of a group of `ranks` sends in `count` calls: the busiest rank if they differ. `None` if the number exceeds 64
    /// bits.
    pub fn wire_bytes(&self, ranks: u32, count: u64) -> Option<u64> {
        let payload = u128::from(self.bytes_total.0).checked_mul(u128::from(count))?;
        let wire = match (self.collective, self.collective.bus_ratio(ranks)) {
            // A call that does not exist in this group sends nothing.
            (Collective::AllToAllV, _) => match self.geometry(ranks) {
                Ok(geometry) => u128::from(geometry.busiest_bytes_with_others()?).checked_mul(u128::from(count))?,
                Err(_) => 0,
            },
            (_, Some([numerator, denominator])) if ranks > 1 => {
                payload.checked_mul(u128::from(numerator))? / u128::from(denominator)
            }
            _ => 0,
        };
        u64::try_from(wire).ok()
    }
}

// The parallelisms of the rule of thumb, each with its axes, and the measures of the ranking.

/// A kind of parallelism, over all axes on which it communicates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    Tensor,
    Context,
    Expert,
    /// Data, sharded or not, of dense layers and of experts.
    Data,
    Pipeline,
}

impl Family {
    /// All, in the order in which they are listed.
    pub const ALL: [Family; 5] = [Family::Tensor, Family::Context, Family::Expert, Family::Data, Family::Pipeline];
    /// The rule of thumb that is checked: TP > DP > PP.
    pub const RULE: [Family; 3] = [Family::Tensor, Family::Data, Family::Pipeline];

    /// The family of an axis. Axes shared by several families (all ranks, a whole replica), and the ends of the pipeline, which share an
    /// embedding, have none.
    pub fn of(axis: Axis) -> Option<Family> {
        match axis {
            Axis::Tp | Axis::Etp => Some(Family::Tensor),
            Axis::Cp | Axis::CpInner | Axis::CpOuter | Axis::Dcp => Some(Family::Context),
            Axis::Ep | Axis::EtpEp | Axis::EpInner | Axis::EpOuter => Some(Family::Expert),
            Axis::Dp | Axis::DpCp | Axis::Edp => Some(Family::Data),
            Axis::DpShard | Axis::DpReplicate | Axis::DpShardInner | Axis::DpShardOuter => Some(Family::Data),
            Axis::Pp => Some(Family::Pipeline),
            Axis::World | Axis::Mp | Axis::ExpertMp | Axis::TpCp | Axis::TpCpDp | Axis::Embedding => None,
            Axis::Pair | Axis::Node | Axis::Nodes | Axis::PrefillDecode => None,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Family::Tensor => "TP",
            Family::Context => "CP",
            Family::Expert => "EP",
            Family::Data => "DP",
            Family::Pipeline => "PP",
        }
    }
}

/// What the calls of an axis are compared by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Size arguments of all calls.
    PayloadBytes,
    /// Bytes that a rank sends.
    WireBytes,
    /// Time of all calls.
    Time,
    /// Time of the exposed calls.
    ExposedTime,
}

impl Measure {
    /// All, in the order in which they are listed.
    pub const ALL: [Measure; 4] = [Measure::PayloadBytes, Measure::WireBytes, Measure::Time, Measure::ExposedTime];

    pub fn name(self) -> &'static str {
        match self {
            Measure::PayloadBytes => "payload bytes",
            Measure::WireBytes => "wire bytes",
            Measure::Time => "time",
            Measure::ExposedTime => "exposed time",
        }
    }
}

// The position of a call in a step, its number, and whether computing hides it.
//
// Counts and the replay of a step are both derived from this, so that they agree.

/// A pass of a micro-batch through a model chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Pass {
    /// Forward.
    Forward,
    /// Forward again, for a backward pass without stored activations.
    Recompute,
    /// Gradients of the inputs.
    Backward,
    /// Gradients of the weights, if computed separately.
    WeightGradient,
}

impl Pass {
    /// The direction of its micro-batch: recomputation is part of the backward pass.
    pub(super) fn direction(self) -> PassDirection {
        match self {
            Pass::Forward => PassDirection::Forward,
            Pass::Recompute | Pass::Backward | Pass::WeightGradient => PassDirection::Backward,
        }
    }
}

/// The layers of a stage that have a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LayerKind {
    /// All.
    Any,
    /// Those with a dense feed-forward.
    Dense,
    /// Those with experts.
    Experts,
    /// Those with attention and a dense feed-forward, in hybrid models.
    AttentionAndDense,
    /// Those with attention and experts, in hybrid models.
    AttentionAndExperts,
    /// Those with linear attention and a dense feed-forward.
    LinearAndDense,
    /// Those with linear attention and experts.
    LinearAndExperts,
    /// Those with attention and no feed-forward.
    AttentionAlone,
    /// Those with linear attention and no feed-forward.
    LinearAlone,
}

impl LayerKind {
    /// Whether a layer with these parts has this kind.
    pub fn has(self, parts: LayerParts) -> bool {
        use {FeedForward as F, Mixer as M};
        let exactly = |mixer, feed_forward| parts == LayerParts { mixer: Some(mixer), feed_forward };
        match self {
            LayerKind::Any => true,
            LayerKind::Dense => parts.feed_forward == Some(F::Dense),
            LayerKind::Experts => parts.feed_forward == Some(F::Experts),
            LayerKind::AttentionAndDense => exactly(M::Attention, Some(F::Dense)),
            LayerKind::AttentionAndExperts => exactly(M::Attention, Some(F::Experts)),
            LayerKind::LinearAndDense => exactly(M::Linear, Some(F::Dense)),
            LayerKind::LinearAndExperts => exactly(M::Linear, Some(F::Experts)),
            LayerKind::AttentionAlone => exactly(M::Attention, None),
            LayerKind::LinearAlone => exactly(M::Linear, None),
        }
    }

    /// Kinds whose layers have equally many parameters each; every layer of the model belongs to one of them.
    pub fn of_equal_layers(model: &Model) -> &'static [LayerKind] {
        match (&model.blocks, &model.attention.linear, &model.mixture) {
            (Blocks::Single { .. }, _, _) => {
                &[LayerKind::AttentionAlone, LayerKind::LinearAlone, LayerKind::Dense, LayerKind::Experts]
            }
            (Blocks::Pairs, Some(_), _) => &[
                LayerKind::AttentionAndDense,
                LayerKind::AttentionAndExperts,
                LayerKind::LinearAndDense,
                LayerKind::LinearAndExperts,
            ],
            (Blocks::Pairs, None, Some(_)) => &[LayerKind::Dense, LayerKind::Experts],
            (Blocks::Pairs, None, None) => &[LayerKind::Any],
        }
    }
}

/// Position of a call outside layers in a pass of a micro-batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// Before the first layer of the model, on the stage that holds it.
    Input,
    /// Before the first layer of the chunk that holds the last one of the model.
    BeforeOutput,
    /// After the last layer of the model, on the stage that holds it.
    Output,
    /// With all layers of the stage done, on every stage.
    Whole,
}

/// Position in a step of a call that does not occur in every micro-batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Moment {
    /// While the first micro-batch goes forward.
    FirstForward,
    /// While the last micro-batch goes backward.
    LastBackward,
    /// After all gradients are computed: exposed reductions.
    AfterBackward,
    /// Around the optimizer: norms, flags, averages.
    Optimizer,
}

/// Position of a call in a step, as seen by one rank of its stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum When {
    /// Outside any step: a sweep.
    Outside,
    /// In layers, in one pass of every micro-batch.
    Layer {
        /// The pass.
        pass: Pass,
        /// The layers.
        kind: LayerKind,
        /// Calls in each of these layers.
        calls_per_layer: u64,
        /// Such layers of the stage.
        layers: u64,
    },
    /// Outside layers, in one pass of every micro-batch.
    MicroBatch {
        /// The pass.
        pass: Pass,
        /// The position.
        end: End,
        /// Calls in each micro-batch.
        calls: u64,
        /// 1 if every micro-batch passes, 2 if every second one does: DualPipe feeds them in at two ends.
        one_in: u64,
    },
    /// Messages to a neighbouring stage.
    Boundary {
        /// The pass after which they are sent.
        pass: Pass,
        /// Messages that the rank sends in a step.
        sends_per_step: u64,
    },
    /// Once in a step, or a few times.
    Step {
        /// The position.
        moment: Moment,
        /// Calls in a step.
        calls: u64,
    },
}

impl When {
    /// The pass in which it occurs, if in every micro-batch.
    pub fn pass(&self) -> Option<Pass> {
        match self {
            When::Layer { pass, .. } | When::MicroBatch { pass, .. } | When::Boundary { pass, .. } => Some(*pass),
            When::Outside | When::Step { .. } => None,
        }
    }

    /// Calls in each layer of its kind.
    pub fn count_per_layer(&self) -> Option<u64> {
        match self {
            When::Layer { calls_per_layer, .. } => Some(*calls_per_layer),
            _ => None,
        }
    }

    /// Calls in a micro-batch, if it occurs in every one.
    pub fn count_per_micro_batch(&self) -> Option<u64> {
        match self {
            When::Layer { calls_per_layer, layers, .. } => calls_per_layer.checked_mul(*layers),
            When::MicroBatch { calls, .. } => Some(*calls),
            When::Outside | When::Boundary { .. } | When::Step { .. } => None,
        }
    }

    /// Calls in a step of this many micro-batches; `None` outside steps, and if the number exceeds 64 bits.
    pub fn count_per_step(&self, micro_batches: u64) -> Option<u64> {
        match self {
            When::Outside => None,
            When::Boundary { sends_per_step, .. } => Some(*sends_per_step),
            When::Step { calls, .. } => Some(*calls),
            When::Layer { .. } => self.count_per_micro_batch().and_then(|count| count.checked_mul(micro_batches)),
            When::MicroBatch { calls, one_in, .. } => calls.checked_mul(micro_batches / one_in),
        }
    }
}

/// Whether the ranks compute while a call is in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Overlap {
    /// No computing: all ranks wait for it.
    Exposed,
    /// The weight-gradient product of the same layer.
    WeightGradient,
    /// The input-gradient product of the same layer.
    InputGradient,
    /// Attention over the blocks that have arrived.
    Attention,
    /// The backward pass of the last micro-batch.
    LastBackward,
    /// The backward pass of every micro-batch.
    Backward,
    /// The forward pass of the first micro-batch.
    FirstForward,
    /// The previous layer: parameters of the next one are prefetched.
    Prefetch,
    /// The work of other micro-batches in the steady state of the pipeline.
    SteadyState,
    /// The next layers of the same pass.
    NextLayers,
    /// The product that needs or produces it, piece by piece.
    Pieces,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Exposure {
    /// They wait: nothing is computed meanwhile.
    Exposed,
    /// They compute while it is in flight.
    Hidden,
}

impl Overlap {
    /// True if the ranks wait for it.
    pub fn is_exposed(self) -> bool {
        self == Overlap::Exposed
    }

    /// Whether the ranks wait for it, or compute meanwhile.
    pub fn exposure(self) -> Exposure {
        if self.is_exposed() { Exposure::Exposed } else { Exposure::Hidden }
    }

    /// The computing that hides it, in words, if any does.
    pub fn hidden_by(self) -> Option<&'static str> {
        (!self.is_exposed()).then(|| self.name())
    }

    /// The computing that hides it, in words; `exposed` if none does.
    pub fn name(self) -> &'static str {
        match self {
            Overlap::Exposed => "exposed",
            Overlap::WeightGradient => "weight-gradient product",
            Overlap::InputGradient => "input-gradient product",
            Overlap::Attention => "attention of earlier blocks",
            Overlap::LastBackward => "last micro-batch's backward",
            Overlap::Backward => "backward",
            Overlap::FirstForward => "first micro-batch's forward",
            Overlap::Prefetch => "the layer before (prefetch)",
            Overlap::SteadyState => "other micro-batches (steady state)",
            Overlap::NextLayers => "the next layers",
            Overlap::Pieces => "its own product, in pieces",
        }
    }
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::layout::Axis;
    use crate::workload::Style;
    use commgauge_base::element::ElementType;
    use commgauge_base::geometry::Splits;

    #[test]
    fn wire_bytes_are_those_of_bandwidth_optimal_algorithms() {
        for (collective, expected) in [
            (Collective::AllReduce, 2 * 3 * 250 * 3),
            (Collective::AllGather, 3 * 250 * 3),
            (Collective::ReduceScatter, 3 * 250 * 3),
            (Collective::AllToAll, 3 * 250 * 3),
            (Collective::SendRecvChain, 1000 * 3),
            (Collective::Barrier, 0),
        ] {
            let op = Op::new(Style::Sweep, Axis::World, collective, ElementType::Int8, 1000);
            assert_eq!(op.wire_bytes(4, 3), Some(expected), "{collective}");
            assert_eq!(op.wire_bytes(1, 3), Some(0), "{collective}");
        }
    }

    #[test]
    fn an_uneven_exchange_counts_the_busiest_rank_without_its_own_part() {
        let given = |weights: &[u64]| Op {
            splits: Splits::Given(weights.to_vec()),
            ..Op::new(Style::Sweep, Axis::World, Collective::AllToAllV, ElementType::Int8, 1000)
        };
        // Rank 0 receives 700 from each of three others; 1000 in balance: 250 to each.
        for (op, expected) in [(given(&[7, 1, 1, 1]), 2100), (given(&[1, 1, 1, 1]), 750)] {
            assert_eq!((op.wire_bytes(4, 1), op.wire_bytes(4, 3)), (Some(expected), Some(3 * expected)));
        }
        assert_eq!(given(&[1]).wire_bytes(1, 3), Some(0));
        assert_eq!(given(&[1, 1, 1, 1]).wire_bytes(4, u64::MAX), None);
    }

    #[test]
    fn more_than_64_bits_is_not_a_number() {
        let op = Op::new(Style::Sweep, Axis::World, Collective::AllReduce, ElementType::Int8, 1 << 60);
        assert_eq!(op.wire_bytes(4, 1 << 30), None);
    }
}
