//! Reads a suite's `[layout]` and `[training]` tables: how a model is divided, and the step that is trained.

use super::document::{Place, Table};
use super::suite_sweep::parse_placement;
use crate::collective::Placement;
use crate::element::ElementType;
use crate::error::Result;

/// Axis order of Megatron-LM, the leftmost varying fastest over consecutive ranks.
const DEFAULT_ORDER: [&str; 5] = ["tp", "cp", "ep", "dp", "pp"];
const STYLES: [&str; 3] = ["tensor", "data", "pipeline"];
/// The largest degree; more ranks than any machine has.
const LARGEST_DEGREE: u64 = 1 << 20;

/// Degrees of parallelism, as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Where it stands.
    pub place: Place,
    /// Tensor parallel.
    pub tp: u32,
    /// Context parallel.
    pub cp: u32,
    /// Data parallel; `None` where it follows from the number of ranks.
    pub dp: Option<u32>,
    /// Pipeline parallel.
    pub pp: u32,
    /// Names of all axes, the fastest varying first, each once.
    pub order: Vec<&'static str>,
    /// Names of the styles whose ops are wanted from this layout.
    pub styles: Vec<&'static str>,
}

/// One optimizer step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Training {
    /// Where it stands.
    pub place: Place,
    /// Where the sequence stands.
    pub sequence_place: Place,
    /// Tokens of one sample.
    pub sequence: u64,
    /// Samples of one micro-batch.
    pub micro_batch: u64,
    /// How many samples a step has.
    pub batch: Batch,
    /// Type of activations on the wire.
    pub activation_element_type: ElementType,
    /// Type of gradients on the wire.
    pub gradient_element_type: ElementType,
    /// Parameters in one gradient bucket; `None` for Megatron-LM's rule.
    pub bucket_parameters: Option<u64>,
    /// Placements of the model's collectives, where they offer them.
    pub placements: Vec<Placement>,
}

/// How many samples a step has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Batch {
    /// Over all replicas, and where that stands.
    Global(u64, Place),
    /// Micro-batches of one replica, whatever the number of ranks.
    MicroBatches(u64),
}

impl Layout {
    /// Reads a `[layout]` table.
    pub(super) fn read(mut table: Table) -> Result<Layout> {
        let mut degree = |key| table.take(key).map(|item| item.whole(1..=LARGEST_DEGREE).map(|d| d as u32)).transpose();
        let (tp, cp) = (degree("tp")?.unwrap_or(1), degree("cp")?.unwrap_or(1));
        let (dp, pp) = (degree("dp")?, degree("pp")?.unwrap_or(1));
        if let Some(item) = table.take("ep")
            && item.count()? > 1
        {
            return Err(item.wrong("expert parallelism is not offered yet; accepted: 1"));
        }
        let order = match table.take("order") {
            Some(item) => item.parsed(parse_order)?,
            None => DEFAULT_ORDER.to_vec(),
        };
        let styles = match table.take("styles") {
            Some(item) => item.items()?.iter().map(|item| item.parsed(parse_style)).collect::<Result<_>>()?,
            None => STYLES.to_vec(),
        };
        let place = table.place.clone();
        table.finish()?;
        Ok(Layout { place, tp, cp, dp, pp, order, styles })
    }
}

impl Training {
    /// Reads the `[training]` table.
    pub(super) fn read(mut table: Table) -> Result<Training> {
        let place = table.place.clone();
        let largest = u64::from(u32::MAX);
        let sequence = table.require("sequence", "tokens of one sample, such as 4096")?;
        let micro_batch = table.take("micro_batch").map(|item| item.whole(1..=largest)).transpose()?.unwrap_or(1);
        let batch = match (table.take("global_batch"), table.take("micro_batches")) {
            (Some(item), None) => Batch::Global(item.whole(1..=largest)?, item.place.clone()),
            (None, Some(item)) => Batch::MicroBatches(item.whole(1..=largest)?),
            (Some(_), Some(item)) => return Err(item.wrong("stands beside `global_batch`; give one of the two")),
            (None, None) => {
                let accepted = "accepted: `global_batch`, samples over all replicas, or `micro_batches` of a replica";
                return Err(place.wrong(format!("the size of a step is missing; {accepted}")));
            }
        };
        let mut floating = |key, default| match table.take(key) {
            Some(item) => item.parsed(parse_reducible_float),
            None => Ok(default),
        };
        let activation_element_type = floating("activation_element_type", ElementType::Bfloat16)?;
        let gradient_element_type = floating("gradient_element_type", ElementType::Float32)?;
        let bucket_parameters = table.take("bucket_parameters").map(|item| item.whole(1..=1 << 40)).transpose()?;
        let placements = match table.take("placements") {
            Some(item) => item.items()?.iter().map(|item| item.parsed(parse_placement)).collect::<Result<_>>()?,
            None => vec![Placement::InPlace],
        };
        table.finish()?;
        Ok(Training {
            sequence: sequence.whole(1..=largest)?,
            sequence_place: sequence.place,
            place,
            micro_batch,
            batch,
            activation_element_type,
            gradient_element_type,
            bucket_parameters,
            placements,
        })
    }
}

fn parse_reducible_float(text: &str) -> std::result::Result<ElementType, String> {
    use ElementType::{Bfloat16, Float16, Float32, Float64};
    let element: ElementType = text.parse()?;
    if matches!(element, Float16 | Bfloat16 | Float32 | Float64) {
        return Ok(element);
    }
    Err(format!("found {element}; accepted: bfloat16, float16, float32, float64"))
}

fn parse_style(text: &str) -> std::result::Result<&'static str, String> {
    let found = STYLES.into_iter().find(|style| *style == text);
    found.ok_or_else(|| format!("found style `{text}`; accepted: {}", STYLES.join(", ")))
}

/// Reads `tp-cp-ep-dp-pp`; ep may be left out, as it is 1.
fn parse_order(text: &str) -> std::result::Result<Vec<&'static str>, String> {
    let accepted = "accepted: the axes from the fastest varying on, such as tp-cp-dp-pp";
    let mut order = Vec::new();
    for word in text.split('-') {
        let axis = DEFAULT_ORDER.into_iter().find(|axis| *axis == word);
        let axis = axis.ok_or_else(|| format!("found `{word}` in `{text}`; {accepted}"))?;
        if order.contains(&axis) {
            return Err(format!("`{text}` names {axis} twice; {accepted}"));
        }
        order.push(axis);
    }
    match ["tp", "cp", "dp", "pp"].into_iter().find(|axis| !order.contains(axis)) {
        Some(missing) => Err(format!("`{text}` does not name {missing}; {accepted}")),
        None => Ok(order),
    }
}
