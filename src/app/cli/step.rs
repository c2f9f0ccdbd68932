//! Shared by `commgauge ops` and `commgauge-step`: a model, a layout and a step, given by flags; and the measurements
//! of `commgauge-step`, and the trace that it replays instead.

use crate::cli::layout::DegreeFlags;
use crate::cli::suite::{SuiteWork, report_resolved_file};
use crate::cli::sweep::SamplingArguments;
use clap::error::Error as ClapError;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use commgauge_base::error::{Error, Result};
use commgauge_base::sample::Cadence;
use commgauge_base::stats::MIN_FOR_INTERVAL;
use commgauge_base::units::{Seconds, counted, parse_seconds};
use commgauge_base::visible::ShownPath;
use commgauge_base::writing::eprintln;
use commgauge_base::{digest, host};
use commgauge_model::config::step::{Framework, ModelWork, Needs, STEP_FLAGS, StepFlag, Work, keys_of};
use commgauge_model::config::{
    BOTH_CADENCES, LayoutTable, Model, Place, Recipe, RunSettings, Serving, Shipped, Table, Training,
};
use commgauge_model::layout::{Axis, Degrees, Layout, LayoutDescription, MOST_RANKS};
use commgauge_model::record::line::SuiteFacts;
use commgauge_model::workload::replay::{ReplayOptions, TracedReplay};
use commgauge_model::workload::step::{Step, ranks_of};
use commgauge_model::workload::{Interference, Style, WorkPlan};
use commgauge_readers::trace::{ExpectedStep, read_traces, traced_replay};
use commgauge_run::session::{ReplayRequest, ReplaySource};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

// The flags of `commgauge-step`, and the resulting plan.

/// The calls of a step, measured op by op.
#[derive(Clone, Debug, Default, Args)]
pub struct StepArguments {
    /// The model and its step.
    #[command(flatten)]
    pub flags: StepFlags,

    /// Only these styles, a list with commas: tensor, sequence, vocabulary, data, pipeline, context, expert, control, serving
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_style, help_heading = "Measurement", hide_short_help = true)]
    style: Vec<Style>,

    /// What is timed: calls back to back (streaming), as a step costs them, each from a common start (isolated), or both
    #[arg(long, value_name = "HOW", default_value = "streaming", value_parser = ["streaming", "isolated", "both"], help_heading = "Measurement", hide_short_help = true)]
    cadence: String,

    /// Measure each call of an axis of several groups on one group alone too, and report how much slower it is next to the
    /// others; takes 6 replicates unless --replicates says otherwise
    #[arg(long, help_heading = "Measurement", hide_short_help = true)]
    solo: bool,

    /// Measure the largest calls of two axes at once too, such as tp,dp: each alone and while the other is in flight; takes 6
    /// replicates unless --replicates says otherwise
    #[arg(long, value_name = "AXES", value_delimiter = ',', num_args = 1, value_parser = parse_axis, help_heading = "Measurement", hide_short_help = true)]
    interfere: Vec<Axis>,

    /// Replay the step as a whole too: all calls in the order of the schedule, on all ranks at once
    #[arg(long, group = "replayed", help_heading = "Replay", hide_short_help = true)]
    replay: bool,

    #[command(flatten)]
    trace: TraceFiles,

    /// What the forward pass of a micro-batch through one layer would take to compute, such as 2ms; each gradient takes as long
    /// again [default: no computing]
    #[arg(long, value_name = "TIME", value_parser = parse_seconds, requires = "replay", help_heading = "Replay", hide_short_help = true)]
    forward_per_layer: Option<Seconds>,

    /// How often the step or the trace is replayed and timed
    #[arg(long, value_name = "COUNT", default_value_t = 10, requires = "replayed", value_parser = clap::value_parser!(u32).range(1..=100_000), help_heading = "Replay", hide_short_help = true)]
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
            self.trace.ensure_alone(&self.flags)?;
            let settings = self.settings();
            let facts =
                self.trace.facts(&format!("{settings:?} {:?}", self.options()), &self.flags.degrees, world_size)?;
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

    /// Whether calls of several groups of a rank are in flight at once.
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
            ReplaySource::Trace(self.trace.read(&self.flags.degrees, world_size)?)
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
        let mut table = self.flags.table(world_size)?;
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

