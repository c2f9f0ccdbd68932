//! `commgauge plan`: divides the machines among the parallelisms, based on a fit or on published rates. Needs no
//! launch.

use super::WithParts;
use super::computing::{Computing, ComputingFlags, RatesFlags, used_of_each_domain};
use super::output::FormattedOutput;
use super::suite::report_resolved_file;
use super::validate::ValidateCommand;
use crate::report::plan::{csv, details_text, explain_text, table_text};
use crate::report::{plan_page, pretty_json};
use commgauge_base::error::{Error, Result};
use commgauge_base::units::Bytes;
use commgauge_base::writing::eprintln;
use commgauge_model::config::step::{DataStyle, Framework, Work, keys_of, parse_order};
use commgauge_model::config::{Model, Recipe, Shipped, Table, Training, likely_key};
use commgauge_model::layout::{Axis, MOST_RANKS};
use commgauge_plan::planner::plan_document::{Comparison, PlanDocument, PlannedLayout};
use commgauge_plan::planner::rates::Hidden;
use commgauge_plan::planner::search::{
    Bases, CHOSEN_KEYS, Found, Only, Priced, Question, Results, families, not_beaten, pareto, probabilities_faster,
    search, what_if,
};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Note for a fit without overlap coefficients.
const NO_HIDDEN_DATA: &str =
    "No overlap slowdown measured; calls that computing or other calls hide are priced without it.";

/// Find the fastest way to divide a model over GPUs: every legal layout that fits into memory
///
/// commgauge plan --fit fit.json --model llama-3-70b --gpus 64 --gpu-memory 80GB --global-batch 512 --sequence 8192 --ranks-per-node 8
///
/// Prints the best layouts with what their step is made of, what limits each, and how sure their order is. Ends with 3 where the
/// best one rests on curves that predict their own sizes badly.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct PlanCommand {
    #[command(flatten)]
    pub(super) question: QuestionFlags,

    #[command(flatten)]
    pub(super) rates: RatesFlags,

    #[command(flatten)]
    pub(super) computing: ComputingFlags,

    #[command(flatten)]
    pub(super) training: TrainingFlags,

    /// Only layouts with these, such as tp=4|8,pp=8; where none of them fits into memory, they are priced all the same. Further keys:
    /// dp=1,micro_batch=1,zero_stage=0|1,recompute=none,order=tp-pp-dp
    #[arg(long, value_name = "LIST", value_parser = parse, conflicts_with = "explain")]
    pub(super) only: Option<Only>,

    /// Compare the best of two sets of layouts: line by line, each written as for --only
    #[arg(long, num_args = 2, value_names = ["A", "B"], value_parser = parse)]
    pub(super) explain: Option<Vec<Only>>,

    /// List the layouts that no other beats in time, memory and GPUs alike
    #[arg(long, conflicts_with = "explain", hide_short_help = true)]
    pub(super) pareto: bool,

    /// Say what machines would choose whose links are slower or faster, or whose memory is smaller or larger
    #[arg(long, conflicts_with = "explain", hide_short_help = true)]
    pub(super) what_if: bool,

    /// End with 0 also where the best layout rests on curves whose held-out error is over 10 %
    #[arg(long, hide_short_help = true)]
    pub(super) allow_untrusted: bool,

    /// Number of families to show
    ///
    /// Each with the plainest of its layouts that are as fast.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1000), hide_short_help = true)]
    pub(super) top: u32,

    /// Also show what the step and the memory of the best layout are made of, and what was left out
    #[arg(long, hide_short_help = true)]
    pub(super) details: bool,

    /// How it is shown.
    #[command(flatten)]
    pub(super) shown: FormattedOutput<PlanFormat>,
}

/// `plan` and its part.
pub type Plan = WithParts<PlanCommand, PlanPart>;

/// How good plans are.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum PlanPart {
    /// Predict published runs or your own, and show the errors
    Validate(ValidateCommand),
}

