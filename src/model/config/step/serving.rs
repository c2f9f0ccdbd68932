//! What a serving model does: how many requests at a time, how long, and which of its two phases.

use super::choices::*;
use super::framework::{Framework, FrameworkChoices, Work};
use super::keys::{
    Accepted, Group, KeyPart, KeyValue, Keys, MOVED, Needs, Places, StepKey, Value, check_conditions, group, key, keys,
    with,
};
use crate::config::document::{Item, Table};
use commgauge_base::element::ElementType;
use commgauge_base::error::Result;
use std::borrow::Cow;

const SERVING: Group = group(Work::Serving, "Serving", Needs::Nothing);
const BOUNDARY: Group = group(Work::Serving, "Serving", Needs::PipelineParallelism);

/// Values of `phases` with a decode.
const DECODES: &[&str] = &["decode", "prefill,decode"];

keys! {
    /// A batch of requests that a model serves together.
    Serving in SERVING;
    /// Phases of serving, instead of a training step
    phases: Phases = key("phases").or("prefill,decode").flag("--serve").common(),
    /// Requests of a replica that are worked on together
    batch: u64 = key("batch").required("requests at a time, such as 16"),
    /// Tokens of a prompt, all in one prefill
    prompt_tokens: u64 = key("prompt_tokens").or("1024"),
    /// Tokens in the key-value cache of a request when it decodes. They count for memory, not for messages
    context_tokens: u64 = key("context_tokens").or_that_of("prompt_tokens"),
    /// Micro-batches into which the batch is cut for the stages of a pipeline
    micro_batches: u64 = key("micro_batches").or("1"),
    /// Type of activations on the wire
    activation_element_type: ElementType = key("activation_element_type").or("bfloat16").flag("--activation-type"),
    /// Framework whose defaults hold for all other keys
    framework: Option<Framework> = key("framework").takes(Accepted::Frameworks(Work::Serving)),
    /// Bits of the numbers that sums over tp are sent in (vLLM csrc/quickreduce/quick_reduce_impl.cuh CodecQ4, CodecQ6, CodecQ8)
    reduction_bits: Option<u32> = key("reduction_bits").takes(Accepted::Names(&["4", "6", "8"])),
    /// Replicas agree on the size of a batch before each pass
    batch_agreement: bool = key("batch_agreement").or("false"),
    /// What the vocabulary is padded to. megatron: a multiple of 128 x tp; vllm: of 64; even: of tp
    vocabulary_padding: VocabularyPadding = key("vocabulary_padding").or("megatron"),
    + /// What the framework decided.
    framework_choices: Option<FrameworkChoices>,
    + /// Tokens that are drafted ahead.
    drafts: Drafts,
    + /// How tokens reach their experts and the ranks that feed-forward layers are divided among.
    expert: ServingExpertChoices,
    + /// Where keys and values are, and where they go.
    kv: KeysAndValues,
    + /// Ranks that divide the tokens of the same keys and values.
    decode_context: DecodeContext,
    + /// What passes from stage to stage.
    boundary: Boundary,
    + /// Where the keys were written.
    places: Places,
}

keys! {
    /// Tokens that are drafted ahead of each request's next one, all of which the model verifies in its next pass.
    #[derive(Copy)]
    Drafts in SERVING;
    /// Tokens drafted ahead of each request's next one, all verified in one pass
    tokens: u64 = key("drafted_tokens").within(0, 64).or("0"),
    /// What drafts them. ngram: no message; eagle: a dense layer; mtp: a prediction layer of the model
    drafter: Option<Drafter> = key("drafter").only(&[with("drafted_tokens", &[])]),
}

