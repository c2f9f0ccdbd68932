//! Who is to blame: node, link, adapter, rail, leaf, only at scale, or a late rank, from pairs, groups and arrivals.
//!
//! Only slowness is looked for here; wrong data and failed runs are told as troubles. How it looks is for [`crate::report`].

mod agree;
mod document;
mod explain;
mod groups;
mod late;
mod limits;
mod meetings;
mod passing;
mod places;
mod planted;
#[cfg(test)]
mod tests;
mod wording;

pub use document::{Culprit, Examined, SUSPECTS_FORMAT, SUSPECTS_VERSION, Suspect, Suspects};
pub use planted::{Found, planted};

use super::evidence;
use super::{Judged, Trouble, gravest};
use crate::error::Result;
use explain::{Finding, Search};
use groups::Growth;
use late::Arrivals;
use meetings::AllMeetings;
use places::Places;

/// What is known of the machine beside the records.
#[derive(Clone, Debug, Default)]
pub struct LocateOptions {
    /// Nodes behind each leaf switch, counted from node 0; without it what the records say.
    pub nodes_per_leaf: Option<u32>,
}

/// All that was looked at, for the words about it.
struct Looked {
    places: Places,
    meetings: AllMeetings,
    growths: Vec<Growth>,
    /// Histograms covered ranks of several nodes.
    coarse: bool,
    arrivals: Arrivals,
    nodes_inside: u32,
    /// True where groups of every size could be looked at.
    all_sizes: bool,
    /// Single meetings that were slow and accuse nobody.
    slow_once: usize,
    /// What one measure alone says on few nodes, as sentences: it accuses nobody, but calls nobody good.
    alone: Vec<String>,
}

/// Names whoever the records accuse, the strongest evidence first.
///
/// # Errors
/// A usage error where records do not belong together.
pub fn locate(records: &[Judged], options: &LocateOptions) -> Result<Suspects> {
    let places = Places::of(records, options.nodes_per_leaf)?;
    let meetings = AllMeetings::of(records, &places);
    let (growths, coarse) = groups::growths(records, &places);
    let arrivals = late::arrivals(records, &places);
    let (nodes_inside, all_sizes, slow_once, alone) = (0, true, 0, Vec::new());
    let mut looked = Looked { places, meetings, growths, coarse, arrivals, nodes_inside, all_sizes, slow_once, alone };
    let findings = findings(&mut looked);
    let mut suspects = wording::suspects(&findings, &looked);
    suspects.sort_by(|one, other| other.strength.total_cmp(&one.strength));
    let troubles = troubles(records, &looked);
    let accused = i32::from(!suspects.is_empty());
    let cannot = if limits::undecided(&looked).is_some() || !looked.alone.is_empty() { 3 } else { 0 };
    let exit_code = gravest(troubles.iter().map(|trouble| trouble.exit_code).chain([accused, cannot]));
    let synthetic = records.iter().any(|judged| judged.record.header.backend.synthetic);
    Ok(Suspects {
        format: SUSPECTS_FORMAT.to_owned(),
        version: SUSPECTS_VERSION,
        exit_code,
        answer: wording::answer(&suspects, &looked, exit_code),
        synthetic,
        runs: records.iter().map(|judged| judged.run("looked at")).collect(),
        examined: limits::examined(&looked),
        suspects,
        cannot_tell: limits::cannot_tell(&looked),
        troubles,
        rule: wording::rule(&looked),
    })
}

