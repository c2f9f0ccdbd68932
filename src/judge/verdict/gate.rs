//! Does a machine meet its expectations? Every row with an expectation passes, fails, or is inconclusive.

use super::comparability::{LoadedRecord, ensure_comparable};
use super::document::{Coverage, FORMAT, FalseAlarms, Question, Row, VERSION, Verdict};
use super::evidence::{Evidence, Gathered, OneRun, gather};
use super::expected::{Algorithms, Expected, LimitCheck, PLAINLY_BEYOND, check_limit, variant, variant_words};
use super::locate::{Measure, Suspects};
use super::network::Judged;
use super::permutation::Alone;
use super::rules::rules;
use super::{Allowed, Decision, Problem, RowCall, learned_file, most_severe, network};
use super::{counters, transport};
use commgauge_base::collective::Collective;
use commgauge_base::error::Result;
use commgauge_base::stats::{fewest_for_bound, median};
use commgauge_base::units::{Rate, counted};
use commgauge_base::visible::ShownPath;
use commgauge_model::config::Machine;
use commgauge_model::layout::Axis;
use std::path::Path;

/// Thresholds of a gate.
#[derive(Clone, Debug)]
pub struct GateRule {
    /// Confidence of each bound, one-sided.
    pub confidence: f64,
    /// Accepted differences between records of the machine.
    pub allowed: Vec<Allowed>,
}

/// Compares records of one machine with the expectations of its file. Several records count as replicates of each other.
///
/// # Errors
/// A usage error if the records are not comparable, or one run is given twice.
pub fn gate(records: &[LoadedRecord], machine: Option<&Machine>, rule: &GateRule) -> Result<Verdict> {
    ensure_comparable(&records.iter().collect::<Vec<_>>(), &rule.allowed)?;
    let Gathered { mut cases, runs, mut problems, mut slow_periods } = gather(records, &rule.allowed);
    if let Some(machine) = machine {
        flag_other_machine(records, machine, &mut cases);
        problems.extend(records.iter().flat_map(|loaded| network::mismatches(loaded, machine)));
    }
    problems.extend(records.iter().flat_map(|loaded| counters::problems(loaded, machine)));
    problems.extend(records.iter().flat_map(|loaded| transport::problems(loaded, machine)));
    let with_network = machine.map(|machine| network::expecting(machine, records));
    let machine = with_network.as_ref();
    let expectations = machine.map_or(0, Machine::thresholds);
    let environment = records.first().map(|loaded| &loaded.record.header.environment);
    let expected = Expected::new(machine);
    let about: Vec<Vec<usize>> = (cases.iter())
        .map(|case| expected.about(case.subject, Algorithms { environment, chosen: &case.chosen }))
        .collect();
    cases.iter_mut().for_each(flag_mean_over_ranks);
    if let Some(machine) = machine {
        flag_beyond_links(machine, &expected, &about, &mut cases);
    }
    let is_own = |index: &usize| expected.of_call(*index).is_none_or(|one| one.table.rows.is_none());
    let mut own = about.clone();
    own.iter_mut().for_each(|about| about.retain(is_own));
    for (rule, expectation) in rules(&cases, &about, &expected) {
        cases.push(rule);
        own.push(vec![expectation]);
    }
    let mut alone = Alone::default();
    let span = network::Span::of(records, machine);
    let mut rows: Vec<Row> = (cases.iter_mut().zip(&own).enumerate())
        .map(|(index, (case, own))| {
            let mut row = row(case, own, &expected, rule.confidence);
            if own.is_empty() && !about[index].is_empty() {
                row.reasons = vec!["judged together with others, by a rule over several rows".to_owned()];
            }
            row.between_nodes = case.subject.call().is_some_and(|facts| span.is_crossed_by(facts));
            alone.apply(&mut row, &runs, &by_run(case, own, &expected, rule.confidence));
            row
        })
        .collect();
    counters::explain(&mut rows, records);
    name_hosts_that_differ(&mut rows);
    let judged = Judged {
        expectations: about.iter().flatten().copied().collect(),
        cases: cases
            .iter()
            .zip(&about)
            .filter(|(_, about)| !about.is_empty())
            .filter_map(|(case, _)| case.subject.call())
            .collect(),
        network: span,
    };
    let coverage = Coverage {
        expectations: expectations as u32,
        expectations_judged: judged.expectations.len() as u32,
        expectations_without_row: (expectations - judged.expectations.len()) as u32,
        nodes: judged.network.nodes,
        rows_judged_between_nodes: judged.between_nodes().count() as u32,
        ..coverage(&rows, &cases)
    };
    if coverage.rows_judged == 0 {
        let of_variant =
            cases.iter().filter_map(|case| case.subject.call().map(variant)).find(|variant| !variant.is_empty());
        let text = match of_variant.filter(|_| machine.is_some()) {
            None => nothing_expected(machine),
            Some(variant) => format!(
                "{}; its calls used {}, and expectations without `variant` are for plain calls",
                nothing_expected(machine),
                variant_words(&variant)
            ),
        };
        problems.push(Problem { exit_code: 3, text });
    } else if let Some(machine) = machine {
        problems.extend(network::shortfalls(machine, &judged));
    }
    let slowed = rows.iter().zip(&cases).filter(|(_, case)| case.in_slow_period);
    let decisions: Vec<Decision> = slowed.filter_map(|(row, _)| row.decision).collect();
    if !decisions.is_empty() && decisions.iter().all(|decision| *decision == Decision::Pass) {
        slow_periods.iter_mut().for_each(excuse_slow_period);
    }
    problems.extend(slow_periods);
    problems.extend(alone.problems(&runs, coverage.rows_judged as usize));
    let template = learned_file::of(&cases, &about);
    let exit_code = most_severe(problems.iter().map(|problem| problem.exit_code).chain(rows.iter().map(exit_code_of)));
    Ok(Verdict {
        format: FORMAT.to_owned(),
        version: VERSION,
        question: Question::Gate,
        decision: Decision::from_exit_code(exit_code),
        exit_code,
        rule: describe_rule(rule, coverage.rows_judged, runs.len()),
        runs: records.iter().map(|loaded| loaded.run("judged")).collect(),
        machine: machine.map(|machine| format!("{} ({})", machine.name, machine.path.shown())),
        false_alarms: FalseAlarms {
            level: 1.0 - rule.confidence,
            over_all_rows: false,
            rows: coverage.rows_judged,
            expected_at_most: (1.0 - rule.confidence) * f64::from(coverage.rows_judged),
        },
        coverage,
        problems,
        rows,
        findings: Vec::new(),
        curves: Vec::new(),
        template,
    })
}

