//! The flags of `commgauge-step`, and the plan that they come to.

use super::{StepFlags, parse_style};
use crate::cli::sampling::SamplingArguments;
use crate::cli::suite::SuiteWork;
use crate::config::{BOTH_CADENCES, LayoutTable, RunSettings};
use crate::digest;
use crate::error::Result;
use crate::record::line::SuiteFacts;
use crate::sample::Cadence;
use crate::stats::FEWEST_FOR_INTERVAL;
use crate::workload::{Style, WorkPlan};
use clap::Args;

/// The calls of a step, measured op by op.
#[derive(Clone, Debug, Default, Args)]
pub struct StepArguments {
    #[command(flatten)]
    step: StepFlags,

    /// Only these styles, a list with commas: tensor, sequence, vocabulary, data, pipeline, context, expert, control, serving
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_style, help_heading = "Measurement")]
    style: Vec<Style>,

    /// What is timed: calls back to back (streaming), as a step costs them, each from a common start (isolated), or both
    #[arg(long, value_name = "HOW", default_value = "streaming", value_parser = ["streaming", "isolated", "both"], help_heading = "Measurement")]
    cadence: String,

    /// Measure each call of an axis of several groups on one group alone too, and report how much slower it is beside the
    /// others; takes 6 replicates unless --replicates says otherwise
    #[arg(long, help_heading = "Measurement")]
    solo: bool,

    #[command(flatten)]
    sampling: SamplingArguments,
}

impl StepArguments {
    /// What the flags ask for on that many ranks. The hash is over the step and the settings, so equal requests have equal
    /// hashes however they were written.
    ///
    /// # Errors
    /// Usage errors that name the flag.
    pub fn work(&self, world_size: u32) -> Result<SuiteWork> {
        let table = self.table()?;
        let mut plan = WorkPlan::from_step(&table, &self.cadences(), world_size)?;
        if self.solo {
            plan = plan.with_solo()?;
        }
        let settings = self.settings();
        let model = plan.model.clone().unwrap_or_default();
        let facts = SuiteFacts {
            name: format!("step of {model}"),
            path: None,
            sha256: digest::sha256(format!("{table:?} {settings:?} {} {}", self.cadence, self.solo)),
            model: plan.model.clone(),
            layout: plan.layout.clone(),
        };
        Ok((plan, settings, facts))
    }

    /// The layout with the wanted styles.
    fn table(&self) -> Result<LayoutTable> {
        let mut table = self.step.table()?;
        if !self.style.is_empty() {
            table.styles.retain(|name| self.style.iter().any(|style| style.name() == *name));
        }
        Ok(table)
    }

    /// A factor of two times needs as many pairs of them as an interval takes.
    fn settings(&self) -> RunSettings {
        let mut settings = self.sampling.settings();
        if self.solo && self.sampling.replicates.is_none() {
            settings.replicates = FEWEST_FOR_INTERVAL as u32;
        }
        settings
    }

    fn cadences(&self) -> Vec<Cadence> {
        match self.cadence.as_str() {
            "both" => BOTH_CADENCES.to_vec(),
            name => BOTH_CADENCES.into_iter().filter(|cadence| cadence.name() == name).collect(),
        }
    }
}
