//! What was examined, and what the data cannot show.

use super::document::{
    Examined, FEW_NODES, FEWEST_COMPARED, MIN_MEMBERS, NODE_OR_LINK, Suspect, SuspectKind, Suspects, name,
};
use super::explain::{FALSE_ALARM_PROBABILITY, Finding, percent};
use super::groups::{Analysis, Extent, FIRST_COMPARED, Growth};
use super::pair_lines::Places;
use super::paths::MIN_LEAVES;
use crate::verdict::next_run::{NextRun, next_run};
use commgauge_base::writing::ascending;
use commgauge_model::record::line::Header;

/// If a path at a third of its rate would not show, nothing counts as good; as a logarithm.
const MAX_ALLOWED_OF_PATH: f64 = 1.1;

/// The extent of the data.
pub(super) fn examined(analysis: &Analysis) -> Examined {
    let (places, pair_matrices) = (&analysis.places, &analysis.pair_matrices);
    let group_nodes: Vec<u32> = ascending(
        analysis.growths.iter().flat_map(|growth| &growth.levels).map(|level| level.nodes).filter(|nodes| *nodes > 1),
    );
    Examined {
        nodes: places.nodes() as u32,
        hosts: places.hosts.clone(),
        local_ranks: pair_matrices.locals as u32,
        nodes_per_leaf: places.nodes_per_leaf,
        nodes_per_rack: places.nodes_per_rack,
        node_pairs: (places.nodes() as u64 * (places.nodes() as u64).saturating_sub(1)) / 2,
        node_pairs_measured: pair_matrices.measured,
        nodes_measured_inside: analysis.nodes_inside,
        inside_pairs: analysis.inside_pairs.compared,
        pairs_expected: !analysis.expected_pairs.is_empty(),
        group_nodes,
        isolated_cases: analysis.arrivals.cases,
        replicates: pair_matrices.replicates as u32,
    }
}

/// Why the data cannot decide on nodes and links; `None` if they can.
pub(super) fn undecided(analysis: &Analysis) -> Option<String> {
    let nodes = analysis.places.nodes();
    if analysis.pair_matrices.planned == 0 {
        return Some("no two nodes met in pairs: neither nodes nor links can be distinguished; `commgauge run qualify` pairs all nodes".to_owned());
    }
    if nodes < FEWEST_COMPARED && analysis.expected_pairs.is_empty() {
        return Some(format!(
            "{nodes} nodes have a single path, with nothing to compare it to: use a machine file with expectations of pairs ([[expect_network]], --machine) or a third node"
        ));
    }
    analysis.allowed_of_path.filter(|allowed| *allowed > MAX_ALLOWED_OF_PATH).map(|allowed| {
        format!(
            "the times of the pairs scatter so much that a path must take {} longer to show; measure on quiet hosts, with larger messages \
             (`bandwidth_bytes` in [pairs]) or more replicates",
            percent(allowed)
        )
    })
}

/// Something that the data cannot show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Limit {
    /// The kind of fault that would not show, in a few words; `None` if a suspect is only less certain.
    pub(super) unseen: Option<String>,
    pub(super) text: String,
}

impl Limit {
    fn new(unseen: impl Into<String>, text: impl Into<String>) -> Limit {
        Limit { unseen: Some(unseen.into()), text: text.into() }
    }

    fn remark(text: impl Into<String>) -> Limit {
        Limit { unseen: None, text: text.into() }
    }
}

/// What the data cannot show.
pub(super) fn limits(analysis: &Analysis) -> Vec<Limit> {
    let mut limits: Vec<Limit> = undecided(analysis).map(|why| Limit::new(NODE_OR_LINK, why)).into_iter().collect();
    if analysis.pair_matrices.planned > 0 {
        limits.extend(limits_of_pairs(analysis));
    }
    limits.extend(limit_inside(analysis));
    limits.extend(limits_of_growth(analysis));
    limits.extend(limit_of_arrivals(analysis));
    limits.extend(limit_of_leaves(analysis));
    limits
}

/// Limits inside nodes.
fn limit_inside(analysis: &Analysis) -> Option<Limit> {
    if analysis.coarse {
        Some(Limit::new(
            "node that is slow inside; only at scale",
            "histograms of this many ranks cover several nodes each: the time of a single node, and groups of nodes, cannot be judged",
        ))
    } else if analysis.nodes_inside == 0 {
        Some(Limit::new(
            "node that is slow inside",
            "no collective was measured within each node: nodes that are slow inside cannot be found",
        ))
    } else if (analysis.nodes_inside as usize) < MIN_MEMBERS {
        Some(Limit::new(
            "node that is slow inside",
            format!("{} nodes were measured inside: too few to find an outlier", analysis.nodes_inside),
        ))
    } else if analysis.inside_pairs.compared == 0 {
        Some(Limit::new(
            "device or link inside a node",
            "no pairs of devices inside the nodes were measured: the slow device or link of a node that is slow inside cannot be found; `inside_nodes` in [pairs] measures them",
        ))
    } else {
        None
    }
}

