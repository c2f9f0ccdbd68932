//! What keeps the load of experts even: the counts of a loss, added up over the ranks that see other tokens, and the bias that a
//! step's counts move.
//!
//! Megatron-LM core/transformer/moe/router.py, moe_utils.py; arXiv 2101.03961 section 2.2 (loss), arXiv 2408.15664 (bias).

use super::layer::{Call, ExpertLayer, Factor};
use crate::config::step::{BalanceLoss, Recompute};
use crate::layout::Axis;
use crate::workload::when::{LayerKind, Moment, Overlap, Pass, When};
use crate::workload::{Op, Style};
use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use commgauge_base::error::Result;

/// The calls of one rank of a stage in an optimizer step.
pub(super) fn ops(layer: &ExpertLayer) -> Result<Vec<Op>> {
    let mut ops = Vec::new();
    ops.extend(counts(layer)?);
    if layer.step.training.expert.bias_update {
        ops.extend(bias(layer));
    }
    Ok(ops)
}

/// How many tokens of a micro-batch each expert got. Where a layer is computed twice, the loss is part of the second pass only, the
/// first having no gradients.
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
    let pass = match layer.step.training.tensor.recompute {
        Recompute::Full => Pass::Recompute,
        Recompute::None | Recompute::Selective => Pass::Forward,
    };
    let call = Call { pass, axis, collective: Collective::AllReduce, element: ElementType::Int64, what };
    layer.op(call, &[Factor("experts", layer.mixture.experts)]).map(Some)
}

/// The counts of a step of all layers of a stage together. They are kept in the type of the model, which its conversion gives to
/// every buffer.
fn bias(layer: &ExpertLayer) -> Option<Op> {
    let step = layer.step;
    let (element, experts) = (step.activation(), layer.mixture.experts);
    let layers = step.layers_passed(layer.stage, LayerKind::Experts);
    let bytes = element.size() * layers * experts;
    (layers > 0).then(|| Op {
        when: When::Step { moment: Moment::AfterBackward, calls: 1 },
        overlap: Overlap::Exposed,
        why: format!(
            "E*layers*experts = {} B*{layers}*{experts} = {bytes} B: tokens of each expert in a step, which its bias follows \
             (Megatron-LM core/distributed/finalize_model_grads.py _update_router_expert_bias)",
            element.size()
        ),
        ..Op::new(Style::Expert, Axis::TpCpDp, Collective::AllReduce, element, bytes)
    })
}
