//! Expert parallelism: how tokens reach their experts and return, in every layer with experts.
//!
//! Shared experts are computed on the rank of the token and send nothing. The calls of dense layers around the experts
//! are part of other styles; data parallelism reduces the gradients of experts.

#[cfg(test)]
mod tests;

use crate::config::Mixture;
use crate::config::step::{BalanceLoss, Dispatcher, Framework, Recompute, RecomputeModule, Routing, ScheduleKind};
use crate::layout::Axis;
use crate::workload::op::{LayerKind, Moment, Overlap, Pass, When};
use crate::workload::step::{TrainingStep, routed};
use crate::workload::style::deep_ep::Direction::{Back, ToExperts};
use crate::workload::style::deep_ep::Load::{Token, TokenWithChoices, TokenWithWeights};
use crate::workload::style::deep_ep::{Library, NodeCall, NodeExchange};
use crate::workload::{Op, Style};
use Collective::{AllGather, ReduceScatter};
use ElementType::{Float32, Int64, Uint8};
use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use commgauge_base::error::Result;
use commgauge_base::geometry::{Geometry, Routed, Splits};
use commgauge_base::units::Bytes;

/// The calls of one rank of a stage in an optimizer step.
pub(super) fn ops(step: &TrainingStep, stage: u32) -> Result<Vec<Op>> {
    let Some(layer) = ExpertLayer::of(step, stage) else { return Ok(Vec::new()) };
    let mut ops = match step.training.expert.dispatcher {
        Dispatcher::AllToAll => all_to_all_ops(&layer)?,
        Dispatcher::AllGather => all_gather_ops(&layer)?,
        Dispatcher::DeepEp => by_node_ops(&layer, Library::DeepEp)?,
        Dispatcher::HybridEp => by_node_ops(&layer, Library::HybridEp)?,
    };
    ops.extend(balance_ops(&layer)?);
    Ok(ops)
}

// The all-gather dispatcher: every rank gathers all tokens, selects those of its experts, and results are
// reduce-scattered.
//
// Megatron-LM core/transformer/moe/token_dispatcher.py, `MoEAllGatherTokenDispatcher`. Bytes do not depend on the
// routing. The routing map is a byte for each token and expert; results are reduced in the type of the probabilities
// (`router_element_type`).

fn all_gather_ops(layer: &ExpertLayer) -> Result<Vec<Op>> {
    let (activation, axis) = (layer.step.activation(), layer.axis_of_all());
    let router = layer.step.training.expert.router_element_type;
    let tokens =
        [Factor("N", layer.tokens), Factor("e", layer.ep), Factor("etp", layer.etp), Factor("h", layer.hidden)];
    let choices = [
        Factor("N", layer.tokens),
        Factor("e", layer.ep),
        Factor("etp", layer.etp),
        Factor("experts", layer.mixture.experts),
    ];
    let mut ops = Vec::new();
    for pass in layer.forward_passes() {
        let op = |collective, element, what, factors: &[_]| {
            layer.op(Call { pass, axis, collective, element, what }, factors)
        };
        ops.push(op(AllGather, Uint8, "routing map of tokens and experts (token_dispatcher.py)", &choices)?);
        ops.push(op(AllGather, router, "probabilities of all experts (token_dispatcher.py)", &choices)?);
        ops.push(op(AllGather, activation, "tokens of all ranks (token_dispatcher.py, token_permutation)", &tokens)?);
        let what = "sum over the experts of all ranks, in the type of the probabilities (token_dispatcher.py, token_unpermutation)";
        ops.push(op(ReduceScatter, router, what, &tokens)?);
    }
    let op = |collective, element, what, factors: &[_]| {
        layer.op(Call { pass: Pass::Backward, axis, collective, element, what }, factors)
    };
    ops.push(op(AllGather, router, "backward of the sum over the experts", &tokens)?);
    ops.push(op(ReduceScatter, activation, "backward of the gather of tokens", &tokens)?);
    ops.push(op(ReduceScatter, router, "backward of the gather of probabilities", &choices)?);
    Ok(ops)
}

