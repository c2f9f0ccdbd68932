//! What is said before a machine is measured: a plan, a rehearsed suite, the thresholds that a suite measures, and the error rates of the rules.

use super::document::wrapped;
use super::locate::suspects_text;
use super::template::{lines, prose};
use super::text::visible;
use super::verdict::VerdictLook;
use commgauge_base::units::counted;
use commgauge_base::writing::ascending;
use commgauge_judge::verdict::locate::{SuspectKind, Suspects};
use commgauge_judge::verdict::{PlanOutlook, SelfTest};
use commgauge_model::config::{Machine, RunSettings, is_embedded};
use commgauge_model::layout::{Axis, Nodes};
use commgauge_model::record::line::SuiteFacts;
use commgauge_model::workload::{Case, CopyShape, WorkPlan};
use commgauge_run::launch_check::{Difference, HostRow, LaunchReport};
use commgauge_run::session::Request;
use minijinja::context;
use minijinja::value::Serde;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Summary of a plan before a run: cases, bytes, time.
pub fn plan_text(plan: &WorkPlan, settings: &RunSettings, facts: &SuiteFacts, nodes: &Nodes) -> String {
    let case = |case: &Case| {
        let groups = plan.groups_of(case);
        let size = match case.op.geometry(groups.group_size()) {
            Ok(geometry) => geometry.bytes_total.to_string(),
            Err(reason) => format!("{} (will be skipped: {reason})", case.op.bytes_total),
        };
        context! { name => case.name(), groups => groups.groups.len(), ranks => groups.group_size(), size }
    };
    let part = |(name, part): (&str, WorkPlan)| {
        let mut rounds: Vec<usize> = part.cases.iter().map(|case| case.groups).collect();
        rounds.dedup();
        let has_pairs = part.cases.iter().any(|case| case.op.axis == Axis::Pair);
        // A time for all cases is divided as they need it.
        let is_divided = settings.within.is_some() && !part.cases.is_empty();
        context! {
            name, rounds => has_pairs.then_some(rounds.len()),
            cases => part.cases.len() + part.products.len() + part.copies.len(),
            time => (!is_divided).then(|| part.estimated_seconds(settings).to_string()),
        }
    };
    let replicates = counted(settings.replicates as usize, "replicate");
    let answer = context! {
        suite => &facts.name, embedded => facts.path.as_deref().is_some_and(is_embedded),
        ranks => nodes.ranks(), nodes => nodes.count(), model => plan.model.as_deref(), layout => plan.layout.as_deref(),
        times => settings.within.map_or(replicates, |within| format!("as often as {within} allows")),
        longest => plan.cases.iter().map(|case| case.name().len()).max().unwrap_or(0),
        cases => plan.cases.iter().map(case).collect::<Vec<_>>(),
        copies => plan.copies.iter().map(CopyShape::name).collect::<Vec<_>>(),
        largest => plan.largest_bytes().to_string(), time => plan.estimated_seconds(settings).to_string(),
        parts => parts(plan).into_iter().map(part).collect::<Vec<_>>(),
    };
    prose("dry_run.txt", include_str!("templates/dry_run.txt"), answer)
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
    let sentences = lines("rehearsal.txt", include_str!("templates/rehearsal.txt"), Serde(document).into());
    // The first line says that all of it is synthetic.
    let mut suspects = Suspects { synthetic: false, ..document.suspects.clone() };
    suspects.problems.retain(|problem| !problem.text.contains("synthetic: "));
    let suspects = suspects_text(&suspects, look);
    // Formatting a table cannot fail.
    let paragraphs: String = sentences.iter().map(|sentence| wrapped(sentence, look.width)).collect();
    paragraphs + "\n" + &suspects.unwrap_or_default()
}

/// How far a run of a suite on this many nodes of a machine can be judged.
pub fn outlook_text(request: &Request, machine: &Machine, nodes: u32, outlook: &PlanOutlook) -> String {
    let answer = context! {
        nodes, machine => &machine.name, hosts_per_node => machine.hosts_per_node, suite => &request.suite.name,
        ranks => request.world_size, replicates => request.settings.replicates,
        time => request.plan.estimated_seconds(&request.settings).to_string(),
        expectations => outlook.expectations, expectations_judged => outlook.expectations_judged,
        not_measured => &outlook.not_measured, shortfalls => &outlook.shortfalls, spanned => outlook.nodes,
        rows_between_nodes => outlook.rows_between_nodes,
    };
    prose("outlook.txt", include_str!("templates/outlook.txt"), answer)
}

/// The error rates of the rules as text.
pub fn selftest_text(tried: &SelfTest, width: u16) -> String {
    let said = |part: &str| context! { part, width, summary => tried.summary(), ..Serde(tried) };
    let source = include_str!("templates/selftest.txt");
    let below = lines("selftest.txt", source, said("below"));
    below
        .iter()
        .fold(prose("selftest.txt", source, said("table")), |text, sentence| text + &wrapped(&visible(sentence), width))
}

// A launch check as text: the facts that all ranks share, the differences, and the messages.

/// Maximum number of hosts listed; if there are more, those that differ from the first one come first.
const SHOWN_HOSTS: usize = 16;

/// The complete text, for `--check-launch`.
pub fn launch_check_text(report: &LaunchReport, width: u16) -> String {
    let (shown_hosts, differences) = (Serde(shown_hosts(report)), differences(&report.differences, width));
    let answer = context! { width, shown_hosts, tables => context! { differences }, ..Serde(report) };
    prose("launch_check.txt", include_str!("templates/launch_check.txt"), answer)
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

fn shown_hosts(report: &LaunchReport) -> Vec<&HostRow> {
    let mut all: Vec<_> = report.hosts.iter().collect();
    if all.len() > SHOWN_HOSTS {
        let key = |host: &HostRow| (host.binding.clone(), host.rank_count, host.memory_lock_bytes, host.open_files);
        all.sort_by_key(|host| report.hosts.first().is_some_and(|first| key(first) == key(host)));
    }
    all.into_iter().take(SHOWN_HOSTS).collect()
}

fn differences(differences: &[Difference], width: u16) -> String {
    let context = context! { width, differences => Serde(differences) };
    prose("differences.txt", include_str!("templates/differences.txt"), context)
}

#[cfg(test)]
mod tests {
    use super::*;
    use commgauge_base::units::Seconds;
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
        let settings = settings.divided(Seconds(60.0)).unwrap();
        let text = plan_text(&plan, &settings, &SuiteFacts::default(), &Nodes::filled(8, 4));
        let (_, parts) = text.split_once("of which:").unwrap();
        assert!(parts.contains("in 4 rounds") && !parts.contains("about"), "{text}");
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
        let shown = launch_check_text(&report, 80);
        assert!(shown.contains("n2000") && shown.contains("and 2032 more hosts"), "{shown}");
        assert_eq!(shown.lines().filter(|line| line.starts_with('n')).count(), SHOWN_HOSTS, "{shown}");
    }
}
