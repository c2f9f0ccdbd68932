//! Reads the fields of a mixture of experts; the fields of every model are read in `read`.

use super::Mixture;
use super::facts::ExpertFacts;
use super::family::Family;
use super::fields::Fields;
use commgauge_base::error::Result;

const EXPERTS: &[&str] = &["num_local_experts", "num_experts", "n_routed_experts"];
const EXPERTS_PER_TOKEN: &[&str] = &["num_experts_per_tok", "experts_per_token"];
const EXPERT_FEED_FORWARD: &[&str] = &["moe_intermediate_size"];

impl Fields<'_> {
    /// The experts of a family that has them.
    pub(super) fn mixture(&self, family: Family, facts: ExpertFacts, layers: u32) -> Result<Mixture> {
        let groups = self.optional(&["n_group"])?.zip(self.optional(&["topk_group"])?);
        let expert_feed_forward = match self.optional(EXPERT_FEED_FORWARD)? {
            Some(width) => width,
            None if facts.of_feed_forward_width => self.need(&["intermediate_size"])?,
            None => return Err(self.missing(EXPERT_FEED_FORWARD)),
        };
        let (shared_experts, shared_feed_forward) = self.shared_experts(family, facts, expert_feed_forward)?;
        let (layer_step, layer_offset) = self.expert_layers()?;
        Ok(Mixture {
            experts: self.need(EXPERTS)?,
            experts_per_token: self.need(EXPERTS_PER_TOKEN)?,
            expert_feed_forward,
            shared_experts,
            shared_feed_forward,
            shared_expert_gate: facts.shared_gate,
            router_bias: family == Family::GptOss,
            first_dense_layers: self.first_dense_layers(family, facts)?,
            layer_step,
            layer_offset,
            dense_layers: self.dense_layers(layers)?,
            router_groups: groups,
        })
    }

    /// How many shared experts, and how wide they are together.
    fn shared_experts(&self, family: Family, facts: ExpertFacts, expert_feed_forward: u64) -> Result<(u64, u64)> {
        if let Some(width) = self.optional_from_zero(&["shared_expert_intermediate_size"])? {
            return Ok((u64::from(width > 0), width));
        }
        let shared = match (self.optional_from_zero(&["n_shared_experts"])?, facts.shared) {
            (Some(shared), _) => shared,
            // Its one shared expert is as wide as a routed one (transformers, `Llama4TextMoe`).
            (None, _) if family == Family::Llama4 => 1,
            (None, _) if facts.shared_gate => return Err(self.missing(&["shared_expert_intermediate_size"])),
            (None, Some(default)) => self.of_class(family, "n_shared_experts", default),
            (None, None) => 0,
        };
        Ok((shared, shared.saturating_mul(expert_feed_forward)))
    }

    fn first_dense_layers(&self, family: Family, facts: ExpertFacts) -> Result<u32> {
        let name = "first_k_dense_replace";
        Ok(match self.optional_from_zero(&[name])? {
            Some(layers) => layers as u32,
            None if facts.first_dense > 0 => self.of_class(family, name, facts.first_dense) as u32,
            None => 0,
        })
    }

    /// The class has defaults for absent fields, and treats null as no value.
    fn of_class(&self, family: Family, name: &'static str, default: u64) -> u64 {
        match self.is_absent(name) {
            true => self.infer(name, default, format!("absent: the default of {}", family.model_type())),
            false => self.infer(name, 0, "null: none"),
        }
    }

    /// Every how many layers there are experts, and from which on. DeepSeek counts layers from 0, Qwen and Llama 4 from 1.
    fn expert_layers(&self) -> Result<(u32, u32)> {
        if let Some(step) = self.optional(&["decoder_sparse_step", "interleave_moe_layer_step"])? {
            return Ok((step as u32, step as u32 - 1));
        }
        Ok((self.optional(&["moe_layer_freq"])?.unwrap_or(1) as u32, 0))
    }

    /// Layers without experts that are listed, or that are not among the listed ones with experts.
    fn dense_layers(&self, layers: u32) -> Result<Vec<u32>> {
        if let Some(with_experts) = self.listed_layers("moe_layers")? {
            return Ok((0..layers).filter(|layer| with_experts.binary_search(layer).is_err()).collect());
        }
        Ok(self.listed_layers("mlp_only_layers")?.unwrap_or_default())
    }

    fn listed_layers(&self, name: &'static str) -> Result<Option<Vec<u32>>> {
        let Some((name, value)) = self.first(&[name]) else { return Ok(None) };
        let mut layers: Vec<u32> = serde_json::from_value(value.clone())
            .map_err(|_| self.wrong(name, format!("found {value}; accepted: a list of layers, counted from 0")))?;
        layers.sort_unstable();
        Ok(Some(layers))
    }
}
