//! What prevents a record as a whole from passing: how its run ended, missing data, and contradictions.

use commgauge_base::collective::Collective;
use commgauge_base::units::counted;
use commgauge_model::record::line::{CaseFacts, ClockMoment, EndStatus, Outcome, RankFacts};
use commgauge_model::record::{Record, Seal};
use std::collections::HashMap;

/// Warnings about a record as a whole, each with its exit code.
pub(super) fn of_record(record: &Record) -> Vec<(i32, String)> {
    let mut found: Vec<(i32, String)> = record.file.warnings.iter().map(|warning| (7, warning.clone())).collect();
    match &record.end {
        None => {
            if record.file.warnings.is_empty() {
                found.push((7, "the record has no end line".to_owned()));
            }
        }
        Some(end) => {
            let how = match end.status {
                EndStatus::Complete => "the run failed",
                EndStatus::Interrupted => "the run was interrupted",
                EndStatus::Failed => "the run failed",
                EndStatus::OutOfTime => "the run stopped before its time limit",
            };
            let code = if (4..=7).contains(&end.exit_code) { end.exit_code } else { 7 };
            if end.status != EndStatus::Complete || end.exit_code != 0 {
                let why = end.error.as_deref().map_or_else(String::new, |error| format!(": {error}"));
                found.push((code, format!("{how}{why}")));
            }
        }
    }
    match record.file.seal {
        Seal::Absent if record.end.is_some() => {
            found.push((3, "the record has no digest, so changes after it was written would not show".to_owned()))
        }
        Seal::Unsealed(_) => found.extend(record.file.seal.note().map(|note| (3, note))),
        Seal::Whole | Seal::EndOnly | Seal::Absent | Seal::Broken(_) => {}
    }
    // The clocks and the plan of another tool are unknown.
    let is_foreign = record.header.backend.measured_by.is_some();
    for (moment, name) in [(ClockMoment::Start, "start"), (ClockMoment::End, "end")] {
        if !is_foreign && !record.clocks.iter().any(|clock| clock.moment == moment) {
            found.push((7, format!("the record lacks the agreement of the clocks at its {name}")));
        }
    }
    let (cases, replicates) = (record.plan.cases.len() as u64, record.header.settings.fewest_replicates());
    let own_work = record.plan.product_lines;
    if (cases == 0 && own_work == 0) || replicates == 0 {
        found.push((7, "the record plans nothing to measure".to_owned()));
    } else if !is_foreign && record.plan.case_lines != cases.saturating_mul(u64::from(replicates)) {
        found.push((7, "the plan of the record contradicts itself in the number of case lines".to_owned()));
    }
    let measured = (record.products.len() + record.copies.len()) as u64;
    if measured < own_work && record.header.settings.within.is_none() {
        found
            .push((7, format!("{} of {own_work} planned copies and matrix products are missing", own_work - measured)));
    }
    found.extend(shared_host(&record.header.ranks).map(|text| (7, text)));
    found.extend(contradiction(record).map(|text| (7, text)));
    let outcomes = (record.cases.iter().map(|line| &line.outcome))
        .chain(record.replays.iter().map(|replay| &replay.outcome))
        .chain(record.interference.iter().map(|pair| &pair.outcome))
        .chain(record.products.iter().map(|line| &line.outcome))
        .chain(record.copies.iter().map(|line| &line.outcome));
    let (mut corrupt, mut failed) = (0usize, 0usize);
    for outcome in outcomes {
        corrupt += usize::from(outcome.is_wrong());
        failed += usize::from(matches!(outcome, Outcome::Failed { .. }));
    }
    if corrupt > 0 {
        found.push((4, format!("wrong data in {}", counted(corrupt, "measurement"))));
    }
    if failed > 0 {
        found.push((6, format!("{} did not complete", counted(failed, "measurement"))));
    }
    found
}

/// Statements of the plan about its calls that the list of ranks contradicts. Another tool may not list all ranks.
fn contradiction(record: &Record) -> Option<String> {
    let header = &record.header;
    let named: u64 = header.ranks.iter().map(|rank| u64::from(rank.ranks)).sum();
    if header.backend.measured_by.is_none() && named != u64::from(header.world_size) {
        return Some(format!("the record names {named} of its {} ranks", header.world_size));
    }
    record.plan.cases.iter().find_map(|facts| {
        let CaseFacts { name, collective, group_size, groups, bytes_total, bytes_accounted, .. } = facts;
        let (found, factor) = (facts.bus_factor.unwrap_or(0.0), collective.bus_factor(*group_size).unwrap_or(0.0));
        if (found - factor).abs() > 1e-9 {
            return Some(format!(
                "{name} has the bus factor {found}, and {collective} on {group_size} ranks has {factor}"
            ));
        }
        if bytes_accounted != bytes_total && *collective != Collective::AllToAllV {
            return Some(format!("{name} moves {bytes_total}, but its bandwidth counts {bytes_accounted}"));
        }
        let ranks = u64::from(*group_size) * u64::from(*groups);
        (ranks > u64::from(header.world_size))
            .then(|| format!("{name} has {groups} groups of {group_size} ranks, but the run has {}", header.world_size))
    })
}

/// Whether two nodes have one name; a run gives such hosts distinct names.
fn shared_host(ranks: &[RankFacts]) -> Option<String> {
    let mut node_of_host = HashMap::new();
    ranks.iter().find_map(|facts| {
        let known = *node_of_host.entry(&facts.host).or_insert(facts.node);
        (known != facts.node).then(|| {
            format!(
                "nodes {known} and {} are both called {}: the placement of ranks is unknown",
                facts.node, facts.host
            )
        })
    })
}
