//! What is said before a machine is measured: a plan, a rehearsed suite, the thresholds that a suite measures, and the error rates of the rules.

use super::document::{Column, optional, percent, table, wrapped};
use super::locate::suspects_text;
use super::text::{visible, wrap};
use super::verdict::VerdictFormat;
use commgauge_base::units::{Bytes, Seconds, counted, three_digits};
use commgauge_judge::verdict::locate::{SuspectKind, Suspects};
use commgauge_judge::verdict::{Counted, Decision, PlanOutlook, SelfTest, TrialKind};
use commgauge_model::config::{Machine, RunSettings, is_embedded};
use commgauge_model::layout::{Axis, Nodes};
use commgauge_model::record::line::SuiteFacts;
use commgauge_model::workload::WorkPlan;
use commgauge_run::session::Request;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// Summary of a plan before a run: cases, bytes, time.
pub fn plan_text(plan: &WorkPlan, settings: &RunSettings, facts: &SuiteFacts, nodes: &Nodes) -> String {
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
        // A time for all cases is divided as they need it.
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

/// The value of `format` in every such document.
pub const REHEARSAL_FORMAT: &str = "commgauge-rehearsal";

/// The version of the format.
pub const REHEARSAL_VERSION: u32 = 1;

/// A rehearsed run: what it would take, cover and find.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Rehearsed {
    /// Always `commgauge-rehearsal`.
    pub format: String,
    /// Version of the format.
    pub version: u32,
    /// Always true: nothing was measured.
    pub synthetic: bool,
    /// Name of the suite.
    pub suite: String,
    /// Name of the machine.
    pub machine: String,
    /// Nodes of the machine file.
    pub nodes: u32,
    /// Hosts, which suspects and faults count: the nodes, but where several hosts make one.
    #[serde(default)]
    pub hosts: u32,
    /// Ranks of all nodes.
    pub ranks: u32,
    /// What was broken on purpose, in the words of `--fault`.
    pub faults: Vec<String>,
    /// Cases of the plan.
    pub cases: u64,
    /// Rounds of disjoint pairs among them.
    pub pair_rounds: u64,
    /// Replicates of each case.
    pub replicates: u32,
    /// About what the run takes where every case stops at its fewest samples.
    pub seconds_least: f64,
    /// About what it takes where every case spends its whole budget.
    pub seconds_most: f64,
    /// What `commgauge judge` says of one rehearsal.
    pub suspects: Suspects,
    /// What the machine file expects and the result; absent where it expects nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate: Option<GateOutlook>,
    /// How often the faults are found, where several seeds were requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power: Option<Power>,
}

/// What a gate would say. No synthetic row ever passes, so those that would are counted apart.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GateOutlook {
    /// Rows of the plan.
    pub rows: u32,
    /// Rows that something is expected of.
    pub rows_judged: u32,
    /// Those of them that fail.
    pub rows_failed: u32,
    /// Those of these that fail with nothing broken too, as where times scatter by more than the file leaves room for.
    #[serde(default)]
    pub rows_failed_healthy: u32,
    /// Those of them whose median meets what is expected.
    pub rows_that_would_meet: u32,
}

/// How often faults are found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Power {
    /// Rehearsals with seeds of their own.
    pub seeds: u64,
    /// Suspects that the faults should produce.
    pub planted: Vec<SuspectKind>,
    /// Rehearsals that named all of them, class and name, without other suspects.
    pub right: u64,
    /// The 95 % interval of that share.
    pub right_share_low: f64,
    /// See `right_share_low`.
    pub right_share_high: f64,
    /// Rehearsals that named all of them.
    pub all_named: u64,
    /// Rehearsals with other suspects.
    #[serde(rename = "others_accused")]
    pub others_suspected: u64,
}

