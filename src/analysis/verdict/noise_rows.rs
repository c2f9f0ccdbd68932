//! Rows that are compared by the noise of their curves, where there are too few replicates for more.

use super::Decision;
use super::compare_rule::CompareRule;
use super::curve_noise::{Judged, Point, judge};
use super::document::{AgainstBase, Row};
use super::evidence::{ComparedRow, Evidence};
use super::gate::{cap_decision, undecided_row};
use super::percent::percent;
use super::permutation::{CountRanges, fewest_for};
use commgauge_base::stats::median;
use commgauge_model::record::line::CaseFacts;

/// What the noise says of each row; none of a row that has no curve or was not measured on both sides, and none at all where there
/// are too few rows.
pub(super) fn judged(rows: &[ComparedRow], level: f64) -> Option<Vec<Option<Judged>>> {
    let points: Vec<Option<Point>> = rows.iter().map(|row| point(row.new, row.base?)).collect();
    let mut judged = judge(&points.iter().flatten().cloned().collect::<Vec<_>>(), level)?.into_iter();
    Some(points.iter().map(|point| point.as_ref().and_then(|_| judged.next())).collect())
}

fn point(case: &Evidence, old: &Evidence) -> Option<Point> {
    let middle = |case: &Evidence| {
        let logarithms: Vec<f64> = case.seconds.iter().flatten().map(|seconds| seconds.ln()).collect();
        (!logarithms.is_empty()).then(|| logarithms.iter().sum::<f64>() / logarithms.len() as f64)
    };
    let facts = case.subject.call()?;
    let is_on_curve = facts.bytes_total.0 > 0 && facts.splits.is_none();
    let change = middle(case)? - middle(old)?;
    is_on_curve.then(|| Point {
        curve: curve_of(facts),
        placement: facts.placement,
        bytes: facts.bytes_total.0,
        change,
    })
}

/// The name of a row without its size and placement.
fn curve_of(facts: &CaseFacts) -> String {
    let (bytes, placement) = (facts.bytes_total.0.to_string(), facts.placement.name());
    let parts = facts.name.split('/').filter(|part| *part != bytes && *part != placement);
    format!("{} {} {}", facts.collective, facts.element_type, parts.collect::<Vec<_>>().join("/"))
}

/// A row, decided.
pub(super) fn row(compared: &ComparedRow, judged: Option<Judged>, rule: &CompareRule) -> Row {
    let case = compared.new;
    let mut row = undecided_row(case);
    let Some(old) = compared.base else {
        row.reasons.push("the base has no such row".to_owned());
        return row;
    };
    row.reasons.extend(old.shortfalls.iter().map(|shortfall| format!("in the base: {shortfall}")));
    let (decision, reason) = judged.map_or_else(
        || (Decision::Inconclusive, "it lies on no curve whose noise would say what is chance".to_owned()),
        |judged| decide(judged, rule),
    );
    if !reason.is_empty() {
        row.reasons.insert(0, reason);
    }
    row.decision = Some(cap_decision(cap_decision(decision, case), old));
    let (before, after) = (old.measured(), case.measured());
    let is_faster =
        |judged: Judged| judged.p_faster <= rule.false_alarm_level && judged.change <= -rule.relevant_slowdown.ln_1p();
    row.against_base = Some(AgainstBase {
        replicates_base: before.len() as u32,
        latency_seconds_base: median(&before),
        latency_seconds_new: median(&after),
        slowdown: judged.map(|judged| judged.change.exp_m1()),
        slowdown_lower_bound: judged.map(|judged| judged.low.exp_m1()).filter(|bound| bound.is_finite()),
        slowdown_upper_bound: judged.map(|judged| judged.high.exp_m1()).filter(|bound| bound.is_finite()),
        p_row: None,
        p_corrected: judged.map(|judged| judged.p_slower),
        faster: judged.is_some_and(is_faster),
    });
    row
}

fn decide(judged: Judged, rule: &CompareRule) -> (Decision, String) {
    let relevant = rule.relevant_slowdown;
    let slowdown = judged.change.exp_m1();
    if judged.p_slower <= rule.false_alarm_level && slowdown >= relevant {
        return (Decision::Fail, format!("slower by {}, beyond the noise of its curve", percent(slowdown)));
    }
    if judged.high.exp_m1() < relevant {
        return (Decision::Pass, String::new());
    }
    let bound = percent(judged.high.exp_m1());
    let needed = fewest_for(rule.false_alarm_level);
    let more = format!(
        "it may be slower by {bound}, and {} would matter; {needed} runs of each would tell",
        percent(relevant)
    );
    (Decision::Inconclusive, more)
}

/// How it was decided, as sentences.
pub(super) fn describe_rule(rule: &CompareRule, counts: &CountRanges, rows: usize) -> Vec<String> {
    let (level, relevant) = (percent(rule.false_alarm_level), percent(rule.relevant_slowdown));
    vec![
        format!(
            "{counts} are too few for a test of each row, so a row is judged by the noise of its own curve: how \
             much the changes of neighbouring sizes and of the two placements differ, over {rows} rows"
        ),
        format!(
            "a row fails where its slow-down is at least {relevant} and noise would reach as far in any row in at most {level} of \
             comparisons; it passes where the upper bound of its slow-down stays below {relevant}, and is inconclusive otherwise"
        ),
        format!(
            "what moves a whole run (its hour, its hosts) is not in that noise: {} runs of each at different times say more \
             (--more-base, --more-new)",
            fewest_for(rule.false_alarm_level)
        ),
    ]
}
