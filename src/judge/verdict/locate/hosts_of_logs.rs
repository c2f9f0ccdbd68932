//! Logs of other tools in which one or two hosts ran at a time, as a shell loop over hosts or pairs of hosts writes them: as a record of
//! these nodes, each measured alone, and of their pairs. Rows of more hosts are left out.

use super::super::comparability::LoadedRecord;
use commgauge_model::layout::Axis;
use commgauge_model::record::header::{RankFacts, number_hosts};
use commgauge_model::record::line::{CaseFacts, CaseLine, PairTimes};
use commgauge_model::workload::Style;
use std::collections::{BTreeMap, BTreeSet};

/// The record with a node for each host that its rows name: the largest calls that every host made alone, and of those that pairs made the
/// largest of the most pairs. `None` for records of commgauge, and where all rows have the same hosts.
pub(super) fn by_host(loaded: &LoadedRecord) -> Option<LoadedRecord> {
    loaded.record.header.backend.measured_by?;
    let header = &loaded.record.header;
    let cases = &loaded.record.plan.cases;
    let few = || cases.iter().filter(|facts| (1..=2).contains(&hosts(facts).len()));
    let named: BTreeSet<&str> = few().flat_map(hosts).collect();
    let any_rank = header.ranks.first().filter(|_| named.len() > 1)?;
    let each = few().map(|facts| facts.locality.ranks_per_node).max()?.clamp(1, header.world_size.max(1));
    let world_size = each.checked_mul(named.len() as u32)?;
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
    record.header.world_size = world_size;
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
        let own = hosts(cases.get(line.case as usize)?);
        let ranks: Vec<u32> = own.iter().filter_map(|host| first_ranks.get(host).copied()).collect();
        place(line, &ranks);
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
    let of_all: Vec<_> = alone.into_iter().filter(|(_, rows)| rows.len() == hosts_in_all).collect();
    let largest = of_all.iter().map(|(_, rows)| rows[0].bytes_total).max();
    let of_all = of_all.into_iter().filter(|(_, rows)| Some(rows[0].bytes_total) == largest);
    let of_pairs = pairs.into_iter().max_by_key(|(_, rows)| (rows.len(), rows[0].bytes_total));
    of_all.chain(of_pairs).flat_map(|(_, rows)| rows).map(|facts| facts.name.clone()).collect()
}

/// Gives the time of a line to the hosts that start at these ranks: to the node, or to the pair.
fn place(line: &mut CaseLine, first_ranks: &[u32]) {
    let Some(nanoseconds) = line.samples.slowest_nanoseconds.first().copied() else { return };
    match *first_ranks {
        [first] => {
            line.rank_medians = vec![0; first as usize];
            line.rank_medians.push(nanoseconds);
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

    /// What is suspected by a log of another tool with runs of these hosts, such as `gpu-0+gpu-1`, and their times in microseconds.
    fn suspects(runs: &[(String, f64)]) -> Suspects {
        let times: Vec<Vec<f64>> = runs.iter().map(|(_, time)| vec![*time]).collect();
        let mut lines = lines("a", &times);
        let name = |hosts: &str| format!("imported/all_reduce/hosts={hosts}/iters=20");
        for line in &mut lines {
            match line {
                Line::Header(header) => header.backend.measured_by = Some(ForeignTool::NcclTests),
                Line::Plan(plan) => {
                    let size = plan.cases[0].bytes_total;
                    for (facts, (hosts, _)) in plan.cases.iter_mut().zip(runs) {
                        (facts.bytes_total, facts.bytes_accounted, facts.bytes_per_rank) = (size, size, size);
                        facts.name = name(hosts);
                        facts.labels.insert("hosts".to_owned(), hosts.clone());
                    }
                }
                Line::Case(case) => case.name = name(&runs[case.case as usize].0).into(),
                _ => {}
            }
        }
        locate(&[loaded("logs.jsonl", lines)], &LocateOptions::default()).expect("one record")
    }

    /// The runs of a shell loop over hosts or over pairs of hosts; those whose hosts have `slow` among them take twice as long.
    fn swept(hosts: usize, in_pairs: bool, slow: &str) -> Vec<(String, f64)> {
        let alone = (0..hosts).map(|host| format!("gpu-{host}"));
        let pairs = (0..hosts).flat_map(|one| (one + 1..hosts).map(move |other| format!("gpu-{one}+gpu-{other}")));
        let all: Vec<String> = if in_pairs { pairs.collect() } else { alone.collect() };
        let time =
            |at: usize, hosts: &str| 4700.0 * if hosts.contains(slow) { 2.0 } else { 1.0 } + 10.0 * (at % 5) as f64;
        all.into_iter().enumerate().map(|(at, hosts)| (hosts.clone(), time(at, &hosts))).collect()
    }

    #[test]
    fn a_slow_host_or_path_of_a_shell_loop_is_named() {
        for (in_pairs, slow, named) in [
            (false, "none", None),
            (true, "none", None),
            (false, "gpu-5", Some("node 5 (gpu-5)")),
            (true, "gpu-5", Some("node 5 (gpu-5)")),
            (true, "gpu-2+gpu-6", Some("link between node 2 (gpu-2) and node 6 (gpu-6)")),
        ] {
            let found = suspects(&swept(8, in_pairs, slow));
            let names: Vec<&str> = found.suspects.iter().map(|suspect| &*suspect.name).collect();
            assert_eq!((names, found.examined.nodes), (Vec::from_iter(named), 8), "{slow}, {in_pairs}: {found:?}");
        }
    }

    #[test]
    fn one_call_on_few_hosts_names_a_slow_one_without_suspecting_it() {
        let found = suspects(&swept(4, true, "gpu-3"));
        let alone: Vec<_> = found.unconfirmed.iter().map(|alone| (alone.measure, &*alone.name)).collect();
        assert_eq!((found.exit_code, alone), (3, vec![(Measure::Collective, "node 3 (gpu-3)")]), "{found:?}");
    }

    #[test]
    fn runs_of_some_pairs_are_all_that_was_planned_and_runs_of_more_hosts_are_not_compared() {
        let mut runs = swept(6, true, "none");
        runs.truncate(8);
        runs.push(("gpu-0+gpu-1+gpu-2".to_owned(), 90_000.0));
        let found = suspects(&runs);
        assert_eq!((found.examined.node_pairs_measured, found.problems.len()), (8, 0), "{found:?}");
        assert_eq!((found.suspects, found.unconfirmed), (Vec::new(), Vec::new()));
    }
}
