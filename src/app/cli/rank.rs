//! `commgauge rank`: ranks the parallelisms of a layout by cost, based on a fit or on published rates, without a
//! launch.

use super::computing::ComputingFlags;
use super::computing::RatesFlags;
use super::output::json;
use super::published::published;
use super::step::StepFlags;
use super::suite::report_resolved_file;
use super::{AnswerFormat, AnswerOutput};
use crate::report::rank::{FORMAT, RankDocument, StepDocument, VERSION, csv, text};
use commgauge_analysis::planner::rank::RankOptions;
use commgauge_base::error::{Error, Result};
use commgauge_model::config::Shipped;
use commgauge_model::layout::MOST_RANKS;
use commgauge_model::workload::step::Step;
use serde_json::Value;
use std::path::Path;

/// Rank the parallelisms of a layout by bytes, predicted time and exposed time, and show how sure the order is
///
/// commgauge rank --fit fit.json --model llama-3-70b --tp 8 --pp 4 --dp 4 --sequence 8192 --global-batch 512 --ranks-per-node 8
///
/// Shows whether TP > DP > PP holds here by each measure, at how many tokens of a replica that turns round, and what moving each
/// axis into or out of the node would change, and what the step takes by the model of `plan`. Probabilities are shares of resamples from the intervals of the predictions.
#[derive(Clone, Debug, clap::Args)]
pub struct RankCommand {
    #[command(flatten)]
    step: StepFlags,

    /// Number of ranks, where --dp is left out [default: those of dp 1]
    #[arg(long, visible_alias = "world", value_name = "N", help_heading = "Layout")]
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

impl RankCommand {
    /// Computes the ranking and prints it.
    pub fn execute(&self) -> Result<i32> {
        let format = self.shown.check(&self.rates.files())?;
        let document = self.document()?;
        report_resolved_file(Shipped::Model, Path::new(self.step.model.as_deref().unwrap_or_default()));
        self.shown.write(&match format {
            AnswerFormat::Table => text(&document, self.shown.to.columns()),
            AnswerFormat::Json => json(&document)?,
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
            let framework = training.training.named_framework();
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

/// The JSON Schema of the document.
pub(super) fn schema() -> Value {
    let title = "What commgauge rank --format json prints";
    published(schemars::schema_for!(RankDocument).to_value(), FORMAT, VERSION, title)
}
