//! Self-consistency of a record, without any reference: a call that is slower than an equivalent combination of other calls,
//! a larger call that takes less time than a smaller one, a dip of the bandwidth at one size.
//!
//! The rules are those of Träff, Gropp and Thakur, "Self-Consistent MPI Performance Guidelines" (IEEE TPDS 21(5), 2010), and hold for every
//! library: a violation can be fixed in the library, or by choosing another algorithm.

use super::comparability::{LoadedRecord, ensure_comparable};
use super::document::{Coverage, FalseAlarms, Finding, percent};
use super::evidence::{Evidence, Gathered, evidence};
use super::{Decision, FORMAT, Problem, Question, Row, VERSION, Verdict, gate, most_severe};
use crate::verdict::document::Guideline;
use Collective::{AllGather, AllReduce, AllToAll, Barrier, Broadcast, Gather, Reduce, ReduceScatter, Scatter};
use commgauge_base::collective::{Collective, Placement, ReduceOp};
use commgauge_base::element::ElementType;
use commgauge_base::error::Result;
use commgauge_base::sample::Cadence;
use commgauge_base::stats::{RankSums, median, sorted};
use commgauge_base::units::{counted, three_digits};
use commgauge_base::visible::ShownPath;
use commgauge_base::writing::grouped;
use commgauge_model::layout::{Axis, Locality};
use commgauge_model::record::line::CaseFacts;
use std::collections::{BTreeMap, HashMap};

/// Thresholds of a finding.
#[derive(Clone, Copy, Debug)]
pub struct ConsistencyRule {
    /// Upper bound on the probability of any false finding that is marked as certain.
    pub false_alarm_level: f64,
    /// Violations up to this share are ignored: with 0.025, twice the bytes may take 2.05 times as long.
    pub tolerance: f64,
}

impl Default for ConsistencyRule {
    fn default() -> Self {
        ConsistencyRule { false_alarm_level: 0.05, tolerance: 0.025 }
    }
}

/// The result of all comparisons.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Consistency {
    /// The worst first.
    pub findings: Vec<Finding>,
    /// Number of comparisons for which the data sufficed.
    pub comparisons: usize,
}

impl Consistency {
    /// Checks all rules on measured cases.
    pub fn of(cases: &[Timed], rule: ConsistencyRule) -> Consistency {
        let checks = checks(cases);
        let mut ranks = RankSums::default();
        let found = checks.iter().filter_map(|check| finding(check, rule, checks.len(), &mut ranks));
        let mut findings: Vec<Finding> = found.collect();
        findings.sort_by(worst_first);
        Consistency { comparisons: checks.len(), findings }
    }

    /// The findings as sentences, the first of them in full.
    pub fn sentences(&self, most: usize) -> Vec<String> {
        let mut sentences: Vec<String> = self.findings.iter().take(most).map(|finding| finding.text.clone()).collect();
        if self.findings.len() > most {
            let more = self.findings.len() - most;
            sentences.push(format!(
                "{more} more calls break a rule of self-consistency; commgauge compare --consistency RECORD lists them"
            ));
        }
        sentences
    }
}

fn worst_first(a: &Finding, b: &Finding) -> std::cmp::Ordering {
    b.certain.cmp(&a.certain).then(b.times_allowed.total_cmp(&a.times_allowed)).then(a.cases.cmp(&b.cases))
}

fn finding(check: &Check, rule: ConsistencyRule, comparisons: usize, ranks: &mut RankSums) -> Option<Finding> {
    let side = |value: fn(&CheckedTimes) -> f64| sorted(check.times.iter().map(|times| value(times).ln()));
    let (slow, allowed) = (side(|times| times.slow), side(|times| times.allowed));
    let excess = median(&slow)? - median(&allowed)?;
    let tolerated = rule.tolerance.ln_1p();
    if excess <= tolerated {
        return None;
    }
    let allowed: Vec<f64> = allowed.iter().map(|time| time + tolerated).collect();
    let level = 1.0 - rule.false_alarm_level;
    let low =
        ranks.shift(&allowed, &slow, level).and_then(|shift| shift.interval).map(|interval| interval.low + tolerated);
    let p_corrected = (ranks.p_larger(&allowed, &slow) * comparisons as f64).min(1.0);
    let certain = p_corrected <= rule.false_alarm_level;
    let what = sentence(check, excess.exp());
    let text = match certain {
        true => what,
        false => format!("{what} (in {} replicates; may be chance)", check.times.len()),
    };
    Some(Finding {
        guideline: check.guideline,
        cases: std::iter::once(check.slow)
            .chain(check.against.iter().copied())
            .map(|facts| facts.name.clone())
            .collect(),
        times_allowed: excess.exp(),
        times_allowed_lower_bound: low.map(f64::exp),
        p_corrected,
        certain,
        text,
    })
}

