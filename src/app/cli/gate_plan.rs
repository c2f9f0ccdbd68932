//! `commgauge gate --plan SUITE --machine M`: how many thresholds a suite will be judged by, before it is run.

use super::places;
use super::simulate::ranks_of_nodes;
use super::suite::{SuiteWork, suite_work};
use super::table_or_json::print_on;
use commgauge_analysis::verdict::{PlannedWork, plan_outlook};
use commgauge_base::error::Result;
use commgauge_base::units::counted;
use commgauge_model::config::{Machine, Shipped};
use commgauge_model::layout::Nodes;
use commgauge_model::record::copy_line::CopyFacts;
use commgauge_model::record::product_line::ProductFacts;
use commgauge_run::session::{Rehearsal, Request};
use std::io::Write;
use std::path::Path;

/// The exit code of a plan of which no run can pass.
const CANNOT_PASS: i32 = 3;
/// Places of thresholds that are not measured, of which more are only counted.
const MOST_PLACES: usize = 8;

/// Writes how far a suite on so many nodes of a machine can be judged; 0 where a run of it can pass.
pub(super) fn judge_plan(
    suite: &Path,
    machine: &Path,
    nodes: u32,
    confidence: f64,
    out: &mut dyn Write,
) -> Result<i32> {
    places::report_resolved_file(Shipped::Suite, suite);
    places::report_resolved_file(Shipped::Machine, machine);
    let machine = Machine::load(machine)?;
    let ranks = ranks_of_nodes(&machine, nodes)?;
    let well = Machine { faults: Vec::new(), ..machine.clone() };
    // Records tell hosts, of which several may make one node of the machine.
    let nodes_of_record = Nodes::filled(ranks, machine.ranks_per_host());
    let SuiteWork { plan, settings, facts } = suite_work(suite, None, &nodes_of_record)?;
    let replicates = settings.replicates;
    let request = Request::simulated(places::new_run_id(), facts, plan, settings, &well, ranks);
    let seconds = request.plan.estimated_seconds(&request.settings);
    let planned = PlannedWork {
        cases: Rehearsal::new(&request)?.planned_cases(),
        hosts: machine.hosts_of(ranks),
        copies: request.plan.copies.iter().map(CopyFacts::of).collect(),
        products: request.plan.products.iter().map(ProductFacts::of).collect(),
    };
    let outlook = plan_outlook(&machine, &planned, replicates, confidence);
    let missing = outlook.expectations - outlook.expectations_judged;
    let mut text = format!(
        "{} on {} of {} ({ranks} ranks), {replicates} replicates, about {seconds}: {} of {} thresholds will be judged, \
         {missing} not measured\n",
        request.suite.name,
        counted(nodes as usize, "node"),
        machine.name,
        outlook.expectations_judged,
        outlook.expectations,
    );
    text += &match outlook.nodes {
        0 => String::new(),
        1 => "network: not judged, since the run is of one node\n".to_owned(),
        _ => format!("network: {} between nodes will be judged\n", counted(outlook.rows_between_nodes, "row")),
    };
    for place in outlook.not_measured.iter().take(MOST_PLACES) {
        text += &format!("not measured: {place}\n");
    }
    if outlook.not_measured.len() > MOST_PLACES {
        text += &format!("and {} more\n", outlook.not_measured.len() - MOST_PLACES);
    }
    for reason in &outlook.shortfalls {
        text += &format!("cannot pass: {reason}\n");
    }
    if machine.hosts_per_node > 1 && nodes > 1 && !outlook.shortfalls.is_empty() {
        text += &format!(
            "a node of {} is {} hosts: qualify node by node (--nodes 1), each by a run on its hosts alone\n",
            machine.name, machine.hosts_per_node
        );
    }
    if outlook.shortfalls.is_empty() {
        text += "a run of it can pass\n";
    }
    print_on(out, &text)?;
    Ok(if outlook.shortfalls.is_empty() { 0 } else { CANNOT_PASS })
}