/// What each kind of evidence says, without what another one explains.
fn findings(looked: &mut Looked) -> Vec<Finding> {
    let mut searches = Vec::new();
    for (measure, meetings) in &looked.meetings.measures {
        let mut search = Search::new(*measure, meetings, &looked.places);
        search.run();
        if *measure != meetings::Measure::Tail {
            looked.slow_once += passing::passing(&mut search);
        }
        searches.push(search);
    }
    let (mut found, alone) = agree::agreed(searches, &looked.places);
    looked.alone = alone;
    for growth in &looked.growths {
        looked.nodes_inside = looked.nodes_inside.max(growth.inside(&looked.places, &mut found));
    }
    let mut found = unexplained(found);
    let accused: Vec<Culprit> = found.iter().map(|finding| finding.culprit.clone()).collect();
    let touched = |members: &[usize]| accused.iter().any(|culprit| touches(culprit, members));
    for growth in &looked.growths {
        looked.all_sizes &= growth.at_scale(&touched, &mut found);
    }
    found.extend(looked.arrivals.late.iter().map(|(finding, _)| finding.clone()));
    found
}

/// Whether a culprit slows these nodes down when they work together.
fn touches(culprit: &Culprit, members: &[usize]) -> bool {
    let there = |node: &u32| members.contains(&(*node as usize));
    match culprit {
        Culprit::Node { node } | Culprit::Adapter { node, .. } => there(node),
        Culprit::Link { nodes, .. } => nodes.iter().all(there),
        Culprit::Leaf { nodes, .. } => nodes.iter().any(there),
        // It slows all groups alike, so how they grow is still to be seen.
        Culprit::Rail { .. } | Culprit::OnlyAtScale { .. } | Culprit::LateRank { .. } => false,
    }
}

/// Without the accusations that a larger one explains, and without doubts about those that are slow always.
fn unexplained(all: Vec<Finding>) -> Vec<Finding> {
    let explains = |other: &Finding, finding: &Finding| {
        let node_in = |node: u32| match &other.culprit {
            Culprit::Node { node: accused } => *accused == node,
            Culprit::Leaf { nodes, .. } => nodes.contains(&node),
            _ => false,
        };
        let firm = !other.intermittent || finding.intermittent;
        let larger = match (&finding.culprit, &other.culprit) {
            (Culprit::Node { node }, Culprit::Leaf { nodes, .. }) => nodes.contains(node) && finding.intermittent,
            (Culprit::Adapter { node, .. }, Culprit::Node { .. } | Culprit::Leaf { .. }) => node_in(*node),
            (Culprit::Adapter { local_rank, .. }, Culprit::Rail { local_rank: rail }) => local_rank == rail,
            (Culprit::Link { nodes, .. }, Culprit::Node { .. } | Culprit::Leaf { .. }) => {
                nodes.iter().any(|node| node_in(*node))
            }
            (Culprit::Link { nodes, local_rank: Some(local) }, Culprit::Adapter { node, local_rank }) => {
                local == local_rank && nodes.contains(node)
            }
            (Culprit::Link { local_rank: Some(local), .. }, Culprit::Rail { local_rank }) => local == local_rank,
            (Culprit::Link { nodes, local_rank: Some(_) }, Culprit::Link { nodes: whole, local_rank: None }) => {
                nodes == whole
            }
            _ => false,
        };
        let same = finding.culprit == other.culprit && finding.intermittent && !other.intermittent;
        same || (larger && firm)
    };
    all.iter().filter(|finding| !all.iter().any(|other| explains(other, finding))).cloned().collect()
}

/// Warnings about the records as a whole.
fn troubles(records: &[Judged], looked: &Looked) -> Vec<Trouble> {
    let mut troubles = Vec::new();
    for judged in records {
        let name = judged.path.display();
        // Of each record by itself, as several may have plans of their own.
        let (_, of_record) = evidence::evidence(std::slice::from_ref(judged));
        let doubts = judged.record.header.warnings.iter().map(|warning| (3, format!("unreliable: {warning}")));
        troubles.extend(of_record);
        troubles.extend(doubts.map(|(exit_code, text)| Trouble { exit_code, text: format!("{name}: {text}") }));
    }
    let (planned, measured) = (looked.meetings.planned, looked.meetings.measured);
    if measured < planned {
        let text = format!("{} of {planned} pairs of nodes were not measured by every measure", planned - measured);
        troubles.push(Trouble { exit_code: 7, text });
    }
    troubles
}
