//! `commgauge calibrate`: measures what planning a model asks for, fits it, and ends with the ranking and the plan.
//!
//! The folder holds everything between: the suite, the record, the fit. The same command goes on where it was cut off.

mod answer;
mod measure;
mod overlap;
mod products;

use super::computing::ComputingFlags;
use super::places::report_resolved_file;
use super::plan::{PlanCommand, PlannedTraining, QuestionFlags, TrainingFlags};
use super::rates::{RatesFlags, ranks_per_node};
use super::text_output::{FormattedOutput, TextOutput};
use commgauge_analysis::planner::calibration_suite::{CalibrationProducts, CalibrationSuite};
use commgauge_analysis::planner::requested::{RequestedCall, requested_calls};
use commgauge_analysis::planner::search::{Question, search};
use commgauge_base::error::{Error, Result};
use commgauge_base::message::eprintln;
use commgauge_base::units::{Bytes, parse_seconds};
use commgauge_base::visible::ShownPath;
use commgauge_model::config::{Machine, Model, Shipped};
use measure::Work;
use std::path::{Path, PathBuf};
use std::slice;

/// The exit code of what is refused.
const USAGE: i32 = 2;
/// Layouts that the plan shows.
const LAYOUTS_SHOWN: u32 = 5;

/// Measure what planning a model asks for, fit it, and end with the ranking and the plan
///
/// commgauge calibrate --model llama-3-8b --gpus 16 --ranks-per-node 8 --gpu-memory 80GB --global-batch 64 --sequence 8192 --
/// -n 16 --hosts host0:8,host1:8 --backend nccl
///
/// Writes the suite of every call that a plan of these GPUs asks for, and of the model's matrix products, runs it in groups of every
/// size inside the nodes and across them, all groups at once and one alone, fits the record, and replays the best layout's step for
/// how much slower calls are that computing hides. Suite, records and fit lie in the folder of -o; `commgauge plan --fit` answers
/// further questions from there. The same command goes on where it was cut off.
#[derive(Clone, Debug, clap::Args)]
pub struct CalibrateCommand {
    #[command(flatten)]
    question: QuestionFlags,

    #[command(flatten)]
    training: TrainingFlags,

    #[command(flatten)]
    computing: ComputingFlags,

    /// A machine file: GPUs of a node, what they compute, and published link rates for calls that these ranks cannot measure, such
    /// as those over more nodes than there are; the plan then is not calibrated, and says so
    #[arg(long, value_name = "FILE", help_heading = "Rates")]
    machine: Option<PathBuf>,

    /// Folder for the suite, the record and the fit; made where it is not there
    #[arg(short, long, value_name = "DIR", default_value = "calibration", help_heading = "Measurement")]
    output: PathBuf,

    /// Largest call that is measured, such as 256MiB; larger ones, up to 64 times as large, follow from its rate [default: 64MiB, or
    /// what the largest call that is asked for needs]
    #[arg(long, value_name = "SIZE", value_parser = call_bytes, help_heading = "Measurement")]
    largest_call: Option<Bytes>,

    /// Time after which no further sizes are added to curves, such as 30min
    #[arg(long, value_name = "TIME", default_value = "10min", value_parser = budget, help_heading = "Measurement")]
    budget: String,

    /// Do not replay the best layout's step, which shows how much slower calls are that computing hides
    #[arg(long, help_heading = "Measurement")]
    no_overlap: bool,

    /// Write the suite and stop, to be run by other means
    #[arg(long, help_heading = "Measurement")]
    suite_only: bool,

    /// Flags of `commgauge run`, after `--`: ranks, hosts, backend, launcher
    #[arg(last = true, value_name = "FLAGS")]
    run: Vec<String>,

    /// Columns that tables may take [default: COLUMNS, else those of the terminal, else 100]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(40..))]
    width: Option<u16>,
}

fn call_bytes(text: &str) -> std::result::Result<Bytes, String> {
    match Bytes::parse(text)? {
        Bytes(bytes) if bytes < 4096 => Err(format!("found `{text}`; accepted: 4KiB or more")),
        bytes => Ok(bytes),
    }
}

fn budget(text: &str) -> std::result::Result<String, String> {
    parse_seconds(text).map(|_| text.to_owned())
}

/// What a calibration measures.
struct Asked {
    /// The text of the suite.
    suite: String,
    /// The matrix products in it.
    products: Option<CalibrationProducts>,
}

