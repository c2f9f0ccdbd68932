//! Elements of one token's queries, keys, values and attention output on a rank, as context parallelism exchanges
//! them.
//!
//! With latent attention these are the keys and values of every head after the up-projection, as used by attention
//! (Megatron-LM core/transformer/multi_latent_attention.py).

use crate::workload::step::TrainingStep;

/// Widths of one token on one rank of tp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Width {
    /// Query heads.
    heads: u64,
    /// Key and value heads, with the copies that an all_to_all needs.
    kv_heads: u64,
    /// Key and value heads without those copies.
    kv_heads_per_rank: u64,
    /// Elements of a head's query or key.
    key: u64,
    /// Elements of a head's value.
    value: u64,
}

/// Tensors of equal width that are exchanged one after the other.
pub(super) struct Exchanged {
    pub name: &'static str,
    pub elements: u64,
    pub formula: String,
    pub calls: u64,
}

impl Width {
    /// Heads are exchanged for tokens over `exchanging` ranks; 1 without an exchange.
    pub fn of(step: &TrainingStep, exchanging: u32) -> Width {
        let (model, t) = (step.model, u64::from(step.layout.degrees.tp));
        let heads = model.attention.heads / t;
        let (kv_heads_per_rank, value) = match &model.attention.latent {
            Some(latent) => (heads, latent.value_dimension),
            // If there are fewer heads than ranks, each rank has a copy of one.
            None => (model.kv_heads_per_rank(t), model.attention.head_dimension),
        };
        let kv_heads = kv_heads_per_rank.max(u64::from(exchanging));
        Width { heads, kv_heads, kv_heads_per_rank, key: model.attention.head_dimension, value }
    }

    /// Keys and values together.
    pub fn keys_and_values(&self) -> u64 {
        self.kv_heads * (self.key + self.value)
    }

    /// Formula of the numbers of elements.
    pub fn formula(&self) -> String {
        if self.key == self.value {
            return format!("2*{} kv heads*{}{}", self.kv_heads, self.key, self.copies());
        }
        format!("{} heads*({} + {})", self.kv_heads, self.key, self.value)
    }

    /// Queries, keys, values and output, those of equal width together.
    pub fn tensors(&self) -> Vec<Exchanged> {
        let exchanged = |name, heads: u64, width: u64, calls| Exchanged {
            name,
            elements: heads * width,
            formula: format!("{heads} heads*{width}"),
            calls,
        };
        let copied = |mut exchanged: Exchanged| {
            exchanged.formula += &self.copies();
            exchanged
        };
        if self.key == self.value {
            return vec![
                exchanged("queries, and the attention's output", self.heads, self.key, 2),
                copied(exchanged("keys, and values", self.kv_heads, self.key, 2)),
            ];
        }
        vec![
            exchanged("queries", self.heads, self.key, 1),
            exchanged("keys", self.kv_heads, self.key, 1),
            exchanged("values, and the attention's output", self.heads, self.value, 2),
        ]
    }

    fn copies(&self) -> String {
        match self.kv_heads == self.kv_heads_per_rank {
            true => String::new(),
            false => format!(" ({} kv heads copied, one for each rank)", self.kv_heads_per_rank),
        }
    }
}