impl Plan {
    /// Plans, or validates the model that plans.
    pub fn execute(&self) -> Result<i32> {
        match self {
            WithParts::Itself(plan) => plan.execute(),
            WithParts::Part(PlanPart::Validate(validate)) => validate.execute(),
        }
    }
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

/// Layouts that are compared with the best.
const COMPARED: usize = 4;

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
        let (question, training) = self.question.with_recipe(&self.training)?;
        let plan = PlanCommand { question, training, ..self.clone() };
        plan.with_question(|question, computing, format| plan.answer(question, computing, format))
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
        let format = self.shown.check(&self.rates.files())?;
        let model = Model::load(&self.question.model)?;
        report_resolved_file(Shipped::Model, Path::new(&self.question.model));
        let asked: Vec<&Only> = self.only.iter().chain(self.explain.iter().flatten()).collect();
        let PlannedTraining { bases, global_batch } = self.question.training(&model, &self.training, &asked)?;
        let source = self.rates.read()?;
        let rates = source.rates(None);
        let mut computing = self.computing.run_by(self.training.framework).read(
            bases.first.activation_element_type,
            &model,
            source.machine(),
            Some(&source.calls(rates.as_ref(), self.question.ranks_per_node)?),
        )?;
        let gpus = self.question.gpus.first().copied().unwrap_or(1);
        let mut ranks_per_node = source.ranks_per_node(self.question.ranks_per_node)?;
        if self.question.ranks_per_node.is_none() && self.question.gpus.len() == 1 {
            let (used, sentence) = used_of_each_domain(ranks_per_node, gpus);
            ranks_per_node = used;
            computing.notes.extend(sentence);
        }
        let question = Question {
            model: &model,
            bases,
            global_batch,
            gpus,
            ranks_per_node,
            gpu_memory: self.question.gpu_memory,
            compute: &computing.compute,
            rates: rates.as_ref(),
            only: self.only.clone().unwrap_or_default(),
            wanted: self.top as usize,
            results: Results::Layouts,
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
        let probabilities = match found.best.as_slice() {
            [first, others @ ..] if !others.is_empty() => {
                let others: Vec<_> = others.iter().take(COMPARED).map(|other| &other.layout).collect();
                probabilities_faster(question, &first.layout, &others)?
            }
            _ => Vec::new(),
        };
        let elapsed = (elapsed + started.elapsed()).as_secs_f64();
        let mut document = PlanDocument::new(question, found, computing.ground.clone(), elapsed, &probabilities);
        document.synthetic |= computing.synthetic;
        document.not_validated = computing.not_validated.clone();
        document.notes = self.notes(question, found, computing)?;
        document.measured_by = Some(self.question.measured_by(question)).filter(|_| !document.rivals.is_empty());
        if self.question.gpus.len() > 1 {
            document.gpus_compared = self.question.gpus.clone();
        }
        if self.what_if {
            document.what_if = what_if(question, &found.best[0]);
        }
        self.shown.write(&match format {
            PlanFormat::Table if self.details => details_text(&document, self.shown.to.columns()),
            PlanFormat::Table => table_text(&document, self.shown.to.columns()),
            PlanFormat::Json => pretty_json(&document)?,
            PlanFormat::Csv => csv(&document)?,
            PlanFormat::Html => plan_page(&document)?,
        })?;
        if format == PlanFormat::Csv && (document.synthetic || !document.calibrated) {
            eprintln!("{}", if document.synthetic { "SYNTHETIC: no real time passed" } else { "NOT CALIBRATED" });
        }
        Ok(())
    }

