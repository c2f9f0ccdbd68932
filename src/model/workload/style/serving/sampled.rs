//! How what the last stage of a pipeline has sampled comes to the other stages.

use super::calls::{at_end, op};
use super::layers::predicted_from;
use crate::config::step::SampledTokens;
use crate::layout::Axis;
use crate::workload::Op;
use crate::workload::step::ServingStep;
use crate::workload::style::product::product;
use crate::workload::when::End;
use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use commgauge_base::error::Result;

pub(super) fn ops(step: &ServingStep) -> Result<Vec<Op>> {
    match step.serving.boundary.sampled {
        SampledTokens::Broadcast => broadcasts(step),
        SampledTokens::Ring => ring(step),
    }
}

/// The first stage needs the tokens for the next pass and how many of each request were sampled and rejected; where tokens were drafted, also
/// the next drafts.
fn broadcasts(step: &ServingStep) -> Result<Vec<Op>> {
    let (requests, drafted) = (step.requests(), step.serving.drafts.tokens);
    let from = predicted_from(step)?;
    let (r, numbers) = (from.symbol, &from.numbers);
    let call = |element: ElementType, factors: &[u64], formula: &str, what: &str| -> Result<Op> {
        let bytes = product(what, factors)?;
        let why =
            format!("{formula} = {bytes} B: {what} from the last stage to all others (vLLM v1/worker/gpu/pp_utils.py)");
        let root = step.layout.degrees.pp - 1;
        Ok(Op { root, element, ..op(step, Axis::Pp, Collective::Broadcast, bytes, at_end(End::Whole), why) })
    };
    let formula = format!("8 B*{r} = 8 B*{numbers}");
    let counts = format!("4 B*2*r = 4 B*2*{requests} requests");
    let mut ops = vec![
        call(ElementType::Int64, &[8, from.rows], &formula, "sampled tokens")?,
        call(ElementType::Int32, &[4, 2, requests], &counts, "numbers of tokens sampled and rejected")?,
    ];
    if drafted > 0 {
        let formula = format!("8 B*r*K = 8 B*{requests} requests*{drafted}");
        ops.push(call(ElementType::Int64, &[8, requests, drafted], &formula, "drafted tokens")?);
    }
    Ok(ops)
}

/// The last stage gives the tokens to the first, and each stage those of the micro-batch before to the next, around to the last. Ranks of tp
/// send a part each, as of activations, where their number divides that of the requests. Drafts are refused.
fn ring(step: &ServingStep) -> Result<Vec<Op>> {
    let (element, requests, t) = (ElementType::Int32, step.requests(), u64::from(step.layout.degrees.tp));
    let whole = product("sampled tokens", &[element.size(), requests])?;
    let cut = step.serving.boundary.scatter_gather && t > 1 && requests.is_multiple_of(t);
    let (bytes, part) = match cut {
        true => (whole / t, format!(", of which each of {t} ranks sends a part = {} B", whole / t)),
        false => (whole, String::new()),
    };
    let formula = format!("4 B*r = 4 B*{requests} requests = {whole} B");
    let source = "SGLang managers/scheduler_pp_mixin.py _pp_send_output_to_next_stage";
    let call = |axis: Axis, collective: Collective, bytes: u64, what: String| {
        let why = format!("{formula}: {what} ({source})");
        Op { element, ..op(step, axis, collective, bytes, at_end(End::Whole), why) }
    };
    let what = format!("sampled tokens to the next stage, around to the last{part}");
    let mut ops = vec![call(Axis::Pp, Collective::SendRecv, bytes, what)];
    if cut {
        let what = "parts of sampled tokens that the ranks of tp received, put together".to_owned();
        ops.push(call(Axis::Tp, Collective::AllGather, whole, what));
    }
    Ok(ops)
}
