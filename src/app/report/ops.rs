//! The ops of a step: a table, the totals of axes and styles, the reasons, and the document.

use super::template::prose;
use commgauge_base::collective::{Collective, ReduceOp};
use commgauge_base::element::ElementType;
use commgauge_base::error::{Error, Result};
use commgauge_base::geometry::Splits;
use commgauge_base::units::Bytes;
use commgauge_model::config::step::FrameworkChoices;
use commgauge_model::layout::{Axis, LayoutDescription};
use commgauge_model::workload::op::When;
use commgauge_model::workload::step::{AxisTotals, Step, StepOps, wire_bytes_of_layers};
use commgauge_model::workload::{Op, Style};
use minijinja::context;
use minijinja::value::Serde;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;

/// The complete text for a terminal of this width.
pub fn text(document: &OpsDocument, width: u16) -> String {
    let defaults = document.framework.as_ref().map(framework_defaults).unwrap_or_default();
    prose("ops.txt", include_str!("templates/ops.txt"), context! { width, defaults, ..Serde(document) })
}

// The document.

/// Name of the format.
pub const FORMAT: &str = "commgauge-ops";

/// Incremented when a field is removed or changes its meaning.
pub const VERSION: u32 = 1;

/// Everything that one step of a model communicates, and what it comes to.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct OpsDocument {
    /// Always `commgauge-ops`.
    pub format: &'static str,
    /// Version of the format.
    pub version: u32,
    /// The model.
    pub model: String,
    /// The degrees above 1, such as `tp 8 x pp 4`.
    pub layout: String,
    /// The degrees, and what else the groups follow from.
    #[serde(flatten)]
    pub groups: LayoutDescription,
    /// `training`, `prefill` or `decode`.
    pub phase: &'static str,
    /// Ranks of the layout.
    pub ranks: u64,
    /// Micro-batches of one replica in a step.
    pub micro_batches: u64,
    /// Tokens of one replica in a step.
    pub tokens_per_replica: u64,
    /// The framework whose defaults hold, and the choices that it made because no flag or key did; absent where none was named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub framework: Option<FrameworkChoices>,
    /// Division of layers over stages, if uneven.
    pub stage_layers: Option<String>,
    /// The ops. Those of one axis are what a rank of the axis's busiest stage performs, or one of the stage requested.
    pub ops: Vec<OpLine>,
    /// What each axis comes to, on the rank that it loads most, or on a rank of the stage requested.
    pub axes: BTreeMap<&'static str, Totals>,
    /// What one rank sends for the transformer layers alone, on average over the stages, as the formulas of papers count:
    /// without embedding, output projection, loss and small calls, and for pp on an inner stage.
    pub layers_alone_wire_bytes_per_step: BTreeMap<&'static str, Bytes>,
    /// What each style comes to, over the same ops.
    pub styles: BTreeMap<&'static str, Totals>,
}

/// One op.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct OpLine {
    /// The axis whose groups carry it out.
    pub axis: Axis,
    /// Who asks for it.
    pub style: Style,
    /// The call.
    pub collective: Collective,
    /// Type of the elements.
    pub element_type: ElementType,
    /// How elements are combined.
    pub reduce_op: Option<ReduceOp>,
    /// How the vector forms divide their elements.
    pub splits: Option<Splits>,
    /// Ranks in each group.
    pub group_size: u32,
    /// The pipeline stage whose rank this is.
    pub stage: u32,
    /// The size argument in the sense of nccl-tests.
    pub bytes_total: Bytes,
    /// What one rank contributes (the busiest, where they differ).
    pub bytes_per_rank: Bytes,
    /// Where in the step it comes.
    pub when: When,
    /// Calls in each layer in which it comes.
    pub count_per_layer: Option<u64>,
    /// Calls in a micro-batch, where it comes in every one.
    pub count_per_micro_batch: Option<u64>,
    /// Calls in a step.
    pub count_per_step: u64,
    /// Sum of the size arguments of all calls.
    pub payload_bytes_per_step: Bytes,
    /// What one rank sends.
    pub wire_bytes_per_step: Bytes,
    /// Whether all wait for it.
    pub exposed: bool,
    /// What hides it, where something does.
    pub overlaps_with: Option<&'static str>,
    /// Where the bytes come from: formula with numbers put in, and its source.
    pub why: String,
}

/// What the ops of an axis or a style come to in a step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Totals {
    /// The pipeline stage whose rank this is; absent where ops of several stages are added up.
    pub stage: Option<u32>,
    /// Sum of the size arguments of all calls.
    pub payload_bytes_per_step: Bytes,
    /// What one rank sends.
    pub wire_bytes_per_step: Bytes,
    /// What of it nothing hides.
    pub exposed_wire_bytes_per_step: Bytes,
}