    /// The layouts of a search or of a list.
    fn found(&self, question: &Question) -> Result<Found> {
        if self.pareto {
            let of = |gpus: &u32| pareto(&Question { gpus: *gpus, ..question.clone() });
            let mut all: Vec<Found> = self.question.gpus.iter().map(of).collect();
            let mut found = all.remove(0);
            all.into_iter().for_each(|other| found.add(other));
            found.best = not_beaten(found.best);
            return Ok(found);
        }
        match self.question.gpus.len() {
            1 => Ok(families(question)),
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
        let probability = probabilities_faster(first, &a.layout, &[&b.layout])?.into_iter().next().flatten();
        let comparison = Comparison::new(PlannedLayout::of(&a), PlannedLayout::of(&b), probability);
        let rates = first.rates;
        let mark = match (rates.synthetic() || computing.synthetic, rates.calibrated()) {
            (true, _) => "SYNTHETIC: times come from records without real times\n\n",
            (_, false) => "NOT CALIBRATED: times of calls come from published rates, not from measurements\n\n",
            _ => "",
        };
        self.shown.write(&match format {
            PlanFormat::Table => mark.to_owned() + &explain_text(&comparison, self.shown.to.columns()),
            PlanFormat::Json => pretty_json(&comparison)?,
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
        // Published rates say elsewhere that they are not calibrated.
        let unknown = question.rates.calibrated().then(|| NO_HIDDEN_DATA.to_owned());
        let mut notes: Vec<String> = hidden.or(unknown).into_iter().collect();
        notes.extend(computing.notes.iter().cloned().chain(question.bases.left_out()));
        if let Some(best) = found.best.first() {
            notes.extend(computing.own_shapes(&question.products(&best.layout)?));
        }
        Ok(notes)
    }
}

// Why no layout was found, and what to do about it.

/// The reason as a sentence.
fn none_found(question: &Question, found: &Found) -> String {
    if found.considered == 0 {
        return none_legal(question, found);
    }
    if !found.unpriced.is_empty() {
        return none_priced(question, found);
    }
    let Some(nearest) = &found.nearest else { return "there is no layout".to_owned() };
    let (needs, has) = (nearest.memory.low.0, question.gpu_memory.0);
    format!(
        "none of {} layouts fits into {:.1} GB: the nearest is {}, ZeRO {}, micro-batch {}, recompute {}, which needs at least \
         {:.1} GB, \
         {:.1} GB too much; take more GPUs, a shorter sequence or a smaller batch, or price it with --only",
        found.considered,
        has as f64 / 1e9,
        nearest.degrees.name(),
        nearest.zero_stage,
        nearest.micro_batch,
        nearest.recompute,
        needs as f64 / 1e9,
        needs.saturating_sub(has) as f64 / 1e9,
    )
}

fn none_legal(question: &Question, found: &Found) -> String {
    let rules: Vec<String> = found.illegal.iter().map(|(rule, count)| format!("{rule} ({count})")).collect();
    let zero = &question.only.zero_stage;
    let shares = !zero.is_empty() && !zero.contains(&0);
    let why = match (rules.is_empty(), shares) {
        (false, _) => format!("degrees that break a rule: {}", rules.join("; ")),
        (true, true) => {
            "degrees must multiply to the GPUs, and ZeRO stages above 0 need several replicas (dp or cp above 1)"
                .to_owned()
        }
        (true, false) => "no degrees multiply to the GPUs".to_owned(),
    };
    let why = Some(why).filter(|_| !rules.is_empty() || found.refused.is_none());
    let why = why.into_iter().chain(found.refused.clone()).collect::<Vec<_>>().join("; ");
    let among = if question.only.is_anything() { " among those that are asked for" } else { "" };
    format!("no layout of {} on {} GPUs is legal{among}; {why}", question.model.shown_name(), question.gpus)
}

fn none_priced(question: &Question, found: &Found) -> String {
    let reasons = found.unpriced.iter().take(8).map(|(reason, count)| format!("{reason} ({count} layouts)"));
    let hint = match question.rates.calibrated() {
        true => "; measure what is missing, or name --machine FILE too for published rates",
        false => "",
    };
    let reasons = reasons.collect::<Vec<_>>().join("; ");
    format!("none of the {} layouts that fit has a price: {reasons}{hint}", found.feasible)
}

// Parses `tp=4|8,pp=8,order=tp-pp-dp`: the given part of a layout.

type Reader = fn(&mut Only, &str) -> std::result::Result<(), String>;

const KEYS: [(&str, Reader); 14] = [
    ("tp", |only, text| values(text, whole).map(|read| only.tp = read)),
    ("cp", |only, text| values(text, whole).map(|read| only.cp = read)),
    ("ep", |only, text| values(text, whole).map(|read| only.ep = read)),
    ("etp", |only, text| values(text, whole).map(|read| only.etp = read)),
    ("pp", |only, text| values(text, whole).map(|read| only.pp = read)),
    ("schedule", |only, text| values(text, str::parse).map(|read| only.schedule = read)),
    ("virtual_stages", |only, text| values(text, whole).map(|read| only.virtual_stages = read)),
    ("dp", |only, text| values(text, whole).map(|read| only.dp = read)),
    ("zero_stage", |only, text| values(text, zero_stage).map(|read| only.zero_stage = read)),
    ("micro_batch", |only, text| values(text, |one| whole(one).map(u64::from)).map(|read| only.micro_batch = read)),
    ("recompute", |only, text| values(text, str::parse).map(|read| only.recompute = read)),
    ("dispatcher", |only, text| values(text, str::parse).map(|read| only.dispatcher = read)),
    ("overlap_exchange", |only, text| values(text, truth).map(|read| only.overlap_exchange = read)),
    ("order", |only, text| values(text, axes).map(|read| only.order = read)),
];

/// Parses the list.
pub fn parse(text: &str) -> std::result::Result<Only, String> {
    let known = KEYS.map(|(name, _)| name);
    let mut only = Only::default();
    let mut seen: Vec<&str> = Vec::new();
    for part in text.split(',') {
        let (key, value) = part.split_once('=').ok_or_else(|| {
            format!("found `{part}`; accepted: key=value, with commas between; keys: {}", known.join(", "))
        })?;
        let (key, value) = (key.trim(), value.trim());
        if seen.contains(&key) {
            return Err(format!("names {key} twice"));
        }
        seen.push(key);
        let (_, read) = KEYS.iter().find(|(name, _)| *name == key).ok_or_else(|| {
            format!("found key `{key}`{} Known: {}", likely_key(key, known.into_iter()), known.join(", "))
        })?;
        read(&mut only, value).map_err(|problem| format!("{key}: {problem}"))?;
    }
    Ok(only)
}

/// Values with bars between, such as `0|1`.
fn values<T>(text: &str, read: impl Fn(&str) -> std::result::Result<T, String>) -> std::result::Result<Vec<T>, String> {
    text.split('|').map(|one| read(one.trim())).collect()
}

fn whole(text: &str) -> std::result::Result<u32, String> {
    let accepted = || format!("found `{text}`; accepted: a whole number from 1, or several such as 1|2");
    text.parse().ok().filter(|number| *number > 0).ok_or_else(accepted)
}

fn zero_stage(text: &str) -> std::result::Result<u8, String> {
    text.parse().ok().filter(|stage| *stage <= 3).ok_or_else(|| format!("found `{text}`; accepted: 0 to 3"))
}

fn truth(text: &str) -> std::result::Result<bool, String> {
    text.parse().map_err(|_| format!("found `{text}`; accepted: true, false"))
}

fn axes(text: &str) -> std::result::Result<Vec<Axis>, String> {
    Ok(parse_order(text)?.into_iter().filter_map(Axis::named).collect())
}

// The flags that say what is planned: a model, GPUs, a batch, and choices of the training.

/// Less is a size in another unit.
const LEAST_MEMORY: Bytes = Bytes(64 << 20);

/// What `--element-type` says.
const ELEMENT_TYPES: [&str; 2] = ["activation_element_type", "parameter_element_type"];

/// Keys that fix the dispatcher, or go with some only.
const OF_A_DISPATCHER: [&str; 5] =
    ["dispatcher", "routing", "capacity_factor", "dispatch_element_type", "expert_inner"];

/// A model, GPUs and a batch.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct QuestionFlags {
    /// config.json or name of the model, such as llama-3-8b (`commgauge show models`)
    #[arg(long, value_name = "MODEL")]
    pub model: String,

    /// Recipe that says what the flags leave out
    ///
    /// As for `commgauge ops`. Its degrees are what is planned, and not taken.
    #[arg(long, value_name = "FILE")]
    pub from: Option<PathBuf>,

    /// All GPUs; `plan --pareto` takes several numbers with commas
    #[arg(long, visible_alias = "ranks", value_name = "N", required_unless_present = "from", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_RANKS)))]
    pub gpus: Vec<u32>,

    /// GPUs of each node, neighbours in world rank [default: those of the machine file]
    #[arg(long, value_name = "N")]
    pub ranks_per_node: Option<u32>,

    /// What one GPU holds, such as 80GB
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    pub gpu_memory: Bytes,

    /// Samples of a step over all replicas
    #[arg(long, value_name = "N", required_unless_present = "from")]
    pub global_batch: Option<String>,

    /// Tokens of one sample
    #[arg(long, visible_alias = "seq", value_name = "TOKENS", required_unless_present = "from")]
    pub sequence: Option<String>,
}

/// Choices of the training.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct TrainingFlags {
    /// Type of parameters and activations, and so of the matrix products [default: bfloat16]
    #[arg(long, value_name = "TYPE", hide_short_help = true)]
    pub element_type: Option<String>,

    /// Defaults of a framework that trains: its ZeRO stages and axes, and every choice that no other flag makes
    #[arg(long, value_name = "NAME", value_parser = framework, hide_short_help = true)]
    pub framework: Option<Framework>,

    /// Choices of the training that the planner does not make, such as sequence_parallel=false or
    /// gradient_element_type=bfloat16: any other key of [training]; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = choice, hide_short_help = true)]
    pub training: Vec<TrainingChoice>,
}

fn bytes(text: &str) -> std::result::Result<Bytes, String> {
    let memory = Bytes::parse_memory(text)?;
    // Whoever leaves the unit out means GB.
    match memory < LEAST_MEMORY {
        true => {
            Err(format!("found {memory}, and a GPU has at least {LEAST_MEMORY}; accepted: with its unit, such as 80GB"))
        }
        false => Ok(memory),
    }
}

impl QuestionFlags {
    /// The command that measures the calls and products that decide between layouts, or the flag that takes a user's own step.
    fn measured_by(&self, question: &Question) -> String {
        if question.rates.calibrated() {
            return "a step of each; `--anchor STEP.csv` takes what it lasted".to_owned();
        }
        let memory = question.gpu_memory.0 / 1_000_000_000;
        let (model, global_batch, gpus) = (&self.model, question.global_batch, question.gpus);
        let sequence = question.bases.first.sequence;
        format!(
            "commgauge calibrate measure --model {model} --gpus {gpus} --gpu-memory {memory}GB --global-batch {global_batch} --sequence \
             {sequence} -- -n {gpus} --backend nccl"
        )
    }

