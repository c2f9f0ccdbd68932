//! Values as the text of cells, the same in every table.

use commgauge_base::stats::{Interval, Span};
use commgauge_base::units::{Bytes, Rate, three_digits};
use std::fmt::Display;

/// A value, or a dash where there is none.
pub fn optional(value: Option<impl Display>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// A share in per cent, with so many decimals.
pub fn percent(share: f64, decimals: usize) -> String {
    format!("{:.decimals$} %", 100.0 * share)
}

/// A share in per cent, with three digits.
pub fn share(share: f64) -> String {
    format!("{} %", three_digits(share * 100.0))
}

/// A share as a change in per cent, with its sign.
pub fn signed_percent(share: f64) -> String {
    let sign = if share >= 0.0 { "+" } else { "" };
    format!("{sign}{} %", three_digits(share * 100.0))
}

/// Bytes in decimal units, as rates have.
pub fn gigabytes(bytes: Bytes) -> String {
    match bytes.0 {
        0..1_000_000 => format!("{} B", bytes.0),
        1_000_000..1_000_000_000 => format!("{} MB", three_digits(bytes.0 as f64 * 1e-6)),
        more => format!("{} GB", three_digits(more as f64 * 1e-9)),
    }
}

/// A rate in GB/s without its unit.
pub fn gigabytes_per_second(rate: Rate) -> String {
    three_digits(rate.gigabytes_per_second())
}

/// `low..high`; `n/a` where there is no interval.
pub fn range<T: Display>(interval: Option<Interval<T>>) -> String {
    interval.map_or_else(|| "n/a".to_owned(), |Interval { low, high }| format!("{low}..{high}"))
}

/// `12.3..14.5 ms`, with the unit of the upper end; `n/a` where there is no interval.
pub fn seconds_range(span: Span) -> String {
    span.interval.map_or_else(|| "n/a".to_owned(), |interval| in_one_unit(interval, ".."))
}

/// `12.3 .. 14.5 ms`, with the unit of the upper end; `not known` where there is no interval.
pub fn seconds_between(span: Span) -> String {
    span.interval.map_or_else(|| "not known".to_owned(), |interval| in_one_unit(interval, " .. "))
}

fn in_one_unit(interval: Interval, between: &str) -> String {
    let (scale, unit) = match interval.high {
        high if high < 1e-6 => (1e9, "ns"),
        high if high < 1e-3 => (1e6, "us"),
        high if high < 1.0 => (1e3, "ms"),
        _ => (1.0, "s"),
    };
    format!("{}{between}{} {unit}", three_digits(interval.low * scale), three_digits(interval.high * scale))
}

/// `-1.2 % .. +3.4 %`; a dash where an end is not known.
pub fn signed_bounds(low: Option<f64>, high: Option<f64>) -> String {
    optional(low.zip(high).map(|(low, high)| format!("{} .. {}", signed_percent(low), signed_percent(high))))
}
