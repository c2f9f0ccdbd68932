//! `commgauge plan`: divides the machines among the parallelisms, based on a fit or on published rates. Needs no
//! launch.

mod configurations;
mod only;
mod training;

use super::computing::{Computing, ComputingFlags};
use super::places::report_resolved_file;
use super::published::published;
use super::rates::RatesFlags;
use super::table_or_json::{json, print};
use super::terminal::columns;
use crate::report::plan::{csv, explain_text, text};
use crate::report::plan_page;
use commgauge_analysis::planner::explain::Comparison;
use commgauge_analysis::planner::plan_document::{FORMAT, PlanDocument, PlannedLayout, VERSION};
use commgauge_analysis::planner::rates::Hidden;
use commgauge_analysis::planner::search::{
    Found, Only, Priced, Question, not_beaten, pareto, probability_faster, search, what_if,
};
use commgauge_base::error::{Error, Result};
use commgauge_base::message::eprintln;
use commgauge_base::units::Bytes;
use commgauge_model::config::{Model, Shipped, Table, Training};
use commgauge_model::layout::MOST_RANKS;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Instant;
use training::TrainingChoice;

/// Note for a fit without such coefficients.
const NO_HIDDEN_DATA: &str =
    "Nothing is known of how much slower calls are while computing or other calls hide them: they count as alone.";

/// Find the fastest way to divide a model over GPUs: every legal layout that fits into memory
///
/// commgauge plan --fit fit.json --model llama-3-70b --gpus 64 --gpu-memory 80GB --global-batch 512 --sequence 8192 --ranks-per-node 8
///
/// Prints the best layouts with what their step is made of, what limits each, and how sure their order is.
#[derive(Clone, Debug, clap::Args)]
pub struct PlanCommand {
    /// Model: a config.json, its folder, or a name, such as llama-3-8b (`commgauge list models`)
    #[arg(long, value_name = "MODEL")]
    model: String,

    /// All GPUs; several numbers with commas for --pareto
    #[arg(long, visible_alias = "ranks", value_name = "N", required = true, value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_RANKS)))]
    gpus: Vec<u32>,

    /// GPUs of each node, neighbours in world rank [default: those of the machine file]
    #[arg(long, value_name = "N")]
    ranks_per_node: Option<u32>,

    /// What one GPU holds, such as 80GB; leave out what the CUDA context and NCCL take
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    gpu_memory: Bytes,

    /// Samples of a step over all replicas
    #[arg(long, value_name = "N")]
    global_batch: String,

    /// Tokens of one sample
    #[arg(long, visible_alias = "seq", value_name = "TOKENS")]
    sequence: String,

    #[command(flatten)]
    rates: RatesFlags,

    #[command(flatten)]
    computing: ComputingFlags,

    /// Type of parameters and activations, and so of the matrix products [default: bfloat16]
    #[arg(long, value_name = "TYPE")]
    element_type: Option<String>,

    /// Choices of the training that the planner does not make, such as sequence_parallel=false or
    /// gradient_element_type=bfloat16: any other key of [training]; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = training::choice)]
    training: Vec<TrainingChoice>,

    /// Only layouts with these, such as tp=4|8,pp=8,dp=1,micro_batch=1,zero_stage=0|1,recompute=none,order=tp-pp-dp; where none
    /// of them fits into memory, they are priced all the same
    #[arg(long, value_name = "LIST", value_parser = only::parse, conflicts_with = "explain")]
    only: Option<Only>,

    /// Compare the best of two sets of layouts line by line, each written as for --only
    #[arg(long, num_args = 2, value_names = ["A", "B"], value_parser = only::parse)]
    explain: Option<Vec<Only>>,

    /// Price these configurations instead of searching: a file with a line for each, written as for --only; of a line that leaves
    /// several, the fastest
    #[arg(long, value_name = "FILE", conflicts_with_all = ["only", "explain"])]
    configurations: Option<PathBuf>,

    /// List the layouts that no other beats in time, memory and GPUs alike
    #[arg(long, conflicts_with_all = ["configurations", "explain"])]
    pareto: bool,

    /// Say what machines would choose whose links are slower or faster, or whose memory is smaller or larger
    #[arg(long, conflicts_with = "explain")]
    what_if: bool,

    /// Plan on curves whose held-out error is over 10 % too
    #[arg(long)]
    allow_untrusted: bool,

    /// How many of the best layouts to show
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    top: u32,

    /// How to write the answer
    #[arg(long, value_enum, default_value_t)]
    format: PlanFormat,

