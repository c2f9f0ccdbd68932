//! The history for people: the changes of each place, the rows that changed, and what was left out.

use crate::chart::{Axis, Change, Plot, Point, Position, Series as ChartSeries, Svg, Unit, xy};
use crate::report::document::{Block, Fields, Figure, Mark, Table, Tone, optional, signed_percent};
use crate::report::html::page::{Page, Section};
use crate::report::text::visible;
use commgauge_analysis::verdict::history::{Change as RowChange, Event, History, Lineage, Series, Series as Row};
use commgauge_base::error::Result;
use commgauge_base::units::{Seconds, counted};
use std::collections::BTreeSet;

/// Maximum number of left-out files that are listed one by one.
const MAX_LEFT_OUT: usize = 10;

/// The rows that are shown.
pub(super) fn document(history: &History, shown: ShownRows) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    if history.lineages.is_empty() {
        blocks.push(Block::list(["no run that could be looked at"]));
    }
    blocks.extend(history.lineages.iter().flat_map(|lineage| of_lineage(lineage, shown)));
    blocks.extend(left_out(history));
    blocks.extend(Block::headed_list("How it was decided:", Mark::None, &history.rule));
    blocks
}

/// The files that have no say.
pub(super) fn left_out(history: &History) -> Vec<Block> {
    let shown = history.left_out.iter().take(MAX_LEFT_OUT);
    let mut left_out: Vec<String> = shown.map(|file| format!("{}: {}", file.path, file.reason)).collect();
    if history.left_out.len() > MAX_LEFT_OUT {
        left_out.push(format!("and {} more; --format json lists them", history.left_out.len() - MAX_LEFT_OUT));
    }
    let heading = format!("Left out: {} files", history.left_out.len());
    Block::headed_list(&heading, Mark::None, left_out)
}

fn of_lineage(lineage: &Lineage, shown: ShownRows) -> Vec<Block> {
    let mut blocks = changes(lineage);
    let shown: Vec<&Series> = lineage.rows.iter().filter(|row| shown.has(row)).collect();
    if !shown.is_empty() {
        blocks.push(Block::Table(rows(lineage, &shown)));
    }
    blocks
}

/// A place, and the runs at which its rows changed.
pub(super) fn changes(lineage: &Lineage) -> Vec<Block> {
    let dates = lineage.runs.first().zip(lineage.runs.last());
    let span = dates.map_or_else(String::new, |(first, last)| format!(", {} to {}", first.started_at, last.started_at));
    let heading = format!(
        "{} on {}: runs {}, rows {}{span}",
        lineage.suite,
        lineage.place,
        lineage.runs.len(),
        lineage.rows.len()
    );
    let mut blocks = vec![Block::apart(Mark::None, [heading])];
    if !lineage.odd_times.is_empty() {
        blocks.push(Block::list(&lineage.odd_times));
    }
    for event in &lineage.events {
        blocks.extend(event_blocks(lineage, event));
    }
    if lineage.events.is_empty() {
        blocks.push(Block::list(["no row changed"]));
    }
    blocks.extend(lineage.rows_without_say().map(|few| Block::list([few])));
    blocks
}

/// One line for each change of the rows, one for a row without any.
pub(super) fn rows(lineage: &Lineage, rows: &[&Series]) -> Table {
    let names = RowNames::of(&lineage.rows);
    let time = |seconds: Option<f64>| optional(seconds.map(Seconds));
    let begun = |run: u32| optional(lineage.runs.get(run as usize).map(|run| to_the_minute(&run.started_at)));
    // A row once, with its first change, and a line for each of the others.
    let lines = rows.iter().flat_map(|row| {
        let changes: Vec<Option<&RowChange>> = match row.changes.is_empty() {
            true => vec![None],
            false => row.changes.iter().map(Some).collect(),
        };
        changes.into_iter().enumerate().map(|(line, change)| (Some(*row).filter(|_| line == 0), change))
    });
    let once = |row: &Option<&Series>, cell: &dyn Fn(&Series) -> String| row.map_or_else(String::new, cell);
    Fields::of(lines)
        .left("case", 0, |(row, _)| once(row, &|row| names.name(row)))
        .right("runs", 3, |(row, _)| once(row, &|row| row.latency_seconds.iter().flatten().count().to_string()))
        .right("first", 2, |(row, _)| once(row, &|row| time(row.latency_seconds.iter().flatten().next().copied())))
        .right("newest", 1, |(row, _)| once(row, &|row| time(row.latency_seconds.iter().flatten().last().copied())))
        .left("trend", 5, |(row, _)| once(row, &|row| trend(&row.latency_seconds)))
        .left("changed at", 0, |(_, change)| change.map_or_else(|| "-".to_owned(), |change| begun(change.run)))
        .right("before", 2, |(_, change)| time(change.map(|change| change.latency_seconds_before)))
        .right("after", 2, |(_, change)| time(change.map(|change| change.latency_seconds_after)))
        .right("step", 0, |(_, change)| optional(change.map(|change| signed_percent(change.slowdown))))
        .right("p", 4, |(_, change)| optional(change.map(|change| format!("{:.4}", change.p_corrected))))
        .table("")
        .noted(names.note())
}