/// The rehearsal as text.
pub fn rehearsal_text(document: &Rehearsed, width: u16) -> String {
    let mut out = wrapped("SYNTHETIC: a rehearsal; no data moved and no real time passed", width);
    let mut sentences = vec![
        format!(
            "suite {} on {}{}, {} ranks, of {}",
            document.suite,
            counted(document.nodes as usize, "node"),
            if document.hosts == document.nodes { String::new() } else { format!(" of {} hosts", document.hosts) },
            document.ranks,
            document.machine
        ),
        format!(
            "planted faults: {}",
            if document.faults.is_empty() { "none".to_owned() } else { document.faults.join(", ") }
        ),
        format!(
            "duration {} (each case stops at its fewest samples) to {} (each spends its budget): {} cases, {} rounds of pairs, \
             {} replicates",
            Seconds(document.seconds_least),
            Seconds(document.seconds_most),
            document.cases,
            document.pair_rounds,
            document.replicates
        ),
    ];
    if document.hosts > document.nodes && document.nodes > 1 {
        sentences.push(
            "the thresholds of a node of several hosts are about one such node: for a verdict rehearse and qualify node by node (--nodes 1)"
                .to_owned(),
        );
    }
    sentences.extend(document.gate.as_ref().map(gate_text));
    sentences.extend(document.power.as_ref().map(power_text));
    for sentence in sentences {
        out += &wrapped(&sentence, width);
    }
    // Formatting a table cannot fail.
    out + "\n" + &suspects_text(&document.suspects, VerdictFormat::Table, width).unwrap_or_default()
}

fn gate_text(gate: &GateOutlook) -> String {
    let mut text = format!(
        "thresholds: {} rows, {} judged; {} fail, {} would pass if they were measured (nothing synthetic passes)",
        gate.rows, gate.rows_judged, gate.rows_failed, gate.rows_that_would_meet
    );
    if gate.rows_failed_healthy > 0 {
        text += &format!("; {} fail without faults too", gate.rows_failed_healthy);
    }
    text
}

fn power_text(power: &Power) -> String {
    let share = |share: f64| three_digits(share * 100.0);
    let what = if power.planted.is_empty() {
        "there was no suspect"
    } else {
        "all planted faults were named and nothing else"
    };
    format!(
        "detection power: {what} in {} of {} rehearsals with seeds of their own (95 % interval {} to {} %); all named in {}, \
         others suspected in {}",
        power.right,
        power.seeds,
        share(power.right_share_low),
        share(power.right_share_high),
        power.all_named,
        power.others_suspected
    )
}

/// Places of unmeasured thresholds that are listed; further ones are only counted.
const MOST_PLACES: usize = 8;

