//! `commgauge calibrate`: fits a cost model to records, writes it to a file and prints it.

use super::computing::{ComputingFlags, RatesFlags, ranks_per_node};
use super::output::{FormattedOutput, TextOutput, check_only_format, make_folder, print, replace};
use super::plan::{PlanCommand, PlannedTraining, QuestionFlags, TrainingFlags};
use super::suite::report_resolved_file;
use super::{AnswerArguments, WithParts};
use crate::cli::launched_arguments::Backend;
use crate::cli::plan::NOT_SURE;
use crate::cli::run::{RunArguments, SummaryParts, run as run_suite};
use crate::report::rank::{RankDocument, text};
use crate::report::{fit_plots, fit_text, pretty_json, prose};
use clap::Parser;
use commgauge_base::element::ElementType;
use commgauge_base::error::{Error, Result};
use commgauge_base::units::{Bytes, parse_seconds};
use commgauge_base::visible::ShownPath;
use commgauge_base::writing::eprintln;
use commgauge_cost::cost::{self, Fit, FitOptions, Measurements};
use commgauge_model::config::step::STEP_FLAGS;
use commgauge_model::config::{Machine, Model, Shipped, toml_string};
use commgauge_model::record::Record;
use commgauge_model::workload::step::{Step, TrainingStep};
use commgauge_plan::planner::calibration_suite::{RequestedCall, requested_calls};
use commgauge_plan::planner::compute::MeasuredProduct;
use commgauge_plan::planner::rank::RankOptions;
use commgauge_plan::planner::search::{Planned, Question, Results, search};
use minijinja::context;
use minijinja::value::Serde;
use serde::Serialize;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::slice;

/// Fit the cost of communication to records, and report its own held-out error
///
/// Sizes between measured ones are interpolated, sizes outside follow an envelope of lines alpha + beta bytes, group sizes
/// that were not measured follow from the steps of the algorithms. Every error shown is that of points that were left
/// out.
#[derive(Clone, Debug, clap::Args)]
pub struct CalibrateCommand {
    /// Records of one machine
    #[arg(required = true, value_name = "RECORD")]
    pub records: Vec<PathBuf>,

    /// Write the fit to a file; an existing one is replaced
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Resamples behind the intervals; 0 for none
    #[arg(long, default_value_t = FitOptions::default().resamples, value_name = "N",
          value_parser = clap::value_parser!(u32).range(..=100_000))]
    pub resamples: u32,

    /// Network adapters of a node: contention of groups across nodes is then counted per adapter
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub adapters_per_node: Option<u32>,

    /// Draw every family of curves as an SVG file in this folder; it is made if missing
    #[arg(long, value_name = "DIR")]
    pub plots: Option<PathBuf>,

    /// How the fit is shown.
    #[command(flatten)]
    pub shown: AnswerArguments,
}

/// `calibrate` and its part.
pub type Calibrate = WithParts<CalibrateCommand, CalibratePart>;

/// Source of the records, if they do not exist yet.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum CalibratePart {
    /// Measure what planning a model needs, fit it, and plan
    Measure(Box<MeasureCommand>),
}

impl Calibrate {
    /// Fits the records, or measures first.
    pub fn execute(&self) -> Result<i32> {
        match self {
            WithParts::Itself(records) => records.execute(),
            WithParts::Part(CalibratePart::Measure(measure)) => measure.execute(),
        }
    }
}

impl CalibrateCommand {
    /// Reads the records, fits, writes the fit and prints it.
    pub fn execute(&self) -> Result<i32> {
        if let Some(path) = &self.output {
            check_only_format(path, "json", &self.records.iter().map(PathBuf::as_path).collect::<Vec<_>>())?;
        }
        let options = FitOptions { resamples: self.resamples, adapters_per_node: self.adapters_per_node };
        let fit = fit_of(&self.records, options)?;
        if let Some(path) = &self.output {
            replace(path, pretty_json(&fit)?)?;
        }
        if let Some(folder) = &self.plots {
            make_folder("--plots", folder)?;
            fit_plots(&fit).iter().try_for_each(|(name, svg)| replace(&folder.join(name), svg))?;
        }
        self.shown.show(&fit, |width| fit_text(&fit, width))?;
        Ok(0)
    }
}