impl OpsDocument {
    /// The document of a step. `stage` selects one pipeline stage; without it each axis is shown for the rank with the
    /// highest load on it.
    ///
    /// # Errors
    /// A stage that does not exist, a byte count over 64 bits, or an error in building an op.
    pub fn new(step: &Step, stage: Option<u32>, wanted: impl Fn(Style) -> bool) -> Result<OpsDocument> {
        let chosen = match stage {
            Some(stage) => StepOps::of_stage(step, stage, wanted)?,
            None => step.ops(wanted)?,
        };
        let mut ops = Vec::new();
        for op in &chosen.ops {
            let stage = chosen.axes.iter().find(|totals| totals.axis == op.axis).map_or(0, |totals| totals.stage);
            ops.push(line(step, op, stage)?);
        }
        let axes = chosen.axes.iter().map(|totals| (totals.axis.name(), Totals::of_axis(totals))).collect();
        let degrees = step.layout().degrees;
        Ok(OpsDocument {
            format: FORMAT,
            version: VERSION,
            model: step.model().shown_name(),
            layout: degrees.name(),
            groups: step.layout().into(),
            phase: step.phase_name(),
            ranks: degrees.world(),
            micro_batches: step.micro_batches(),
            tokens_per_replica: step.tokens_per_replica(),
            framework: step.framework().cloned(),
            stage_layers: Some(step.stages().rule.clone()).filter(|rule| !rule.is_empty()),
            layers_alone_wire_bytes_per_step: wire_bytes_of_layers(step)?
                .into_iter()
                .map(|(axis, bytes)| (axis.name(), bytes))
                .collect(),
            styles: totals_of_styles(&ops),
            ops,
            axes,
        })
    }
}

impl Totals {
    fn of_axis(totals: &AxisTotals) -> Totals {
        Totals {
            stage: Some(totals.stage),
            payload_bytes_per_step: totals.payload_bytes_per_step,
            wire_bytes_per_step: totals.wire_bytes_per_step,
            exposed_wire_bytes_per_step: totals.exposed_wire_bytes_per_step,
        }
    }
}

fn line(step: &Step, op: &Op, stage: u32) -> Result<OpLine> {
    let ranks = step.group_size(op.axis);
    let too_large = || Error::usage(format!("the bytes of {} on {} do not fit 64 bits", op.collective, op.axis));
    let count = op.when.count_per_step(step.micro_batches()).ok_or_else(too_large)?;
    let geometry = op
        .geometry(ranks)
        .map_err(|reason| Error::usage(format!("{} {} of {}: {reason}", op.axis, op.collective, op.style.name())))?;
    let busiest = (0..ranks).map(|rank| geometry.send_elements(rank, op.root)).max().unwrap_or(0);
    Ok(OpLine {
        axis: op.axis,
        style: op.style,
        collective: op.collective,
        element_type: op.element,
        reduce_op: op.reduce_op,
        splits: op.collective.has_splits().then(|| op.splits.clone()),
        group_size: ranks,
        stage,
        bytes_total: op.bytes_total,
        bytes_per_rank: Bytes(busiest * geometry.element_bytes),
        when: op.when,
        count_per_layer: op.when.count_per_layer(),
        count_per_micro_batch: op.when.count_per_micro_batch(),
        count_per_step: count,
        payload_bytes_per_step: Bytes(op.bytes_total.0.checked_mul(count).ok_or_else(too_large)?),
        wire_bytes_per_step: Bytes(op.wire_bytes(ranks, count).ok_or_else(too_large)?),
        exposed: op.overlap.is_exposed(),
        overlaps_with: (!op.overlap.is_exposed()).then(|| op.overlap.name()),
        why: op.why.clone(),
    })
}

fn totals_of_styles(ops: &[OpLine]) -> BTreeMap<&'static str, Totals> {
    let mut styles: BTreeMap<&'static str, Totals> = BTreeMap::new();
    for op in ops {
        let totals = styles.entry(op.style.name()).or_default();
        totals.payload_bytes_per_step.0 = totals.payload_bytes_per_step.0.saturating_add(op.payload_bytes_per_step.0);
        totals.wire_bytes_per_step.0 = totals.wire_bytes_per_step.0.saturating_add(op.wire_bytes_per_step.0);
        if op.exposed {
            totals.exposed_wire_bytes_per_step.0 =
                totals.exposed_wire_bytes_per_step.0.saturating_add(op.wire_bytes_per_step.0);
        }
    }
    styles
}

// The choices that a framework made because no flag or key did.

/// What the framework decided, and where it does: a heading and a line for each choice.
pub fn framework_defaults(choices: &FrameworkChoices) -> Vec<String> {
    let (name, version) = (choices.framework, &choices.version);
    if choices.defaults.is_empty() {
        return vec![format!("as {name} ({version}) would: every choice was given")];
    }
    let heading = format!("defaults of {name} ({version}), each to be set by its own flag or key:");
    let lines = choices.defaults.iter();
    std::iter::once(heading)
        .chain(lines.map(|default| format!("{} = {} ({})", default.key, default.value, default.source)))
        .collect()
}