/// Checks records for self-consistency. Several records of the same hosts count as replicates of each other, and each is also checked
/// separately.
///
/// # Errors
/// As [`super::compare`]: records that are not comparable, or given twice.
pub fn consistency(records: &[LoadedRecord], rule: ConsistencyRule, allowed: &[super::Allowed]) -> Result<Verdict> {
    ensure_comparable(&records.iter().collect::<Vec<_>>(), allowed)?;
    let Gathered { cases, mut problems, .. } = evidence(records, allowed);
    let found = of_each_cluster(&cases, rule);
    problems.extend(problems_of(&found, &cases, rule));
    for loaded in records.iter().filter(|_| records.len() > 1) {
        let alone = consistency(std::slice::from_ref(loaded), rule, allowed)?;
        let certain = alone.findings.iter().filter(|finding| finding.certain).count();
        if certain > 0 {
            let text = format!(
                "{} alone breaks rules of self-consistency, with chance excluded: {}",
                loaded.path.shown(),
                counted(certain, "finding")
            );
            problems.push(Problem { exit_code: 1, text });
        }
    }
    let mut rows: Vec<Row> = cases.iter().map(gate::undecided_row).collect();
    gate::name_hosts_that_differ(&mut rows);
    let exit_code = most_severe(problems.iter().map(|problem| problem.exit_code));
    Ok(Verdict {
        format: FORMAT.to_owned(),
        version: VERSION,
        question: Question::Consistency,
        decision: Decision::from_exit_code(exit_code),
        exit_code,
        rule: describe_rule(&found, rule),
        runs: records.iter().map(|loaded| loaded.run("judged")).collect(),
        machine: None,
        false_alarms: FalseAlarms {
            level: rule.false_alarm_level,
            over_all_rows: true,
            rows: found.comparisons as u32,
            expected_at_most: rule.false_alarm_level,
        },
        coverage: Coverage { rows: rows.len() as u32, rows_not_judged: rows.len() as u32, ..Coverage::default() },
        problems,
        rows,
        findings: found.findings,
        curves: Vec::new(),
        template: None,
    })
}

/// Checks the calls of each set of hosts separately.
fn of_each_cluster(cases: &[Evidence], rule: ConsistencyRule) -> Consistency {
    let mut of_hosts: BTreeMap<&str, Vec<Timed>> = BTreeMap::new();
    for case in cases.iter().filter(|case| !case.corrupt) {
        let Some(facts) = case.subject.call() else { continue };
        of_hosts.entry(&case.hosts).or_default().push(Timed { facts, seconds: numbered(case) });
    }
    let rule = ConsistencyRule { false_alarm_level: rule.false_alarm_level / of_hosts.len().max(1) as f64, ..rule };
    let mut all = Consistency::default();
    for timed in of_hosts.into_values() {
        let found = Consistency::of(&timed, rule);
        all.findings.extend(found.findings);
        all.comparisons += found.comparisons;
    }
    all.findings.sort_by(worst_first);
    all
}

/// The times with a number shared by the replicates of one period: calls of other runs are not compared.
fn numbered(case: &Evidence) -> BTreeMap<usize, f64> {
    const MOST_REPLICATES: usize = 1 << 20;
    let mut of_run: BTreeMap<usize, usize> = BTreeMap::new();
    let mut number = |run: usize| {
        let next = of_run.entry(run).or_default();
        *next += 1;
        run * MOST_REPLICATES + *next
    };
    let numbers = case.runs.iter().map(|[record, _]| number(*record));
    numbers.zip(&case.seconds).filter_map(|(number, seconds)| Some((number, (*seconds)?))).collect()
}

