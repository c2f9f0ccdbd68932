//! The doctor's report, as data; `commgauge doctor --format json` prints it.

use crate::report::prose;
use minijinja::context;
use minijinja::value::Serde;
use schemars::JsonSchema;
use serde::Serialize;

/// Name of the format.
pub const DOCTOR_FORMAT: &str = "commgauge-doctor";
/// Raised when a field is removed or changes its meaning.
pub const DOCTOR_VERSION: u32 = 1;

/// The parts of commgauge that can run here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct DoctorDocument {
    /// Always `commgauge-doctor`.
    pub format: String,
    /// Version of the format.
    pub version: u32,
    /// Version of commgauge.
    pub program_version: String,
    /// Name of this host.
    pub host: String,
    /// Backends that can execute calls here.
    pub backends: Vec<BackendVerdict>,
    /// The checks.
    pub sections: Vec<Section>,
}

/// Whether a backend can be used here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct BackendVerdict {
    /// For --backend.
    pub name: String,
    /// Whether everything it needs is present.
    pub ready: bool,
    /// What it uses, or why it is not ready, as a sentence.
    pub reason: String,
    /// What to do first, if it is not ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

/// Related checks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Section {
    pub name: String,
    /// In the order in which they are shown.
    pub findings: Vec<Finding>,
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Finding {
    /// What was checked.
    pub item: String,
    /// The state.
    pub state: State,
    /// What was found.
    pub found: String,
    /// What to do about it, if anything can be done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

/// State of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema, strum::EnumString)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum State {
    /// As expected.
    #[strum(serialize = "ok")]
    Fine,
    /// Information; neither right nor wrong.
    Note,
    /// Works, but may be slow or fail at scale.
    Warning,
    /// Missing.
    Missing,
    /// Present, but broken.
    Broken,
}

impl Finding {
    /// A finding without a fix.
    pub(super) fn new(item: &str, state: State, found: impl Into<String>) -> Finding {
        Finding { item: item.to_owned(), state, found: found.into(), fix: None }
    }

    pub(super) fn fine(item: &str, found: impl Into<String>) -> Finding {
        Finding::new(item, State::Fine, found)
    }

    pub(super) fn note(item: &str, found: impl Into<String>) -> Finding {
        Finding::new(item, State::Note, found)
    }

    pub(super) fn warning(item: &str, found: impl Into<String>) -> Finding {
        Finding::new(item, State::Warning, found)
    }

    pub(super) fn missing(item: &str, found: impl Into<String>) -> Finding {
        Finding::new(item, State::Missing, found)
    }

    pub(super) fn broken(item: &str, found: impl Into<String>) -> Finding {
        Finding::new(item, State::Broken, found)
    }

    /// The finding of a row `STATE | ITEM | FOUND` or `STATE | ITEM | FOUND | FIX`; any other row as it is.
    pub(super) fn of_row(row: &str) -> Finding {
        let cells: Vec<&str> = row.splitn(4, " | ").collect();
        let [state, item, found, fix @ ..] = cells.as_slice() else { return Finding::warning("NVML", row) };
        let state = state.parse().unwrap_or(State::Warning);
        Finding { fix: fix.first().map(|fix| (*fix).to_owned()), ..Finding::new(item, state, *found) }
    }

    /// Adds the fix.
    pub(super) fn with_fix(mut self, fix: impl Into<String>) -> Finding {
        self.fix = Some(fix.into());
        self
    }
}

/// Result of examining one component: its findings, and what it provides, or why it provides nothing and how to fix
/// that.
pub(super) struct Part<T> {
    pub section: Section,
    pub ready: Result<T, (String, Option<String>)>,
}

impl Section {
    pub(super) fn new(name: &str, findings: Vec<Finding>) -> Section {
        Section { name: name.to_owned(), findings }
    }

    /// The first finding that prevents a backend from running, and its fix.
    pub(super) fn first_fault(&self) -> Option<(String, Option<String>)> {
        let fault = self.findings.iter().find(|one| matches!(one.state, State::Missing | State::Broken))?;
        Some((fault.found.clone(), fault.fix.clone()))
    }
}

// The doctor's findings as text: backends first, then section by section, each problem with its fix.

/// The report in at most this many columns.
pub fn doctor_text(document: &DoctorDocument, width: u16) -> String {
    prose("doctor.txt", include_str!("doctor.txt"), context! { width, ..Serde(document) })
}
