//! One forward pass of a model that serves requests: the prompt of a batch, or one further token of every request.
//!
//! `context_tokens` is part of the step for computing memory and attention; no message of a pass depends on it.

use super::stages::Stages;
use crate::config::Model;
use crate::config::step::Serving;
use crate::layout::Layout;

/// The phase of serving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// All tokens of the prompts.
    Prefill,
    /// One token of every request.
    Decode,
}

impl Phase {
    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Prefill => "prefill",
            Phase::Decode => "decode",
        }
    }
}

/// A model, its requests and the layout that divides it, checked against each other.
#[derive(Clone, Debug)]
pub struct ServingStep<'a> {
    /// The model.
    pub model: &'a Model,
    /// The requests.
    pub serving: &'a Serving,
    /// Which phase.
    pub phase: Phase,
    /// The layout.
    pub layout: Layout,
    /// The layers of every stage.
    pub stages: Stages,
}

impl ServingStep<'_> {
    /// Tokens of one micro-batch that a rank works on.
    pub fn tokens_per_micro_batch(&self) -> u64 {
        let requests = self.serving.batch / self.serving.micro_batches;
        match self.phase {
            Phase::Prefill => requests * self.serving.prompt_tokens,
            Phase::Decode => requests,
        }
    }
}