// The all-to-all dispatcher: tokens are sent to the ranks of their experts, and the outputs of the experts are sent
// back.
//
// Megatron-LM core/transformer/moe/token_dispatcher.py, `MoEAlltoAllTokenDispatcher`. It exchanges among the ranks of
// ep; if experts are divided as well, their ranks gather what each received, and reduce the outputs in the type of
// the probabilities (`router_element_type`; float32 is `--moe-router-dtype fp32`, which its documentation recommends). Every
// call of the forward pass has its mirror image in the backward pass, except the counts, which are stored.
//
// torchtitan/distributed/expert_parallel.py, `ExpertParallel`, sends each rank the counts of its own experts alone, and applies the
// probabilities where the tokens come from.

/// Elements that share a scale if tokens are sent in 8 bits (arXiv 2412.19437 section 3.3.2).
const ELEMENTS_PER_SCALE: u64 = 128;

/// Data sent with each copy of a token: its elements, the scales of 8-bit ones, and the probability of its expert.
struct Parts {
    dispatched: ElementType,
    router: ElementType,
    scales: Option<u64>,
}

fn all_to_all_ops(layer: &ExpertLayer) -> Result<Vec<Op>> {
    let dispatched = layer.step.training.expert.dispatch_element_type;
    let router = layer.step.training.expert.router_element_type;
    let scales = dispatched.moves_only().then(|| layer.hidden.div_ceil(ELEMENTS_PER_SCALE));
    let parts = Parts { dispatched, router, scales };
    let mut ops = Vec::new();
    for pass in layer.forward_passes() {
        ops.extend(forward(layer, &parts, pass)?);
    }
    ops.extend(backward(layer, &parts)?);
    Ok(ops)
}

fn forward(layer: &ExpertLayer, parts: &Parts, pass: Pass) -> Result<Vec<Op>> {
    let call = |element, what| Call { pass, axis: Axis::Ep, collective: Collective::AllToAllV, element, what };
    let mut ops = vec![counts_of_tokens(layer, pass)?];
    let dispatch = call(
        parts.dispatched,
        "dispatch, tokens to their experts (Megatron-LM core/transformer/moe/token_dispatcher.py, dispatch_all_to_all)",
    );
    ops.push(layer.exchange(dispatch, Factor("h", layer.hidden), Way::ToExperts)?);
    if let Some(scales) = parts.scales {
        ops.push(layer.exchange(call(Float32, SCALES), Factor("h/128", scales), Way::ToExperts)?);
    }
    if !layer.is_of_torchtitan() {
        let probabilities = call(
            parts.router,
            "dispatch of the probabilities (Megatron-LM core/transformer/moe/token_dispatcher.py, dispatch_all_to_all)",
        );
        ops.push(layer.exchange(probabilities, Factor("1", 1), Way::ToExperts)?);
    }
    if layer.etp > 1 {
        ops.extend(forward_within_experts(layer, parts, pass)?);
    }
    let combine = call(
        layer.step.activation(),
        "combine, results to the source of the tokens, never in 8 bits (Megatron-LM core/transformer/moe/token_dispatcher.py, \
         combine_all_to_all; arXiv 2412.19437 section 3.3.3)",
    );
    ops.push(layer.exchange(combine, Factor("h", layer.hidden), Way::Back)?);
    Ok(ops)
}

/// The counts that a rank needs before it can exchange tokens.
fn counts_of_tokens(layer: &ExpertLayer, pass: Pass) -> Result<Op> {
    let experts = Factor("experts", layer.mixture.experts);
    let call = |axis, collective, what| Call { pass, axis, collective, element: Int64, what };
    if layer.is_of_torchtitan() {
        let what = "number of tokens for each expert, to its rank; the host needs the counts before it can issue the exchange, so all ranks wait (torchtitan/distributed/expert_parallel.py, _token_dispatch)";
        return layer.op(call(Axis::Ep, Collective::AllToAll, what), &[experts]);
    }
    let what = "number of tokens of each rank for each expert; the host needs the counts before it can issue the exchange, so all ranks wait (Megatron-LM core/transformer/moe/token_dispatcher.py, preprocess)";
    let counts = call(layer.axis_of_all(), Collective::AllGather, what);
    layer.op(counts, &[Factor("etp", layer.etp), Factor("e", layer.ep), experts])
}

