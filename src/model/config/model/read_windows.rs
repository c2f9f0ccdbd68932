//! Which layers attend to a window of the nearest tokens only.

use super::SlidingWindow;
use super::family::Family;
use super::fields::Fields;
use commgauge_base::error::Result;
use serde_json::Value;

/// Llama 4's chunks count as windows: a token sees at most so many.
const WINDOW: &[&str] = &["sliding_window", "attention_chunk_size"];

impl Fields<'_> {
    pub(super) fn sliding_window(&self, family: Family, layers: u32) -> Result<Option<SlidingWindow>> {
        // Hybrid families have no windows; their `layer_types` say something else.
        if family.facts().linear_attention.is_some() {
            return Ok(None);
        }
        // Qwen files contain a width even if it is not in use.
        if self.truth(&["use_sliding_window"])? == Some(false) {
            return Ok(None);
        }
        let Some(tokens) = self.optional(WINDOW)? else { return Ok(None) };
        let windowed: Vec<u32> = match (self.first(&["layer_types"]), self.full_attention_step(family)?) {
            (Some((name, value)), _) => self.listed_windows(name, value, layers)?,
            // Qwen's own rule: the first `max_window_layers` attend to everything.
            (None, _) if family.is_qwen() => {
                if self.truth(&["use_sliding_window"])? != Some(true) {
                    self.infer("use_sliding_window", false, format!("the default of {}", family.model_type()));
                    return Ok(None);
                }
                (self.optional_from_zero(&["max_window_layers"])?.unwrap_or(0) as u32..layers).collect()
            }
            (None, Some(step)) => {
                let why = format!("every {step}. layer attends to everything: the default of {}", family.model_type());
                self.infer("layer_types", Value::Null, why);
                (0..layers).filter(|layer| !(layer + 1).is_multiple_of(step)).collect()
            }
            (None, None) => (0..layers).collect(),
        };
        Ok(Some(SlidingWindow { tokens, layers: windowed }).filter(|window| !window.layers.is_empty()))
    }

    fn full_attention_step(&self, family: Family) -> Result<Option<u32>> {
        let Some(default) = family.facts().full_attention_step else { return Ok(None) };
        let stated = self.optional(&["sliding_window_pattern", "no_rope_layer_interval"])?;
        Ok(Some(stated.map_or(default, |step| step as u32)))
    }

    fn listed_windows(&self, name: &str, value: &Value, layers: u32) -> Result<Vec<u32>> {
        let accepted = "accepted: a list of \"sliding_attention\", \"chunked_attention\" and \"full_attention\"";
        let listed = value.as_array().ok_or_else(|| self.wrong(name, format!("found {value}; {accepted}")))?;
        if listed.len() as u64 != u64::from(layers) {
            let problem = format!("names {} layers, num_hidden_layers is {layers}; they must agree", listed.len());
            return Err(self.wrong(name, problem));
        }
        let mut windowed = Vec::new();
        for (layer, kind) in (0..layers).zip(listed) {
            match kind.as_str() {
                Some("sliding_attention" | "chunked_attention") => windowed.push(layer),
                Some("full_attention") => {}
                _ => return Err(self.wrong(name, format!("found {kind} for layer {layer}; {accepted}"))),
            }
        }
        Ok(windowed)
    }
}
