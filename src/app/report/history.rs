//! A history as text and pictures: what changed first, then the rows, then what was left out.

use super::document::{Terminal, markdown};
use super::text::{harmless, object, pretty_json, visible};
use crate::chart::{Axis, Change as ChartChange, Plot, Point, Position, Series as ChartSeries, Svg, Unit, xy};
use crate::report::document::{Block, Fields, Figure, LINK, Mark, Table, Tone, optional, signed_percent};
use crate::report::html::page::{Section, page_text};
use crate::report::row::subject_in_words;
use crate::report::template::through;
use commgauge_base::error::Result;
use commgauge_base::units::{Seconds, counted};
use commgauge_base::writing::{Column, comma_separated};
use commgauge_judge::verdict::history::{Change, Event, History, Lineage, Series, Series as Row};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::iter::repeat_n;
use std::path::{Component, Path};

/// How a history is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum HistoryFormat {
    /// For people, fitted to the width of the terminal.
    #[default]
    Table,
    /// One JSON document in base units, whose schema `commgauge show schema history` prints.
    Json,
    /// One row for each run of each case.
    Csv,
    /// Tables for a page or an issue.
    Markdown,
    /// A page with every row; `-o FILE.html` makes it, too.
    Html,
    /// A test report in JUnit's XML: a row that is slower since its last change fails.
    Junit,
    /// A text file for the collector of Prometheus' node exporter.
    Prometheus,
    /// Annotations of a GitHub workflow.
    Github,
}

/// For the collector of Prometheus' node exporter: the newest run of each row, and its last change.
const HISTORY_PROM: &str = concat!(include_str!("templates/row.prom"), include_str!("templates/history.prom"));

/// What is slower now first, then what became faster and what was left out.
const HISTORY_GITHUB: &str = concat!(include_str!("templates/github.txt"), include_str!("templates/history.txt"));

/// A test case for each row, which fails where the row is slower since its last change.
const HISTORY_JUNIT: &str = concat!(
    include_str!("templates/row.txt"),
    include_str!("templates/junit.xml"),
    include_str!("templates/history.xml")
);

/// A history with its rows in one list, as templates show it: each with its last change, and since which run that is.
fn shown_history(history: &History) -> Result<Value> {
    let rows = history.lineages.iter().flat_map(|lineage| lineage.rows.iter().map(move |row| (lineage, row)));
    let shown = rows.map(|(lineage, row)| {
        let (mut shown, change) = (object(row)?, row.changes.last());
        shown.insert("suite".to_owned(), lineage.suite.as_str().into());
        shown.insert("can_show_change".to_owned(), row.can_show_change().into());
        shown.insert("change".to_owned(), json!(change));
        shown.insert("since".to_owned(), change.map(|change| lineage.run_and_why(change.run)).into());
        Ok(shown)
    });
    let runs: usize = history.lineages.iter().map(|lineage| lineage.runs.len()).sum();
    Ok(json!({
        "exit_code": history.exit_code,
        "left_out": history.left_out,
        "runs": counted(runs, "run"),
        "rows": shown.collect::<Result<Vec<_>>>()?,
    }))
}

/// The history as text. `width` is used by the table only, `shown` by the table and Markdown, and `folder`, that of the page, by its links.
///
/// # Errors
/// Where a document cannot be written as JSON, CSV, XML or HTML.
pub fn history_text(
    history: &History,
    format: HistoryFormat,
    width: u16,
    shown: ShownRows,
    folder: &Path,
) -> Result<String> {
    match format {
        HistoryFormat::Table => Ok(Terminal::plain(width).draw(&history_document(history, shown))),
        HistoryFormat::Csv => csv_text(history),
        HistoryFormat::Markdown => Ok(format!("# commgauge history\n{}", markdown(&history_document(history, shown)))),
        HistoryFormat::Html => page(history, folder),
        HistoryFormat::Junit => through("history.xml", HISTORY_JUNIT, shown_history(history)?),
        HistoryFormat::Prometheus => through("history.prom", HISTORY_PROM, history),
        HistoryFormat::Github => through("history.txt", HISTORY_GITHUB, shown_history(history)?),
        HistoryFormat::Json => pretty_json(history),
    }
}

// The history as comma-separated values: one row for each run of each case, units in the column names.