/// Gates records of a machine without a file: the verdict is inconclusive and contains a template of a machine file.
///
/// # Errors
/// As [`gate`].
pub fn gate_new_machine(records: &[LoadedRecord], name: &str, rule: &GateRule) -> Result<Verdict> {
    let mut verdict = gate(records, None, rule)?;
    let most =
        verdict.rows.iter().filter_map(|row| Some(row.subject.call()?.locality.ranks_per_node)).max().unwrap_or(1);
    verdict.template = Some(learned_file::machine_head(name, most) + verdict.template.as_deref().unwrap_or_default());
    Ok(verdict)
}

/// The exit code of a row. Wrong and missing data have their own exit codes, as warnings about the record.
pub(super) fn exit_code_of(row: &Row) -> i32 {
    match row.decision {
        Some(Decision::Fail) => 1,
        Some(Decision::Inconclusive | Decision::Error) => 3,
        Some(Decision::Pass) | None => 0,
    }
}

/// Counts of judged rows and replicates.
pub(super) fn coverage(rows: &[Row], cases: &[Evidence]) -> Coverage {
    let count = |wanted: Option<Decision>| rows.iter().filter(|row| row.decision == wanted).count() as u32;
    let judged = || rows.iter().zip(cases).filter(|(row, _)| row.decision.is_some());
    Coverage {
        rows: rows.len() as u32,
        rows_judged: judged().count() as u32,
        rows_passed: count(Some(Decision::Pass)),
        rows_failed: count(Some(Decision::Fail)),
        rows_inconclusive: count(Some(Decision::Inconclusive)),
        rows_not_judged: count(None),
        replicates_planned: judged().map(|(_, case)| case.seconds.len() as u64).sum(),
        replicates_measured: judged().map(|(_, case)| case.seconds.iter().flatten().count() as u64).sum(),
        ..Coverage::default()
    }
}

