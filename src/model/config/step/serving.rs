//! Reads what a serving model does: how many requests at a time, how long, and which of its two phases.

use super::choices::{
    DecodeContextExchange, Drafter, ExpertTokens, FeedForwardRanks, KvTransfer, SampledTokens, ServingDispatcher,
    TokenExchange, VocabularyPadding,
};
use super::framework;
use super::framework::{FrameworkChoices, Work};
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
    /// Ranks that shard the tokens of the same keys and values.
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
        let batch = table.require("batch", "requests at a time, such as 16")?.whole(1..=LARGEST)?;
        let prompt_tokens =
            table.take("prompt_tokens").map(|item| item.whole(1..=LARGEST)).transpose()?.unwrap_or(1024);
        let context_tokens =
            table.take("context_tokens").map(|item| item.whole(1..=LARGEST)).transpose()?.unwrap_or(prompt_tokens);
        let drafts = drafts(&mut table)?;
        let micro_batches = micro_batches(&mut table, batch)?;
        let activation_element_type = match table.take("activation_element_type") {
            Some(item) => item.parsed(parse_reducible_float)?,
            None => ElementType::Bfloat16,
        };
        let phases = phases(&mut table)?;
        let kv = keys_and_values(&mut table, activation_element_type, phases)?;
        let decode_context = decode_context(&mut table, phases, framework.as_ref())?;
        let reduction_bits = table.take("reduction_bits").map(|item| reduction_bits(&item)).transpose()?;
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

// Reads the keys of a serving model that depend on each other.

/// Most of a number of tokens, requests or micro-batches.
pub(super) const LARGEST: u64 = u32::MAX as u64;

/// Micro-batches that a batch is cut into.
pub(super) fn micro_batches(table: &mut Table, batch: u64) -> Result<u64> {
    let Some(item) = table.take("micro_batches") else { return Ok(1) };
    let micro_batches = item.whole(1..=LARGEST)?;
    match batch.is_multiple_of(micro_batches) {
        true => Ok(micro_batches),
        false => Err(item.wrong(format!("found {micro_batches}, which does not divide a batch of {batch}"))),
    }
}

/// What a step of serving does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phases {
    /// The prompt is worked on.
    pub prefill: bool,
    /// Tokens are decoded.
    pub decode: bool,
}

/// What passes from stage to stage of a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Boundary {
    /// Each rank of a tensor-parallel group sends its part to the next stage only, and the receivers gather.
    pub scatter_gather: bool,
    /// Tensors of the width of the hidden state: 2 where the residual is apart.
    pub tensors: u64,
    /// How what the last stage has sampled comes to the others.
    pub sampled: SampledTokens,
}

/// Tokens that are drafted ahead of each request's next one, all of which the model verifies in its next pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drafts {
    /// How many.
    pub tokens: u64,
    /// What drafts them; some where any are drafted.
    pub drafter: Option<Drafter>,
}

/// Where keys and values are, and where they go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeysAndValues {
    /// In what pieces they go from the half of the replicas that prefills to the half that decodes; absent where each replica does both.
    pub transfer: Option<KvTransfer>,
    /// Their type where they are stored, and on their way.
    pub element_type: ElementType,
    /// Degree of tp of the replicas that decode, where it is another than that of those that prefill.
    pub decode_tp: Option<u32>,
}

/// Ranks that shard the tokens of the same keys and values during decode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeContext {
    /// How many of tp; 1 where each has all tokens of its heads.
    pub ranks: u32,
    /// How the outputs of attention over parts of a context are put together.
    pub exchange: DecodeContextExchange,
}

/// How tokens reach their experts, and the ranks that feed-forward layers are divided among.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServingExpertChoices {
    /// How tokens reach their experts.
    pub dispatcher: ServingDispatcher,
    /// Which tokens a rank of tp gives to them; absent where it is as the framework has it for the model.
    pub tokens: Option<ExpertTokens>,
    /// Type of tokens on their way to the experts (DeepEP).
    pub dispatch_element_type: ElementType,
    /// Ranks of ep on a node, where tokens go by way of nodes; absent where nothing says it.
    pub inner: Option<u32>,
    /// Among which ranks everything but attention is divided.
    pub feed_forward_ranks: FeedForwardRanks,
    /// How the tokens of replicas come together, where those are all ranks of a stage.
    pub token_exchange: TokenExchange,
}

