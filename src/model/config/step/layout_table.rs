//! Reads a suite's `[[layout]]` tables: the degrees by which a model is divided, as written.

use super::{Serving, Training};
use crate::config::Model;
use crate::config::document::{Place, Table};
use commgauge_base::error::Result;
use std::sync::Arc;

/// Axis order of Megatron-LM, the leftmost varying fastest over consecutive ranks.
const DEFAULT_ORDER: [&str; 5] = ["tp", "cp", "ep", "dp", "pp"];
/// The styles whose ops a layout may be measured for.
pub const STYLES: [&str; 9] =
    ["tensor", "sequence", "vocabulary", "data", "pipeline", "context", "expert", "control", "serving"];
/// The largest degree; more ranks than any machine has.
const LARGEST_DEGREE: u32 = MOST_RANKS;
/// The most ranks that a layout may have.
pub const MOST_RANKS: u32 = 1 << 20;

/// Degrees of parallelism, as written.
#[derive(Clone, Debug, PartialEq)]
pub struct LayoutTable {
    /// Place of the table.
    pub place: Place,
    /// Tensor parallel.
    pub tp: u32,
    /// Context parallel.
    pub cp: u32,
    /// Data parallel; `None` if it follows from the number of ranks.
    pub dp: Option<u32>,
    /// Pipeline parallel.
    pub pp: u32,
    /// Expert parallel.
    pub ep: u32,
    /// Tensor parallel inside experts; `None` for that of the dense layers.
    pub etp: Option<u32>,
    /// Copies of each shard (HSDP), which divide the groups of dp x cp; `None` where they are not divided.
    pub replicas_of_shards: Option<u32>,
    /// Names of the axes, the fastest varying first, each once.
    pub order: Vec<&'static str>,
    /// The rank at each position of the grid, where ranks are placed by hand.
    pub ranks: Option<Vec<u32>>,
    /// Names of the styles whose ops are measured in this layout.
    pub styles: Vec<&'static str>,
    /// The work that is divided; `None` if only groups are needed.
    pub work: Option<Arc<ModelWork>>,
}

/// A model and what is done with it.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelWork {
    /// The model.
    pub model: Model,
    /// The training step, if the model is trained.
    pub training: Option<Training>,
    /// The requests, if the model serves.
    pub serving: Option<Serving>,
}

impl LayoutTable {
    /// Reads a `[[layout]]` table, or the equivalent flags. The suite adds the work.
    pub fn read(mut table: Table) -> Result<LayoutTable> {
        let mut degree = |key| table.take(key).map(|item| item.count_within(1..=LARGEST_DEGREE)).transpose();
        let (tp, cp) = (degree("tp")?.unwrap_or(1), degree("cp")?.unwrap_or(1));
        let (dp, pp) = (degree("dp")?, degree("pp")?.unwrap_or(1));
        let (ep, etp) = (degree("ep")?.unwrap_or(1), degree("etp")?);
        let replicas_of_shards = degree("replicas_of_shards")?;
        let order = match table.take("order") {
            Some(item) => item.parsed(parse_order)?,
            None => DEFAULT_ORDER.to_vec(),
        };
        let styles = match table.take("styles") {
            Some(item) => item.items()?.iter().map(|item| item.parsed(parse_style)).collect::<Result<_>>()?,
            None => STYLES.to_vec(),
        };
        let ranks = match table.take("ranks") {
            Some(item) => {
                Some(item.items()?.iter().map(|item| item.count_within(0..=u32::MAX)).collect::<Result<Vec<_>>>()?)
            }
            None => None,
        };
        let place = table.place.clone();
        table.finish()?;
        Ok(LayoutTable { place, tp, cp, dp, pp, ep, etp, replicas_of_shards, order, ranks, styles, work: None })
    }
}

fn parse_style(text: &str) -> std::result::Result<&'static str, String> {
    let found = STYLES.into_iter().find(|style| *style == text);
    found.ok_or_else(|| format!("found style `{text}`; accepted: {}", STYLES.join(", ")))
}

/// Reads `tp-cp-ep-dp-pp`. Axes may be left out; they are checked once the degrees are known.
pub fn parse_order(text: &str) -> std::result::Result<Vec<&'static str>, String> {
    let accepted = "accepted: the axes from the fastest varying on, such as tp-cp-ep-dp-pp";
    let mut order = Vec::new();
    for word in text.split('-') {
        let axis = DEFAULT_ORDER.into_iter().find(|axis| *axis == word);
        let axis = axis.ok_or_else(|| format!("found `{word}` in `{text}`; {accepted}"))?;
        if order.contains(&axis) {
            return Err(format!("`{text}` names {axis} twice; {accepted}"));
        }
        order.push(axis);
    }
    // Axes that are left out have degree 1 and may be anywhere in the order; otherwise the layout refuses them.
    Ok(order)
}
