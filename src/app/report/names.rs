//! Names that files and flags take, one line each: collected from the enums and their documentation, the shipped files, and the
//! definitions of the programs.

use super::template::prose;
use clap::ValueEnum;
use clap::builder::PossibleValue;
use commgauge_base::collective::Collective;
use commgauge_base::writing::grouped;
use commgauge_model::config::step::{STEP_FLAGS, ScheduleKind, StepFlag, Work};
use commgauge_model::config::{LayoutTable, Machine, Model, Place, Shipped, Suite, read_text};
use commgauge_model::layout::Axis;
use commgauge_model::workload::Style;
use minijinja::context;
use minijinja::value::Serde;
use schemars::JsonSchema;
use serde::Serialize;
use std::path::Path;

/// A kind of things that have names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Communication calls, as in `collectives` of a [[sweep]]
    Collectives,
    /// Dimensions of a layout, whose groups communicate
    Axes,
    /// Parallel styles, as in `styles` of a [[layout]]
    Styles,
    /// Pipeline schedules, as in `schedule` of [training]
    Schedules,
    /// Keys of [training] and [serving], each with its flag
    Keys,
    /// Shipped suites, for `commgauge run`
    Suites,
    /// Shipped models, for --model and `preset`
    Models,
    /// Shipped machine files, for --machine
    Machines,
    /// Formats that are written and read, and by which commands
    Formats,
    /// Backends that execute calls, for --backend
    Backends,
}

/// Name of the format.
pub const FORMAT: &str = "commgauge-list";

/// Incremented when a field is removed or changes its meaning.
pub const VERSION: u32 = 1;

/// What there is. A kind that was not requested is absent; without a question all are there.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct ListDocument {
    /// Always `commgauge-list`.
    pub format: String,
    /// Version of the format.
    pub version: u32,
    /// Communication calls.
    pub collectives: Option<Vec<Named>>,
    /// Dimensions of a layout.
    pub axes: Option<Vec<Named>>,
    /// Parallel styles.
    pub styles: Option<Vec<Named>>,
    /// Pipeline schedules.
    pub schedules: Option<Vec<Named>>,
    /// Keys of a step.
    pub keys: Option<Vec<KeyFacts>>,
    /// Shipped suites.
    pub suites: Option<Vec<SuiteFacts>>,
    /// Shipped models.
    pub models: Option<Vec<ModelFacts>>,
    /// Shipped machine files.
    pub machines: Option<Vec<MachineFacts>>,
    /// Formats.
    pub formats: Option<Vec<FormatFacts>>,
    /// Backends.
    pub backends: Option<Vec<Named>>,
}

impl ListDocument {
    /// The entries of a kind, or of all kinds; formats and backends are those of the flags of these programs.
    pub fn of(kind: Option<Kind>, programs: &[clap::Command]) -> ListDocument {
        let wanted = |this: Kind| kind.is_none_or(|kind| kind == this);
        ListDocument {
            format: FORMAT.to_owned(),
            version: VERSION,
            collectives: wanted(Kind::Collectives)
                .then(|| described::<Collective>(Collective::ALL.map(Collective::name))),
            axes: wanted(Kind::Axes).then(|| described::<Axis>(Axis::ALL.map(Axis::name))),
            styles: wanted(Kind::Styles).then(|| described::<Style>(Style::OF_A_STEP.map(Style::name))),
            schedules: wanted(Kind::Schedules)
                .then(|| described::<ScheduleKind>(ScheduleKind::ALL.iter().map(|kind| kind.name()))),
            keys: wanted(Kind::Keys).then(keys),
            suites: wanted(Kind::Suites).then(|| Shipped::Suite.names().into_iter().map(suite).collect()),
            models: wanted(Kind::Models).then(|| Shipped::Model.names().into_iter().map(model).collect()),
            machines: wanted(Kind::Machines)
                .then(|| Shipped::Machine.names().into_iter().filter_map(machine).collect()),
            formats: wanted(Kind::Formats).then(|| formats(programs)),
            backends: wanted(Kind::Backends).then(|| backends(programs)),
        }
    }
}

/// The table of a kind for a terminal of this width, or the number of names of each kind.
pub fn text(document: &ListDocument, kind: Option<Kind>, width: u16) -> String {
    let kinds = Kind::value_variants().iter().filter_map(Kind::to_possible_value);
    let kinds: Vec<_> =
        kinds.map(|kind| (kind.get_name().to_owned(), kind.get_help().map(ToString::to_string))).collect();
    let formats = document.formats.iter().flatten();
    let formats = formats.flat_map(|format| format.commands.iter().map(|command| (command, format.name.as_str())));
    let context =
        context! { width, kind => Serde(kind), kinds, commands => Serde(grouped(formats)), lists => Serde(document) };
    prose("names.txt", include_str!("templates/names.txt"), context)
}

/// A name and what it means.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Named {
    /// As files and flags have it.
    pub name: String,
    /// In one sentence.
    pub description: String,
}

