//! Locates suspects: node, link, adapter, rail, leaf, only at scale, or a late rank, from pairs, groups and arrivals.
//!
//! Only slowness is searched for here; wrong data and failed runs are reported as troubles. Rendering is in `report`.

mod analysis;
mod confirm;
mod document;
mod expected_pairs;
mod explain;
mod explained;
mod groups;
mod injected;
mod inside_pairs;
mod intermittent;
mod late;
mod leaves;
mod limits;
mod one_direction;
mod pair_lines;
mod pair_matrix;
mod places;
mod suspect_name;
#[cfg(test)]
mod tests;
mod wording;

pub use document::{Examined, SUSPECTS_FORMAT, SUSPECTS_VERSION, Suspect, SuspectKind, Suspects, Unconfirmed};
pub use injected::{Found, expected_suspects};
pub use pair_lines::Measure;
pub use places::LocateOptions;

use super::loaded_record::LoadedRecord;
use super::{Trouble, evidence, most_severe};
use analysis::Analysis;
use commgauge_base::error::Result;
use commgauge_base::visible::ShownPath;
use document::MIN_MEMBERS;
use expected_pairs::{ExpectedPairs, expected_pairs};
use explain::{Finding, Search};
use explained::{narrowed, slows_down, unexplained};
use inside_pairs::InsidePairs;
use pair_matrix::PairMatrices;
use places::Places;

/// Finds the suspects of the records, the strongest evidence first.
///
/// # Errors
/// A usage error where records do not belong together.
pub fn locate(records: &[LoadedRecord], options: &LocateOptions) -> Result<Suspects> {
    let places = Places::of(records, options)?;
    let lines = pair_lines::pair_lines(records);
    let pair_matrices = PairMatrices::of(records, &lines, &places);
    let inside_pairs = InsidePairs::of(&lines, &places);
    let (growths, coarse) = groups::growths(records, &places);
    let arrivals = late::arrivals(records, &places);
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
    let mut suspects = wording::suspects(&findings, &analysis, &records[0].record.header);
    suspects.sort_by(|one, other| other.strength.total_cmp(&one.strength));
    let whiles: Vec<String> = slow_whiles(records);
    // A while in which a suspect was slow is its own, and not the machine's.
    let is_own = suspects.iter().any(|suspect| suspect.intermittent);
    let (own_whiles, slow_whiles) = if is_own { (whiles, Vec::new()) } else { (Vec::new(), whiles) };
    let mut troubles = troubles(records, &analysis);
    troubles.retain(|trouble| !own_whiles.iter().any(|own| trouble.text.contains(own)));
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
        slow_whiles,
        unseen,
        cannot_tell: limits.into_iter().map(|limit| limit.text).collect(),
        troubles,
        rule: wording::rule(&analysis),
        unconfirmed: std::mem::take(&mut analysis.unconfirmed),
    };
    let unconfirmed = if located.unconfirmed.is_empty() { 0 } else { 3 };
    located.exit_code = most_severe([located.exit_code_when_cleared(), unconfirmed]);
    located.answer = wording::answer(&located, &analysis);
    Ok(located)
}

/// The findings of every kind of evidence, without those that another one explains.
fn findings(analysis: &mut Analysis) -> Vec<Finding> {
    let mut searches = Vec::new();
    for (measure, matrix) in &analysis.pair_matrices.measures {
        let mut search = Search::new(*measure, matrix, &analysis.places);
        search_pairs(&mut search);
        ExpectedPairs::all_slow(&analysis.expected_pairs, &mut search);
        if *measure != pair_lines::Measure::Tail {
            analysis.slow_once += intermittent::intermittent(&mut search);
        }
        searches.push(search);
    }
    let of_bandwidth = searches.iter().filter(|search| search.measure.is_of_bandwidth());
    analysis.allowed_of_path = of_bandwidth.filter_map(|search| search.allowed_of_path).reduce(f64::min);
    let one_direction: Vec<SuspectKind> = cables(&searches);
    let (mut found, unconfirmed) = confirm::confirmed(searches, &analysis.places);
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

/// All searches in one matrix, those that explain most first.
fn search_pairs(search: &mut Search) {
    search.rails_and_adapters();
    if search.matrix.nodes >= MIN_MEMBERS {
        leaves::find(search);
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
        .filter(|(node, local)| one_direction::is_one_direction(searches, *node as usize, *local as usize))
        .map(|(node, local_rank)| SuspectKind::Cable { node, local_rank })
        .collect()
}

/// Whiles in which runs were slow, as sentences.
fn slow_whiles(records: &[LoadedRecord]) -> Vec<String> {
    records.iter().filter_map(|loaded| evidence::transient_slowdown(&loaded.record)).map(|found| found.text).collect()
}

/// Warnings about the records as a whole.
fn troubles(records: &[LoadedRecord], analysis: &Analysis) -> Vec<Trouble> {
    let mut troubles = Vec::new();
    for loaded in records {
        let name = loaded.path.shown();
        // For each record separately, since several may have different plans.
        let of_record = evidence::evidence(std::slice::from_ref(loaded), &[]).troubles;
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
