//! The part of the header that describes the backend, and the machine according to its machine file.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The backend.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BackendLine {
    /// `mpi`, `nccl` or `simulated`; `imported` where another tool measured.
    pub name: String,
    /// The tool that measured, where the record was imported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_by: Option<ForeignTool>,
    /// True where no data moved and no real time passed.
    pub synthetic: bool,
    /// Library and version.
    pub library: String,
    /// The variables of the environment that choose or forbid transports, with their values; absent where there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transport: Option<String>,
    /// How it carries out and times what it does, in sentences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The machine file that bounds (or, simulated, the times) come from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// Nodes behind each leaf switch according to the machine file, counted from node 0; absent where it does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes_per_leaf: Option<u32>,
    /// Nodes that the links of a rack join according to the machine file, counted from node 0; absent where they join none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes_per_rack: Option<u32>,
}

/// Another tool whose times a record holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ForeignTool {
    /// nccl-tests, or rccl-tests.
    NcclTests,
    /// The OSU micro-benchmarks.
    Osu,
    /// The Intel MPI Benchmarks.
    Imb,
    /// A table of times, which does not say who measured them.
    Csv,
}

impl ForeignTool {
    /// Its name in sentences.
    pub fn name(self) -> &'static str {
        match self {
            ForeignTool::NcclTests => "nccl-tests",
            ForeignTool::Osu => "OSU",
            ForeignTool::Imb => "IMB",
            ForeignTool::Csv => "another tool",
        }
    }

    /// What stands beside every verdict on its times.
    pub fn label(self) -> String {
        format!("measured by {}; data check and clocks not ours", self.name())
    }

    /// The backend of ours that does what it measures, where that is known.
    pub fn backend(self) -> Option<&'static str> {
        match self {
            ForeignTool::NcclTests => Some("nccl"),
            ForeignTool::Osu | ForeignTool::Imb => Some("mpi"),
            ForeignTool::Csv => None,
        }
    }

    /// Why a row of it is not verified, and what would change that.
    pub fn unchecked(self) -> String {
        let how = match self {
            ForeignTool::NcclTests => "; run it with -c 1",
            ForeignTool::Osu => "; run it with -c",
            ForeignTool::Imb => "; build it with CHECK, or run it with -data_check",
            ForeignTool::Csv => " as far as the table says",
        };
        format!("not verified: {} did not check the data{how}", self.name())
    }
}
