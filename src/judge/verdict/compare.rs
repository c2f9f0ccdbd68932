//! Is it slower than before? Every row that both runs have passes, fails, or is inconclusive.

use super::comparability::{CompareRule, LoadedRecord, ensure_comparable};
use super::document::{
    AgainstBase, CurveChange, CurvePart, FORMAT, FalseAlarms, Question, Row, VERSION, Verdict, percent,
};
use super::evidence::{ComparedRow, Evidence, Gathered, evidence, names_to_match};
use super::gate::{cap_decision, coverage, exit_code_of, name_hosts_that_differ, undecided_row};
use super::permutation::{
    self, Alone, Corrected, CountRanges, MAX_REPLICATES, ReplicateCounts, RowProbabilities, Sides, corrected,
    fewest_for, is_testable,
};
use super::{Decision, Problem, comparability, curve_noise, differences, most_severe};
use commgauge_base::error::{Error, Result};
use commgauge_base::stats::{RankSums, Span, median, sorted};
use commgauge_base::units::{counted, three_digits};
use std::collections::{BTreeMap, BTreeSet};

/// Compares runs with a baseline. Several records on one side count as replicates of each other.
///
/// # Errors
/// A usage error if the runs are not comparable, one is given twice, or there are too many replicates for an exact test.
pub fn compare(base: &[LoadedRecord], new: &[LoadedRecord], rule: &CompareRule) -> Result<Verdict> {
    ensure_comparable(&base.iter().chain(new).collect::<Vec<_>>(), &rule.allowed)?;
    let Gathered { cases: mut old_cases, problems: old_problems, .. } = evidence(base, &rule.allowed);
    let Gathered { cases: mut new_cases, runs, problems: new_problems, .. } = evidence(new, &rule.allowed);
    // Compares times; the verdict names who checked the data.
    old_cases.iter_mut().chain(&mut new_cases).for_each(Evidence::accept_unchecked);
    let most = |cases: &[Evidence]| cases.iter().map(|case| case.seconds.len()).max().unwrap_or(0);
    let (base_most, new_most) = (most(&old_cases), most(&new_cases));
    if base_most.max(new_most) > MAX_REPLICATES {
        return Err(Error::usage(format!(
            "{base_most} and {new_most} replicates are too many for an exact test; at most {MAX_REPLICATES} of each"
        )));
    }
    let names = |cases: &[Evidence]| names_to_match(cases, &rule.allowed);
    let (old_names, new_names) = (names(&old_cases), names(&new_cases));
    let mut by_name: BTreeMap<&str, Vec<&Evidence>> = BTreeMap::new();
    old_names.iter().zip(&old_cases).for_each(|(name, case)| by_name.entry(name).or_default().push(case));
    let compared: Vec<ComparedRow> = (new_cases.iter().zip(&new_names))
        .map(|(new, name)| ComparedRow { new, base: by_name.get(name.as_str()).and_then(|all| same_hosts(all, new)) })
        .collect();
    let level = rule.false_alarm_level;
    let rows_of_all: Vec<Sides> = compared.iter().map(sides).collect();
    let by_noise = if is_testable(&rows_of_all, level) { None } else { curve_noise::judged(&compared, level) };
    let is_permuted = by_noise.is_none();
    let series = if is_permuted { curve_noise::curves_series(&compared) } else { Vec::new() };
    let of_one_run = permutation::sides(&compared);
    let counts = CountRanges::of(&rows_of_all);
    let (row_count, curve_count) = (rows_of_all.len(), series.len());
    let family = rows_of_all
        .into_iter()
        .chain(series.iter().map(|series| series.sides.clone()))
        .chain(of_one_run.iter().map(|(_, sides)| sides.clone()));
    let permuted = corrected(&family.collect::<Vec<_>>(), level);
    let (p_of_rows, others) = permuted.probabilities.split_at(row_count);
    let (p_of_curves, p_of_one_run) = others.split_at(curve_count);
    let mut alone_of_row: Vec<BTreeMap<usize, RowProbabilities>> = vec![BTreeMap::new(); row_count];
    for ((index, sides), p) in of_one_run.iter().zip(p_of_one_run) {
        alone_of_row[*index].extend(sides.run.zip(*p));
    }
    let (mut ranks, mut alone) = (RankSums::default(), Alone::default());
    let mut rows: Vec<Row> = (compared.iter().enumerate())
        .map(|(index, compared)| {
            let mut row = match &by_noise {
                Some(by_noise) => curve_noise::row(compared, by_noise[index], rule),
                None => row(compared, p_of_rows[index], rule, &mut ranks),
            };
            if let Some(old) = compared.base {
                let found = permutation::compared(compared.new, old, &alone_of_row[index], rule, &mut ranks);
                alone.apply(&mut row, &runs, &found);
            }
            row
        })
        .collect();
    name_hosts_that_differ(&mut rows);
    let curves: Vec<CurveChange> = (series.iter().zip(p_of_curves))
        .filter_map(|(series, p)| series.change(p.map_or(1.0, |p| p.slower), level, rule.relevant_slowdown, &mut ranks))
        .collect();
    let mut problems = [old_problems, new_problems].concat();
    let copies = comparability::copies(base.iter().chain(new)).map(|text| Problem { exit_code: 3, text });
    problems.extend(copies.filter(|copies| !problems.contains(copies)));
    let is_untested = is_permuted && permuted.families == 0;
    problems.extend(inconclusive_reasons(is_untested.then_some(&counts), &rows, rule));
    problems.extend(alone.problems(&runs, rows.len()));
    problems.extend(worse_curves(&curves));
    let names: BTreeSet<&str> = new_names.iter().map(String::as_str).collect();
    let lost = old_names.iter().filter(|name| !names.contains(name.as_str())).count();
    let exit_code = most_severe(problems.iter().map(|problem| problem.exit_code).chain(rows.iter().map(exit_code_of)));
    let described = match &by_noise {
        Some(by_noise) => curve_noise::describe_rule(rule, &counts, by_noise.iter().flatten().count()),
        None => describe_rule(rule, &counts, &permuted),
    };
    let described = described.into_iter().chain(what_else(base, new, lost)).collect();
    let tested = p_of_rows.iter().flatten().count();
    let judged_rows = by_noise.as_ref().map_or(tested, |by_noise| by_noise.iter().flatten().count());
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
        problems,
        rows,
        findings: Vec::new(),
        curves,
        template: None,
    })
}

