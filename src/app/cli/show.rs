//! `commgauge show`: prints an embedded suite, model or machine file as a template.

use super::model;
use super::output::{json, print};
use super::published::published;
use commgauge_analysis::verdict;
use commgauge_analysis::verdict::selftest::{SELFTEST_FORMAT, SELFTEST_VERSION};
use commgauge_base::error::{Error, Result};
use commgauge_base::writing::eprintln;
use commgauge_model::config::{Shipped, is_embedded};
use commgauge_model::record;
use serde_json::Value;
use std::path::Path;

/// Print a suite, model or machine file that is embedded in this program, as a copy to change
///
/// What is printed is the embedded file, also where a file of that name in the working directory wins over it; stderr says so then.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "commgauge show suite quick > mine.toml; commgauge run mine.toml\ncommgauge show machine h100-nvswitch-ndr > mine.toml\n\n`commgauge list suites`, `list models` and `list machines` name them."
)]
pub struct ShowCommand {
    /// Of which kind
    #[arg(value_enum)]
    pub kind: ShownKind,

    /// Its name, such as quick, llama-3-8b or h100-nvswitch-ndr
    pub name: String,
}

/// A kind of embedded files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ShownKind {
    /// What to run
    Suite,
    /// A model's config.json
    Model,
    /// The links of a machine, and what is expected of it
    Machine,
}

impl ShownKind {
    fn shipped(self) -> Shipped {
        match self {
            ShownKind::Suite => Shipped::Suite,
            ShownKind::Model => Shipped::Model,
            ShownKind::Machine => Shipped::Machine,
        }
    }
}

impl ShowCommand {
    /// Prints the file.
    ///
    /// # Errors
    /// A usage error if there is no embedded file of this name.
    pub fn execute(&self) -> Result<i32> {
        let kind = self.kind.shipped();
        let requested = Path::new(&self.name);
        let found = kind.find(requested).map(|file| file.display().to_string()).filter(|file| !is_embedded(file));
        let Some(text) = kind.embedded(&self.name) else {
            return Err(Error::usage(match found {
                Some(file) => format!("there is no embedded {} `{}`; {file} is a file here", kind.noun(), self.name),
                None => kind.unknown(requested),
            }));
        };
        print(text)?;
        if let Some(file) = found {
            eprintln!(
                "commgauge: {} {} (embedded); elsewhere that name means {file}, which wins",
                kind.noun(),
                self.name
            );
        }
        Ok(0)
    }
}

// `commgauge schema`: the published JSON Schemas of commgauge's output documents.
//
// A new document needs one member of [`Document`] and one arm of its `match`.

/// Print the JSON Schema of what commgauge writes
#[derive(Clone, Debug, Default, clap::Args)]
pub struct SchemaCommand {
    /// Of which document
    #[arg(value_enum, default_value_t)]
    pub document: Document,
}

/// Documents with a published schema.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Document {
    /// One line of a record
    #[default]
    Record,
    /// What `commgauge model --format json` prints
    Model,
    /// What `commgauge ops --format json` prints
    Ops,
    /// What `commgauge layout --format json` prints
    Layout,
    /// The fit that `commgauge fit` writes
    Fit,
    /// What `commgauge predict --format json` prints
    Predictions,
    /// What `commgauge judge --part thresholds --format json` prints
    Verdict,
    /// What `commgauge history --format json` prints
    History,
    /// What `commgauge rank --format json` prints
    Rank,
    /// What `commgauge plan --format json` prints
    Plan,
    /// What `commgauge validate --format json` prints
    Validation,
    /// What `commgauge expect selftest --format json` prints
    Selftest,
    /// What `commgauge judge --part suspects --format json` prints
    Suspects,
    /// What `commgauge simulate --format json` prints
    Rehearsal,
    /// What `commgauge list --format json` prints
    List,
    /// What `commgauge run --check-launch --format json` prints
    Launch,
    /// What `commgauge doctor --format json` prints
    Doctor,
    /// What `commgauge report --format json` prints
    Report,
    /// What `commgauge trace --format json` prints
    Trace,
}

impl Document {
    /// Its JSON Schema (draft 2020-12).
    pub fn schema(self) -> Value {
        match self {
            Document::Record => record::schema(),
            Document::Model => model::schema(),
            Document::Ops => super::ops::schema(),
            Document::Layout => super::layout::schema(),
            Document::Fit => super::fit::schema(),
            Document::Rank => super::rank::schema(),
            Document::Plan => super::plan::schema(),
            Document::Validation => super::validate::schema(),
            Document::Predictions => super::fit::predict_schema(),
            Document::Verdict => {
                let schema = schemars::schema_for!(verdict::Verdict).to_value();
                published(schema, verdict::FORMAT, verdict::VERSION, "A verdict of commgauge")
            }
            Document::History => {
                let schema = schemars::schema_for!(verdict::history::History).to_value();
                published(schema, verdict::history::FORMAT, verdict::history::VERSION, "Runs over time, by commgauge")
            }
            Document::Selftest => {
                let schema = schemars::schema_for!(verdict::SelfTest).to_value();
                published(schema, SELFTEST_FORMAT, SELFTEST_VERSION, "A selftest of commgauge")
            }
            Document::Rehearsal => {
                use crate::report::{REHEARSAL_FORMAT, REHEARSAL_VERSION, Rehearsed};
                let schema = schemars::schema_for!(Rehearsed).to_value();
                published(schema, REHEARSAL_FORMAT, REHEARSAL_VERSION, "A rehearsal of commgauge")
            }
            Document::List => super::list::schema(),
            Document::Doctor => super::doctor::schema(),
            Document::Trace => super::trace::schema(),
            Document::Report => {
                use crate::report::json_document::{FORMAT, SCHEMA_VERSION, schema};
                published(schema(), FORMAT, SCHEMA_VERSION, "What commgauge report --format json prints")
            }
            Document::Launch => {
                use commgauge_run::launch_check::{LAUNCH_FORMAT, LAUNCH_VERSION, LaunchReport};
                let schema = schemars::schema_for!(LaunchReport).to_value();
                published(schema, LAUNCH_FORMAT, LAUNCH_VERSION, "The check of a launch, by commgauge")
            }
            Document::Suspects => {
                use verdict::locate::{SUSPECTS_FORMAT, SUSPECTS_VERSION, Suspects};
                let schema = schemars::schema_for!(Suspects).to_value();
                published(schema, SUSPECTS_FORMAT, SUSPECTS_VERSION, "Suspects of commgauge")
            }
        }
    }
}

impl SchemaCommand {
    /// Prints the schema on stdout.
    pub fn execute(&self) -> Result<i32> {
        print(&json(&self.document.schema())?)?;
        Ok(0)
    }
}

#[cfg(test)]
mod tests {

    use super::*;
    use clap::ValueEnum;

    #[test]
    fn every_schema_names_its_document_and_version() {
        for document in Document::value_variants() {
            let schema = document.schema();
            let name = document.to_possible_value().unwrap().get_name().to_owned();
            assert_eq!(schema["$id"], format!("urn:commgauge-{name}:{}", schema["version"]));
            assert!(schema["$schema"].as_str().unwrap().contains("2020-12"));
        }
    }
}