fn event_blocks(lineage: &Lineage, event: &Event) -> Vec<Block> {
    let Some(run) = lineage.runs.get(event.run as usize) else { return Vec::new() };
    let steps = match event.rows_slower + event.rows_faster {
        1 => signed_percent(event.slowdown_most),
        _ => format!("{} to {}", signed_percent(event.slowdown_least), signed_percent(event.slowdown_most)),
    };
    let change = format!(
        "from run {} of {} on: rows slower {}, faster {} ({steps} time)",
        run.run_id, run.started_at, event.rows_slower, event.rows_faster
    );
    vec![Block::marked(Mark::Alarm, [change]), Block::list([run.what_else_changed()])]
}

/// A time as the record says it, without seconds and zone, which the lines above the table have.
fn to_the_minute(started_at: &str) -> String {
    match (started_at.get(..10), started_at.get(10..11), started_at.get(11..16)) {
        (Some(day), Some("T"), Some(minute)) => format!("{day} {minute}"),
        _ => started_at.to_owned(),
    }
}

// Names of rows for tables: without the parts that all rows of a place have, which are said once, and with sizes as people write
// them. Other formats have the whole names.

/// Between the parts of a name.
const SEPARATOR: char = '/';

/// How the rows of a place are called in its table.
pub(super) struct RowNames {
    /// Parts that all names have, in their order.
    shared: Vec<String>,
    /// Whether what is left of the names still tells them apart.
    are_short: bool,
}

impl RowNames {
    pub(super) fn of(rows: &[Series]) -> RowNames {
        let shared = shared(rows);
        let mut names = RowNames { shared, are_short: true };
        let short: BTreeSet<String> = rows.iter().map(|row| names.name(row)).collect();
        if short.len() < rows.len() {
            names = RowNames { shared: Vec::new(), are_short: false };
        }
        names
    }

    /// The name of one of them.
    pub(super) fn name(&self, row: &Series) -> String {
        if !self.are_short {
            return row.name.clone();
        }
        let mut own: Vec<&str> = Vec::new();
        for part in parts(row).filter(|part| !self.shared.iter().any(|shared| shared == part)) {
            if !own.contains(&part) {
                own.push(part);
            }
        }
        let shown = own.into_iter().map(|part| if is_size(row, part) { size(row) } else { part.to_owned() });
        shown.collect::<Vec<_>>().join("/")
    }

    /// What the names in the table leave out, as a sentence; empty where that is nothing.
    pub(super) fn note(&self) -> String {
        if self.shared.is_empty() {
            return String::new();
        }
        format!("Also in the name of every row here: {}.", self.shared.join(", "))
    }
}

fn parts(row: &Series) -> impl Iterator<Item = &str> {
    row.name.split(SEPARATOR)
}

fn is_size(row: &Series, part: &str) -> bool {
    row.subject.bytes().is_some_and(|bytes| part == bytes.0.to_string())
}

/// The size of a row, in binary units where it is a whole number of one.
fn size(row: &Series) -> String {
    let bytes = row.subject.bytes().unwrap_or_default();
    Some(bytes.to_string()).filter(|text| !text.contains('.')).unwrap_or_else(|| bytes.0.to_string())
}

