//! `commgauge rank`: ranks the parallelisms of a layout by cost, based on a fit or on published rates, without a
//! launch.

use super::computing::ComputingFlags;
use super::computing::RatesFlags;
use super::step::StepFlags;
use super::suite::report_resolved_file;
use super::{AnswerFormat, AnswerOutput, WithParts};
use crate::report::fit::{QueryInput, predictions_csv, predictions_document, predictions_text, read_queries};
use crate::report::pretty_json;
use crate::report::rank::{RankDocument, StepDocument, csv, text};
use commgauge_base::error::{Error, Result};
use commgauge_base::sample::Cadence;
use commgauge_base::units::Bytes;
use commgauge_base::writing::eprintln;
use commgauge_cost::cost::{Fit, Prediction, Predictor, Query, Status};
use commgauge_model::config::Shipped;
use commgauge_model::layout::MOST_RANKS;
use commgauge_model::workload::step::Step;
use commgauge_plan::planner::rank::RankOptions;
use std::path::{Path, PathBuf};

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
        report_resolved_file(Shipped::Model, Path::new(self.step.model.as_deref().unwrap_or_default()));
        self.shown.write(&match format {
            AnswerFormat::Table => text(&document, self.shown.to.columns()),
            AnswerFormat::Json => pretty_json(&document)?,
            AnswerFormat::Csv => csv(&document)?,
        })?;
        Ok(0)
    }

    fn document(&self) -> Result<RankDocument> {
        let ranks = match self.ranks {
            Some(ranks) if (1..=MOST_RANKS).contains(&ranks) => ranks,
            Some(ranks) => return Err(Error::usage(format!("--ranks: found {ranks}; accepted: 1 to {MOST_RANKS}"))),
            None => self.step.ranks()?,
        };
        let table = self.step.table(ranks)?;
        let steps = Step::all_of(&table, ranks)?;
        let [step] = steps.as_slice() else {
            return Err(Error::usage("--serve: one phase can be ranked at a time; accepted: prefill or decode"));
        };
        let source = self.rates.read()?;
        let ranks_per_node = source.ranks_per_node(self.ranks_per_node)?;
        let options = RankOptions { resamples: self.resamples, seed: self.seed };
        let rates = source.rates();
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
        self.shown.write(&match format {
            AnswerFormat::Table => predictions_text(&fit, &input, &answers, self.shown.to.columns()),
            AnswerFormat::Csv => predictions_csv(&input, &answers)?,
            AnswerFormat::Json => pretty_json(&predictions_document(&self.fit, &fit, &input, &answers))?,
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
