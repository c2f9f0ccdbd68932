//! Is it slower than before? Every row that both runs have passes, fails, or is inconclusive.

use super::comparability::ensure_comparable;
use super::compare_rule::CompareRule;
use super::curve_change::{CurveChange, CurvePart};
use super::curves::{self, Series};
use super::document::{AgainstBase, FORMAT, FalseAlarms, Question, Row, VERSION, Verdict};
use super::evidence::{ComparedRow, Evidence, evidence, names_to_match};
use super::gate::{cap_decision, coverage, exit_code_of, undecided_row};
use super::loaded_record::LoadedRecord;
use super::noise_rows as noise;
use super::percent::percent;
use super::permutation::{Corrected, MAX_REPLICATES, ReplicateCounts, RowProbabilities, corrected, fewest_for};
use super::{Decision, Trouble, copied_times, differences, most_severe};
use commgauge_base::error::{Error, Result};
use commgauge_base::stats::{RankSums, Span, median, sorted};
use commgauge_base::units::three_digits;
use std::collections::{BTreeMap, BTreeSet};

/// Compares runs with a baseline. Several records on one side count as replicates of each other.
///
/// # Errors
/// A usage error where the runs are not comparable, one is given twice, or there are too many replicates for an exact test.
pub fn compare(base: &[LoadedRecord], new: &[LoadedRecord], rule: &CompareRule) -> Result<Verdict> {
    ensure_comparable(&base.iter().chain(new).collect::<Vec<_>>(), &rule.allowed)?;
    let ((mut old_cases, old_troubles), (mut new_cases, new_troubles)) =
        (evidence(base, &rule.allowed), evidence(new, &rule.allowed));
    // Times are compared, and the verdict says who checked the data.
    old_cases.iter_mut().chain(&mut new_cases).for_each(Evidence::accept_unchecked);
    let replicates = |cases: &[Evidence]| cases.iter().map(|case| case.seconds.len()).max().unwrap_or(0);
    let counts = ReplicateCounts { base: replicates(&old_cases), new: replicates(&new_cases) };
    if counts.base.max(counts.new) > MAX_REPLICATES {
        let ReplicateCounts { base, new } = counts;
        return Err(Error::usage(format!(
            "{base} and {new} replicates are too many for an exact test; at most {MAX_REPLICATES} of each"
        )));
    }
    let names = |cases: &[Evidence]| names_to_match(cases, &rule.allowed);
    let (old_names, new_names) = (names(&old_cases), names(&new_cases));
    let by_name: BTreeMap<&str, &Evidence> = old_names.iter().map(String::as_str).zip(&old_cases).collect();
    let compared: Vec<ComparedRow> = (new_cases.iter().zip(&new_names))
        .map(|(new, name)| ComparedRow { new, base: by_name.get(name.as_str()).copied() })
        .collect();
    let is_reachable = counts.attainable() <= rule.false_alarm_level * (1.0 + 1e-9);
    let by_noise = if is_reachable { None } else { noise::judged(&compared, rule.false_alarm_level) };
    let series = if by_noise.is_some() { Vec::new() } else { curves::series(&compared) };
    let (complete, permuted) = permute(&compared, &series, counts);
    let mut ranks = RankSums::default();
    let rows: Vec<Row> = (compared.iter().enumerate())
        .map(|(index, compared)| {
            if let Some(by_noise) = &by_noise {
                return noise::row(compared, by_noise[index], rule);
            }
            let p = complete.binary_search(&index).ok().map(|at| permuted.of_row(at));
            row(compared, p, rule, &mut ranks)
        })
        .collect();
    let curves: Vec<CurveChange> = (series.iter().zip(&permuted.p_slower[complete.len()..]))
        .filter_map(|(series, p)| {
            series.change(counts.base, *p, rule.false_alarm_level, rule.relevant_slowdown, &mut ranks)
        })
        .collect();
    let mut troubles = [old_troubles, new_troubles].concat();
    let copies = copied_times::copies(base.iter().chain(new)).map(|text| Trouble { exit_code: 3, text });
    troubles.extend(copies.filter(|copies| !troubles.contains(copies)));
    troubles.extend(inconclusive_reasons((by_noise.is_none()).then_some(counts), &rows, rule));
    troubles.extend(worse_curves(&curves));
    let names: BTreeSet<&str> = new_names.iter().map(String::as_str).collect();
    let lost = old_names.iter().filter(|name| !names.contains(name.as_str())).count();
    let exit_code = most_severe(troubles.iter().map(|trouble| trouble.exit_code).chain(rows.iter().map(exit_code_of)));
    let described = match &by_noise {
        Some(by_noise) => noise::describe_rule(rule, counts, by_noise.iter().flatten().count()),
        None => describe_rule(rule, counts, permuted.p_slower.len(), &permuted),
    };
    let described = described.into_iter().chain(what_else(base, new, lost)).collect();
    let judged_rows = by_noise.as_ref().map_or(complete.len(), |by_noise| by_noise.iter().flatten().count());
    let runs = base.iter().map(|loaded| loaded.run("base")).chain(new.iter().map(|loaded| loaded.run("new")));
    Ok(Verdict {
        format: FORMAT.to_owned(),
        version: VERSION,
        question: Question::Compare,
        decision: Decision::from_exit_code(exit_code),
        exit_code,
        rule: described,
        runs: runs.collect(),
        machine: None,
        coverage: coverage(&rows, &new_cases),
        false_alarms: FalseAlarms {
            level: rule.false_alarm_level,
            over_all_rows: true,
            rows: judged_rows as u32,
            expected_at_most: rule.false_alarm_level,
        },
        troubles,
        rows,
        findings: Vec::new(),
        curves,
        template: None,
    })
}

