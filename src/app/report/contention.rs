//! Slowdown of a call of an axis with all groups of the axis at once against one group alone, replicate by replicate.

use super::document::{Block, Column, Table, optional, range};
use super::row::Row;
use commgauge_base::stats::{Interval, MIN_FOR_INTERVAL, median, median_interval, sorted};
use commgauge_base::units::three_digits;
use commgauge_model::record::line::{CaseLine, Outcome};
use std::collections::BTreeMap;

/// A call with all groups at once over the same call with one group alone.
#[derive(Clone, Debug, PartialEq)]
pub struct Contention {
    /// Index of the row with all groups at once.
    pub row: usize,
    /// Index of the row with one group alone.
    pub solo_row: usize,
    /// Groups at once.
    pub groups: u32,
    /// Median over the replicates of time(all at once)/time(alone), both of the same replicate; `None` where one has no time.
    pub factor: Option<f64>,
    /// 95 % interval of that median; `None` with fewer than 6 replicates.
    pub interval: Option<Interval>,
    /// Replicates in which both have a time.
    pub replicates: u32,
}

impl Contention {
    /// Every call of the record that was measured both with all groups and with one alone.
    pub(super) fn all_of(rows: &[Row], lines_of_case: &[Vec<&CaseLine>]) -> Vec<Contention> {
        let medians = |row: usize| {
            let withheld = rows.get(row)?.latency.is_none();
            if withheld { Some(BTreeMap::new()) } else { Some(medians(lines_of_case.get(row)?)) }
        };
        let pairs = rows.iter().enumerate().filter_map(|(solo, row)| Some((row.facts.solo_of? as usize, solo)));
        let of = |(row, solo_row): (usize, usize)| {
            Some(Contention::of(row, solo_row, rows.get(row)?.facts.groups, [medians(row)?, medians(solo_row)?]))
        };
        pairs.filter_map(of).collect()
    }

    fn of(row: usize, solo_row: usize, groups: u32, [all, alone]: [BTreeMap<u32, f64>; 2]) -> Contention {
        let ratios =
            all.iter().filter_map(|(replicate, time)| Some(time / alone.get(replicate).filter(|t| **t > 0.0)?));
        let ratios = sorted(ratios);
        Contention {
            row,
            solo_row,
            groups,
            factor: median(&ratios),
            interval: median_interval(&ratios, 0.95),
            replicates: ratios.len() as u32,
        }
    }
}

/// Interpretation of a factor.
pub(super) fn reading(factor: Option<f64>, interval: Option<Interval>) -> String {
    match (factor, interval) {
        (None, _) => "no time of both".to_owned(),
        (_, None) => format!("not known: an interval needs {MIN_FOR_INTERVAL} replicates"),
        (_, Some(interval)) if interval.low > 1.0 => "slower beside the others".to_owned(),
        (_, Some(interval)) if interval.high < 1.0 => "faster beside the others".to_owned(),
        _ => "no difference seen".to_owned(),
    }
}

/// The table of all pairs, where there are any.
pub(super) fn document(pairs: &[Contention], rows: &[Row]) -> Option<Block> {
    const COLUMNS: [Column; 10] = [
        Column::left("axis", 0),
        Column::left("style", 4),
        Column::left("call", 0),
        Column::right("size", 0),
        Column::left("cadence", 3),
        Column::right("groups at once", 2),
        Column::right("factor", 0),
        Column::left("[95 %]", 0),
        Column::right("repl.", 1),
        Column::left("reads as", 5),
    ];
    let title = "contention: time of a call with all groups of its axis at once, over that with one group alone";
    let cells = pairs.iter().filter_map(|pair| Some(cells(pair, rows.get(pair.row)?)));
    let table = Table::new(title, &COLUMNS, cells).whole_in("`commgauge report --format json` has every call");
    (!table.rows.is_empty()).then_some(Block::Table(table))
}

fn cells(pair: &Contention, row: &Row) -> Vec<String> {
    let facts = &row.facts;
    vec![
        facts.axis.to_string(),
        facts.style.name().to_owned(),
        super::columns::collective_and_variant(row),
        facts.bytes_total.to_string(),
        facts.cadence.to_string(),
        pair.groups.to_string(),
        optional(pair.factor.map(three_digits)),
        range(pair.interval.map(|interval| interval.map(three_digits))),
        pair.replicates.to_string(),
        reading(pair.factor, pair.interval),
    ]
}

/// The median time of a call in each replicate that was measured, in nanoseconds.
fn medians(lines: &[&CaseLine]) -> BTreeMap<u32, f64> {
    let middle = |line: &&CaseLine| {
        let times = line.samples.valid().map(|index| line.samples.slowest_nanoseconds[index] as f64);
        let calls = f64::from(line.calls_per_sample);
        matches!(line.outcome, Outcome::Measured { .. }).then_some((line.replicate, median(&sorted(times))? / calls))
    };
    lines.iter().filter_map(middle).collect()
}
