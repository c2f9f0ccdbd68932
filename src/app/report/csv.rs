//! The report as comma-separated values: one row for each case, and one for each pair where pairs were measured, units
//! in the column names, empty where there is no number.
//!
//! Spreadsheets evaluate cells that begin with `=`, `+`, `-` or `@`; such texts get a leading apostrophe, and control
//! characters are written out.

use super::late::Late;
use super::pairs::PairsView;
use super::row::Row;
use super::text::visible;
use super::view::View;
use commgauge_base::collective::Placement;
use commgauge_base::comma_separated::CommaSeparated;
use commgauge_base::error::Result;
use commgauge_base::units::{Rate, Seconds};
use commgauge_base::variant;
use commgauge_model::layout::Axis;
use commgauge_model::workload::Style;

const COLUMNS: [&str; 49] = [
    "case",
    "axis",
    "style",
    "groups",
    "group_size",
    "nodes_spanned",
    "ranks_per_node",
    "stride",
    "concurrent_groups_per_node",
    "collective",
    "reduce_op",
    "root",
    "element_type",
    "bytes_total",
    "bytes_accounted",
    "bytes_per_rank",
    "placement",
    "cadence",
    "transfers_per_call",
    "count_per_step",
    "status",
    "status_reason",
    "synthetic",
    "samples",
    "samples_doubtful",
    "replicates",
    "replicates_planned",
    "latency_seconds_median",
    "latency_seconds_interval_low",
    "latency_seconds_interval_high",
    "latency_seconds_p90",
    "latency_seconds_p99",
    "latency_seconds_p999",
    "precision_reached",
    "algbw_bytes_per_second",
    "busbw_bytes_per_second",
    "bus_factor",
    "bound_bytes_per_second",
    "bound_share",
    "late_rank",
    "late_rank_host",
    "late_rank_share",
    "late_rank_spread_seconds_median",
    "backend",
    "world_size",
    "run_id",
    "variant",
    "library_estimate_seconds",
    "library_choice",
];

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
    let mut text = CommaSeparated::new("the report as CSV", COLUMNS)?;
    for (row, late) in view.rows.iter().zip(&view.late) {
        text.row(cells(view, row, late.as_ref()))?;
    }
    text.finish()
}

/// The columns of cases, then those of pairs; each row leaves the other half empty.
fn of_cases_and_pairs(view: &View, pairs: &PairsView) -> Result<String> {
    let of_pairs = super::pairs::csv::COLUMNS.map(|name| if name == "samples" { "pair_samples" } else { name });
    let mut text = CommaSeparated::new("the report as CSV", COLUMNS.into_iter().chain(of_pairs))?;
    for (row, late) in view.rows.iter().zip(&view.late).filter(|(row, _)| row.facts.axis != Axis::Pair) {
        let none = of_pairs.map(|_| String::new());
        text.row(cells(view, row, late.as_ref()).into_iter().chain(none))?;
    }
    for pair in super::pairs::csv::rows(pairs) {
        let own = COLUMNS.map(|name| match name {
            "axis" => Axis::Pair.to_string(),
            "style" => Style::Pairs.name().to_owned(),
            "synthetic" => view.header.backend.synthetic.to_string(),
            "backend" => harmless(&view.header.backend.name),
            "world_size" => view.header.world_size.to_string(),
            "run_id" => harmless(&view.header.run_id),
            _ => String::new(),
        });
        text.row(own.into_iter().chain(pair))?;
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

fn cells(view: &View, row: &Row, late: Option<&Late>) -> [String; COLUMNS.len()] {
    let (facts, locality, latency) = (&row.facts, &row.facts.locality, row.latency.as_ref());
    let interval = latency.and_then(|latency| latency.interval);
    [
        harmless(&facts.name),
        facts.axis.to_string(),
        facts.style.name().to_owned(),
        facts.groups.to_string(),
        facts.group_size.to_string(),
        locality.nodes_spanned.to_string(),
        locality.ranks_per_node.to_string(),
        locality.stride.to_string(),
        locality.concurrent_groups_per_node.to_string(),
        facts.collective.to_string(),
        text_or_empty(facts.reduce_op),
        text_or_empty(facts.root),
        facts.element_type.to_string(),
        facts.bytes_total.0.to_string(),
        facts.bytes_accounted.0.to_string(),
        facts.bytes_per_rank.0.to_string(),
        placement(facts.placement).to_owned(),
        facts.cadence.to_string(),
        facts.transfers_per_call.to_string(),
        text_or_empty(facts.count_per_step()),
        row.status.label().to_owned(),
        row.status.reason().map(harmless).unwrap_or_default(),
        view.header.backend.synthetic.to_string(),
        row.samples.to_string(),
        row.samples_doubtful.to_string(),
        row.replicates.to_string(),
        row.replicates_planned.to_string(),
        seconds(latency.map(|latency| latency.median)),
        seconds(interval.map(|(low, _)| low)),
        seconds(interval.map(|(_, high)| high)),
        seconds(latency.and_then(|latency| latency.p90)),
        seconds(latency.and_then(|latency| latency.p99)),
        seconds(latency.and_then(|latency| latency.p999)),
        text_or_empty(row.precision_reached),
        rate(row.algbw),
        rate(row.busbw),
        text_or_empty(facts.bus_factor),
        rate(facts.bound_bytes_per_second),
        text_or_empty(row.bound_share.map(|share| format!("{share:.6}"))),
        text_or_empty(late.map(|late| late.rank)),
        late.map(|late| harmless(&late.host)).unwrap_or_default(),
        text_or_empty(late.map(|late| format!("{:.6}", late.share))),
        seconds(late.map(|late| late.spread)),
        harmless(&view.header.backend.name),
        view.header.world_size.to_string(),
        harmless(&view.header.run_id),
        harmless(&variant::shown(&facts.labels)),
        seconds(row.library_estimate),
        harmless(&row.library_choice().unwrap_or_default()),
    ]
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

/// A text from the record, escaped so that no spreadsheet takes it for a formula.
pub(super) fn harmless(text: &str) -> String {
    let shown = visible(text);
    if shown.starts_with(['=', '+', '-', '@']) { format!("'{shown}") } else { shown }
}
