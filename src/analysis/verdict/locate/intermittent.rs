//! Intermittent faults: pairs that were slow in one replicate and not in another, and the node that they share.

use super::document::{MIN_MEMBERS, SuspectKind};
use super::explain::{Finding, Search, percent, rule};
use commgauge_base::stats::low_median;
use std::collections::BTreeMap;

/// Minimum excess of a single slow measurement, as a logarithm.
const MIN_EXCESS: f64 = 0.1;
/// Minimum number of slow partners of an intermittent node ...
const MIN_PARTNERS: usize = 3;
/// ... and the minimum multiple of the usual number of slow partners.
const MIN_MULTIPLE_OF_USUAL: usize = 3;
/// Minimum number of slow replicates of an intermittent link; once may be a passing disturbance.
const MIN_REPLICATES: usize = 2;

/// A measurement of a pair that was slower than the scatter explains.
struct Slow {
    pair: [usize; 2],
    excess: f64,
}

/// Adds intermittent findings, after all constant ones are explained. Returns the number of pairs that were slow only once.
pub(super) fn intermittent(search: &mut Search) -> usize {
    let replicates = search.matrix.replicates();
    if search.matrix.nodes < MIN_MEMBERS || replicates < MIN_REPLICATES {
        return 0;
    }
    let (mut slow, allowed) = slow_pairs(search);
    while let Some((node, partners)) = worst_node(search.matrix.nodes, &slow) {
        let own: Vec<f64> = slow.iter().filter(|slow| slow.pair.contains(&node)).map(|slow| slow.excess).collect();
        let excess = low_median(own.iter().copied()).unwrap_or(0.0);
        let all = (search.matrix.nodes - 1) * replicates;
        search.findings.push(Finding {
            suspect: SuspectKind::Node { node: node as u32 },
            slower: excess,
            strength: excess / allowed,
            intermittent: true,
            inside: false,
            evidence: format!(
                "{}: slow in {} of {all} meetings, with {partners} other nodes, by {}; normal in the others",
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
        if excesses.len() < MIN_REPLICATES {
            once += 1;
            continue;
        }
        let excess = low_median(excesses.iter().copied()).unwrap_or(0.0);
        search.findings.push(Finding {
            suspect: SuspectKind::Link { nodes: pair.map(|node| node as u32), local_rank: None },
            slower: excess,
            strength: excess / allowed,
            intermittent: true,
            inside: false,
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

/// Slow measurements of unexplained nodes and links, and the allowed excess.
fn slow_pairs(search: &Search) -> (Vec<Slow>, f64) {
    let is_suspected = |pair: [usize; 2]| {
        let link = |finding: &Finding| match &finding.suspect {
            SuspectKind::Link { nodes, .. } => *nodes == pair.map(|node| node as u32),
            _ => false,
        };
        pair.iter().any(|node| search.explained[*node]) || search.findings.iter().any(link)
    };
    let open: Vec<[usize; 2]> = search.matrix.pairs().filter(|pair| !is_suspected(*pair)).collect();
    let mut all = Vec::new();
    for replicate in 0..search.matrix.replicates() {
        // A slowdown of the whole replicate is not attributed to a pair.
        let excess = |pair: &[usize; 2]| Some(search.matrix.of_pair_in(*pair, replicate)? - search.usual_of(*pair));
        let shift = low_median(open.iter().filter_map(excess)).unwrap_or(0.0);
        all.extend(open.iter().filter_map(|pair| Some(Slow { pair: *pair, excess: excess(pair)? - shift })));
    }
    let excesses: Vec<f64> = all.iter().map(|slow| slow.excess).collect();
    let Some(usual) = rule(all.len(), MIN_EXCESS).usual(&excesses) else { return (Vec::new(), 1.0) };
    all.retain(|slow| usual.strength(slow.excess) > 1.0);
    (all, usual.allowed)
}

/// The node with the most slow partners, and their number, if that is far more than usual.
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
    (worst.1 >= MIN_PARTNERS.max(MIN_MULTIPLE_OF_USUAL * usual)).then_some(worst)
}
