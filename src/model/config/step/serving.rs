//! Reads what a serving model does: how many requests at a time, how long, and which of its two phases.

use super::framework::{self, FrameworkChoices, Work};
use super::framework_choices::{
    DecodeContextExchange, Drafter, FeedForwardRanks, KvTransfer, ServingDispatcher, TokenExchange, VocabularyPadding,
};
use super::reading::{parse_float, parse_reducible_float, parsed_or, truth_or};
use super::serving_parts as parts;
use crate::config::document::{Place, Table};
use commgauge_base::element::ElementType;
use commgauge_base::error::Result;

/// A batch of requests that a model serves together.
#[derive(Clone, Debug, PartialEq)]
pub struct Serving {
    /// Place of the table.
    pub place: Place,
    /// Requests that are worked on together in one replica.
    pub batch: u64,
    /// Tokens of the prompt, all of them in one prefill.
    pub prompt_tokens: u64,
    /// Tokens in the key-value cache of a request when the next one is decoded. They determine how much memory a rank
    /// needs and reads, but not the messages between ranks, since keys and values stay with their heads.
    pub context_tokens: u64,
    /// Tokens that are drafted ahead of each request's next one, all of which the model verifies in its next pass.
    pub drafted_tokens: u64,
    /// What drafts them; some where any are drafted.
    pub drafter: Option<Drafter>,
    /// Micro-batches that the batch is cut into for the stages of a pipeline.
    pub micro_batches: u64,
    /// Type of activations on the wire.
    pub activation_element_type: ElementType,
    /// The framework whose defaults hold, and what it decided.
    pub framework: Option<FrameworkChoices>,
    /// How tokens reach their experts.
    pub dispatcher: ServingDispatcher,
    /// Each rank of a tensor-parallel group sends its part to the next stage only, and the receivers gather.
    pub scatter_gather: bool,
    /// Tensors of the width of the hidden state that pass from stage to stage: 2 where the residual is apart.
    pub boundary_tensors: u64,
    /// Among which ranks everything but attention is divided.
    pub feed_forward_ranks: FeedForwardRanks,
    /// How the tokens of replicas come together, where those are all ranks of a stage.
    pub token_exchange: TokenExchange,
    /// In what pieces keys and values go from the half of the replicas that prefills to the half that decodes; absent where each replica
    /// does both.
    pub kv_transfer: Option<KvTransfer>,
    /// Type of keys and values where they are stored, and on their way.
    pub kv_element_type: ElementType,
    /// Degree of tp of the replicas that decode, where it is another than that of those that prefill.
    pub kv_decode_tp: Option<u32>,
    /// Ranks of tp that share out the tokens of the same keys and values while they decode; 1 where each has all tokens of its heads.
    pub decode_context: u32,
    /// How the outputs of attention over parts of a context are put together.
    pub decode_context_exchange: DecodeContextExchange,
    /// Bits of the numbers that sums over tp are sent in; absent where they have the type of the activations.
    pub reduction_bits: Option<u32>,
    /// Replicas agree on the size of a batch before each pass.
    pub batch_agreement: bool,
    /// What the vocabulary is padded to.
    pub vocabulary_padding: VocabularyPadding,
    /// Type of tokens on their way to the experts (DeepEP).
    pub dispatch_element_type: ElementType,
    /// Ranks of ep on a node, where tokens go by way of nodes; absent where nothing says it.
    pub expert_inner: Option<u32>,
    /// Whether the prompt is worked on.
    pub prefill: bool,
    /// Whether tokens are decoded.
    pub decode: bool,
}

impl Serving {
    /// Reads the `[serving]` table, or the equivalent flags.
    pub fn read(mut table: Table) -> Result<Serving> {
        let place = table.place.clone();
        let framework = framework::apply(&mut table, Work::Serving)?;
        let batch = table.require("batch", "requests at a time, such as 16")?.whole(1..=parts::LARGEST)?;
        let prompt_tokens =
            table.take("prompt_tokens").map(|item| item.whole(1..=parts::LARGEST)).transpose()?.unwrap_or(1024);
        let context_tokens = table
            .take("context_tokens")
            .map(|item| item.whole(1..=parts::LARGEST))
            .transpose()?
            .unwrap_or(prompt_tokens);
        let (drafted_tokens, drafter) = parts::drafts(&mut table)?;
        let micro_batches = parts::micro_batches(&mut table, batch)?;
        let activation_element_type = match table.take("activation_element_type") {
            Some(item) => item.parsed(parse_reducible_float)?,
            None => ElementType::Bfloat16,
        };
        let phases = parts::phases(&mut table)?;
        let (kv_transfer, kv_element_type) = parts::transfer(&mut table, activation_element_type, phases)?;
        let kv_decode_tp = parts::kv_decode_tp(&mut table, kv_transfer, phases)?;
        let (decode_context, decode_context_exchange) = parts::decode_context(&mut table, phases, framework.as_ref())?;
        let reduction_bits = table.take("reduction_bits").map(|item| parts::reduction_bits(&item)).transpose()?;
        let dispatcher = parsed_or(&mut table, "dispatcher", ServingDispatcher::AllToAll, str::parse)?;
        let scatter_gather = truth_or(&mut table, "scatter_gather", false)?;
        let boundary_tensors = table.take("boundary_tensors").map(|item| item.whole(1..=2)).transpose()?.unwrap_or(1);
        let vocabulary_padding = parsed_or(&mut table, "vocabulary_padding", VocabularyPadding::Megatron, str::parse)?;
        let feed_forward_ranks = parsed_or(&mut table, "feed_forward_ranks", FeedForwardRanks::Replica, str::parse)?;
        let token_exchange = parsed_or(&mut table, "token_exchange", TokenExchange::AllGather, str::parse)?;
        let batch_agreement = truth_or(&mut table, "batch_agreement", false)?;
        let dispatch_element_type =
            parsed_or(&mut table, "dispatch_element_type", activation_element_type, parse_float)?;
        let expert_inner = table.take("expert_inner").map(|item| item.count()).transpose()?;
        table.finish()?;
        Ok(Serving {
            feed_forward_ranks,
            token_exchange,
            kv_transfer,
            kv_element_type,
            kv_decode_tp,
            decode_context,
            decode_context_exchange,
            reduction_bits,
            batch_agreement,
            framework,
            dispatch_element_type,
            expert_inner,
            dispatcher,
            scatter_gather,
            boundary_tensors,
            vocabulary_padding,
            place,
            batch,
            prompt_tokens,
            context_tokens,
            drafted_tokens,
            drafter,
            micro_batches,
            activation_element_type,
            prefill: phases.prefill,
            decode: phases.decode,
        })
    }
}