    /// These flags and those choices, with what a recipe says where they say nothing; what it says is printed.
    ///
    /// # Errors
    /// Those of [`Recipe::read`], and no GPUs.
    pub fn with_recipe(&self, choices: &TrainingFlags) -> Result<(QuestionFlags, TrainingFlags)> {
        let (mut question, mut choices) = (self.clone(), choices.clone());
        let Some(path) = question.from.take() else { return Ok((question, choices)) };
        let recipe = Recipe::read(&path, &Model::load(&self.model)?)?;
        eprintln!("{}", recipe.notes);
        let of_recipe = |key| recipe.text(key).map(str::to_owned);
        question.sequence = question.sequence.or_else(|| of_recipe("sequence"));
        question.global_batch = question.global_batch.or_else(|| of_recipe("global_batch"));
        if question.gpus.is_empty() {
            let missing = Error::usage("--gpus is missing, and the recipe does not say it; accepted: a number");
            question.gpus.push(recipe.ranks()?.ok_or(missing)?);
        }
        choices.framework = choices.framework.or(recipe.framework());
        // What the planner chooses is no choice, it divides the layers itself, and the flag of types says both.
        let is_own =
            |key: &&str| *key == "stage_layers" || choices.element_type.is_some() && ELEMENT_TYPES.contains(key);
        let open = keys_of(Work::Training).filter(|key| choices.of(key).is_none() && !is_own(key));
        let chosen: Vec<_> = open.filter_map(|key| choice(&format!("{key}={}", recipe.text(key)?)).ok()).collect();
        choices.training.extend(chosen);
        Ok((question, choices))
    }

