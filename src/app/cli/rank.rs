//! `commgauge rank` and `commgauge ops`: what a step communicates, and which parallelism costs most, without a launch.

use super::computing::{ComputingFlags, RatesFlags};
use super::output::AnswerArguments;
use super::step::{StepFlags, parse_style, sentences};
use super::{AnswerFormat, AnswerOutput, WithParts};
use crate::report::fit::{QueryInput, predictions_csv, predictions_document, predictions_text, read_queries};
use crate::report::ops::OpsDocument;
use crate::report::rank::{RankDocument, StepDocument, csv, text};
use crate::report::{ops, pretty_json};
use commgauge_base::error::{Error, Result};
use commgauge_base::sample::Cadence;
use commgauge_base::units::Bytes;
use commgauge_base::writing::eprintln;
use commgauge_cost::cost::{Fit, Prediction, Predictor, Query, Status};
use commgauge_model::layout::Degrees;
use commgauge_model::workload::Style;
use commgauge_model::workload::step::Step;
use commgauge_plan::planner::rank::RankOptions;
use std::path::PathBuf;

/// Rank the parallelisms of a layout by bytes, predicted time and exposed time, and show how sure the order is
///
/// commgauge rank --fit fit.json --model llama-3-70b --tp 8 --pp 4 --dp 4 --sequence 8192 --global-batch 512 --ranks-per-node 8
///
/// Shows whether TP > DP > PP holds here by each measure, at how many tokens of a replica that turns round, and what moving each
/// axis into or out of the node would change, and what the step takes by the model of `plan`. Probabilities are shares of resamples from the intervals of the predictions.
#[derive(Clone, Debug, clap::Args)]
#[command(mut_arg("--serve", |flag| flag.hide_short_help(true)), mut_arg("--micro-batches", |flag| flag.hide_short_help(true)))]
pub struct RankCommand {
    #[command(flatten)]
    step: StepFlags,

    /// Number of ranks, where --dp is left out [default: those of dp 1]
    #[arg(long, visible_alias = "world", value_name = "N", help_heading = "Layout", hide_short_help = true)]
    ranks: Option<u32>,

    #[command(flatten)]
    rates: RatesFlags,

    /// Ranks on each node, neighbours in world rank [default: those of the machine file]
    #[arg(long, value_name = "N", help_heading = "Rates")]
    ranks_per_node: Option<u32>,

    #[command(flatten)]
    computing: ComputingFlags,

    /// Resamples behind the probabilities
    #[arg(long, default_value_t = RankOptions::default().resamples, value_name = "N",
          value_parser = clap::value_parser!(u32).range(100..=1_000_000), hide_short_help = true)]
    resamples: u32,

    /// Seed of the resamples
    #[arg(long, default_value_t = RankOptions::default().seed, value_name = "N", hide_short_help = true)]
    seed: u64,

    #[command(flatten)]
    shown: AnswerOutput,
}

/// `rank` and its part.
pub type Rank = WithParts<RankCommand, RankPart>;

/// One call instead of a step.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum RankPart {
    /// Predict the time of a call, or of a file of calls, from a fit
    Call(CallCommand),
}

impl Rank {
    /// Ranks the parallelisms, or predicts calls.
    pub fn execute(&self) -> Result<i32> {
        match self {
            WithParts::Itself(rank) => rank.execute(),
            WithParts::Part(RankPart::Call(call)) => call.execute(),
        }
    }
}

impl RankCommand {
    /// Computes the ranking and prints it.
    pub fn execute(&self) -> Result<i32> {
        let format = self.shown.check(&self.rates.files())?;
        let document = self.document()?;
        self.step.report()?;
        self.shown.write(&match format {
            AnswerFormat::Table => text(&document, self.shown.to.columns()),
            AnswerFormat::Json => pretty_json(&document)?,
            AnswerFormat::Csv => csv(&document)?,
        })?;
        Ok(0)
    }

    fn document(&self) -> Result<RankDocument> {
        self.step.with_phase(self.ranks, "ranked", |step| self.document_of(step))
    }

