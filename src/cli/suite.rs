//! A suite file as work for a launch, and its plan as text.

use crate::config::{RunSettings, Suite};
use crate::error::Result;
use crate::record::line::SuiteFacts;
use crate::units::Bytes;
use crate::workload::WorkPlan;
use std::fmt::Write;
use std::path::Path;

/// What to run, how samples are taken, and what the record says was asked for.
pub type SuiteWork = (WorkPlan, RunSettings, SuiteFacts);

/// What a suite asks for on that many ranks.
///
/// # Errors
/// Usage errors that name file, line and key.
pub fn suite_work(suite: &Path, world_size: u32) -> Result<SuiteWork> {
    let suite = Suite::load(suite)?;
    let plan = WorkPlan::from_suite(&suite, world_size)?;
    let facts = SuiteFacts {
        name: suite.name.clone(),
        path: Some(suite.path.display().to_string()),
        sha256: suite.sha256.clone(),
        model: plan.model.clone(),
        layout: plan.layout.clone(),
    };
    Ok((plan, suite.settings, facts))
}

/// The plan as people read it before a run: cases, bytes, time.
pub(super) fn plan_text((plan, settings, facts): &SuiteWork, world_size: u32) -> String {
    let mut text = format!("suite {} on {world_size} ranks", facts.name);
    for part in [plan.model.as_deref(), plan.layout.as_deref()].into_iter().flatten() {
        text += &format!(", {part}");
    }
    let replicates = settings.replicates;
    // Writing to a string cannot fail.
    let _ = writeln!(text, "\n{} cases x {replicates} replicates:\n", plan.cases.len());
    let longest = plan.cases.iter().map(|case| case.name().len()).max().unwrap_or(0);
    for case in &plan.cases {
        let groups = plan.groups_of(case);
        let shape = format!("{} x {}", groups.groups.len(), groups.group_size());
        let note = match case.op.geometry(groups.group_size()) {
            Ok(geometry) => geometry.bytes_total.to_string(),
            Err(reason) => format!("{} (will be waived: {reason})", case.op.bytes_total),
        };
        let name = case.name();
        let _ = writeln!(text, "  {name:<longest$} {shape:>9} groups x ranks  {note:>10}");
    }
    let largest: Bytes = plan.largest_bytes();
    let seconds = plan.estimated_seconds(settings);
    let _ = writeln!(
        text,
        "\nlargest buffer {largest} on each rank; about {seconds}, if no case needs more than its budget"
    );
    text
}
