//! The columns of the table of cases: their contents, and the order in which they are left out where the width does not suffice.

use super::document::{Column, gigabytes_per_second, optional, range};
use super::row::Row;
use commgauge_base::collective::Placement;
use commgauge_base::geometry::Splits;
use commgauge_base::units::{Seconds, three_digits};
use commgauge_base::variant;

/// What is in a column. The order is that of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    Collective,
    Size,
    Element,
    Reduce,
    Place,
    Variant,
    PerStep,
    Samples,
    LeftOut,
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
    Case,
}

/// How many columns there are.
pub(super) const FIELDS: usize = 22;

use Field::*;

impl Field {
    pub(super) const ALL: [Field; FIELDS] = [
        Collective, Size, Element, Reduce, Place, Variant, PerStep, Samples, LeftOut, Replicates, Median, Interval,
        Precision, P99, Estimate, Choice, Algbw, Busbw, Bound, Share, Check, Case,
    ];

    /// Heading, unit, alignment, and the priority of being left out.
    pub(super) fn column(self) -> Column {
        match self {
            Collective => Column::left("collective", 0),
            Size => Column::right("size", 0),
            Element => Column::left("type", 2),
            Reduce => Column::left("op", 3),
            Place => Column::left("place", 1),
            Variant => Column::left("variant", 0),
            PerStep => Column::right("calls", 8).in_unit("a step"),
            Samples => Column::right("samples", 6),
            LeftOut => Column::right("left out", Column::PAGES_ONLY),
            Replicates => Column::right("repl.", 12),
            Median => Column::right("median", 0).in_unit("us"),
            Interval => Column::right("interval", 4).in_unit("95 %, us"),
            Precision => Column::right("+-", 0).in_unit("%"),
            P99 => Column::right("p99", 7).in_unit("us"),
            Estimate => Column::right("NCCL's", 9).in_unit("est., us"),
            Choice => Column::left("NCCL's", 0).in_unit("choice"),
            Algbw => Column::right("algbw", 10).in_unit("GB/s"),
            Busbw => Column::right("busbw", 0).in_unit("GB/s"),
            Bound => Column::right("bound", 11).in_unit("GB/s"),
            Share => Column::right("of bound", 5).in_unit("%"),
            Check => Column::left("check", 0).of_status(),
            Case => Column::left("case", Column::PAGES_ONLY),
        }
    }

    /// Whether the column is left out where no row has a value.
    pub(super) fn may_be_empty(self) -> bool {
        matches!(
            self,
            Element
                | Reduce
                | Place
                | Variant
                | PerStep
                | Precision
                | LeftOut
                | Bound
                | Share
                | Estimate
                | Choice
                | Algbw
                | Busbw
        )
    }

    pub(super) fn cell(self, row: &Row, note: Option<usize>) -> String {
        let (facts, latency) = (&row.facts, row.latency.as_ref());
        let microseconds = |seconds: Seconds| three_digits(seconds.0 * 1e6);
        let text = match self {
            Collective => Some(collective(row)),
            Size => (facts.bytes_total.0 > 0).then(|| facts.bytes_total.to_string()),
            Element => (facts.bytes_total.0 > 0).then(|| facts.element_type.name().to_owned()),
            Reduce => facts.reduce_op.map(|op| op.name().to_owned()),
            Place => (facts.bytes_total.0 > 0).then(|| place(facts.placement).to_owned()),
            Variant => Some(variant::shown(&facts.labels)).filter(|shown| !shown.is_empty()),
            PerStep => facts.count_per_step().map(|count| count.to_string()),
            Samples => (row.counts.samples > 0).then(|| row.counts.samples.to_string()),
            LeftOut => (row.counts.samples_excluded > 0).then(|| row.counts.samples_excluded.to_string()),
            Replicates => (row.counts.replicates > 0)
                .then(|| format!("{}/{}", row.counts.replicates, row.counts.replicates_planned)),
            Median => latency.map(|latency| microseconds(latency.median)),
            Interval => latency.map(|latency| range(latency.interval.map(|interval| interval.map(microseconds)))),
            Precision => latency.filter(|_| row.precision_requested.is_some()).map(|_| precision(row)),
            P99 => latency.map(|latency| latency.p99.map_or_else(|| "n/a".to_owned(), microseconds)),
            Estimate => row.library_estimate.map(microseconds),
            Choice => row.library_choice(),
            Algbw => row.algbw.map(gigabytes_per_second),
            Busbw => row.busbw.map(gigabytes_per_second),
            Bound => facts.bound_bytes_per_second.map(gigabytes_per_second),
            Share => row.bound_share.map(|share| format!("{:.0}", share * 100.0)),
            Check => Some(match note {
                Some(number) => format!("{} [{number}]", row.status.label()),
                None if row.is_incomplete() => {
                    format!("{}, {}/{}", row.status.label(), row.counts.replicates, row.counts.replicates_planned)
                }
                None => row.status.label().to_owned(),
            }),
            Case => Some(facts.name.clone()),
        };
        optional(text)
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
