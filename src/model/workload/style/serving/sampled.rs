//! What the last stage of a pipeline tells the others after it has sampled.

use super::calls::{at_end, op};
use super::layers::predicted_from;
use crate::layout::Axis;
use crate::workload::Op;
use crate::workload::step::ServingStep;
use crate::workload::style::product::product;
use crate::workload::when::End;
use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use commgauge_base::error::Result;

/// The first stage needs the tokens for the next pass and how many of each request were sampled and rejected; where tokens were drafted, also
/// the next drafts.
pub(super) fn ops(step: &ServingStep) -> Result<Vec<Op>> {
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
