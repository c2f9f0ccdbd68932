//! `commgauge ops`: lists all communication of one step of a model, op by op, without a launch.

use super::output::AnswerArguments;
use super::step::{StepFlags, parse_style, sentences};
use super::suite::report_resolved_file;
use crate::cli::published::published;
use crate::report::document::{Column, gigabytes, optional, table, wrapped};
use crate::report::framework_defaults;
use commgauge_base::collective::{Collective, ReduceOp};
use commgauge_base::element::ElementType;
use commgauge_base::error::{Error, Result};
use commgauge_base::geometry::Splits;
use commgauge_base::units::Bytes;
use commgauge_base::writing::eprintln;
use commgauge_model::config::Shipped;
use commgauge_model::config::step::{FrameworkChoices, ModelWork};
use commgauge_model::layout::{Axis, Degrees, LayoutDescription, MOST_RANKS};
use commgauge_model::workload::op::When;
use commgauge_model::workload::step::{AxisTotals, Step, StepOps, wire_bytes_of_layers};
use commgauge_model::workload::{Op, Style};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// List every communication of a training or serving step: bytes, counts, what hides it, and why
///
/// commgauge ops --model llama-3-70b --tp 8 --pp 4 --dp 4 --sequence 8192 --global-batch 512 --sequence-parallel
///
/// Bytes are shown for the rank that each axis loads most; --stage shows the ranks of one pipeline stage instead.
#[derive(Clone, Debug, clap::Args)]
pub struct OpsCommand {
    #[command(flatten)]
    step: StepFlags,

    /// Number of ranks, where --dp is left out [default: those of dp 1]
    #[arg(long, visible_alias = "world", value_name = "N", help_heading = "Layout")]
    ranks: Option<u32>,

    /// Show the ranks of this pipeline stage [default: the rank that each axis loads most]
    #[arg(long, value_name = "N", hide_short_help = true)]
    stage: Option<u32>,

    /// Only these styles, a list with commas: tensor, sequence, vocabulary, data, pipeline, context, expert, control, serving
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_style, hide_short_help = true)]
    style: Vec<Style>,

    /// How the answer is shown.
    #[command(flatten)]
    shown: AnswerArguments,
}

impl OpsCommand {
    /// Builds the list and prints it.
    pub fn execute(&self) -> Result<i32> {
        let document = self.document()?;
        report_resolved_file(Shipped::Model, Path::new(self.step.model.as_deref().unwrap_or_default()));
        self.notes(&document.groups.degrees)?.iter().for_each(|note| eprintln!("note: {note}"));
        self.shown.show(&document, |width| text(&document, width))?;
        Ok(0)
    }

    pub(super) fn document(&self) -> Result<OpsDocument> {
        let ranks = self.ranks()?;
        let table = self.step.table(ranks)?;
        let steps = Step::all_of(&table, ranks)?;
        let step = match steps.as_slice() {
            [step] => step,
            _ => return Err(Error::usage("--serve: one phase can be listed at a time; accepted: prefill or decode")),
        };
        let wanted = |style| self.style.is_empty() || self.style.contains(&style);
        OpsDocument::new(step, self.stage, wanted)
    }

    /// Flags that change nothing here.
    fn notes(&self, degrees: &Degrees) -> Result<Vec<String>> {
        let table = self.step.table(self.ranks()?)?;
        let sentences = |work: &Arc<ModelWork>| sentences(&self.step.given_of_model(), degrees, &work.model);
        Ok(table.work.as_ref().map(sentences).unwrap_or_default())
    }

    fn ranks(&self) -> Result<u32> {
        match self.ranks {
            Some(ranks) if (1..=MOST_RANKS).contains(&ranks) => Ok(ranks),
            Some(ranks) => Err(Error::usage(format!("--ranks: found {ranks}; accepted: 1 to {MOST_RANKS}"))),
            None => self.step.ranks(),
        }
    }
}

// The ops of a step as text: a table, the totals of axes and styles, and the reasons.

/// The complete text for a terminal of this width.
fn text(document: &OpsDocument, width: u16) -> String {
    let d = document;
    let mut out = format!(
        "{}, {}, {}: {} ranks, {} micro-batches and {} tokens of a replica in a step\n",
        d.model, d.layout, d.phase, d.ranks, d.micro_batches, d.tokens_per_replica
    );
    if let Some(rule) = &d.stage_layers {
        out += &wrapped(&format!("layers of a stage: {rule}"), width);
    }
    if let Some(framework) = &d.framework {
        out.extend(framework_defaults(framework).iter().map(|line| wrapped(line, width)));
    }
    if d.ops.is_empty() {
        out += "\nNothing is communicated: no group has more than one rank.\n";
        return out;
    }
    out.push('\n');
    out += &ops(d, width);
    out += "\nper step, on the rank that the axis loads most\n\n";
    out += &axes(d, width);
    out.push('\n');
    out += &styles(d, width);
    out += "\nwhy\n\n";
    for (number, op) in d.ops.iter().enumerate() {
        out += &wrapped(&format!("[{}] {}", number + 1, op.why), width);
    }
    out
}