/// Warnings about the verdict as a whole, from its findings.
fn problems_of(found: &Consistency, cases: &[Evidence], rule: ConsistencyRule) -> Vec<Problem> {
    let certain = found.findings.iter().filter(|finding| finding.certain).count();
    let mut problems = Vec::new();
    let mut add = |exit_code, text: String| problems.push(Problem { exit_code, text });
    if certain > 0 {
        add(1, format!("rules of self-consistency are broken, with chance excluded: {certain} findings"));
    }
    if certain < found.findings.len() {
        let perhaps = found.findings.len() - certain;
        add(3, format!("rules may be broken, or by chance: {perhaps} findings; more replicates would decide"));
    }
    if found.comparisons == 0 {
        add(3, "no rule can be checked: the record has no two comparable calls".to_owned());
    }
    let synthetic = cases.iter().any(|case| case.shortfalls.iter().any(|shortfall| shortfall.starts_with("synthetic")));
    if synthetic {
        add(3, "synthetic: this checks the simulation, not a machine".to_owned());
    }
    let replicates = cases.first().map_or(0, |case| case.seconds.len());
    let attainable = RankSums::attainable(replicates, replicates) * found.comparisons as f64;
    if !found.findings.is_empty() && certain == 0 && attainable > rule.false_alarm_level {
        add(
            3,
            format!("with {replicates} replicates and {} checked rules no finding can be certain", found.comparisons),
        );
    }
    problems
}

fn describe_rule(found: &Consistency, rule: ConsistencyRule) -> Vec<String> {
    vec![
        format!(
            "compared with itself in {} places: k times the bytes take at most k times the time, more bytes take no less time, no call takes longer than others that together do the same, and no size has less bandwidth than both its neighbours; {} beyond a rule is tolerated",
            found.comparisons,
            percent(rule.tolerance)
        ),
        format!(
            "a finding is certain if an exact rank-sum test of the medians of the replicates, corrected for all places, leaves a probability of at most {} for chance",
            percent(rule.false_alarm_level)
        ),
    ]
}

// The rules: which calls are compared with which. Significance is left to the caller.

/// A collective, and the collectives that together do the same with the same `bytes_total`.
const MADE_OF: [(Collective, &[Collective]); 11] = [
    (AllReduce, &[ReduceScatter, AllGather]),
    (AllReduce, &[Reduce, Broadcast]),
    (Broadcast, &[Scatter, AllGather]),
    (Reduce, &[ReduceScatter, Gather]),
    (Reduce, &[AllReduce]),
    (ReduceScatter, &[AllReduce]),
    (ReduceScatter, &[Reduce, Scatter]),
    (AllGather, &[Gather, Broadcast]),
    (AllGather, &[AllToAll]),
    (Gather, &[AllGather]),
    (Scatter, &[Broadcast]),
];

/// What must be equal for calls to be comparable.
type Key<'a> = (Axis, &'a Locality, [u32; 2], Placement, Cadence, bool, &'a BTreeMap<String, String>);

fn key<'a>(facts: &'a CaseFacts) -> Key<'a> {
    let alone = facts.solo_of.is_some();
    (
        facts.axis,
        &facts.locality,
        [facts.group_size, facts.groups],
        facts.placement,
        facts.cadence,
        alone,
        &facts.labels,
    )
}

/// What must also be equal along a curve.
fn curve(facts: &CaseFacts) -> (Collective, ElementType, Option<ReduceOp>, Option<u32>) {
    (facts.collective, facts.element_type, facts.reduce_op, facts.root)
}

