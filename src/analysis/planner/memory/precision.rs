//! What PyTorch's data parallelism has in full precision.

use commgauge_model::config::step::{DataStyle, Framework};
use commgauge_model::workload::step::TrainingStep;

/// PyTorch's DDP alone: parameters are of the type of the gradients that it reduces, whatever they are computed in.
pub(super) fn is_ddp_of_pytorch(step: &TrainingStep) -> bool {
    let of_pytorch = matches!(step.training.named_framework(), Some(Framework::Ddp | Framework::HuggingFace));
    of_pytorch && matches!(step.training.data.style, DataStyle::Ddp | DataStyle::Zero1)
}

/// Whether products alone are computed in 16 bits, from copies of their weights and inputs, as within `torch.autocast`: the stream of
/// residuals stays in the type of the parameters.
pub(super) fn casts_for_products(step: &TrainingStep) -> bool {
    is_ddp_of_pytorch(step) && step.activation().size() < step.training.data.gradient_element_type.size()
}
