//! Locates suspects: node, link, adapter, rail, leaf, only at scale, or a late rank, from pairs, groups and arrivals.
//!
//! Only slowness is searched for here; wrong data and failed runs are reported as warnings. Rendering is in `report`.

mod document;
mod explain;
mod groups;
mod hosts_of_logs;
mod limits;
mod pair_lines;
mod paths;

pub use document::{Examined, SUSPECTS_FORMAT, SUSPECTS_VERSION, Suspect, SuspectKind, Suspects, Unconfirmed};
pub use pair_lines::{LocateOptions, Measure, is_screening};

use super::comparability::LoadedRecord;
use super::counters::Risen;
use super::{Problem, evidence, most_severe, transport};
use commgauge_base::error::Result;
use commgauge_base::visible::ShownPath;
use commgauge_base::writing::ascending;
use commgauge_model::config::Machine;
use commgauge_model::config::machine::Fault;
use document::MIN_MEMBERS;
use explain::{Finding, Search, narrowed, slows_down, unexplained};
use groups::{Analysis, ExpectedPairs, expected_pairs};
use pair_lines::{PairMatrices, Places};
use paths::InsidePairs;

/// Finds the suspects of the records, the strongest evidence first.
///
/// # Errors
/// A usage error if the records do not belong together.
pub fn locate(records: &[LoadedRecord], options: &LocateOptions) -> Result<Suspects> {
    let by_host: Option<Vec<LoadedRecord>> = records.iter().map(hosts_of_logs::by_host).collect();
    let placed = by_host.as_deref().unwrap_or(records);
    let places = Places::of(placed, options)?;
    let lines = pair_lines::pair_lines(placed);
    let pair_matrices = PairMatrices::of(placed, &lines, &places);
    let inside_pairs = InsidePairs::of(&lines, &places);
    let (growths, coarse) = groups::growths(placed, &places);
    let arrivals = groups::arrivals(placed, &places);
    let (nodes_inside, all_sizes, slow_once, unconfirmed) = (0, true, 0, Vec::new());
    let mut analysis = Analysis {
        places,
        pair_matrices,
        inside_pairs,
        growths,
        coarse,
        arrivals,
        nodes_inside,
        all_sizes,
        slow_once,
        allowed_of_path: None,
        unconfirmed,
        expected_pairs: expected_pairs(records, options.machine.as_ref()),
    };
    let findings = findings(&mut analysis);
    let mut suspects = limits::suspects(&findings, &analysis, &records[0].record.header);
    suspects.sort_by(|one, other| other.strength.total_cmp(&one.strength));
    let periods: Vec<String> = slow_periods(records);
    // A slow period caused by a suspect belongs to the suspect, not to the machine.
    let is_own = suspects.iter().any(|suspect| suspect.intermittent);
    let (own_periods, slow_periods) = if is_own { (periods, Vec::new()) } else { (Vec::new(), periods) };
    let mut problems = problems(records, &analysis);
    problems.retain(|problem| !own_periods.iter().any(|own| problem.text.contains(own)));
    let limits = limits::limits(&analysis);
    let mut unseen: Vec<String> = limits.iter().filter_map(|limit| limit.unseen.clone()).collect();
    unseen.dedup();
    let synthetic = records.iter().any(|loaded| loaded.record.header.backend.synthetic);
    let mut located = Suspects {
        format: SUSPECTS_FORMAT.to_owned(),
        version: SUSPECTS_VERSION,
        exit_code: 0,
        answer: String::new(),
        synthetic,
        runs: records.iter().map(|loaded| loaded.run("looked at")).collect(),
        examined: limits::examined(&analysis),
        suspects,
        slow_periods,
        unseen,
        cannot_tell: limits.into_iter().map(|limit| limit.text).collect(),
        problems,
        rule: limits::rule(&analysis),
        unconfirmed: std::mem::take(&mut analysis.unconfirmed),
    };
    let unconfirmed = if located.unconfirmed.is_empty() { 0 } else { 3 };
    located.exit_code = most_severe([located.exit_code_when_cleared(), unconfirmed]);
    located.answer = limits::answer(&located, &analysis);
    let (risen, hosts) = (Risen::of(records), &located.examined.hosts);
    for suspect in &mut located.suspects {
        let nodes = suspect.kind.nodes();
        let own: Vec<&str> = nodes.iter().filter_map(|node| hosts.get(*node as usize)).map(String::as_str).collect();
        suspect.evidence.extend(risen.on(&own));
    }
    Ok(located)
}

