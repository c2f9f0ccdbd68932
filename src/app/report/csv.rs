//! The report as comma-separated values: one row for each call, copy and matrix product, and one for each pair where pairs were measured,
//! units in the column names, empty where there is no number.
//!
//! Spreadsheets evaluate cells that begin with `=`, `+`, `-` or `@`; such texts get a leading apostrophe, and control
//! characters are written out.

use super::entry::Entry;
use super::late::Late;
use super::pairs::PairsView;
use super::row::Row;
use super::text::harmless;
use super::view::View;
use commgauge_base::collective::Placement;
use commgauge_base::comma_separated::{Column, CommaSeparated, cells, comma_separated, names};
use commgauge_base::error::Result;
use commgauge_base::stats::Interval;
use commgauge_base::units::{Rate, Seconds};
use commgauge_base::variant;
use commgauge_model::layout::Axis;
use commgauge_model::workload::Style;

/// The rows, with a row of names above them.
pub(super) fn text(view: &View) -> Result<String> {
    let Some(pairs) = &view.pairs else { return of_cases(view) };
    match view.entries().all(|entry| is_pair(&entry)) {
        true => super::pairs::csv::text(pairs),
        false => of_cases_and_pairs(view, pairs),
    }
}

fn is_pair(entry: &Entry) -> bool {
    entry.row.is_some_and(|row| row.facts.axis == Axis::Pair)
}

fn of_cases(view: &View) -> Result<String> {
    comma_separated("the report as CSV", &columns(), rows(view))
}

/// The columns of cases, then those of pairs; each row leaves the other half empty.
fn of_cases_and_pairs(view: &View, pairs: &PairsView) -> Result<String> {
    let (of_cases, of_pairs) = (columns(), super::pairs::csv::columns());
    let renamed = names(&of_pairs).map(|name| if name == "samples" { "pair_samples" } else { name });
    let mut text = CommaSeparated::new("the report as CSV", names(&of_cases).chain(renamed))?;
    for case in rows(view).filter(|case| !is_pair(&case.entry)) {
        text.row(cells(&of_cases, &case).chain(of_pairs.iter().map(|_| String::new())))?;
    }
    for pair in super::pairs::csv::rows(pairs) {
        let own = names(&of_cases).map(|name| match name {
            "axis" => Axis::Pair.to_string(),
            "style" => Style::Pairs.name().to_owned(),
            "synthetic" => view.header.backend.synthetic.to_string(),
            "backend" => harmless(&view.header.backend.name),
            "world_size" => view.header.world_size.to_string(),
            "run_id" => harmless(&view.header.run_id),
            _ => String::new(),
        });
        text.row(own.chain(cells(&of_pairs, &pair)))?;
    }
    text.finish()
}

/// The spelling of records and JSON.
fn placement(placement: Placement) -> &'static str {
    match placement {
        Placement::InPlace => "in_place",
        Placement::OutOfPlace => "out_of_place",
    }
}

/// A row with what its cells are made of.
struct CaseRow<'a> {
    view: &'a View,
    entry: Entry<'a>,
}

impl CaseRow<'_> {
    /// What only calls have; empty for copies and products.
    fn of_call<T: ToString>(&self, of: impl Fn(&Row) -> T) -> String {
        text_or_empty(self.entry.row.map(of))
    }

    /// The same where not every call has it.
    fn of_some_calls<T: ToString>(&self, of: impl Fn(&Row) -> Option<T>) -> String {
        text_or_empty(self.entry.row.and_then(of))
    }

    /// The late rank of a call.
    fn late(&self) -> Option<&Late> {
        self.entry.row?.late.as_ref()
    }
}

