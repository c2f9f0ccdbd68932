//! Reads a suite's `[[compute]]` tables: models whose matrix products are measured, and how they are divided.

use super::Model;
use super::document::Table;
use super::suite_work::read_model;
use commgauge_base::element::ElementType;
use commgauge_base::error::Result;
use sha2::Sha256;
use std::path::Path;

/// Largest degree, micro-batch or sequence.
const LARGEST: u64 = u32::MAX as u64;
/// Types in which layers of models are multiplied; not every backend has all of them.
const TYPES: [ElementType; 4] =
    [ElementType::Float16, ElementType::Bfloat16, ElementType::Float32, ElementType::Float64];

/// A model whose matrix products are measured.
#[derive(Clone, Debug, PartialEq)]
pub struct ComputeTable {
    /// The model.
    pub model: Model,
    /// Tensor-parallel degrees: each divides the linear layers as it would in training.
    pub tp: Vec<u64>,
    /// Samples of a micro-batch.
    pub micro_batch: Vec<u64>,
    /// Tokens of a sample.
    pub sequence: u64,
    /// Types of the elements.
    pub element_types: Vec<ElementType>,
}

impl ComputeTable {
    /// Reads every table; `suite` is where the model is looked for.
    pub(super) fn all_of(root: &mut Table, suite: &Path, hash: &mut Sha256) -> Result<Vec<ComputeTable>> {
        root.tables("compute")?.into_iter().map(|table| ComputeTable::read(table, suite, hash)).collect()
    }

    fn read(mut table: Table, suite: &Path, hash: &mut Sha256) -> Result<ComputeTable> {
        let model = table.require("model", "a table such as { preset = \"llama-3-8b\" }")?.table()?;
        let model = read_model(suite, model, hash)?;
        let sequence = table.require("sequence", "the tokens of a sample, such as 2048")?;
        let longest = model.embedding.maximum_positions.min(LARGEST);
        let mut read = ComputeTable {
            sequence: sequence.whole(1..=longest)?,
            model,
            tp: vec![1],
            micro_batch: vec![1],
            element_types: vec![ElementType::Float32],
        };
        if let Some(item) = table.take("tp") {
            read.tp.clear();
            for item in item.items()? {
                let tp = item.whole(1..=LARGEST)?;
                if !read.model.attention.heads.is_multiple_of(tp) || !read.model.feed_forward.is_multiple_of(tp) {
                    let Model { name, feed_forward, .. } = &read.model;
                    let heads = read.model.attention.heads;
                    return Err(item.wrong(format!(
                        "found {tp}, which does not divide the {heads} heads and the feed-forward width of {feed_forward} of {name}"
                    )));
                }
                if let Some(linear) = read.model.linear_attention_in_use() {
                    let (keys, values) = (linear.key_heads, linear.value_heads);
                    if !keys.is_multiple_of(tp) || !values.is_multiple_of(tp) {
                        return Err(item.wrong(format!(
                            "found {tp}, which does not divide the {keys} key heads and {values} value heads of linear attention of {}",
                            read.model.name
                        )));
                    }
                }
                read.tp.push(tp);
            }
        }
        if let Some(item) = table.take("micro_batch") {
            read.micro_batch = item.items()?.iter().map(|item| item.whole(1..=LARGEST)).collect::<Result<_>>()?;
        }
        if let Some(item) = table.take("element_types") {
            let mut types = Vec::new();
            for item in item.items()? {
                let element: ElementType = item.parsed(str::parse)?;
                if !TYPES.contains(&element) {
                    return Err(item.wrong(format!(
                        "found {element}; accepted: float16, bfloat16, float32, float64, of which ranks on host memory multiply \
                         float32 and float64"
                    )));
                }
                types.push(element);
            }
            read.element_types = types;
        }
        table.finish()?;
        Ok(read)
    }
}
