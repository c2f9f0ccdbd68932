//! A replayed step or trace: its time, the waiting time on each axis, the hidden share, and whether the bytes match the list of ops.

use super::document::{Block, Column, Table, optional, percent, range};
use super::view::View;
use commgauge_base::stats::{Interval, median, median_interval, sorted};
use commgauge_base::units::{Bytes, Seconds, three_digits};
use commgauge_model::record::line::Outcome;
use commgauge_model::record::replay_line::{ReplayAxis, ReplayLine};

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
        Column::right("under way", 0),
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
