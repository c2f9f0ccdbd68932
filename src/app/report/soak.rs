//! The rates of a soak over its time: each case in the first and the last quarter of the rounds, and in its slowest round.

use super::document::{Column, Table, optional, signed_percent};
use super::row::Row;
use super::view::View;
use commgauge_base::stats::{median, sorted};
use commgauge_base::units::{Seconds, three_digits};

/// A table of all cases, where the record is of a soak.
pub(super) fn document(view: &View) -> Option<Table> {
    const COLUMNS: [Column; 7] = [
        Column::left("case", 0),
        Column::right("rounds", 2),
        Column::right("first quarter GB/s", 0),
        Column::right("last quarter GB/s", 0),
        Column::right("time of a call", 0),
        Column::right("slowest round", 0),
        Column::right("from", 1),
    ];
    let settings = &view.header.settings;
    let time = settings.within_seconds.filter(|_| settings.soak)?;
    let round = Seconds(time.0 / f64::from(settings.replicates.max(1)));
    let title = format!("over the {time} of the soak: busbw, and how the time of a call changed");
    Some(Table::new(title, &COLUMNS, view.rows.iter().filter_map(|row| cells(row, round))))
}

fn cells(row: &Row, round: Seconds) -> Option<Vec<String>> {
    let rounds: Vec<(usize, f64)> =
        row.latency_seconds_of_replicate.iter().map(|(round, time)| (*round, *time)).collect();
    let quarter = rounds.len().div_ceil(4);
    let middle = |rounds: &[(usize, f64)]| median(&sorted(rounds.iter().map(|(_, time)| *time)));
    let (whole, first, last) =
        (middle(&rounds)?, middle(&rounds[..quarter])?, middle(&rounds[rounds.len() - quarter..])?);
    let (slowest, longest) = rounds.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let rate = |seconds: f64| {
        let rate = row.busbw.zip(row.latency.as_ref()).map(|(rate, latency)| rate.0 * latency.median.0 / seconds);
        optional(rate.map(|rate| three_digits(rate * 1e-9)))
    };
    Some(vec![
        row.facts.name.to_string(),
        rounds.len().to_string(),
        rate(first),
        rate(last),
        signed_percent(last / first - 1.0),
        signed_percent(longest / whole - 1.0),
        if slowest == 0 { "start".to_owned() } else { Seconds(round.0 * slowest as f64).to_string() },
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use commgauge_model::record::Record;

    #[test]
    fn a_case_that_became_slower_shows_it_and_its_slowest_round() {
        let text = include_bytes!("../../../tests/data/sample-record.jsonl");
        let mut record = Record::parse(text, "sample").unwrap();
        assert_eq!(document(&View::new(&record)), None);
        let settings = &mut record.header.settings;
        (settings.soak, settings.within_seconds, settings.replicates) = (true, Some(Seconds(80.0)), 8);
        let mut row = View::new(&record).rows.remove(0);
        row.latency_seconds_of_replicate =
            [1.0, 1.0, 1.0, 1.0, 4.0, 1.0, 1.5, 1.5].into_iter().map(|time| time * 1e-3).enumerate().collect();
        let cells = cells(&row, Seconds(10.0)).unwrap();
        assert_eq!(cells[1], "8");
        assert_eq!(cells[4..], ["+50.0 %", "+300 %", "40.0 s"]);
    }
}
