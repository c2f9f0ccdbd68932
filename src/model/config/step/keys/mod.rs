//! The keys of the tables `[training]` and `[serving]`: their names, the flags that stand for them, and what they mean. Everything that
//! lists them takes them from here; how their values are read is with the choices themselves.

mod step_key;

pub use step_key::{KeyForm, Needs, StepKey};

use crate::config::step::Work;
use step_key::{BOTH, SERVING, TRAINING};

/// Keys that belong together.
#[derive(Debug, PartialEq, Eq)]
pub struct KeyGroup {
    /// What they are about.
    pub heading: &'static str,
    /// Without what they change nothing, unless a key says otherwise.
    needs: Needs,
    /// The keys.
    pub keys: &'static [StepKey],
}

/// All of them.
pub const STEP_KEYS: [KeyGroup; 7] = [
    KeyGroup { heading: "Step", needs: Needs::Nothing, keys: STEP },
    KeyGroup { heading: "Tensor parallelism", needs: Needs::TensorParallelism, keys: step_key::TENSOR },
    KeyGroup { heading: "Data parallelism", needs: Needs::Nothing, keys: step_key::DATA },
    KeyGroup { heading: "Pipeline parallelism", needs: Needs::PipelineParallelism, keys: step_key::PIPELINE },
    KeyGroup { heading: "Context parallelism", needs: Needs::ContextParallelism, keys: step_key::CONTEXT },
    KeyGroup { heading: "Expert parallelism", needs: Needs::Experts, keys: step_key::EXPERT },
    KeyGroup { heading: "Serving", needs: Needs::Nothing, keys: SERVED },
];

/// The names of the keys that the table of such work has.
pub fn keys_of(work: Work) -> impl Iterator<Item = &'static str> {
    let keys = STEP_KEYS.iter().flat_map(|group| group.keys);
    keys.filter(move |key| key.takes.contains(&work)).map(|key| key.key)
}

/// Without values for which a flag has no effect; `None` for one without a key.
pub fn needs_of_flag(flag: &str) -> Option<Needs> {
    STEP_KEYS.iter().find_map(|group| {
        let key = group.keys.iter().find(|key| key.flag == flag)?;
        Some(key.needs.unwrap_or(group.needs))
    })
}

// Keys of a step as a whole, and of a model that serves.

/// Of every step.
const STEP: &[StepKey] = &[
    StepKey::text("sequence", "--sequence", "TOKENS", TRAINING, "Tokens of one sample").alias("seq").common(),
    StepKey::text("micro_batch", "--micro-batch", "N", TRAINING, "Samples of a micro-batch [default: 1]"),
    StepKey::text("global_batch", "--global-batch", "N", TRAINING, "Samples of a step over all replicas"),
    StepKey::text(
        "micro_batches",
        "--micro-batches",
        "N",
        BOTH,
        "Micro-batches of a replica in a step; instead of --global-batch",
    )
    .common(),
    StepKey::text(
        "activation_element_type",
        "--activation-type",
        "TYPE",
        BOTH,
        "Type of activations on the wire: bf16 (default), fp16, fp32",
    ),
    StepKey::text(
        "framework",
        "--framework",
        "NAME",
        BOTH,
        "Take the defaults of a framework, each still to be set by its own flag: megatron, deepspeed, fsdp1, fsdp2, \
             torchtitan, hf or ddp; to serve vllm, sglang or trt-llm",
    ),
    StepKey::text(
        "prediction_layers",
        "--prediction-layers",
        "N",
        TRAINING,
        "Layers behind the last one that predict a further token each [default: 0]",
    ),
    StepKey::text(
        "small_calls",
        "--small-calls",
        "LIST",
        TRAINING,
        "Small calls around the optimizer, a list with commas, or none: tokens, batch_tokens, overflow, \
             overflow_byte, norm, norm_double, norm_tensors, status, loss [default: tokens, overflow, norm, status, loss]",
    ),
];