/// Limits of groups of growing size.
fn limits_of_growth(analysis: &Analysis) -> Vec<Limit> {
    let sizes = |extent| sizes(analysis, extent);
    let mut limits = Vec::new();
    if sizes(Extent::Inside).len() <= FIRST_COMPARED {
        limits.push(Limit::new(
            "only at scale",
            "no groups of at least three growing sizes were measured: slowness only at scale cannot be found",
        ));
    } else if !analysis.all_sizes {
        limits.push(Limit::remark(
            "the largest groups contain a suspect: only without it can they show slowness at their size",
        ));
    }
    if analysis.places.has_racks() && sizes(Extent::Beyond).len() <= FIRST_COMPARED {
        limits.push(Limit::new("only at a scale of racks", "no groups of at least three sizes larger than a rack were measured: slowness only at a scale of racks cannot be found"));
    }
    let (inside, beyond) = (uncompared(&sizes(Extent::Inside)), uncompared(&sizes(Extent::Beyond)));
    let between_racks = beyond.map(|nodes| format!("between racks already from {nodes} nodes on"));
    let from: Vec<String> =
        inside.map(|nodes| format!("already from {nodes} nodes on")).into_iter().chain(between_racks).collect();
    if !from.is_empty() {
        let from = from.join(", or ");
        limits.push(Limit::new(
            format!("slow {from}"),
            format!(
                "groups are compared with smaller ones: slowness {from}, such as a network that is slow everywhere, counts as their usual time; limits for such groups in a machine file show it (`commgauge judge --machine`)"
            ),
        ));
    }
    if beyond.is_some() {
        limits.push(Limit::new(
            "only at scale if the groups' call does not fill the path between racks",
            "links inside racks may bound the call of the groups: a path between racks that is slow only at scale shows if it makes that call 10 % longer",
        ));
    }
    limits
}

/// The largest size without a comparison, if there are others.
fn uncompared(sizes: &[u32]) -> Option<u32> {
    let (first, compared) = sizes.split_at_checked(FIRST_COMPARED)?;
    first.last().copied().filter(|_| !compared.is_empty())
}

/// The sizes of the groups of an extent, in the call with the most, ascending. Single nodes are excluded: leaving a node is a separate
/// step, which hides growth.
fn sizes(analysis: &Analysis, extent: Extent) -> Vec<u32> {
    let of = |growth: &Growth| -> Vec<u32> {
        growth.levels.iter().map(|level| level.nodes).filter(|nodes| *nodes > 1).collect()
    };
    let growths = analysis.growths.iter().filter(|growth| growth.extent == extent);
    growths.map(of).max_by_key(Vec::len).unwrap_or_default()
}

fn limit_of_arrivals(analysis: &Analysis) -> Option<Limit> {
    if analysis.arrivals.no_clock {
        Some(Limit::new("late rank", "the clocks of the ranks were not synchronised: late ranks cannot be found"))
    } else if analysis.arrivals.cases == 0 {
        let text = "no case with a common start (cadence isolated) was measured: late ranks cannot be found";
        Some(Limit::new("late rank", text))
    } else if analysis.arrivals.late.is_some() {
        Some(Limit::remark("ranks that are less late are hidden by the latest one"))
    } else {
        None
    }
}

fn limit_of_leaves(analysis: &Analysis) -> Option<Limit> {
    let places = &analysis.places;
    if places.nodes_per_leaf.is_none() {
        Some(Limit::new(
            "leaf switch",
            "the leaf switch of a node is unknown, so a slow leaf shows as several nodes; give --nodes-per-leaf, or between_nodes.nodes_per_leaf in the machine file of the run",
        ))
    } else if places.leaves() < MIN_LEAVES {
        Some(Limit::new(
            "leaf switch",
            format!(
                "{} leaves: a slow leaf cannot be distinguished from others; at least {MIN_LEAVES} are needed",
                places.leaves()
            ),
        ))
    } else {
        None
    }
}

