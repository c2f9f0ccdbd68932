//! Which parts of a layer are one kernel: that decides how many bytes they move, and what they keep for the backward pass.

use commgauge_model::config::Model;
use commgauge_model::config::step::Framework;

/// The name of GELU by its formula, operation by operation.
const GELU_BY_OPERATIONS: &str = "gelu_new";

/// How a layer is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernels {
    /// Attention in one kernel that stores no matrix of tokens by tokens (arXiv 2205.14135), as in every current framework; it skips what
    /// a causal mask hides. Without it a layer stores scores and their dropout, as in arXiv 2205.05198.
    pub fused_attention: bool,
    /// Norms, rotations and gates in one kernel each, as Megatron has them; else one kernel of PyTorch after another.
    pub fused_elementwise: bool,
}

impl Kernels {
    /// As few kernels as there can be.
    pub const FUSED: Kernels = Kernels { fused_attention: true, fused_elementwise: true };
    /// As in 2022: attention stores its matrices.
    pub const WITH_ATTENTION_MATRICES: Kernels = Kernels { fused_attention: false, ..Kernels::FUSED };

    /// As a framework runs by itself: Hugging Face's models, unless compiled, one kernel of PyTorch after another.
    pub fn usual_of(framework: Option<Framework>) -> Kernels {
        Kernels { fused_elementwise: framework != Some(Framework::HuggingFace), ..Kernels::FUSED }
    }

    /// Whether a norm is one kernel: PyTorch has one for those that take away the mean and have a bias.
    pub(super) fn has_one_for_norms_of(self, model: &Model) -> bool {
        self.fused_elementwise || model.norms_have_bias()
    }

    /// Whether the activation function is one kernel, together with the gate if there is one.
    pub(super) fn has_one_for_activations_of(self, model: &Model) -> bool {
        let by_operations = model.activation.as_deref() == Some(GELU_BY_OPERATIONS);
        self.fused_elementwise || !(model.family.gated() || by_operations)
    }
}