// `commgauge calibrate measure`: measures what planning a model asks for, fits it, and ends with the ranking and the plan.
//
// The folder holds everything between: the suite, the record, the fit. The same command resumes it.

/// The exit code of what is refused.
const USAGE: i32 = 2;

/// Layouts that the plan shows.
const LAYOUTS_SHOWN: u32 = 5;

/// Measure what planning a model asks for, fit it, and end with the ranking and the plan
///
/// commgauge calibrate measure --model llama-3-8b --gpus 16 --ranks-per-node 8 --gpu-memory 80GB --global-batch 64 --sequence 8192 --
/// -n 16 --hosts host0:8,host1:8 --backend nccl
///
/// Writes the suite of every call that a plan of these GPUs asks for, and of the model's matrix products, runs it in groups of every
/// size inside the nodes and across them, all groups at once and one alone, fits the record, and replays the best layout's step for
/// how much slower calls are that computing hides. Suite, records and fit are in the folder of -o; `commgauge plan --fit` answers
/// further questions from there. The same command resumes it.
#[derive(Clone, Debug, clap::Args)]
pub struct MeasureCommand {
    #[command(flatten)]
    question: QuestionFlags,

    #[command(flatten)]
    training: TrainingFlags,

    #[command(flatten)]
    computing: ComputingFlags,

    /// Machine file: GPUs of a node, what they compute, and published link rates for calls that these ranks cannot measure, such
    /// as those over more nodes than there are; the plan then is not calibrated, and says so
    #[arg(long, value_name = "FILE", help_heading = "Rates")]
    machine: Option<PathBuf>,

    /// Folder for the suite, the record and the fit; made where it is not there
    #[arg(short, long, value_name = "DIR", default_value = "calibration", help_heading = "Measurement")]
    output: PathBuf,

    /// Largest call that is measured, such as 256MiB; larger ones, up to 64 times as large, follow from its rate [default: 64MiB, or
    /// what the largest call that is asked for needs]
    #[arg(long, value_name = "SIZE", value_parser = call_bytes, help_heading = "Measurement", hide_short_help = true)]
    largest_call: Option<Bytes>,

    /// Time after which curves get no further sizes, such as 30min
    #[arg(long, value_name = "TIME", default_value = "10min", value_parser = budget, help_heading = "Measurement")]
    budget: String,

    /// Do not replay the best layout's step, which shows how much slower calls are that computing hides
    #[arg(long, help_heading = "Measurement", hide_short_help = true)]
    no_overlap: bool,

    /// Write the suite and stop, to be run by other means
    #[arg(long, help_heading = "Measurement")]
    suite_only: bool,

    /// Flags of `commgauge run`, after `--`: ranks, hosts, backend, launcher
    #[arg(last = true, value_name = "FLAGS")]
    run: Vec<String>,

    /// Columns that tables may take [default: COLUMNS, else those of the terminal, else 100]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(40..), hide_short_help = true)]
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

/// The matrix products of a model, as a `[[compute]]` table.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct CalibrationProducts {
    /// What says the model: the key `preset` or `config`, and its name or path.
    model: String,
    /// Degrees of tensor parallelism.
    tp: Vec<u64>,
    micro_batch: Vec<u64>,
    sequence: u64,
    element_type: ElementType,
}

/// What a calibration measures.
struct Asked {
    /// The text of the suite.
    suite: String,
    /// The matrix products in it.
    products: Option<CalibrationProducts>,
}

impl MeasureCommand {
    /// Measures, fits, ranks and plans; returns the exit code.
    pub fn execute(&self) -> Result<i32> {
        let (question, training) = self.question.with_recipe(&self.training)?;
        MeasureCommand { question, training, ..self.clone() }.measure()
    }

    fn measure(&self) -> Result<i32> {
        let folder = Folder::new(&self.output);
        make_folder("--output", &self.output)?;
        let asked = self.asked(&folder)?;
        folder.write_suite(&asked.suite)?;
        if self.suite_only {
            eprintln!("{}", folder.suite.shown());
            return Ok(0);
        }
        let code = run(&folder, &Work::Suite, &self.run)?;
        if code != 0 {
            eprintln!("the measurement ended with {code}, so nothing is fitted; the same command resumes it");
            return Ok(code);
        }
        // Without the replay, so that the same command finds the same best layout again.
        fit(&folder, slice::from_ref(&folder.record))?;
        let computing = self.computing(&folder, &asked)?;
        let plan = self.plan(&folder.fit, computing);
        if !self.no_overlap {
            let code = self.replay(&folder, &plan)?;
            if code != 0 {
                eprintln!(
                    "the replay of the best layout's step ended with {code}; the same command resumes it, and --no-overlap skips it"
                );
                return Ok(code);
            }
        }
        answer(&plan)
    }

