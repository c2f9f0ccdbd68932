//! The entries of the list: names, and what they stand for.

use schemars::JsonSchema;
use serde::Serialize;

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
