//! A suite file as work for a launch, and its plan as text.

use commgauge_base::error::Result;
use commgauge_base::units::{Bytes, Seconds, counted};
use commgauge_model::config::{RunSettings, Suite, is_embedded};
use commgauge_model::layout::{Axis, Nodes};
use commgauge_model::record::line::SuiteFacts;
use commgauge_model::workload::WorkPlan;
use std::fmt::Write;
use std::path::Path;

/// Work for a launch.
#[derive(Clone, Debug, PartialEq)]
pub struct SuiteWork {
    /// What is measured.
    pub plan: WorkPlan,
    /// How it is sampled.
    pub settings: RunSettings,
    /// What was requested, as stored in the record.
    pub facts: SuiteFacts,
}

impl SuiteWork {
    /// The same calls, repeated for a time with rolling checks; products and copies are none.
    ///
    /// # Errors
    /// A usage error if the settings do not allow it.
    pub fn soaked(mut self, time: Seconds) -> Result<SuiteWork> {
        self.plan.products.clear();
        self.plan.copies.clear();
        Ok(SuiteWork { settings: self.settings.soaked(time)?, ..self })
    }
}

/// The work that a suite requests on these nodes, with all its cases within a time if one is given.
///
/// # Errors
/// Usage errors that name file, line and key.
pub fn suite_work(suite: &Path, within: Option<Seconds>, nodes: &Nodes) -> Result<SuiteWork> {
    let suite = Suite::load(suite)?;
    let plan = WorkPlan::from_suite_on(&suite, nodes)?;
    let facts = SuiteFacts {
        name: suite.name.clone(),
        path: Some(suite.path.display().to_string()),
        sha256: suite.sha256.clone(),
        model: plan.model.clone(),
        layout: plan.layout.clone(),
    };
    let settings = suite.settings.clone();
    let settings = within.map_or(Ok(settings.clone()), |within| settings.divided(within))?;
    Ok(SuiteWork { plan, settings, facts })
}

/// Summary of a plan before a run: cases, bytes, time.
pub(super) fn plan_text(work: &SuiteWork, nodes: &Nodes) -> String {
    let SuiteWork { plan, settings, facts } = work;
    let embedded = if facts.path.as_deref().is_some_and(is_embedded) { " (embedded)" } else { "" };
    let mut text = format!("suite {}{embedded} on {} ranks", facts.name, nodes.ranks());
    if nodes.count() > 1 {
        text += &format!(" of {} nodes", nodes.count());
    }
    for part in [plan.model.as_deref(), plan.layout.as_deref()].into_iter().flatten() {
        text += &format!(", {part}");
    }
    let replicates = counted(settings.replicates as usize, "replicate");
    let times = settings.within.map_or(replicates, |within| format!("as often as {within} allows"));
    // Writing to a string cannot fail.
    let _ = writeln!(text, "\n{} x {times}:\n", counted(plan.cases.len(), "case"));
    let longest = plan.cases.iter().map(|case| case.name().len()).max().unwrap_or(0);
    for case in &plan.cases {
        let groups = plan.groups_of(case);
        let shape = format!("{} x {}", groups.groups.len(), groups.group_size());
        let note = match case.op.geometry(groups.group_size()) {
            Ok(geometry) => geometry.bytes_total.to_string(),
            Err(reason) => format!("{} (will be skipped: {reason})", case.op.bytes_total),
        };
        let name = case.name();
        let _ = writeln!(text, "  {name:<longest$} {shape:>9} groups x ranks  {note:>10}");
    }
    if !plan.copies.is_empty() {
        let word = if plan.copies.len() == 1 { "copy" } else { "copies" };
        let _ = writeln!(text, "\n{} {word} between hosts and GPUs:\n", plan.copies.len());
    }
    for copy in &plan.copies {
        let _ = writeln!(text, "  {}", copy.name());
    }
    let largest: Bytes = plan.largest_bytes();
    let seconds = plan.estimated_seconds(settings);
    let _ = writeln!(
        text,
        "\nlargest buffer {largest} on each rank; about {seconds}, if no case needs more than its budget"
    );
    text + &parts_text(plan, settings)
}

/// The share of each part of a plan that has several, such as pairs, growing groups and products.
fn parts_text(plan: &WorkPlan, settings: &RunSettings) -> String {
    let parts = parts(plan);
    if parts.len() < 2 {
        return String::new();
    }
    let mut text = "of which:\n".to_owned();
    for (name, part) in parts {
        let mut rounds: Vec<usize> = part.cases.iter().map(|case| case.groups).collect();
        rounds.dedup();
        let in_rounds = if part.cases.iter().any(|case| case.op.axis == Axis::Pair) {
            format!(" in {}", counted(rounds.len(), "round"))
        } else {
            String::new()
        };
        let count = counted(part.cases.len() + part.products.len() + part.copies.len(), "case");
        // A time for all cases is shared out as they need it.
        let seconds = match settings.within {
            Some(_) if !part.cases.is_empty() => String::new(),
            _ => format!(", about {}", part.estimated_seconds(settings)),
        };
        let _ = writeln!(text, "  {name:<10} {count:>12}{in_rounds}{seconds}");
    }
    text
}

/// The cases of each axis, products and copies, each as a plan of its own under its name.
fn parts(plan: &WorkPlan) -> Vec<(&'static str, WorkPlan)> {
    let mut axes: Vec<Axis> = plan.cases.iter().map(|case| case.op.axis).collect();
    axes.sort_unstable();
    axes.dedup();
    let alone = || WorkPlan { cases: Vec::new(), products: Vec::new(), copies: Vec::new(), ..plan.clone() };
    let of_axis = |axis: Axis| {
        let cases = plan.cases.iter().filter(|case| case.op.axis == axis).cloned().collect();
        (axis.name(), WorkPlan { cases, ..alone() })
    };
    let mut parts: Vec<(&'static str, WorkPlan)> = axes.into_iter().map(of_axis).collect();
    if !plan.products.is_empty() {
        parts.push(("products", WorkPlan { products: plan.products.clone(), ..alone() }));
    }
    if !plan.copies.is_empty() {
        parts.push(("copies", WorkPlan { copies: plan.copies.clone(), ..alone() }));
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_plan_add_up_to_it() {
        for (suite, names) in
            [("qualify", &["world", "pair", "node", "nodes"][..]), ("compute", &["products"]), ("copies", &["copies"])]
        {
            let SuiteWork { plan, settings, .. } = suite_work(Path::new(suite), None, &Nodes::filled(8, 4)).unwrap();
            let parts = parts(&plan);
            assert_eq!(parts.iter().map(|(name, _)| *name).collect::<Vec<_>>(), names, "{suite}");
            let seconds: f64 = parts.iter().map(|(_, part)| part.estimated_seconds(&settings).0).sum();
            assert!((seconds / plan.estimated_seconds(&settings).0 - 1.0).abs() < 1e-9, "{suite}");
        }
    }

    #[test]
    fn a_time_for_all_cases_is_not_said_of_each_part() {
        let nodes = Nodes::filled(8, 4);
        let SuiteWork { plan, settings, .. } = suite_work(Path::new("qualify"), Some(Seconds(60.0)), &nodes).unwrap();
        let text = parts_text(&plan, &settings);
        assert!(text.contains("in 4 rounds") && !text.contains("about"), "{text}");
    }
}
