//! A template of expectations for rows that have none, written so that it is invalid until it is filled in.

use super::evidence::Evidence;
use super::expected::{variant, variant_line};
use super::own_work_table::{head_of_copy, head_of_product};
use super::subject::Subject;
use super::{Metric, Row};
use commgauge_base::collective::Collective;
use commgauge_base::stats::median;
use commgauge_base::units::{Rate, Seconds, three_digits};
use commgauge_model::record::line::CaseFacts;
use std::collections::BTreeSet;

/// TOML for a machine file; none where every row has an expectation. Groups of one rank have no expectations.
pub(super) fn of(cases: &[Evidence], rows: &[Row]) -> Option<String> {
    let is_alone = |row: &Row| row.subject.call().is_some_and(|call| call.group_size <= 1);
    let bare = cases.iter().zip(rows).filter(|(_, row)| row.decision.is_none() && !is_alone(row));
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
    match case.subject {
        Subject::Call(facts) => head_of_call(facts),
        Subject::Copy(copy) => head_of_copy(copy),
        Subject::Product(product) => head_of_product([product.m, product.n, product.k], product.element_type.name()),
    }
}

fn head_of_call(facts: &CaseFacts) -> String {
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
    let rate = case.subject.rate();
    let what = match rate.map(|rate| rate.metric) {
        Some(Metric::BusBandwidthBytesPerSecond) => "a bus bandwidth",
        Some(Metric::CopyBytesPerSecond) => "the rate of the slowest rank in each direction",
        Some(Metric::FlopsPerSecond) => "a number, of 10^12 operations a second of the slowest rank",
        Some(Metric::LatencySeconds) | None => "a time",
    };
    let here = measured.map(|time| match rate {
        Some(rate) if rate.metric == Metric::FlopsPerSecond => three_digits(rate.amount / time * 1e-12),
        Some(rate) => Rate(rate.amount / time).to_string(),
        None => Seconds(time).to_string(),
    });
    let shown = match here {
        None => "not measured here".to_owned(),
        Some(here) => format!("{what}; here {here} over {count} replicates, which says nothing about what is good"),
    };
    let key = if let Subject::Product(_) = case.subject { "tflops" } else { "value" };
    format!("{key} = \"\" # {shown}\ntolerance = 0.05\nsource = \"\"\ndate = \"\"\n")
}
