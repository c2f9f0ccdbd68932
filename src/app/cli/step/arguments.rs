//! The flags of `commgauge-step`, and the resulting plan.

use super::StepFlags;
use super::style_name::parse_style;
use super::trace_files::TraceFiles;
use crate::cli::sampling::SamplingArguments;
use crate::cli::suite::SuiteWork;
use clap::Args;
use commgauge_base::digest;
use commgauge_base::error::{Error, Result};
use commgauge_base::sample::Cadence;
use commgauge_base::stats::MIN_FOR_INTERVAL;
use commgauge_base::units::{Seconds, parse_seconds};
use commgauge_model::config::{BOTH_CADENCES, LayoutTable, RunSettings};
use commgauge_model::layout::Axis;
use commgauge_model::record::line::SuiteFacts;
use commgauge_model::workload::replay::ReplayOptions;
use commgauge_model::workload::step::Step;
use commgauge_model::workload::{Interference, Style, WorkPlan};
use commgauge_run::session::{ReplayRequest, ReplaySource};

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

    /// Measure the largest calls of two axes at once too, such as tp,dp: each alone and while the other is under way; takes 6
    /// replicates unless --replicates says otherwise
    #[arg(long, value_name = "AXES", value_delimiter = ',', num_args = 1, value_parser = parse_axis, help_heading = "Measurement")]
    interfere: Vec<Axis>,

    /// Replay the step as a whole too: all calls in the order of the schedule, on all ranks at once
    #[arg(long, group = "replayed", help_heading = "Replay")]
    replay: bool,

    #[command(flatten)]
    trace: TraceFiles,

    /// What the forward pass of a micro-batch through one layer would take to compute, such as 2ms; each gradient takes as long
    /// again [default: no computing]
    #[arg(long, value_name = "TIME", value_parser = parse_seconds, requires = "replay", help_heading = "Replay")]
    forward_per_layer: Option<Seconds>,

    /// How often the step or the trace is replayed and timed
    #[arg(long, value_name = "COUNT", default_value_t = 10, requires = "replayed", value_parser = clap::value_parser!(u32).range(1..=100_000), help_heading = "Replay")]
    replay_repetitions: u32,

    #[command(flatten)]
    sampling: SamplingArguments,
}

impl StepArguments {
    /// The requested work on that many ranks. The hash is over the step and the settings, so equal requests have equal
    /// hashes however they were written.
    ///
    /// # Errors
    /// Usage errors that name the flag.
    pub fn work(&self, world_size: u32) -> Result<SuiteWork> {
        if self.trace.are_given() {
            self.trace.ensure_alone(&self.step)?;
            let settings = self.settings();
            let facts =
                self.trace.facts(&format!("{settings:?} {:?}", self.options()), &self.step.degrees, world_size)?;
            return Ok(SuiteWork { plan: WorkPlan::default(), settings, facts });
        }
        let table = self.table(world_size)?;
        let mut plan = WorkPlan::from_step(&table, &self.cadences(), world_size)?;
        if self.solo {
            plan = plan.with_solo()?;
        }
        let settings = self.settings();
        let model = plan.model.clone().unwrap_or_default();
        let facts = SuiteFacts {
            name: format!("step of {model}"),
            path: None,
            sha256: digest::sha256(format!(
                "{table:?} {settings:?} {} {} {:?} {:?}",
                self.cadence,
                self.solo,
                self.interfere,
                // As a pair, so that hashes stay those of earlier records.
                self.replay.then(|| self.table(world_size).map(|table| (table, self.options()))).transpose()?
            )),
            model: plan.model.clone(),
            layout: plan.layout.clone(),
        };
        Ok(SuiteWork { plan, settings, facts })
    }

    /// Whether calls of several groups of a rank are under way at once.
    pub fn calls_overlap(&self) -> bool {
        self.replay || self.trace.are_given() || !self.interfere.is_empty()
    }

    /// The calls of two axes to be measured concurrently, if any.
    ///
    /// # Errors
    /// Usage errors: not two axes, or axes that never run concurrently.
    pub fn interference(&self, world_size: u32) -> Result<Option<Interference>> {
        let axes = match self.interfere.as_slice() {
            [] => return Ok(None),
            [a, b] => [*a, *b],
            others => {
                let found = others.len();
                return Err(Error::usage(format!("--interfere: found {found} axes; accepted: two, such as tp,dp")));
            }
        };
        let table = self.table(world_size)?;
        let steps = Step::all_of(&table, world_size)?;
        let [step] = steps.as_slice() else {
            return Err(Error::usage("--interfere: takes one phase at a time; accepted: --serve prefill or decode"));
        };
        Interference::of(step, 0, axes, |style| table.styles.contains(&style.name())).map(Some)
    }

    /// What is replayed, if anything.
    ///
    /// # Errors
    /// As [`StepArguments::work`].
    pub fn replay(&self, world_size: u32) -> Result<Option<ReplayRequest>> {
        let source = if self.trace.are_given() {
            ReplaySource::Trace(self.trace.read(&self.step.degrees, world_size)?)
        } else if self.replay {
            ReplaySource::Steps(Box::new(self.table(world_size)?))
        } else {
            return Ok(None);
        };
        Ok(Some(ReplayRequest { source, options: self.options() }))
    }

    fn options(&self) -> ReplayOptions {
        ReplayOptions {
            repetitions: self.replay_repetitions,
            warm_up: 2,
            forward_seconds_per_layer: self.forward_per_layer.unwrap_or(Seconds(0.0)),
        }
    }

    /// The layout with the requested styles.
    fn table(&self, world_size: u32) -> Result<LayoutTable> {
        let mut table = self.step.table(world_size)?;
        if !self.style.is_empty() {
            table.styles.retain(|name| self.style.iter().any(|style| style.name() == *name));
        }
        Ok(table)
    }

    /// The ratio of two times needs as many pairs of samples as an interval does.
    fn settings(&self) -> RunSettings {
        let mut settings = self.sampling.settings();
        if (self.solo || !self.interfere.is_empty()) && self.sampling.replicates.is_none() {
            settings.replicates = MIN_FOR_INTERVAL as u32;
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

fn parse_axis(text: &str) -> std::result::Result<Axis, String> {
    Axis::named(text).ok_or_else(|| {
        let names: Vec<_> = Axis::ALL.iter().map(|axis| axis.name()).collect();
        format!("found `{text}`; accepted: two axes that the step communicates on, of {}", names.join(", "))
    })
}
