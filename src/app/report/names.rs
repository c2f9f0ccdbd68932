//! Names that files and flags take, one line each: collected from the enums and their documentation, the shipped files, and the
//! definitions of the programs.

use super::document::{Fields, Table, TableLayout, widths, wrapped};
use super::template::prose;
use super::visible;
use clap::ValueEnum;
use clap::builder::PossibleValue;
use commgauge_base::collective::Collective;
use commgauge_base::units::{Rate, three_digits};
use commgauge_base::writing::grouped;
use commgauge_model::config::step::{STEP_FLAGS, ScheduleKind, StepFlag, Work};
use commgauge_model::config::{LayoutTable, Machine, Model, Place, Shipped, Suite, read_text};
use commgauge_model::layout::Axis;
use commgauge_model::workload::Style;
use minijinja::context;
use minijinja::value::Serde;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeSet;
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

// The tables: a line for each name, with the description cut to the width.

/// Minimum width of a description; narrower terminals wrap it.
const SHORTEST: usize = 20;

/// The table of a kind for a terminal of this width, or the number of names of each kind.
pub fn text(document: &ListDocument, kind: Option<Kind>, width: u16) -> String {
    match kind {
        None => overview(document, width),
        Some(Kind::Keys) => keys_with_meaning(document, width),
        Some(kind) => {
            let below = prose(
                "names.txt",
                include_str!("templates/names.txt"),
                context! { kind => Serde(kind), ..Serde(document) },
            );
            fitted(table(document, kind), width) + &below
        }
    }
}

fn overview(document: &ListDocument, width: u16) -> String {
    let count = |kind: Kind| match kind {
        Kind::Formats => {
            document.formats.iter().flatten().map(|format| format.name.as_str()).collect::<BTreeSet<_>>().len()
        }
        Kind::Keys => document.keys.iter().flatten().count(),
        other => table(document, other).rows.len(),
    };
    let kinds = Kind::value_variants().iter().filter_map(|kind| Some((*kind, kind.to_possible_value()?)));
    let kinds = Fields::of(kinds)
        .left("list of", 0, |(_, value)| value.get_name().to_owned())
        .right("count", 0, |(kind, _)| count(*kind))
        .left("what they are", 0, |(_, value)| value.get_help().map(ToString::to_string).unwrap_or_default());
    format!("{}\n`commgauge show models` and so on lists them.\n", fitted(kinds.table(""), width))
}

fn table(document: &ListDocument, kind: Kind) -> Table {
    let named = |list: &Option<Vec<Named>>| {
        Fields::of(list.iter().flatten())
            .left("name", 0, |one| one.name.clone())
            .left("description", 0, |one| one.description.clone())
            .table("")
    };
    match kind {
        Kind::Collectives => named(&document.collectives),
        Kind::Axes => named(&document.axes),
        Kind::Styles => named(&document.styles),
        Kind::Schedules => named(&document.schedules),
        Kind::Backends => named(&document.backends),
        Kind::Keys => Table::default(),
        Kind::Suites => suites_table(document),
        Kind::Models => models_table(document),
        Kind::Machines => machines_table(document),
        Kind::Formats => formats_table(document),
    }
}

/// Each key with its flag and its tables, and below it what the flag means, in full: its values are there.
fn keys_with_meaning(document: &ListDocument, width: u16) -> String {
    let indent = "    ";
    let meaning_width = width.saturating_sub(indent.len() as u16);
    let key = |key: &KeyFacts| {
        let meaning = wrapped(&key.description, meaning_width);
        let meaning: String = meaning.lines().map(|line| format!("{indent}{}\n", line.trim_start())).collect();
        format!("{}  {}  [{}]\n{meaning}", key.name, key.flag, key.tables.join("], ["))
    };
    document.keys.iter().flatten().map(key).collect()
}

fn suites_table(document: &ListDocument) -> Table {
    let ranks = |suite: &SuiteFacts| match (suite.ranks, suite.ranks_multiple_of) {
        (Some(ranks), _) => ranks.to_string(),
        (None, Some(multiple)) if multiple > 1 => format!("k x {multiple}"),
        (None, Some(_)) => "any".to_owned(),
        (None, None) => String::new(),
    };
    Fields::of(document.suites.iter().flatten())
        .left("name", 0, |suite| suite.name.clone())
        .right("ranks", 2, |suite| ranks(suite))
        .left("description", 0, |suite| or_problem(&suite.description, suite.problem.as_deref()))
        .table("")
}

fn models_table(document: &ListDocument) -> Table {
    let billions = |count: u64| format!("{} B", three_digits(count as f64 * 1e-9));
    let active = |model: &ModelFacts| match model.parameters_active {
        all if all == model.parameters => String::new(),
        active => billions(active),
    };
    Fields::of(document.models.iter().flatten())
        .left("name", 0, |model| model.name.clone())
        .right("parameters", 1, |model| billions(model.parameters))
        .right("active", 3, |model| active(model))
        .right("layers", 2, |model| model.layers)
        .left("description", 0, |model| or_problem(&model.description, model.problem.as_deref()))
        .table("")
}

fn machines_table(document: &ListDocument) -> Table {
    let rate = |bytes_per_second: f64| three_digits(Rate(bytes_per_second).gigabytes_per_second());
    let description = |machine: &MachineFacts| {
        let marks = [
            (machine.assumed, "assumed rates"),
            (machine.has_faults, "faults, for simulation only"),
            (machine.imported_only, "judges imported logs only"),
        ];
        let marks: Vec<&str> = marks.iter().filter(|(is, _)| *is).map(|(_, mark)| *mark).collect();
        let text = match marks.as_slice() {
            [] => machine.description.clone(),
            marks => format!("({}) {}", marks.join("; "), machine.description),
        };
        or_problem(&text, machine.problem.as_deref())
    };
    Fields::of(document.machines.iter().flatten())
        .left("name", 0, |machine| machine.name.clone())
        .right("ranks", 2, |machine| machine.ranks_per_node)
        .right("GB/s in", 3, |machine| rate(machine.within_node_bytes_per_second))
        .right("GB/s out", 4, |machine| rate(machine.between_nodes_bytes_per_second))
        .right("expects", 1, |machine| machine.expectations)
        .left("description", 0, |machine| description(machine))
        .table("")
}

/// Formats by command, since the same names occur in several commands.
fn formats_table(document: &ListDocument) -> Table {
    let formats = document.formats.iter().flatten();
    let commands = formats.flat_map(|format| format.commands.iter().map(|command| (command, format.name.as_str())));
    Fields::of(grouped(commands))
        .left("command", 0, |(command, _)| (*command).clone())
        .left("formats", 0, |(_, formats)| formats.join(", "))
        .table("")
}

fn or_problem(description: &str, problem: Option<&str>) -> String {
    let problem = problem.map(|problem| format!("cannot be used: {problem}"));
    problem.unwrap_or_else(|| description.to_owned()).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The table, with descriptions cut so that every name stays on one line.
fn fitted(mut table: Table, width: u16) -> String {
    let last = table.columns.len() - 1;
    let mut widths = widths(&table.columns, &table.rows);
    widths[last] = SHORTEST;
    let before = TableLayout::new(&table.columns, widths, usize::from(width));
    let longest = SHORTEST + usize::from(width).saturating_sub(before.width());
    for row in &mut table.rows {
        // File names and their descriptions may contain anything.
        row.cells.iter_mut().for_each(|cell| *cell = visible(cell));
        if row.cells[last].chars().count() > longest {
            row.cells[last] = row.cells[last].chars().take(longest - 3).chain("...".chars()).collect();
        }
    }
    table.text(width)
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