    fn document_of(&self, step: &Step) -> Result<RankDocument> {
        let source = self.rates.read()?;
        let ranks_per_node = source.ranks_per_node(self.ranks_per_node)?;
        let options = RankOptions { resamples: self.resamples, seed: self.seed };
        let serving = match step {
            Step::Serving(serving) => serving.serving.framework,
            Step::Training(_) => None,
        };
        let rates = source.rates(serving);
        let mut document = RankDocument::new(step, ranks_per_node, rates.as_ref(), options)?;
        if let Step::Training(training) = step {
            let framework = training.training.framework;
            let calls = source.calls(rates.as_ref(), self.ranks_per_node)?;
            let computing = self.computing.run_by(framework).read(
                training.activation(),
                training.model,
                source.machine(),
                Some(&calls),
            )?;
            document.synthetic |= computing.synthetic;
            document.step = StepDocument::of(
                step,
                ranks_per_node,
                rates.as_ref(),
                &computing.compute,
                &computing.ground_with_doubt(),
            );
        }
        Ok(document)
    }
}

/// Exit code if a query given by flags is refused: coverage is missing.
const REFUSED: i32 = 7;

/// Predict the time of a call from a fit
///
/// Answers with seconds, an interval, and what it rests on: interpolated, extrapolated, transferred from other group
/// sizes, or refused. A single call that is refused ends with 7. As CSV the query's columns come first, then seconds, low, high,
/// status, untrusted, reason.
#[derive(Clone, Debug, clap::Args)]
pub struct CallCommand {
    /// The fit, from `commgauge calibrate -o`
    #[arg(long, value_name = "FILE")]
    pub fit: PathBuf,

    /// Many calls: a CSV file with the columns collective, ranks, bytes_total, optional dtype and locality
    #[arg(long, value_name = "FILE", conflicts_with_all = ["collective", "ranks", "bytes", "dtype", "locality"], hide_short_help = true)]
    pub queries: Option<PathBuf>,

    /// The call, such as all_reduce
    #[arg(long, required_unless_present = "queries")]
    pub collective: Option<String>,

    /// Ranks of the group
    #[arg(long, required_unless_present = "queries", value_name = "N")]
    pub ranks: Option<u32>,

    /// Size as nccl-tests counts it, such as 1MiB
    #[arg(long, required_unless_present = "queries", value_name = "SIZE", value_parser = Bytes::parse)]
    pub bytes: Option<Bytes>,

    /// Element type; needed where several were fitted
    #[arg(long, value_name = "TYPE", hide_short_help = true)]
    pub dtype: Option<String>,

    /// Place of the group, such as 1n or 2n/4g; needed where several were fitted. Hosts, concurrent groups per host and stride (2n/4g/s8)
    #[arg(long)]
    pub locality: Option<String>,

    /// What is timed; streaming where both were fitted
    #[arg(long, value_parser = commgauge_base::error::named::<Cadence>, hide_short_help = true)]
    pub cadence: Option<Cadence>,

    /// Answer from curves of this kind only, where the records hold several, such as algorithm=ring or placement=in-place
    #[arg(long, value_name = "NAME=TEXT", value_parser = label, hide_short_help = true)]
    pub label: Vec<(String, String)>,

    #[command(flatten)]
    shown: AnswerOutput,
}

fn label(text: &str) -> std::result::Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or_else(|| format!("found `{text}`; accepted: NAME=TEXT"))?;
    Ok((name.to_owned(), value.to_owned()))
}

