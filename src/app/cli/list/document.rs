//! The document of `commgauge list --format json`: stable, versioned, with a published JSON Schema.

use super::facts;
use super::facts::{FormatFacts, KeyFacts, MachineFacts, ModelFacts, Named, SuiteFacts};
use crate::cli::published::published;
use crate::report::document::{Column, GAP, table, wrapped};
use crate::report::visible;
use clap::ValueEnum;
use commgauge_base::units::{Rate, three_digits};
use commgauge_model::config::is_embedded;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeSet;

/// Name of the format.
const FORMAT: &str = "commgauge-list";

/// Incremented when a field is removed or changes its meaning.
const VERSION: u32 = 1;

/// What there is. A kind that was not requested is absent; without a question all are there.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct ListDocument {
    /// Always `commgauge-list`.
    pub format: String,
    /// Version of the format.
    pub version: u32,
    /// Communication calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collectives: Option<Vec<Named>>,
    /// Dimensions of a layout.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub axes: Option<Vec<Named>>,
    /// Parallel styles.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub styles: Option<Vec<Named>>,
    /// Pipeline schedules.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedules: Option<Vec<Named>>,
    /// Keys of a step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keys: Option<Vec<KeyFacts>>,
    /// Shipped suites.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suites: Option<Vec<SuiteFacts>>,
    /// Shipped models.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub models: Option<Vec<ModelFacts>>,
    /// Shipped machine files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machines: Option<Vec<MachineFacts>>,
    /// Formats.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub formats: Option<Vec<FormatFacts>>,
    /// Who can carry calls out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backends: Option<Vec<Named>>,
}

impl ListDocument {
    /// The entries of a kind, or of all kinds; formats are those of the flags of these programs.
    pub(super) fn of(kind: Option<Kind>, programs: &[clap::Command]) -> ListDocument {
        let wanted = |this: Kind| kind.is_none_or(|kind| kind == this);
        ListDocument {
            format: FORMAT.to_owned(),
            version: VERSION,
            collectives: wanted(Kind::Collectives).then(facts::collectives),
            axes: wanted(Kind::Axes).then(facts::axes),
            styles: wanted(Kind::Styles).then(facts::styles),
            schedules: wanted(Kind::Schedules).then(facts::schedules),
            keys: wanted(Kind::Keys).then(facts::keys),
            suites: wanted(Kind::Suites).then(facts::suites),
            models: wanted(Kind::Models).then(facts::models),
            machines: wanted(Kind::Machines).then(facts::machines),
            formats: wanted(Kind::Formats).then(|| facts::formats(programs)),
            backends: wanted(Kind::Backends).then(facts::backends),
        }
    }
}

/// The JSON Schema of [`ListDocument`].
pub fn schema() -> Value {
    published(schemars::schema_for!(ListDocument).to_value(), FORMAT, VERSION, "What there is, by commgauge")
}

// The tables of `commgauge list`: a line for each name, with the description cut to the width.

/// Minimum width of a description; narrower terminals wrap it.
const SHORTEST: usize = 20;

/// Maximum number of files that are named.
const MAX_NAMED: usize = 3;

/// Rows of a table whose last column is the description.
struct Rows {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

pub(super) fn text(document: &ListDocument, kind: Option<Kind>, width: u16) -> String {
    match kind {
        None => overview(document, width),
        Some(Kind::Keys) => keys_with_meaning(document, width),
        Some(kind) => {
            let rows = rows(document, kind);
            rows.fitted(width) + note(kind) + &file_sources(document, kind)
        }
    }
}

/// Explains a table beyond its headings.
fn note(kind: Kind) -> &'static str {
    match kind {
        Kind::Machines => {
            "\nGB/s in: what a rank sends within its node; GB/s out: what all adapters of a\nnode send together (10^9 bytes per second, each direction). Expects:\nrows for `gate`.\n"
        }
        Kind::Suites => "\nRanks: `k x 4` is every multiple of 4.\n",
        _ => "",
    }
}

