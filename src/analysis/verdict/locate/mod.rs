//! Locates suspects: node, link, adapter, rail, leaf, only at scale, or a late rank, from pairs, groups and arrivals.
//!
//! Only slowness is searched for here; wrong data and failed runs are reported as troubles. Rendering is in `report`.

mod analysis;
mod confirm;
mod document;
mod explain;
mod groups;
mod injected;
mod intermittent;
mod late;
mod limits;
mod pair_matrix;
mod places;
mod suspect_name;
#[cfg(test)]
mod tests;
mod wording;

pub use document::{Examined, SUSPECTS_FORMAT, SUSPECTS_VERSION, Suspect, SuspectKind, Suspects};
pub use injected::{Found, expected_suspects};

use super::loaded_record::LoadedRecord;
use super::{Trouble, evidence, most_severe};
use analysis::Analysis;
use commgauge_base::error::Result;
use commgauge_base::visible::ShownPath;
use explain::{Finding, Search};
use pair_matrix::PairMatrices;
use places::Places;

/// What is known of the machine besides the records.
#[derive(Clone, Debug, Default)]
pub struct LocateOptions {
    /// Nodes behind each leaf switch, counted from node 0; `None` takes the value from the records.
    pub nodes_per_leaf: Option<u32>,
}

/// Finds the suspects of the records, the strongest evidence first.
///
/// # Errors
/// A usage error where records do not belong together.
pub fn locate(records: &[LoadedRecord], options: &LocateOptions) -> Result<Suspects> {
    let places = Places::of(records, options.nodes_per_leaf)?;
    let pair_matrices = PairMatrices::of(records, &places);
    let (growths, coarse) = groups::growths(records, &places);
    let arrivals = late::arrivals(records, &places);
    let (nodes_inside, all_sizes, slow_once, unconfirmed) = (0, true, 0, Vec::new());
    let mut analysis =
        Analysis { places, pair_matrices, growths, coarse, arrivals, nodes_inside, all_sizes, slow_once, unconfirmed };
    let findings = findings(&mut analysis);
    let mut suspects = wording::suspects(&findings, &analysis);
    suspects.sort_by(|one, other| other.strength.total_cmp(&one.strength));
    let troubles = troubles(records, &analysis);
    let suspected = i32::from(!suspects.is_empty());
    let undecided = if limits::undecided(&analysis).is_some() || !analysis.unconfirmed.is_empty() { 3 } else { 0 };
    let exit_code = most_severe(troubles.iter().map(|trouble| trouble.exit_code).chain([suspected, undecided]));
    let synthetic = records.iter().any(|loaded| loaded.record.header.backend.synthetic);
    Ok(Suspects {
        format: SUSPECTS_FORMAT.to_owned(),
        version: SUSPECTS_VERSION,
        exit_code,
        answer: wording::answer(&suspects, &analysis, exit_code),
        synthetic,
        runs: records.iter().map(|loaded| loaded.run("looked at")).collect(),
        examined: limits::examined(&analysis),
        suspects,
        cannot_tell: limits::cannot_tell(&analysis),
        troubles,
        rule: wording::rule(&analysis),
    })
}

/// The findings of every kind of evidence, without those that another one explains.
fn findings(analysis: &mut Analysis) -> Vec<Finding> {
    let mut searches = Vec::new();
    for (measure, matrix) in &analysis.pair_matrices.measures {
        let mut search = Search::new(*measure, matrix, &analysis.places);
        search.run();
        if *measure != pair_matrix::Measure::Tail {
            analysis.slow_once += intermittent::intermittent(&mut search);
        }
        searches.push(search);
    }
    let (mut found, unconfirmed) = confirm::confirmed(searches, &analysis.places);
    analysis.unconfirmed = unconfirmed;
    for growth in &analysis.growths {
        analysis.nodes_inside = analysis.nodes_inside.max(growth.inside(&analysis.places, &mut found));
    }
    let mut found = unexplained(found);
    let suspected: Vec<SuspectKind> = found.iter().map(|finding| finding.suspect.clone()).collect();
    let is_suspected = |members: &[usize]| suspected.iter().any(|suspect| slows_down(suspect, members));
    for growth in &analysis.growths {
        analysis.all_sizes &= growth.at_scale(&is_suspected, &mut found);
    }
    found.extend(analysis.arrivals.late.iter().map(|(finding, _)| finding.clone()));
    found
}