/// A key of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct KeyFacts {
    /// As the table has it.
    pub name: String,
    /// The tables that have it.
    pub tables: Vec<String>,
    /// The flag that sets it.
    pub flag: String,
    /// What it means, for the flag: one that begins with `--no-` says the opposite of the key.
    pub description: String,
}

/// A suite.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct SuiteFacts {
    /// For `commgauge run`.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// The file that the name means; one that begins with `embedded:` is within the program itself.
    pub file: String,
    /// The number of ranks that it needs; absent where several will do.
    pub ranks: Option<u64>,
    /// Where several will do: the ranks must be a multiple of this.
    pub ranks_multiple_of: Option<u64>,
    /// Why the file cannot be used, where it cannot.
    pub problem: Option<String>,
}

/// A model.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct ModelFacts {
    /// For --model, and for `preset` in suites.
    pub name: String,
    /// Shape in one sentence.
    pub description: String,
    /// The file that the name means; one that begins with `embedded:` is within the program itself.
    pub file: String,
    /// Parameters.
    pub parameters: u64,
    /// Parameters that one token meets: fewer where experts are chosen.
    pub parameters_active: u64,
    /// Layers.
    pub layers: u32,
    /// Why the file cannot be used, where it cannot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// A machine file.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct MachineFacts {
    /// For --machine.
    pub name: String,
    /// How the file introduces itself.
    pub description: String,
    /// The file that the name means; one that begins with `embedded:` is within the program itself.
    pub file: String,
    /// Ranks on each node.
    pub ranks_per_node: u32,
    /// What one rank can send within its node.
    pub within_node_bytes_per_second: f64,
    /// What the adapters of a node can send together.
    pub between_nodes_bytes_per_second: f64,
    /// How many calls it says what to expect of.
    pub expectations: u32,
    /// True where a link rate is a guess for rehearsals, which bounds nothing.
    pub assumed: bool,
    /// True where something is broken on purpose: such a machine is only simulated.
    pub has_faults: bool,
    /// True where only imported logs of other tools can be judged.
    pub imported_only: bool,
    /// Why the file cannot be used, where it cannot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// A format, with the commands that know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FormatFacts {
    /// As the flag takes it.
    pub name: String,
    /// Program and command, and the flag.
    pub commands: Vec<String>,
    /// In one sentence, where the name does not say it.
    pub description: String,
}

// Collects the entries of the list: from the enums and their documentation, the shipped files, and the definitions of
// the programs.

/// Flags whose values are formats.
const FORMAT_FLAGS: [&str; 3] = ["format", "from", "to"];

fn keys() -> Vec<KeyFacts> {
    let facts = |flag: &StepFlag| KeyFacts {
        name: flag.key.to_owned(),
        tables: flag.takes.iter().map(|work| table_of(*work).to_owned()).collect(),
        flag: flag.flag.clone(),
        description: flag.help.clone(),
    };
    STEP_FLAGS.iter().map(facts).collect()
}

fn table_of(work: Work) -> &'static str {
    match work {
        Work::Training => "training",
        Work::Serving => "serving",
    }
}

/// Names with the documentation of the type, as contained in its schema.
fn described<T: JsonSchema>(names: impl IntoIterator<Item = &'static str>) -> Vec<Named> {
    let schema = schemars::schema_for!(T).to_value();
    let members = schema["oneOf"].as_array().cloned().unwrap_or_default();
    let description = |name: &str| -> String {
        let member = members.iter().find(|member| member["const"] == name);
        let text = member.and_then(|member| member["description"].as_str()).unwrap_or_default();
        one_line(text)
    };
    names.into_iter().map(|name| Named { name: name.to_owned(), description: description(name) }).collect()
}

fn backends(programs: &[clap::Command]) -> Vec<Named> {
    let flags = programs.iter().flat_map(clap::Command::get_subcommands).flat_map(clap::Command::get_arguments);
    let values = flags.filter(|flag| flag.get_long() == Some("backend")).map(clap::Arg::get_possible_values).next();
    let named = |value: PossibleValue| Named { name: value.get_name().to_owned(), description: help_of(&value) };
    values.into_iter().flatten().map(named).collect()
}

fn suite(name: String) -> SuiteFacts {
    let file = file_of(Shipped::Suite, &name);
    match Suite::load(Path::new(&name)) {
        Ok(suite) => {
            let (ranks, ranks_multiple_of) = ranks_of(&suite);
            SuiteFacts { name, description: suite.description, file, ranks, ranks_multiple_of, problem: None }
        }
        Err(error) => SuiteFacts { name, file, problem: Some(error.to_string()), ..SuiteFacts::default() },
    }
}

/// The file of a name: a path, or that of an embedded file.
fn file_of(kind: Shipped, name: &str) -> String {
    kind.find(Path::new(name)).map(|file| file.display().to_string()).unwrap_or_default()
}