/// The indices of the rows that have every replicate on both sides, and the corrected probabilities of these rows, followed
/// by those of the curves.
fn permute(rows: &[ComparedRow], series: &[Series], counts: ReplicateCounts) -> (Vec<usize>, Corrected) {
    let mut complete = Vec::new();
    let mut logarithms = Vec::new();
    for (index, ComparedRow { new, base }) in rows.iter().enumerate() {
        let own = |base: &Evidence| ReplicateCounts { base: base.seconds.len(), new: new.seconds.len() };
        let Some(base) = base.filter(|base| own(base) == counts) else { continue };
        let times: Option<Vec<f64>> =
            base.seconds.iter().chain(&new.seconds).map(|seconds| seconds.map(f64::ln)).collect();
        if let Some(times) = times {
            complete.push(index);
            logarithms.push(times);
        }
    }
    logarithms.extend(series.iter().map(|series| series.logarithms.clone()));
    let corrected = corrected(&logarithms, counts.base);
    (complete, corrected)
}

fn row(compared: &ComparedRow, p: Option<RowProbabilities>, rule: &CompareRule, ranks: &mut RankSums) -> Row {
    let case = compared.new;
    let mut row = undecided_row(case);
    let Some(old) = compared.base else {
        row.reasons.push("the base has no such row".to_owned());
        return row;
    };
    let (before, after) = (old.measured(), case.measured());
    let logarithms = |times: &[f64]| sorted(times.iter().map(|time| time.ln()));
    let level = 1.0 - rule.false_alarm_level;
    let shift = ranks.shift(&logarithms(&before), &logarithms(&after), level);
    let slowdown = shift.map(|shift| shift.map(f64::exp_m1));
    let p_row = (!before.is_empty() && !after.is_empty()).then(|| ranks.p_larger(&before, &after));
    let faster_by = 1.0 / (1.0 + rule.relevant_slowdown) - 1.0;
    let counts = ReplicateCounts { base: before.len(), new: after.len() };
    let decision = decide(slowdown, p, rule, &mut row, counts);
    row.reasons.extend(old.shortfalls.iter().map(|shortfall| format!("in the base: {shortfall}")));
    row.decision = Some(cap_decision(cap_decision(decision, case), old));
    let bounds = slowdown.and_then(|found| found.interval).filter(|bounds| bounds.low > -1.0);
    row.against_base = Some(AgainstBase {
        replicates_base: counts.base as u32,
        latency_seconds_base: median(&before),
        latency_seconds_new: median(&after),
        slowdown: slowdown.map(|found| found.middle),
        slowdown_lower_bound: bounds.map(|bounds| bounds.low),
        slowdown_upper_bound: bounds.map(|bounds| bounds.high),
        p_row,
        p_corrected: p.map(|p| p.slower),
        faster: p
            .zip(slowdown)
            .is_some_and(|(p, found)| p.faster <= rule.false_alarm_level && found.middle <= faster_by),
    });
    row
}

/// Fail where the slowdown is relevant and significant over all rows; pass where its upper bound is below the relevant
/// slowdown; inconclusive otherwise.
fn decide(
    slowdown: Option<Span>,
    p: Option<RowProbabilities>,
    rule: &CompareRule,
    row: &mut Row,
    counts: ReplicateCounts,
) -> Decision {
    let Some(Span { middle, interval }) = slowdown else {
        row.reasons.insert(0, "one of the runs has no replicate of it".to_owned());
        return Decision::Inconclusive;
    };
    let (high, relevant) = (interval.map(|interval| interval.high), rule.relevant_slowdown);
    if p.is_some_and(|p| p.slower <= rule.false_alarm_level) && middle >= relevant {
        row.reasons.insert(0, format!("slower by {}", percent(middle)));
        return Decision::Fail;
    }
    if high.is_some_and(|high| high < relevant) {
        return Decision::Pass;
    }
    let fewest = fewest_for(rule.false_alarm_level);
    // The width of the interval falls with the root of the number of replicates.
    let (count, gap) = (counts.base.min(counts.new), (relevant - middle).abs());
    let wanted = match high.filter(|_| gap > 0.0) {
        Some(high) => count as f64 * ((high - middle) / gap).powi(2),
        None => fewest as f64,
    };
    let more = (wanted.ceil().max((count + 1).max(fewest) as f64) - count as f64).max(1.0);
    let is_feasible = count as f64 + more <= MAX_REPLICATES as f64;
    let advice = match is_feasible {
        true => format!("about {more} more replicates of each would decide"),
        false => format!("not even {MAX_REPLICATES} replicates of each would decide, with runs as unlike as these"),
    };
    row.replicates_more = is_feasible.then_some(more as u32);
    let may =
        high.map_or_else(|| "nothing is bounded".to_owned(), |high| format!("it may be slower by {}", percent(high)));
    row.reasons.insert(0, format!("{may}, and {} would matter; {advice}", percent(relevant)));
    Decision::Inconclusive
}