/// A run of a case.
struct RunRow<'a> {
    lineage: &'a Lineage,
    case: &'a Series,
    run: usize,
}

fn csv_text(history: &History) -> Result<String> {
    let cases = history.lineages.iter().flat_map(|lineage| lineage.rows.iter().map(move |case| (lineage, case)));
    let runs = cases.flat_map(|(lineage, case)| (0..lineage.runs.len()).map(move |run| RunRow { lineage, case, run }));
    comma_separated("the history as CSV", &columns(), runs)
}

fn columns<'a>() -> [Column<RunRow<'a>>; 9] {
    [
        ("suite", |row| harmless(&row.lineage.suite)),
        ("place", |row| harmless(&row.lineage.place)),
        ("case", |row| harmless(&row.case.name)),
        ("bytes_total", |row| number(row.case.subject.bytes().map(|bytes| bytes.0))),
        ("run_id", |row| harmless(&row.lineage.runs[row.run].run_id)),
        ("started_at", |row| harmless(&row.lineage.runs[row.run].started_at)),
        ("latency_seconds_median", |row| number(row.case.latency_seconds.get(row.run).copied().flatten())),
        ("slowdown_since_change", |row| number(row.change().map(|change| change.slowdown))),
        ("p_corrected", |row| number(row.change().map(|change| change.p_corrected))),
    ]
}

impl RunRow<'_> {
    fn change(&self) -> Option<&Change> {
        self.case.changes.iter().find(|change| change.run as usize == self.run)
    }
}