/// A row without a decision.
pub(super) fn undecided_row(case: &Evidence) -> Row {
    Row {
        name: std::iter::once(&*case.subject.name()).chain(case.over.as_deref()).collect::<Vec<_>>().join("/"),
        subject: case.subject.of_row(),
        hosts: Some(case.hosts.to_string()),
        over: case.over.clone(),
        decision: None,
        between_nodes: false,
        reasons: case.shortfalls.clone(),
        replicates: case.seconds.iter().flatten().count() as u32,
        replicates_more: None,
        against_limit: None,
        against_base: None,
    }
}

/// Hosts are named if rows have different ones.
pub(super) fn name_hosts_that_differ(rows: &mut [Row]) {
    if rows.iter().all(|row| row.hosts == rows[0].hosts) {
        rows.iter_mut().for_each(|row| row.hosts = None);
    }
}

/// A slow period in which every judged row meets its thresholds is a warning.
fn excuse_slow_period(problem: &mut Problem) {
    problem.exit_code = 0;
    problem.text += "; the judged rows of that period meet their thresholds anyway";
}

/// The results of all expectations about a row.
fn limit_checks(case: &Evidence, about: &[usize], expected: &Expected, seconds: &[f64], level: f64) -> Vec<LimitCheck> {
    about.iter().map(|index| check_limit(&expected.required(*index), case.subject, seconds, level)).collect()
}

fn worst_of(checks: Vec<LimitCheck>) -> Option<LimitCheck> {
    checks.into_iter().reduce(|worst, next| if next.decision > worst.decision { next } else { worst })
}

/// Judges each of several runs separately: if one fails, or its median misses the limit, the row does not pass. One with too few replicates
/// for bounds fails nothing, however slow it was: the other runs show that the machine can do better.
fn by_run(case: &Evidence, about: &[usize], expected: &Expected, level: f64) -> Vec<(usize, Decision, String)> {
    let judged = case.by_run().into_iter().map(|OneRun { run, seconds, .. }| {
        let checks = limit_checks(case, about, expected, &seconds, level);
        let misses = |check: &LimitCheck| !check.median_meets_the_limit;
        let Some(worst) = checks.into_iter().filter(misses).max_by_key(|check| check.decision) else {
            return (run, Decision::Pass, String::new());
        };
        let most = if worst.against.upper_bound.is_some() { Decision::Fail } else { Decision::Inconclusive };
        let reason = format!("{} of {} replicates are beyond the threshold", worst.beyond, seconds.len());
        (run, worst.decision.min(most), reason)
    });
    judged.collect()
}

/// With several expectations about one row the worst result counts, so that adding one never improves the row.
fn row(case: &mut Evidence, about: &[usize], expected: &Expected, level: f64) -> Row {
    let checks = |case: &Evidence, seconds: &[f64]| limit_checks(case, about, expected, seconds, level);
    let measured = checks(case, &case.measured());
    // Slowness only adds to a time: if the slow replicates meet the limits too, they do not count against the row.
    if !measured.is_empty() && measured.iter().all(|check| check.all_meet_the_limit) {
        case.accept_slow_period();
    }
    let mut row = undecided_row(case);
    let Some(mut worst) = worst_of(measured) else {
        let variant = case.subject.call().map(variant).unwrap_or_default();
        if !variant.is_empty() {
            let words = variant_words(&variant);
            row.reasons.push(format!("submitted with {words}: no expectation covers such calls"));
        }
        return row;
    };
    // A transient slowdown says nothing about the machine: the row fails only if it fails without it too.
    let without =
        case.steady().filter(|_| worst.decision == Decision::Fail).and_then(|seconds| worst_of(checks(case, &seconds)));
    if without.is_some_and(|without| without.decision != Decision::Fail) {
        worst.decision = Decision::Inconclusive;
        worst.reason += "; it would not fail without the slow period of the machine";
    }
    row.decision = Some(cap_decision(worst.decision, case));
    row.reasons.splice(0..0, (!worst.reason.is_empty()).then_some(worst.reason));
    row.replicates_more = worst.replicates_more;
    row.against_limit = Some(worst.against);
    row
}