impl ServingExpertChoices {
    pub(super) fn read(table: &mut Table, activation: ElementType) -> Result<ServingExpertChoices> {
        Ok(ServingExpertChoices {
            dispatcher: parsed_or(table, "dispatcher", ServingDispatcher::AllToAll, str::parse)?,
            tokens: table.take("expert_tokens").map(|item| item.parsed(str::parse)).transpose()?,
            dispatch_element_type: parsed_or(table, "dispatch_element_type", activation, parse_float)?,
            inner: table.take("expert_inner").map(|item| item.count()).transpose()?,
            feed_forward_ranks: parsed_or(table, "feed_forward_ranks", FeedForwardRanks::Replica, str::parse)?,
            token_exchange: parsed_or(table, "token_exchange", TokenExchange::AllGather, str::parse)?,
        })
    }
}

pub(super) fn phases(table: &mut Table) -> Result<Phases> {
    let Some(item) = table.take("phases") else { return Ok(Phases { prefill: true, decode: true }) };
    let mut phases = Phases { prefill: false, decode: false };
    for phase in item.items()? {
        match phase.text()? {
            "prefill" => phases.prefill = true,
            "decode" => phases.decode = true,
            other => return Err(phase.wrong(format!("found phase `{other}`; accepted: prefill, decode"))),
        }
    }
    Ok(phases)
}

/// Ranks that shard the tokens of the same keys and values, and the exchange of their results, which a framework's default may set without
/// sharding.
pub(super) fn decode_context(
    table: &mut Table,
    phases: Phases,
    framework: Option<&FrameworkChoices>,
) -> Result<DecodeContext> {
    let nothing = "has no effect without a decode; accepted: with decode among the phases";
    let ranks = match table.take("decode_context") {
        None => 1,
        Some(item) if phases.decode => item.count()?,
        Some(item) => return Err(item.wrong(nothing.to_owned())),
    };
    let Some(item) = table.take("decode_context_exchange") else {
        return Ok(DecodeContext { ranks, exchange: DecodeContextExchange::ReduceScatter });
    };
    if ranks == 1 && !framework.is_some_and(|framework| framework.decides("decode_context_exchange")) {
        return Err(item.wrong("no context is sharded; accepted: with decode_context above 1".to_owned()));
    }
    Ok(DecodeContext { ranks, exchange: item.parsed(str::parse)? })
}

/// The widths that QuickReduce has (vLLM csrc/quickreduce/quick_reduce_impl.cuh `CodecQ4`, `CodecQ6`, `CodecQ8`).
pub(super) fn reduction_bits(item: &Item) -> Result<u32> {
    let bits = item.count()?;
    match bits {
        4 | 6 | 8 => Ok(bits),
        _ => Err(item.wrong(format!("found {bits}; accepted: 4, 6, 8"))),
    }
}

/// How keys and values go from replicas that prefill to those that decode, and their type.
pub(super) fn keys_and_values(table: &mut Table, activation: ElementType, phases: Phases) -> Result<KeysAndValues> {
    let (transfer, element_type) = transfer(table, activation, phases)?;
    Ok(KeysAndValues { transfer, element_type, decode_tp: kv_decode_tp(table, transfer, phases)? })
}

fn transfer(table: &mut Table, activation: ElementType, phases: Phases) -> Result<(Option<KvTransfer>, ElementType)> {
    let element = table.take("kv_element_type");
    let Some(item) = table.take("kv_transfer") else {
        let stays = "keys and values stay where they are; accepted: with kv_transfer, layer or request";
        return element.map_or(Ok((None, activation)), |item| Err(item.wrong(stays.to_owned())));
    };
    if !phases.prefill {
        let nothing = "nothing is transferred without a prefill; accepted: with prefill among the phases";
        return Err(item.wrong(nothing.to_owned()));
    }
    let transfer = item.parsed(str::parse)?;
    let element = element.map(|item| item.parsed(parse_float)).transpose()?;
    Ok((Some(transfer), element.unwrap_or(activation)))
}

/// Degree of tp of the replicas that decode. Their pass is a separate step, with its own layout.
fn kv_decode_tp(table: &mut Table, transfer: Option<KvTransfer>, phases: Phases) -> Result<Option<u32>> {
    let Some(item) = table.take("kv_decode_tp") else { return Ok(None) };
    if transfer.is_none() {
        return Err(item.wrong("keys and values stay where they are; accepted: with kv_transfer".to_owned()));
    }
    if phases.decode {
        let both = "with a decode, whose layout is that of the prefill then; accepted: with phases = prefill, and the decode as a step of its own";
        return Err(item.wrong(both.to_owned()));
    }
    Ok(Some(item.count()?))
}

/// More would be refused by any of the frameworks long before.
const MOST_DRAFTED: u64 = 64;