/// All comparisons between the cases, in order.
fn checks<'a>(cases: &[Timed<'a>]) -> Vec<Check<'a>> {
    let usable: Vec<&Timed> = cases.iter().filter(|case| is_usable(case)).collect();
    let mut alike: Vec<Vec<&Timed>> = Vec::new();
    let mut index: HashMap<Key, usize> = HashMap::new();
    for case in usable {
        let at = *index.entry(key(case.facts)).or_insert(alike.len());
        if at == alike.len() {
            alike.push(Vec::new());
        }
        alike[at].push(case);
    }
    alike.iter().flat_map(|cases| along_curves(cases).into_iter().chain(made_of_others(cases))).collect()
}

fn is_usable(case: &Timed) -> bool {
    let facts = case.facts;
    facts.collective != Barrier && facts.splits.is_none() && facts.bytes_total.0 > 0 && !case.seconds.is_empty()
}

fn along_curves<'a>(cases: &[&Timed<'a>]) -> Vec<Check<'a>> {
    let mut curves = grouped(cases.iter().map(|case| (curve(case.facts), *case)));
    for (_, curve) in &mut curves {
        curve.sort_by_key(|case| case.facts.bytes_total);
        curve.dedup_by_key(|case| case.facts.bytes_total);
    }
    let steps = curves.iter().flat_map(|(_, curve)| curve.windows(2)).flat_map(pair_rules);
    let dips = curves.iter().flat_map(|(_, curve)| curve.windows(3)).map(dip);
    steps.chain(dips).flatten().collect()
}

/// T(b) is at most ceil(b/a) T(a), and T(a) at most T(b).
fn pair_rules<'a>(pair: &[&Timed<'a>]) -> [Option<Check<'a>>; 2] {
    let times = pair[1].facts.bytes_total.0.div_ceil(pair[0].facts.bytes_total.0) as f64;
    [
        check(Guideline::SplitIsFaster, pair[1], &[pair[0]], |smaller| smaller[0] * times),
        check(Guideline::MoreBytesAreFaster, pair[0], &[pair[1]], |larger| larger[0]),
    ]
}

/// T(b)/b is at most the larger of T(a)/a and T(c)/c.
fn dip<'a>(three: &[&Timed<'a>]) -> Option<Check<'a>> {
    let [a, b, c] = [0, 1, 2].map(|at| three[at].facts.bytes_total.0 as f64);
    check(Guideline::Dip, three[1], &[three[0], three[2]], |times| b * (times[0] / a).max(times[1] / c))
}

fn made_of_others<'a>(cases: &[&Timed<'a>]) -> Vec<Check<'a>> {
    let mut found = Vec::new();
    let mut index: HashMap<(Collective, u64, ElementType), &Timed<'a>> = HashMap::new();
    for case in cases {
        let facts = case.facts;
        index.entry((facts.collective, facts.bytes_total.0, facts.element_type)).or_insert(case);
    }
    for slow in cases {
        let rules = MADE_OF.iter().filter(|(whole, _)| *whole == slow.facts.collective);
        for (_, parts) in rules {
            let part =
                |part: &Collective| index.get(&(*part, slow.facts.bytes_total.0, slow.facts.element_type)).copied();
            let parts: Option<Vec<&Timed>> = parts.iter().map(part).collect();
            let sum = |times: &[f64]| times.iter().sum();
            found.extend(parts.and_then(|parts| check(Guideline::OthersTogetherAreFaster, slow, &parts, sum)));
        }
    }
    found
}

/// A comparison over the replicates that all calls have; `None` without a common replicate.
fn check<'a>(
    guideline: Guideline,
    slow: &Timed<'a>,
    against: &[&Timed<'a>],
    allowed: impl Fn(&[f64]) -> f64,
) -> Option<Check<'a>> {
    let of_replicate = |(replicate, seconds): (&usize, &f64)| {
        let others: Option<Vec<f64>> = against.iter().map(|case| case.seconds.get(replicate).copied()).collect();
        Some(CheckedTimes { slow: *seconds, allowed: allowed(&others?) })
    };
    let times: Vec<CheckedTimes> = slow.seconds.iter().filter_map(of_replicate).collect();
    let against = against.iter().map(|case| case.facts).collect();
    (!times.is_empty()).then_some(Check { guideline, slow: slow.facts, against, times })
}