/// Caps a decision: a row with any shortfall does not pass, and a failed row never improves.
pub(super) fn cap_decision(decision: Decision, case: &Evidence) -> Decision {
    match case {
        case if case.corrupt => decision.max(Decision::Fail),
        case if !case.shortfalls.is_empty() => decision.max(Decision::Inconclusive),
        _ => decision,
    }
}

/// Marks all rows as unreliable if a record names another machine file.
fn flag_other_machine(records: &[LoadedRecord], machine: &Machine, cases: &mut [Evidence]) {
    for loaded in records {
        let Some(named) = &loaded.record.header.backend.machine else { continue };
        let stem = Path::new(named).file_stem().and_then(|stem| stem.to_str());
        if named != &machine.name && stem != Some(machine.name.as_str()) {
            for case in cases.iter_mut() {
                let text = format!("unreliable: the record was made with machine {named}, not {}", machine.name);
                case.shortfalls.push(text);
            }
        }
    }
}

/// Marks rows without the time of the slowest rank: OSU prints only the mean without -f.
fn flag_mean_over_ranks(case: &mut Evidence) {
    let statistic = case.subject.call().and_then(|facts| facts.labels.get("statistic"));
    if statistic.is_some_and(|statistic| statistic == "mean_over_ranks") {
        let text = "unreliable: the mean over ranks hides the slowest; run OSU with -f".to_owned();
        case.shortfalls.push(text);
    }
}

/// Marks rows that were faster than the links of the machine file allow: then the clock is wrong, or the ranks are closer to each other
/// than recorded. In-switch reduction halves the traffic of an all_reduce, and no other traffic over the busiest link.
fn flag_beyond_links(machine: &Machine, expected: &Expected, about: &[Vec<usize>], cases: &mut [Evidence]) {
    for (case, about) in cases.iter_mut().zip(about) {
        if about.is_empty()
            || about.iter().filter_map(|index| expected.of_call(*index)).any(|expected| expected.table.in_network)
        {
            continue;
        }
        let Some(facts) = case.subject.call() else { continue };
        let locality = &facts.locality;
        let (nodes, per_node, groups) =
            (locality.nodes_spanned, locality.ranks_per_node, locality.concurrent_groups_per_node);
        let Some(bound) = machine.bus_bandwidth_bound(facts.collective, nodes, per_node, groups) else { continue };
        let most = if facts.collective == Collective::AllReduce { Rate(2.0 * bound.0) } else { bound };
        let moved = facts.bytes_accounted.0 as f64 * facts.bus_factor.unwrap_or(0.0);
        let reached = median(&case.measured()).map(|seconds| Rate(moved / seconds));
        if let Some(reached) = reached.filter(|reached| reached.0 > most.0 * MOST_BEYOND_LINKS) {
            case.shortfalls.push(format!(
                "unreliable: {reached} is more than the {most} that the links of {} can carry; either they are faster, or the clock is wrong, or the ranks are closer to each other than recorded",
                machine.path.shown()
            ));
        }
    }
}

/// Tolerance over the nominal rates of links.
const MOST_BEYOND_LINKS: f64 = 1.05;

/// What to do if no row has an expectation.
pub const HOW_TO_EXPECT: &str = "`commgauge judge --part thresholds RECORD --template FILE` writes expectations to fill in, `commgauge expect learn` \
                                 takes them from runs on healthy nodes";

fn nothing_expected(machine: Option<&Machine>) -> String {
    match machine {
        None => format!("no machine file given, so no row has an expectation; {HOW_TO_EXPECT}"),
        Some(machine) if machine.thresholds() == 0 => {
            format!("{} has no [[expect]], so no row has an expectation; {HOW_TO_EXPECT}", machine.path.shown())
        }
        Some(machine) => format!(
            "{} has no expectation for any row of the record ({} for other rows); {HOW_TO_EXPECT}",
            machine.path.shown(),
            counted(machine.thresholds(), "expectation")
        ),
    }
}