/// How many tokens are drafted, and by what.
pub(super) fn drafts(table: &mut Table) -> Result<Drafts> {
    let drafted = table.take("drafted_tokens").map(|item| item.whole(1..=MOST_DRAFTED)).transpose()?.unwrap_or(0);
    match (drafted, table.take("drafter")) {
        (0, None) => Ok(Drafts { tokens: 0, drafter: None }),
        (0, Some(item)) => Err(item.wrong("nothing is drafted; accepted: with drafted_tokens, such as 3".to_owned())),
        (_, Some(item)) => Ok(Drafts { tokens: drafted, drafter: Some(item.parsed(str::parse)?) }),
        (_, None) => {
            let problem =
                "nothing drafts these tokens; accepted: with drafter, what drafts the tokens: ngram, eagle or mtp";
            Err(table.place.wrong(problem.to_owned()))
        }
    }
}

// How keys of `[training]` and `[serving]` are read that have a default.

pub(super) fn truth_or(table: &mut Table, key: &'static str, default: bool) -> Result<bool> {
    table.take(key).map_or(Ok(default), |item| item.truth())
}

pub(super) fn parsed_or<T>(
    table: &mut Table,
    key: &'static str,
    default: T,
    parse: impl Fn(&str) -> std::result::Result<T, String>,
) -> Result<T> {
    table.take(key).map_or(Ok(default), |item| item.parsed(parse))
}

pub(super) fn parse_reducible_float(text: &str) -> std::result::Result<ElementType, String> {
    use ElementType::{Bfloat16, Float16, Float32, Float64};
    let element: ElementType = text.parse()?;
    if matches!(element, Float16 | Bfloat16 | Float32 | Float64) {
        return Ok(element);
    }
    Err(format!("found {element}; accepted: bfloat16, float16, float32, float64"))
}

/// Types that are only moved may be 8 bits wide.
pub(super) fn parse_float(text: &str) -> std::result::Result<ElementType, String> {
    let element: ElementType = text.parse()?;
    if element.moves_only() {
        return Ok(element);
    }
    parse_reducible_float(text).map_err(|problem| format!("{problem}, fp8_e4m3, fp8_e5m2"))
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::config::Serving;

    fn read(flags: &[(&'static str, &str)]) -> Result<Drafts> {
        let mut table = Table::of_flags(flags.iter().map(|(key, value)| (*key, *key, (*value).to_owned())));
        drafts(&mut table)
    }

    #[test]
    fn drafted_tokens_and_what_drafts_them_come_together() {
        assert_eq!(read(&[]).unwrap(), Drafts { tokens: 0, drafter: None });
        let both = [("drafted_tokens", "3"), ("drafter", "ngram")];
        assert_eq!(read(&both).unwrap(), Drafts { tokens: 3, drafter: Some(Drafter::Ngram) });
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
        assert_eq!((both.kv.transfer, both.kv.element_type), (Some(KvTransfer::Request), ElementType::Fp8E5m2));
        let plain = read(&[("activation_element_type", "float16")]).unwrap();
        assert_eq!((plain.kv.transfer, plain.kv.element_type), (None, ElementType::Float16));
        for (flags, expected) in [
            (&[("kv_element_type", "fp8_e5m2")][..], "keys and values stay where they are; accepted: with kv_transfer"),
            (&[("kv_transfer", "token")], "accepted: layer, request"),
            (&[("kv_decode_tp", "2"), ("phases", "prefill")], "stay where they are; accepted: with kv_transfer"),
            (&[("kv_transfer", "layer"), ("kv_decode_tp", "2")], "accepted: with phases = prefill, and the decode"),
            (&[("kv_transfer", "layer"), ("kv_decode_tp", "0"), ("phases", "prefill")], "kv_decode_tp"),
            (&[("kv_transfer", "layer"), ("kv_element_type", "int8")], "accepted"),
            (&[("kv_transfer", "layer"), ("phases", "decode")], "nothing is transferred without a prefill"),
            (&[("decode_context", "2"), ("phases", "prefill")], "has no effect without a decode"),
            (&[("decode_context", "0")], "decode_context"),
            (&[("decode_context_exchange", "packed")], "no context is sharded; accepted: with decode_context above 1"),
            (
                &[("framework", "vllm"), ("decode_context", "2"), ("decode_context_exchange", "all_to_all")],
                "vllm offers no other decode_context_exchange than reduce_scatter, packed",
            ),
            (
                &[("decode_context", "2"), ("decode_context_exchange", "gather")],
                "accepted: reduce_scatter, all_to_all, packed, head_sums",
            ),
            (&[("reduction_bits", "16")], "found 16; accepted: 4, 6, 8"),
        ] {
            let message = read(flags).unwrap_err().to_string();
            assert!(message.contains(expected), "{flags:?}: {message}");
        }
    }
}
