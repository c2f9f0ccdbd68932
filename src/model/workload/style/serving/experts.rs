//! Exchanges of experts while a model serves: every rank of ep has whole experts, and tokens choose evenly.
//!
//! Ranks of tp have the same tokens. Each sends its share of them to their experts, or to all ranks, and the results are
//! gathered.

use super::layers::{activations, in_layers};
use super::splits::splits;
use crate::config::Mixture;
use crate::config::step::ServingDispatcher;
use crate::layout::Axis;
use crate::workload::step::ServingStep;
use crate::workload::style::product::product;
use crate::workload::when::{LayerKind, Overlap};
use crate::workload::{Op, Style};
use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use commgauge_base::error::Result;
use commgauge_base::geometry::Splits;

/// The calls of one rank of a stage in a forward pass.
pub(super) fn ops(step: &ServingStep, stage: u32) -> Result<Vec<Op>> {
    let Some(mixture) = &step.model.mixture else { return Ok(Vec::new()) };
    let mut ops = match step.serving.expert.dispatcher {
        ServingDispatcher::AllGather => all_gather(step, stage, mixture)?,
        ServingDispatcher::DeepEp => super::deep_ep::by_node(step, stage, mixture)?,
        ServingDispatcher::DeepEpLowLatency => super::deep_ep::low_latency(step, stage, mixture)?,
        _ => all_to_all(step, stage, mixture)?,
    };
    if step.layout.degrees.tp > 1 && !step.experts_take_whole_tokens() {
        ops.push(gathered(step, stage)?);
    }
    Ok(ops)
}

/// Every rank gathers the tokens of all with their choices, and the sums over the experts of all ranks are scattered. Where ranks of tp give
/// all of their tokens, those of one place in each replica do so among each other.
fn all_gather(step: &ServingStep, stage: u32, mixture: &Mixture) -> Result<Vec<Op>> {
    let d = &step.layout.degrees;
    let (tokens, h, k) = (step.tokens_per_micro_batch(), step.model.hidden, mixture.experts_per_token);
    let gathering = match step.experts_take_whole_tokens() {
        true => Gathering {
            axis: Axis::Dp,
            ranks: d.dp.into(),
            each: tokens,
            of: "N*d",
            which: format!(
                "N = {tokens} tokens, whole (expert_tokens; vLLM's file of the model below model_executor/models has no \
                 is_sequence_parallel)"
            ),
        },
        false => {
            let each = tokens.div_ceil(d.tp.into());
            let which = format!("n = ceil({tokens} tokens/t {})", d.tp);
            Gathering { axis: Axis::Ep, ranks: d.ep.into(), each, of: "n*e", which }
        }
    };
    let Gathering { axis, ranks, each, of, which } = &gathering;
    let element = step.serving.activation_element_type;
    let source = "vLLM distributed/device_communicators/all2all.py AgRsAll2AllManager";
    let call = |collective, element: ElementType, width: u64, name: &str, what: &str| -> Result<Op> {
        let bytes = product(what, &[element.size(), *each, *ranks, width])?;
        let size = element.size();
        Ok(Op {
            when: in_layers(step, stage, LayerKind::Experts, 1),
            overlap: Overlap::Exposed,
            why: format!(
                "{size} B*{of}*{name} = {size} B*{each}*{ranks}*{width} = {bytes} B with {which}: {what} ({source})"
            ),
            ..Op::new(Style::Serving, *axis, collective, element, bytes)
        })
    };
    use Collective::{AllGather, ReduceScatter};
    Ok(vec![
        call(AllGather, element, h, "h", "tokens of all ranks")?,
        call(AllGather, ElementType::Float32, k, "K", "weights of their choices")?,
        call(AllGather, ElementType::Int32, k, "K", "experts of their choices")?,
        call(ReduceScatter, element, h, "h", "sums over the experts of all ranks")?,
    ])
}

/// What each of the ranks gathers of all of them.
struct Gathering {
    axis: Axis,
    ranks: u64,
    /// Tokens that each gives.
    each: u64,
    /// All tokens, in symbols, and which are one rank's.
    of: &'static str,
    which: String,
}

/// Tokens are sent to the ranks of their experts and back.
fn all_to_all(step: &ServingStep, stage: u32, mixture: &Mixture) -> Result<Vec<Op>> {
    let (t, e) = (u64::from(step.layout.degrees.tp), u64::from(step.layout.degrees.ep));
    let (tokens, h, k) = (step.tokens_per_micro_batch(), step.model.hidden, mixture.experts_per_token);
    let share = tokens.div_ceil(t);
    let sent = product("tokens sent to experts", &[share, k])?;
    let element = step.serving.activation_element_type;
    let source = "Megatron-LM core/transformer/moe/token_dispatcher.py MoEAlltoAllTokenDispatcher";
    let call = |collective, element: ElementType, bytes, splits, why: String| Op {
        when: in_layers(step, stage, LayerKind::Experts, 1),
        overlap: Overlap::Exposed,
        splits,
        why: format!("{why} ({source})"),
        ..Op::new(Style::Serving, Axis::Ep, collective, element, bytes)
    };
    let counts = product("tokens of every expert", &[8, mixture.experts, e])?;
    let hidden = product("tokens sent to experts", &[element.size(), sent, h])?;
    let chosen = format!("N*K = ceil({tokens} tokens/t {t})*{k}");
    let moved = format!("E*N*K*h = {} B*{sent}*{h} = {hidden} B with {chosen}", element.size());
    let spread = || splits(sent, e);
    Ok(vec![
        call(
            Collective::AllGather,
            ElementType::Int64,
            counts,
            Splits::Equal,
            format!("8 B*experts*e = 8 B*{}*{e} = {counts} B: how many tokens each expert gets", mixture.experts),
        ),
        call(Collective::AllToAllV, element, hidden, spread(), format!("{moved}: tokens to their experts")),
        call(
            Collective::AllToAllV,
            ElementType::Float32,
            4 * sent,
            spread(),
            format!("4 B*N*K = {} B with {chosen}: weights of the choices", 4 * sent),
        ),
        call(Collective::AllToAllV, element, hidden, spread(), format!("{moved}: results back to their tokens")),
    ])
}

/// Every rank of tp receives the results of all.
fn gathered(step: &ServingStep, stage: u32) -> Result<Op> {
    let (t, element) = (u64::from(step.layout.degrees.tp), step.serving.activation_element_type);
    let (_, formula) = activations(step)?;
    let share = step.tokens_per_micro_batch().div_ceil(t);
    let bytes = product("results of experts", &[element.size(), share, t, step.model.hidden])?;
    Ok(Op {
        when: in_layers(step, stage, LayerKind::Experts, 1),
        overlap: Overlap::Exposed,
        why: format!(
            "{formula}, {share} tokens from each of {t} ranks = {bytes} B: results of the experts, each rank having sent its \
             share (vLLM model_executor/models/deepseek_v2.py, is_sequence_parallel)"
        ),
        ..Op::new(Style::Serving, Axis::Tp, Collective::AllGather, element, bytes)
    })
}
