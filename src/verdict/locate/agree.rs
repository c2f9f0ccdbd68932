//! On few nodes: whether the measures agree before a node or a link is accused.
//!
//! With three partners each it takes little for all pairs of a node to be slow by chance. Seen on four healthy hosts whose
//! messages cross TCP: *both ways* takes either as long as one message or as long as two, from meeting to meeting, and three
//! slow pairs of six have a node in common in one case of five.

use super::document::Culprit;
use super::explain::{Finding, LEAST_OF_MANY, LEAST_OF_ONE, Search, nearly_all, percent};
use super::meetings::Measure;
use super::places::Places;
use super::wording::name;

/// With fewer nodes than this one measure alone accuses nobody.
pub(super) const FEW: usize = 8;
/// What agrees is slower than usual by at least this share of what the accusing measure says, in logarithms.
const SHARE: f64 = 0.25;

/// What one measure says.
struct Said<'a> {
    search: Search<'a>,
    findings: Vec<Finding>,
}

/// The findings of all measures that stand, and what spoke alone and therefore accuses nobody, as sentences.
pub(super) fn agreed(searches: Vec<Search>, places: &Places) -> (Vec<Finding>, Vec<String>) {
    let said: Vec<Said> = searches
        .into_iter()
        .map(|mut search| Said { findings: std::mem::take(&mut search.findings), search })
        .collect();
    let (mut stand, mut alone) = (Vec::new(), Vec::new());
    for one in &said {
        for finding in &one.findings {
            if places.nodes() >= FEW || !judged(&finding.culprit) {
                stand.push(finding.clone());
                continue;
            }
            let others = said.iter().filter(|other| second_opinion(one.search.measure, other.search.measure));
            let agreeing: Vec<&str> =
                others.filter(|other| agrees(other, finding)).map(|other| other.search.measure.name()).collect();
            if agreeing.is_empty() {
                alone.push((one.search.measure, finding));
            } else {
                let evidence = format!("{}; borne out by {}", finding.evidence, agreeing.join(" and "));
                stand.push(Finding { evidence, ..finding.clone() });
            }
        }
    }
    // Whoever is accused anyway is certain, and so is what an accused node explains.
    alone.retain(|(_, finding)| !stand.iter().any(|accused| covers(&accused.culprit, &finding.culprit)));
    let sentences = alone.iter().map(|(measure, finding)| {
        format!(
            "{} alone speaks against {}, by {}: on fewer than {FEW} nodes another measure must agree, so it is not suspected; \
             more replicates would decide",
            measure.name(),
            name(&finding.culprit, places),
            percent(finding.slower)
        )
    });
    (stand, sentences.collect())
}

/// Adapters, rails and leaves are judged against many neighbours, also on few nodes.
fn judged(culprit: &Culprit) -> bool {
    matches!(culprit, Culprit::Node { .. } | Culprit::Link { .. })
}

/// One of the two must be of messages one way, the steadiest measure; its slowest tenth are the same messages.
fn second_opinion(one: Measure, other: Measure) -> bool {
    let one_way = |measure| matches!(measure, Measure::OneWay | Measure::Tail);
    one_way(one) != one_way(other)
}

/// Whether a measure says the same by itself, or at least that the same is slower.
fn agrees(other: &Said, finding: &Finding) -> bool {
    let same = other.findings.iter().any(|own| own.culprit == finding.culprit);
    if same || finding.intermittent {
        // What comes and goes need not be there when something else is measured, so that its middle says nothing.
        return same;
    }
    let (search, share) = (&other.search, SHARE * finding.slower);
    let path = |excess: Option<f64>| excess.is_some_and(|slower| slower > share.max(LEAST_OF_ONE));
    match &finding.culprit {
        Culprit::Node { node } => nearly_all(search.slow_partners(*node as usize, share.max(LEAST_OF_MANY))),
        Culprit::Link { nodes, local_rank: None } => path(search.excess(nodes.map(|node| node as usize))),
        Culprit::Link { nodes, local_rank: Some(local) } => {
            path(search.excess_of_local(nodes.map(|node| node as usize), *local as usize))
        }
        _ => false,
    }
}

/// Whether an accused explains that something else looked slow.
fn covers(accused: &Culprit, doubted: &Culprit) -> bool {
    match (accused, doubted) {
        (Culprit::Node { node }, Culprit::Link { nodes, .. }) => nodes.contains(node),
        _ => accused == doubted,
    }
}