/// The parts that all names have; the call and its size stay in each.
fn shared(rows: &[Series]) -> Vec<String> {
    let [first, others @ ..] = rows else { return Vec::new() };
    let is_shared = |part: &str| {
        let is_subject = rows.iter().any(|row| row.subject.what() == part || is_size(row, part));
        !is_subject && !others.is_empty() && others.iter().all(|row| parts(row).any(|other| other == part))
    };
    let mut shared: Vec<String> = Vec::new();
    for part in parts(first).filter(|part| is_shared(part)) {
        if !shared.iter().any(|known| known == part) {
            shared.push(part.to_owned());
        }
    }
    shared
}

// Which rows of a history are shown.

/// The rows of a history that are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShownRows {
    /// Those that changed.
    Changed,
    /// All.
    All,
}

impl ShownRows {
    pub(super) fn has(self, row: &Series) -> bool {
        self == ShownRows::All || !row.changes.is_empty()
    }
}

// A picture of each row over its runs: the medians, the level between changes, and the changes.

/// Maximum number of ticks.
const MAX_TICKS: usize = 6;

/// A picture of each row, with a name for its file.
pub fn plots(history: &History, shown: ShownRows) -> Vec<(String, Svg)> {
    let mut pictures = Vec::new();
    for (number, lineage) in history.lineages.iter().enumerate() {
        for row in lineage.rows.iter().filter(|row| shown.has(row)) {
            let plain: String = row
                .name
                .chars()
                .map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' })
                .collect();
            pictures
                .push((format!("{}-{}-{plain}.svg", number + 1, pictures.len() + 1), picture(lineage, row, &row.name)));
        }
    }
    pictures
}

/// The picture of a row that is called so.
pub(super) fn picture(lineage: &Lineage, row: &Row, name: &str) -> Svg {
    let mut x = Axis::linear("run", Unit::Count);
    x.ticks = ticks(lineage);
    let mut measured = ChartSeries::new("median of a run");
    let points = row.latency_seconds.iter().enumerate();
    measured.points = points.filter_map(|(run, seconds)| Some(Point::at(run as f64, (*seconds)?))).collect();
    let mut level = ChartSeries::new("level between changes");
    level.stepped = true;
    level.curve = levels(row);
    let changes = row
        .changes
        .iter()
        .map(|change| Change { x: f64::from(change.run) - 0.5, label: signed_percent(change.slowdown) });
    let mut y = Axis::linear("latency", Unit::Seconds);
    y.range = range(row);
    let plot = Plot {
        description: format!(
            "Latency of {} over {}, with {}.",
            visible(name),
            counted(lineage.runs.len(), "run"),
            counted(row.changes.len(), "change")
        ),
        series: vec![measured, level],
        changes: changes.collect(),
        width: 640.0,
        ..Plot::new(visible(name), x, y)
    };
    plot.draw()
}

/// Range around the values, not from zero, so that a change of 10 % is visible.
fn range(row: &Row) -> Option<(f64, f64)> {
    let values = || row.latency_seconds.iter().flatten().copied();
    let (low, high) = (values().reduce(f64::min)?, values().reduce(f64::max)?);
    let room = (0.4 * (high - low)).max(0.05 * high);
    Some(((low - room).max(0.0), high + room))
}

/// The level between changes, as the corners of a step curve.
fn levels(row: &Row) -> Vec<Position> {
    let last = row.latency_seconds.len().saturating_sub(1) as f64;
    let (Some(first), Some(newest)) = (row.changes.first(), row.changes.last()) else { return Vec::new() };
    let mut corners = vec![xy(0.0, first.latency_seconds_before)];
    let after = row.changes.iter().map(|change| xy(f64::from(change.run) - 0.5, change.latency_seconds_after));
    corners.extend(after);
    corners.push(xy(last, newest.latency_seconds_after));
    corners
}

/// Dates at some of the runs; the recorded text where it is not a date.
fn ticks(lineage: &Lineage) -> Vec<(f64, String)> {
    let runs = lineage.runs.len();
    let every = runs.div_ceil(MAX_TICKS).max(1);
    let label = |text: &str| visible(text.get(..10).unwrap_or(text));
    (0..runs).step_by(every).map(|run| (run as f64, label(&lineage.runs[run].started_at))).collect()
}

// A row over its runs as a line of letters, for tables of any medium.