fn ops(document: &OpsDocument, width: u16) -> String {
    let columns = [
        Column::right("", 0),
        Column::left("axis", 0),
        Column::left("style", 0),
        Column::left("call", 0),
        Column::left("type", 4),
        Column::right("ranks", 3),
        Column::right("bytes", 0),
        Column::right("per rank", 5),
        Column::right("/layer", 2),
        Column::right("/mb", 2),
        Column::right("/step", 0),
        Column::right("wire/step", 0),
        Column::left("exposed", 0),
        Column::left("hidden by", 6),
    ];
    let rows: Vec<Vec<String>> = document.ops.iter().enumerate().map(|(index, op)| row(index, op)).collect();
    table(&columns, &rows, width)
}

fn row(index: usize, op: &OpLine) -> Vec<String> {
    vec![
        format!("[{}]", index + 1),
        op.axis.to_string(),
        op.style.name().to_owned(),
        op.collective.to_string(),
        op.element_type.to_string(),
        op.group_size.to_string(),
        op.bytes_total.to_string(),
        op.bytes_per_rank.to_string(),
        optional(op.count_per_layer),
        optional(op.count_per_micro_batch),
        op.count_per_step.to_string(),
        gigabytes(op.wire_bytes_per_step),
        if op.exposed { "yes" } else { "no" }.to_owned(),
        op.overlaps_with.unwrap_or("-").to_owned(),
    ]
}

fn axes(document: &OpsDocument, width: u16) -> String {
    let columns = [
        Column::left("axis", 0),
        Column::right("stage", 2),
        Column::right("payload", 0),
        Column::right("wire", 0),
        Column::right("exposed wire", 0),
        Column::right("wire of layers alone", 1),
    ];
    let row = |(name, totals): (&&'static str, &Totals)| {
        let alone = document.layers_alone_wire_bytes_per_step.get(*name);
        let mut row = vec![(*name).to_owned(), optional(totals.stage)];
        row.extend(amounts(totals));
        row.push(optional(alone.map(|bytes| gigabytes(*bytes))));
        row
    };
    table(&columns, &by_wire(&document.axes).into_iter().map(row).collect::<Vec<_>>(), width)
}

fn styles(document: &OpsDocument, width: u16) -> String {
    let columns = [
        Column::left("style", 0),
        Column::right("payload", 0),
        Column::right("wire", 0),
        Column::right("exposed wire", 0),
    ];
    let row = |(name, totals): (&&'static str, &Totals)| {
        let mut row = vec![(*name).to_owned()];
        row.extend(amounts(totals));
        row
    };
    table(&columns, &by_wire(&document.styles).into_iter().map(row).collect::<Vec<_>>(), width)
}

/// The most wire bytes first.
fn by_wire<'a>(totals: &'a BTreeMap<&'static str, Totals>) -> Vec<(&'a &'static str, &'a Totals)> {
    let mut order: Vec<_> = totals.iter().collect();
    order.sort_by_key(|(name, totals)| (std::cmp::Reverse(totals.wire_bytes_per_step), **name));
    order
}

fn amounts(totals: &Totals) -> [String; 3] {
    [totals.payload_bytes_per_step, totals.wire_bytes_per_step, totals.exposed_wire_bytes_per_step].map(gigabytes)
}

// The ops of a step as a document: plain data for JSON, with a published schema.

/// Name of the format.
const FORMAT: &str = "commgauge-ops";

/// Incremented when a field is removed or changes its meaning.
const VERSION: u32 = 1;

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
    /// How layers were shared out to stages, where not evenly.
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
    /// Where in the step it stands.
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