impl CallCommand {
    /// Reads the fit, prints the predictions, and returns the exit code.
    pub fn execute(&self) -> Result<i32> {
        let inputs = [&self.fit].into_iter().chain(&self.queries).map(PathBuf::as_path);
        let format = self.shown.check(&inputs.collect::<Vec<_>>())?;
        let fit = Fit::read(&self.fit)?;
        let input = match &self.queries {
            Some(path) => read_queries(path)?,
            None => self.single()?,
        };
        let predictor = Predictor::new(&fit).choosing(self.label.iter().cloned().collect());
        let answers: Vec<Prediction> =
            input.queries.iter().map(|query| predictor.predict(&self.with_cadence(query))).collect();
        if fit.synthetic && format == AnswerFormat::Csv {
            eprintln!(
                "synthetic: the fit comes from records without real times; these are not predictions of a machine"
            );
        }
        let document = predictions_document(&self.fit, &fit, &input, &answers);
        self.shown.write(&match format {
            AnswerFormat::Table => predictions_text(&document, self.shown.to.columns()),
            AnswerFormat::Csv => predictions_csv(&input, &answers)?,
            AnswerFormat::Json => pretty_json(&document)?,
        })?;
        let refused = answers.iter().any(|answer| answer.status == Status::Refused);
        Ok(if refused && self.queries.is_none() { REFUSED } else { 0 })
    }

    fn with_cadence(&self, query: &Query) -> Query {
        Query { cadence: self.cadence, ..*query }
    }

    /// The call given by flags, in the form of a file with one line.
    fn single(&self) -> Result<QueryInput> {
        let missing = || Error::usage("rank call needs --collective, --ranks and --bytes, or --queries FILE");
        let bytes = self.bytes.ok_or_else(missing)?;
        let mut columns = vec!["collective".to_owned(), "ranks".to_owned(), "bytes_total".to_owned()];
        let mut values = vec![
            self.collective.clone().ok_or_else(missing)?,
            self.ranks.ok_or_else(missing)?.to_string(),
            bytes.0.to_string(),
        ];
        for (name, value) in [("dtype", &self.dtype), ("locality", &self.locality)] {
            if let Some(value) = value {
                columns.push(name.to_owned());
                values.push(value.clone());
            }
        }
        QueryInput::of_flags(columns, values)
    }
}

// `commgauge ops`: lists all communication of one step of a model, op by op, without a launch.

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
        self.step.report()?;
        self.notes(&document.groups.degrees)?.iter().for_each(|note| eprintln!("note: {note}"));
        self.shown.show(&document, |width| ops::text(&document, width))?;
        Ok(0)
    }

    pub(super) fn document(&self) -> Result<OpsDocument> {
        let wanted = |style| self.style.is_empty() || self.style.contains(&style);
        self.step.with_phase(self.ranks, "listed", |step| OpsDocument::new(step, self.stage, wanted))
    }

    /// Flags that change nothing here.
    fn notes(&self, degrees: &Degrees) -> Result<Vec<String>> {
        Ok(sentences(&self.step.given_of_model(), degrees, &self.step.loaded_model()?))
    }
}