impl CalibrateCommand {
    /// Measures, fits, ranks and plans; returns the exit code.
    pub fn execute(&self) -> Result<i32> {
        let folder = measure::Folder::new(&self.output);
        folder.make()?;
        let asked = self.asked(&folder)?;
        folder.write_suite(&asked.suite)?;
        if self.suite_only {
            eprintln!("{}", folder.suite.shown());
            return Ok(0);
        }
        let code = measure::run(&folder, &Work::Suite, &self.run)?;
        if code != 0 {
            eprintln!("the measurement ended with {code}, so nothing is fitted; the same command goes on with it");
            return Ok(code);
        }
        // Without the replay, so that the same command finds the same best layout again.
        measure::fit(&folder, slice::from_ref(&folder.record))?;
        let computing = self.computing(&folder, &asked)?;
        let plan = self.plan(&folder.fit, computing);
        if !self.no_overlap {
            let code = self.replay(&folder, &plan)?;
            if code != 0 {
                eprintln!(
                    "the replay of the best layout's step ended with {code}; the same command goes on with it, and --no-overlap leaves it out"
                );
                return Ok(code);
            }
        }
        answer::answer(&plan)
    }

    /// Replays the step of the best layout, and fits again; returns the exit code.
    fn replay(&self, folder: &measure::Folder, plan: &PlanCommand) -> Result<i32> {
        let ranks = measure::ranks(folder)?;
        if !self.question.gpus.contains(&ranks) {
            eprintln!(
                "the best layout's step is not replayed: it is of {} GPUs, and {ranks} ranks measured; calls that computing hides count as alone",
                self.question.gpus.first().copied().unwrap_or_default()
            );
            return Ok(0);
        }
        let flags =
            plan.with_best(|question, best| overlap::flags(question, &best.layout, &self.question, &self.training))?;
        match measure::run(folder, &Work::Step(&flags), &self.run)? {
            0 => measure::fit(folder, &[folder.record.clone(), folder.overlap.clone()]).map(|()| 0),
            // Before anything is measured, as of a step with more streams than a GPU has queues.
            USAGE if !folder.overlap.exists() => {
                eprintln!(
                    "the best layout's step is not replayed: the ranks refuse it, for the reason above; calls that computing hides count as alone"
                );
                Ok(0)
            }
            code => Ok(code),
        }
    }

    /// The flags of computing, with the products that were measured.
    fn computing(&self, folder: &measure::Folder, asked: &Asked) -> Result<ComputingFlags> {
        match &asked.products {
            Some(products) if measure::has_products(folder, products.element_type)? => {
                Ok(self.computing.with_products(&folder.record))
            }
            Some(products) => {
                eprintln!(
                    "no matrix product of {} was measured; computing is that of the flags",
                    products.element_type
                );
                Ok(self.computing.clone())
            }
            None => Ok(self.computing.clone()),
        }
    }

    /// The same question to `commgauge plan`, on a fit.
    fn plan(&self, fit: &Path, computing: ComputingFlags) -> PlanCommand {
        PlanCommand {
            question: self.question.clone(),
            rates: RatesFlags { fit: Some(fit.to_owned()), machine: self.machine.clone(), unknown_locality: None },
            computing,
            training: self.training.clone(),
            only: None,
            explain: None,
            configurations: None,
            pareto: false,
            what_if: false,
            allow_untrusted: false,
            top: LAYOUTS_SHOWN,
            shown: FormattedOutput { format: None, to: TextOutput { output: None, width: self.width } },
        }
    }

    /// What the plan asks for, and the suite of it.
    fn asked(&self, folder: &measure::Folder) -> Result<Asked> {
        let model = Model::load(&self.question.model)?;
        report_resolved_file(Shipped::Model, Path::new(&self.question.model));
        let backend = measure::backend(folder, &self.run)?;
        let planned = self.question.training(&model, &self.training, &[])?;
        let products = match self.computing.leaves_products_open() {
            true => products::of(&self.question.model, &model, &planned, backend),
            false => None,
        };
        let calls = self.calls(&model, planned)?;
        let suite = CalibrationSuite {
            model: &model,
            calls: &calls,
            bytes_most: self.largest_call,
            budget: &self.budget,
            products: products.as_ref(),
        };
        Ok(Asked { suite: suite.text(), products })
    }

    fn calls(&self, model: &Model, planned: PlannedTraining) -> Result<Vec<RequestedCall>> {
        let [gpus] = self.question.gpus[..] else {
            return Err(Error::usage("--gpus: found several numbers; accepted: one"));
        };
        let PlannedTraining { bases, global_batch } = planned;
        let machine = self.machine.as_deref().map(Machine::load).transpose()?;
        let computing = self.computing.read(bases.first.activation_element_type, model, machine.as_ref(), None)?;
        let ranks_per_node = ranks_per_node(self.question.ranks_per_node, machine.as_ref())?;
        let calls = requested_calls(gpus, |rates, only| {
            search(&Question {
                model,
                bases: bases.clone(),
                global_batch,
                gpus,
                ranks_per_node,
                gpu_memory: self.question.gpu_memory,
                compute: &computing.compute,
                rates,
                only,
                wanted: 1,
            })
        });
        if calls.is_empty() {
            return Err(Error::usage(format!(
                "no layout of {} on {gpus} GPUs communicates: there is one GPU, or none is legal and fits into memory; \
                 `commgauge plan --machine FILE` with the same flags says which",
                model.shown_name()
            )));
        }
        Ok(calls)
    }
}