// Reads the name of a style of a step.

/// Parses the name of a style of a model's step.
pub fn parse_style(text: &str) -> std::result::Result<Style, String> {
    Style::OF_A_STEP.into_iter().find(|style| style.name() == text).ok_or_else(|| {
        let names: Vec<_> = Style::OF_A_STEP.iter().map(|style| style.name()).collect();
        format!("accepted: {}", names.join(", "))
    })
}

// `commgauge-step --trace`: the files of a job's trace instead of a model and its step.

/// The files of a trace.
#[derive(Clone, Debug, Default, Args)]
struct TraceFiles {
    /// Replay the trace of a job instead of a model's step: files as for `commgauge trace`, one of every rank, with the degrees of the
    /// job's layout. Its calls come in their order, with its gaps of computing
    #[arg(
        long,
        value_name = "FILE",
        num_args = 1..,
        group = "replayed",
        conflicts_with_all = ["model", "style", "cadence", "solo", "interfere", "forward_per_layer", "iterations", "warm_up_iterations",
            "replicates", "precision", "budget", "warm_buffers", "start"],
        help_heading = "Replay", hide_short_help = true)]
    trace: Vec<PathBuf>,

    /// The layout of the job is that of this list of its step, from `commgauge ops --format json`: also where shards have copies, or cp
    /// and ep an inner part
    #[arg(long, value_name = "FILE", requires = "trace", help_heading = "Replay", hide_short_help = true)]
    ops: Option<PathBuf>,

    /// What was read of them.
    #[arg(skip)]
    traced: OnceLock<Arc<TracedReplay>>,
}

/// A model is needed unless there is a trace.
pub fn without_trace(model: Arg) -> Arg {
    model.required(false).required_unless_present("trace")
}

impl TraceFiles {
    /// Whether there are any.
    fn are_given(&self) -> bool {
        !self.trace.is_empty()
    }

    /// Refuses flags of a model's step.
    ///
    /// # Errors
    /// All of them, named.
    fn ensure_alone(&self, step: &StepFlags) -> Result<()> {
        let given = step.given_of_model();
        if given.is_empty() {
            return Ok(());
        }
        let list = given.join(", ");
        Err(Error::usage(format!("--trace: a trace says itself what is called, and takes no {list}; leave that out")))
    }

    /// What the ranks of the job did, on a launch of that many. Read once.
    ///
    /// # Errors
    /// Files that are no whole trace of such a launch.
    fn read(&self, degrees: &DegreeFlags, world: u32) -> Result<Arc<TracedReplay>> {
        if let Some(read) = self.traced.get() {
            return Ok(read.clone());
        }
        let layout = self.layout(degrees, world)?;
        let mut trace = read_traces(&self.trace)?;
        if let Some(layout) = &layout {
            trace.complete(layout);
        }
        let read = Arc::new(traced_replay(&trace, layout.as_ref(), world)?);
        // Calls that do not fit together are refused before anything is started.
        read.plan(|_| false)?;
        Ok(self.traced.get_or_init(|| read).clone())
    }

    /// The layout of the flags or of the list; none where neither is given.
    fn layout(&self, degrees: &DegreeFlags, world: u32) -> Result<Option<Layout>> {
        let Some(path) = &self.ops else {
            return degrees.are_given().then(|| degrees.layout(Some(world))).transpose();
        };
        if degrees.are_given() {
            return Err(Error::usage("--ops: the list says the layout; accepted: no --tp, --dp and the like with it"));
        }
        let layout = ExpectedStep::read(path)?.layout.layout()?;
        let ranks = layout.group_size(Axis::World);
        if ranks != world {
            return Err(Error::usage(format!(
                "--ops: {} is of {ranks} ranks, and this launch has {world}; accepted: a launch of {ranks} ranks",
                path.shown()
            )));
        }
        Ok(Some(layout))
    }