fn limits_of_pairs(analysis: &Analysis) -> Vec<Limit> {
    let pair_matrices = &analysis.pair_matrices;
    let mut limits = Vec::new();
    if pair_matrices.measured < pair_matrices.planned {
        limits.push(Limit::new(
            "links of unmeasured pairs",
            format!(
                "{} of {} pairs of nodes have no values: their links cannot be judged",
                pair_matrices.planned - pair_matrices.measured,
                pair_matrices.planned
            ),
        ));
    }
    if pair_matrices.screened {
        limits.push(Limit::new(
            "single slow path between two nodes",
            format!(
                "each node met a few others: a path that is slow between two normal nodes shows only if it is one of the {} that were planned; `pairs = \"all\"` in [pairs] measures all",
                pair_matrices.planned
            ),
        ));
    }
    if pair_matrices.locals < 2 {
        limits.push(Limit::new(
            "rail or adapter",
            "one rank of each node met others: a slow rail or adapter cannot be distinguished from a slow node",
        ));
    }
    if analysis.places.is_one_rack() {
        limits.push(Limit::new(
            "rail, adapter or cable",
            "the links of one rack join all nodes, so their adapters were idle: slow ones cannot be found",
        ));
    }
    if pair_matrices.replicates < 2 {
        limits.push(Limit::new(
            "intermittent faults",
            "one replicate only: a passing disturbance looks like a fault, and an intermittent fault is not recognised",
        ));
    }
    if pair_matrices.one_at_a_time {
        let text = "pairs met one at a time: links shared by pairs were never loaded together";
        limits.push(Limit::new("shared links under load", text));
    }
    limits.extend(analysis.unconfirmed.iter().map(|alone| Limit::remark(alone.in_words())));
    if analysis.slow_once > 0 {
        let subject = if analysis.slow_once == 1 { "single meeting was" } else { "single meetings were" };
        limits.push(Limit::remark(format!(
            "{} {subject} slow once and normal in other replicates: a passing disturbance, or an intermittent link; more replicates would decide",
            analysis.slow_once
        )));
    }
    limits.push(Limit::remark(
        "messages go back and forth: whether a suspect is slow in sending or in receiving is unknown",
    ));
    limits
}

// Texts about suspects: names, next steps, the answer, and the rule.

/// One suspect for each kind and location, with all evidence for it.
pub(super) fn suspects(findings: &[Finding], analysis: &Analysis, header: &Header) -> Vec<Suspect> {
    let mut suspects: Vec<Suspect> = Vec::new();
    for finding in findings {
        let evidence = format!("{}{}", if finding.intermittent { "intermittent, " } else { "" }, finding.evidence);
        if let Some(known) = suspects.iter_mut().find(|known| known.kind == finding.suspect) {
            known.intermittent &= finding.intermittent;
            if finding.strength > known.strength {
                known.strength = finding.strength;
                known.evidence.insert(0, evidence);
            } else {
                known.evidence.push(evidence);
            }
            known.slower_by = known.slower_by.map(|share| share.max(finding.slower.exp_m1()));
            continue;
        }
        let late = matches!(finding.suspect, SuspectKind::LateRank { .. });
        let late_seconds = analysis.arrivals.late.as_ref().filter(|_| late).map(|(_, seconds)| seconds.0);
        suspects.push(Suspect {
            name: name(&finding.suspect, &analysis.places),
            intermittent: finding.intermittent,
            slower_by: (!late).then(|| finding.slower.exp_m1()),
            late_seconds,
            strength: finding.strength,
            evidence: vec![evidence],
            action: finding.suspect.action().to_owned(),
            next_step: next_step(&finding.suspect, &analysis.places, header),
            kind: finding.suspect.clone(),
        });
    }
    suspects
}