const SCALES: &str =
    "one scale for each 128 elements in 8 bits, in addition to the tokens (arXiv 2412.19437 section 3.3.2)";

fn forward_within_experts(layer: &ExpertLayer, parts: &Parts, pass: Pass) -> Result<Vec<Op>> {
    let gather = |element, what| Call { pass, axis: Axis::Etp, collective: Collective::AllGather, element, what };
    let received = layer.received_copies();
    let of = |name, elements| [Factor("etp", layer.etp), Factor("received", received), Factor(name, elements)];
    let tokens = gather(
        parts.dispatched,
        "each part of an expert gets the tokens of all (token_dispatcher.py, dispatch_postprocess)",
    );
    let mut ops = vec![layer.op(tokens, &of("h", layer.hidden))?];
    if let Some(scales) = parts.scales {
        ops.push(layer.op(gather(Float32, SCALES), &of("h/128", scales))?);
    }
    let what = "their probabilities (token_dispatcher.py, dispatch_postprocess)";
    ops.push(layer.op(gather(parts.router, what), &of("1", 1))?);
    let reduce = Call {
        pass,
        axis: Axis::Etp,
        collective: Collective::ReduceScatter,
        element: parts.router,
        what: "sum over the parts of an expert, in the type of the probabilities (token_dispatcher.py, combine_preprocess)",
    };
    ops.push(layer.op(reduce, &of("h", layer.hidden))?);
    Ok(ops)
}

fn backward(layer: &ExpertLayer, parts: &Parts) -> Result<Vec<Op>> {
    let pass = Pass::Backward;
    let call = |element, what| Call { pass, axis: Axis::Ep, collective: Collective::AllToAllV, element, what };
    let combine = call(
        parts.dispatched,
        "combine backward, gradients of the results to the experts, in the type of dispatch (arXiv 2412.19437 section 3.3.3)",
    );
    let mut ops = vec![layer.exchange(combine, Factor("h", layer.hidden), Way::ToExperts)?];
    if let Some(scales) = parts.scales {
        ops.push(layer.exchange(call(Float32, SCALES), Factor("h/128", scales), Way::ToExperts)?);
    }
    if layer.etp > 1 {
        ops.extend(backward_within_experts(layer, parts.router)?);
    }
    let dispatch = call(
        layer.step.activation(),
        "dispatch backward, gradients of the tokens to their source, never in 8 bits (arXiv 2412.19437 section 3.3.3)",
    );
    ops.push(layer.exchange(dispatch, Factor("h", layer.hidden), Way::Back)?);
    if !layer.is_of_torchtitan() {
        let probabilities = call(parts.router, "gradients of the probabilities to their source (token_dispatcher.py)");
        ops.push(layer.exchange(probabilities, Factor("1", 1), Way::Back)?);
    }
    Ok(ops)
}

fn backward_within_experts(layer: &ExpertLayer, router: ElementType) -> Result<Vec<Op>> {
    let call = |collective, element, what| Call { pass: Pass::Backward, axis: Axis::Etp, collective, element, what };
    let received = layer.received_copies();
    let of = |name, elements| [Factor("etp", layer.etp), Factor("received", received), Factor(name, elements)];
    use Collective::{AllGather, ReduceScatter};
    let gradients = call(AllGather, router, "backward of the sum over the parts of an expert");
    let tokens = call(ReduceScatter, layer.step.activation(), "backward of the gather of tokens");
    let probabilities = call(ReduceScatter, router, "backward of the gather of probabilities");
    Ok(vec![
        layer.op(gradients, &of("h", layer.hidden))?,
        layer.op(tokens, &of("h", layer.hidden))?,
        layer.op(probabilities, &of("1", 1))?,
    ])
}

// Balancing of experts: the counts for a loss, summed over the ranks with other tokens, and the bias that a step's counts adjust.
//
// Megatron-LM core/transformer/moe/router.py, moe_utils.py; arXiv 2101.03961 section 2.2 (loss), arXiv 2408.15664 (bias).

