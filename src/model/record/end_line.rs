//! The last line of a launch in a record: how the run ended, with the line count and digest that reveal lost or changed lines.

use commgauge_base::units::Seconds;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct End {
    /// How.
    pub status: EndStatus,
    /// Exit code of the run.
    pub exit_code: i32,
    /// The error, where there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// From header to end; of a resumed run, from the resume line on.
    pub elapsed_seconds: Seconds,
    /// Lines before this one, so that a record from which lines were lost can be distinguished from a whole one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lines_before: Option<u64>,
    /// SHA-256 of every byte of the file before this key, so that a change of the record is noticed; in hexadecimal.
    /// Always the last key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names say it all")]
pub enum EndStatus {
    Complete,
    Interrupted,
    Failed,
    OutOfTime,
}