    /// The training that they describe, with the samples of a step over all replicas.
    ///
    /// # Errors
    /// Values that cannot be, a sequence that the model does not allow, and ZeRO stages that the framework does not have.
    pub fn training(&self, model: &Model, choices: &TrainingFlags, only: &[&Only]) -> Result<PlannedTraining> {
        let mut bases = match choices.framework {
            None => Bases::of(model, &self.read(model, choices, None)?)?,
            Some(framework) => {
                let replicated = choices.of("replicas_of_shards").is_some();
                let given = choices.of("data_style").or(replicated.then_some(DataStyle::Hsdp.name()));
                if let Some(style) = given.filter(|style| !framework.offers("data_style", style)) {
                    return Err(Error::usage(format!("--training: {framework} has no data_style {style}")));
                }
                let sharded = given.and_then(|style| style.parse().ok());
                Bases::of_framework(framework, model, sharded, |style| self.read(model, choices, Some(style)))?
            }
        };
        if model.mixture.is_some() {
            bases.choose_exchange(|key| match key {
                "dispatcher" => OF_A_DISPATCHER.iter().any(|key| choices.of(key).is_some()),
                key => choices.of(key).is_some(),
            });
        }
        let has = |stage: &u8| bases.stage(*stage).is_some();
        if let Some(stage) = only.iter().flat_map(|only| &only.zero_stage).find(|stage| !has(stage)) {
            let accepted = (0..4).filter(has).map(|stage| stage.to_string()).collect::<Vec<_>>().join(", ");
            return Err(Error::usage(match bases.reason(*stage) {
                Some(reason) => format!("zero_stage: found {stage}; accepted: {accepted}; {reason}"),
                None => format!("zero_stage: found {stage}; the framework has {accepted}"),
            }));
        }
        match bases.first.global_batch {
            Some(global_batch) => Ok(PlannedTraining { bases, global_batch }),
            None => Err(Error::usage("--global-batch is missing")),
        }
    }