/// The findings of every kind of evidence, without those explained by another one.
fn findings(analysis: &mut Analysis) -> Vec<Finding> {
    let mut searches = Vec::new();
    for (measure, matrix) in &analysis.pair_matrices.measures {
        let mut search = Search::new(*measure, matrix, &analysis.places);
        search_pairs(&mut search);
        ExpectedPairs::all_slow(&analysis.expected_pairs, &mut search);
        if *measure != pair_lines::Measure::Tail {
            analysis.slow_once += paths::intermittent(&mut search);
        }
        searches.push(search);
    }
    let of_bandwidth = searches.iter().filter(|search| search.measure.is_of_bandwidth());
    analysis.allowed_of_path = of_bandwidth.filter_map(|search| search.allowed_of_path).reduce(f64::min);
    let one_direction: Vec<SuspectKind> = cables(&searches);
    let (mut found, unconfirmed) = explain::confirmed(searches, &analysis.places);
    analysis.unconfirmed = unconfirmed;
    found.extend(std::mem::take(&mut analysis.inside_pairs.findings));
    for growth in &analysis.growths {
        analysis.nodes_inside = analysis.nodes_inside.max(growth.inside(&analysis.places, &mut found));
    }
    let mut found = unexplained(narrowed(found, &one_direction));
    let suspected: Vec<SuspectKind> = found.iter().map(|finding| finding.suspect.clone()).collect();
    let is_suspected = |members: &[usize]| suspected.iter().any(|suspect| slows_down(suspect, members));
    for growth in &analysis.growths {
        analysis.all_sizes &= growth.at_scale(&is_suspected, &mut found);
    }
    found.extend(analysis.arrivals.late.iter().map(|(finding, _)| finding.clone()));
    found
}

/// All searches in one matrix, the best explanations first.
fn search_pairs(search: &mut Search) {
    search.rails_and_adapters();
    if search.matrix.nodes >= MIN_MEMBERS {
        paths::find(search);
        search.forget_explained();
        search.nodes();
        search.links();
    } else {
        search.of_few_nodes();
    }
}

/// The adapters of suspects that are slow in one direction only, as cables.
fn cables(searches: &[Search]) -> Vec<SuspectKind> {
    let suspects = searches.iter().flat_map(|search| &search.findings).map(|finding| &finding.suspect);
    let adapters = suspects.filter_map(|suspect| match suspect {
        SuspectKind::Adapter { node, local_rank } => Some((*node, *local_rank)),
        _ => None,
    });
    adapters
        .filter(|(node, local)| paths::is_one_direction(searches, *node as usize, *local as usize))
        .map(|(node, local_rank)| SuspectKind::Cable { node, local_rank })
        .collect()
}

/// Periods in which runs were slow, as sentences.
fn slow_periods(records: &[LoadedRecord]) -> Vec<String> {
    records.iter().filter_map(|loaded| evidence::transient_slowdown(&loaded.record)).map(|found| found.text).collect()
}

/// Warnings about the records as a whole.
fn problems(records: &[LoadedRecord], analysis: &Analysis) -> Vec<Problem> {
    let mut problems = Vec::new();
    for loaded in records {
        let name = loaded.path.shown();
        // For each record separately, since several may have different plans.
        let of_record = evidence::evidence(std::slice::from_ref(loaded), &[]).problems;
        let warnings = loaded.record.header.warnings.iter().map(|warning| (3, format!("unreliable: {warning}")));
        problems.extend(of_record);
        let contrasts = transport::contrasts(&loaded.record).into_iter();
        problems.extend(contrasts.map(|text| Problem { exit_code: 0, text }));
        problems.extend(warnings.map(|(exit_code, text)| Problem { exit_code, text: format!("{name}: {text}") }));
    }
    let (planned, measured) = (analysis.pair_matrices.planned, analysis.pair_matrices.measured);
    if measured < planned {
        let text = format!("{} of {planned} pairs of nodes were not measured by every measure", planned - measured);
        problems.push(Problem { exit_code: 7, text });
    }
    problems
}

// The suspects that the injected faults of a simulated machine should lead to, so that a rehearsal can count how often they are found.