/// The calls of one rank of a stage in an optimizer step.
fn balance_ops(layer: &ExpertLayer) -> Result<Vec<Op>> {
    let mut ops = Vec::new();
    ops.extend(counts(layer)?);
    if layer.step.training.expert.bias_update {
        ops.extend(bias(layer));
    }
    Ok(ops)
}

/// Token counts of each expert in a micro-batch. If a layer is recomputed, the loss is only part of the second pass, as the first has no
/// gradients.
fn counts(layer: &ExpertLayer) -> Result<Option<Op>> {
    let (axis, what) = match layer.step.training.expert.balance_loss {
        BalanceLoss::None => return Ok(None),
        BalanceLoss::MicroBatch => (
            Axis::TpCp,
            "tokens of each expert, for the loss that balances them, over the tokens of a micro-batch (Megatron-LM \
             core/transformer/moe/moe_utils.py get_tokens_per_expert_and_token_count; aux_loss, seq_aux_loss)",
        ),
        BalanceLoss::Global => (
            Axis::TpCpDp,
            "tokens of each expert, for the loss that balances them, over the tokens of all replicas (Megatron-LM \
             core/transformer/moe/moe_utils.py get_tokens_per_expert_and_token_count; global_aux_loss)",
        ),
    };
    let tensor = &layer.step.training.tensor;
    // Where only some layers are, those of the others are in the first.
    let all = tensor.layers_repeated(usize::MAX) == usize::MAX || tensor.repeats(RecomputeModule::Experts);
    let pass = if all { Pass::Recompute } else { Pass::Forward };
    let call = Call { pass, axis, collective: Collective::AllReduce, element: ElementType::Int64, what };
    layer.op(call, &[Factor("experts", layer.mixture.experts)]).map(Some)
}

/// The counts of all layers of a stage in a step. They have the type of the model, to which its conversion casts every buffer.
fn bias(layer: &ExpertLayer) -> Option<Op> {
    let step = layer.step;
    let (element, experts) = (step.activation(), layer.mixture.experts);
    let layers = step.layers_of_kind(layer.stage, Pass::Forward, LayerKind::Experts);
    let bytes = element.size() * layers * experts;
    (layers > 0).then(|| Op {
        when: When::Step { moment: Moment::AfterBackward, calls: 1 },
        why: format!(
            "E*layers*experts = {} B*{layers}*{experts} = {bytes} B: tokens of each expert in a step, which adjust its bias \
             (Megatron-LM core/distributed/finalize_model_grads.py _update_router_expert_bias)",
            element.size()
        ),
        ..Op::new(Style::Expert, Axis::TpCpDp, Collective::AllReduce, element, bytes)
    })
}

// Dispatchers that send a token once to each node with one of its experts: DeepEP and HybridEP, as called by Megatron-LM
// (core/transformer/moe/fused_a2a.py). The exchanges of the backward pass mirror those of the forward pass, with the routing found there.

fn by_node_ops(layer: &ExpertLayer, library: Library) -> Result<Vec<Op>> {
    let exchange = NodeExchange::new(library, layer.mixture, &layer.step.layout, layer.tokens, layer.hidden);
    let (dispatched, activation) = (layer.step.training.expert.dispatch_element_type, layer.step.activation());
    let mut ops = Vec::new();
    let mut add = |pass, calls: Vec<NodeCall>, what: &str| {
        ops.extend(calls.into_iter().map(|call| layer.node_op(pass, call, what)));
    };
    for pass in layer.forward_passes() {
        add(pass, exchange.counts()?, "(Megatron-LM core/transformer/moe/fused_a2a.py)");
        let what = "dispatch, tokens to their experts (fused_a2a.py FusedDispatch.forward)";
        add(pass, exchange.hops(ToExperts, dispatched, TokenWithChoices)?, what);
        let what = "combine, sums over the experts of a rank and then of a node to the source of the tokens, never in 8 bits \
                    (fused_a2a.py FusedCombine.forward)";
        add(pass, exchange.hops(Back, activation, Token)?, what);
    }
    let pass = Pass::Backward;
    let what = "combine backward, gradients of the results to the experts (fused_a2a.py FusedCombine.backward)";
    add(pass, exchange.hops(ToExperts, dispatched, Token)?, what);
    let what =
        "dispatch backward, gradients of tokens and weights to their source (fused_a2a.py FusedDispatch.backward)";
    add(pass, exchange.hops(Back, activation, TokenWithWeights)?, what);
    Ok(ops)
}