#[cfg(test)]
mod tests {
    // Tests of `commgauge ops`: the table, the document, and the errors.
    use super::*;
    use crate::cli::show::Document;
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
            insta::assert_snapshot!(format!("ops_{width}"), ops::text(&document, width));
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
                "--sequence-parallel: has no effect because tp is 1",
                "--schedule, --virtual-stages: has no effect because pp is 1",
                "--context-style: has no effect because cp is 1",
                "--routing: has no effect because the model has no experts",
            ]
        );
        assert_eq!(
            notes(&format!("{LLAMA} --sequence-parallel --schedule gpipe --recompute full")),
            Vec::<String>::new()
        );
        let serving = "--model llama-3-8b --tp 4 --serve decode --batch 16 --sampled-tokens ring";
        assert_eq!(notes(serving), ["--sampled-tokens: has no effect because pp is 1"]);
    }

    #[test]
    fn the_printed_document_fits_the_published_schema() {
        let schema = Document::Ops.schema();
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
    fn a_recipe_has_the_list_of_the_flags_that_say_the_same() {
        commgauge_base::testing::enter_checkout();
        let ddp = "--bucket-parameters 16777216 --framework deepspeed";
        let rows = [
            (
                "megatron-gpt3-175b.sh --model gpt3-175b",
                "--model gpt3-175b --tp 8 --pp 16 --ranks 128 --sequence 2048 --global-batch 1536 --framework megatron \
                 --activation-type float16 --param-type float16 --grad-type float16"
                    .to_owned(),
                [8, 16, 1, 1],
            ),
            (
                "megatron-mixtral.sh --model mixtral-8x7b",
                "--model mixtral-8x7b --pp 4 --ep 8 --dp 8 --sequence 4096 --global-batch 256 --framework megatron --data-style zero1 \
                 --sequence-parallel --no-overlap-gradients=false --dispatcher all_to_all --balance-loss micro_batch"
                    .to_owned(),
                [1, 4, 8, 8],
            ),
            (
                "deepspeed-z3-auto.json --model llama-3-8b --dp 8 --sequence 4096 --micro-batches 1",
                format!(
                    "--model llama-3-8b --dp 8 --sequence 4096 --micro-batches 1 --data-style zero3 --prefetch-bucket 15099494 \
                     --persistent-parameters 40960 {ddp}"
                ),
                [1, 1, 8, 1],
            ),
            (
                "deepspeed-z2-auto.json --model llama-3-8b --dp 8 --sequence 4096 --micro-batches 1 --no-overlap-gradients",
                format!("--model llama-3-8b --dp 8 --sequence 4096 --micro-batches 1 --data-style zero2 {ddp}"),
                [1, 1, 8, 1],
            ),
            (
                "torchtitan-hsdp-pp.toml --model llama-3-8b",
                "--model llama-3-8b --tp 2 --pp 4 --dp 8 --sequence 4096 --global-batch 256 --framework torchtitan --data-style hsdp \
                 --replicas-of-shards 2 --virtual-stages 2 --no-reshard-after-forward --grad-type bfloat16"
                    .to_owned(),
                [2, 4, 8, 1],
            ),
            (
                "vllm-deepseek.sh --model deepseek-v3 --serve decode",
                "--model deepseek-v3 --tp 8 --ep 8 --serve decode --batch 16 --framework vllm".to_owned(),
                [8, 1, 1, 8],
            ),
            // One sum over tp, however experts are divided among its ranks.
            (
                "sglang-ep.sh --model qwen3-30b-a3b --serve decode",
                "--model qwen3-30b-a3b --tp 8 --ep 8 --etp 1 --serve decode --batch 16 --framework sglang".to_owned(),
                [8, 1, 1, 4],
            ),
        ];
        for (recipe, flags, degrees) in rows {
            let (of_recipe, of_flags) = (json(&format!("--from tests/data/recipes/{recipe}")), json(&flags));
            assert!(of_recipe["ops"].as_array().is_some_and(|ops| !ops.is_empty()), "{recipe}");
            assert_eq!(of_recipe["ops"], of_flags["ops"], "{recipe}");
            let found = ["tp", "pp", "dp", "ep"].map(|axis| of_recipe["degrees"][axis].as_u64());
            assert_eq!(found, degrees.map(Some), "{recipe}");
        }
    }

    #[test]
    fn a_recipe_that_trains_does_not_serve_and_what_it_lacks_is_named() {
        commgauge_base::testing::enter_checkout();
        for (flags, expected) in [
            ("megatron-mixtral.sh --model mixtral-8x7b --serve decode", "--serve: the recipe trains"),
            ("deepspeed-z3-auto.json --model llama-3-8b --dp 8", "`sequence` is missing"),
        ] {
            let error = document(&format!("--from tests/data/recipes/{flags}")).expect_err(flags);
            assert!(error.to_string().contains(expected) && error.exit_code() == 2, "{flags}: {error}");
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
                "--virtual-stages: interleaved: 6 micro-batches, must be a multiple of the 4 pipeline stages; nearest: 4 or 8",
            ),
            (
                "--model llama-3-8b --pp 64 --sequence 8192 --micro-batches 6",
                "pp = 64 stages of 1 chunks are more than the 32 layers",
            ),
            ("--model llama-3-8b --cp 3 --sequence 8192 --micro-batches 6", "8192 is not a multiple of 2*cp = 6"),
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
