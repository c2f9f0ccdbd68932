//! Groups rows by chart: the same call, group, place and cadence, at several sizes.

use super::input::HtmlInput;
use crate::report::row::Row;
use commgauge_base::collective::Placement;
use commgauge_base::variant;
use commgauge_model::record::line::CaseFacts;
use commgauge_model::workload::Style;
use std::collections::BTreeMap;

/// Fewer sizes make no curve.
const MIN_SIZES: usize = 3;

/// Rows, each with its index in its run.
type Numbered<'a> = Vec<(usize, &'a Row)>;

/// One chart's worth of rows.
pub(super) struct Group<'a> {
    /// Common properties, as a heading.
    pub name: String,
    /// The curves.
    pub curves: Vec<Curve<'a>>,
}

impl Group<'_> {
    /// Leaves about `most` rows in each curve: its ends, every n-th between, and those that did not measure what they should.
    /// Returns the number of rows that are left out.
    pub fn thin(&mut self, most: usize) -> usize {
        let mut left_out = 0;
        for curve in &mut self.curves {
            let (all, mut index) = (curve.rows.len(), 0);
            let step = all.div_ceil(most.max(1));
            curve.rows.retain(|(_, row)| {
                index += 1;
                (index - 1) % step == 0 || index == all || row.status.reason().is_some()
            });
            left_out += all - curve.rows.len();
        }
        left_out
    }
}

/// One run's rows of a group in one placement, by size.
pub(super) struct Curve<'a> {
    /// Index of the run; those of the base come after the records.
    pub run: usize,
    /// Name in the legend.
    pub name: String,
    /// Index of each row in its run, and the row.
    pub rows: Numbered<'a>,
}

/// Every group with enough sizes for a curve, in the order of the plan, and the number of those without.
pub(super) fn groups<'a>(input: &HtmlInput<'a>) -> (Vec<Group<'a>>, usize) {
    let mut order: Vec<String> = Vec::new();
    let mut curves: BTreeMap<(usize, usize, Placement, String), Numbered<'a>> = BTreeMap::new();
    let mut index: BTreeMap<String, usize> = BTreeMap::new();
    let runs: Vec<_> = input.runs.iter().chain(input.base).collect();
    for (run, shown) in runs.iter().enumerate() {
        for (row_index, row) in shown.view.rows.iter().enumerate() {
            if row.facts.style == Style::Pairs || row.facts.solo_of.is_some() || row.latency.is_none() {
                continue;
            }
            let key = key(&row.facts);
            let group = *index.entry(key.clone()).or_insert_with(|| {
                order.push(key);
                order.len() - 1
            });
            let variant = variant::shown(&row.facts.labels);
            curves.entry((group, run, row.facts.placement, variant)).or_default().push((row_index, row));
        }
    }
    let mut groups: Vec<Group> = order.into_iter().map(|name| Group { name, curves: Vec::new() }).collect();
    for ((group, run, placement, variant), mut rows) in curves {
        rows.sort_by_key(|(_, row)| row.facts.bytes_total);
        let name = match runs.len() {
            1 => placement.to_string().replace('_', " "),
            _ if run >= input.runs.len() => format!("base, {}", placement.to_string().replace('_', " ")),
            _ => format!("run {}, {}", run + 1, placement.to_string().replace('_', " ")),
        };
        let name = if variant.is_empty() { name } else { format!("{name}, {variant}") };
        groups[group].curves.push(Curve { run, name, rows });
    }
    let all = groups.len();
    groups.retain(|group| group.curves.iter().any(|curve| sizes(curve) >= MIN_SIZES));
    let without = all - groups.len();
    (groups, without)
}

fn sizes(curve: &Curve) -> usize {
    let mut sizes: Vec<u64> = curve.rows.iter().map(|(_, row)| row.facts.bytes_total.0).collect();
    sizes.dedup();
    sizes.len()
}

fn key(facts: &CaseFacts) -> String {
    let groups = if facts.groups == 1 { String::new() } else { format!(", {} groups at once", facts.groups) };
    let lies = match facts.locality.is_known() {
        true => format!(" on {} (hosts x ranks)", facts.locality),
        false => String::new(),
    };
    let combined = facts.reduce_op.map_or_else(String::new, |op| format!(" {op}"));
    format!(
        "{}, {} of {} ranks{lies}{groups}, {}{combined}, {}",
        facts.collective, facts.axis, facts.group_size, facts.element_type, facts.cadence
    )
}
