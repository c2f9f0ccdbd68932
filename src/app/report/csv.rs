//! The report as comma-separated values: one row for each case, and one for each pair where pairs were measured, units
//! in the column names, empty where there is no number.
//!
//! Spreadsheets evaluate cells that begin with `=`, `+`, `-` or `@`; such texts get a leading apostrophe, and control
//! characters are written out.

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
    let is_pair = |row: &&Row| row.facts.axis == Axis::Pair;
    let Some(pairs) = &view.pairs else { return of_cases(view) };
    match view.rows.iter().all(|row| is_pair(&row)) {
        true => super::pairs::csv::text(pairs),
        false => of_cases_and_pairs(view, pairs),
    }
}

fn of_cases(view: &View) -> Result<String> {
    comma_separated("the report as CSV", &columns(), rows(view))
}

/// The columns of cases, then those of pairs; each row leaves the other half empty.
fn of_cases_and_pairs(view: &View, pairs: &PairsView) -> Result<String> {
    let (of_cases, of_pairs) = (columns(), super::pairs::csv::columns());
    let renamed = names(&of_pairs).map(|name| if name == "samples" { "pair_samples" } else { name });
    let mut text = CommaSeparated::new("the report as CSV", names(&of_cases).chain(renamed))?;
    for case in rows(view).filter(|case| case.row.facts.axis != Axis::Pair) {
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
    row: &'a Row,
    late: Option<&'a Late>,
}

fn columns<'a>() -> Vec<Column<CaseRow<'a>>> {
    vec![
        Column::new("case", |case| harmless(&case.row.facts.name)),
        Column::new("axis", |case| case.row.facts.axis.to_string()),
        Column::new("style", |case| case.row.facts.style.name().to_owned()),
        Column::new("groups", |case| case.row.facts.groups.to_string()),
        Column::new("group_size", |case| case.row.facts.group_size.to_string()),
        Column::new("nodes_spanned", |case| case.row.facts.locality.nodes_spanned.to_string()),
        Column::new("ranks_per_node", |case| case.row.facts.locality.ranks_per_node.to_string()),
        Column::new("stride", |case| case.row.facts.locality.stride.to_string()),
        Column::new("concurrent_groups_per_node", |case| {
            case.row.facts.locality.concurrent_groups_per_node.to_string()
        }),
        Column::new("collective", |case| case.row.facts.collective.to_string()),
        Column::new("reduce_op", |case| text_or_empty(case.row.facts.reduce_op)),
        Column::new("root", |case| text_or_empty(case.row.facts.root)),
        Column::new("element_type", |case| case.row.facts.element_type.to_string()),
        Column::new("bytes_total", |case| case.row.facts.bytes_total.0.to_string()),
        Column::new("bytes_accounted", |case| case.row.facts.bytes_accounted.0.to_string()),
        Column::new("bytes_per_rank", |case| case.row.facts.bytes_per_rank.0.to_string()),
        Column::new("placement", |case| placement(case.row.facts.placement).to_owned()),
        Column::new("cadence", |case| case.row.facts.cadence.to_string()),
        Column::new("transfers_per_call", |case| case.row.facts.transfers_per_call.to_string()),
        Column::new("count_per_step", |case| text_or_empty(case.row.facts.count_per_step())),
        Column::new("status", |case| case.row.status.label().to_owned()),
        Column::new("status_reason", |case| case.row.status.reason().map(harmless).unwrap_or_default()),
        Column::new("synthetic", |case| case.view.header.backend.synthetic.to_string()),
        Column::new("samples", |case| case.row.samples.to_string()),
        Column::new("samples_excluded", |case| case.row.samples_excluded.to_string()),
        Column::new("replicates", |case| case.row.replicates.to_string()),
        Column::new("replicates_planned", |case| case.row.replicates_planned.to_string()),
        Column::new("latency_seconds_median", |case| seconds(case.row.latency.map(|latency| latency.median))),
        Column::new("latency_seconds_interval_low", |case| seconds(interval(case).map(|interval| interval.low))),
        Column::new("latency_seconds_interval_high", |case| seconds(interval(case).map(|interval| interval.high))),
        Column::new("latency_seconds_p90", |case| seconds(case.row.latency.and_then(|latency| latency.p90))),
        Column::new("latency_seconds_p99", |case| seconds(case.row.latency.and_then(|latency| latency.p99))),
        Column::new("latency_seconds_p999", |case| seconds(case.row.latency.and_then(|latency| latency.p999))),
        Column::new("precision_reached", |case| text_or_empty(case.row.precision_reached)),
        Column::new("algbw_bytes_per_second", |case| rate(case.row.algbw)),
        Column::new("busbw_bytes_per_second", |case| rate(case.row.busbw)),
        Column::new("bus_factor", |case| text_or_empty(case.row.facts.bus_factor)),
        Column::new("bound_bytes_per_second", |case| rate(case.row.facts.bound_bytes_per_second)),
        Column::new("bound_share", |case| text_or_empty(case.row.bound_share.map(|share| format!("{share:.6}")))),
        Column::new("late_rank", |case| text_or_empty(case.late.map(|late| late.rank))),
        Column::new("late_rank_host", |case| case.late.map(|late| harmless(&late.host)).unwrap_or_default()),
        Column::new("late_rank_share", |case| text_or_empty(case.late.map(|late| format!("{:.6}", late.share)))),
        Column::new("late_rank_spread_seconds_median", |case| seconds(case.late.map(|late| late.spread))),
        Column::new("backend", |case| harmless(&case.view.header.backend.name)),
        Column::new("world_size", |case| case.view.header.world_size.to_string()),
        Column::new("run_id", |case| harmless(&case.view.header.run_id)),
        Column::new("variant", |case| harmless(&variant::shown(&case.row.facts.labels))),
        Column::new("library_estimate_seconds", |case| seconds(case.row.library_estimate)),
        Column::new("library_choice", |case| harmless(&case.row.library_choice().unwrap_or_default())),
    ]
}

fn rows(view: &View) -> impl Iterator<Item = CaseRow<'_>> {
    view.rows.iter().zip(&view.late).map(move |(row, late)| CaseRow { view, row, late: late.as_ref() })
}

fn interval(case: &CaseRow) -> Option<Interval<Seconds>> {
    case.row.latency.and_then(|latency| latency.interval)
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