/// Reports which names refer to files here, since these take precedence over the embedded ones.
fn file_sources(document: &ListDocument, kind: Kind) -> String {
    let files: Vec<&str> = match kind {
        Kind::Suites => document.suites.iter().flatten().map(|suite| suite.file.as_str()).collect(),
        Kind::Models => document.models.iter().flatten().map(|model| model.file.as_str()).collect(),
        Kind::Machines => document.machines.iter().flatten().map(|machine| machine.file.as_str()).collect(),
        _ => return String::new(),
    };
    let here: Vec<&str> = files.iter().copied().filter(|file| !is_embedded(file)).collect();
    let sentence = match (here.len(), files.len()) {
        (0, _) => "All are embedded; `commgauge show` prints one, to be copied and changed.".to_owned(),
        (count, all) if count == all => format!("All are files here, such as {}.", here[0]),
        (count, all) if count > MAX_NAMED => {
            format!("{count} of {all} are files here, such as {}; the others are embedded.", here[0])
        }
        (_, _) => format!("Files here: {}; the others are embedded.", here.join(", ")),
    };
    format!("\n{}\n", visible(&sentence))
}

fn overview(document: &ListDocument, width: u16) -> String {
    let columns = vec![Column::left("list of", 0), Column::right("count", 0), Column::left("what they are", 0)];
    let row = |kind: &Kind| {
        let value = kind.to_possible_value()?;
        let help = value.get_help().map(ToString::to_string).unwrap_or_default();
        let count = match kind {
            Kind::Formats => {
                document.formats.iter().flatten().map(|format| format.name.as_str()).collect::<BTreeSet<_>>().len()
            }
            other => rows(document, *other).rows.len(),
        };
        Some(vec![value.get_name().to_owned(), count.to_string(), help])
    };
    let rows = Kind::value_variants().iter().filter_map(row).collect();
    let text = Rows { columns, rows }.fitted(width);
    format!("{text}\n`commgauge list models` and so on lists them.\n")
}

fn rows(document: &ListDocument, kind: Kind) -> Rows {
    let named = |list: &Option<Vec<Named>>| Rows {
        columns: vec![Column::left("name", 0), Column::left("description", 0)],
        rows: list.iter().flatten().map(|one| vec![one.name.clone(), one.description.clone()]).collect(),
    };
    match kind {
        Kind::Collectives => named(&document.collectives),
        Kind::Axes => named(&document.axes),
        Kind::Styles => named(&document.styles),
        Kind::Schedules => named(&document.schedules),
        Kind::Backends => named(&document.backends),
        Kind::Keys => keys(document),
        Kind::Suites => suites(document),
        Kind::Models => models(document),
        Kind::Machines => machines(document),
        Kind::Formats => formats(document),
    }
}

