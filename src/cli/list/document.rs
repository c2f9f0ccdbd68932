//! The document of `commgauge list --format json`: stable, versioned, with a published JSON Schema.

use super::Kind;
use super::gather;
use crate::cli::schema::published;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

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

/// A name and what it stands for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Named {
    /// As files and flags have it.
    pub name: String,
    /// In one sentence.
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

impl ListDocument {
    /// The entries of a kind, or of all kinds.
    pub(super) fn of(kind: Option<Kind>) -> ListDocument {
        let wanted = |this: Kind| kind.is_none_or(|kind| kind == this);
        ListDocument {
            format: FORMAT.to_owned(),
            version: VERSION,
            collectives: wanted(Kind::Collectives).then(gather::collectives),
            axes: wanted(Kind::Axes).then(gather::axes),
            styles: wanted(Kind::Styles).then(gather::styles),
            schedules: wanted(Kind::Schedules).then(gather::schedules),
            suites: wanted(Kind::Suites).then(gather::suites),
            models: wanted(Kind::Models).then(gather::models),
            machines: wanted(Kind::Machines).then(gather::machines),
            formats: wanted(Kind::Formats).then(gather::formats),
            backends: wanted(Kind::Backends).then(gather::backends),
        }
    }
}

/// The JSON Schema of [`ListDocument`].
pub fn schema() -> Value {
    published(schemars::schema_for!(ListDocument).to_value(), FORMAT, VERSION, "What there is, by commgauge")
}