fn number(value: Option<impl ToString>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

/// Files that are listed one by one.
const MAX_LEFT_OUT: usize = 3;

/// Rows that changed on the first screen.
const MAX_CHANGED: usize = 8;

// The history for people: the changes of each place, the rows that changed, and what was left out.

/// The rows that are shown.
fn history_document(history: &History, shown: ShownRows) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    if history.lineages.is_empty() {
        blocks.push(Block::list(["no run that could be looked at"]));
    }
    blocks.extend(history.lineages.iter().flat_map(|lineage| of_lineage(lineage, shown)));
    blocks.extend(left_out(history));
    if shown == ShownRows::All {
        blocks.extend(Block::headed_list("How it was decided:", Mark::None, &history.rule));
    }
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

fn of_lineage(lineage: &Lineage, wanted: ShownRows) -> Vec<Block> {
    let mut blocks = changes(lineage);
    let shown: Vec<&Series> = lineage.rows.iter().filter(|row| wanted.has(row)).collect();
    let most = if wanted == ShownRows::All { shown.len() } else { MAX_CHANGED };
    if !shown.is_empty() {
        blocks.push(Block::Table(rows(lineage, &shown[..shown.len().min(most)])));
    }
    if shown.len() > most {
        blocks.push(Block::list([format!("{} more changed: --all", counted(shown.len() - most, "row"))]));
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
        let changes: Vec<Option<&Change>> = match row.changes.is_empty() {
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

/// How the rows of a place are called in its table: in words, with the key where several would be called alike.
struct RowNames {
    alike: BTreeSet<String>,
}

impl RowNames {
    fn of(rows: &[Series]) -> RowNames {
        let mut seen = BTreeSet::new();
        let words = rows.iter().map(|row| subject_in_words(&row.name, &row.subject));
        RowNames { alike: words.filter(|words| !seen.insert(words.clone())).collect() }
    }

    /// The name of one of them.
    fn name(&self, row: &Series) -> String {
        let words = subject_in_words(&row.name, &row.subject);
        if self.alike.contains(&words) { format!("{words} ({})", row.name) } else { words }
    }
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
        .map(|change| ChartChange { x: f64::from(change.run) - 0.5, label: signed_percent(change.slowdown) });
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

/// Dates at some of the runs, with the time where they share a day; the recorded text where it is not a date.
fn ticks(lineage: &Lineage) -> Vec<(f64, String)> {
    let runs = lineage.runs.len();
    let every = runs.div_ceil(MAX_TICKS).max(1);
    let shown = || (0..runs).step_by(every).map(|run| (run as f64, lineage.runs[run].started_at.as_str()));
    let day = |text: &str| text.get(..10).unwrap_or(text).to_owned();
    let days: BTreeSet<String> = shown().map(|(_, text)| day(text)).collect();
    let label = |text: &str| match days.len() == shown().count() {
        true => day(text),
        false => to_the_minute(text).chars().skip(5).collect(),
    };
    shown().map(|(run, text)| (run, visible(&label(text)))).collect()
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

fn page(history: &History, folder: &Path) -> Result<String> {
    let mut sections = vec![Section::new("answer", "What changed", answer(history))];
    sections.push(Section::new("pictures", "Rows that changed", pictures(history)));
    sections.push(Section::new("rows", "All rows", all_rows(history)));
    sections.push(Section::new(
        "runs",
        "Runs",
        history.lineages.iter().flat_map(|lineage| runs(lineage, folder)).collect(),
    ));
    sections.push(Section::new("decided", "How it was decided", vec![Block::list(&history.rule)]).folded(""));
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
    page_text(None, &title, &span, false, sections, &footer)
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

/// The runs of a place, the newest first, with their pages and what else changed in each.
fn runs(lineage: &Lineage, folder: &Path) -> [Block; 2] {
    let runs: Vec<_> = lineage.runs.iter().rev().map(|run| (run, page_of_record(&run.path, folder))).collect();
    let has_pages = runs.iter().any(|(_, page)| page.is_some());
    let table = Fields::of(runs)
        .left("started", 0, |(run, _)| to_the_minute(&run.started_at))
        .when(has_pages, |fields| fields.left(LINK, 0, |(_, page)| page.clone().unwrap_or_default()))
        .left("run", 0, |(run, _)| run.run_id.clone())
        .left("record", 0, |(run, _)| run.path.clone())
        .right("cases left out", 0, |(run, _)| run.rows_left_out)
        .left("what else changed", 0, |(run, _)| run.differences.join("; "))
        .table("");
    [Block::heading(heading(lineage)), Block::Table(table)]
}

/// From a folder to the page of a record, which has its name but ends in `.html`; `None` where there is none.
fn page_of_record(record: &str, folder: &Path) -> Option<String> {
    let (page, folder) = (Path::new(record).with_extension("html").canonicalize().ok()?, folder.canonicalize().ok()?);
    let shared = page.components().zip(folder.components()).take_while(|(a, b)| a == b).count();
    let up = repeat_n(Component::ParentDir, folder.components().count() - shared);
    let parts = up.chain(page.components().skip(shared)).map(|part| part.as_os_str().to_str());
    let path = parts.collect::<Option<Vec<_>>>()?.join("/");
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.~".contains(&byte);
    let escaped =
        path.bytes().map(|byte| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") });
    Some(escaped.collect())
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
    use clap::ValueEnum;
    use commgauge_base::collective::Placement;
    use commgauge_base::units::Bytes;
    use commgauge_judge::verdict::RowSubject;
    use commgauge_judge::verdict::history::{HistoryInput, HistoryRule, history};
    use commgauge_judge::verdict::testing::{copy_lines, lines, loaded, product_lines, with_own_work};

    // The history in every format as published, and nothing hostile in any.

    const POISON: &str = "=1\x1b[31m|</script><img src=x onerror=alert(1)>\"'&\u{9b}2J\r\n\u{202e}\0";

    /// Twelve runs of three rows, of which the second takes a fifth longer from the eighth run on, together with a new library.
    fn made(hostile: &str) -> History {
        let mut input = HistoryInput::default();
        for day in 0..12u32 {
            let slow = if day >= 7 { 1.2 } else { 1.0 };
            // Some scatter without repetition.
            let scatter = |row: u32| 1.0 + f64::from((day * 7 + row * 5) % 11) * 0.001;
            let times = |middle: f64, row: u32| vec![middle * scatter(row); 3];
            let rows = [times(100.0, 0), times(200.0 * slow, 1), times(400.0, 2)];
            let mut loaded = loaded(&format!("runs/{day:02}.jsonl"), lines(&format!("run-{day:02}"), &rows));
            let header = &mut loaded.record.header;
            header.started_at = format!("2026-11-{:02}T09:30:00+01:00", day + 1);
            if day >= 7 {
                header.backend.library = "Open MPI 4.1.5".to_owned();
            }
            header.suite.name += hostile;
            header.ranks[0].host += hostile;
            loaded.record.plan.cases.iter_mut().for_each(|case| case.name += hostile);
            input.add(&loaded.path.clone(), Ok(loaded));
        }
        let broken = Err(commgauge_base::error::Error::usage(format!("line 3 is no line of a record{hostile}")));
        input.add(Path::new("runs/notes.jsonl"), broken);
        history(input, HistoryRule { false_alarm_level: 0.05, relevant: 0.03 })
    }

    #[test]
    fn every_format_is_as_published() {
        let history = made("");
        for format in HistoryFormat::value_variants() {
            let name = format.to_possible_value().unwrap().get_name().to_owned();
            insta::assert_snapshot!(
                format!("history_{name}"),
                history_text(&history, *format, 140, ShownRows::Changed, Path::new("")).unwrap()
            );
        }
        let narrow = history_text(&history, HistoryFormat::Table, 80, ShownRows::All, Path::new("")).unwrap();
        insta::assert_snapshot!("history_table_80_all", narrow);
    }

    #[test]
    fn copies_and_products_have_a_history_like_calls() {
        let mut input = HistoryInput::default();
        for day in 0..12u32 {
            let scatter = |row: u32| 1.0 + f64::from((day * 7 + row * 5) % 11) * 0.001;
            let slow = if day >= 7 { 1.2 } else { 1.0 };
            let own_work =
                [copy_lines(&[20.0 * slow * scatter(0); 3]), product_lines(&[40.0 * scatter(1); 3])].concat();
            let run = with_own_work(lines(&format!("run-{day:02}"), &[vec![100.0 * scatter(2); 3]]), own_work);
            let mut loaded = loaded(&format!("runs/{day:02}.jsonl"), run);
            loaded.record.header.started_at = format!("2026-11-{:02}T09:30:00+01:00", day + 1);
            input.add(&loaded.path.clone(), Ok(loaded));
        }
        let history = history(input, HistoryRule { false_alarm_level: 0.05, relevant: 0.03 });
        let rows = &history.lineages[0].rows;
        let changed: Vec<&str> =
            rows.iter().filter(|row| !row.changes.is_empty()).map(|row| row.name.as_str()).collect();
        assert_eq!((rows.len(), changed), (3, vec!["copy/host-to-device/pinned/1000000000/alone"]));
        let document = serde_json::to_value(&history).unwrap();
        let schema = schemars::schema_for!(History).to_value();
        assert!(jsonschema::validator_for(&schema).unwrap().is_valid(&document));
        assert_eq!(serde_json::from_value::<History>(document).unwrap(), history, "it is read as it was written");
        for (format, words) in [
            (HistoryFormat::Junit, "classname=\"quick.rank.host-to-device\""),
            (
                HistoryFormat::Prometheus,
                "axis=\"rank\",backend=\"mpi\",bytes=\"\",case=\"product/float32/1000x1000x1000\",collective=\"product\"",
            ),
            (HistoryFormat::Csv, ",copy/host-to-device/pinned/1000000000/alone,1000000000,"),
            (HistoryFormat::Table, "host-to-device, pinned, alone"),
            (HistoryFormat::Github, "copy/host-to-device/pinned/1000000000/alone"),
        ] {
            let text = history_text(&history, format, 140, ShownRows::All, Path::new("")).unwrap();
            assert!(text.contains(words), "{format:?} lacks {words}: {text}");
        }
    }

    #[test]
    fn a_change_is_reported_with_the_other_differences_of_its_run() {
        let history = made("");
        let lineage = &history.lineages[0];
        assert_eq!(
            (history.exit_code, history.lineages.len(), lineage.runs.len(), lineage.events.len()),
            (1, 1, 12, 1)
        );
        assert_eq!((lineage.events[0].run, lineage.events[0].rows_slower), (7, 1));
        assert_eq!(lineage.runs[7].differences, ["library: Open MPI 4.1.4 before, Open MPI 4.1.5 now"]);
        let schema = schemars::schema_for!(History).to_value();
        let document = serde_json::to_value(&history).unwrap();
        assert!(jsonschema::validator_for(&schema).unwrap().is_valid(&document));
    }

    #[test]
    fn rows_that_count_in_too_few_runs_are_not_called_unchanged() {
        let of_rows_with_say = |with_say: usize| {
            let mut input = HistoryInput::default();
            for day in 0..7u32 {
                let mut loaded =
                    loaded(&format!("{day}.jsonl"), lines(&format!("run-{day}"), &[vec![100.0; 3], vec![50.0; 3]]));
                loaded.record.header.started_at = format!("2026-11-{:02}T09:30:00+01:00", day + 1);
                // Unreliable in the first three, so that four count.
                let cases = &mut loaded.record.cases;
                let unreliable = cases.iter_mut().filter(|case| day < 3 && case.case as usize >= with_say);
                unreliable.for_each(|case| case.warnings.push("busy".to_owned()));
                input.add(&loaded.path.clone(), Ok(loaded));
            }
            history(input, HistoryRule { false_alarm_level: 0.05, relevant: 0.03 })
        };
        for (with_say, code, words) in [(0, 3, "2 of 2 rows"), (1, 0, "1 of 2 rows")] {
            let history = of_rows_with_say(with_say);
            assert_eq!(history.exit_code, code, "{words}");
            let text = |format| history_text(&history, format, 140, ShownRows::All, Path::new("")).unwrap();
            for format in [HistoryFormat::Table, HistoryFormat::Html] {
                assert!(text(format).contains(&format!("{words} are in fewer than 6 runs")), "{}", text(format));
            }
            assert!(text(HistoryFormat::Junit).contains("too few runs for a change to be found"));
        }
    }

    #[test]
    fn a_picture_is_made_of_each_row_that_changed_or_of_all() {
        let history = made("");
        assert_eq!((plots(&history, ShownRows::Changed).len(), plots(&history, ShownRows::All).len()), (1, 3));
        let (name, picture) = &plots(&history, ShownRows::Changed)[0];
        assert_eq!(name, "1-1-world-all_reduce-1.svg");
        assert!(picture.standalone().contains("+20"), "the step is written next to its line");
    }

    #[test]
    fn no_format_passes_on_hostile_text() {
        let history = made(POISON);
        for format in HistoryFormat::value_variants() {
            let text = history_text(&history, *format, 120, ShownRows::All, Path::new("")).unwrap();
            let bad = text.chars().find(|c| (c.is_control() && *c != '\n') || *c == '\u{202e}');
            assert_eq!(bad, None, "{format:?}");
            match format {
                HistoryFormat::Csv => assert!(!text.contains("\n=1"), "a spreadsheet would run it"),
                HistoryFormat::Html | HistoryFormat::Markdown | HistoryFormat::Junit => assert!(!text.contains("<img")),
                HistoryFormat::Github => assert!(text.lines().all(|line| line.starts_with("::")), "{text}"),
                HistoryFormat::Prometheus | HistoryFormat::Json | HistoryFormat::Table => {}
            }
        }
        for (name, picture) in plots(&history, ShownRows::All) {
            assert!(!picture.standalone().contains("<img") && !name.contains('/'), "{name}");
        }
    }

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

    #[test]
    fn rows_are_named_in_words_and_by_their_keys_where_the_words_are_the_same() {
        let names = |rows: &[Series]| rows.iter().map(|row| RowNames::of(rows).name(row)).collect::<Vec<_>>();
        let mut two = rows(&["imported/a", "imported/b"]);
        let words = "world all_reduce of 4 ranks, 1 MiB float32";
        assert_eq!(names(&two), [format!("{words} (imported/a)"), format!("{words} (imported/b)")]);
        let RowSubject::Call(call) = &mut two[1].subject else { panic!("a call") };
        call.placement = Placement::InPlace;
        assert_eq!(names(&two), [words.to_owned(), format!("{words}, in place")]);
    }

    #[test]
    fn a_run_is_linked_to_the_page_next_to_its_record_from_wherever_the_history_is() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(at("runs/a b")).unwrap();
        std::fs::create_dir_all(at("pages")).unwrap();
        std::fs::write(at("runs/a b/1#.html"), "").unwrap();
        let link = |record: &str, from: &str| page_of_record(at(record).to_str().unwrap(), &at(from));
        for (record, from, expected) in [
            ("runs/a b/1#.jsonl", "pages", Some("../runs/a%20b/1%23.html")),
            ("runs/a b/1#.jsonl", "", Some("runs/a%20b/1%23.html")),
            ("runs/a b/1#.jsonl", "runs/a b", Some("1%23.html")),
            ("runs/a b/2.jsonl", "pages", None),
        ] {
            assert_eq!(link(record, from).as_deref(), expected, "{record} from {from}");
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