// The dimensions of a layer with experts, and the construction of its calls.

/// Larger counts of bytes, over all ranks of a group together, are refused.
const MOST_BYTES: u128 = 1 << 62;

/// One layer with experts, as seen by a rank of a stage.
struct ExpertLayer<'a> {
    pub step: &'a TrainingStep<'a>,
    pub stage: u32,
    pub mixture: &'a Mixture,
    /// N: tokens of a micro-batch on this rank.
    pub tokens: u64,
    /// h: elements of a token.
    pub hidden: u64,
    /// Ranks that experts are divided among: e.
    pub ep: u64,
    /// Ranks that each expert is divided among.
    pub etp: u64,
}

/// A factor of a number of elements: its symbol in formulas, and its value.
#[derive(Clone, Copy)]
struct Factor(pub &'static str, pub u64);

/// The direction of tokens.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    ToExperts,
    Back,
}

/// One call before its size: the common properties of the list of calls.
struct Call {
    pub pass: Pass,
    pub axis: Axis,
    pub collective: Collective,
    pub element: ElementType,
    /// Purpose and source.
    pub what: &'static str,
}

impl<'a> ExpertLayer<'a> {
    /// `None` if the model has no experts.
    fn of(step: &'a TrainingStep<'a>, stage: u32) -> Option<ExpertLayer<'a>> {
        let mixture = step.model.mixture.as_ref()?;
        let degrees = &step.layout.degrees;
        let t_seq = if step.training.tensor.sequence_parallel { u64::from(degrees.tp) } else { 1 };
        Some(ExpertLayer {
            step,
            stage,
            mixture,
            tokens: step.tokens_per_micro_batch() / t_seq,
            hidden: step.model.hidden,
            ep: u64::from(degrees.ep),
            etp: u64::from(degrees.etp),
        })
    }

    /// The axis of all ranks that have a part of any expert: etp x ep, by its simplest name, so that equal groups are one.
    fn axis_of_all(&self) -> Axis {
        match (self.etp, self.ep) {
            (1, _) => Axis::Ep,
            (_, 1) => Axis::Etp,
            _ => Axis::EtpEp,
        }
    }

    /// Passes with the forward calls: once more with recomputation of the layer, or of its experts.
    fn forward_passes(&self) -> Vec<Pass> {
        let tensor = &self.step.training.tensor;
        match tensor.recompute == Recompute::Full || tensor.repeats(RecomputeModule::Experts) {
            true => vec![Pass::Forward, Pass::Recompute],
            false => vec![Pass::Forward],
        }
    }

    /// A call with a buffer of this many bytes, given as factors, such as `N` = 4096 and `h` = 7168. The element size is appended.
    fn op(&self, call: Call, factors: &[Factor]) -> Result<Op> {
        let Call { pass, axis, collective, element, what } = call;
        let (bytes, formula) = self.bytes(element, factors)?;
        Ok(Op {
            when: self.step.in_layers(self.stage, pass, LayerKind::Experts, 1),
            why: format!("{formula}: {what}"),
            ..Op::new(Style::Expert, axis, collective, element, bytes)
        })
    }

    /// Whether the calls are torchtitan's, not those of Megatron-LM.
    fn is_of_torchtitan(&self) -> bool {
        self.step.training.framework == Some(Framework::Torchtitan)
    }

    /// An all_to_all_v of this many elements per copy of a token.
    fn exchange(&self, call: Call, elements_per_copy: Factor, way: Way) -> Result<Op> {
        let k = self.mixture.experts_per_token;
        let op = self.op(call, &[Factor("N", self.tokens), Factor("K", k), elements_per_copy])?;
        let splits = self.splits(elements_per_copy.1, way);
        let e = self.ep;
        let mut op = Op { splits, overlap: self.overlap(), ..op };
        let busiest = op.wire_bytes(e as u32, 1).unwrap_or(0);
        op.why += &match op.splits {
            Splits::Equal => format!("; (e-1)/e of it leaves the rank, e = {e}"),
            _ => format!(
                "; routing {}, so that the busiest of {e} ranks sends to others or receives from others {busiest} B, against \
                 {} B in balance",
                self.step.training.expert.routing,
                op.bytes_total.0 as u128 * u128::from(e - 1) / u128::from(e)
            ),
        };
        if !op.overlap.is_exposed() {
            op.why += "; hidden in the steady state of the pipeline, where a forward and a backward pass are paired (arXiv 2412.19437 section 3.2.1)";
        }
        Ok(op)
    }

    /// A call of tokens routed through nodes. `None` with a single rank of experts.
    fn node_op(&self, pass: Pass, call: NodeCall, what: &str) -> Op {
        let NodeCall { axis, collective, element, bytes, why } = call;
        let overlap = if collective == Collective::AllToAllV { self.overlap() } else { Overlap::Exposed };
        Op {
            when: self.step.in_layers(self.stage, pass, LayerKind::Experts, 1),
            overlap,
            why: format!("{why}: {what}"),
            ..Op::new(Style::Expert, axis, collective, element, bytes)
        }
    }

    /// Copies of tokens that the busiest rank of a group of ep has for its experts.
    fn received_copies(&self) -> u64 {
        let copies = self.tokens * self.mixture.experts_per_token;
        let geometry = Geometry::new(
            Collective::AllToAllV,
            ElementType::Uint8,
            Bytes(copies),
            self.ep as u32,
            &self.splits(1, Way::ToExperts),
        );
        match (self.splits(1, Way::ToExperts), geometry) {
            (Splits::Routed(_), Ok(geometry)) => {
                (0..self.ep as u32).map(|rank| geometry.receive_elements(rank, 0)).max().unwrap_or(copies)
            }
            _ => copies,
        }
    }

    fn splits(&self, elements_per_token: u64, way: Way) -> Splits {
        let choices = &self.step.training.expert;
        let drops = choices.capacity_factor.is_some_and(|factor| factor < 1.0);
        if choices.routing == Routing::Uniform && !drops {
            return Splits::Equal;
        }
        Splits::Routed(Routed {
            back: way == Way::Back,
            ..routed(self.step.training, self.mixture, elements_per_token)
        })
    }

    /// Only passes that pair micro-batches hide the exchange: in a schedule of pairs, or where the framework runs the forward pass of one
    /// with the backward pass of another (Megatron-LM core/models/common/model_chunk_schedule_plan.py).
    fn overlap(&self) -> Overlap {
        let step = self.step;
        let pairs = matches!(step.training.pipeline.schedule, ScheduleKind::DualPipe | ScheduleKind::DualPipeV);
        let overlaps = step.training.expert.overlap_exchange && step.micro_batches > 1;
        if pairs && step.stages.count() > 1 || overlaps { Overlap::SteadyState } else { Overlap::Exposed }
    }

    fn bytes(&self, element: ElementType, factors: &[Factor]) -> Result<(u64, String)> {
        let size = element.size();
        let product = factors.iter().try_fold(u128::from(size), |product, factor| {
            product.checked_mul(u128::from(factor.1)).filter(|bytes| *bytes < MOST_BYTES)
        });
        let together = product.and_then(|bytes| bytes.checked_mul(u128::from(self.ep) * u128::from(self.etp)));
        let Some(bytes) = product.filter(|_| together.is_some_and(|together| together < MOST_BYTES)) else {
            return Err(self.step.training.at("sequence").wrong(format!(
                "micro_batch x sequence x experts for each token ({}) x hidden ({}) is more than any buffer can hold",
                self.mixture.experts_per_token, self.hidden
            )));
        };
        let names: Vec<_> = factors.iter().map(|factor| factor.0).collect();
        let numbers: Vec<_> = factors.iter().map(|factor| factor.1.to_string()).collect();
        let formula = format!("{}*E = {}*{size} B = {bytes} B", names.join("*"), numbers.join("*"));
        Ok((bytes as u64, formula))
    }
}
