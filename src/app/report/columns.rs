//! The columns of the table: their contents, and the order in which they are left out where the width does not suffice.

use super::row::Row;
use commgauge_base::collective::Placement;
use commgauge_base::geometry::Splits;
use commgauge_base::units::three_digits;
use commgauge_base::variant;

/// A column. The order is that of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Column {
    Collective,
    Size,
    Element,
    Reduce,
    Place,
    Variant,
    PerStep,
    Samples,
    Replicates,
    Median,
    Interval,
    Precision,
    P99,
    Estimate,
    Choice,
    Algbw,
    Busbw,
    Bound,
    Share,
    Check,
}

/// How many columns there are.
pub(super) const COLUMNS: usize = 20;

use Column::*;

impl Column {
    pub(super) const ALL: [Column; COLUMNS] = [
        Collective, Size, Element, Reduce, Place, Variant, PerStep, Samples, Replicates, Median, Interval, Precision,
        P99, Estimate, Choice, Algbw, Busbw, Bound, Share, Check,
    ];

    /// Columns that are left out where the width does not suffice, the first ones first. Columns not listed always stay.
    pub(super) const EXPENDABLE: [Column; 12] =
        [Replicates, Bound, Algbw, Estimate, PerStep, P99, Samples, Share, Interval, Reduce, Element, Place];

    /// Heading and its unit.
    pub(super) fn heading(self) -> (&'static str, &'static str) {
        match self {
            Collective => ("collective", ""),
            Size => ("size", ""),
            Element => ("type", ""),
            Reduce => ("op", ""),
            Place => ("place", ""),
            Variant => ("variant", ""),
            PerStep => ("calls", "a step"),
            Samples => ("samples", ""),
            Replicates => ("repl.", ""),
            Median => ("median", "us"),
            Interval => ("interval", "95 %, us"),
            Precision => ("+-", "%"),
            P99 => ("p99", "us"),
            Estimate => ("NCCL's", "est., us"),
            Choice => ("NCCL's", "choice"),
            Algbw => ("algbw", "GB/s"),
            Busbw => ("busbw", "GB/s"),
            Bound => ("bound", "GB/s"),
            Share => ("of bound", "%"),
            Check => ("check", ""),
        }
    }

    pub(super) fn is_text(self) -> bool {
        matches!(self, Collective | Element | Reduce | Place | Variant | Choice | Check)
    }

    pub(super) fn cell(self, row: &Row, note: Option<usize>) -> String {
        let (facts, latency) = (&row.facts, row.latency.as_ref());
        let microseconds = |seconds: commgauge_base::units::Seconds| three_digits(seconds.0 * 1e6);
        let text = match self {
            Collective => Some(collective(row)),
            Size => (facts.bytes_total.0 > 0).then(|| facts.bytes_total.to_string()),
            Element => (facts.bytes_total.0 > 0).then(|| facts.element_type.name().to_owned()),
            Reduce => facts.reduce_op.map(|op| op.name().to_owned()),
            Place => (facts.bytes_total.0 > 0).then(|| place(facts.placement).to_owned()),
            Variant => Some(variant::shown(&facts.labels)).filter(|shown| !shown.is_empty()),
            PerStep => facts.count_per_step().map(|count| count.to_string()),
            Samples => (row.samples > 0).then(|| row.samples.to_string()),
            Replicates => (row.replicates > 0).then(|| format!("{}/{}", row.replicates, row.replicates_planned)),
            Median => latency.map(|latency| microseconds(latency.median)),
            Interval => latency.map(|latency| match latency.interval {
                Some((low, high)) => format!("{}..{}", microseconds(low), microseconds(high)),
                None => "n/a".to_owned(),
            }),
            Precision => latency.filter(|_| row.precision_requested.is_some()).map(|_| precision(row)),
            P99 => latency.map(|latency| latency.p99.map_or_else(|| "n/a".to_owned(), microseconds)),
            Estimate => row.library_estimate.map(microseconds),
            Choice => row.library_choice(),
            Algbw => row.algbw.map(|rate| three_digits(rate.gigabytes_per_second())),
            Busbw => row.busbw.map(|rate| three_digits(rate.gigabytes_per_second())),
            Bound => facts.bound_bytes_per_second.map(|rate| three_digits(rate.gigabytes_per_second())),
            Share => row.bound_share.map(|share| format!("{:.0}", share * 100.0)),
            Check => Some(match note {
                Some(number) => format!("{} [{number}]", row.status.label()),
                None if row.is_incomplete() => {
                    format!("{}, {}/{}", row.status.label(), row.replicates, row.replicates_planned)
                }
                None => row.status.label().to_owned(),
            }),
        };
        text.unwrap_or_else(|| "-".to_owned())
    }
}

/// The reached precision, with a star where it is worse than requested.
fn precision(row: &Row) -> String {
    let reached = row.precision_reached.map_or_else(|| "n/a".to_owned(), |reached| three_digits(reached * 100.0));
    format!("{reached}{}", if row.is_less_precise_than_requested() { "*" } else { " " })
}

fn place(placement: Placement) -> &'static str {
    match placement {
        Placement::OutOfPlace => "out",
        Placement::InPlace => "in",
    }
}

/// The collective and what else distinguishes two calls of it.
pub(super) fn collective(row: &Row) -> String {
    let mut text = row.facts.collective.name().to_owned();
    if let Some(root) = row.facts.root.filter(|root| *root != 0) {
        text += &format!(" root {root}");
    }
    match &row.facts.splits {
        Some(Splits::Skewed { exponent }) => text += &format!(" skew {exponent}"),
        Some(Splits::Given(_)) => text += " given",
        Some(Splits::Routed(routed)) => {
            text += &format!(" {}", routed.routing);
            text += if routed.back { " back" } else { "" };
        }
        Some(Splits::Equal) | None => {}
    }
    text
}

/// The collective and its variant.
pub(super) fn collective_and_variant(row: &Row) -> String {
    format!("{} {}", collective(row), variant::shown(&row.facts.labels)).trim_end().to_owned()
}