/// The JSON Schema of the document.
pub fn schema() -> Value {
    let title = "What commgauge ops --format json prints";
    published(schemars::schema_for!(OpsDocument).to_value(), FORMAT, VERSION, title)
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

#[cfg(test)]
mod tests {
    // Tests of `commgauge ops`: the table, the document, and the errors.
    use super::*;
    use clap::Parser;
    use serde_json::Value;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        command: OpsCommand,
    }

    fn document(flags: &str) -> Result<OpsDocument> {
        let program = Program::try_parse_from(std::iter::once("ops").chain(flags.split_whitespace())).unwrap();
        program.command.document()
    }

    fn json(flags: &str) -> Value {
        serde_json::to_value(document(flags).unwrap()).unwrap()
    }

    const LLAMA: &str = "--model llama-3-8b --tp 2 --pp 2 --dp 2 --sequence 8192 --global-batch 16";

    #[test]
    fn the_list_reads_well_at_80_and_140_columns() {
        let document = document(LLAMA).unwrap();
        for width in [80, 140] {
            insta::assert_snapshot!(format!("ops_{width}"), super::text(&document, width));
        }
    }

    #[test]
    fn flags_about_what_a_layout_or_a_model_has_not_are_said() {
        let notes = |flags: &str| {
            let program = Program::try_parse_from(std::iter::once("ops").chain(flags.split_whitespace())).unwrap();
            program.command.notes(&program.command.document().unwrap().groups.degrees).unwrap()
        };
        let alone = "--model llama-3-8b --dp 4 --sequence 4096 --micro-batches 1";
        let flags = "--sequence-parallel --virtual-stages 2 --schedule interleaved --context-style ring --routing uniform --recompute full";
        assert_eq!(
            notes(&format!("{alone} {flags}")),
            [
                "--sequence-parallel: changes nothing, as tp is 1",
                "--schedule, --virtual-stages: changes nothing, as pp is 1",
                "--context-style: changes nothing, as cp is 1",
                "--routing: changes nothing, as the model has no experts",
            ]
        );
        assert_eq!(
            notes(&format!("{LLAMA} --sequence-parallel --schedule gpipe --recompute full")),
            Vec::<String>::new()
        );
        let serving = "--model llama-3-8b --tp 4 --serve decode --batch 16 --sampled-tokens ring";
        assert_eq!(notes(serving), ["--sampled-tokens: changes nothing, as pp is 1"]);
    }

    #[test]
    fn the_printed_document_fits_the_published_schema() {
        let schema = schema();
        for flags in [
            LLAMA,
            "--model mixtral-8x7b --ep 4 --dp 8 --sequence 4096 --micro-batches 2 --routing zipf:1",
            "--model llama-3-8b --tp 4 --serve decode --batch 16",
        ] {
            let document = json(flags);
            let validator = jsonschema::validator_for(&schema).unwrap();
            let errors: Vec<_> = validator.iter_errors(&document).map(|error| error.to_string()).collect();
            assert!(errors.is_empty(), "{flags}: {errors:?}");
        }
    }

    #[test]
    fn the_totals_of_an_axis_are_those_of_its_ops() {
        let document = json(LLAMA);
        let ops = document["ops"].as_array().unwrap();
        for (axis, totals) in document["axes"].as_object().unwrap() {
            for column in ["payload_bytes_per_step", "wire_bytes_per_step"] {
                let of_axis = ops.iter().filter(|op| op["axis"] == axis.as_str());
                let sum: u64 = of_axis.map(|op| op[column].as_u64().unwrap()).sum();
                assert_eq!(totals[column], sum, "{axis} {column}");
            }
        }
    }

    #[test]
    fn mistakes_name_the_flag_and_what_is_accepted() {
        for (flags, expected) in [
            ("--model llama-3-8b --tp 2 --sequence 8192", "the size of a step is missing"),
            (
                "--model llama-3-8b --tp 3 --sequence 8192 --micro-batches 1",
                "tp = 3 does not divide the 32 query heads",
            ),
            (
                "--model llama-3-8b --tp 2 --sequence many --micro-batches 1",
                "--sequence: found the text \"many\"; accepted",
            ),
            (
                "--model llama-3-8b --tp 2 --sequence 9000 --micro-batches 1",
                "--sequence: found 9000; llama-3-8b allows up to 8192",
            ),
            ("--model llama-9 --sequence 8 --micro-batches 1", "there is no model `llama-9`"),
            (
                "--model llama-3-8b --pp 4 --virtual-stages 2 --sequence 8192 --micro-batches 6",
                "--virtual-stages: interleaved: 6 micro-batches, must be a multiple of the 4 pipeline stages: 4 or 8",
            ),
            (
                "--model llama-3-8b --pp 64 --sequence 8192 --micro-batches 6",
                "pp = 64 stages of 1 chunks are more than the 32 layers",
            ),
            ("--model llama-3-8b --cp 3 --sequence 8192 --micro-batches 6", "8192 is no multiple of 2*cp = 6"),
            (
                "--model mixtral-8x7b --ep 3 --dp 3 --sequence 4096 --micro-batches 6",
                "ep = 3 does not divide the 8 experts",
            ),
            (
                "--model llama-3-8b --tp 2 --serve prefill,decode --batch 4",
                "--serve: one phase can be listed at a time",
            ),
            (
                "--model llama-3-8b --pp 2 --sequence 8192 --micro-batches 6 --stage 2",
                "--stage: found 2; accepted: 0 to 1",
            ),
        ] {
            let error = document(flags).expect_err(flags);
            assert!(error.to_string().contains(expected), "{flags}: {error}");
            assert_eq!(error.exit_code(), 2, "{flags}");
        }
    }

    #[test]
    #[ignore = "a release build: cargo test --release -p commgauge-app --lib -- --ignored ten_milliseconds"]
    fn the_list_of_16_384_ranks_is_there_in_ten_milliseconds() {
        let flags =
            "--model llama-3-405b --tp 8 --pp 16 --dp 128 --sequence 8192 --global-batch 2048 --sequence-parallel";
        let seconds = || {
            let begun = std::time::Instant::now();
            assert_eq!(json(flags)["ranks"], 16_384);
            begun.elapsed().as_secs_f64()
        };
        // The best of several: other processes of the machine can only make it longer.
        let best = (0..5).map(|_| seconds()).fold(f64::INFINITY, f64::min);
        assert!(best < 0.01, "{best} s");
    }
}