/// Why the comparison as a whole is inconclusive. `permuted` are the replicates of a permutation test.
fn inconclusive_reasons(permuted: Option<ReplicateCounts>, rows: &[Row], rule: &CompareRule) -> Vec<Trouble> {
    let mut found = Vec::new();
    let short = permuted.filter(|counts| counts.attainable() > rule.false_alarm_level * (1.0 + 1e-9));
    if let Some(counts) = short {
        found.push(format!(
            "with {} and {} replicates no probability below {} can be reached, so nothing can be shown to be slower; \
             {} of each are needed",
            counts.base,
            counts.new,
            three_digits(counts.attainable()),
            fewest_for(rule.false_alarm_level)
        ));
    }
    if !rows.iter().any(|row| row.decision.is_some()) {
        found.push("the runs have no row in common".to_owned());
    }
    found.into_iter().map(|text| Trouble { exit_code: 3, text }).collect()
}

/// Curves that got worse are a failure of their own: many rows together can show a change that no single row shows.
fn worse_curves(curves: &[CurveChange]) -> Option<Trouble> {
    let count = |part| curves.iter().filter(|curve| curve.worse && curve.part == part).count();
    let (latency, bandwidth) = (count(CurvePart::Latency), count(CurvePart::Bandwidth));
    let what = match (latency, bandwidth) {
        (0, 0) => return None,
        (_, 0) => format!("latency got worse, bandwidth did not (curves with worse latency: {latency})"),
        (0, _) => format!("bandwidth got worse, latency did not (curves with worse bandwidth: {bandwidth})"),
        _ => format!(
            "latency and bandwidth got worse (curves with worse latency: {latency}, with worse bandwidth: {bandwidth})"
        ),
    };
    Some(Trouble { exit_code: 1, text: what })
}

fn describe_rule(rule: &CompareRule, counts: ReplicateCounts, rows: usize, permuted: &Corrected) -> Vec<String> {
    let (level, relevant) = (percent(rule.false_alarm_level), percent(rule.relevant_slowdown));
    let how = if permuted.exact { "all there are" } else { "drawn" };
    vec![
        format!(
            "a row fails where its slow-down is at least {relevant} and, corrected for {rows} rows and curves, would come about by \
             chance in at most {level} of cases: the chance of any false alarm over all rows; it passes where the upper \
             confidence bound of its slow-down stays below {relevant}, and is inconclusive otherwise"
        ),
        format!(
            "p is of an exact rank-sum test of the medians of {} and {} replicates, at best {:.5}; corrected p is from \
             exchanging whole replicates in {} ways ({how}) and taking the largest change of all rows, at best {:.5}",
            counts.base,
            counts.new,
            counts.attainable(),
            permuted.exchanges,
            1.0 / permuted.exchanges.max(1) as f64
        ),
        "replicates of one run share its hour and its hosts; runs at different times say more (--more-base, --more-new)"
            .to_owned(),
    ]
}

/// What holds however it was decided.
fn what_else(base: &[LoadedRecord], new: &[LoadedRecord], lost: usize) -> Vec<String> {
    let firsts = base.first().zip(new.first());
    let by = |loaded: &LoadedRecord| loaded.record.header.backend.measured_by;
    let is_foreign = firsts.is_some_and(|(base, new)| by(base).or(by(new)).is_some());
    let mut sentences = vec![match is_foreign {
        true => "missing, synthetic and unreliable rows never pass; what another tool did not check is compared all the same",
        false => "missing, unverified, synthetic and unreliable rows never pass",
    }
    .to_owned()];
    if lost > 0 {
        sentences.push(format!("{lost} rows of the base are not in the new run and stay out"));
    }
    for difference in firsts.map(|(base, new)| differences(base, new)).unwrap_or_default() {
        let (kind, fact) = (difference.kind.name(), difference.fact);
        sentences.push(format!("allowed to differ: {kind} ({fact}): {:?} and {:?}", difference.base, difference.new));
    }
    sentences
}