/// The number of ranks that the layouts require, or the number that it must be a multiple of.
fn ranks_of(suite: &Suite) -> (Option<u64>, Option<u64>) {
    if let Some(ranks) = suite.layouts.iter().find_map(whole_layout) {
        return (Some(ranks), None);
    }
    let each = suite.layouts.iter().flat_map(|layout| {
        let dense = u64::from(layout.tp) * u64::from(layout.cp) * u64::from(layout.pp);
        let experts = u64::from(layout.etp.unwrap_or(layout.tp)) * u64::from(layout.ep) * u64::from(layout.pp);
        [dense, if layout.ep > 1 { experts } else { 1 }]
    });
    (None, Some(each.fold(1, least_common_multiple)))
}

fn whole_layout(layout: &LayoutTable) -> Option<u64> {
    let dp = u64::from(layout.dp?);
    [layout.cp, layout.pp]
        .into_iter()
        .try_fold(dp * u64::from(layout.tp), |ranks, degree| ranks.checked_mul(degree.into()))
}

fn least_common_multiple(one: u64, other: u64) -> u64 {
    let (mut a, mut b) = (one, other);
    while b > 0 {
        (a, b) = (b, a % b);
    }
    (one / a.max(1)).saturating_mul(other)
}

fn model(name: String) -> ModelFacts {
    let file = file_of(Shipped::Model, &name);
    match Model::load(&name) {
        Ok(model) => {
            let experts = model.mixture.as_ref().map_or(String::new(), |mixture| {
                format!(", {} of {} experts", mixture.experts_per_token, mixture.experts)
            });
            ModelFacts {
                name,
                file,
                description: format!("{}, hidden size {}{experts}", model.family.model_type, model.hidden),
                parameters: model.parameters(),
                parameters_active: model.parameters_active(),
                layers: model.layers,
                problem: None,
            }
        }
        Err(error) => ModelFacts { name, file, problem: Some(error.to_string()), ..ModelFacts::default() },
    }
}

fn machine(name: String) -> Option<MachineFacts> {
    let path = Shipped::Machine.find(Path::new(&name))?;
    let file = path.display().to_string();
    Some(match Machine::load(&path) {
        Ok(machine) => MachineFacts {
            description: opening(&path),
            ranks_per_node: machine.ranks_per_node,
            within_node_bytes_per_second: machine.within_node.rate.0,
            between_nodes_bytes_per_second: machine.between_nodes.rate_per_adapter.0
                * f64::from(machine.between_nodes.adapters_per_node),
            expectations: machine.thresholds() as u32,
            assumed: machine.within_node.assumed || machine.between_nodes.assumed,
            has_faults: !machine.faults.is_empty(),
            imported_only: machine.judged_runs.as_ref().is_some_and(|runs| runs.imported_only),
            name,
            file,
            problem: None,
        },
        Err(error) => MachineFacts { name, file, problem: Some(error.to_string()), ..MachineFacts::default() },
    })
}

/// The first sentence of the comment at the beginning of a file.
fn opening(path: &Path) -> String {
    let text = read_text(path, &Place::flag("--machine")).unwrap_or_default();
    let comment = text.lines().map_while(|line| line.strip_prefix('#'));
    let paragraph: Vec<&str> = comment.map(str::trim).take_while(|line| !line.is_empty()).collect();
    one_line(&paragraph.join(" "))
}

/// The first sentence of a text.
fn one_line(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    text.split_once(". ").map_or(text.trim_end_matches('.').to_owned(), |(first, _)| first.to_owned())
}

/// Every value of a format flag, of every command of every program. The launched programs share one set of them; a part of a
/// command is named only where its formats are not those of the command.
fn formats(programs: &[clap::Command]) -> Vec<FormatFacts> {
    let mut found: Vec<FormatFacts> = Vec::new();
    for definition in programs {
        add_formats(definition, definition.get_name(), &[], &mut found);
    }
    found
}

fn add_formats(command: &clap::Command, name: &str, above: &[PossibleValue], found: &mut Vec<FormatFacts>) {
    let mut own = Vec::new();
    for flag in command.get_arguments().filter(|flag| flag.get_long().is_some_and(|long| FORMAT_FLAGS.contains(&long)))
    {
        let place = format!("{name} --{}", flag.get_long().unwrap_or_default());
        let values = flag.get_possible_values();
        if values == above {
            continue;
        }
        for value in &values {
            let description = help_of(value);
            let same =
                found.iter_mut().find(|known| known.name == value.get_name() && known.description == description);
            match same {
                Some(known) => known.commands.push(place.clone()),
                None => found.push(FormatFacts {
                    name: value.get_name().to_owned(),
                    commands: vec![place.clone()],
                    description,
                }),
            }
        }
        own = values;
    }
    for part in command.get_subcommands() {
        add_formats(part, &format!("{name} {}", part.get_name()), &own, found);
    }
}

fn help_of(value: &PossibleValue) -> String {
    one_line(&value.get_help().map(ToString::to_string).unwrap_or_default())
}