fn describe_rule(rule: &GateRule, rows: u32, runs: usize) -> Vec<String> {
    let (percent, level) = (rule.confidence * 100.0, 1.0 - rule.confidence);
    let digits = commgauge_base::units::three_digits;
    let mut sentences = vec![
        format!(
            "a row passes if the lower {percent} % confidence bound of the median of its replicates clears the threshold, fails if the upper bound is beyond it, and is inconclusive otherwise; the bounds are order statistics, and need {} replicates",
            fewest_for_bound(rule.confidence)
        ),
        format!(
            "a row with fewer replicates never passes, and fails only if each of them is beyond the threshold by more than a factor of {PLAINLY_BEYOND}, which no bound covers: chance alone is taken to cost a healthy machine less"
        ),
        format!(
            "a row whose true median is just beyond its limit passes with a probability of at most {0} %, and one just within it fails with at most {0} %: over {rows} judged rows, expect at most {1} wrong answers",
            digits(level * 100.0),
            digits(level * f64::from(rows))
        ),
        "missing, unverified, synthetic and unreliable rows never pass".to_owned(),
        "replicates measured during a machine-wide slowdown prevent a pass unless they meet the threshold too, and do not fail a row by themselves"
            .to_owned(),
    ];
    if runs > 1 {
        sentences.push(
            "with several runs each is also judged separately: one that fails, or whose median is beyond the threshold, prevents a pass; runs on other hosts have separate rows"
                .to_owned(),
        );
    }
    sentences
}

// Thresholds and suspects of a run together, as one exit code.

/// The contribution of the search for suspects to the exit code of a run whose thresholds gave `verdict`.
///
/// A search with too little data adds nothing. Neither does a finding of one measure alone if every row of that measure clears its
/// threshold: the slowest pair of each round is fast enough, and nothing is suspected.
pub fn located_code(suspects: &Suspects, verdict: Option<&Verdict>) -> i32 {
    if suspects.exit_code != 3 {
        suspects.exit_code
    } else if !suspects.examined.can_name_a_node() || is_cleared(suspects, verdict) {
        0
    } else {
        3
    }
}

/// Whether a search is undecided only because of findings of single measures, all of which the thresholds of the pairs clear.
pub fn is_cleared(suspects: &Suspects, verdict: Option<&Verdict>) -> bool {
    let clears = |verdict: &Verdict| {
        verdict.exit_code == 0 && suspects.unconfirmed.iter().all(|alone| passes(verdict, alone.measure))
    };
    let is_only_reason = suspects.exit_code == 3 && suspects.exit_code_when_cleared() == 0;
    is_only_reason && verdict.is_some_and(clears)
}

/// Whether every row of a measure of pairs passed, and there is at least one.
fn passes(verdict: &Verdict, measure: Measure) -> bool {
    let is_of_pairs = |call: &RowCall| match measure {
        Measure::Collective => call.locality.nodes_spanned == 2,
        _ => call.axis == Axis::Pair,
    };
    let pairs = || {
        let calls = verdict.rows.iter().filter_map(|row| Some((row.subject.call()?, row.decision)));
        calls.filter(|(call, _)| is_of_pairs(call))
    };
    let ping_pongs = pairs().filter(|(call, _)| call.collective == Collective::PingPong);
    let smallest = ping_pongs.map(|(call, _)| call.bytes_total).min();
    // No row judges the tail: thresholds are for medians.
    let is_of = |call: &RowCall| Measure::of(call.collective, call.bytes_total, smallest) == measure;
    let mut rows = pairs().filter(|(call, _)| is_of(call)).peekable();
    rows.peek().is_some() && rows.all(|(_, decision)| decision == Some(Decision::Pass))
}

#[cfg(test)]
mod tests {

    use super::super::{Coverage, Problem};
    use super::*;
    use serde_json::json;

    /// Suspects of four nodes of which these measures alone show a slow link.
    fn alone(measures: &[&str], unseen: &[&str]) -> Suspects {
        let unconfirmed = |measure: &&str| json!({"measure": measure, "name": "link", "slower_by": 0.9});
        serde_json::from_value(json!({
            "format": "commgauge-suspects", "version": 1, "exit_code": 3, "answer": "", "synthetic": false, "runs": [],
            "examined": {"nodes": 4, "hosts": [], "local_ranks": 1, "node_pairs": 6, "node_pairs_measured": 6,
                "nodes_measured_inside": 0, "group_nodes": [], "isolated_cases": 1, "replicates": 9},
            "unconfirmed": measures.iter().map(unconfirmed).collect::<Vec<_>>(),
            "suspects": [], "unseen": unseen, "cannot_tell": [], "troubles": [], "rule": []
        }))
        .unwrap()
    }