/// Of a model that serves.
const SERVED: &[StepKey] = &[
    StepKey::text(
        "phases",
        "--serve",
        "PHASES",
        SERVING,
        "Serve requests instead of training: prefill, decode, or both with a comma",
    )
    .common(),
    StepKey::text("batch", "--batch", "N", SERVING, "Requests that are worked on together"),
    StepKey::text("prompt_tokens", "--prompt-tokens", "TOKENS", SERVING, "Tokens of a prompt [default: 1024]"),
    StepKey::text(
        "context_tokens",
        "--context-tokens",
        "TOKENS",
        SERVING,
        "Tokens that are there when a further one is decoded [default: those of the prompt]",
    ),
    StepKey::text(
        "drafted_tokens",
        "--drafted-tokens",
        "N",
        SERVING,
        "Tokens drafted ahead of each request's next one, all verified in one pass",
    ),
    StepKey::text(
        "drafter",
        "--drafter",
        "WHAT",
        SERVING,
        "What drafts them: ngram (no message), eagle (a dense layer), mtp (a prediction layer of the model)",
    ),
    StepKey::text(
        "expert_tokens",
        "--expert-tokens",
        "WHICH",
        SERVING,
        "Which tokens a rank of tp gives to experts of other replicas, with dispatcher all_gather: parts (default), whole \
             (vLLM for some models)",
    ),
    StepKey::text(
        "feed_forward_ranks",
        "--feed-forward-ranks",
        "RANKS",
        SERVING,
        "Among which ranks everything but attention is divided: replica (default, those of tp), stage (tp and dp \
             together)",
    ),
    StepKey::text(
        "token_exchange",
        "--token-exchange",
        "HOW",
        SERVING,
        "How the tokens of replicas come together where those are the ranks of a stage: all_gather (default), \
             all_reduce",
    ),
    StepKey::text(
        "kv_transfer",
        "--kv-transfer",
        "PIECES",
        SERVING,
        "Half of dp prefills and sends keys and values to the half that decodes: layer (of each request as a layer is \
             done), request (all layers of a request at once)",
    ),
    StepKey::text(
        "kv_element_type",
        "--kv-type",
        "TYPE",
        SERVING,
        "Type of keys and values on their way [default: that of activations]",
    ),
    StepKey::text(
        "kv_decode_tp",
        "--kv-decode-tp",
        "DEGREE",
        SERVING,
        "Degree of tp of the half that decodes, of a prefill alone [default: that of the half that prefills]",
    ),
    StepKey::text(
        "decode_context",
        "--decode-context",
        "RANKS",
        SERVING,
        "Ranks of tp that shard the tokens of the same keys and values during decode [default: 1]",
    ),
    StepKey::text(
        "decode_context_exchange",
        "--decode-context-exchange",
        "HOW",
        SERVING,
        "How the outputs over parts of a context are put together: reduce_scatter (default), all_to_all, packed, \
             head_sums",
    ),
    StepKey::text(
        "reduction_bits",
        "--reduction-bits",
        "BITS",
        SERVING,
        "Bits of the numbers that sums over tp are sent in: 4, 6, 8 [default: the type of activations]",
    ),
    StepKey::truth(
        "batch_agreement",
        "--batch-agreement",
        SERVING,
        "Replicas agree on the size of a batch before each pass",
    ),
    StepKey::text(
        "boundary_tensors",
        "--boundary-tensors",
        "N",
        SERVING,
        "Tensors from stage to stage: 1 (default), 2 where the residual is apart",
    )
    .needs(Needs::PipelineParallelism),
    StepKey::text(
        "sampled_tokens",
        "--sampled-tokens",
        "HOW",
        SERVING,
        "How sampled tokens come from the last stage to the others: broadcast (default), ring",
    )
    .needs(Needs::PipelineParallelism),
];

#[cfg(test)]
mod tests {

    use super::*;
    use crate::config::document::Table;
    use crate::config::step::Work;
    use crate::config::{Serving, Training};
    use std::path::Path;

    /// The keys listed for a table that has an unknown one.
    fn known(work: Work) -> Vec<String> {
        let table =
            Table::parse(Path::new("suite.toml"), "unknown_to_all = 1\nsequence = 8\nmicro_batches = 1\nbatch = 1");
        let table = table.unwrap();
        let message = match work {
            Work::Training => Training::read(table).unwrap_err().to_string(),
            Work::Serving => Serving::read(table).unwrap_err().to_string(),
        };
        let (_, list) = message.split_once("Known here: ").unwrap_or_else(|| panic!("{message}"));
        list.split(", ").map(str::to_owned).collect()
    }

    #[test]
    fn each_table_reads_the_keys_that_are_listed_and_no_others() {
        for (work, elsewhere) in [(Work::Training, vec!["placements"]), (Work::Serving, vec![])] {
            let keys = STEP_KEYS.iter().flat_map(|group| group.keys).filter(|key| key.takes.contains(&work));
            let mut listed: Vec<&str> = keys.map(|key| key.key).chain(elsewhere).collect();
            let mut known = known(work);
            listed.sort_unstable();
            known.sort_unstable();
            assert_eq!(known, listed, "{work:?}");
        }
    }

    #[test]
    fn flags_and_keys_are_there_once_and_a_flag_that_denies_says_so() {
        let keys: Vec<&StepKey> = STEP_KEYS.iter().flat_map(|group| group.keys).collect();
        for (index, key) in keys.iter().enumerate() {
            let others = || keys.iter().skip(index + 1);
            assert!(others().all(|other| other.key != key.key && other.flag != key.flag), "{}", key.key);
            assert_eq!(key.flag.starts_with("--no-"), key.form == KeyForm::Denial, "{}", key.flag);
            assert!(!key.meaning.is_empty() && !key.meaning.ends_with('.'), "{}", key.key);
        }
    }

    #[test]
    fn the_page_of_suites_names_every_key() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../suites/README.md");
        let page = std::fs::read_to_string(page).unwrap();
        for key in STEP_KEYS.iter().flat_map(|group| group.keys) {
            let as_code = page.contains(&format!("`{}`", key.key));
            assert!(
                as_code || page.contains(&format!("{} = ", key.key)),
                "suites/README.md says nothing of {}",
                key.key
            );
        }
    }
}
