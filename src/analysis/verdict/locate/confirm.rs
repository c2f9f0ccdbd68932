//! On few nodes a node or a link becomes a suspect only where several measures agree.
//!
//! With three partners each, all pairs of a node can easily be slow by chance. Observed on four healthy hosts over TCP:
//! *both ways* takes as long as either one message or two, at random for each pair, and three slow pairs of six share a node
//! in one case of five.

use super::document::{SuspectKind, Unconfirmed};
use super::explain::{Finding, MIN_EXCESS_OF_MANY, MIN_EXCESS_OF_PATH, Search};
use super::pair_lines::Measure;
use super::places::Places;
use super::suspect_name::name;

/// With fewer nodes than this one measure alone makes no suspect.
pub(super) const FEW_NODES: usize = 8;
/// A measure confirms another if its excess is at least this share of the other's excess, in logarithms.
const CONFIRMING_SHARE: f64 = 0.25;

/// The findings of one measure, and its search.
struct MeasureFindings<'a> {
    search: Search<'a>,
    findings: Vec<Finding>,
}

/// The confirmed findings of all measures, and the unconfirmed ones.
pub(super) fn confirmed(searches: Vec<Search>, places: &Places) -> (Vec<Finding>, Vec<Unconfirmed>) {
    let by_measure: Vec<MeasureFindings> = searches
        .into_iter()
        .map(|mut search| MeasureFindings { findings: std::mem::take(&mut search.findings), search })
        .collect();
    let (mut findings, mut unconfirmed) = (Vec::new(), Vec::new());
    for one in &by_measure {
        for finding in &one.findings {
            if places.nodes() >= FEW_NODES || !needs_confirmation(&finding.suspect) {
                findings.push(finding.clone());
                continue;
            }
            let others = by_measure.iter().filter(|other| is_independent(one.search.measure, other.search.measure));
            let agreeing: Vec<&str> =
                others.filter(|other| confirms(other, finding)).map(|other| other.search.measure.name()).collect();
            if agreeing.is_empty() {
                unconfirmed.push((one.search.measure, finding));
            } else {
                let evidence = format!("{}; borne out by {}", finding.evidence, agreeing.join(" and "));
                findings.push(Finding { evidence, ..finding.clone() });
            }
        }
    }
    // Drop what a confirmed finding already covers.
    unconfirmed.retain(|(_, finding)| !findings.iter().any(|suspected| explains(&suspected.suspect, &finding.suspect)));
    let alone = unconfirmed.iter().map(|(measure, finding)| Unconfirmed {
        measure: *measure,
        name: name(&finding.suspect, places),
        slower_by: finding.slower.exp_m1(),
    });
    (findings, alone.collect())
}

/// What one measure alone shows, in a sentence.
pub(super) fn sentence(alone: &Unconfirmed) -> String {
    format!(
        "{} alone speaks against {}, by {:.0} %: on fewer than {FEW_NODES} nodes another measure must agree, so it is not suspected; \
         more replicates would decide",
        alone.measure.name(),
        alone.name,
        100.0 * alone.slower_by
    )
}

/// Adapters, rails and leaves are compared with many neighbours even on few nodes, so they need no confirmation.
fn needs_confirmation(suspect: &SuspectKind) -> bool {
    matches!(suspect, SuspectKind::Node { .. } | SuspectKind::Link { .. })
}

/// Exactly one of the two must be a one-way measure, the most stable kind; the tail is taken from the same messages.
fn is_independent(one: Measure, other: Measure) -> bool {
    let one_way = |measure| matches!(measure, Measure::OneWay | Measure::Tail);
    one_way(one) != one_way(other)
}

/// Whether a measure has the same finding, or at least shows the same suspect to be slower.
fn confirms(other: &MeasureFindings, finding: &Finding) -> bool {
    let same = other.findings.iter().any(|own| own.suspect == finding.suspect);
    if same || finding.intermittent {
        // An intermittent fault may be absent while another measure is taken, so its median shows nothing.
        return same;
    }
    let (search, share) = (&other.search, CONFIRMING_SHARE * finding.slower);
    let path = |excess: Option<f64>| excess.is_some_and(|slower| slower > share.max(MIN_EXCESS_OF_PATH));
    match &finding.suspect {
        SuspectKind::Node { node } => {
            search.slow_partners(*node as usize, share.max(MIN_EXCESS_OF_MANY)).are_nearly_all()
        }
        SuspectKind::Link { nodes, local_rank: None } => path(search.excess(nodes.map(|node| node as usize))),
        SuspectKind::Link { nodes, local_rank: Some(local) } => {
            path(search.excess_of_local(nodes.map(|node| node as usize), *local as usize))
        }
        _ => false,
    }
}

/// Whether a suspect explains that something else looked slow.
fn explains(suspected: &SuspectKind, other: &SuspectKind) -> bool {
    match (suspected, other) {
        (SuspectKind::Node { node }, SuspectKind::Link { nodes, .. }) => nodes.contains(node),
        _ => suspected == other,
    }
}
