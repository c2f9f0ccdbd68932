//! A template of expectations for rows that have none, written so that it is invalid until it is filled in.

use super::Row;
use super::evidence::Evidence;
use super::expected::{variant, variant_line};
use commgauge_base::collective::Collective;
use commgauge_base::stats::median;
use commgauge_base::units::{Rate, Seconds};
use std::collections::BTreeSet;

/// TOML for a machine file; none where every row has an expectation. Groups of one rank have no expectations.
pub(super) fn of(cases: &[Evidence], rows: &[Row]) -> Option<String> {
    let bare = cases.iter().zip(rows).filter(|(_, row)| row.decision.is_none() && row.group_size > 1);
    let mut seen = BTreeSet::new();
    let texts: Vec<String> = bare
        .filter_map(|(case, _)| {
            let head = head(case);
            seen.insert(head.clone()).then(|| head + &tail(case))
        })
        .collect();
    (!texts.is_empty()).then(|| texts.join("\n"))
}

/// The part before the expectations in the file of a new machine. The name is reduced to safe characters.
pub(super) fn machine_head(name: &str, ranks_per_node: u32) -> String {
    let name: String =
        name.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')).take(60).collect();
    format!(
        "name = \"{name}\"\nranks_per_node = {} # as in the record\n\n[within_node]\nlatency = \"\" # of an empty message\n\
         rate = \"\" # of one rank, one direction, from the data sheet; such as \"450GB/s\"\n\n[between_nodes]\nlatency = \"\"\n\
         adapters_per_node = 0 # network adapters of a node\nrate_per_adapter = \"\" # such as \"400Gbit/s\"\n\n\
         [applies_to]\nbackend = \"\" # nccl or mpi; devices = [\"H100\"] and devices_per_node = 8 for GPUs\n\n\
         [coverage]\nexpectations = 0 # the fewest [[expect]] below that a run must be judged by before it can pass\n\n",
        ranks_per_node.max(1)
    )
}

/// The keys of the expectation: only names and numbers of the plan, so that no text from outside gets into the file.
fn head(case: &Evidence) -> String {
    let facts = case.facts;
    let locality = &facts.locality;
    let bytes = match facts.collective {
        Collective::Barrier => String::new(),
        _ => format!("bytes = \"{}B\"\n", facts.bytes_total.0),
    };
    format!(
        "[[expect]]\ncollective = \"{}\"\n{bytes}ranks = {}\nranks_per_node = {}\nnodes = {}\ngroups_per_node = {}\n\
         cadence = \"{}\"\n{}",
        facts.collective,
        facts.group_size,
        locality.ranks_per_node,
        locality.nodes_spanned,
        locality.concurrent_groups_per_node,
        facts.cadence,
        variant_line(&variant(facts))
    )
}

fn tail(case: &Evidence) -> String {
    let measured = median(&case.measured());
    let count = case.seconds.iter().flatten().count();
    let factor = case.facts.bus_factor.filter(|factor| *factor > 0.0 && case.facts.bytes_accounted.0 > 0);
    let shown = match (measured, factor) {
        (None, _) => "not measured here".to_owned(),
        (Some(time), Some(factor)) => {
            let rate = Rate(case.facts.bytes_accounted.0 as f64 * factor / time);
            format!("a bus bandwidth; here {rate} over {count} replicates, which says nothing about what is good")
        }
        (Some(time), None) => {
            format!("a time; here {} over {count} replicates, which says nothing about what is good", Seconds(time))
        }
    };
    format!("value = \"\" # {shown}\ntolerance = 0.05\nsource = \"\"\ndate = \"\"\n")
}
