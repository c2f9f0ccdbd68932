//! Self-consistency of a record, without any reference: a call that is slower than an equivalent combination of other calls,
//! a larger call that takes less time than a smaller one, a dip of the bandwidth at one size.
//!
//! The rules are those of Träff, Gropp and Thakur, "Self-Consistent MPI Performance Guidelines" (IEEE TPDS 21(5), 2010),
//! and hold for every library: whatever breaks one could be fixed in the library, or by choosing another algorithm.

mod check;
mod rules;

use super::comparability::ensure_comparable;
use super::document::{Coverage, FalseAlarms};
use super::evidence::{Evidence, Gathered, evidence};
use super::finding::Finding;
use super::loaded_record::LoadedRecord;
use super::percent::percent;
use super::{Decision, FORMAT, Question, Row, Trouble, VERSION, Verdict, gate, most_severe};
pub use check::Timed;
use check::{Check, CheckedTimes};
use commgauge_base::error::Result;
use commgauge_base::stats::{RankSums, median, sorted};
use commgauge_base::units::counted;
use commgauge_base::visible::ShownPath;
use std::collections::BTreeMap;

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
        let checks = rules::checks(cases);
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
    let what = rules::sentence(check, excess.exp());
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

/// Checks records for self-consistency. Several records of the same hosts count as replicates of each other, and each is checked by itself
/// too.
///
/// # Errors
/// As [`super::compare`]: records that are not comparable, or one that is given twice.
pub fn consistency(records: &[LoadedRecord], rule: ConsistencyRule, allowed: &[super::Allowed]) -> Result<Verdict> {
    ensure_comparable(&records.iter().collect::<Vec<_>>(), allowed)?;
    let Gathered { cases, mut troubles, .. } = evidence(records, allowed);
    let found = of_each_cluster(&cases, rule);
    troubles.extend(troubles_of(&found, &cases, rule));
    for loaded in records.iter().filter(|_| records.len() > 1) {
        let alone = consistency(std::slice::from_ref(loaded), rule, allowed)?;
        let certain = alone.findings.iter().filter(|finding| finding.certain).count();
        if certain > 0 {
            let text = format!(
                "{} alone breaks rules of self-consistency and chance is ruled out: {}",
                loaded.path.shown(),
                counted(certain, "finding")
            );
            troubles.push(Trouble { exit_code: 1, text });
        }
    }
    let mut rows: Vec<Row> = cases.iter().map(gate::undecided_row).collect();
    gate::name_hosts_that_differ(&mut rows);
    let exit_code = most_severe(troubles.iter().map(|trouble| trouble.exit_code));
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
        troubles,
        rows,
        findings: found.findings,
        curves: Vec::new(),
        template: None,
    })
}

/// Checks the calls of each set of hosts, which are not those of another.
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

/// The times with a number that the replicates of one moment share: calls of other runs are not compared.
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

/// Troubles of the verdict as a whole, from its findings.
fn troubles_of(found: &Consistency, cases: &[Evidence], rule: ConsistencyRule) -> Vec<Trouble> {
    let certain = found.findings.iter().filter(|finding| finding.certain).count();
    let mut troubles = Vec::new();
    let mut add = |exit_code, text: String| troubles.push(Trouble { exit_code, text });
    if certain > 0 {
        add(1, format!("rules of self-consistency are broken and chance is ruled out: {certain} findings"));
    }
    if certain < found.findings.len() {
        let perhaps = found.findings.len() - certain;
        add(
            3,
            format!(
                "rules seem to be broken, but that may be chance: {perhaps} findings; more replicates would decide"
            ),
        );
    }
    if found.comparisons == 0 {
        add(3, "no rule can be looked at: the record has no two calls that are comparable".to_owned());
    }
    let synthetic = cases.iter().any(|case| case.shortfalls.iter().any(|shortfall| shortfall.starts_with("synthetic")));
    if synthetic {
        add(3, "synthetic: the simulation is compared with the rules, not a machine".to_owned());
    }
    let replicates = cases.first().map_or(0, |case| case.seconds.len());
    let attainable = RankSums::attainable(replicates, replicates) * found.comparisons as f64;
    if !found.findings.is_empty() && certain == 0 && attainable > rule.false_alarm_level {
        add(
            3,
            format!("with {replicates} replicates and {} rules looked at nothing can be certain", found.comparisons),
        );
    }
    troubles
}

fn describe_rule(found: &Consistency, rule: ConsistencyRule) -> Vec<String> {
    vec![
        format!(
            "compared with itself at {} places: k times the bytes take at most k times the time, more bytes take no less, no \
             call takes longer than others that together do the same, and no size has less bandwidth than both its \
             neighbours; {} beyond a rule is tolerated",
            found.comparisons,
            percent(rule.tolerance)
        ),
        format!(
            "a finding is certain where an exact rank-sum test of the medians of the replicates, corrected for all places, \
             leaves chance at most {}",
            percent(rule.false_alarm_level)
        ),
    ]
}

#[cfg(test)]
mod tests;
