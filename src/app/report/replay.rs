//! A replayed step or trace: its time, the waiting time on each axis, the hidden share, and whether the bytes match the list of ops.

use super::document::{Block, Column, Table, optional, percent, range, signed_percent};
use super::row::Row;
use super::view::View;
use commgauge_base::stats::{Interval, median, median_interval, sorted};
use commgauge_base::units::{Bytes, Seconds, three_digits};
use commgauge_model::record::line::Outcome;
use commgauge_model::record::work_lines::{ReplayAxis, ReplayLine};

/// The whole step's time: the median over the repetitions of the slowest rank's, with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReplayTime {
    /// The median.
    pub median: Seconds,
    /// Its interval; `None` with fewer than 6 repetitions. Repetitions share communicators, so it does not cover other
    /// launches.
    pub interval: Option<Interval<Seconds>>,
}

/// The time of a replay; `None` where there is none.
pub fn replay_time(replay: &ReplayLine) -> Option<ReplayTime> {
    let times = sorted(replay.slowest_nanoseconds.iter().map(|time| *time as f64 * 1e-9));
    let interval = median_interval(&times, 0.95).map(|interval| interval.map(Seconds));
    matches!(replay.outcome, Outcome::Measured { .. })
        .then(|| Some(ReplayTime { median: Seconds(median(&times)?), interval }))
        .flatten()
}

/// A table and sentences for each replay.
pub(super) fn document(view: &View) -> impl Iterator<Item = Block> {
    view.replays.iter().flat_map(|replay| [Block::Table(axes(view, replay)), Block::list(sentences(replay))])
}

fn axes(view: &View, replay: &ReplayLine) -> Table {
    const COLUMNS: [Column; 8] = [
        Column::left("axis", 0),
        Column::right("calls", 1),
        Column::right("waited for", 0),
        Column::right("in flight", 0),
        Column::right("hidden", 0),
        Column::right("payload", 3),
        Column::right("wire", 2),
        Column::left("as listed", 0),
    ];
    let layout = view
        .steps
        .get(replay.step as usize)
        .map_or_else(String::new, |step| format!("{}, {}, ", step.facts.model, step.facts.layout));
    let title = if replay.is_of_trace() {
        "replay of a trace".to_owned()
    } else {
        format!(
            "replay: {layout}{}, {} of forward pass in each layer",
            replay.schedule, replay.forward_seconds_per_layer
        )
    };
    Table::new(title, &COLUMNS, replay.axes.iter().map(cells))
}

fn cells(axis: &ReplayAxis) -> Vec<String> {
    let same =
        axis.payload_bytes_counted == axis.payload_bytes_listed && axis.wire_bytes_counted == axis.wire_bytes_listed;
    vec![
        axis.axis.to_string(),
        axis.calls_counted.to_string(),
        Seconds::from_nanoseconds(axis.waiting_nanoseconds_median).to_string(),
        Seconds::from_nanoseconds(axis.under_way_nanoseconds_median).to_string(),
        optional(axis.overlap_efficiency.map(|share| percent(share, 0))),
        bytes(axis.payload_bytes_counted),
        bytes(axis.wire_bytes_counted),
        if same { "yes" } else { "NO" }.to_owned(),
    ]
}

/// Unrounded, since they are compared with the list of ops.
fn bytes(bytes: Bytes) -> String {
    format!("{} B", bytes.0)
}

fn sentences(replay: &ReplayLine) -> Vec<String> {
    let mut sentences = Vec::new();
    match (&replay.outcome, replay_time(replay)) {
        (Outcome::Measured { verified }, Some(time)) => {
            let interval = range(time.interval);
            let data = if *verified { "data right" } else { "data not checked" };
            let times = replay.slowest_nanoseconds.len();
            let computing = match replay.computing_nanoseconds_median {
                0 => "none".to_owned(),
                nanoseconds => Seconds::from_nanoseconds(nanoseconds).to_string(),
            };
            let what = if replay.is_of_trace() { "the whole trace" } else { "the whole step" };
            sentences.push(format!(
                "{what}: {} [{interval}], the slowest rank's, over {times} repetitions; {computing} of it computing; {data}",
                time.median
            ));
            if let Some(job) = replay.job_nanoseconds {
                let job = Seconds::from_nanoseconds(job);
                let ratio = three_digits(time.median.0 / job.0);
                sentences.push(format!(
                    "the job itself took {job} from its first call to its last: the replay takes {ratio} times that"
                ));
            }
        }
        (Outcome::Measured { .. }, None) => sentences.push("the step was not timed: the run was stopped".to_owned()),
        (Outcome::Corrupt { .. } | Outcome::FoundWrong { .. }, _) => {
            sentences.extend(replay.outcome.mismatch().map(|mismatch| format!("WRONG: {mismatch}")));
        }
        (Outcome::Failed { reason } | Outcome::Skipped { reason }, _) => {
            sentences.push(format!("not measured: {reason}"));
        }
    }
    if matches!(replay.outcome, Outcome::Measured { .. }) && !replay.slowest_nanoseconds.is_empty() {
        let (who, list) = if replay.is_of_trace() { ("rank", "trace") } else { ("stage", "list of ops") };
        sentences.push(if replay.bytes_as_listed {
            format!("every {who} moved exactly the bytes of the {list}, on every axis")
        } else {
            format!("the bytes that some {who} moved are NOT those of the {list}")
        });
    }
    sentences
}

// The rates of a soak over its time: each case in the first and the last quarter of the rounds, and in its slowest round.

/// A table of all cases of a soak.
pub(super) fn soak_document(view: &View) -> Option<Table> {
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
    let time = settings.within.filter(|_| settings.soak)?;
    let round = Seconds(time.0 / f64::from(settings.replicates.max(1)));
    let title = format!("over the {time} of the soak: busbw, and how the time of a call changed");
    Some(Table::new(title, &COLUMNS, view.rows.iter().filter_map(|row| soak_cells(row, round))))
}

fn soak_cells(row: &Row, round: Seconds) -> Option<Vec<String>> {
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
        assert_eq!(soak_document(&View::new(&record)), None);
        let settings = &mut record.header.settings;
        (settings.soak, settings.within, settings.replicates) = (true, Some(Seconds(80.0)), 8);
        let mut row = View::new(&record).rows.remove(0);
        row.latency_seconds_of_replicate =
            [1.0, 1.0, 1.0, 1.0, 4.0, 1.0, 1.5, 1.5].into_iter().map(|time| time * 1e-3).enumerate().collect();
        let cells = soak_cells(&row, Seconds(10.0)).unwrap();
        assert_eq!(cells[1], "8");
        assert_eq!(cells[4..], ["+50.0 %", "+300 %", "40.0 s"]);
    }
}
