//! The same cases launched with several algorithms and protocols: which is best for each, and which are within its noise.

use super::document::{Block, Column, Mark, Table, Terminal, optional, percent, range};
use super::row::Row;
use super::view::View;
use commgauge_base::stats::Interval;
use commgauge_base::units::three_digits;

/// A launch with a forced algorithm and protocol.
pub struct Combination<'a> {
    /// Name of the combination, such as `ring ll128`.
    pub name: &'a str,
    /// Its results.
    pub view: &'a View,
}

/// The time of a case in one launch.
struct TimedLaunch<'a> {
    name: &'a str,
    median: f64,
    interval: Option<Interval>,
    busbw: Option<f64>,
}

/// The table: for every case all combinations, the best first and marked, and those within noise of it.
pub fn combinations_text(combinations: &[Combination], width: u16) -> String {
    let mut blocks = vec![Block::heading("Algorithms and protocols")];
    if combinations.iter().any(|combination| combination.view.header.backend.synthetic) {
        let synthetic = "SYNTHETIC: carried out by stand-ins; these are not measurements";
        blocks.push(Block::marked(Mark::Flush, [synthetic]));
    }
    let mut names: Vec<&str> = Vec::new();
    for row in combinations.iter().flat_map(|combination| &combination.view.rows) {
        if !names.contains(&row.facts.name.as_str()) {
            names.push(&row.facts.name);
        }
    }
    let columns = [
        Column::left("", 0),
        Column::left("forced", 0),
        Column::right("median us", 0),
        Column::right("95 %, us", 2),
        Column::right("busbw GB/s", 1),
        Column::right("slower by", 0),
    ];
    for name in names {
        let rows = combinations.iter().filter_map(|combination| {
            let row = combination.view.rows.iter().find(|row| row.facts.name == name)?;
            Some((combination.name, row))
        });
        let (timed, untimed) = of_case(rows);
        blocks.push(match timed.is_empty() {
            true => Block::heading(name),
            false => Block::Table(Table::new(name, &columns, cells(&timed))),
        });
        let untimed = untimed.into_iter().map(|(combination, why)| format!("{combination}: {why}"));
        blocks.push(Block::marked(Mark::Close, untimed));
    }
    let legend = "* is the best by its median, ~ is within noise of it: the 95 % intervals of the medians overlap, or one has too few \
                  samples for an interval.";
    blocks.push(Block::text(legend));
    Terminal::plain(width).draw(&blocks)
}

/// The launches with a time of the case, the fastest first, and the reasons why the others have none.
fn of_case<'a>(rows: impl Iterator<Item = (&'a str, &'a Row)>) -> (Vec<TimedLaunch<'a>>, Vec<(&'a str, String)>) {
    let (mut timed, mut untimed) = (Vec::new(), Vec::new());
    for (name, row) in rows {
        match row.latency {
            Some(latency) => timed.push(TimedLaunch {
                name,
                median: latency.median.0,
                interval: latency.interval.map(|interval| interval.map(|seconds| seconds.0)),
                busbw: row.busbw.map(|rate| rate.gigabytes_per_second()),
            }),
            None => untimed.push((name, row.status.to_string())),
        }
    }
    timed.sort_by(|a, b| a.median.total_cmp(&b.median));
    (timed, untimed)
}

fn cells(timed: &[TimedLaunch]) -> Vec<Vec<String>> {
    let Some(best) = timed.first() else { return Vec::new() };
    let microseconds = |seconds: f64| three_digits(seconds * 1e6);
    let cells = |(index, one): (usize, &TimedLaunch)| {
        let mark = match index {
            0 => "*",
            _ if within_noise(best, one) => "~",
            _ => "",
        };
        vec![
            mark.to_owned(),
            one.name.to_owned(),
            microseconds(one.median),
            range(one.interval.map(|interval| interval.map(microseconds))),
            optional(one.busbw.map(three_digits)),
            if index == 0 { "-".to_owned() } else { percent(one.median / best.median - 1.0, 1) },
        ]
    };
    timed.iter().enumerate().map(cells).collect()
}

/// Whether the difference from the best is within noise.
fn within_noise(best: &TimedLaunch, other: &TimedLaunch) -> bool {
    best.interval.zip(other.interval).is_none_or(|(best, other)| other.low <= best.high)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(name: &'static str, median: f64, interval: Option<[f64; 2]>) -> TimedLaunch<'static> {
        let interval = interval.map(|[low, high]| Interval { low, high });
        TimedLaunch { name, median, interval, busbw: Some(1.0) }
    }

    #[test]
    fn the_best_is_marked_and_so_is_what_is_within_its_noise() {
        let all = [
            launch("ring ll", 10e-6, Some([9e-6, 11e-6])),
            launch("tree ll", 10.5e-6, Some([10.9e-6, 11e-6])),
            launch("tree simple", 12e-6, Some([11.5e-6, 12.5e-6])),
            launch("ring simple", 20e-6, None),
        ];
        let marks: Vec<String> = cells(&all).into_iter().map(|row| row[0].clone()).collect();
        assert_eq!(marks, ["*", "~", "", "~"]);
        assert_eq!(cells(&all)[2][5], "20.0 %");
    }
}