    /// Replays the step of the best layout, and fits again; returns the exit code.
    fn replay(&self, folder: &Folder, plan: &PlanCommand) -> Result<i32> {
        let ranks = Record::read(&folder.record)?.header.world_size;
        if !self.question.gpus.contains(&ranks) {
            eprintln!(
                "the best layout's step is not replayed: it needs {} GPUs, and {ranks} ranks measured; hidden calls are priced without a slowdown",
                self.question.gpus.first().copied().unwrap_or_default()
            );
            return Ok(0);
        }
        let flags = plan.with_best(|question, best| flags(question, &best.layout, &self.question, &self.training))?;
        match run(folder, &Work::Step(&flags), &self.run)? {
            0 => fit(folder, &[folder.record.clone(), folder.overlap.clone()]).map(|()| 0),
            // Before anything is measured, as of a step with more streams than a GPU has queues.
            USAGE if !folder.overlap.exists() => {
                eprintln!(
                    "the best layout's step is not replayed: the ranks refuse it, for the reason above; hidden calls are priced without a slowdown"
                );
                Ok(0)
            }
            code => Ok(code),
        }
    }

    /// The flags of computing, with the products that were measured.
    fn computing(&self, folder: &Folder, asked: &Asked) -> Result<ComputingFlags> {
        match &asked.products {
            Some(products) if has_products(folder, products.element_type)? => {
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
            rates: RatesFlags { fit: Some(fit.to_owned()), machine: self.machine.clone(), ..RatesFlags::default() },
            computing,
            training: self.training.clone(),
            details: true,
            top: LAYOUTS_SHOWN,
            shown: FormattedOutput { format: None, to: TextOutput { output: None, width: self.width } },
            ..PlanCommand::default()
        }
    }

    /// The calls that the plan needs, and their suite.
    fn asked(&self, folder: &Folder) -> Result<Asked> {
        let model = Model::load(&self.question.model)?;
        report_resolved_file(Shipped::Model, Path::new(&self.question.model));
        let backend = arguments(folder, &Work::Suite, &self.run)?.backend;
        let planned = self.question.training(&model, &self.training, &[])?;
        let products = match self.computing.leaves_products_open() {
            true => of(&self.question.model, &model, &planned, backend),
            false => None,
        };
        let calls = self.calls(&model, planned)?;
        Ok(Asked { suite: self.suite(&model, &calls, products.as_ref()), products })
    }

    /// The suite that measures these calls and products, as a TOML file.
    fn suite(&self, model: &Model, calls: &[RequestedCall], products: Option<&CalibrationProducts>) -> String {
        let shown = model.shown_name();
        let call = |call: &RequestedCall| {
            let (least, most, sizes) = (call.bytes_least.0, call.bytes_most.0, call.first_sizes(self.largest_call));
            let (reduces, has_placements) = (call.collective.reduces(), call.collective.placements().len() > 1);
            let (collective, element_type) = (call.collective.name(), call.element_type.name());
            context! { least, most, sizes, reduces, has_placements, collective, element_type }
        };
        let context = context! {
            model => &shown, name => toml_string(&format!("calibrate-{}", model.name)), budget => &self.budget,
            description => toml_string(&format!("Calls and products for planning {shown}")),
            calls => calls.iter().map(call).collect::<Vec<_>>(), products => Serde(products),
        };
        prose("calibration_suite.toml", include_str!("calibration_suite.toml"), context)
    }

    fn calls(&self, model: &Model, planned: PlannedTraining) -> Result<Vec<RequestedCall>> {
        let [gpus] = self.question.gpus[..] else {
            let found = if self.question.gpus.is_empty() { "no number" } else { "several numbers" };
            return Err(Error::usage(format!("--gpus: found {found}; accepted: one")));
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
                results: Results::Layouts,
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

// What a calibration ends with: the ranking of the best layout's parallelisms, and the plan.

/// Exit code where some layouts have no price.
const NOT_ALL: i32 = 7;

/// Prints the ranking and the plan; returns 7 where layouts have no price, 3 where the plan rests on curves that are not to be trusted.
///
/// # Errors
/// Those of planning.
fn answer(plan: &PlanCommand) -> Result<i32> {
    let planned = plan.execute_after(|question, best| {
        let ranking = question.with_step(&best.layout, |step| {
            RankDocument::new(
                &Step::Training(step.clone()),
                question.ranks_per_node,
                question.rates,
                RankOptions::default(),
            )
        })?;
        print(&(text(&ranking, plan.shown.to.columns()) + "\n"))
    });
    if let (Err(_), Some(fit)) = (&planned, &plan.rates.fit) {
        eprintln!(
            "what was measured is kept: `commgauge plan --fit {}` with the same flags and --machine FILE plans on it without measuring again",
            fit.display()
        );
    }
    let planned = planned?;
    if !planned.every_layout_has_a_price {
        eprintln!(
            "some layouts have no price, for the reasons above: these ranks cannot measure their calls, so measure on more or name \
             --machine FILE for published rates"
        );
        return Ok(NOT_ALL);
    }
    if !planned.best_is_trusted {
        eprintln!(
            "the plan rests on curves that predict their own sizes badly: measure on a quiet machine, into another folder (-o), before \
             you build on it"
        );
        return Ok(NOT_SURE);
    }
    Ok(0)
}

// The folder of a calibration, the run of its suite, and the fit of its record.

/// What a calibration leaves.
struct Folder {
    /// What is measured.
    pub suite: PathBuf,
    /// What was measured.
    pub record: PathBuf,
    /// How calls and computing slow each other, in the replay of the best layout's step.
    pub overlap: PathBuf,
    /// The cost model.
    pub fit: PathBuf,
}

/// What is measured by one launch.
enum Work<'a> {
    /// The suite of the folder.
    Suite,
    /// The replay of a step, by these flags of `commgauge-step`.
    Step(&'a [String]),
}

/// The flags of `commgauge run`, from words.
#[derive(Debug, Parser)]
#[command(name = "commgauge run", no_binary_name = true, disable_help_flag = true)]
struct RunWords {
    #[command(flatten)]
    run: RunArguments,
}

impl Folder {
    pub fn new(path: &Path) -> Folder {
        Folder {
            suite: path.join("suite.toml"),
            record: path.join("record.jsonl"),
            overlap: path.join("overlap.jsonl"),
            fit: path.join("fit.json"),
        }
    }

    /// Writes the suite; one that is there must be the same.
    ///
    /// # Errors
    /// A folder that holds the calibration of something else, or that cannot be written.
    pub fn write_suite(&self, text: &str) -> Result<()> {
        match std::fs::read_to_string(&self.suite) {
            Ok(known) if known == text => Ok(()),
            Ok(_) if self.record.exists() => Err(Error::usage(format!(
                "{} was measured for another suite than these flags ask for; name another folder with -o, or remove this one",
                self.record.shown()
            ))),
            _ => replace(&self.suite, text),
        }
    }
}

impl Work<'_> {
    fn record<'a>(&self, folder: &'a Folder) -> &'a Path {
        match self {
            Work::Suite => &folder.record,
            Work::Step(_) => &folder.overlap,
        }
    }
}

/// Runs the work, or resumes an interrupted run, and returns the exit code. `words` are more flags of `commgauge run`.
///
/// # Errors
/// Flags that `commgauge run` does not take; those of a run that does not start.
fn run(folder: &Folder, work: &Work, words: &[String]) -> Result<i32> {
    let record = work.record(folder);
    let run = arguments(folder, work, words)?;
    let run = match (record.exists(), run.backend) {
        (false, _) => run,
        (true, Backend::Simulated) => RunArguments { record: None, resume: Some(record.to_owned()), ..run },
        // The record knows how its ranks were launched, and for what.
        (true, _) => RunArguments {
            suite: None,
            step: false,
            extra: Vec::new(),
            record: None,
            machine: None,
            resume: Some(record.to_owned()),
            ..run
        },
    };
    run_suite(&run, &mut std::io::stdout().lock())
}

fn arguments(folder: &Folder, work: &Work, words: &[String]) -> Result<RunArguments> {
    let mut all: Vec<OsString> = match work {
        Work::Suite => vec![folder.suite.as_os_str().to_owned()],
        Work::Step(_) => vec!["--step".into()],
    };
    all.extend(["--record".into(), work.record(folder).as_os_str().to_owned()]);
    all.extend(words.iter().map(OsString::from));
    // Those after a second `--` are for every launch of the calibration, such as --share-gpu.
    if let Work::Step(flags) = work {
        all.extend(words.iter().all(|word| word != "--").then(|| "--".into()));
        all.extend(flags.iter().map(OsString::from));
    }
    let RunWords { run } = RunWords::try_parse_from(all).map_err(|error| {
        let text = error.to_string();
        let problem = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
        Error::usage(format!("after `--`: {problem}; accepted: flags of `commgauge run`, such as -n 4"))
    })?;
    Ok(RunArguments { summary: SummaryParts::Head, ..run })
}

/// Whether the record has matrix products of this type, each with a time.
///
/// # Errors
/// A record that cannot be read.
fn has_products(folder: &Folder, element: ElementType) -> Result<bool> {
    let products = MeasuredProduct::all_of(&Record::read(&folder.record)?);
    Ok(products.iter().any(|product| product.element == element))
}

/// The fit of records of one machine.
///
/// # Errors
/// A record that cannot be read; records without a curve, or of several machines.
pub(super) fn fit_of(records: &[PathBuf], options: FitOptions) -> Result<Fit> {
    let records =
        records.iter().map(|path| Ok((path.display().to_string(), Record::read(path)?))).collect::<Result<Vec<_>>>()?;
    let measurements = Measurements::of(records.iter().map(|(name, record)| (name.as_str(), record)))?;
    cost::fit(&measurements, options)
}

/// Fits records of the folder and writes the fit.
///
/// # Errors
/// A record that cannot be read or has no curves; a file that cannot be written.
fn fit(folder: &Folder, records: &[PathBuf]) -> Result<()> {
    let fit = fit_of(records, FitOptions::default())?;
    replace(&folder.fit, &pretty_json(&fit)?)?;
    let curves: usize = fit.families.iter().map(|family| family.curves.len()).sum();
    let shown: Vec<String> = records.iter().map(|record| record.shown().to_string()).collect();
    eprintln!("fit: {curves} curves in {} (`commgauge calibrate {}` shows them)", folder.fit.shown(), shown.join(" "));
    Ok(())
}

// The replay of the best layout's step with computing: how much slower hidden calls are.
//
// Few layers and few micro-batches of it, since what computing adds to a call is a ratio.

/// Layers that are replayed, at least, where the model has them.
const LAYERS: u32 = 4;

/// Micro-batches that are replayed, for each stage of the pipeline: it fills, runs full and drains.
const MICRO_BATCHES_PER_STAGE: u64 = 4;

/// Most chunks of a stage that are replayed where the layers allow it: each has streams of its own for its messages, and a GPU has queues for
/// 32 streams.
const MOST_VIRTUAL_STAGES: u32 = 2;

/// Longest forward pass of a layer that is replayed: far longer than the calls it overlaps on a network, whereas the layers of ranks that compute
/// on the host may take a second each, and a replay of them an hour.
const LONGEST_FORWARD_SECONDS: f64 = 0.02;

/// The flags of `commgauge-step` that replay a layout.
///
/// # Errors
/// A layout that does not fit the question.
fn flags(question: &Question, layout: &Planned, asked: &QuestionFlags, choices: &TrainingFlags) -> Result<Vec<String>> {
    let forward = question.with_step(layout, |step| Ok(forward_per_layer(question, step)))?;
    let mut flags = vec![
        format!("--model={}", asked.model),
        "--replay".to_owned(),
        format!("--forward-per-layer={}us", (forward * 1e6).round().max(1.0)),
        format!("--order={}", layout.order),
    ];
    let degrees = &layout.degrees;
    let degrees = [("tp", degrees.tp), ("cp", degrees.cp), ("dp", degrees.dp), ("pp", degrees.pp), ("ep", degrees.ep)]
        .into_iter()
        .chain([("etp", degrees.etp)]);
    flags.extend(degrees.map(|(axis, degree)| format!("--{axis}={degree}")));
    let fewer = layout.virtual_stages.min(MOST_VIRTUAL_STAGES);
    let layers = layers(question.model, layout.degrees.pp * fewer);
    let virtual_stages = if layers.is_some() { fewer } else { layout.virtual_stages };
    let mut keys = keys(question, layout, virtual_stages)?;
    keys.extend(choices.given().filter(|(key, _)| !is_chosen(key)));
    match layers {
        Some(layers) => flags.push(format!("--layers={layers}")),
        None => {
            let list = |layers: &[u32]| layers.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
            keys.extend(layout.stage_layers.as_deref().map(|layers| ("stage_layers", list(layers))));
        }
    }
    for (key, value) in keys {
        flags.push(flag(key, &value)?);
    }
    Ok(flags)
}

/// Seconds of a forward pass of a micro-batch through a layer of the first stage, as it is replayed.
fn forward_per_layer(question: &Question, step: &TrainingStep) -> f64 {
    let layers = step.stages.layers_passed(0).count().max(1);
    (question.compute.stage(step, 0).forward_seconds() / layers as f64).min(LONGEST_FORWARD_SECONDS)
}

/// The choices of the planner as keys of `[training]`.
fn keys(question: &Question, layout: &Planned, virtual_stages: u32) -> Result<Vec<(&'static str, String)>> {
    let pp = layout.degrees.pp;
    let micro_batches = layout.micro_batches.min(MICRO_BATCHES_PER_STAGE * u64::from(pp));
    let (style, sequence_parallel) =
        question.with_step(layout, |step| Ok((step.training.data.style, step.training.tensor.sequence_parallel)))?;
    let mut keys = vec![
        ("sequence", question.bases.first.sequence.to_string()),
        ("micro_batch", layout.micro_batch.to_string()),
        ("micro_batches", micro_batches.to_string()),
        ("recompute", layout.recompute.name().to_owned()),
        ("sequence_parallel", sequence_parallel.to_string()),
        ("data_style", style.name().to_owned()),
    ];
    if pp > 1 {
        keys.push(("schedule", layout.schedule.name().to_owned()));
        keys.push(("virtual_stages", virtual_stages.to_string()));
    }
    Ok(keys)
}

/// Keys that [`keys`] sets.
fn is_chosen(key: &str) -> bool {
    ["sequence_parallel", "data_style", "stage_layers"].contains(&key)
}

/// The fewest layers that hold one of each kind and divide evenly into this many chunks; none where that needs all.
fn layers(model: &Model, chunks: u32) -> Option<u32> {
    let kinds_in = |layers: u32| (0..layers).map(|layer| model.parts_of(layer)).collect::<BTreeSet<_>>().len();
    let all = kinds_in(model.layers);
    let enough = (1..=model.layers).find(|layers| kinds_in(*layers) == all)?;
    Some(enough.max(LAYERS).next_multiple_of(chunks)).filter(|layers| *layers < model.layers)
}

/// A key of `[training]` as its flag.
fn flag(key: &str, value: &str) -> Result<String> {
    let known = STEP_FLAGS.iter().find(|known| known.key == key);
    let known =
        known.ok_or_else(|| Error::usage(format!("{key} cannot be replayed; leave it out or give --no-overlap")))?;
    Ok(format!("{}={}", known.flag, known.turned(value)))
}

// Which matrix products a calibration measures: those of the model's layers, in the degrees and micro-batches that a plan may choose.

/// Most degrees of tensor parallelism: the GPUs of the largest usual node.
const MOST_TP: u64 = 8;

/// Most samples of a micro-batch.
const MOST_MICRO_BATCH: u64 = 4;

/// Most tokens of a sample on host memory, where a product takes a thousand times as long and is as fast with few rows.
const MOST_TOKENS_ON_HOSTS: u64 = 512;

/// The products of a model that is found by `name`. None on a backend that computes nothing in the type of the activations, which is
/// said on standard error.
fn of(name: &str, model: &Model, planned: &PlannedTraining, backend: Backend) -> Option<CalibrationProducts> {
    let training = &planned.bases.first;
    let element_type = training.activation_element_type;
    let on_host = [ElementType::Float32, ElementType::Float64].contains(&element_type);
    let (tokens, micro_batches) = match backend {
        Backend::Nccl => (training.sequence, MOST_MICRO_BATCH),
        Backend::Mpi if on_host => (training.sequence.min(MOST_TOKENS_ON_HOSTS), 1),
        Backend::Mpi | Backend::Simulated => {
            eprintln!(
                "matrix products are not measured: --backend {} multiplies no {element_type}; computing is that of the flags",
                backend.name()
            );
            return None;
        }
    };
    let linear = model.linear_attention_in_use().map(|linear| [linear.key_heads, linear.value_heads]);
    let widths: Vec<u64> =
        [model.attention.heads, model.feed_forward].into_iter().chain(linear.into_iter().flatten()).collect();
    let divides = |tp: &u64| widths.iter().all(|width| width.is_multiple_of(*tp));
    let doubling = |most: u64| (0..).map(|power| 1 << power).take_while(move |number| *number <= most);
    let divides_batch = |samples: &u64| planned.global_batch.is_multiple_of(*samples);
    Some(CalibrationProducts {
        model: source(name),
        tp: doubling(MOST_TP).filter(divides).collect(),
        micro_batch: doubling(micro_batches).filter(divides_batch).collect(),
        sequence: tokens,
        element_type,
    })
}

/// What says the model in the suite, which is run from anywhere: the whole path of a file, or the name of a preset.
fn source(name: &str) -> String {
    let path = Path::new(name);
    let file = if path.is_dir() { path.join("config.json") } else { path.to_owned() };
    match file.canonicalize() {
        Ok(file) => format!("config = {}", toml_string(&file.to_string_lossy())),
        Err(_) => format!("preset = {}", toml_string(name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use commgauge_base::collective::Collective;
    use commgauge_model::config::Suite;
    use commgauge_model::layout::Nodes;
    use commgauge_model::workload::WorkPlan;

    fn plan(calls: &[RequestedCall], products: Option<&CalibrationProducts>, nodes: &Nodes) -> WorkPlan {
        #[derive(Parser)]
        struct Flags {
            #[command(flatten)]
            measure: MeasureCommand,
        }
        let flags = "measure --model llama-3-8b --gpus 16 --gpu-memory 80GB --global-batch 64 --sequence 512";
        let Flags { measure } = Flags::parse_from(flags.split(' '));
        let text = measure.suite(&Model::load("llama-3-8b").unwrap(), calls, products);
        let suite = Suite::parse(Path::new("calibrate.toml"), &text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        WorkPlan::from_suite_on(&suite, nodes).unwrap()
    }

    fn call(collective: Collective, element_type: ElementType) -> RequestedCall {
        RequestedCall { collective, element_type, bytes_least: Bytes(1024), bytes_most: Bytes(1 << 25) }
    }

    #[test]
    fn products_are_those_of_the_model_in_every_degree_and_micro_batch_that_is_given() {
        let products = CalibrationProducts {
            model: source("llama-3-8b"),
            tp: vec![1, 2],
            micro_batch: vec![1, 4],
            sequence: 512,
            element_type: ElementType::Bfloat16,
        };
        let calls = [call(Collective::AllReduce, ElementType::Float32)];
        let plan = plan(&calls, Some(&products), &Nodes::filled(2, 2));
        assert_eq!(plan.products.len(), 2 * 2 * 5, "five products of a layer and the head");
        assert!(plan.products.iter().all(|product| product.element_type == ElementType::Bfloat16));
    }

    #[test]
    fn every_place_of_the_ranks_is_measured_at_once_and_alone() {
        let calls =
            [Collective::AllReduce, Collective::SendRecv].map(|collective| call(collective, ElementType::Bfloat16));
        let plan = plan(&calls, None, &Nodes::filled(8, 4));
        let of = |solo: bool| -> BTreeSet<String> {
            let wanted = plan.cases.iter().filter(|case| case.solo_of.is_some() == solo);
            wanted.map(|case| format!("{} {}", case.op.axis, case.groups_label)).collect()
        };
        let at_once = ["node ", "node by-2", "nodes of-2", "nodes of-2-by-1", "nodes of-2-by-2"];
        assert_eq!(of(false), at_once.map(str::to_owned).into());
        let alone = ["node by-2-solo", "node solo", "nodes of-2-by-1-solo", "nodes of-2-by-2-solo"];
        assert_eq!(of(true), alone.map(str::to_owned).into(), "one group over both nodes is already alone");
    }
}