keys! {
    /// How tokens reach their experts, and the ranks that feed-forward layers are divided among.
    #[derive(Copy)]
    ServingExpertChoices in SERVING;
    /// How tokens reach their experts
    dispatcher: ServingDispatcher = key("dispatcher").or("all_to_all"),
    /// Which tokens a rank of tp gives to experts of other replicas
    tokens: Option<ExpertTokens> = key("expert_tokens").or_else("as the framework has it"),
    /// Type of tokens on their way to the experts
    dispatch_element_type: ElementType = key("dispatch_element_type").takes(MOVED)
        .or_that_of("activation_element_type").flag("--dispatch-type")
        .only(&[with("dispatcher", &["deepep", "deepep_low_latency"])]),
    /// Ranks of ep on a node
    inner: Option<u32> = key("expert_inner").or_else("8, or ep where that is less").only(&[
        with("dispatcher", &["deepep"]),
    ]),
    /// Ranks among which everything but attention is divided. replica: those of tp; stage: of tp and dp together
    feed_forward_ranks: FeedForwardRanks = key("feed_forward_ranks").or("replica"),
    /// How the tokens of replicas come together with feed_forward_ranks = stage
    token_exchange: TokenExchange = key("token_exchange").or("all_gather"),
}

keys! {
    /// Where keys and values are, and where they go.
    #[derive(Copy)]
    KeysAndValues in SERVING;
    /// Half of dp prefills and sends the keys and values of each request to the half that decodes
    transfer: bool = key("kv_transfer").or("false").only(&[with("phases", &["prefill", "prefill,decode"])]),
    /// Type of keys and values on their way
    element_type: ElementType = key("kv_element_type").takes(MOVED)
        .or_that_of("activation_element_type").flag("--kv-type").only(&[with("kv_transfer", &[])]),
    /// Degree of tp of the half that decodes, as a step of its own
    decode_tp: Option<u32> = key("kv_decode_tp").or_else("that of the half that prefills").only(&[
        with("kv_transfer", &[]), with("phases", &["prefill"]),
    ]),
}

keys! {
    /// Ranks that divide the tokens of the same keys and values while they decode.
    #[derive(Copy)]
    DecodeContext in SERVING;
    /// Ranks of tp that divide the tokens of the same keys and values while they decode
    ranks: u32 = key("decode_context").or("1").only(&[with("phases", DECODES)]),
    /// How the outputs over parts of a context are put together
    exchange: DecodeContextExchange = key("decode_context_exchange").or("reduce_scatter").only(&[
        with("decode_context", &[]),
    ]),
}

keys! {
    /// What passes from stage to stage of a pipeline.
    #[derive(Copy)]
    Boundary in BOUNDARY;
    /// Each rank of tp sends its part only, and the receivers gather
    scatter_gather: bool = key("scatter_gather").or("false"),
    /// Tensors from stage to stage. 2 where the residual is apart
    tensors: u64 = key("boundary_tensors").within(1, 2).or("1"),
    /// How sampled tokens come from the last stage to the others
    sampled: SampledTokens = key("sampled_tokens").or("broadcast"),
}

/// What a step of serving does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phases {
    /// The prompt is worked on.
    pub prefill: bool,
    /// Tokens are decoded.
    pub decode: bool,
}

impl KeyValue for Phases {
    const ACCEPTED: Accepted = Accepted::List(&["prefill", "decode"]);

    fn read(item: Item, _: &StepKey) -> Result<Phases> {
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

    fn text(&self) -> Cow<'static, str> {
        match (self.prefill, self.decode) {
            (true, true) => "prefill,decode",
            (true, false) => "prefill",
            (false, _) => "decode",
        }
        .into()
    }
}