/// From low to high; an odd number, so that noise around the middle stays one letter.
const LEVELS: [char; 7] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇'];

/// Letters at most; more runs share one, which shows their median.
const MAX_LETTERS: usize = 24;

/// A row that scatters by less than this share around its middle is drawn flat in the middle.
const LEAST_SPAN: f64 = 0.1;

/// The values from low to high, a gap where a run has none.
pub(super) fn trend(values: &[Option<f64>]) -> String {
    let shares = values.chunks(values.len().div_ceil(MAX_LETTERS).max(1)).map(middle).collect::<Vec<_>>();
    let known = || shares.iter().flatten().copied();
    let (Some(low), Some(high)) = (known().reduce(f64::min), known().reduce(f64::max)) else { return String::new() };
    let center = (low + high) / 2.0;
    let half = ((high - low) / 2.0).max(LEAST_SPAN / 2.0 * center);
    let letter = |value: f64| {
        let place = if half > 0.0 { (value - center) / half * 0.5 + 0.5 } else { 0.5 };
        LEVELS[((place * LEVELS.len() as f64) as usize).min(LEVELS.len() - 1)]
    };
    shares.into_iter().map(|value| value.map_or(' ', letter)).collect()
}

fn middle(values: &[Option<f64>]) -> Option<f64> {
    let mut known: Vec<f64> = values.iter().flatten().copied().collect();
    known.sort_by(f64::total_cmp);
    known.get(known.len() / 2).copied()
}

// The history as one HTML file: what changed with pictures first, then every row with its trend.

/// Pictures of a place; the rows that are slowest since their last change come first.
const MAX_PICTURES: usize = 24;

pub(super) fn text(history: &History) -> Result<String> {
    let mut sections = vec![Section::new("answer", "What changed", answer(history))];
    sections.push(Section::new("pictures", "Rows that changed", pictures(history)));
    sections.push(Section::new("rows", "All rows", all_rows(history)));
    sections.push(Section::new("decided", "How it was decided", vec![Block::list(&history.rule)]));
    if !history.left_out.is_empty() {
        sections.push(Section::new("left-out", "Left out", left_out(history)));
    }
    let runs: Vec<_> = history.lineages.iter().flat_map(|lineage| &lineage.runs).collect();
    let span = match (runs.iter().map(|run| &run.started_at).min(), runs.iter().map(|run| &run.started_at).max()) {
        (Some(first), Some(last)) => format!("{first} to {last}"),
        _ => "no runs".to_owned(),
    };
    let title = format!("History of {}", counted(runs.len(), "run"));
    let footer = format!("commgauge {}", env!("CARGO_PKG_VERSION"));
    Page::new(&title, &span, false, sections, &footer).text()
}

/// The answer in large letters, and the changes of each place.
fn answer(history: &History) -> Vec<Block> {
    let rows = || history.lineages.iter().flat_map(|lineage| &lineage.rows);
    let slower = rows().filter(|row| row.slower_since().is_some()).count();
    let (tone, answer) = match history.exit_code {
        0 => (Tone::Good, "no row is slower".to_owned()),
        1 => (Tone::Bad, format!("{} slower", counted(slower, "row"))),
        _ => (Tone::Unsure, "too few runs".to_owned()),
    };
    let detail = format!("of {} in {}", counted(rows().count(), "row"), counted(history.lineages.len(), "place"));
    let badge = crate::report::document::Badge { tone, question: "since the last change".to_owned(), answer, detail };
    let mut blocks = vec![Block::Badges(vec![badge])];
    blocks.extend(history.lineages.iter().flat_map(changes));
    blocks
}

fn pictures(history: &History) -> Vec<Block> {
    let mut blocks = Vec::new();
    for lineage in &history.lineages {
        let mut changed: Vec<&Series> = lineage.rows.iter().filter(|row| !row.changes.is_empty()).collect();
        changed.sort_by(|one, other| last_slowdown(other).total_cmp(&last_slowdown(one)));
        let names = RowNames::of(&lineage.rows);
        let figure = |row: &&Series| {
            let name = names.name(row);
            Figure::new(&name, picture(lineage, row, &name))
        };
        let figures: Vec<Figure> = changed.iter().take(MAX_PICTURES).map(figure).collect();
        if figures.is_empty() {
            continue;
        }
        blocks.push(Block::heading(heading(lineage)));
        blocks.push(Block::Charts(figures));
        if changed.len() > MAX_PICTURES {
            let more = changed.len() - MAX_PICTURES;
            blocks.push(Block::text(format!(
                "{} more changed, see below; --plots DIR writes all pictures",
                counted(more, "row")
            )));
        }
    }
    if blocks.is_empty() {
        blocks.push(Block::absent("no row changed"));
    }
    blocks
}

