//! Logs of other tools in which one or two hosts ran at a time, as a shell loop over hosts or pairs of hosts writes them: as a record of
//! these nodes, each measured alone, and of their pairs. Rows of more hosts are left out.

use super::super::comparability::LoadedRecord;
use commgauge_model::layout::Axis;
use commgauge_model::record::header::{RankFacts, number_hosts};
use commgauge_model::record::line::{CaseFacts, CaseLine, PairTimes};
use commgauge_model::workload::Style;
use std::collections::{BTreeMap, BTreeSet};

/// The record with a node for each host that its rows name: the calls that every host made alone, and of those that pairs made the
/// largest of the most pairs. `None` for records of commgauge, and where all rows have the same hosts.
pub(super) fn by_host(loaded: &LoadedRecord) -> Option<LoadedRecord> {
    loaded.record.header.backend.measured_by?;
    let header = &loaded.record.header;
    let cases = &loaded.record.plan.cases;
    let few = || cases.iter().filter(|facts| (1..=2).contains(&hosts(facts).len()));
    let named: BTreeSet<&str> = few().flat_map(hosts).collect();
    let any_rank = header.ranks.first().filter(|_| named.len() > 1)?;
    let each = few().map(|facts| facts.locality.ranks_per_node).max()?.max(1);
    let first_ranks: BTreeMap<&str, u32> = named.into_iter().zip((0..).step_by(each as usize)).collect();
    let kept = comparable(few(), first_ranks.len());

    let mut by_host = loaded.clone();
    let record = &mut by_host.record;
    let rank = |(host, rank): (&&str, &u32)| RankFacts {
        rank: *rank,
        ranks: each,
        host: (*host).to_owned(),
        ..any_rank.clone()
    };
    record.header.world_size = each * first_ranks.len() as u32;
    record.header.ranks = first_ranks.iter().map(rank).collect();
    number_hosts(&mut record.header.ranks);
    for facts in record.plan.cases.iter_mut().filter(|facts| kept.contains(&*facts.name)) {
        match hosts(facts).len() {
            1 => facts.axis = Axis::Node,
            _ => (facts.axis, facts.style) = (Axis::Pair, Style::Pairs),
        }
    }
    record.cases.retain(|line| kept.contains(&*line.name));
    for line in &mut record.cases {
        let ranks: Vec<u32> = hosts(cases.get(line.case as usize)?).iter().map(|host| first_ranks[host]).collect();
        place(line, &ranks, record.header.world_size);
    }
    Some(by_host)
}

/// The hosts that a row of a log names: those of its own run, where runs of other hosts are in the same record.
fn hosts(facts: &CaseFacts) -> Vec<&str> {
    facts.labels.get("hosts").map(|hosts| hosts.split('+').collect()).unwrap_or_default()
}

/// The names of the rows whose times can be compared with those of other hosts: nothing but the hosts differs.
fn comparable<'a>(rows: impl Iterator<Item = &'a CaseFacts>, hosts_in_all: usize) -> BTreeSet<String> {
    let mut rows_of: BTreeMap<(usize, String), Vec<&CaseFacts>> = BTreeMap::new();
    for facts in rows {
        let of_hosts = format!("/hosts={}", facts.labels["hosts"]);
        rows_of.entry((hosts(facts).len(), facts.name.replace(&of_hosts, ""))).or_default().push(facts);
    }
    let (alone, pairs): (Vec<_>, Vec<_>) = rows_of.into_iter().partition(|((count, _), _)| *count == 1);
    let of_all = alone.into_iter().filter(|(_, rows)| rows.len() == hosts_in_all);
    let of_pairs = pairs.into_iter().max_by_key(|(_, rows)| (rows.len(), rows[0].bytes_total));
    of_all.chain(of_pairs).flat_map(|(_, rows)| rows).map(|facts| facts.name.clone()).collect()
}

