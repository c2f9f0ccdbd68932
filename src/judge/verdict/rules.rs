//! Rules over several rows: what the mean of their bus bandwidths must reach, or at least k of them.
//!
//! A rule is judged as a row of its own, whose replicates are the means, or the k-th best, of the replicates of its rows. Both fall if
//! any row gets worse, so a rule never gets better by a worse row, and bounds, runs and slow periods count as for any row.

use super::document::Subject;
use super::evidence::Evidence;
use super::expected::Expected;
use commgauge_base::units::{Bytes, counted};
use commgauge_model::config::machine::Rows;
use commgauge_model::config::{Expectation, Limit};
use std::collections::BTreeMap;

/// A row of a rule.
struct Member<'a, 'b> {
    case: &'b Evidence<'a>,
    bytes: Bytes,
    expectation: usize,
    /// The time that just meets the expectation.
    seconds_at_limit: f64,
}

/// The rows of rules on the same hosts, each with the expectation of its largest size.
pub(super) fn rules<'a>(
    cases: &[Evidence<'a>],
    about: &[Vec<usize>],
    expected: &Expected,
) -> Vec<(Evidence<'a>, usize)> {
    let mut rules: BTreeMap<_, Vec<Member>> = BTreeMap::new();
    for (case, about) in cases.iter().zip(about) {
        let Some(facts) = case.subject.call() else { continue };
        for (expectation, one) in about.iter().filter_map(|index| Some((*index, expected.of_call(*index)?))) {
            let seconds_at_limit = seconds_at_limit(case.subject, one).zip(one.table.rows);
            let Some((seconds_at_limit, rows)) = seconds_at_limit else { continue };
            let rule = (&one.table.rule, rows, &case.hosts, facts.axis.to_string(), &facts.labels);
            let member = Member { case, bytes: facts.bytes_total, expectation, seconds_at_limit };
            rules.entry(rule).or_default().push(member);
        }
    }
    rules.into_iter().filter_map(|((_, rows, ..), members)| joined(rows, members)).collect()
}

/// The row of a rule.
fn joined<'a>(rows: Rows, mut members: Vec<Member<'a, '_>>) -> Option<(Evidence<'a>, usize)> {
    members.sort_by_key(|member| member.bytes);
    let (first, last) = (members.first()?, members.last()?);
    let longest = members.iter().max_by_key(|member| member.case.runs.len())?;
    let (count, of) = match rows {
        Rows::AtLeast(1) => (1, "best".to_owned()),
        Rows::AtLeast(least) => (least as usize, least.to_string()),
        Rows::Mean => (1, "mean".to_owned()),
    };
    let over = format!("{of} of {} of {} to {}", counted(members.len(), "row"), first.bytes, last.bytes);
    let mut rule = Evidence { subject: last.case.subject, over: Some(over), ..longest.case.clone() };
    for Member { case, .. } in &members {
        case.shortfalls.iter().for_each(|shortfall| rule.add(shortfall.clone()));
        rule.in_slow_period |= case.in_slow_period;
        rule.corrupt |= case.corrupt;
    }
    let lacks = format!("{} of the {count} rows that must reach it are in the record", members.len());
    rule.shortfalls.extend((members.len() < count).then_some(lacks));
    let all = |of: fn(&Evidence, usize) -> Option<f64>| {
        // How far a row reaches its limit: 1.1 is 10 % better, for rates and for times.
        let reached =
            |at: usize| members.iter().map(move |member| Some(member.seconds_at_limit / of(member.case, at)?));
        let of_rule = |at: usize| match rows {
            Rows::Mean => Some(reached(at).sum::<Option<f64>>()? / members.len() as f64),
            Rows::AtLeast(_) => {
                let mut best: Vec<f64> = reached(at).flatten().collect();
                best.sort_by(|one, other| other.total_cmp(one));
                best.get(count - 1).copied()
            }
        };
        (0..longest.case.runs.len()).map(|at| Some(last.seconds_at_limit / of_rule(at)?)).collect()
    };
    let seconds = all(|case, at| *case.seconds.get(at)?);
    let steady_seconds = all(|case, at| *case.steady_seconds.get(at)?);
    Some((Evidence { seconds, steady_seconds, ..rule }, last.expectation))
}

