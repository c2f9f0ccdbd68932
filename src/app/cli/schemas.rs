//! The published JSON Schemas of what commgauge writes.
//!
//! A new document needs one member of [`Document`] and one arm of its `match`.

use crate::doctor::{DOCTOR_FORMAT, DOCTOR_VERSION, DoctorDocument};
use crate::report::json_document::{self, SCHEMA_VERSION};
use crate::report::{
    REHEARSAL_FORMAT, REHEARSAL_VERSION, Rehearsed, layout, model, names, ops, predictions, published, rank,
    schema_of as of, trace,
};
use commgauge_cost::cost;
use commgauge_judge::verdict;
use commgauge_judge::verdict::locate::{SUSPECTS_FORMAT, SUSPECTS_VERSION, Suspects};
use commgauge_judge::verdict::selftest::{SELFTEST_FORMAT, SELFTEST_VERSION};
use commgauge_judge::verdict::{SelfTest, Verdict, history};
use commgauge_model::record;
use commgauge_plan::planner::{plan_document, validate};
use commgauge_run::launch_check::{LAUNCH_FORMAT, LAUNCH_VERSION, LaunchReport};
use serde_json::Value;

/// Documents with a published schema.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Document {
    /// One line of a record
    #[default]
    Record,
    /// What `commgauge show model --format json` prints
    Model,
    /// What `commgauge ops --format json` prints
    Ops,
    /// What `commgauge show layout --format json` prints
    Layout,
    /// The fit that `commgauge calibrate` writes
    Fit,
    /// What `commgauge rank call --format json` prints
    Predictions,
    /// What `commgauge judge --part thresholds --format json` prints
    Verdict,
    /// What `commgauge history --format json` prints
    History,
    /// What `commgauge rank --format json` prints
    Rank,
    /// What `commgauge plan --format json` prints
    Plan,
    /// What `commgauge plan validate --format json` prints
    Validation,
    /// What `commgauge expect selftest --format json` prints
    Selftest,
    /// What `commgauge judge --part suspects --format json` prints
    Suspects,
    /// What `commgauge simulate --format json` prints
    Rehearsal,
    /// What `commgauge show suites --format json` prints
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
            Document::Model => of::<model::ModelDocument>(
                model::FORMAT,
                model::VERSION,
                &format!("A {}, version {}", model::FORMAT, model::VERSION),
            ),
            Document::Ops => of::<ops::OpsDocument>(ops::FORMAT, ops::VERSION, &printed("ops")),
            Document::Layout => of::<layout::LayoutDocument>(
                layout::FORMAT,
                layout::VERSION,
                &format!("A {}, version {}", layout::FORMAT, layout::VERSION),
            ),
            Document::Fit => published(cost::schema(), cost::FORMAT, cost::VERSION, "A commgauge fit"),
            Document::Predictions => {
                of::<predictions::Predictions>(predictions::FORMAT, predictions::VERSION, "Predictions of commgauge")
            }
            Document::Verdict => of::<Verdict>(verdict::FORMAT, verdict::VERSION, "A verdict of commgauge"),
            Document::History => {
                of::<history::History>(history::FORMAT, history::VERSION, "Runs over time, by commgauge")
            }
            Document::Rank => of::<rank::RankDocument>(rank::FORMAT, rank::VERSION, &printed("rank")),
            Document::Plan => {
                of::<plan_document::PlanDocument>(plan_document::FORMAT, plan_document::VERSION, &printed("plan"))
            }
            Document::Validation => {
                of::<validate::Validation>(validate::FORMAT, validate::VERSION, "A validation of commgauge")
            }
            Document::Selftest => of::<SelfTest>(SELFTEST_FORMAT, SELFTEST_VERSION, "A selftest of commgauge"),
            Document::Suspects => of::<Suspects>(SUSPECTS_FORMAT, SUSPECTS_VERSION, "Suspects of commgauge"),
            Document::Rehearsal => of::<Rehearsed>(REHEARSAL_FORMAT, REHEARSAL_VERSION, "A rehearsal of commgauge"),
            Document::List => of::<names::ListDocument>(names::FORMAT, names::VERSION, "What there is, by commgauge"),
            Document::Launch => {
                of::<LaunchReport>(LAUNCH_FORMAT, LAUNCH_VERSION, "The check of a launch, by commgauge")
            }
            Document::Doctor => of::<DoctorDocument>(DOCTOR_FORMAT, DOCTOR_VERSION, "A machine, by commgauge doctor"),
            Document::Report => {
                published(json_document::schema(), json_document::FORMAT, SCHEMA_VERSION, &printed("report"))
            }
            Document::Trace => of::<trace::TraceDocument>(trace::FORMAT, trace::VERSION, &printed("trace")),
        }
    }
}

fn printed(command: &str) -> String {
    format!("What commgauge {command} --format json prints")
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