/// Gives the time of a line to the hosts that start at these ranks: to the node, or to the pair.
fn place(line: &mut CaseLine, first_ranks: &[u32], world_size: u32) {
    let Some(nanoseconds) = line.samples.slowest_nanoseconds.first().copied() else { return };
    match *first_ranks {
        [first] => {
            line.rank_medians = vec![0; world_size as usize];
            line.rank_medians[first as usize] = nanoseconds;
        }
        [one, other] => {
            line.pairs = Some(Box::new(PairTimes {
                rank_a: vec![one],
                rank_b: vec![other],
                samples: vec![1],
                p10_nanoseconds: vec![0],
                median_nanoseconds: vec![nanoseconds],
                p90_nanoseconds: vec![0],
            }));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{lines, loaded};
    use super::super::{LocateOptions, Measure, Suspects, locate};
    use commgauge_model::record::Line;
    use commgauge_model::record::line::ForeignTool;

    /// A log of another tool with a run of each set of hosts, which takes so many microseconds, and what is suspected.
    fn suspects(runs: &[(Vec<usize>, f64)]) -> Suspects {
        let name = |(hosts, _): &(Vec<usize>, f64)| {
            let hosts: Vec<String> = hosts.iter().map(|host| format!("gpu-{host:02}")).collect();
            (hosts.join("+"), format!("imported/all_reduce/hosts={}/iters=20", hosts.join("+")))
        };
        let times: Vec<Vec<f64>> = runs.iter().map(|(_, time)| vec![*time]).collect();
        let mut lines = lines("a", &times);
        for line in &mut lines {
            match line {
                Line::Header(header) => header.backend.measured_by = Some(ForeignTool::NcclTests),
                Line::Plan(plan) => {
                    let size = plan.cases[0].bytes_total;
                    for (facts, run) in plan.cases.iter_mut().zip(runs) {
                        (facts.bytes_total, facts.bytes_accounted, facts.bytes_per_rank) = (size, size, size);
                        let (hosts, row) = name(run);
                        facts.name = row;
                        facts.labels.insert("hosts".to_owned(), hosts);
                    }
                }
                Line::Case(case) => case.name = name(&runs[case.case as usize]).1.into(),
                _ => {}
            }
        }
        locate(&[loaded("logs.jsonl", lines)], &LocateOptions::default()).expect("one record")
    }

    /// The runs of a shell loop over hosts or over pairs of hosts; `times` gives how much longer each takes than usual.
    fn swept(hosts: usize, in_pairs: bool, times: impl Fn(&[usize]) -> f64) -> Vec<(Vec<usize>, f64)> {
        let alone = (0..hosts).map(|host| vec![host]);
        let pairs = (0..hosts).flat_map(|one| (one + 1..hosts).map(move |other| vec![one, other]));
        let all: Vec<Vec<usize>> = if in_pairs { pairs.collect() } else { alone.collect() };
        (0..)
            .zip(all)
            .map(|(at, run)| (run.clone(), 4700.0 * times(&run) * (1.0 + 0.002 * f64::from(at % 5))))
            .collect()
    }

    #[test]
    fn a_slow_host_or_path_of_a_shell_loop_is_named() {
        let slow_host = |host: usize| move |run: &[usize]| if run.contains(&host) { 2.0 } else { 1.0 };
        for (what, runs, named) in [
            ("healthy hosts", swept(8, false, |_| 1.0), None),
            ("healthy pairs", swept(8, true, |_| 1.0), None),
            ("a host", swept(8, false, slow_host(5)), Some("node 5 (gpu-05)")),
            ("a host in pairs", swept(8, true, slow_host(5)), Some("node 5 (gpu-05)")),
            (
                "a path",
                swept(8, true, |run| if run == [2, 6] { 2.0 } else { 1.0 }),
                Some("link between node 2 (gpu-02) and node 6 (gpu-06)"),
            ),
        ] {
            let found = suspects(&runs);
            let names: Vec<&str> = found.suspects.iter().map(|suspect| &*suspect.name).collect();
            assert_eq!(names, Vec::from_iter(named), "{what}: {found:?}");
            assert_eq!(found.examined.nodes, 8, "{what}");
        }
    }

    #[test]
    fn one_call_on_few_hosts_names_a_slow_one_without_suspecting_it() {
        let found = suspects(&swept(4, true, |run| if run.contains(&3) { 2.5 } else { 1.0 }));
        let alone: Vec<_> = found.unconfirmed.iter().map(|alone| (alone.measure, &*alone.name)).collect();
        assert_eq!((found.exit_code, alone), (3, vec![(Measure::Collective, "node 3 (gpu-03)")]), "{found:?}");
    }

    #[test]
    fn runs_of_some_pairs_are_all_that_was_planned_and_other_calls_are_not_compared() {
        let mut runs = swept(6, true, |_| 1.0);
        runs.truncate(8);
        runs.push((vec![0, 1, 2], 90_000.0));
        let found = suspects(&runs);
        assert_eq!((found.examined.node_pairs_measured, found.problems.len()), (8, 0), "{found:?}");
        assert_eq!((found.suspects, found.unconfirmed), (Vec::new(), Vec::new()));
    }
}
