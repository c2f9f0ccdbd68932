//! `commgauge plan`: divides the machines among the parallelisms, based on a fit or on published rates. Needs no
//! launch.

mod configurations;
mod none_found;
mod only;
mod question;
mod training;

pub(super) use question::{PlannedTraining, QuestionFlags, TrainingFlags};

use super::computing::{Computing, ComputingFlags};
use super::places::report_resolved_file;
use super::published::published;
use super::rates::RatesFlags;
use super::table_or_json::json;
use super::text_output::FormattedOutput;
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
use commgauge_model::config::{Model, Shipped};
use none_found::none_found;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Note for a fit without such coefficients.
const NO_HIDDEN_DATA: &str =
    "Nothing is known of how much slower calls are while computing or other calls hide them: they count as alone.";

/// Find the fastest way to divide a model over GPUs: every legal layout that fits into memory
///
/// commgauge plan --fit fit.json --model llama-3-70b --gpus 64 --gpu-memory 80GB --global-batch 512 --sequence 8192 --ranks-per-node 8
///
/// Prints the best layouts with what their step is made of, what limits each, and how sure their order is. Ends with 3 where the
/// best one rests on curves that predict their own sizes badly.
#[derive(Clone, Debug, clap::Args)]
pub struct PlanCommand {
    #[command(flatten)]
    pub(super) question: QuestionFlags,

    #[command(flatten)]
    pub(super) rates: RatesFlags,

    #[command(flatten)]
    pub(super) computing: ComputingFlags,

    #[command(flatten)]
    pub(super) training: TrainingFlags,

    /// Only layouts with these, such as tp=4|8,pp=8,dp=1,micro_batch=1,zero_stage=0|1,recompute=none,order=tp-pp-dp; where none
    /// of them fits into memory, they are priced all the same
    #[arg(long, value_name = "LIST", value_parser = only::parse, conflicts_with = "explain")]
    pub(super) only: Option<Only>,

    /// Compare the best of two sets of layouts line by line, each written as for --only
    #[arg(long, num_args = 2, value_names = ["A", "B"], value_parser = only::parse)]
    pub(super) explain: Option<Vec<Only>>,

    /// Price these configurations instead of searching: a file with a line for each, written as for --only; of a line that leaves
    /// several, the fastest
    #[arg(long, value_name = "FILE", conflicts_with_all = ["only", "explain"])]
    pub(super) configurations: Option<PathBuf>,

    /// List the layouts that no other beats in time, memory and GPUs alike
    #[arg(long, conflicts_with_all = ["configurations", "explain"])]
    pub(super) pareto: bool,

    /// Say what machines would choose whose links are slower or faster, or whose memory is smaller or larger
    #[arg(long, conflicts_with = "explain")]
    pub(super) what_if: bool,

    /// End with 0 also where the best layout rests on curves whose held-out error is over 10 %
    #[arg(long)]
    pub(super) allow_untrusted: bool,

    /// How many of the best layouts to show
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) top: u32,

    /// How it is shown.
    #[command(flatten)]
    pub(super) shown: FormattedOutput<PlanFormat>,
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

/// Exit code where the best layout rests on curves that predict badly.
pub(super) const NOT_SURE: i32 = 3;

fn is_trusted(found: &Found) -> bool {
    found.best.first().is_some_and(|best| best.price.untrusted.is_empty())
}

/// How complete a plan is, and how sure.
#[derive(Clone, Copy, Debug)]
pub(super) struct Planning {
    pub every_layout_has_a_price: bool,
    /// No call of the best layout is from a curve whose held-out error is over 10 %.
    pub best_is_trusted: bool,
}

impl PlanCommand {
    /// Searches for layouts and prints them.
    pub fn execute(&self) -> Result<i32> {
        self.with_question(|question, computing, format| self.answer(question, computing, format))
    }

    /// Hands over the question and its best layout, and prints nothing.
    pub(super) fn with_best<T>(&self, use_it: impl FnOnce(&Question, &Priced) -> Result<T>) -> Result<T> {
        self.with_question(|question, _, _| {
            let (found, _) = self.timed(question)?;
            use_it(question, &found.best[0])
        })
    }

    /// Plans, with something before the plan, which gets the question and its best layout.
    pub(super) fn execute_after(&self, before: impl FnOnce(&Question, &Priced) -> Result<()>) -> Result<Planning> {
        self.with_question(|question, computing, format| {
            let (found, elapsed) = self.timed(question)?;
            before(question, &found.best[0])?;
            self.show(question, computing, &found, elapsed, format)?;
            Ok(Planning { every_layout_has_a_price: found.unpriced.is_empty(), best_is_trusted: is_trusted(&found) })
        })
    }