/// Whether a suspect slows these nodes down when they work together.
fn slows_down(suspect: &SuspectKind, members: &[usize]) -> bool {
    let there = |node: &u32| members.contains(&(*node as usize));
    match suspect {
        SuspectKind::Node { node } | SuspectKind::Adapter { node, .. } => there(node),
        SuspectKind::Link { nodes, .. } => nodes.iter().all(there),
        SuspectKind::Leaf { nodes, .. } => nodes.iter().any(there),
        // It slows all groups alike, so their growth can still be checked.
        SuspectKind::Rail { .. } | SuspectKind::OnlyAtScale { .. } | SuspectKind::LateRank { .. } => false,
    }
}

/// Removes findings that a larger one explains, and intermittent findings about suspects that are always slow.
fn unexplained(all: Vec<Finding>) -> Vec<Finding> {
    let explains = |other: &Finding, finding: &Finding| {
        let node_in = |node: u32| match &other.suspect {
            SuspectKind::Node { node: suspected } => *suspected == node,
            SuspectKind::Leaf { nodes, .. } => nodes.contains(&node),
            _ => false,
        };
        let firm = !other.intermittent || finding.intermittent;
        let larger = match (&finding.suspect, &other.suspect) {
            (SuspectKind::Node { node }, SuspectKind::Leaf { nodes, .. }) => {
                nodes.contains(node) && finding.intermittent
            }
            (SuspectKind::Adapter { node, .. }, SuspectKind::Node { .. } | SuspectKind::Leaf { .. }) => node_in(*node),
            (SuspectKind::Adapter { local_rank, .. }, SuspectKind::Rail { local_rank: rail }) => local_rank == rail,
            (SuspectKind::Link { nodes, .. }, SuspectKind::Node { .. } | SuspectKind::Leaf { .. }) => {
                nodes.iter().any(|node| node_in(*node))
            }
            (SuspectKind::Link { nodes, local_rank: Some(local) }, SuspectKind::Adapter { node, local_rank }) => {
                local == local_rank && nodes.contains(node)
            }
            (SuspectKind::Link { local_rank: Some(local), .. }, SuspectKind::Rail { local_rank }) => {
                local == local_rank
            }
            (
                SuspectKind::Link { nodes, local_rank: Some(_) },
                SuspectKind::Link { nodes: whole, local_rank: None },
            ) => nodes == whole,
            _ => false,
        };
        let same = finding.suspect == other.suspect && finding.intermittent && !other.intermittent;
        same || (larger && firm)
    };
    all.iter().filter(|finding| !all.iter().any(|other| explains(other, finding))).cloned().collect()
}

/// Warnings about the records as a whole.
fn troubles(records: &[LoadedRecord], analysis: &Analysis) -> Vec<Trouble> {
    let mut troubles = Vec::new();
    for loaded in records {
        let name = loaded.path.shown();
        // For each record separately, since several may have different plans.
        let (_, of_record) = evidence::evidence(std::slice::from_ref(loaded));
        let warnings = loaded.record.header.warnings.iter().map(|warning| (3, format!("unreliable: {warning}")));
        troubles.extend(of_record);
        troubles.extend(warnings.map(|(exit_code, text)| Trouble { exit_code, text: format!("{name}: {text}") }));
    }
    let (planned, measured) = (analysis.pair_matrices.planned, analysis.pair_matrices.measured);
    if measured < planned {
        let text = format!("{} of {planned} pairs of nodes were not measured by every measure", planned - measured);
        troubles.push(Trouble { exit_code: 7, text });
    }
    troubles
}
