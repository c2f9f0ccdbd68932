//! Numbers of a machine file: counts, factors, times and rates, each with what is accepted.

use crate::config::document::{Item, Table};
use commgauge_base::error::Result;
use commgauge_base::units::{Rate, Seconds};
use std::ops::RangeInclusive;

/// Beyond a second it is no latency, delay or jitter of a machine that works, and virtual clocks could run over.
const LONGEST: Seconds = Seconds(1.0);

/// A rate of nothing would be a call without end.
pub(super) const SMALLEST_RATE_FACTOR: f64 = 1e-6;

/// Whether a rank or node exists is checked once the number of ranks is known.
pub(super) const ANY_INDEX: RangeInclusive<u32> = 0..=u32::MAX;

pub(super) fn count(table: &mut Table, key: &'static str, range: RangeInclusive<u32>) -> Result<u32> {
    let accepted = format!("a whole number from {} to {}", range.start(), range.end());
    table.require(key, &accepted)?.count_within(range)
}

pub(super) fn number(table: &mut Table, key: &'static str, range: RangeInclusive<f64>) -> Result<f64> {
    let accepted = format!("a number from {} to {}", range.start(), range.end());
    table.require(key, &accepted)?.number_within(range)
}

pub(super) fn rate_factor(table: &mut Table) -> Result<f64> {
    number(table, "rate_factor", SMALLEST_RATE_FACTOR..=1.0)
}

pub(super) fn rate(table: &mut Table, key: &'static str) -> Result<Rate> {
    table.require(key, "a rate such as \"25GB/s\"")?.rate()
}

pub(super) fn positive(table: &mut Table, key: &'static str) -> Result<Seconds> {
    let item = table.require(key, "a time such as \"2us\"")?;
    let seconds = short(&item)?;
    if seconds.0 >= 1e-9 { Ok(seconds) } else { Err(item.wrong(format!("found {seconds}; accepted: at least 1ns"))) }
}

pub(super) fn short(item: &Item) -> Result<Seconds> {
    let seconds = item.seconds()?;
    if seconds.0 <= LONGEST.0 { Ok(seconds) } else { Err(item.wrong(format!("found {seconds}; accepted: at most 1s"))) }
}
