//! A timeline drawn as text: one line per rank, time to the right.

use super::event::Pass;
use super::{TimedEvent, Timeline};

/// Wider drawings are useless, and very short events among long ones would need them.
const MOST_COLUMNS: usize = 10_000;

/// One line per rank. An event begins at its start in proportion to the whole and carries its letter and micro-batch:
/// F forward, B backward (whole, or of the input where W follows), W weight gradient; lower case for a chunk other than
/// 0. A label that does not fit is cut. Dots are idle time.
pub fn timeline_text(timeline: &Timeline, columns: usize) -> String {
    let makespan = timeline.makespan().0;
    let width = timeline.events.len().saturating_sub(1).to_string().len();
    let mut text = String::new();
    for (rank, events) in timeline.events.iter().enumerate() {
        let mut cells = vec![b'.'; columns];
        for timed in events {
            draw(&mut cells, timed, makespan);
        }
        let cells: String = cells.into_iter().map(char::from).collect();
        text.push_str(&format!("rank {rank:>width$} |{cells}|\n"));
    }
    text
}

/// The number of columns in which the shortest event of a timeline has `columns_of_shortest`, so that all labels fit;
/// 10,000 at most.
pub fn timeline_text_columns(timeline: &Timeline, columns_of_shortest: usize) -> usize {
    let shortest = timeline
        .events
        .iter()
        .flatten()
        .map(|timed| timed.finish.0 - timed.start.0)
        .filter(|length| *length > 0.0)
        .fold(f64::INFINITY, f64::min);
    // Infinite without events; the cast gives 0 columns then.
    (timeline.makespan().0 / shortest * columns_of_shortest as f64).round().min(MOST_COLUMNS as f64) as usize
}

fn draw(cells: &mut [u8], timed: &TimedEvent, makespan: f64) {
    let column = |time: f64| ((time / makespan * cells.len() as f64).round() as usize).min(cells.len());
    let (from, to) = (column(timed.start.0), column(timed.finish.0));
    let letter = match timed.event.pass {
        Pass::Forward => 'F',
        Pass::Backward | Pass::InputGradient => 'B',
        Pass::WeightGradient => 'W',
    };
    let letter = if timed.event.chunk == 0 { letter } else { letter.to_ascii_lowercase() };
    let label = format!("{letter}{}", timed.event.micro_batch);
    for (cell, character) in cells[from..to.max(from)].iter_mut().zip(label.bytes().chain(std::iter::repeat(b' '))) {
        *cell = character;
    }
}