/// How the suspects of a rehearsal compare with its injected faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Every injected fault was found, by class and location.
    pub all_named: bool,
    pub others_suspected: bool,
}

impl Found {
    /// Compares suspects with the expected ones.
    pub fn of(suspects: &Suspects, expected: &[SuspectKind]) -> Found {
        let named = |kind: &SuspectKind| suspects.suspects.iter().any(|suspect| suspect.kind == *kind);
        Found {
            all_named: expected.iter().all(named),
            others_suspected: suspects.suspects.iter().any(|suspect| !expected.contains(&suspect.kind)),
        }
    }

    /// All expected suspects were found, and no others.
    pub fn right(self) -> bool {
        self.all_named && !self.others_suspected
    }
}

/// The suspects that the faults of a machine should lead to on this many nodes. Wrong data leads to none.
pub fn expected_suspects(machine: &Machine, nodes: u32) -> Vec<SuspectKind> {
    ascending(machine.faults.iter().flat_map(|fault| of_fault(fault, machine, nodes)))
}

fn of_fault(fault: &Fault, machine: &Machine, nodes: u32) -> Vec<SuspectKind> {
    let locals = |adapter: u32| {
        let (adapters, ranks) = (u64::from(machine.between_nodes.adapters_per_node), u64::from(machine.ranks_per_node));
        let drives = move |local: &u32| {
            let first = u64::from(*local) * adapters / ranks;
            (first..(first + 1).max((u64::from(*local) + 1) * adapters / ranks)).contains(&u64::from(adapter))
        };
        (0..machine.ranks_per_node).filter(drives)
    };
    match *fault {
        Fault::Node { node, .. } => vec![SuspectKind::Node { node }],
        Fault::Link { nodes: [a, b], .. } => vec![SuspectKind::Link { nodes: [a.min(b), a.max(b)], local_rank: None }],
        Fault::Rail { rail, .. } => locals(rail).map(|local_rank| SuspectKind::Rail { local_rank }).collect(),
        Fault::Adapter { node, adapter, .. } => {
            locals(adapter).map(|local_rank| SuspectKind::Adapter { node, local_rank }).collect()
        }
        Fault::Cable { node, adapter, .. } => {
            locals(adapter).map(|local_rank| SuspectKind::Cable { node, local_rank }).collect()
        }
        Fault::Device { node, device, .. } => vec![SuspectKind::Device { node, local_rank: device }],
        Fault::NvLink { node, device, peer: None, .. } => {
            vec![SuspectKind::NvLink { node, local_rank: device, peer: None }]
        }
        Fault::NvLink { node, device, peer: Some(peer), .. } => {
            vec![SuspectKind::NvLink { node, local_rank: device.min(peer), peer: Some(device.max(peer)) }]
        }
        Fault::Neighbour { node, .. } => vec![SuspectKind::Node { node }],
        Fault::Leaf { leaf, .. } => {
            let each = machine.between_nodes.nodes_per_leaf.unwrap_or(1);
            let first = leaf.saturating_mul(each);
            vec![SuspectKind::Leaf { leaf, nodes: (first..first.saturating_add(each).min(nodes)).collect() }]
        }
        // Group sizes double, so it shows from the next power of two on, or with all nodes.
        Fault::Scale { from_nodes, .. } => {
            vec![SuspectKind::OnlyAtScale { from_nodes: from_nodes.next_power_of_two().min(nodes) }]
        }
        Fault::Rank { rank, .. } => vec![SuspectKind::LateRank { rank, node: rank / machine.ranks_per_node }],
        Fault::Corrupt { .. } => Vec::new(),
        // A slow period of the whole network is not a suspect.
        Fault::While { ref fault, .. } if matches!(**fault, Fault::Scale { .. }) => Vec::new(),
        Fault::Intermittent { ref fault, .. } | Fault::While { ref fault, .. } => of_fault(fault, machine, nodes),
    }
}

#[cfg(test)]
mod tests {
    // Suspects on small fleets, where half of the values can be bad: matrices with a known fault.
    use super::explain::unexplained;
    use super::explain::{Finding, Search};
    use super::pair_lines::Measure;
    use super::pair_lines::PairMatrix;
    use super::pair_lines::Places;
    use super::*;
    use commgauge_model::workload::rounds;
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    fn places(nodes: usize, nodes_per_leaf: Option<u32>) -> Places {
        Places {
            hosts: (0..nodes).map(|node| format!("host{node}")).collect(),
            node_of: (0..nodes as u32).collect(),
            local_of: vec![0; nodes],
            ranks_on: vec![1; nodes],
            nodes_per_leaf,
            nodes_per_rack: None,
        }
    }