impl Serving {
    /// Reads the `[serving]` table, or the equivalent flags.
    pub fn read(table: Table) -> Result<Serving> {
        let serving = Serving::take(&mut Keys::of::<Serving>(table, Work::Serving)?)?;
        let (batch, micro_batches) = (serving.batch, serving.micro_batches);
        if !batch.is_multiple_of(micro_batches) {
            let problem = format!("found {micro_batches}, which does not divide a batch of {batch}");
            return Err(serving.places.at("micro_batches").wrong(problem));
        }
        if serving.drafts.tokens > 0 && serving.drafts.drafter.is_none() {
            let problem = "nothing drafts these tokens; accepted: with drafter, what drafts them: ngram, eagle or mtp";
            return Err(serving.places.at("drafted_tokens").wrong(problem));
        }
        check_conditions(&serving, &serving.places, serving.framework_choices.as_ref(), |_| true)?;
        Ok(serving)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(flags: &[(&'static str, &str)]) -> Result<Serving> {
        let flags = [&[("batch", "4")], flags].concat();
        Serving::read(Table::of_flags(flags.into_iter().map(|(key, value)| (key, key, value.to_owned()))))
    }

    #[test]
    fn values_may_follow_from_those_of_other_keys() {
        let both = read(&[("drafted_tokens", "3"), ("drafter", "ngram"), ("prompt_tokens", "7")]).unwrap();
        assert_eq!(both.drafts, Drafts { tokens: 3, drafter: Some(Drafter::Ngram) });
        assert_eq!((both.context_tokens, read(&[]).unwrap().context_tokens), (7, 1024));
        let both = read(&[("kv_transfer", "true"), ("kv_element_type", "fp8_e5m2")]).unwrap();
        assert_eq!((both.kv.transfer, both.kv.element_type), (true, ElementType::Fp8E5m2));
        let plain = read(&[("activation_element_type", "fp16")]).unwrap();
        assert_eq!((plain.kv.transfer, plain.kv.element_type), (false, ElementType::Float16));
        // What a framework does with a context that is divided is no mistake where it is not.
        assert!(read(&[("framework", "sglang")]).is_ok());
    }

    #[test]
    fn a_key_without_what_it_needs_is_refused_with_what_that_is() {
        for (flags, expected) in [
            (&[("drafted_tokens", "3")][..], "what drafts them: ngram, eagle or mtp"),
            (&[("drafter", "eagle")], "drafter: drafter = eagle needs drafted_tokens; found drafted_tokens = 0"),
            (&[("drafted_tokens", "3"), ("drafter", "medusa")], "accepted: ngram, eagle, mtp"),
            (&[("drafted_tokens", "65"), ("drafter", "eagle")], "0 to 64"),
            (
                &[("kv_element_type", "fp8_e5m2")],
                "kv_element_type = fp8_e5m2 needs kv_transfer; found kv_transfer = false",
            ),
            (&[("kv_transfer", "layer")], "accepted: true or false"),
            (&[("kv_decode_tp", "2"), ("phases", "prefill")], "kv_decode_tp = 2 needs kv_transfer"),
            (
                &[("kv_transfer", "true"), ("kv_decode_tp", "2")],
                "kv_decode_tp = 2 needs phases = prefill; found phases = prefill,decode",
            ),
            (&[("kv_transfer", "true"), ("kv_decode_tp", "0"), ("phases", "prefill")], "kv_decode_tp: found 0"),
            (&[("kv_transfer", "true"), ("kv_element_type", "int8")], "found int8; accepted: bfloat16"),
            (
                &[("kv_transfer", "true"), ("phases", "decode")],
                "kv_transfer = true needs phases = prefill or prefill,decode; found phases = decode",
            ),
            (&[("decode_context", "2"), ("phases", "prefill")], "decode_context = 2 needs phases = decode"),
            (&[("decode_context", "0")], "decode_context: found 0"),
            (&[("decode_context_exchange", "packed")], "needs decode_context; found decode_context = 1"),
            (
                &[("framework", "vllm"), ("decode_context", "2"), ("decode_context_exchange", "head_sums")],
                "vllm offers no other decode_context_exchange than reduce_scatter, packed",
            ),
            (
                &[("decode_context", "2"), ("decode_context_exchange", "gather")],
                "accepted: reduce_scatter, packed, head_sums",
            ),
            (&[("reduction_bits", "16")], "found 16; accepted: 4, 6, 8"),
            (&[("expert_inner", "4")], "expert_inner = 4 needs dispatcher = deepep; found dispatcher = all_to_all"),
            (
                &[("dispatch_element_type", "fp8_e4m3")],
                "dispatch_element_type = fp8_e4m3 needs dispatcher = deepep or deep",
            ),
            (&[("micro_batches", "3")], "micro_batches: found 3, which does not divide a batch of 4"),
        ] {
            let message = read(flags).unwrap_err().to_string();
            assert!(message.contains(expected), "{flags:?}: {message}");
        }
    }
}