/// The command that confirms the suspect or narrows it down.
fn next_step(suspect: &SuspectKind, places: &Places, header: &Header) -> String {
    let others = |known: &[u32], count: usize| {
        let well = (0..places.nodes() as u32).filter(|node| !known.contains(node)).take(count);
        known.iter().copied().chain(well).collect::<Vec<u32>>()
    };
    let all_ranks = |node: u32| places.ranks_on.get(node as usize).copied().unwrap_or(1);
    let on = |nodes: &[u32], ranks: &dyn Fn(u32) -> u32| -> Vec<(String, u32)> {
        let name = |node: u32| places.hosts.get(node as usize).map_or("?", String::as_str).to_owned();
        nodes.iter().map(|node| (name(*node), ranks(*node))).collect()
    };
    let run = |what, nodes: &[u32]| next_run(header, what, Some(&on(nodes, &all_ranks)));
    let (command, why) = match suspect {
        SuspectKind::Node { node } => {
            (run(NextRun::Qualify, &others(&[*node], MIN_MEMBERS - 1)), "does it follow the node?".to_owned())
        }
        SuspectKind::Link { nodes, .. } => (
            next_run(header, NextRun::PairsOneAtATime, Some(&on(&others(nodes, MIN_MEMBERS - 2), &|_| 1))),
            "is it the path, or a shared part of it?".to_owned(),
        ),
        SuspectKind::Adapter { node, .. } => (
            run(NextRun::PairsOneAtATime, &others(&[*node], 1)),
            "every rank with every rank: does it follow the adapter?".to_owned(),
        ),
        SuspectKind::Cable { node, local_rank } => (
            run(NextRun::PairsOneAtATime, &others(&[*node], MIN_MEMBERS - 1)),
            format!("swap the cable of local rank {local_rank} with a neighbour's: does it follow the cable?"),
        ),
        SuspectKind::Device { node, .. } | SuspectKind::NvLink { node, .. } => {
            (run(NextRun::PairsOneAtATime, &[*node]), "every device with every other: which links are slow?".to_owned())
        }
        SuspectKind::Rail { .. } => {
            (run(NextRun::Pairs, &others(&[], 2)), "every rank with every rank: which paths cross the rail?".to_owned())
        }
        SuspectKind::Leaf { nodes, .. } => (
            run(NextRun::Qualify, &nodes[..nodes.len().min(8)]),
            "normal among themselves? then suspect the uplinks".to_owned(),
        ),
        SuspectKind::Network => (
            "commgauge doctor".to_owned(),
            "on every node: GPUDirect, the rate and the firmware of each adapter, everything that all nodes share"
                .to_owned(),
        ),
        SuspectKind::OnlyAtScale { from_nodes } => {
            let half: Vec<u32> = (0..from_nodes / 2).collect();
            (run(NextRun::Qualify, &half), "and the other half: are both normal?".to_owned())
        }
        SuspectKind::LateRank { node, .. } => (
            run(NextRun::Qualify, &others(&[*node], 1)),
            "is it late there too? check for other processes on that host".to_owned(),
        ),
    };
    format!("{command}  # {why}")
}

/// The answer in one sentence, from the exit code and what was found.
pub(super) fn answer(located: &Suspects, analysis: &Analysis) -> String {
    match (&located.suspects[..], undecided(analysis), located.unconfirmed.len()) {
        ([], ..) if located.exit_code == 0 => {
            format!("no suspects; all pairs of {} nodes were measured", analysis.places.nodes())
        }
        ([], Some(why), _) => format!("undecided: {why}"),
        ([], None, 0) => "no suspects, but the data is not sufficient to call the machine good".to_owned(),
        ([], None, alone) => format!(
            "no suspects, but {} in one measure only: thresholds for that measure decide (`commgauge judge --machine`), or more replicates",
            if alone == 1 { "one place is slow".to_owned() } else { format!("{alone} places are slow") }
        ),
        ([only], ..) => format!("suspect: {}", only.name),
        ([first, others @ ..], ..) => format!("{} suspects, first {}", others.len() + 1, first.name),
    }
}

/// The rule, as sentences.
pub(super) fn rule(analysis: &Analysis) -> Vec<String> {
    let measures: Vec<&str> =
        analysis.pair_matrices.measures.iter().map(|(measure, _)| measure.name()).collect::<Vec<_>>();
    vec![
        format!(
            "an outlier is above the lower median of its kind by more than k robust standard deviations (1.4826 times the \
             median of absolute distances, at least 1 %), where k is the normal quantile that all comparisons of one kind of evidence together exceed by chance in {} % of healthy machines (Bonferroni), times 1 + 8 / (n - 1) for n values",
            100.0 * FALSE_ALARM_PROBABILITY
        ),
        "and by at least 5 % with most of its partners (nodes, rails, adapters, leaves), or by 10 % on a single path".to_owned(),
        format!(
            "on fewer than {FEW_NODES} nodes a node or link is suspected only if another measure agrees: one way with both ways or latency, or vice versa; findings of one measure alone are listed and make no suspect"
        ),
        format!("measures of pairs, each separately: {}", if measures.is_empty() { "none".to_owned() } else { measures.join(", ") }),
        "the best explanation is suspected first: rails and adapters within each pair, then leaves, nodes, and last single paths; slowness explained by a suspect makes nothing else a suspect"
            .to_owned(),
        "inside nodes a pair of devices is compared with the same pair on other nodes, by bandwidth; slow links of a device and a slow \
         adapter of it together are the device"
            .to_owned(),
        format!(
            "a slow adapter is a cable in one direction if a call takes r times as long in both directions at once but (1 + r) / 2 times, not r, back and forth, on {FEW_NODES} nodes and more"
        ),
        "only at scale: groups that take 10 % longer in every replicate than a straight line through two smaller sizes, and \
         that contain no suspect"
            .to_owned(),
        "late: last in a clear majority of common starts, by more than the clocks disagree and more than a tenth of the call".to_owned(),
    ]
}