    /// What is replayed, for the record: its hash is over the files and the settings.
    ///
    /// # Errors
    /// As [`TraceFiles::read`].
    fn facts(&self, settings: &str, degrees: &DegreeFlags, world: u32) -> Result<SuiteFacts> {
        self.read(degrees, world)?;
        let layout = self.layout(degrees, world)?;
        let description = layout.as_ref().map(LayoutDescription::from);
        let layout = layout.map(|layout| format!("{} {}", layout.degrees.name(), layout.order_name()));
        let digests = self.trace.iter().map(|path| digest_of(path)).collect::<Result<Vec<String>>>()?;
        Ok(SuiteFacts {
            name: format!("trace of {}", counted(self.trace.len(), "file")),
            path: None,
            sha256: digest::sha256(format!("{digests:?} {description:?} {settings}")),
            model: None,
            layout,
        })
    }
}

fn digest_of(path: &Path) -> Result<String> {
    let digest = host::open(path).and_then(digest::sha256_of);
    digest.map_err(|cause| Error::usage(format!("cannot read {}: {cause}", path.shown())))
}

// Flags of a step that change nothing, as the layout or the model has not what they are about: they are accepted, since a layout may be
// varied with all else kept, and said.

/// A sentence for each thing that is not there, with the given flags that are about it.
pub(crate) fn sentences(given: &[&'static str], degrees: &Degrees, model: &Model) -> Vec<String> {
    let missing = [
        (degrees.tp == 1, Needs::TensorParallelism, "tp is 1"),
        (degrees.pp == 1, Needs::PipelineParallelism, "pp is 1"),
        (degrees.cp == 1, Needs::ContextParallelism, "cp is 1"),
        (model.mixture.is_none(), Needs::Experts, "the model has no experts"),
    ];
    let sentence = |(is_missing, what, why): (bool, Needs, &str)| {
        let is_about =
            |flag: &&str| is_missing && STEP_FLAGS.iter().any(|known| known.flag == *flag && known.needs == what);
        let flags: Vec<&str> = given.iter().copied().filter(is_about).collect();
        (!flags.is_empty()).then(|| format!("{}: has no effect because {why}", flags.join(", ")))
    };
    missing.into_iter().filter_map(sentence).collect()
}

// The flags for a model, a layout and a step. They stand for the keys of a suite's tables and are parsed by the same code, so that
// both have the same checks.

/// A model, a layout and a step.
#[derive(Clone, Debug, Default, Args)]
pub struct StepFlags {
    /// config.json or name of the model, such as llama-3-8b (`commgauge show models`)
    #[arg(long, value_name = "MODEL", required = true)]
    pub model: Option<String>,
    /// Recipe that says what the flags leave out
    ///
    /// Read are launch scripts, files of settings and command lines of servers: of Megatron-LM, NeMo, DeepSpeed, torchtitan, Accelerate, Axolotl, LLaMA-Factory, verl, vLLM and SGLang. Nothing of
    /// them is executed.
    #[arg(long, value_name = "FILE", help_heading = "Model")]
    pub from: Option<PathBuf>,
    /// Use only this many of its layers
    #[arg(long, value_name = "N", help_heading = "Model", hide_short_help = true)]
    pub layers: Option<String>,

    /// How the model is divided.
    #[command(flatten)]
    pub degrees: DegreeFlags,

    /// The keys of its step.
    #[command(flatten)]
    keys: GivenKeys,
}

impl StepFlags {
    /// The layout on that many ranks with its work, as a suite would define it.
    ///
    /// # Errors
    /// Usage errors that name the flag.
    pub fn table(&self, world: u32) -> Result<LayoutTable> {
        let recipe = self.recipe()?;
        let mut table = self.degrees.table_on(world, recipe.as_ref())?;
        let work = self.work(recipe.as_ref())?;
        let mut keys = Table::of_flags(self.keys.entries(work)?);
        recipe.inspect(|recipe| recipe.fill(&mut keys, keys_of(work)));
        let (training, serving) = match work {
            Work::Training => (Some(Training::read(keys)?), None),
            Work::Serving => (None, Some(Serving::read(keys)?)),
        };
        let mut model = self.loaded_model()?;
        if let Some(layers) = &self.layers {
            let place = Place::flag("--layers");
            let layers =
                layers.parse().map_err(|_| place.wrong(format!("found `{layers}`; accepted: a whole number")))?;
            model.keep_layers(layers).map_err(|problem| place.wrong(problem))?;
        }
        training.as_ref().map_or(Ok(()), |training| training.ensure_fits(&model))?;
        table.work = Some(Arc::new(ModelWork { model, training, serving }));
        Ok(table)
    }

    /// Hands over the only phase of the step, on the ranks that are asked for; `what` can be done to one phase at a time.
    ///
    /// # Errors
    /// As [`StepFlags::table`], and several phases.
    pub fn with_phase<T>(&self, asked: Option<u32>, what: &str, use_it: impl FnOnce(&Step) -> Result<T>) -> Result<T> {
        let ranks = self.ranks(asked)?;
        let table = self.table(ranks)?;
        match Step::all_of(&table, ranks)?.as_slice() {
            [step] => use_it(step),
            _ => Err(Error::usage(format!("--serve: one phase can be {what} at a time; accepted: prefill or decode"))),
        }
    }

    /// The model, with all its layers.
    ///
    /// # Errors
    /// No model, and those of reading it.
    pub fn loaded_model(&self) -> Result<Model> {
        Model::load(self.model.as_deref().ok_or_else(|| Place::flag("--model").wrong("is missing"))?)
    }

    /// What the recipe says that was given.
    ///
    /// # Errors
    /// Those of [`Recipe::read`], and no model.
    pub fn recipe(&self) -> Result<Option<Recipe>> {
        self.from.as_deref().map(|path| Recipe::read(path, &self.loaded_model()?)).transpose()
    }

    /// Says which file the model's name means, and what was taken from the recipe.
    pub fn report(&self) -> Result<()> {
        self.model.iter().for_each(|model| report_resolved_file(Shipped::Model, Path::new(model)));
        self.recipe()?.into_iter().for_each(|recipe| eprintln!("{}", recipe.notes));
        Ok(())
    }

    /// What is done with the model.
    fn work(&self, recipe: Option<&Recipe>) -> Result<Work> {
        match (recipe.and_then(Recipe::framework).map(Framework::work), self.keys.work()) {
            (Some(Work::Training), Work::Serving) => {
                Err(Error::usage("--serve: the recipe trains; accepted: the command line of a server, or no --serve"))
            }
            (of_recipe, of_flags) => Ok(of_recipe.unwrap_or(of_flags)),
        }
    }

    /// The ranks that --ranks asks for, else those that the degrees or the recipe need; dp is 1 if it is left out.
    ///
    /// # Errors
    /// If there are more ranks than on any machine.
    pub fn ranks(&self, asked: Option<u32>) -> Result<u32> {
        match asked {
            Some(ranks) if (1..=MOST_RANKS).contains(&ranks) => return Ok(ranks),
            Some(ranks) => return Err(Error::usage(format!("--ranks: found {ranks}; accepted: 1 to {MOST_RANKS}"))),
            None => {}
        }
        let recipe = self.recipe()?;
        let mut table = self.degrees.table(recipe.as_ref())?;
        if let Some(ranks) = recipe.filter(|_| table.dp.is_none()).map(|recipe| recipe.ranks()).transpose()?.flatten() {
            return Ok(ranks);
        }
        table.dp = table.dp.or(Some(1));
        ranks_of(&table).map(|ranks| ranks.unwrap_or(1))
    }

    /// The given flags of a model and its step; those of the layout are not among them.
    pub(crate) fn given_of_model(&self) -> Vec<&'static str> {
        let given = [self.model.is_some(), self.layers.is_some(), self.from.is_some()];
        let of_model = ["--model", "--layers", "--from"].into_iter().zip(given);
        of_model.filter_map(|(flag, is_given)| is_given.then_some(flag)).chain(self.keys.flags()).collect()
    }
}