/// A finding in words: the slow call, by how much, and its reference.
fn sentence(check: &Check, times_allowed: f64) -> String {
    let name = &check.slow.name;
    let more = format!("{} %", three_digits((times_allowed - 1.0) * 100.0));
    let other = |at: usize| check.against.get(at).map_or("", |facts| facts.name.as_str());
    match check.guideline {
        Guideline::SplitIsFaster => {
            let smaller = check.against.first().map_or(1, |facts| facts.bytes_total.0.max(1));
            let times = check.slow.bytes_total.0.div_ceil(smaller);
            format!("{name} takes {more} longer than {times} calls of {}", other(0))
        }
        Guideline::MoreBytesAreFaster => format!("{name} takes {more} longer than {}, which has more bytes", other(0)),
        Guideline::OthersTogetherAreFaster => {
            let parts: Vec<&str> = check.against.iter().map(|facts| facts.name.as_str()).collect();
            format!("{name} takes {more} longer than {}, which does the same", parts.join(" and "))
        }
        Guideline::Dip => {
            format!(
                "{name} dips: {more} more time per byte than the slower of its neighbours {} and {}",
                other(0),
                other(1)
            )
        }
    }
}

// The cases that a rule compares, each with its times.

/// A case and the median time, in seconds, of each of its valid replicates.
#[derive(Clone, Debug)]
pub struct Timed<'a> {
    pub facts: &'a CaseFacts,
    /// Median seconds by replicate number.
    pub seconds: BTreeMap<usize, f64>,
}

/// One comparison under a rule.
struct Check<'a> {
    guideline: Guideline,
    slow: &'a CaseFacts,
    against: Vec<&'a CaseFacts>,
    times: Vec<CheckedTimes>,
}

/// One replicate of a comparison, in seconds.
struct CheckedTimes {
    /// The slow call.
    slow: f64,
    /// The maximum that the rule allows.
    allowed: f64,
}

#[cfg(test)]
mod tests {
    // Tests of which calls contradict each other, and how they are reported.
    use super::super::testing::{lines, loaded};
    use super::*;
    use crate::verdict::Guideline;
    use commgauge_base::collective::Collective;
    use commgauge_model::record::Line;

    /// All_reduces of 1, 2, 4 ... MiB with these times in microseconds and this many replicates that differ by 0.1 %.
    fn curve(times: &[f64], replicates: usize) -> Vec<Line> {
        let scatter = |time: f64| (0..replicates).map(|index| time * (1.0 + 0.001 * index as f64)).collect();
        lines("20261121T093000Z-7f3a", &times.iter().map(|time| scatter(*time)).collect::<Vec<_>>())
    }

    fn verdict_of(lines: Vec<Line>) -> Verdict {
        consistency(&[loaded("run.jsonl", lines)], ConsistencyRule::default(), &[]).unwrap()
    }

    fn found(verdict: &Verdict) -> Vec<(Guideline, &str, bool)> {
        verdict.findings.iter().map(|finding| (finding.guideline, finding.cases[0].as_str(), finding.certain)).collect()
    }

    /// Turns rows into calls of other collectives, all of the same bytes.
    fn as_collectives(mut lines: Vec<Line>, collectives: &[Collective]) -> Vec<Line> {
        for line in &mut lines {
            if let Line::Plan(plan) = line {
                let bytes = plan.cases[0].bytes_total;
                for (case, collective) in plan.cases.iter_mut().zip(collectives) {
                    case.collective = *collective;
                    (case.bytes_total, case.bytes_accounted, case.bytes_per_rank) = (bytes, bytes, bytes);
                    case.bus_factor = collective.bus_factor(case.group_size);
                }
            }
        }
        lines
    }

    #[test]
    fn a_record_that_breaks_no_rule_is_reported_as_consistent() {
        let verdict = verdict_of(curve(&[100.0, 150.0, 300.0, 602.0], 7));
        assert_eq!((verdict.exit_code, found(&verdict)), (0, vec![]), "{:?}", verdict.problems);
        assert!(verdict.rule[0].contains("in 8 places"), "3 steps twice and 2 dips: {}", verdict.rule[0]);
    }

