//! Reads what a serving model does: how many requests at a time, how long, and which of its two phases.

use super::framework::{self, FrameworkChoices, Work};
use super::framework_choices::{SampledTokens, VocabularyPadding};
use super::reading::{parse_reducible_float, parsed_or, truth_or};
use super::serving_parts::{
    self as parts, Boundary, DecodeContext, Drafts, KeysAndValues, Phases, ServingExpertChoices,
};
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
    /// Tokens that are drafted ahead.
    pub drafts: Drafts,
    /// Micro-batches that the batch is cut into for the stages of a pipeline.
    pub micro_batches: u64,
    /// Type of activations on the wire.
    pub activation_element_type: ElementType,
    /// The framework whose defaults hold, and what it decided.
    pub framework: Option<FrameworkChoices>,
    /// How tokens reach their experts and the ranks that feed-forward layers are divided among.
    pub expert: ServingExpertChoices,
    /// What passes from stage to stage.
    pub boundary: Boundary,
    /// Where keys and values are, and where they go.
    pub kv: KeysAndValues,
    /// Ranks that share out the tokens of the same keys and values.
    pub decode_context: DecodeContext,
    /// Bits of the numbers that sums over tp are sent in; absent where they have the type of the activations.
    pub reduction_bits: Option<u32>,
    /// Replicas agree on the size of a batch before each pass.
    pub batch_agreement: bool,
    /// What the vocabulary is padded to.
    pub vocabulary_padding: VocabularyPadding,
    /// What a step does.
    pub phases: Phases,
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
        let drafts = parts::drafts(&mut table)?;
        let micro_batches = parts::micro_batches(&mut table, batch)?;
        let activation_element_type = match table.take("activation_element_type") {
            Some(item) => item.parsed(parse_reducible_float)?,
            None => ElementType::Bfloat16,
        };
        let phases = parts::phases(&mut table)?;
        let kv = parts::keys_and_values(&mut table, activation_element_type, phases)?;
        let decode_context = parts::decode_context(&mut table, phases, framework.as_ref())?;
        let reduction_bits = table.take("reduction_bits").map(|item| parts::reduction_bits(&item)).transpose()?;
        let boundary = Boundary {
            scatter_gather: truth_or(&mut table, "scatter_gather", false)?,
            tensors: table.take("boundary_tensors").map(|item| item.whole(1..=2)).transpose()?.unwrap_or(1),
            sampled: parsed_or(&mut table, "sampled_tokens", SampledTokens::Broadcast, str::parse)?,
        };
        let vocabulary_padding = parsed_or(&mut table, "vocabulary_padding", VocabularyPadding::Megatron, str::parse)?;
        let expert = ServingExpertChoices::read(&mut table, activation_element_type)?;
        let batch_agreement = truth_or(&mut table, "batch_agreement", false)?;
        table.finish()?;
        Ok(Serving {
            expert,
            kv,
            decode_context,
            reduction_bits,
            batch_agreement,
            framework,
            boundary,
            vocabulary_padding,
            place,
            batch,
            prompt_tokens,
            context_tokens,
            drafts,
            micro_batches,
            activation_element_type,
            phases,
        })
    }
}