// The flags that stand for keys of a suite's `[training]` and `[serving]`, made from the list of the keys.
//
// A flag that the work at hand does not take is refused: it would change nothing.

/// The flags that were given.
#[derive(Clone, Debug, Default)]
struct GivenKeys {
    given: Vec<GivenKey>,
}

#[derive(Clone, Debug)]
struct GivenKey {
    flag: &'static StepFlag,
    text: String,
}

impl GivenKeys {
    /// What is done with the model.
    fn work(&self) -> Work {
        let serves = self.given.iter().any(|given| given.flag.key == "phases");
        if serves { Work::Serving } else { Work::Training }
    }

    /// The given flags, for messages.
    fn flags(&self) -> impl Iterator<Item = &'static str> {
        self.given.iter().map(|given| given.flag.flag.as_str())
    }

    /// The given flags with their keys and values.
    ///
    /// # Errors
    /// Flags that this work does not take, all of them named.
    fn entries(&self, work: Work) -> Result<Vec<(&'static str, &'static str, String)>> {
        let unused: Vec<&str> = self
            .given
            .iter()
            .map(|given| given.flag)
            .filter(|flag| !flag.takes.contains(&work))
            .map(|flag| &*flag.flag)
            .collect();
        let list = unused.join(", ");
        match (unused.is_empty(), work) {
            (true, _) => {
                let entry = |GivenKey { flag, text }: &GivenKey| (&*flag.flag, flag.key, flag.turned(text).to_owned());
                Ok(self.given.iter().map(entry).collect())
            }
            (false, Work::Serving) => {
                Err(Error::usage(format!("--serve: a model that serves takes no {list}; leave that out")))
            }
            (false, Work::Training) => {
                Err(Error::usage(format!("{list}: for a model that serves; accepted: with --serve")))
            }
        }
    }
}

