//! Reads what a serving model does: how many requests at a time, how long, and which of its two phases.

use super::framework::{self, FrameworkChoices, Work};
use super::framework_choices::{
    Drafter, FeedForwardRanks, KvTransfer, ServingDispatcher, TokenExchange, VocabularyPadding,
};
use super::reading::{parse_float, parse_reducible_float, parsed_or, truth_or};
use crate::config::document::{Item, Place, Table};
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
    /// Ranks of tp that share out the tokens of the same keys and values while they decode; 1 where each has all tokens of its heads.
    pub decode_context: u32,
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
        let largest = u64::from(u32::MAX);
        let place = table.place.clone();
        let framework = framework::apply(&mut table, Work::Serving)?;
        let batch = table.require("batch", "requests at a time, such as 16")?.whole(1..=largest)?;
        let prompt_tokens =
            table.take("prompt_tokens").map(|item| item.whole(1..=largest)).transpose()?.unwrap_or(1024);
        let context_tokens =
            table.take("context_tokens").map(|item| item.whole(1..=largest)).transpose()?.unwrap_or(prompt_tokens);
        let (drafted_tokens, drafter) = drafts(&mut table)?;
        let micro_batches = match table.take("micro_batches") {
            Some(item) => {
                let micro_batches = item.whole(1..=largest)?;
                if !batch.is_multiple_of(micro_batches) {
                    return Err(item.wrong(format!("found {micro_batches}, which does not divide a batch of {batch}")));
                }
                micro_batches
            }
            None => 1,
        };
        let activation_element_type = match table.take("activation_element_type") {
            Some(item) => item.parsed(parse_reducible_float)?,
            None => ElementType::Bfloat16,
        };
        let (mut prefill, mut decode) = (true, true);
        if let Some(item) = table.take("phases") {
            (prefill, decode) = (false, false);
            for phase in item.items()? {
                match phase.text()? {
                    "prefill" => prefill = true,
                    "decode" => decode = true,
                    other => return Err(phase.wrong(format!("found phase `{other}`; accepted: prefill, decode"))),
                }
            }
        }
        let (kv_transfer, kv_element_type) = transfer(&mut table, activation_element_type, prefill)?;
        let decode_context = match table.take("decode_context") {
            None => 1,
            Some(item) if !decode => {
                let nothing = "changes nothing without a decode; accepted: with decode among the phases";
                return Err(item.wrong(nothing.to_owned()));
            }
            Some(item) => item.count()?,
        };
        let reduction_bits = table.take("reduction_bits").map(|item| reduction_bits(&item)).transpose()?;
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
            decode_context,
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
            prefill,
            decode,
        })
    }
}

/// The widths that QuickReduce has (vLLM csrc/quickreduce/quick_reduce_impl.cuh `CodecQ4`, `CodecQ6`, `CodecQ8`).
fn reduction_bits(item: &Item) -> Result<u32> {
    let bits = item.count()?;
    match bits {
        4 | 6 | 8 => Ok(bits),
        _ => Err(item.wrong(format!("found {bits}; accepted: 4, 6, 8"))),
    }
}

/// How keys and values go from replicas that prefill to those that decode, and their type.
fn transfer(table: &mut Table, activation: ElementType, prefill: bool) -> Result<(Option<KvTransfer>, ElementType)> {
    let element = table.take("kv_element_type");
    let Some(item) = table.take("kv_transfer") else {
        let stays = "keys and values stay where they are; accepted: with kv_transfer, layer or request";
        return element.map_or(Ok((None, activation)), |item| Err(item.wrong(stays.to_owned())));
    };
    if !prefill {
        let nothing = "nothing is transferred without a prefill; accepted: with prefill among the phases";
        return Err(item.wrong(nothing.to_owned()));
    }
    let transfer = item.parsed(str::parse)?;
    let element = element.map(|item| item.parsed(parse_float)).transpose()?;
    Ok((Some(transfer), element.unwrap_or(activation)))
}

/// More would be refused by any of the frameworks long before.
const MOST_DRAFTED: u64 = 64;

/// How many tokens are drafted, and by what.
fn drafts(table: &mut Table) -> Result<(u64, Option<Drafter>)> {
    let drafted = table.take("drafted_tokens").map(|item| item.whole(1..=MOST_DRAFTED)).transpose()?.unwrap_or(0);
    match (drafted, table.take("drafter")) {
        (0, None) => Ok((0, None)),
        (0, Some(item)) => Err(item.wrong("nothing is drafted; accepted: with drafted_tokens, such as 3".to_owned())),
        (_, Some(item)) => Ok((drafted, Some(item.parsed(str::parse)?))),
        (_, None) => {
            let problem =
                "nothing drafts these tokens; accepted: with drafter, what drafts the tokens: ngram, eagle or mtp";
            Err(table.place.wrong(problem.to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::step::Drafter;

    fn read(flags: &[(&'static str, &str)]) -> Result<(u64, Option<Drafter>)> {
        let mut table = Table::of_flags(flags.iter().map(|(key, value)| (*key, *key, (*value).to_owned())));
        drafts(&mut table)
    }

    #[test]
    fn drafted_tokens_and_what_drafts_them_come_together() {
        assert_eq!(read(&[]).unwrap(), (0, None));
        let both = [("drafted_tokens", "3"), ("drafter", "ngram")];
        assert_eq!(read(&both).unwrap(), (3, Some(Drafter::Ngram)));
        for (flags, expected) in [
            (&[("drafted_tokens", "3")][..], "what drafts the tokens: ngram, eagle or mtp"),
            (&[("drafter", "eagle")], "nothing is drafted; accepted: with drafted_tokens"),
            (&[("drafted_tokens", "3"), ("drafter", "medusa")], "accepted: ngram, eagle, mtp"),
            (&[("drafted_tokens", "0"), ("drafter", "eagle")], "1 to 64"),
            (&[("drafted_tokens", "65"), ("drafter", "eagle")], "1 to 64"),
        ] {
            let message = read(flags).unwrap_err().to_string();
            assert!(message.contains(expected), "{flags:?}: {message}");
        }
    }

    #[test]
    fn keys_and_values_are_transferred_behind_a_prefill_only() {
        let read = |flags: &[(&'static str, &str)]| {
            let flags = [&[("batch", "4")], flags].concat();
            Serving::read(Table::of_flags(flags.into_iter().map(|(key, value)| (key, key, value.to_owned()))))
        };
        let both = read(&[("kv_transfer", "request"), ("kv_element_type", "fp8_e5m2")]).unwrap();
        assert_eq!((both.kv_transfer, both.kv_element_type), (Some(KvTransfer::Request), ElementType::Fp8E5m2));
        let plain = read(&[("activation_element_type", "float16")]).unwrap();
        assert_eq!((plain.kv_transfer, plain.kv_element_type), (None, ElementType::Float16));
        for (flags, expected) in [
            (&[("kv_element_type", "fp8_e5m2")][..], "keys and values stay where they are; accepted: with kv_transfer"),
            (&[("kv_transfer", "token")], "accepted: layer, request"),
            (&[("kv_transfer", "layer"), ("kv_element_type", "int8")], "accepted"),
            (&[("kv_transfer", "layer"), ("phases", "decode")], "nothing is transferred without a prefill"),
            (&[("decode_context", "2"), ("phases", "prefill")], "changes nothing without a decode"),
            (&[("decode_context", "0")], "decode_context"),
            (&[("reduction_bits", "16")], "found 16; accepted: 4, 6, 8"),
        ] {
            let message = read(flags).unwrap_err().to_string();
            assert!(message.contains(expected), "{flags:?}: {message}");
        }
    }
}