/// The row of the base on the same hosts; if the base has a single row, that row, whatever its hosts.
fn same_hosts<'a>(of_base: &[&'a Evidence<'a>], new: &Evidence) -> Option<&'a Evidence<'a>> {
    let same = || of_base.iter().find(|base| base.hosts == new.hosts);
    if let [only] = of_base { Some(only) } else { same().copied() }
}

/// The times of a row on either side.
fn sides(ComparedRow { new, base }: &ComparedRow) -> Sides {
    let logarithms = |case: &Evidence| case.seconds.iter().flatten().map(|time| time.ln()).collect();
    Sides { base: base.map(logarithms).unwrap_or_default(), new: logarithms(new), run: None }
}

fn row(compared: &ComparedRow, p: Option<RowProbabilities>, rule: &CompareRule, ranks: &mut RankSums) -> Row {
    let case = compared.new;
    let mut row = undecided_row(case);
    let Some(old) = compared.base else {
        row.reasons.push("the base lacks this row".to_owned());
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

/// Fails if the slowdown is relevant and significant over all rows; passes if its upper bound is below the relevant slowdown; inconclusive
/// otherwise.
fn decide(
    slowdown: Option<Span>,
    p: Option<RowProbabilities>,
    rule: &CompareRule,
    row: &mut Row,
    counts: ReplicateCounts,
) -> Decision {
    let Some(Span { middle, interval }) = slowdown else {
        row.reasons.insert(0, "one of the runs has no replicate of this row".to_owned());
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
        true => format!("about {more} more replicates on each side would decide"),
        false => {
            format!("not even {MAX_REPLICATES} replicates on each side would decide, with runs that differ this much")
        }
    };
    row.replicates_more = is_feasible.then_some(more as u32);
    let may = high.map_or_else(|| "no bound known".to_owned(), |high| format!("it may be slower by {}", percent(high)));
    row.reasons.insert(0, format!("{may}, and {} is relevant; {advice}", percent(relevant)));
    Decision::Inconclusive
}

/// Why the comparison as a whole is inconclusive. `untested` are the numbers of replicates for which a permutation test cannot show
/// anything.
fn inconclusive_reasons(untested: Option<&CountRanges>, rows: &[Row], rule: &CompareRule) -> Vec<Problem> {
    let mut found = Vec::new();
    if let Some(counts) = untested.filter(|counts| counts.most().base.min(counts.most().new) > 0) {
        found.push(format!(
            "with {counts} no probability below {} can be reached, so no slowdown can be shown; {} on each side are needed",
            three_digits(counts.most().attainable()),
            fewest_for(rule.false_alarm_level)
        ));
    }
    if !rows.iter().any(|row| row.decision.is_some()) {
        found.push("the runs have no row in common".to_owned());
    }
    found.into_iter().map(|text| Problem { exit_code: 3, text }).collect()
}

/// Curves that became slower are a separate failure: many rows together can show a change that no single row shows.
fn worse_curves(curves: &[CurveChange]) -> Option<Problem> {
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
    Some(Problem { exit_code: 1, text: what })
}

fn describe_rule(rule: &CompareRule, counts: &CountRanges, permuted: &Corrected) -> Vec<String> {
    let (level, relevant) = (percent(rule.false_alarm_level), percent(rule.relevant_slowdown));
    let how = if permuted.exact { "all of them" } else { "drawn" };
    let (rows, exchanges) = (permuted.tested, if permuted.tested == 0 { 0 } else { permuted.exchanges });
    let mut sentences = vec![
        format!(
            "a row fails if its slowdown is at least {relevant} and, corrected for {rows} rows and curves, occurs by chance in at most {level} of cases: the probability of any false alarm over all rows; it passes if the upper confidence bound of its slowdown is below {relevant}, and is inconclusive otherwise"
        ),
        format!(
            "p comes from an exact rank-sum test of the medians of {counts}, at best {:.5}; corrected p comes from exchanging whole replicates in {exchanges} ways ({how}) and taking the largest change of all rows, at best {:.5}",
            counts.most().attainable(),
            permuted.families as f64 / exchanges.max(1) as f64
        ),
        "replicates of one run share its time and its hosts; runs at different times show more (--more-base, --more-new)"
            .to_owned(),
    ];
    if permuted.families > 1 || permuted.tested < permuted.probabilities.len() {
        sentences.push(format!(
            "rows are exchanged with rows that have as many replicates, and each of several new runs also separately: {}; corrected p is multiplied by their number; groups with too few replicates cannot show a slowdown",
            counted(permuted.families, "group")
        ));
    }
    sentences
}

/// Statements that hold for every rule.
fn what_else(base: &[LoadedRecord], new: &[LoadedRecord], lost: usize) -> Vec<String> {
    let firsts = base.first().zip(new.first());
    let by = |loaded: &LoadedRecord| loaded.record.header.backend.measured_by;
    let is_foreign = firsts.is_some_and(|(base, new)| by(base).or(by(new)).is_some());
    let mut sentences =
        vec![match is_foreign {
        true => "missing, synthetic and unreliable rows never pass; data unchecked by another tool is still compared",
        false => "missing, unverified, synthetic and unreliable rows never pass",
    }
    .to_owned()];
    if lost > 0 {
        sentences.push(format!("{lost} rows of the base are missing in the new run and are skipped"));
    }
    for difference in firsts.map(|(base, new)| differences(base, new)).unwrap_or_default() {
        let (kind, fact) = (difference.kind.name(), difference.fact);
        sentences.push(format!("allowed to differ: {kind} ({fact}): {:?} and {:?}", difference.base, difference.new));
    }
    sentences
}