impl Args for GivenKeys {
    fn augment_args(command: Command) -> Command {
        STEP_FLAGS.iter().map(argument).fold(command, Command::arg)
    }

    fn augment_args_for_update(command: Command) -> Command {
        GivenKeys::augment_args(command)
    }
}

impl FromArgMatches for GivenKeys {
    fn from_arg_matches(matches: &ArgMatches) -> std::result::Result<GivenKeys, ClapError> {
        let given = |flag: &'static StepFlag| {
            let text = matches.get_one::<String>(&flag.flag)?.clone();
            Some(GivenKey { flag, text })
        };
        Ok(GivenKeys { given: STEP_FLAGS.iter().filter_map(given).collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> std::result::Result<(), ClapError> {
        *self = GivenKeys::from_arg_matches(matches)?;
        Ok(())
    }
}

fn argument(flag: &'static StepFlag) -> Arg {
    let argument = Arg::new(flag.flag.as_str()).long(flag.flag.trim_start_matches("--")).help(flag.help.as_str());
    let argument = argument.help_heading(flag.heading).hide_short_help(!flag.is_common);
    let argument = flag.alias.into_iter().fold(argument, Arg::visible_alias);
    match &flag.value_name {
        Some(name) => argument.value_name(name.as_str()),
        None => argument.value_name("true|false").num_args(0..=1).require_equals(true).default_missing_value("true"),
    }
}