    /// Reads the files that the flags name, and hands over the question.
    fn with_question<T>(&self, use_it: impl FnOnce(&Question, &Computing, PlanFormat) -> Result<T>) -> Result<T> {
        let inputs = self.rates.files().into_iter().chain(self.configurations.as_deref());
        let format = self.shown.check(&inputs.collect::<Vec<_>>())?;
        let model = Model::load(&self.question.model)?;
        report_resolved_file(Shipped::Model, Path::new(&self.question.model));
        let asked: Vec<&Only> = self.only.iter().chain(self.explain.iter().flatten()).collect();
        let PlannedTraining { bases, global_batch } = self.question.training(&model, &self.training, &asked)?;
        let source = self.rates.read()?;
        let rates = source.rates();
        let computing = self.computing.run_by(self.training.framework).read(
            bases.first.activation_element_type,
            &model,
            source.machine(),
            Some(&source.calls(rates.as_ref(), self.question.ranks_per_node)?),
        )?;
        let question = Question {
            model: &model,
            bases,
            global_batch,
            gpus: self.question.gpus.first().copied().unwrap_or(1),
            ranks_per_node: source.ranks_per_node(self.question.ranks_per_node)?,
            gpu_memory: self.question.gpu_memory,
            compute: &computing.compute,
            rates: rates.as_ref(),
            only: self.only.clone().unwrap_or_default(),
            wanted: self.top as usize,
        };
        use_it(&question, &computing, format)
    }

    fn answer(&self, question: &Question, computing: &Computing, format: PlanFormat) -> Result<i32> {
        if let Some([first, second]) = self.explain.as_deref() {
            let of = |only: &Only| Question { only: only.clone(), wanted: 1, ..question.clone() };
            return self.explain(&of(first), &of(second), computing, format);
        }
        let (found, elapsed) = self.timed(question)?;
        self.show(question, computing, &found, elapsed, format)?;
        Ok(if is_trusted(&found) || self.allow_untrusted { 0 } else { NOT_SURE })
    }

    /// What was found, at least one layout, and how long it took.
    fn timed(&self, question: &Question) -> Result<(Found, Duration)> {
        let started = Instant::now();
        let found = self.found(question)?;
        self.check_found(question, &found)?;
        Ok((found, started.elapsed()))
    }

    fn show(
        &self,
        question: &Question,
        computing: &Computing,
        found: &Found,
        elapsed: Duration,
        format: PlanFormat,
    ) -> Result<()> {
        let started = Instant::now();
        let probability = match found.best.as_slice() {
            [first, second, ..] => probability_faster(question, &first.layout, &second.layout)?,
            _ => None,
        };
        let elapsed = (elapsed + started.elapsed()).as_secs_f64();
        let mut document = PlanDocument::new(question, found, computing.ground.clone(), elapsed, probability);
        document.synthetic |= computing.synthetic;
        document.not_validated = computing.not_validated.clone();
        document.notes = self.notes(question, found, computing)?;
        if self.question.gpus.len() > 1 {
            document.gpus_compared = self.question.gpus.clone();
        }
        if self.what_if {
            document.what_if = what_if(question, &found.best[0]);
        }
        self.shown.to.write(&match format {
            PlanFormat::Table => text(&document, self.shown.to.columns()),
            PlanFormat::Json => json(&document)?,
            PlanFormat::Csv => csv(&document)?,
            PlanFormat::Html => plan_page(&document)?,
        })?;
        if format == PlanFormat::Csv && (document.synthetic || !document.calibrated) {
            eprintln!("{}", if document.synthetic { "SYNTHETIC: no real time passed" } else { "NOT CALIBRATED" });
        }
        Ok(())
    }

    /// The layouts of a search, of a list or of a file.
    fn found(&self, question: &Question) -> Result<Found> {
        if let Some(path) = &self.configurations {
            return configurations::priced(question, path);
        }
        if self.pareto {
            let of = |gpus: &u32| pareto(&Question { gpus: *gpus, ..question.clone() });
            let mut all: Vec<Found> = self.question.gpus.iter().map(of).collect();
            let mut found = all.remove(0);
            all.into_iter().for_each(|other| found.add(other));
            found.best = not_beaten(found.best);
            return Ok(found);
        }
        match self.question.gpus.len() {
            1 => Ok(search(question)),
            several => {
                Err(Error::usage(format!("--gpus: found {several} numbers; accepted: one, or several with --pareto")))
            }
        }
    }

    fn explain(&self, first: &Question, second: &Question, computing: &Computing, format: PlanFormat) -> Result<i32> {
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
        self.shown.to.write(&match format {
            PlanFormat::Table => mark.to_owned() + &explain_text(&comparison, self.shown.to.columns()),
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
        if found.best.is_empty() { Err(Error::usage(none_found(question, found))) } else { Ok(()) }
    }

    fn notes(&self, question: &Question, found: &Found, computing: &Computing) -> Result<Vec<String>> {
        let hidden = question.rates.hidden().and_then(Hidden::describe);
        let mut notes = vec![hidden.unwrap_or_else(|| NO_HIDDEN_DATA.to_owned())];
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
