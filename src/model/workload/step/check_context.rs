//! Whether context parallelism divides evenly: tokens over ranks, and heads if heads are exchanged.

use super::{TrainingStep, must_divide};
use crate::config::step::ContextStyle;
use commgauge_base::error::Result;

/// The first violated rule, with the nearest valid numbers.
pub(super) fn check(step: &TrainingStep) -> Result<()> {
    let (training, degrees) = (step.training, &step.layout.degrees);
    let (s, c, style) = (training.sequence, u64::from(degrees.cp), training.context.style);
    if c == 1 {
        return Ok(());
    }
    check_inner(step)?;
    // Every rank has a chunk of the front half and its mirror image, so that causal attention is the same work everywhere
    // (TransformerEngine context_parallel.py; arXiv 2407.21783 section 3.3.2).
    let (chunks, why) = match style {
        ContextStyle::AllToAll => (c, format!("cp = {c}")),
        _ => (2 * c, format!("2*cp = {}: every rank has two chunks, one of each half (zigzag)", 2 * c)),
    };
    if !s.is_multiple_of(chunks) {
        let (down, up) = (s / chunks * chunks, s.next_multiple_of(chunks));
        let nearest = if down == 0 { up.to_string() } else { format!("{down}, {up}") };
        return Err(training
            .sequence_place
            .wrong(format!("a sequence of {s} is no multiple of {why}; nearest: {nearest}")));
    }
    let exchanging = match style {
        ContextStyle::AllToAll => c,
        ContextStyle::Hybrid => u64::from(training.context.inner),
        ContextStyle::Ring | ContextStyle::AllGather | ContextStyle::PyTorch => return Ok(()),
    };
    check_heads(step, exchanging)
}

fn check_inner(step: &TrainingStep) -> Result<()> {
    let (context, c) = (&step.training.context, step.layout.degrees.cp);
    let inner = context.inner;
    match context.style {
        ContextStyle::Hybrid if inner < 2 || inner == c => {
            let accepted: Vec<_> =
                (2..c).filter(|inner| c.is_multiple_of(*inner)).map(|inner| inner.to_string()).collect();
            let accepted = if accepted.is_empty() { "none".to_owned() } else { accepted.join(", ") };
            Err(context.place.wrong(format!(
                "hybrid with context_inner = {inner} of cp = {c}; accepted: {accepted} (or ring, which is 1, or all_to_all, which is \
                 all)"
            )))
        }
        ContextStyle::Hybrid => Ok(()),
        style if inner > 1 => Err(context
            .place
            .wrong(format!("context_inner = {inner} with context_style {style}; accepted: with hybrid"))),
        _ => Ok(()),
    }
}

/// Each rank needs whole query heads, and whole key and value heads or copies of one.
fn check_heads(step: &TrainingStep, exchanging: u64) -> Result<()> {
    let (model, t) = (step.model, u64::from(step.layout.degrees.tp));
    let place = &step.training.context.place;
    let heads = model.attention.heads / t;
    let axis = if step.training.context.style == ContextStyle::Hybrid { "context_inner" } else { "cp" };
    if !heads.is_multiple_of(exchanging) {
        let what = "query heads of a rank of tp";
        return Err(place.wrong(must_divide(axis, exchanging, heads, what, "num_attention_heads / tp", &model.name)));
    }
    let kv_heads = model.kv_heads_per_rank(t);
    if model.attention.latent.is_none() && !kv_heads.is_multiple_of(exchanging) && !exchanging.is_multiple_of(kv_heads)
    {
        return Err(place.wrong(format!(
            "{axis} = {exchanging} neither divides the {kv_heads} key and value heads of a rank of {} (num_key_value_heads / tp) nor is \
             a multiple of them",
            model.name
        )));
    }
    Ok(())
}