fn all_rows(history: &History) -> Vec<Block> {
    let of_place = |lineage: &Lineage| {
        let all: Vec<&Series> = lineage.rows.iter().collect();
        [Block::heading(heading(lineage)), Block::Table(rows(lineage, &all))]
    };
    history.lineages.iter().flat_map(of_place).collect()
}

fn heading(lineage: &Lineage) -> String {
    format!("{} on {}", lineage.suite, lineage.place)
}

fn last_slowdown(row: &Series) -> f64 {
    row.changes.last().map_or(0.0, |change| change.slowdown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use commgauge_analysis::verdict::history::{HistoryInput, HistoryRule, history};
    use commgauge_analysis::verdict::testing::{lines, loaded};
    use commgauge_base::units::Bytes;

    /// Rows of these names, whose size is 1 MiB.
    fn rows(names: &[&str]) -> Vec<Series> {
        let mut run = loaded("run.jsonl", lines("run", &vec![vec![100.0; 3]; names.len()]));
        for (case, name) in run.record.plan.cases.iter_mut().zip(names) {
            (case.name, case.bytes_total) = ((*name).to_owned(), Bytes(1 << 20));
        }
        let mut input = HistoryInput::default();
        input.add(&run.path.clone(), Ok(run));
        history(input, HistoryRule { false_alarm_level: 0.05, relevant: 0.03 }).lineages.remove(0).rows
    }

    fn shown(names: &[&str]) -> (Vec<String>, String) {
        let rows = rows(names);
        let of_place = RowNames::of(&rows);
        (rows.iter().map(|row| of_place.name(row)).collect(), of_place.note())
    }

    #[test]
    fn names_of_imported_rows_keep_what_tells_them_apart() {
        let long = |ranks: &str, nodes: &str, place: &str| {
            format!("imported/all_reduce/float32/{ranks}-ranks/{nodes}/1048576/{nodes}/{place}/device=NVIDIA H100")
        };
        let names = [long("8", "1n", "in-place"), long("8", "1n", "out-of-place"), long("16", "2n", "in-place")];
        let (short, note) = shown(&names.each_ref().map(String::as_str));
        let expected = ["8-ranks/1n/1 MiB/in-place", "8-ranks/1n/1 MiB/out-of-place", "16-ranks/2n/1 MiB/in-place"];
        assert_eq!(short, expected.map(|name| format!("all_reduce/{name}")));
        assert_eq!(note, "Also in the name of every row here: imported, float32, device=NVIDIA H100.");
    }

    #[test]
    fn a_single_row_keeps_its_parts_and_names_that_would_become_equal_are_whole() {
        assert_eq!(shown(&["world/all_reduce/1048576"]), (vec!["world/all_reduce/1 MiB".to_owned()], String::new()));
        for names in [["a/b", "b/a"], ["x/a", "x/a/a"], ["x/1048576", "x/1 MiB"]] {
            assert_eq!(shown(&names), (names.map(str::to_owned).to_vec(), String::new()));
        }
    }

    #[test]
    fn noise_is_flat_a_step_is_a_step_and_a_run_without_a_value_is_a_gap() {
        let of = |values: &[f64]| trend(&values.iter().copied().map(Some).collect::<Vec<_>>());
        assert_eq!(of(&[1.0, 1.002, 0.998, 1.001]), "▄▄▄▄");
        assert_eq!(of(&[1.0, 1.0, 1.5, 1.5]), "▁▁▇▇");
        assert_eq!(trend(&[Some(1.0), None, Some(2.0)]), "▁ ▇");
        assert_eq!((of(&[]), trend(&[None, None])), (String::new(), String::new()));
        assert_eq!(of(&vec![3.0; 1000]).chars().count(), 24);
    }
}