fn keys(document: &ListDocument) -> Rows {
    let rows = document.keys.iter().flatten().map(|key| vec![key.name.clone(), key.description.clone()]);
    Rows { columns: vec![Column::left("key", 0), Column::left("meaning", 0)], rows: rows.collect() }
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

fn suites(document: &ListDocument) -> Rows {
    let rows = document.suites.iter().flatten().map(|suite| {
        let ranks = match (suite.ranks, suite.ranks_multiple_of) {
            (Some(ranks), _) => ranks.to_string(),
            (None, Some(multiple)) if multiple > 1 => format!("k x {multiple}"),
            (None, Some(_)) => "any".to_owned(),
            (None, None) => String::new(),
        };
        vec![suite.name.clone(), ranks, described(&suite.description, suite.problem.as_deref())]
    });
    Rows {
        columns: vec![Column::left("name", 0), Column::right("ranks", 2), Column::left("description", 0)],
        rows: rows.collect(),
    }
}

fn models(document: &ListDocument) -> Rows {
    let billions = |count: u64| format!("{} B", three_digits(count as f64 * 1e-9));
    let rows = document.models.iter().flatten().map(|model| {
        let active =
            if model.parameters_active == model.parameters { String::new() } else { billions(model.parameters_active) };
        let description = described(&model.description, model.problem.as_deref());
        vec![model.name.clone(), billions(model.parameters), active, model.layers.to_string(), description]
    });
    Rows {
        columns: vec![
            Column::left("name", 0),
            Column::right("parameters", 1),
            Column::right("active", 3),
            Column::right("layers", 2),
            Column::left("description", 0),
        ],
        rows: rows.collect(),
    }
}

fn machines(document: &ListDocument) -> Rows {
    let rate = |bytes_per_second: f64| three_digits(Rate(bytes_per_second).gigabytes_per_second());
    let rows = document.machines.iter().flatten().map(|machine| {
        let marks = [
            (machine.assumed, "assumed rates"),
            (machine.has_faults, "faults, for simulation only"),
            (machine.imported_only, "judges imported logs only"),
        ];
        let marks: Vec<&str> = marks.iter().filter(|(is, _)| *is).map(|(_, mark)| *mark).collect();
        let description = match marks.as_slice() {
            [] => machine.description.clone(),
            marks => format!("({}) {}", marks.join("; "), machine.description),
        };
        vec![
            machine.name.clone(),
            machine.ranks_per_node.to_string(),
            rate(machine.within_node_bytes_per_second),
            rate(machine.between_nodes_bytes_per_second),
            machine.expectations.to_string(),
            described(&description, machine.problem.as_deref()),
        ]
    });
    let columns = vec![
        Column::left("name", 0),
        Column::right("ranks", 2),
        Column::right("GB/s in", 3),
        Column::right("GB/s out", 4),
        Column::right("expects", 1),
        Column::left("description", 0),
    ];
    Rows { columns, rows: rows.collect() }
}

/// Formats by command, since the same names occur in several commands.
fn formats(document: &ListDocument) -> Rows {
    let mut rows: Vec<Vec<String>> = Vec::new();
    for format in document.formats.iter().flatten() {
        for command in &format.commands {
            match rows.iter_mut().find(|row| row[0] == *command) {
                Some(row) => row[1] += &format!(", {}", format.name),
                None => rows.push(vec![command.clone(), format.name.clone()]),
            }
        }
    }
    Rows { columns: vec![Column::left("command", 0), Column::left("formats", 0)], rows }
}

fn described(description: &str, problem: Option<&str>) -> String {
    let problem = problem.map(|problem| format!("cannot be used: {problem}"));
    problem.unwrap_or_else(|| description.to_owned()).split_whitespace().collect::<Vec<_>>().join(" ")
}

impl Rows {
    /// The table, with descriptions cut so that every name stays on one line.
    fn fitted(mut self, width: u16) -> String {
        let last = self.columns.len() - 1;
        let wide = |index: usize| {
            let cells = self.rows.iter().map(|row| row[index].chars().count());
            cells.max().unwrap_or(0).max(self.columns[index].heading().chars().count())
        };
        // Other columns are dropped first, so that the description has at least its minimum width.
        let mut before: Vec<usize> = (0..last).collect();
        let room =
            |before: &[usize]| usize::from(width).saturating_sub(before.iter().map(|index| wide(*index) + GAP).sum());
        while room(&before) < SHORTEST {
            let most = before.iter().copied().filter(|index| self.columns[*index].expendable() > 0);
            let Some(out) = most.max_by_key(|index| self.columns[*index].expendable()) else { break };
            before.retain(|index| *index != out);
        }
        let longest = room(&before).max(SHORTEST);
        for row in &mut self.rows {
            // File names and their descriptions may contain anything.
            row.iter_mut().for_each(|cell| *cell = visible(cell));
            if row[last].chars().count() > longest {
                row[last] = row[last].chars().take(longest - 3).chain("...".chars()).collect();
            }
        }
        table(&self.columns, &self.rows, width)
    }
}

// The kinds of things that have names.

/// A kind of things that have names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
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
    /// Who can carry calls out, for --backend
    Backends,
}