    #[test]
    fn every_broken_rule_is_reported_with_its_calls_and_factor() {
        use Guideline::{Dip, MoreBytesAreFaster, SplitIsFaster};
        for (times, expected) in [
            // The second takes 3 times the first: 1.5 times what two calls of half the bytes take, and dips.
            (&[100.0, 300.0, 305.0, 600.0][..], vec![(SplitIsFaster, 1, 1.5), (Dip, 1, 1.5)]),
            (&[100.0, 190.0, 160.0, 300.0], vec![(MoreBytesAreFaster, 1, 190.0 / 160.0)]),
            (&[100.0, 204.0, 400.0], vec![]),
            (&[100.0, 206.0, 408.0], vec![(SplitIsFaster, 1, 1.03), (Dip, 1, 206.0 / 204.0 * 100.0 / 100.0)]),
        ] {
            let verdict = verdict_of(curve(times, 7));
            let seen: Vec<(Guideline, String)> =
                verdict.findings.iter().map(|finding| (finding.guideline, finding.cases[0].clone())).collect();
            for (guideline, row, factor) in &expected {
                let tolerated = *factor <= 1.025;
                let name = format!("world/all_reduce/{row}");
                let of = |finding: &&Finding| finding.guideline == *guideline && finding.cases[0] == name;
                match verdict.findings.iter().find(of) {
                    None => assert!(tolerated, "{times:?}: {guideline:?} of {name} is not in {seen:?}"),
                    Some(finding) => assert!((finding.times_allowed / factor - 1.0).abs() < 1e-3, "{finding:?}"),
                }
            }
            assert!(verdict.findings.len() <= expected.len(), "{times:?}: {seen:?}");
            assert_eq!(verdict.exit_code, i32::from(!verdict.findings.is_empty()), "{times:?}");
        }
    }

    #[test]
    fn a_call_slower_than_an_equivalent_combination_is_reported() {
        use Collective::{AllGather, AllReduce, Broadcast, ReduceScatter, Scatter};
        let times = [100.0, 40.0, 40.0, 90.0, 45.0];
        let lines = as_collectives(curve(&times, 7), &[AllReduce, ReduceScatter, AllGather, Broadcast, Scatter]);
        let verdict = verdict_of(lines);
        let texts: Vec<&str> = verdict.findings.iter().map(|finding| finding.text.as_str()).collect();
        assert_eq!(
            texts,
            [
                "world/all_reduce/0 takes 25.0 % longer than world/all_reduce/1 and world/all_reduce/2, which does the same",
                "world/all_reduce/3 takes 5.88 % longer than world/all_reduce/4 and world/all_reduce/2, which does the same"
            ]
        );
        assert_eq!(verdict.exit_code, 1);
    }

    #[test]
    fn a_possibly_random_finding_is_inconclusive_and_states_the_resolution_of_the_replicates() {
        let verdict = verdict_of(curve(&[100.0, 300.0, 310.0, 600.0], 3));
        assert_eq!(verdict.exit_code, 3);
        assert!(verdict.findings.iter().all(|finding| !finding.certain && finding.text.ends_with("may be chance)")));
        assert!(
            verdict.problems.iter().any(|problem| problem.text.contains("with 3 replicates")),
            "{:?}",
            verdict.problems
        );
    }

    #[test]
    fn problem_with_the_record_outweighs_findings() {
        let mut torn = curve(&[100.0, 300.0, 310.0, 600.0], 7);
        torn.pop();
        assert_eq!(verdict_of(torn).exit_code, 7);
        let alone = verdict_of(curve(&[100.0], 7));
        assert_eq!(alone.exit_code, 3, "{:?}", alone.problems);
        let mut corrupt = curve(&[100.0, 300.0], 7);
        for line in &mut corrupt {
            if let Line::Case(case) = line {
                case.outcome = commgauge_model::record::line::Outcome::Corrupt {
                    when: "after".to_owned(),
                    rank: 1,
                    element: 2,
                    expected: "3".to_owned(),
                    got: "4".to_owned(),
                    count: 1,
                    call: None,
                };
            }
        }
        assert_eq!(verdict_of(corrupt).exit_code, 4, "no rule is checked on wrong data");
    }
}