    fn read(&self, model: &Model, choices: &TrainingFlags, data_style: Option<DataStyle>) -> Result<Training> {
        let sizes =
            [("--sequence", "sequence", &self.sequence), ("--global-batch", "global_batch", &self.global_batch)];
        let mut flags: Vec<_> =
            sizes.into_iter().filter_map(|(flag, key, text)| Some((flag, key, text.clone()?))).collect();
        match choices.framework {
            Some(framework) => flags.push(("--framework", "framework", framework.name().to_owned())),
            None if choices.of("sequence_parallel").is_none() => {
                flags.push(("--training", "sequence_parallel", "true".to_owned()));
            }
            None => {}
        }
        let written = choices.training.iter().filter(|choice| data_style.is_none() || choice.key != "data_style");
        flags.extend(written.map(|choice| ("--training", choice.key, choice.value.clone())));
        flags.extend(data_style.map(|style| ("--only zero_stage", "data_style", style.name().to_owned())));
        if let Some(element) = &choices.element_type {
            flags.extend(ELEMENT_TYPES.map(|key| ("--element-type", key, element.clone())));
        }
        let training = Training::read(Table::of_flags(flags))?;
        training.ensure_fits(model)?;
        Ok(training)
    }
}

impl TrainingFlags {
    /// What was given, as keys of `[training]` with their values.
    pub fn given(&self) -> impl Iterator<Item = (&'static str, String)> {
        let types = ELEMENT_TYPES.into_iter().filter_map(|key| Some((key, self.element_type.clone()?)));
        let framework = self.framework.map(|framework| ("framework", framework.name().to_owned()));
        let choices = self.training.iter().map(|choice| (choice.key, choice.value.clone()));
        types.chain(framework).chain(choices)
    }

    fn of(&self, key: &str) -> Option<&str> {
        self.training.iter().find(|choice| choice.key == key).map(|choice| choice.value.as_str())
    }
}

/// What is trained, before the planner's own choices.
pub(super) struct PlannedTraining {
    /// The choices.
    pub bases: Bases,
    /// Samples of a step over all replicas.
    pub global_batch: u64,
}

// Parses `sequence_parallel=false`: a choice of the training that the planner does not make.

/// A key of `[training]` with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TrainingChoice {
    /// The key.
    pub key: &'static str,
    /// Its value, as text.
    pub value: String,
}

/// Parses the name of a framework that trains.
fn framework(text: &str) -> std::result::Result<Framework, String> {
    let trains = |framework: &&Framework| framework.work() == Work::Training;
    let named = text.parse().ok().filter(|framework| trains(&framework));
    named.ok_or_else(|| {
        let names: Vec<&str> = Framework::ALL.iter().filter(trains).map(|framework| framework.name()).collect();
        format!("found `{text}`; accepted, as they train: {}", names.join(", "))
    })
}