    /// Columns that the table may take [default: COLUMNS, else those of the terminal, else 100]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(40..))]
    width: Option<u16>,
}

/// How a plan is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum PlanFormat {
    /// For people, fitted to the width of the terminal
    #[default]
    Table,
    /// One document, in base units
    Json,
    /// One line for each layout
    Csv,
    /// A page to be sent, as one file that asks for nothing
    Html,
}

fn bytes(text: &str) -> std::result::Result<Bytes, String> {
    match Bytes::parse_memory(text)? {
        Bytes(0) => Err("found no memory; accepted: such as 80GB".to_owned()),
        bytes => Ok(bytes),
    }
}

impl PlanCommand {
    /// Searches for layouts and prints them.
    pub fn execute(&self) -> Result<i32> {
        let model = Model::load(&self.model)?;
        report_resolved_file(Shipped::Model, Path::new(&self.model));
        let base = self.training(&model)?;
        let global_batch = match &base.batch {
            commgauge_model::config::Batch::Global(global, _) => *global,
            commgauge_model::config::Batch::MicroBatches(_) => return Err(Error::usage("--global-batch is missing")),
        };
        let source = self.rates.read()?;
        let rates = source.rates();
        let computing = self.computing.read(base.activation_element_type, source.machine())?;
        let question = |only: Only, wanted: u32| -> Result<Question<'_>> {
            Ok(Question {
                model: &model,
                base: base.clone(),
                global_batch,
                gpus: self.gpus.first().copied().unwrap_or(1),
                ranks_per_node: source.ranks_per_node(self.ranks_per_node)?,
                gpu_memory: self.gpu_memory,
                compute: &computing.compute,
                rates: rates.as_ref(),
                only,
                wanted: wanted as usize,
                allow_untrusted: self.allow_untrusted,
            })
        };
        if let Some([first, second]) = self.explain.as_deref() {
            return self.explain(&question(first.clone(), 1)?, &question(second.clone(), 1)?, &computing);
        }
        let question = question(self.only.clone().unwrap_or_default(), self.top)?;
        let started = Instant::now();
        let found = self.found(&question)?;
        self.check_found(&question, &found)?;
        let probability = match found.best.as_slice() {
            [first, second, ..] => probability_faster(&question, &first.layout, &second.layout)?,
            _ => None,
        };
        let elapsed = started.elapsed().as_secs_f64();
        let mut document = PlanDocument::new(&question, &found, computing.ground.clone(), elapsed, probability);
        document.synthetic |= computing.synthetic;
        document.notes = self.notes(&question, &found, &computing)?;
        if self.what_if {
            document.what_if = what_if(&question, &found.best[0]);
        }
        print(&match self.format {
            PlanFormat::Table => text(&document, columns(self.width)),
            PlanFormat::Json => json(&document)?,
            PlanFormat::Csv => csv(&document)?,
            PlanFormat::Html => plan_page(&document)?,
        })?;
        if self.format == PlanFormat::Csv && (document.synthetic || !document.calibrated) {
            eprintln!("{}", if document.synthetic { "SYNTHETIC: no real time passed" } else { "NOT CALIBRATED" });
        }
        Ok(0)
    }

    /// The layouts of a search, of a list or of a file.
    fn found(&self, question: &Question) -> Result<Found> {
        if let Some(path) = &self.configurations {
            return configurations::priced(question, path);
        }
        if self.pareto {
            let of = |gpus: &u32| pareto(&Question { gpus: *gpus, ..question.clone() });
            let mut all: Vec<Found> = self.gpus.iter().map(of).collect();
            let mut found = all.remove(0);
            all.into_iter().for_each(|other| found.add(other));
            found.best = not_beaten(found.best);
            return Ok(found);
        }
        match self.gpus.len() {
            1 => Ok(search(question)),
            several => {
                Err(Error::usage(format!("--gpus: found {several} numbers; accepted: one, or several with --pareto")))
            }
        }
    }

    fn explain(&self, first: &Question, second: &Question, computing: &Computing) -> Result<i32> {
        let one = |question: &Question| -> Result<Priced> {
            let mut found = search(question);
            self.check_found(question, &found)?;
            Ok(found.best.remove(0))
        };
        let (a, b) = (one(first)?, one(second)?);
        let probability = probability_faster(first, &a.layout, &b.layout)?;
        let comparison = Comparison::new(PlannedLayout::of(&a), PlannedLayout::of(&b), probability);
        let rates = first.rates;
        let mark = match (rates.synthetic() || computing.synthetic, rates.calibrated()) {
            (true, _) => "SYNTHETIC: times come from records without real times\n\n",
            (_, false) => "NOT CALIBRATED: times of calls come from published rates, not from measurements\n\n",
            _ => "",
        };
        print(&match self.format {
            PlanFormat::Table => mark.to_owned() + &explain_text(&comparison, columns(self.width)),
            PlanFormat::Json => json(&comparison)?,
            PlanFormat::Csv | PlanFormat::Html => {
                return Err(Error::usage(
                    "--explain can be written as a table or as json; accepted: --format table, json",
                ));
            }
        })?;
        Ok(0)
    }

    /// Returns an error with the reasons if no layout was found.
    fn check_found(&self, question: &Question, found: &Found) -> Result<()> {
        if !found.best.is_empty() {
            return Ok(());
        }
        let joined = |all: &mut dyn Iterator<Item = String>| all.collect::<Vec<_>>().join("; ");
        if found.considered == 0 {
            let rules = joined(&mut found.illegal.iter().map(|(rule, count)| format!("{rule} ({count})")));
            let what = if question.only.is_anything() { " of those that --only leaves" } else { "" };
            return Err(Error::usage(format!(
                "no layout{what} of {} on {} GPUs is legal; degrees that break a rule: {}",
                question.model.shown_name(),
                question.gpus,
                if rules.is_empty() { "none multiply to the GPUs".to_owned() } else { rules }
            )));
        }
        if !found.unpriced.is_empty() {
            let reasons = found.unpriced.iter().take(8).map(|(reason, count)| format!("{reason} ({count} layouts)"));
            let hint = match question.rates.calibrated() {
                true => "; measure what is missing, or name --machine FILE too for published rates",
                false => "",
            };
            return Err(Error::usage(format!(
                "none of the {} layouts that fit has a price: {}{hint}",
                found.feasible,
                joined(&mut reasons.into_iter())
            )));
        }
        let Some(nearest) = &found.nearest else {
            return Err(Error::usage("there is no layout"));
        };
        let (needs, has) = (nearest.memory.0, question.gpu_memory.0);
        let degrees = nearest.degrees.name();
        Err(Error::usage(format!(
            "none of {} layouts fits into {:.1} GB: the nearest is {degrees}, ZeRO {}, micro-batch {}, recompute {}, which needs \
             {:.1} GB, {:.1} GB too much; take more GPUs, a shorter sequence or a smaller batch, or price it with --only",
            found.considered,
            has as f64 / 1e9,
            nearest.zero_stage,
            nearest.micro_batch,
            nearest.recompute,
            needs as f64 / 1e9,
            needs.saturating_sub(has) as f64 / 1e9,
        )))
    }

    fn training(&self, model: &Model) -> Result<Training> {
        let mut flags = vec![
            ("--sequence", "sequence", self.sequence.clone()),
            ("--global-batch", "global_batch", self.global_batch.clone()),
        ];
        if !self.training.iter().any(|choice| choice.key == "sequence_parallel") {
            flags.push(("--training", "sequence_parallel", "true".to_owned()));
        }
        flags.extend(self.training.iter().map(|choice| ("--training", choice.key, choice.value.clone())));
        if let Some(element) = &self.element_type {
            flags.push(("--element-type", "activation_element_type", element.clone()));
            flags.push(("--element-type", "parameter_element_type", element.clone()));
        }
        let training = Training::read(Table::of_flags(flags))?;
        if training.sequence > model.maximum_positions {
            return Err(training.sequence_place.wrong(format!(
                "found {}; {} allows up to {} (max_position_embeddings)",
                training.sequence, model.name, model.maximum_positions
            )));
        }
        Ok(training)
    }

    fn notes(&self, question: &Question, found: &Found, computing: &Computing) -> Result<Vec<String>> {
        let mut notes = Vec::new();
        if self.allow_untrusted && self.rates.fit.is_some() {
            notes.push(
                "Curves with a held-out error over 10 % were planned on, because --allow-untrusted says so.".to_owned(),
            );
        }
        notes.push(question.rates.hidden().and_then(Hidden::describe).unwrap_or_else(|| NO_HIDDEN_DATA.to_owned()));
        notes.extend(computing.notes.iter().cloned());
        if let Some(best) = found.best.first() {
            notes.extend(computing.own_shapes(&question.products(&best.layout)?));
        }
        Ok(notes)
    }
}

/// The JSON Schema of the document.
pub(super) fn schema() -> Value {
    let title = "What commgauge plan --format json prints";
    published(schemars::schema_for!(PlanDocument).to_value(), FORMAT, VERSION, title)
}