/// The time of a transfer that just meets an expectation.
fn seconds_at_limit(subject: Subject, expected: &Expectation) -> Option<f64> {
    match expected.limit {
        Limit::BusBandwidthFloor(floor) => subject.rate().map(|rate| rate.amount / floor.0),
        Limit::LatencyCeiling(time) => Some(time.0),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{lines, loaded, machine};
    use super::super::{Decision, GateRule, Verdict, gate};
    use commgauge_model::config::Machine;
    use commgauge_model::record::Line;
    use commgauge_model::record::line::Outcome;
    use std::path::Path;

    /// Of 1, 2 and 4 MiB on 4 ranks: 1.5 S/t.
    const TIMES: [f64; 3] = [100.0, 150.0, 200.0];

    /// The rows with six replicates each, every time multiplied by its row's factor.
    fn run(factors: [f64; 3]) -> Vec<Line> {
        let row = |(time, factor): (f64, f64)| {
            [0.99, 1.0, 1.01, 1.0, 0.995, 1.005].map(|noise| time * factor * noise).to_vec()
        };
        lines("a", &TIMES.into_iter().zip(factors).map(row).collect::<Vec<_>>())
    }

    fn reading(rows: &str) -> Machine {
        let text = format!(
            "name = 'm'\nranks_per_node = 2\n[within_node]\nlatency = '1us'\nrate = '400GB/s'\n[between_nodes]\n\
             latency = '5us'\nadapters_per_node = 2\nrate_per_adapter = '400GB/s'\n[applies_to]\nbackend = 'mpi'\n\
             [coverage]\nexpectations = 1\nbytes = ['1MiB', '4MiB']\n[[expect]]\ncollective = 'all_reduce'\nranks = 4\n{rows}\n\
             source = 's'\ndate = '2026'\n"
        );
        Machine::parse(&text, Path::new("m.toml")).unwrap()
    }

    fn judged(lines: Vec<Line>, machine: &Machine) -> Verdict {
        let rule = GateRule { confidence: 0.95, allowed: Vec::new() };
        gate(&[loaded("r.jsonl", lines)], Some(machine), &rule).unwrap()
    }

    #[test]
    fn the_mean_the_best_and_a_number_of_rows_are_judged_as_one_row() {
        // Bus bandwidths of 15.7, 21.0 and 31.5 GB/s, 22.7 in the mean.
        let all = "bytes = ['1MiB', '1GiB']";
        for (rows, decision, over) in [
            (format!("{all}\nfloor = '22GB/s'\nrows = 'mean'"), Decision::Pass, "mean of 3 rows of 1 MiB to 4 MiB"),
            (format!("{all}\nfloor = '24GB/s'\nrows = 'mean'"), Decision::Fail, "mean of 3 rows of 1 MiB to 4 MiB"),
            (format!("{all}\nfloor = '30GB/s'\nrows = 'maximum'"), Decision::Pass, "best of 3 rows of 1 MiB to 4 MiB"),
            (format!("{all}\nfloor = '33GB/s'\nrows = 'maximum'"), Decision::Fail, "best of 3 rows of 1 MiB to 4 MiB"),
            (format!("{all}\nfloor = '20GB/s'\nrows = 2"), Decision::Pass, "2 of 3 rows of 1 MiB to 4 MiB"),
            (format!("{all}\nfloor = '22GB/s'\nrows = 2"), Decision::Fail, "2 of 3 rows of 1 MiB to 4 MiB"),
            (format!("{all}\nceiling = '160us'\nrows = 2"), Decision::Pass, "2 of 3 rows of 1 MiB to 4 MiB"),
            (format!("{all}\nceiling = '140us'\nrows = 2"), Decision::Fail, "2 of 3 rows of 1 MiB to 4 MiB"),
            // More rows than the record has.
            (format!("{all}\nfloor = '1GB/s'\nrows = 4"), Decision::Inconclusive, "4 of 3 rows of 1 MiB to 4 MiB"),
            // Every size has its own figure.
            (
                "curve = [['1MiB', '20GB/s'], ['2MiB', '20GB/s'], ['4MiB', '30GB/s']]\ntolerance = 0\nrows = 2"
                    .to_owned(),
                Decision::Pass,
                "2 of 3 rows of 1 MiB to 4 MiB",
            ),
            (
                "curve = [['1MiB', '20GB/s'], ['2MiB', '22GB/s'], ['4MiB', '30GB/s']]\ntolerance = 0\nrows = 2"
                    .to_owned(),
                Decision::Fail,
                "2 of 3 rows of 1 MiB to 4 MiB",
            ),
        ] {
            let verdict = judged(run([1.0; 3]), &reading(&rows));
            let row = verdict.rows.last().unwrap();
            assert_eq!((row.decision, row.over.as_deref()), (Some(decision), Some(over)), "{rows}: {row:?}");
            assert_eq!(Decision::from_exit_code(verdict.exit_code), decision, "{rows}: {:?}", verdict.problems);
            assert!(verdict.rows[..3].iter().all(|row| row.decision.is_none() && row.reasons[0].contains("by a rule")));
            assert_eq!((verdict.coverage.rows_judged, verdict.template), (1, None));
        }
    }

    #[test]
    fn tables_of_one_rule_count_their_rows_together() {
        let rows = "bytes = '1MiB'\nfloor = '15GB/s'\nrows = 2\nrule = 'two'\nsource = 's'\ndate = '2026'\n[[expect]]\n\
            collective = 'all_reduce'\nranks = 4\nbytes = '4MiB'\nceiling = '210us'\nrows = 2\nrule = 'two'";
        let machine = reading(rows);
        let code = |factors| judged(run(factors), &machine).exit_code;
        assert_eq!([code([1.0; 3]), code([1.0, 9.0, 1.0]), code([1.1, 1.0, 1.0]), code([1.0, 1.0, 1.1])], [0, 0, 1, 1]);
        let verdict = judged(run([1.0; 3]), &machine);
        assert_eq!((verdict.coverage.expectations, verdict.coverage.expectations_judged), (2, 2));
    }

    #[test]
    fn a_rule_with_an_unreliable_or_wrong_row_never_passes() {
        let machine = reading("bytes = ['1MiB', '1GiB']\nfloor = '1GB/s'\nrows = 1");
        assert_eq!(judged(run([1.0; 3]), &machine).exit_code, 0);
        let corrupt = Outcome::Corrupt {
            when: "after".to_owned(),
            rank: 1,
            element: 2,
            expected: "1".to_owned(),
            got: "2".to_owned(),
            count: 1,
            call: None,
        };
        for (outcome, decision) in
            [(Outcome::Measured { verified: false }, Decision::Inconclusive), (corrupt, Decision::Fail)]
        {
            let mut harmed = run([1.0; 3]);
            let case = harmed.iter_mut().find_map(|line| if let Line::Case(case) = line { Some(case) } else { None });
            case.unwrap().outcome = outcome;
            assert_eq!(judged(harmed, &machine).rows.last().unwrap().decision, Some(decision));
        }
    }

    #[test]
    fn a_machine_without_rules_has_no_row_more() {
        assert_eq!(judged(run([1.0; 3]), &machine("1GB/s")).rows.len(), 3);
    }
}