/// Parses one.
fn choice(text: &str) -> std::result::Result<TrainingChoice, String> {
    let known = || keys_of(Work::Training).filter(|key| !CHOSEN_KEYS.contains(key));
    let accepted = || known().collect::<Vec<_>>().join(", ");
    let (key, value) =
        text.split_once('=').ok_or_else(|| format!("found `{text}`; accepted: key=value; keys: {}", accepted()))?;
    let (key, value) = (key.trim(), value.trim().to_owned());
    if CHOSEN_KEYS.contains(&key) {
        return Err(format!(
            "{key} is chosen by the planner or has a flag of its own (--only, --sequence, --global-batch, --framework)"
        ));
    }
    if key == "data_style" && !["zero3", "hsdp"].contains(&value.as_str()) {
        return Err(format!(
            "data_style: found `{value}`; accepted: zero3, as DeepSpeed has it, and hsdp, for --only zero_stage=3; else --only zero_stage="
        ));
    }
    match known().find(|known| *known == key) {
        Some(key) => Ok(TrainingChoice { key, value }),
        None => Err(format!("found key `{key}`{} Accepted: {}", likely_key(key, known()), accepted())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use commgauge_model::config::step::Recompute;

    #[test]
    fn invalid_choices_are_refused_with_the_valid_ones() {
        for (text, expected) in [
            ("tp", "found `tp`; accepted: key=value"),
            ("tp=0", "tp: found `0`; accepted: a whole number from 1"),
            ("tp=8,tp=4", "names tp twice"),
            ("zero_stage=4", "accepted: 0 to 3"),
            ("zero=1", "did you mean `zero_stage`?"),
            ("bogus=1", "found key `bogus`. Known: tp, cp"),
            ("recompute=half", "accepted: none, selective, full"),
            ("order=tp-dd", "found `dd`"),
        ] {
            let problem = parse(text).unwrap_err();
            assert!(problem.contains(expected), "{text}: {problem}");
        }
    }

    #[test]
    fn a_recipe_says_what_is_planned_and_a_flag_wins() {
        use clap::Parser;
        #[derive(Parser)]
        struct Flags {
            #[command(flatten)]
            question: QuestionFlags,
            #[command(flatten)]
            training: TrainingFlags,
        }
        commgauge_base::testing::enter_checkout();
        let flags = "--model llama-3-8b --gpu-memory 80GB --from tests/data/recipes/nemo-gpt.yaml --sequence 2048";
        let Flags { question, training } = Flags::parse_from(std::iter::once("plan").chain(flags.split_whitespace()));
        let (question, training) = question.with_recipe(&training).unwrap();
        assert_eq!((question.sequence.as_deref(), question.global_batch.as_deref()), (Some("2048"), Some("128")));
        assert_eq!((question.gpus, training.framework), (vec![32], Some(Framework::Megatron)));
        let given: Vec<&str> = training.training.iter().map(|choice| choice.key).collect();
        assert_eq!(given, ["sequence_parallel"]);
    }

    #[test]
    fn a_whole_layout_reads_back() {
        let only = parse("tp=8,cp=1,pp=16,dp=128,zero_stage=1,micro_batch=1,recompute=none,order=tp-cp-pp-dp").unwrap();
        assert_eq!((only.tp, only.pp, only.ep, only.zero_stage), (vec![8], vec![16], vec![], vec![1]));
        assert_eq!(only.order, [[Axis::Tp, Axis::Cp, Axis::Pp, Axis::Dp]]);
    }

    #[test]
    fn schedules_are_named_as_elsewhere() {
        use commgauge_model::config::step::ScheduleKind;
        let only = parse("schedule=zb-h1|dualpipe,etp=2").unwrap();
        assert_eq!((only.schedule, only.etp), (vec![ScheduleKind::ZbH1, ScheduleKind::DualPipe], vec![2]));
        assert!(parse("schedule=zb").unwrap_err().contains("accepted: naive, gpipe, 1f1b"));
    }

    #[test]
    fn several_values_of_a_key_are_all_accepted() {
        let only = parse("zero_stage=0|1,tp=4|8,recompute=none|full").unwrap();
        assert_eq!((only.zero_stage, only.tp), (vec![0, 1], vec![4, 8]));
        assert_eq!(only.recompute, [Recompute::None, Recompute::Full]);
        assert!(parse("tp=4|x").unwrap_err().contains("tp: found `x`"));
    }

    #[test]
    fn choices_that_are_the_planners_or_unknown_are_refused() {
        let expected = TrainingChoice { key: "sequence_parallel", value: "false".to_owned() };
        assert_eq!(choice("sequence_parallel = false"), Ok(expected));
        assert!(choice("gather_recipe=mxfp8").is_ok() && choice("expert_inner=4").is_ok());
        for (text, expected) in [
            ("sequence_parallel", "accepted: key=value"),
            ("micro_batch=2", "chosen by the planner"),
            ("micro_batches=2", "chosen by the planner"),
            ("data_style=ddp", "accepted: zero3, as DeepSpeed has it, and hsdp"),
            ("sequence_paralel=false", "did you mean `sequence_parallel`?"),
        ] {
            let problem = choice(text).unwrap_err();
            assert!(problem.contains(expected), "{text}: {problem}");
        }
    }
}
