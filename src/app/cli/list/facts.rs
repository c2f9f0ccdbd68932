//! The entries of the list: names, and what they stand for.

use crate::cli::backend_name::Backend;
use clap::ValueEnum;
use commgauge_base::collective::Collective;
use commgauge_model::config::step::{STEP_KEYS, ScheduleKind, StepKey, Work};
use commgauge_model::config::{LayoutTable, Machine, Model, Place, Shipped, Suite, read_text};
use commgauge_model::layout::Axis;
use commgauge_model::workload::Style;
use schemars::JsonSchema;
use serde::Serialize;
use std::path::Path;

/// A name and what it stands for.
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
    /// The flag that stands for it.
    pub flag: String,
    /// What it means, for the flag: one that begins with `--no-` says the opposite of the key.
    pub description: String,
}

/// A suite.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct SuiteFacts {
    /// For `commgauge run`.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// The file that the name means; one that begins with `embedded:` is within the program itself.
    pub file: String,
    /// The number of ranks that it needs; absent where several will do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ranks: Option<u64>,
    /// Where several will do: the ranks must be a multiple of this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ranks_multiple_of: Option<u64>,
    /// Why the file cannot be used, where it cannot.
    #[serde(skip_serializing_if = "Option::is_none")]
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

pub(super) fn collectives() -> Vec<Named> {
    described::<Collective>(Collective::ALL.map(Collective::name))
}

pub(super) fn axes() -> Vec<Named> {
    described::<Axis>(Axis::ALL.map(Axis::name))
}

pub(super) fn styles() -> Vec<Named> {
    described::<Style>(Style::OF_A_STEP.map(Style::name))
}

pub(super) fn schedules() -> Vec<Named> {
    described::<ScheduleKind>(ScheduleKind::ALL.iter().map(|kind| kind.name()))
}

pub(super) fn keys() -> Vec<KeyFacts> {
    let facts = |key: &StepKey| KeyFacts {
        name: key.key.to_owned(),
        tables: key.takes.iter().map(|work| table_of(*work).to_owned()).collect(),
        flag: key.flag.to_owned(),
        description: key.meaning.to_owned(),
    };
    STEP_KEYS.iter().flat_map(|group| group.keys).map(facts).collect()
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

pub(super) fn backends() -> Vec<Named> {
    let variants = Backend::value_variants().iter().filter_map(ValueEnum::to_possible_value);
    variants.map(|value| Named { name: value.get_name().to_owned(), description: help_of(&value) }).collect()
}

pub(super) fn suites() -> Vec<SuiteFacts> {
    Shipped::Suite.names().into_iter().map(suite).collect()
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

pub(super) fn models() -> Vec<ModelFacts> {
    Shipped::Model.names().into_iter().map(model).collect()
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
                description: format!("{}, hidden size {}{experts}", model.family.model_type(), model.hidden),
                parameters: model.parameters(),
                parameters_active: model.parameters_active(),
                layers: model.layers,
                problem: None,
            }
        }
        Err(error) => ModelFacts { name, file, problem: Some(error.to_string()), ..ModelFacts::default() },
    }
}

pub(super) fn machines() -> Vec<MachineFacts> {
    Shipped::Machine.names().into_iter().filter_map(machine).collect()
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

/// Every value of a format flag, of every command of every program. The launched programs share one set of them.
pub(super) fn formats(programs: &[clap::Command]) -> Vec<FormatFacts> {
    let mut found: Vec<FormatFacts> = Vec::new();
    for definition in programs {
        let name = definition.get_name().to_owned();
        add_formats(definition, &name, &mut found);
        for command in definition.get_subcommands() {
            add_formats(command, &format!("{name} {}", command.get_name()), &mut found);
        }
    }
    found
}

fn add_formats(command: &clap::Command, name: &str, found: &mut Vec<FormatFacts>) {
    for flag in command.get_arguments().filter(|flag| flag.get_long().is_some_and(|long| FORMAT_FLAGS.contains(&long)))
    {
        let place = format!("{name} --{}", flag.get_long().unwrap_or_default());
        for value in flag.get_possible_values() {
            let description = help_of(&value);
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
    }
}

fn help_of(value: &clap::builder::PossibleValue) -> String {
    one_line(&value.get_help().map(ToString::to_string).unwrap_or_default())
}
