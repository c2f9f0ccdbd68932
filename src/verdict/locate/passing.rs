//! Faults that come and go: meetings that were slow in one replicate and not in another, and whom they have in common.

use super::document::Culprit;
use super::explain::{FEWEST, Finding, Search, percent, rule};
use crate::stats::low_median;
use std::collections::BTreeMap;

/// A single slow meeting must be this much slower, as a logarithm.
const LEAST: f64 = 0.1;
/// A node is accused of coming and going with so many partners at least.
const FEWEST_PARTNERS: usize = 3;
/// And with so many times as many as a node usually has.
const TIMES_USUAL: usize = 3;
/// A link is accused where it was slow in so many replicates at least; once may be a disturbance that passed.
const FEWEST_REPLICATES: usize = 2;

/// A meeting that was slower than scatter explains.
struct Slow {
    pair: [usize; 2],
    excess: f64,
}

/// What is left once everything that stays was explained. Returns how many single meetings were slow and accuse nobody.
pub(super) fn passing(search: &mut Search) -> usize {
    let replicates = search.meetings.replicates();
    if search.meetings.nodes < FEWEST || replicates < FEWEST_REPLICATES {
        return 0;
    }
    let (mut slow, allowed) = slow_meetings(search);
    while let Some((node, met)) = worst_node(search.meetings.nodes, &slow) {
        let own: Vec<f64> = slow.iter().filter(|slow| slow.pair.contains(&node)).map(|slow| slow.excess).collect();
        let excess = low_median(own.iter().copied()).unwrap_or(0.0);
        let all = (search.meetings.nodes - 1) * replicates;
        search.findings.push(Finding {
            culprit: Culprit::Node { node: node as u32 },
            slower: excess,
            strength: excess / allowed,
            intermittent: true,
            evidence: format!(
                "{}: slow in {} of {all} meetings, with {met} other nodes, by {}; normal in the others",
                search.measure.name(),
                own.len(),
                percent(excess)
            ),
        });
        slow.retain(|slow| !slow.pair.contains(&node));
    }
    let mut of_pair: BTreeMap<[usize; 2], Vec<f64>> = BTreeMap::new();
    slow.into_iter().for_each(|slow| of_pair.entry(slow.pair).or_default().push(slow.excess));
    let mut once = 0;
    for (pair, excesses) in of_pair {
        if excesses.len() < FEWEST_REPLICATES {
            once += 1;
            continue;
        }
        let excess = low_median(excesses.iter().copied()).unwrap_or(0.0);
        search.findings.push(Finding {
            culprit: Culprit::Link { nodes: pair.map(|node| node as u32), local_rank: None },
            slower: excess,
            strength: excess / allowed,
            intermittent: true,
            evidence: format!(
                "{}: slow in {} of {replicates} replicates, by {}",
                search.measure.name(),
                excesses.len(),
                percent(excess)
            ),
        });
    }
    once
}

/// Slow meetings of nodes and links that nobody has explained, and what was allowed.
fn slow_meetings(search: &Search) -> (Vec<Slow>, f64) {
    let accused = |pair: [usize; 2]| {
        let link = |finding: &Finding| match &finding.culprit {
            Culprit::Link { nodes, .. } => *nodes == pair.map(|node| node as u32),
            _ => false,
        };
        pair.iter().any(|node| search.explained[*node]) || search.findings.iter().any(link)
    };
    let open: Vec<[usize; 2]> = search.meetings.pairs().filter(|pair| !accused(*pair)).collect();
    let mut all = Vec::new();
    for replicate in 0..search.meetings.replicates() {
        // What slowed the whole replicate down is nobody's fault.
        let excess = |pair: &[usize; 2]| Some(search.meetings.of_pair_in(*pair, replicate)? - search.usual_of(*pair));
        let shift = low_median(open.iter().filter_map(excess)).unwrap_or(0.0);
        all.extend(open.iter().filter_map(|pair| Some(Slow { pair: *pair, excess: excess(pair)? - shift })));
    }
    let excesses: Vec<f64> = all.iter().map(|slow| slow.excess).collect();
    let Some(usual) = rule(all.len(), LEAST).usual(&excesses) else { return (Vec::new(), 1.0) };
    all.retain(|slow| usual.strength(slow.excess) > 1.0);
    (all, usual.allowed)
}

/// The node whose slow meetings are with most others, if that is far more than usual, and with how many.
fn worst_node(nodes: usize, slow: &[Slow]) -> Option<(usize, usize)> {
    let partners: Vec<usize> = (0..nodes)
        .map(|node| {
            let own = slow.iter().filter(|slow| slow.pair.contains(&node));
            let mut others: Vec<usize> = own.map(|slow| slow.pair[usize::from(slow.pair[0] == node)]).collect();
            others.sort_unstable();
            others.dedup();
            others.len()
        })
        .collect();
    let usual = low_median(partners.iter().map(|count| *count as f64)).unwrap_or(0.0) as usize;
    let worst = partners.iter().copied().enumerate().max_by_key(|(node, count)| (*count, nodes - node))?;
    (worst.1 >= FEWEST_PARTNERS.max(TIMES_USUAL * usual)).then_some(worst)
}