fn columns<'a>() -> Vec<Column<CaseRow<'a>>> {
    vec![
        Column::new("case", |case| harmless(&case.entry.name)),
        Column::new("axis", |case| case.entry.subject.axis()),
        Column::new("style", |case| case.of_call(|row| row.facts.style.name())),
        Column::new("groups", |case| case.of_call(|row| row.facts.groups)),
        Column::new("group_size", |case| case.of_call(|row| row.facts.group_size)),
        Column::new("nodes_spanned", |case| case.of_call(|row| row.facts.locality.nodes_spanned)),
        Column::new("ranks_per_node", |case| case.of_call(|row| row.facts.locality.ranks_per_node)),
        Column::new("stride", |case| case.of_call(|row| row.facts.locality.stride)),
        Column::new("concurrent_groups_per_node", |case| {
            case.of_call(|row| row.facts.locality.concurrent_groups_per_node)
        }),
        Column::new("collective", |case| case.entry.subject.what().to_owned()),
        Column::new("reduce_op", |case| case.of_some_calls(|row| row.facts.reduce_op)),
        Column::new("root", |case| case.of_some_calls(|row| row.facts.root)),
        Column::new("element_type", |case| text_or_empty(case.entry.subject.element_type())),
        Column::new("bytes_total", |case| text_or_empty(case.entry.subject.bytes().map(|bytes| bytes.0))),
        Column::new("bytes_accounted", |case| case.of_call(|row| row.facts.bytes_accounted.0)),
        Column::new("bytes_per_rank", |case| case.of_call(|row| row.facts.bytes_per_rank.0)),
        Column::new("placement", |case| case.of_call(|row| placement(row.facts.placement))),
        Column::new("cadence", |case| case.of_call(|row| row.facts.cadence)),
        Column::new("transfers_per_call", |case| case.of_call(|row| row.facts.transfers_per_call)),
        Column::new("count_per_step", |case| case.of_some_calls(|row| row.facts.count_per_step())),
        Column::new("status", |case| case.entry.status.label().to_owned()),
        Column::new("status_reason", |case| case.entry.status.reason().map(harmless).unwrap_or_default()),
        Column::new("synthetic", |case| case.view.header.backend.synthetic.to_string()),
        Column::new("samples", |case| case.entry.counts.samples.to_string()),
        Column::new("samples_excluded", |case| case.entry.counts.samples_excluded.to_string()),
        Column::new("replicates", |case| case.entry.counts.replicates.to_string()),
        Column::new("replicates_planned", |case| case.entry.counts.replicates_planned.to_string()),
        Column::new("latency_seconds_median", |case| seconds(case.entry.latency.map(|latency| latency.median))),
        Column::new("latency_seconds_interval_low", |case| seconds(interval(case).map(|interval| interval.low))),
        Column::new("latency_seconds_interval_high", |case| seconds(interval(case).map(|interval| interval.high))),
        Column::new("latency_seconds_p90", |case| seconds(case.entry.latency.and_then(|latency| latency.p90))),
        Column::new("latency_seconds_p99", |case| seconds(case.entry.latency.and_then(|latency| latency.p99))),
        Column::new("latency_seconds_p999", |case| seconds(case.entry.latency.and_then(|latency| latency.p999))),
        Column::new("precision_reached", |case| case.of_some_calls(|row| row.precision_reached)),
        Column::new("algbw_bytes_per_second", |case| rate(case.entry.algbw())),
        Column::new("busbw_bytes_per_second", |case| rate(case.entry.busbw())),
        Column::new("bus_factor", |case| case.of_some_calls(|row| row.facts.bus_factor)),
        Column::new("bound_bytes_per_second", |case| {
            rate(case.entry.row.and_then(|row| row.facts.bound_bytes_per_second))
        }),
        Column::new("bound_share", |case| case.of_some_calls(|row| Some(format!("{:.6}", row.bound_share?)))),
        Column::new("late_rank", |case| text_or_empty(case.late().map(|late| late.rank))),
        Column::new("late_rank_host", |case| case.late().map(|late| harmless(&late.host)).unwrap_or_default()),
        Column::new("late_rank_share", |case| text_or_empty(case.late().map(|late| format!("{:.6}", late.share)))),
        Column::new("late_rank_spread_seconds_median", |case| seconds(case.late().map(|late| late.spread))),
        Column::new("backend", |case| harmless(&case.view.header.backend.name)),
        Column::new("world_size", |case| case.view.header.world_size.to_string()),
        Column::new("run_id", |case| harmless(&case.view.header.run_id)),
        Column::new("variant", |case| case.of_call(|row| harmless(&variant::shown(&row.facts.labels)))),
        Column::new("library_estimate_seconds", |case| seconds(case.entry.row.and_then(|row| row.library_estimate))),
        Column::new("library_choice", |case| case.of_some_calls(|row| Some(harmless(&row.library_choice()?)))),
        Column::new("flops_per_second", |case| {
            text_or_empty(case.entry.flops_per_second().map(|rate| format!("{rate:.0}")))
        }),
    ]
}

fn rows(view: &View) -> impl Iterator<Item = CaseRow<'_>> {
    view.entries().map(move |entry| CaseRow { view, entry })
}

fn interval(case: &CaseRow) -> Option<Interval<Seconds>> {
    case.entry.latency.and_then(|latency| latency.interval)
}

fn text_or_empty(value: Option<impl ToString>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

/// Rounded to picoseconds: samples have a resolution of 1 ns, calls of a batch a finer one.
fn seconds(value: Option<Seconds>) -> String {
    text_or_empty(value.map(|seconds| format!("{:.12}", seconds.0)))
}

fn rate(value: Option<Rate>) -> String {
    text_or_empty(value.map(|rate| format!("{:.0}", rate.0)))
}