    /// The suspects in a matrix in which each pair takes `times` as long as usual, with a scatter of 2 %.
    fn suspects_of(
        nodes: usize,
        leaf: Option<u32>,
        seed: u64,
        times: impl Fn([usize; 2], usize) -> f64,
    ) -> Vec<SuspectKind> {
        suspects_at(&places(nodes, leaf), seed, times)
    }

    fn suspects_at(places: &Places, seed: u64, times: impl Fn([usize; 2], usize) -> f64) -> Vec<SuspectKind> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let matrix = PairMatrix::of(places.nodes(), 2, 3, |pair, local, _| {
            (times(pair, local) * random.random_range(0.98..1.02_f64)).ln()
        });
        let mut search = Search::new(Measure::OneWay, &matrix, places);
        search_pairs(&mut search);
        super::paths::intermittent(&mut search);
        let found: Vec<Finding> = unexplained(search.findings);
        found.into_iter().map(|finding| finding.suspect).collect()
    }

    #[test]
    fn on_four_nodes_a_slow_node_and_a_slow_link_are_distinguished() {
        for seed in 0..100 {
            let node = suspects_of(4, None, seed, |pair, _| if pair.contains(&2) { 4.0 } else { 1.0 });
            assert_eq!(node, [SuspectKind::Node { node: 2 }], "seed {seed}");
            let link = suspects_of(4, None, seed, |pair, _| if pair == [0, 3] { 4.0 } else { 1.0 });
            assert_eq!(link, [SuspectKind::Link { nodes: [0, 3], local_rank: None }], "seed {seed}");
        }
    }

    #[test]
    fn a_network_that_was_slow_in_two_replicates_of_a_round_makes_no_pair_a_suspect_and_a_pair_alone_is_one() {
        let (places, rounds) = (places(16, None), rounds(16));
        for (slow, expected) in [
            (&rounds[3][..], vec![]),
            (
                &rounds[3][..1],
                vec![SuspectKind::Link { nodes: rounds[3][0].map(|node| node as u32), local_rank: None }],
            ),
        ] {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
            let mut matrix = PairMatrix::of(16, 2, 3, |pair, _, replicate| {
                let times = if replicate < 2 && slow.contains(&pair) { 1.7 } else { 1.0 };
                (times * random.random_range(0.98..1.02_f64)).ln()
            });
            matrix.measure_in(&rounds);
            let mut search = Search::new(Measure::OneWay, &matrix, &places);
            search_pairs(&mut search);
            super::paths::intermittent(&mut search);
            let found: Vec<SuspectKind> = search.findings.into_iter().map(|finding| finding.suspect).collect();
            assert_eq!(found, expected);
        }
    }

    /// The suspects by one way and both ways together on four nodes, and the number of unconfirmed findings, if both ways takes as long as
    /// one message or two, at random for each pair.
    fn confirmed_on_four(
        seed: u64,
        one_way: impl Fn([usize; 2]) -> f64,
        both: impl Fn([usize; 2]) -> f64,
    ) -> (Vec<SuspectKind>, usize) {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut scatter = |value: f64| (value * random.random_range(0.98..1.02_f64)).ln();
        let first = PairMatrix::of(4, 1, 3, |pair, _, _| scatter(one_way(pair)));
        let mut coin = Xoshiro256PlusPlus::seed_from_u64(seed + 1_000);
        let second =
            PairMatrix::of(4, 1, 3, |pair, _, _| scatter(both(pair) * if coin.random_bool(0.5) { 2.0 } else { 1.0 }));
        let places = places(4, None);
        let searched = |measure, matrix| {
            let mut search = Search::new(measure, matrix, &places);
            search_pairs(&mut search);
            super::paths::intermittent(&mut search);
            search
        };
        let searches = vec![searched(Measure::OneWay, &first), searched(Measure::BothWays, &second)];
        let (found, alone) = super::explain::confirmed(searches, &places);
        let mut suspects: Vec<SuspectKind> = unexplained(found).into_iter().map(|finding| finding.suspect).collect();
        suspects.dedup();
        (suspects, alone.len())
    }

    #[test]
    fn on_four_nodes_one_measure_alone_makes_no_suspect() {
        let mut unconfirmed = 0;
        for seed in 0..500 {
            let slow = |slow: bool| if slow { 4.0 } else { 1.0 };
            let link = |pair| slow(pair == [0, 3]);
            assert_eq!(
                confirmed_on_four(seed, link, link).0,
                [SuspectKind::Link { nodes: [0, 3], local_rank: None }],
                "seed {seed}"
            );
            let node = |pair: [usize; 2]| slow(pair.contains(&2));
            assert_eq!(confirmed_on_four(seed, node, node).0, [SuspectKind::Node { node: 2 }], "seed {seed}");
            let (healthy, alone) = confirmed_on_four(seed, |_| 1.0, |_| 1.0);
            assert_eq!(healthy, [], "seed {seed}");
            unconfirmed += usize::from(alone > 0);
        }
        assert!(unconfirmed > 0, "findings of one measure alone are listed");
    }

    #[test]
    fn slow_links_and_a_noisy_measure_do_not_add_up_to_a_slow_node() {
        // Both ways is slow with all three partners of node 3, one way with a single one of them.
        let (found, alone) = confirmed_on_four(
            1,
            |pair| if pair == [0, 3] { 4.0 } else { 1.0 },
            |pair| {
                if pair.contains(&3) { 8.0 } else { 1.0 }
            },
        );
        assert_eq!(found, [SuspectKind::Link { nodes: [0, 3], local_rank: None }]);
        assert!(alone >= 1, "only both ways showed node 3 as slow");
    }

    #[test]
    fn two_slow_paths_of_a_node_with_three_partners_do_not_make_it_a_suspect() {
        let found = suspects_of(4, None, 1, |pair, _| if pair == [0, 3] || pair == [1, 3] { 4.0 } else { 1.0 });
        assert!(!found.contains(&SuspectKind::Node { node: 3 }), "{found:?}");
    }

    #[test]
    fn a_healthy_fleet_of_any_size_has_no_suspects() {
        for nodes in [2, 3, 4, 5, 8, 16, 33] {
            for seed in 0..20 {
                assert_eq!(suspects_of(nodes, Some(4), seed, |_, _| 1.0), [], "{nodes} nodes, seed {seed}");
            }
        }
    }

    #[test]
    fn of_nodes_that_met_a_few_others_each_the_slow_ones_are_named_and_no_others() {
        let nodes = 131;
        let places = places(nodes, Some(8));
        let suspects = |seed: u64, slower: &dyn Fn([usize; 2], usize) -> bool| -> Vec<SuspectKind> {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            let mut value = |pair, local, _| {
                let factor: f64 = if slower(pair, local) { 1.4 } else { 1.0 };
                (factor * random.random_range(0.98..1.02_f64)).ln()
            };
            // Neighbours on the circle of the tournament have other partners in the next round but nine.
            let met = commgauge_model::workload::rounds(nodes).into_iter().step_by(10).flatten();
            let matrix = PairMatrix::of_pairs(nodes, met, [4, 3], &mut value);
            let mut search = Search::new(Measure::OneWay, &matrix, &places);
            search_pairs(&mut search);
            super::paths::intermittent(&mut search);
            unexplained(search.findings).into_iter().map(|finding| finding.suspect).collect()
        };
        for seed in 0..20 {
            assert_eq!(suspects(seed, &|_, _| false), [], "seed {seed}");
            let node = suspects(seed, &|pair, _| pair.contains(&17));
            assert_eq!(node, [SuspectKind::Node { node: 17 }], "seed {seed}");
            let two = suspects(seed, &|pair, local| pair.contains(&130) || (pair.contains(&2) && local == 3));
            let adapter = SuspectKind::Adapter { node: 2, local_rank: 3 };
            assert_eq!(two, [adapter, SuspectKind::Node { node: 130 }], "seed {seed}");
            assert_eq!(suspects(seed, &|_, local| local == 1), [SuspectKind::Rail { local_rank: 1 }], "seed {seed}");
            let leaf = suspects(seed, &|pair, _| pair.iter().any(|node| node / 8 == 5));
            let nodes = (40..48).collect();
            assert_eq!(leaf, [SuspectKind::Leaf { leaf: 5, nodes }], "seed {seed}");
        }
    }

    #[test]
    fn a_slow_leaf_its_uplinks_and_two_adjacent_slow_nodes_are_distinguished() {
        let nodes = vec![4, 5, 6, 7];
        let leaf = SuspectKind::Leaf { leaf: 1, nodes };
        let behind = |node: &usize| (4..8).contains(node);
        let switch = suspects_of(16, Some(4), 1, |pair, _| if pair.iter().any(behind) { 1.6 } else { 1.0 });
        assert_eq!(switch, std::slice::from_ref(&leaf));
        let uplinks =
            suspects_of(
                16,
                Some(4),
                1,
                |pair, _| if pair.iter().filter(|n| behind(n)).count() == 1 { 1.6 } else { 1.0 },
            );
        assert_eq!(uplinks, [leaf]);
        let two = suspects_of(16, Some(4), 1, |pair, _| if pair.contains(&4) || pair.contains(&5) { 1.6 } else { 1.0 });
        assert_eq!(two, [SuspectKind::Node { node: 4 }, SuspectKind::Node { node: 5 }]);
        let unknown = suspects_of(16, None, 1, |pair, _| if pair.iter().any(behind) { 1.6 } else { 1.0 });
        assert_eq!(unknown.len(), 4, "without leaves its nodes are suspected: {unknown:?}");
    }

    #[test]
    fn half_of_the_leaves_can_be_slow_and_only_they_are_suspected() {
        for (leaves, slow) in
            [(4, vec![0, 1]), (4, vec![1, 3]), (5, vec![0, 4]), (6, vec![0, 2, 3]), (8, vec![1, 2, 6])]
        {
            let is_slow = |node: &usize| slow.contains(&(node / 4));
            let expected: Vec<SuspectKind> = (slow.iter())
                .map(|leaf| SuspectKind::Leaf {
                    leaf: *leaf as u32,
                    nodes: (4 * leaf..4 * leaf + 4).map(|node| node as u32).collect(),
                })
                .collect();
            for seed in 0..20 {
                let switches =
                    suspects_of(4 * leaves, Some(4), seed, |pair, _| if pair.iter().any(is_slow) { 1.6 } else { 1.0 });
                assert_eq!(switches, expected, "{leaves} leaves, switches {slow:?}, seed {seed}");
                let uplinks = suspects_of(4 * leaves, Some(4), seed, |pair, _| {
                    if pair[0] / 4 != pair[1] / 4 && pair.iter().any(is_slow) { 1.6 } else { 1.0 }
                });
                assert_eq!(uplinks, expected, "{leaves} leaves, uplinks {slow:?}, seed {seed}");
            }
        }
    }

    #[test]
    fn the_way_out_of_a_rack_is_compared_with_other_ways_out_of_racks() {
        let racks = Places { nodes_per_rack: Some(6), ..places(12, None) };
        let usual = |[a, b]: [usize; 2]| if a / 6 == b / 6 { 0.1 } else { 1.0 };
        let adapter = SuspectKind::Adapter { node: 3, local_rank: 1 };
        let link = SuspectKind::Link { nodes: [2, 9], local_rank: None };
        for seed in 0..20 {
            assert_eq!(suspects_at(&racks, seed, |pair, _| usual(pair)), [], "seed {seed}");
            let node = suspects_at(&racks, seed, |pair, _| usual(pair) * if pair.contains(&7) { 1.6 } else { 1.0 });
            assert_eq!(node, [SuspectKind::Node { node: 7 }], "seed {seed}");
            let found = suspects_at(&racks, seed, |pair, local| {
                let slow = pair.contains(&3) && local == 1 && pair[0] / 6 != pair[1] / 6;
                usual(pair) * if slow { 1.6 } else { 1.0 }
            });
            assert_eq!(found, std::slice::from_ref(&adapter), "seed {seed}");
            let found = suspects_at(&racks, seed, |pair, _| usual(pair) * if pair == [2, 9] { 1.6 } else { 1.0 });
            assert_eq!(found, std::slice::from_ref(&link), "seed {seed}");
        }
    }

    #[test]
    fn a_slow_local_rank_is_a_rail_an_adapter_or_a_path() {
        let rail = suspects_of(8, None, 1, |_, local| if local == 1 { 1.6 } else { 1.0 });
        assert_eq!(rail, [SuspectKind::Rail { local_rank: 1 }]);
        let adapter = suspects_of(8, None, 1, |pair, local| if local == 1 && pair.contains(&3) { 1.6 } else { 1.0 });
        assert_eq!(adapter, [SuspectKind::Adapter { node: 3, local_rank: 1 }]);
        let path = suspects_of(8, None, 1, |pair, local| if local == 1 && pair == [3, 5] { 1.6 } else { 1.0 });
        assert_eq!(path, [SuspectKind::Link { nodes: [3, 5], local_rank: Some(1) }]);
    }

    #[test]
    fn a_suspect_explains_its_slow_links_and_constant_evidence_outweighs_intermittent() {
        let finding = |suspect: SuspectKind, intermittent| Finding {
            suspect,
            slower: 0.5,
            strength: 2.0,
            intermittent,
            inside: false,
            evidence: String::new(),
        };
        let node = SuspectKind::Node { node: 3 };
        let all = vec![
            finding(node.clone(), false),
            finding(node.clone(), true),
            finding(SuspectKind::Link { nodes: [1, 3], local_rank: None }, false),
            finding(SuspectKind::Link { nodes: [1, 2], local_rank: None }, false),
            finding(SuspectKind::Adapter { node: 3, local_rank: 0 }, false),
        ];
        let left: Vec<SuspectKind> = unexplained(all).into_iter().map(|finding| finding.suspect).collect();
        assert_eq!(left, [node, SuspectKind::Link { nodes: [1, 2], local_rank: None }]);
    }

    #[test]
    fn a_link_that_met_a_node_that_comes_and_goes_is_suspected_only_where_it_is_much_slower() {
        let finding = |suspect, slower, intermittent| Finding {
            suspect,
            slower,
            strength: 2.0,
            intermittent,
            inside: false,
            evidence: String::new(),
        };
        let (node, link) = (SuspectKind::Node { node: 3 }, SuspectKind::Link { nodes: [1, 3], local_rank: None });
        let left = |slower| -> Vec<SuspectKind> {
            let all = vec![finding(node.clone(), 0.4, true), finding(link.clone(), slower, false)];
            unexplained(all).into_iter().map(|finding| finding.suspect).collect()
        };
        assert_eq!(left(0.42), std::slice::from_ref(&node));
        assert_eq!(left(0.9), [node.clone(), link.clone()]);
    }

    #[test]
    fn on_three_nodes_the_slow_way_or_the_slow_node_is_named_and_on_two_the_slow_rail_with_both_ends() {
        for seed in 0..100 {
            assert_eq!(suspects_of(3, None, seed, |_, _| 1.0), [], "seed {seed}");
            assert_eq!(suspects_of(2, None, seed, |_, _| 1.0), [], "seed {seed}");
            for factor in [2.0, 10.0] {
                let slow = |slow: bool| if slow { factor } else { 1.0 };
                let link = suspects_of(3, None, seed, |pair, _| slow(pair == [0, 2]));
                assert_eq!(link, [SuspectKind::Link { nodes: [0, 2], local_rank: None }], "seed {seed}");
                let node = suspects_of(3, None, seed, |pair, _| slow(pair.contains(&1)));
                assert_eq!(node, [SuspectKind::Node { node: 1 }], "seed {seed}");
            }
        }
        // Behind different leaves paths differ by design.
        assert_eq!(suspects_of(3, Some(2), 1, |pair, _| if pair.contains(&2) { 2.0 } else { 1.0 }), []);
        let rails = |slow_local: usize| {
            let matrix = PairMatrix::of(2, 8, 3, |_, local, replicate| {
                let scatter = 1.0 + (replicate * 8 + local) as f64 * 1e-3;
                (scatter * if local == slow_local { 2.0 } else { 1.0 }).ln()
            });
            let places = places(2, None);
            let mut search = Search::new(Measure::OneWay, &matrix, &places);
            search_pairs(&mut search);
            search.findings.into_iter().map(|finding| finding.suspect).collect::<Vec<_>>()
        };
        assert_eq!(rails(3), [SuspectKind::Link { nodes: [0, 1], local_rank: Some(3) }]);
        assert_eq!(rails(8), []);
    }
}