    /// A gate with rows of these collectives, sizes and decisions, on the axis of pairs.
    fn gated(exit_code: i32, rows: &[(&str, u64, Option<&str>)]) -> Verdict {
        let row = |(collective, bytes, decision): &(&str, u64, Option<&str>)| {
            json!({"name": collective, "axis": "pair", "group_size": 2, "groups": 2, "collective": collective,
                "locality": {"nodes_spanned": 2, "ranks_per_node": 1, "stride": 1, "concurrent_groups_per_node": 1},
                "element_type": "uint8", "bytes_total": bytes, "placement": "out_of_place", "cadence": "streaming",
                "decision": decision, "reasons": [], "replicates": 9})
        };
        serde_json::from_value(json!({
            "format": "commgauge-verdict", "version": 1, "question": "gate", "decision": "pass", "exit_code": exit_code,
            "rule": [], "runs": [], "coverage": Coverage::default(), "troubles": [],
            "rows": rows.iter().map(row).collect::<Vec<_>>()
        }))
        .unwrap()
    }

    const PASSED: [(&str, u64, Option<&str>); 4] = [
        ("ping_pong", 8, Some("pass")),
        ("ping_pong", 4 << 20, Some("pass")),
        ("bidirectional", 4 << 20, Some("pass")),
        ("bidirectional", 4 << 20, Some("pass")),
    ];

    #[test]
    fn what_one_measure_alone_shows_is_cleared_by_the_thresholds_of_that_measure_in_all_rounds() {
        for measure in ["latency", "one_way", "both_ways"] {
            assert_eq!(located_code(&alone(&[measure], &["leaf switch"]), Some(&gated(0, &PASSED))), 0, "{measure}");
        }
        let without = |gone: usize| {
            let mut rows = PASSED;
            rows[gone].2 = None;
            gated(0, &rows)
        };
        for (measure, row) in [("latency", 0), ("one_way", 1), ("both_ways", 2), ("both_ways", 3)] {
            assert_eq!(
                located_code(&alone(&[measure], &[]), Some(&without(row))),
                3,
                "{measure}, row {row} not judged"
            );
        }
    }

    fn unreliable(mut suspects: Suspects) -> Suspects {
        suspects.problems.push(Problem { exit_code: 3, text: "a warning".to_owned() });
        suspects
    }

    #[test]
    fn nothing_else_is_cleared() {
        let cases = [
            ("no thresholds", alone(&["both_ways"], &[]), None),
            ("a gate that does not pass", alone(&["both_ways"], &[]), Some(gated(3, &PASSED))),
            ("no rows of pairs", alone(&["both_ways"], &[]), Some(gated(0, &[]))),
            ("a tail, which no threshold is about", alone(&["both_ways", "tail"], &[]), Some(gated(0, &PASSED))),
            ("scatter that hides nodes and links", alone(&["both_ways"], &["node or link"]), Some(gated(0, &PASSED))),
            ("an unreliable record", unreliable(alone(&[], &[])), Some(gated(0, &PASSED))),
            ("an unreliable record too", unreliable(alone(&["both_ways"], &[])), Some(gated(0, &PASSED))),
        ];
        for (what, suspects, verdict) in cases {
            assert_eq!(located_code(&suspects, verdict.as_ref()), 3, "{what}");
            assert!(!is_cleared(&suspects, verdict.as_ref()), "{what}");
        }
    }

    #[test]
    fn a_suspect_counts_whatever_the_thresholds_say_and_a_search_among_too_few_does_not() {
        let found = Suspects { exit_code: 1, ..alone(&["both_ways"], &[]) };
        assert_eq!(located_code(&found, Some(&gated(0, &PASSED))), 1);
        let mut few = alone(&[], &["node or link"]);
        few.examined.nodes = 2;
        assert_eq!(located_code(&few, None), 0);
    }
}
