//! One forward pass of a model that serves requests: the prompt of a batch, or one further token of every request.
//!
//! `context_tokens` is part of the step for computing memory and attention; no message of a pass depends on it.

use super::stages::Stages;
use crate::config::Model;
use crate::config::step::{ExpertTokens, FeedForwardRanks, Framework, Serving, ServingDispatcher};
use crate::layout::{Axis, Layout};

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
    /// What a pass works on.
    pub tokens: PassTokens,
}

/// Tokens of one request in a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassTokens {
    /// Tokens that go through the layers.
    pub worked_on: u64,
    /// Tokens of which the next one is predicted.
    pub predicted_from: u64,
}

impl PassTokens {
    /// One token, and its successor.
    pub const ONE: PassTokens = PassTokens { worked_on: 1, predicted_from: 1 };

    /// Those of the model itself. What was drafted is verified in the pass of the token before it; only the last token of a prompt is
    /// predicted from. The ranks of cp share out a prompt.
    pub fn of_phase(serving: &Serving, phase: Phase, cp: u32) -> PassTokens {
        match phase {
            Phase::Prefill => PassTokens { worked_on: serving.prompt_tokens / u64::from(cp), predicted_from: 1 },
            Phase::Decode => {
                let verified = 1 + serving.drafts.tokens;
                PassTokens { worked_on: verified, predicted_from: verified }
            }
        }
    }
}

impl ServingStep<'_> {
    /// Words of the vocabulary with their padding.
    pub fn padded_vocabulary(&self) -> u64 {
        let degrees = &self.layout.degrees;
        let ranks = if self.joins_replicas() { degrees.tp * degrees.dp } else { degrees.tp };
        self.serving.vocabulary_padding.padded(self.model.embedding.vocabulary, u64::from(ranks))
    }

    /// Whether ranks compute the experts that they have on tokens that all of them have, so that the sum over tp is all that is
    /// sent: where tp divides the experts, and where no other replica has tokens (vLLM fused_moe/config.py
    /// `use_all2all_kernels`).
    pub fn experts_are_reduced_on_tp(&self) -> bool {
        let degrees = &self.layout.degrees;
        let alone = self.replicas_together() == 1
            && degrees.cp == 1
            && self.serving.expert.dispatcher == ServingDispatcher::AllGather;
        degrees.ep == 1 || alone || self.serving.expert.dispatcher == ServingDispatcher::AllReduce
    }

    /// Whether each rank of tp gives all of its tokens to the experts, and what they give is added up over tp.
    pub fn experts_take_whole_tokens(&self) -> bool {
        let by_vllm = self.serving.framework.as_ref().is_some_and(|choices| choices.framework == Framework::Vllm);
        let tokens = self.serving.expert.tokens.unwrap_or(match by_vllm && !self.model.family.parts_tokens_in_vllm() {
            true => ExpertTokens::Whole,
            false => ExpertTokens::Parts,
        });
        tokens == ExpertTokens::Whole
            && self.serving.expert.dispatcher == ServingDispatcher::AllGather
            && self.layout.degrees.tp > 1
            && !self.experts_are_reduced_on_tp()
    }

    /// Whether everything but attention is divided among the ranks of all replicas of a stage.
    pub fn joins_replicas(&self) -> bool {
        self.serving.expert.feed_forward_ranks == FeedForwardRanks::Stage && self.layout.degrees.dp > 1
    }

    /// Replicas that do the same at a time: half of them where those of one half prefill for the other.
    pub fn replicas_together(&self) -> u32 {
        let dp = self.layout.degrees.dp;
        if self.serving.kv.transfer.is_some() { dp / self.layout.group_size(Axis::PrefillDecode) } else { dp }
    }

    /// Tokens of one micro-batch that a rank works on.
    pub fn tokens_per_micro_batch(&self) -> u64 {
        self.requests() * self.tokens.worked_on
    }

    /// Requests of a micro-batch.
    pub fn requests(&self) -> u64 {
        self.serving.batch / self.serving.micro_batches
    }
}
