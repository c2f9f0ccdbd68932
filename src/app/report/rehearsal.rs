//! What is said before a machine is measured: a plan, a rehearsed suite, the thresholds that a suite measures, and the error rates of the rules.

use super::document::{Fields, between, optional, percent, wrapped};
use super::locate::suspects_text;
use super::text::{visible, wrap};
use super::verdict::VerdictLook;
use commgauge_base::units::{Bytes, Seconds, counted, three_digits};
use commgauge_base::writing::ascending;
use commgauge_judge::verdict::locate::{SuspectKind, Suspects};
use commgauge_judge::verdict::{Counted, Decision, PlanOutlook, SelfTest, Trial, TrialKind};
use commgauge_model::config::{Machine, RunSettings, is_embedded};
use commgauge_model::layout::{Axis, Nodes};
use commgauge_model::record::line::SuiteFacts;
use commgauge_model::workload::WorkPlan;
use commgauge_run::launch_check::{Difference, HostRow, LaunchReport};
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
    let axes: Vec<Axis> = ascending(plan.cases.iter().map(|case| case.op.axis));
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
#[serde_with::skip_serializing_none]
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
    pub gate: Option<GateOutlook>,
    /// How often the faults are found, where several seeds were requested.
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
pub fn rehearsal_text(document: &Rehearsed, look: VerdictLook) -> String {
    let width = look.width;
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
    // The first line says that all of it is synthetic.
    let mut suspects = Suspects { synthetic: false, ..document.suspects.clone() };
    suspects.problems.retain(|problem| !problem.text.contains("synthetic: "));
    // Formatting a table cannot fail.
    out + "\n" + &suspects_text(&suspects, look).unwrap_or_default()
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
    if outlook.shortfalls.is_empty() {
        text += "a run of it can pass\n";
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
    text
}

/// The error rates of the rules as text.
pub fn selftest_text(tried: &SelfTest, width: u16) -> String {
    let side = |asked: TrialKind| if asked.is_power() { "at least" } else { "at most" };
    let promised = |trial: &Trial| match trial.promised {
        Some(promised) => format!("{} {}", side(trial.asked), percent(promised, 1)),
        None => "nothing".to_owned(),
    };
    let mut out = Fields::of(&tried.trials)
        .left("what", 0, |trial| what(trial.asked))
        .left("noise", 0, |trial| trial.noise.name())
        .right("counted", 0, |trial| count(&trial.counted))
        .right("share", 2, |trial| share_of(&trial.counted))
        .right("95 % interval", 1, |trial| interval(&trial.counted))
        .right("promised", 0, |trial| promised(trial))
        .left("held", 0, |trial| trial.decision.map_or("-", decision_text))
        .text(width);
    let mut say = |text: String| out += &(wrap(&visible(&text), usize::from(width), 4) + "\n");
    if let Some(history) = &tried.history {
        say(format!("own runs: {} records", history.records));
        for (name, counted) in [
            ("runs against the next like them", &history.run_against_run),
            ("halves of runs", &history.half_against_half),
        ] {
            let (count, share, interval) = (count(counted), share_of(counted), interval(counted));
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
    say("thresholds are tried on a machine whose true median is at the threshold, and 5 % beyond it; nothing is promised where a \
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

fn count(counted: &Counted) -> String {
    format!("{} of {}", counted.count, counted.of)
}

fn share_of(counted: &Counted) -> String {
    optional((counted.of > 0).then(|| percent(counted.count as f64 / counted.of as f64, 1)))
}

fn interval(counted: &Counted) -> String {
    between(counted.lower_bound, counted.upper_bound, " .. ", |share| percent(share, 1))
}

// A launch check as text: the facts that all ranks share, the differences, and the messages.

/// Maximum number of hosts listed; if there are more, those that differ from the first one come first.
const SHOWN_HOSTS: usize = 16;

/// Longer values are cut in the table.
const MAX_VALUE_COLUMNS: usize = 44;

/// The complete text, for `--check-launch`.
pub fn launch_check_text(report: &LaunchReport, width: u16) -> String {
    let mut text = summary(report, width);
    text += "\n";
    text += &hosts(report, width);
    if !report.shared.is_empty() {
        text += "\nThe same on all ranks:\n";
        for one in &report.shared {
            text += &item("  ", &format!("{}: {}", one.what, visible(&one.value)), width);
        }
    }
    if !report.differences.is_empty() {
        text += "\nWhere ranks differ:\n";
        text += &differences(&report.differences, width);
    }
    for (heading, sentences) in
        [("Refused, with exit code 7:", &report.refusals), ("Warnings:", &report.warnings), ("Notes:", &report.notes)]
    {
        if !sentences.is_empty() {
            text += &format!("\n{heading}\n");
            sentences.iter().for_each(|sentence| text += &item("  * ", &visible(sentence), width));
        }
    }
    text
}

/// A paragraph with a prefix, whose further lines are indented.
fn item(before: &str, text: &str, width: u16) -> String {
    let room = usize::from(width).saturating_sub(before.len().max(4)).max(20);
    before.to_owned() + &wrap(text, room, 0).replace('\n', &format!("\n{}", " ".repeat(before.len().max(4)))) + "\n"
}

/// The reasons for refusing a launch, for standard error.
pub fn refusal(report: &LaunchReport, width: u16) -> String {
    let mut text = report.refusals.iter().map(|text| visible(text)).collect::<Vec<_>>().join("\n");
    let refused: Vec<Difference> = report.differences.iter().filter(|one| one.refused).cloned().collect();
    if refused.len() > 1 {
        text += "\n\n";
        text += differences(&refused, width).trim_end();
    }
    text
}

fn summary(report: &LaunchReport, width: u16) -> String {
    let (ranks, hosts) = (report.ranks, report.hosts.len());
    let launcher = match &report.launcher_says {
        Some(counts) => format!("the launcher reports {counts}"),
        None => "the launcher does not report a number".to_owned(),
    };
    let verdict = match (report.refusals.len(), report.warnings.len()) {
        (0, 0) => "ready to measure".to_owned(),
        (0, warnings) => format!("ready to measure, {}", counted(warnings, "warning")),
        _ => "not ready to measure".to_owned(),
    };
    let (ranks, hosts) = (counted(ranks as usize, "rank"), counted(hosts, "host"));
    wrapped(&format!("{ranks} on {hosts}; {}: {verdict}", visible(&launcher)), width)
}

fn hosts(report: &LaunchReport, width: u16) -> String {
    let limit = |value: Option<u64>, shown: fn(u64) -> String| value.map_or_else(|| "unlimited".to_owned(), shown);
    let mut all: Vec<_> = report.hosts.iter().collect();
    let few = all.len() <= SHOWN_HOSTS;
    if !few {
        let key = |host: &HostRow| (host.binding.clone(), host.rank_count, host.memory_lock_bytes, host.open_files);
        all.sort_by_key(|host| report.hosts.first().is_some_and(|first| key(first) == key(host)));
    }
    let table = Fields::of(all.into_iter().take(SHOWN_HOSTS))
        .left("host", 0, |host| visible(&host.host))
        .left("ranks", 0, |host| host.ranks.clone())
        .right("processors", 2, |host| host.processors)
        .left("binding", 0, |host| host.binding.clone())
        .right("may lock", 1, |host| limit(host.memory_lock_bytes, |bytes| Bytes(bytes).to_string()))
        .right("open files", 3, |host| limit(host.open_files, |files| files.to_string()))
        .text(width);
    let more = if few { String::new() } else { format!("and {} more hosts\n", report.hosts.len() - SHOWN_HOSTS) };
    table + &more
}

fn differences(differences: &[Difference], width: u16) -> String {
    let shortened = |value: &str| {
        let shown = visible(value);
        match shown.chars().count() {
            length if length > MAX_VALUE_COLUMNS => {
                shown.chars().take(MAX_VALUE_COLUMNS - 3).chain("...".chars()).collect()
            }
            _ => shown,
        }
    };
    let values = differences.iter().flat_map(|one| one.values.iter().zip(0..).map(move |(value, at)| (one, value, at)));
    Fields::of(values)
        .left("what", 0, |(difference, _, at)| if *at == 0 { visible(&difference.what) } else { String::new() })
        .left("value", 0, |(_, value, _)| shortened(&value.value))
        .left("ranks", 0, |(_, value, _)| value.ranks.clone())
        .text(width)
}

#[cfg(test)]
mod tests {
    use super::*;
    use commgauge_model::config::Suite;
    use commgauge_run::launch_check::{HostRow, Shared, Value};
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

    fn report() -> LaunchReport {
        let host = |host: &str, ranks: &str, lock| HostRow {
            host: host.into(),
            ranks: ranks.into(),
            rank_count: 2,
            processors: 2,
            binding: "own cores".into(),
            ranks_share_processors: false,
            memory_lock_bytes: lock,
            open_files: Some(1024),
        };
        let value = |value: &str, ranks: &str| Value { value: value.into(), ranks: ranks.into(), rank_count: 2 };
        LaunchReport {
            ranks: 4,
            launcher_says: Some("4 (OMPI_COMM_WORLD_SIZE)".into()),
            hosts: vec![host("host0", "0, 1", None), host("host1\u{1b}[31m", "2, 3", Some(1 << 16))],
            shared: vec![Shared { what: "MPI library".into(), value: "Open MPI v4.1.4".into() }],
            differences: vec![
                Difference {
                    what: "NCCL_ALGO".into(),
                    refused: true,
                    values: vec![value("Ring", "0, 1"), value("not set", "2, 3")],
                },
                Difference {
                    what: "OMP_NUM_THREADS".into(),
                    refused: true,
                    values: vec![value("1", "0, 1"), value("64", "2, 3")],
                },
            ],
            refusals: vec![
                "the ranks do not have the same NCCL_ALGO: Ring on ranks 0, 1; not set on ranks 2, 3".into(),
            ],
            warnings: vec![
                "some hosts allow less locked memory than the others, which allow unlimited: 64 KiB on host1".into(),
            ],
            notes: vec!["ranks of host host0 are not bound to cores: all 2 may run on cores 0-3".into()],
            ..LaunchReport::default()
        }
    }

    #[test]
    fn what_differs_is_one_table_and_the_reasons_follow() {
        let shown = launch_check_text(&report(), 80);
        assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
        insta::assert_snapshot!(shown);
    }

    #[test]
    fn a_refusal_begins_with_the_reason_and_shows_the_table_for_several() {
        let text = refusal(&report(), 80);
        assert!(text.starts_with("the ranks do not have the same NCCL_ALGO"), "{text}");
        assert!(text.contains("OMP_NUM_THREADS  1        0, 1"), "{text}");
    }

    #[test]
    fn among_thousands_of_hosts_those_that_differ_are_shown() {
        let mut report = report();
        report.hosts = (0..2048).map(|n| HostRow { host: format!("n{n}"), ..report.hosts[0].clone() }).collect();
        report.hosts[2000].memory_lock_bytes = Some(4096);
        let shown = hosts(&report, 80);
        assert!(shown.contains("n2000") && shown.contains("and 2032 more hosts"), "{shown}");
        assert!(shown.lines().count() < 22);
    }
}
