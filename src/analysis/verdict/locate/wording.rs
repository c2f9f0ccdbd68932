//! Texts about suspects: names, next steps, the answer, and the rule.

use super::analysis::Analysis;
use super::confirm::FEW_NODES;
use super::document::{MIN_MEMBERS, Suspect, SuspectKind, Suspects};
use super::explain::{FALSE_ALARM_PROBABILITY, Finding};
use super::limits;
use super::pair_lines::Measure;
use super::places::Places;
use super::suspect_name::name;
use crate::verdict::next_run::{NextRun, next_run};
use commgauge_model::record::line::Header;

/// One suspect for each kind and location, with all evidence for it.
pub(super) fn suspects(findings: &[Finding], analysis: &Analysis, header: &Header) -> Vec<Suspect> {
    let mut suspects: Vec<Suspect> = Vec::new();
    for finding in findings {
        let evidence = format!("{}{}", if finding.intermittent { "now and then, " } else { "" }, finding.evidence);
        if let Some(known) = suspects.iter_mut().find(|known| known.culprit == finding.suspect) {
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
            culprit: finding.suspect.clone(),
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
            (run(NextRun::Qualify, &others(&[*node], MIN_MEMBERS - 1)), "does it stay with the node?".to_owned())
        }
        SuspectKind::Link { nodes, .. } => (
            next_run(header, NextRun::PairsOneAtATime, Some(&on(&others(nodes, MIN_MEMBERS - 2), &|_| 1))),
            "is it the path, or what shares it?".to_owned(),
        ),
        SuspectKind::Adapter { node, .. } => (
            run(NextRun::PairsOneAtATime, &others(&[*node], 1)),
            "every rank with every rank: does it stay with the adapter?".to_owned(),
        ),
        SuspectKind::Cable { node, local_rank } => (
            run(NextRun::PairsOneAtATime, &others(&[*node], MIN_MEMBERS - 1)),
            format!("swap the cable of local rank {local_rank} with a neighbour's: does it stay with the cable?"),
        ),
        SuspectKind::Device { node, .. } | SuspectKind::NvLink { node, .. } => {
            (run(NextRun::PairsOneAtATime, &[*node]), "every device with every other: which links are slow?".to_owned())
        }
        SuspectKind::Rail { .. } => {
            (run(NextRun::Pairs, &others(&[], 2)), "every rank with every rank: which paths cross the rail?".to_owned())
        }
        SuspectKind::Leaf { nodes, .. } => (
            run(NextRun::Qualify, &nodes[..nodes.len().min(8)]),
            "normal among themselves? then it is the uplinks".to_owned(),
        ),
        SuspectKind::Network => (
            "commgauge doctor".to_owned(),
            "on every node: GPUDirect, the rate and the firmware of each adapter, what all nodes have alike".to_owned(),
        ),
        SuspectKind::OnlyAtScale { from_nodes } => {
            let half: Vec<u32> = (0..from_nodes / 2).collect();
            (run(NextRun::Qualify, &half), "and the other half: are both normal?".to_owned())
        }
        SuspectKind::LateRank { node, .. } => (
            run(NextRun::Qualify, &others(&[*node], 1)),
            "is it late there too? look for what else runs on that host".to_owned(),
        ),
    };
    format!("{command}  # {why}")
}

/// The answer in one sentence, from the exit code and what was found.
pub(super) fn answer(located: &Suspects, analysis: &Analysis) -> String {
    match (&located.suspects[..], limits::undecided(analysis), located.unconfirmed.len()) {
        ([], ..) if located.exit_code == 0 => {
            format!("no suspects; all pairs of {} nodes were measured", analysis.places.nodes())
        }
        ([], Some(why), _) => format!("undecided: {why}"),
        ([], None, 0) => "no suspects, but the data are not good enough to call the machine good".to_owned(),
        ([], None, alone) => format!(
            "no suspects, but {} in one measure alone: thresholds for that measure decide (`commgauge judge --machine`), \
             or more replicates",
            if alone == 1 { "one place is slow".to_owned() } else { format!("{alone} places are slow") }
        ),
        ([only], ..) => format!("suspect: {}", only.name),
        ([first, others @ ..], ..) => format!("{} suspects, first of all {}", others.len() + 1, first.name),
    }
}

/// The rule of the decision, as sentences.
pub(super) fn rule(analysis: &Analysis) -> Vec<String> {
    let measures: Vec<&str> =
        analysis.pair_matrices.measures.iter().map(|(measure, _)| measure.name()).collect::<Vec<_>>();
    let all = Measure::ALL.len();
    vec![
        format!(
            "an outlier is above the lower median of its kind by more than k robust standard deviations (1.4826 times the \
             median of absolute distances, at least 1 %), where k is the normal quantile that all comparisons of one kind of \
             evidence together pass by chance in {} % of healthy machines (Bonferroni), times 1 + 8 / (n - 1) for n values",
            100.0 * FALSE_ALARM_PROBABILITY
        ),
        "and by at least 5 % with most of its partners (nodes, rails, adapters, leaves), or by 10 % on a single path".to_owned(),
        format!(
            "on fewer than {FEW_NODES} nodes a node or link is suspected only where another measure agrees: one way with both ways or \
             latency, or the other way round; what one measure alone shows is listed and makes nothing a suspect"
        ),
        format!("measures of pairs, each by itself: {} (of {all})", if measures.is_empty() { "none".to_owned() } else { measures.join(", ") }),
        "what explains most is suspected first: rails and adapters within each pair, then leaves, nodes, and last single paths; \
         what a suspect explains makes nothing else a suspect"
            .to_owned(),
        "inside nodes a pair of devices is compared with the same pair on other nodes, by bandwidth; slow links of a device and a slow \
         adapter of it together are the device"
            .to_owned(),
        format!(
            "a slow adapter is a cable in one direction where, of a call that takes r times as long both ways at once, one way back and \
             forth takes (1 + r) / 2 times as long and not r, on {FEW_NODES} nodes and more"
        ),
        "only at scale: groups that take 10 % longer in every replicate than a straight line through two smaller sizes, and \
         that contain no suspect"
            .to_owned(),
        "late: last in a clear majority of common starts, later than the clocks disagree and than a tenth of the call".to_owned(),
    ]
}