/// How far a run of a suite on this many nodes of a machine can be judged.
pub fn outlook_text(request: &Request, machine: &Machine, nodes: u32, outlook: &PlanOutlook) -> String {
    let missing = outlook.expectations - outlook.expectations_judged;
    let mut text = format!(
        "{} on {} of {} ({} ranks), {} replicates, about {}: {} of {} thresholds will be judged, \
         {missing} not measured\n",
        request.suite.name,
        counted(nodes as usize, "node"),
        machine.name,
        request.world_size,
        request.settings.replicates,
        request.plan.estimated_seconds(&request.settings),
        outlook.expectations_judged,
        outlook.expectations,
    );
    text += &match outlook.nodes {
        0 => String::new(),
        1 => "network: not judged; the run has one node\n".to_owned(),
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
    text
}

/// The error rates of the rules as text.
pub fn selftest_text(tried: &SelfTest, width: u16) -> String {
    let columns = [
        Column::left("what", 0),
        Column::left("noise", 0),
        Column::right("counted", 0),
        Column::right("share", 2),
        Column::right("95 % interval", 1),
        Column::right("promised", 0),
        Column::left("held", 0),
    ];
    let rows: Vec<Vec<String>> = (tried.trials.iter())
        .map(|trial| {
            let side = if trial.asked.is_power() { "at least" } else { "at most" };
            let promised =
                trial.promised.map_or("nothing".to_owned(), |promised| format!("{side} {}", percent(promised, 1)));
            let [count, share, interval] = cells(&trial.counted);
            let decision_text = trial.decision.map_or("-", decision_text).to_owned();
            vec![
                what(trial.asked).to_owned(),
                trial.noise.name().to_owned(),
                count,
                share,
                interval,
                promised,
                decision_text,
            ]
        })
        .collect();
    let mut out = table(&columns, &rows, width);
    let mut say = |text: String| out += &(wrap(&visible(&text), usize::from(width), 4) + "\n");
    if let Some(history) = &tried.history {
        say(format!("own runs: {} records", history.records));
        for (name, counted) in [
            ("runs against the next like them", &history.run_against_run),
            ("halves of runs", &history.half_against_half),
        ] {
            let [count, share, interval] = cells(counted);
            say(format!("{name}: false alarms in {count} comparisons, {share} ({interval})"));
        }
        for left_out in &history.left_out {
            say(format!("left out: {left_out}"));
        }
    }
    say(format!(
        "comparisons of {} rows, {} replicates of each side, noise {} from run to run, seed {}; gates of one row",
        tried.rule.rows,
        tried.rule.replicates,
        percent(tried.rule.sigma, 1),
        tried.rule.seed
    ));
    say("thresholds are tried on a machine whose true median is at the limit, and 5 % beyond it; nothing is promised where a \
         machine drifts from run to run, which no rule can distinguish from a change".to_owned());
    say(tried.summary());
    say(match tried.holds {
        true => "no promise is broken".to_owned(),
        false => "a promise is BROKEN beyond chance".to_owned(),
    });
    out
}

fn what(asked: TrialKind) -> &'static str {
    match asked {
        TrialKind::CompareFalseAlarm => "compare: false alarm",
        TrialKind::ComparePower => "compare: 5 % found",
        TrialKind::GateFalsePass => "gate: false pass",
        TrialKind::GateFalseFail => "gate: false fail",
        TrialKind::GatePower => "gate: 5 % found",
    }
}

/// A share that is on the promised side by a statistically insignificant margin is called likely, not shown.
fn decision_text(decision: Decision) -> &'static str {
    match decision {
        Decision::Pass => "shown",
        Decision::Fail | Decision::Error => "BROKEN",
        Decision::Inconclusive => "not refuted",
    }
}

fn cells(counted: &Counted) -> [String; 3] {
    let share = match counted.of {
        0 => "-".to_owned(),
        of => percent(counted.count as f64 / of as f64, 1),
    };
    let interval = counted.lower_bound.zip(counted.upper_bound);
    let interval = optional(interval.map(|(low, high)| format!("{} .. {}", percent(low, 1), percent(high, 1))));
    [format!("{} of {}", counted.count, counted.of), share, interval]
}

#[cfg(test)]
mod tests {
    use super::*;
    use commgauge_model::config::Suite;
    use std::path::Path;

    fn planned(suite: &str) -> (WorkPlan, RunSettings) {
        let suite = Suite::load(Path::new(suite)).unwrap();
        (WorkPlan::from_suite_on(&suite, &Nodes::filled(8, 4)).unwrap(), suite.settings)
    }

    #[test]
    fn the_parts_of_a_plan_add_up_to_it() {
        for (suite, names) in
            [("qualify", &["world", "pair", "node", "nodes"][..]), ("compute", &["products"]), ("copies", &["copies"])]
        {
            let (plan, settings) = planned(suite);
            let parts = parts(&plan);
            assert_eq!(parts.iter().map(|(name, _)| *name).collect::<Vec<_>>(), names, "{suite}");
            let seconds: f64 = parts.iter().map(|(_, part)| part.estimated_seconds(&settings).0).sum();
            assert!((seconds / plan.estimated_seconds(&settings).0 - 1.0).abs() < 1e-9, "{suite}");
        }
    }

    #[test]
    fn a_time_for_all_cases_is_not_said_of_each_part() {
        let (plan, settings) = planned("qualify");
        let text = parts_text(&plan, &settings.divided(Seconds(60.0)).unwrap());
        assert!(text.contains("in 4 rounds") && !text.contains("about"), "{text}");
    }
}
