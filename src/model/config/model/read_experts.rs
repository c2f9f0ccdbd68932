//! Reads the fields of a mixture of experts; the fields of every model are read in `read`.

use super::Mixture;
use super::family::Family;
use super::fields::Fields;
use commgauge_base::error::Result;

const EXPERTS: &[&str] = &["num_local_experts", "num_experts", "n_routed_experts"];
const EXPERTS_PER_TOKEN: &[&str] = &["num_experts_per_tok", "experts_per_token"];
const EXPERT_FEED_FORWARD: &[&str] = &["moe_intermediate_size"];

impl Fields<'_> {
    /// The experts of a family that has them; `feed_forward` is the file's inner width of a dense layer.
    pub(super) fn mixture(&self, family: Family, feed_forward: u64) -> Result<Mixture> {
        let groups = self.optional(&["n_group"])?.zip(self.optional(&["topk_group"])?);
        let expert_feed_forward = match self.optional(EXPERT_FEED_FORWARD)? {
            Some(width) => width,
            // Mixtral and gpt-oss have only experts, whose width is the file's one width.
            None if matches!(family, Family::Mixtral | Family::GptOss) => feed_forward,
            None => return Err(self.missing(EXPERT_FEED_FORWARD)),
        };
        let (shared_experts, shared_feed_forward) = self.shared_experts(family, expert_feed_forward)?;
        let (layer_step, layer_offset) = self.expert_layers()?;
        Ok(Mixture {
            experts: self.need(EXPERTS)?,
            experts_per_token: self.need(EXPERTS_PER_TOKEN)?,
            expert_feed_forward,
            shared_experts,
            shared_feed_forward,
            shared_expert_gate: family == Family::Qwen2Moe,
            router_bias: family == Family::GptOss,
            first_dense_layers: self.first_dense_layers(family)?,
            layer_step,
            layer_offset,
            dense_layers: self.dense_layers()?,
            router_groups: groups,
        })
    }

    /// How many shared experts, and how wide they are together.
    fn shared_experts(&self, family: Family, expert_feed_forward: u64) -> Result<(u64, u64)> {
        if let Some(width) = self.optional_from_zero(&["shared_expert_intermediate_size"])? {
            return Ok((u64::from(width > 0), width));
        }
        let shared = match self.optional_from_zero(&["n_shared_experts"])? {
            Some(shared) => shared,
            None if family == Family::Qwen2Moe => return Err(self.missing(&["shared_expert_intermediate_size"])),
            None if family == Family::DeepseekV3 => self.of_deepseek("n_shared_experts", 1),
            None => 0,
        };
        Ok((shared, shared.saturating_mul(expert_feed_forward)))
    }

    fn first_dense_layers(&self, family: Family) -> Result<u32> {
        let name = "first_k_dense_replace";
        Ok(match self.optional_from_zero(&[name])? {
            Some(layers) => layers as u32,
            None if family == Family::DeepseekV3 => self.of_deepseek(name, 3) as u32,
            None => 0,
        })
    }

    /// DeepSeek's class has defaults for absent fields, and treats null as no value.
    fn of_deepseek(&self, name: &'static str, default: u64) -> u64 {
        match self.is_absent(name) {
            true => self.infer(name, default, "absent: the default of deepseek_v3"),
            false => self.infer(name, 0, "null: none"),
        }
    }

    /// Every how many layers there are experts, and from which on. DeepSeek counts layers from 0, Qwen from 1.
    fn expert_layers(&self) -> Result<(u32, u32)> {
        if let Some(step) = self.optional(&["decoder_sparse_step"])? {
            return Ok((step as u32, step as u32 - 1));
        }
        Ok((self.optional(&["moe_layer_freq"])?.unwrap_or(1) as u32, 0))
    }

    fn dense_layers(&self) -> Result<Vec<u32>> {
        let Some((name, value)) = self.first(&["mlp_only_layers"]) else { return Ok(Vec::new()) };
        let mut layers: Vec<u32> = serde_json::from_value(value.clone())
            .map_err(|_| self.wrong(name, format!("found {value}; accepted: a list of layers, counted from 0")))?;
        layers.sort_unstable();
        Ok(layers)
    }
}
