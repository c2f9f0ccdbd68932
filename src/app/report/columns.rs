//! The columns of the table of cases: their contents, and the order in which they are left out where the width does not suffice.

use super::document::{self, Block, Column, Table, TableLayout, Tone, gigabytes_per_second, optional, range};
use super::row::{Counts, Row, Status};
use super::template;
use Role::{Always, Check, InHeading, InPlace, Labels, WhereKnown};
use commgauge_base::collective::Placement;
use commgauge_base::geometry::Splits;
use commgauge_base::sample::Cadence;
use commgauge_base::stats::{MIN_FOR_INTERVAL, median, median_interval, sorted};
use commgauge_base::units::{Bytes, Seconds, three_digits};
use commgauge_base::variant;
use commgauge_base::writing::{distinct, grouped};
use commgauge_model::layout::Axis;
use commgauge_model::record::Record;
use commgauge_model::record::line::{CaseFacts, CaseLine, Outcome};
use commgauge_model::record::work_lines::{InterferenceLine, InterferingCall};
use minijinja::context;
use minijinja::value::Serde;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;

/// A column of the table of cases.
pub(super) struct Field {
    /// Its heading.
    pub column: Column,
    /// What the table does with it.
    role: Role,
    /// The text of a row, whose note has a number.
    text: fn(&Row, Option<usize>) -> Option<String>,
}

/// What the table does with a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// It is there in every table.
    Always,
    /// It is left out where no row has a value.
    WhereKnown,
    /// The heading of the table says its value where all rows agree, and its values where there is no room for the column, under a name.
    InHeading(&'static str),
    /// The heading of the table says the labels that all rows have.
    Labels,
    /// The status, as wide as its table needs.
    Check,
    /// Of the same call in place, where a line has both.
    InPlace,
}

/// The columns, in the order of the table.
pub(super) static FIELDS: [Field; 26] = [
    field(Column::left("collective", 0), Always, |row, _| Some(collective(row))),
    field(Column::right("size", 0), Always, |row, _| moved(row, row.facts.bytes_total)),
    field(Column::left("type", 2), InHeading("types"), |row, _| moved(row, row.facts.element_type.name())),
    field(Column::left("op", 3), InHeading("operations"), |row, _| Some(row.facts.reduce_op?.name().to_owned())),
    field(Column::left("place", 1), InHeading(PLACEMENTS), |row, _| moved(row, place(row.facts.placement))),
    field(Column::left("variant", 0), Labels, |row, _| {
        Some(variant::shown(&row.facts.labels)).filter(|shown| !shown.is_empty())
    }),
    field(Column::right("calls", 8).in_unit("a step"), WhereKnown, |row, _| {
        Some(row.facts.count_per_step()?.to_string())
    }),
    field(Column::right("samples", 6), Always, |row, _| counted(row.counts.samples)),
    field(Column::right("left out", Column::PAGES_ONLY), WhereKnown, |row, _| counted(row.counts.samples_excluded)),
    field(Column::right("repl.", 12), Always, |row, _| {
        let Counts { replicates, replicates_planned, .. } = row.counts;
        (replicates > 0).then(|| format!("{replicates}/{replicates_planned}"))
    }),
    field(Column::right("median", 0).in_unit("us"), Always, |row, _| Some(microseconds(row.latency?.median))),
    field(Column::right("interval", 4).in_unit("95 %, us"), Always, |row, _| {
        Some(range(row.latency?.interval.map(|interval| interval.map(microseconds))))
    }),
    field(Column::right("+-", 0).in_unit("%"), WhereKnown, |row, _| precision(row)),
    field(Column::right("p99", 7).in_unit("us"), Always, |row, _| {
        Some(row.latency?.p99.map_or_else(|| "n/a".to_owned(), microseconds))
    }),
    field(Column::right("NCCL's", 9).in_unit("est., us"), WhereKnown, |row, _| row.library_estimate.map(microseconds)),
    field(Column::left("NCCL's", 0).in_unit("choice"), WhereKnown, |row, _| row.library_choice()),
    field(Column::right("algbw", 10).in_unit("GB/s"), WhereKnown, |row, _| row.algbw.map(gigabytes_per_second)),
    field(Column::right("busbw", 0).in_unit("GB/s"), WhereKnown, |row, _| row.busbw.map(gigabytes_per_second)),
    field(Column::right("bound", 11).in_unit("GB/s"), WhereKnown, |row, _| {
        row.facts.bound_bytes_per_second.map(gigabytes_per_second)
    }),
    field(Column::right("of bound", 5).in_unit("%"), WhereKnown, |row, _| {
        row.bound_share.map(|share| format!("{:.0}", share * 100.0))
    }),
    field(Column::left("check", 0).of_status(), Check, |row, note| Some(check(row, note))),
    field(Column::right("in place", 0).in_unit("us"), InPlace, |row, _| Some(microseconds(row.latency?.median))),
    field(Column::right("+-", 3).in_unit("%"), InPlace, |row, _| precision(row)),
    field(Column::right("busbw", 0).in_unit("GB/s"), InPlace, |row, _| row.busbw.map(gigabytes_per_second)),
    field(Column::left("check", 0).of_status(), InPlace, |row, note| Some(check(row, note))),
    field(Column::left("case", Column::PAGES_ONLY), Always, |row, _| Some(row.facts.name.clone())),
];

const PLACEMENTS: &str = "placements";

const fn field(column: Column, role: Role, text: fn(&Row, Option<usize>) -> Option<String>) -> Field {
    Field { column, role, text }
}

impl Field {
    /// The cell of a row, whose note has a number; a dash where there is nothing to say.
    pub(super) fn cell(&self, row: &Row, note: Option<usize>) -> String {
        optional((self.text)(row, note))
    }

    /// Whether it shows the row itself, not the same call in place.
    pub(super) fn is_own(&self) -> bool {
        self.role != InPlace
    }

    /// The cell of a line that may have the call in place as well.
    fn cell_of(&self, row: Noted, in_place: Option<Noted>) -> String {
        let of = if self.role == InPlace { in_place } else { Some(row) };
        optional(of.map(|of| self.cell(of.row, of.note)))
    }
}

/// What only calls that move bytes have.
fn moved(row: &Row, value: impl ToString) -> Option<String> {
    (row.facts.bytes_total.0 > 0).then(|| value.to_string())
}

fn counted(count: u64) -> Option<String> {
    (count > 0).then(|| count.to_string())
}

fn microseconds(seconds: Seconds) -> String {
    three_digits(seconds.0 * 1e6)
}

/// The reached precision where one was requested, with a star where it is worse.
fn precision(row: &Row) -> Option<String> {
    row.latency.and(row.precision_requested)?;
    let reached = row.precision_reached.map_or_else(|| "n/a".to_owned(), |reached| three_digits(reached * 100.0));
    Some(format!("{reached}{}", if row.is_less_precise_than_requested() { "*" } else { " " }))
}

fn check(row: &Row, note: Option<usize>) -> String {
    let (label, counts) = (row.status.label(), row.counts);
    match note {
        Some(number) => format!("{label} [{number}]"),
        None if row.is_incomplete() => format!("{label}, {}/{}", counts.replicates, counts.replicates_planned),
        None => label.to_owned(),
    }
}

fn place(placement: Placement) -> &'static str {
    match placement {
        Placement::OutOfPlace => "out",
        Placement::InPlace => "in",
    }
}

/// The collective and what else distinguishes two calls of it.
pub(super) fn collective(row: &Row) -> String {
    let mut text = row.facts.collective.name().to_owned();
    if let Some(root) = row.facts.root.filter(|root| *root != 0) {
        text += &format!(" root {root}");
    }
    match &row.facts.splits {
        Some(Splits::Skewed { exponent }) => text += &format!(" skew {exponent}"),
        Some(Splits::Given(_)) => text += " given",
        Some(Splits::Routed(routed)) => {
            text += &format!(" {}", routed.routing);
            text += if routed.back { " back" } else { "" };
        }
        Some(Splits::Equal) | None => {}
    }
    text
}

/// The collective and its variant.
pub(super) fn collective_and_variant(row: &Row) -> String {
    format!("{} {}", collective(row), variant::shown(&row.facts.labels)).trim_end().to_owned()
}

// The sections of the table of cases: their columns and widths, and the values that are moved to the heading because all rows
// agree. On a terminal rows can be written one by one.

/// A line of a table, by the indices of its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SectionLine {
    /// The row that has the whole line, or the call out of place.
    pub row: usize,
    /// The same call in place.
    pub in_place: Option<usize>,
}

/// A row with the number of its note.
#[derive(Clone, Copy)]
pub(super) struct Noted<'a> {
    pub row: &'a Row,
    pub note: Option<usize>,
}

/// Layout of the rows of one axis, style and cadence, on groups with the same locality. The rows are passed in.
pub(super) struct Section {
    lines: Vec<SectionLine>,
    /// What all rows have in common.
    title: String,
    /// Values of the columns that are moved to the heading.
    agreed: Vec<String>,
    /// Labels that all rows have, which the heading has alone.
    shared_labels: Vec<String>,
    /// Differing values of columns that the heading says where they are left out, by the position in `fields`.
    differences: Vec<(usize, &'static str, Vec<String>)>,
    /// Indices in [`FIELDS`].
    fields: Vec<usize>,
    /// Widest content of each of [`FIELDS`] over all sections, so that the sections line up; of the status,
    /// over this section only.
    widths: [usize; FIELDS.len()],
}

/// The sections of a report, in the order in which they first appear. `notes` are the note numbers next to the status.
pub(super) fn sections(rows: &[Row], notes: &[Option<usize>]) -> Vec<Section> {
    let key = |row: &Row| {
        let facts = &row.facts;
        (facts.axis, facts.style, facts.cadence, facts.groups, facts.group_size, facts.locality.clone())
    };
    let of = |members: Vec<usize>| {
        let lines = lines(rows, &members);
        let noted = |index: usize| Noted { row: &rows[index], note: notes.get(index).copied().flatten() };
        let cells = |field: &Field| -> Vec<String> {
            lines.iter().map(|line| field.cell_of(noted(line.row), line.in_place.map(noted))).collect()
        };
        Section::of(&rows[members[0]], &cells, lines.clone())
    };
    let members = grouped(rows.iter().enumerate().map(|(index, row)| (key(row), index)));
    let mut sections: Vec<Section> = members.into_iter().map(|(_, members)| of(members)).collect();
    for (at, _) in FIELDS.iter().enumerate().filter(|(_, field)| field.role != Check) {
        let widest = sections.iter().map(|section| section.widths[at]).max().unwrap_or(0);
        sections.iter_mut().for_each(|section| section.widths[at] = widest);
    }
    sections
}

/// The lines of these rows: a call in place shares that of the same call out of place.
fn lines(rows: &[Row], members: &[usize]) -> Vec<SectionLine> {
    let mut lines: Vec<SectionLine> = Vec::new();
    for row in members.iter().copied() {
        match lines.last_mut() {
            Some(line) if line.is_out_of_place_of(row, rows) => line.in_place = Some(row),
            _ => lines.push(SectionLine { row, in_place: None }),
        }
    }
    lines
}

impl SectionLine {
    fn is_out_of_place_of(&self, row: usize, rows: &[Row]) -> bool {
        let (own, other) = (&rows[self.row].facts, &rows[row].facts);
        let as_if_own = || CaseFacts { placement: own.placement, name: own.name.clone(), ..other.clone() };
        let placements = (own.placement, other.placement);
        self.in_place.is_none() && placements == (Placement::OutOfPlace, Placement::InPlace) && as_if_own() == *own
    }

    /// Its rows.
    pub fn rows(self) -> impl Iterator<Item = usize> {
        std::iter::once(self.row).chain(self.in_place)
    }
}

impl Section {
    fn of(first: &Row, cells: &dyn Fn(&Field) -> Vec<String>, lines: Vec<SectionLine>) -> Section {
        let has_pairs = lines.iter().any(|line| line.in_place.is_some());
        let (mut agreed, mut shared_labels) = (Vec::new(), Vec::new());
        let (mut differences, mut fields, mut widths) = (Vec::new(), Vec::new(), [0; FIELDS.len()]);
        for (at, field) in FIELDS.iter().enumerate() {
            let mut cells = cells(field);
            if field.role == Labels {
                shared_labels = shared(&cells);
                cells.iter_mut().for_each(|cell| *cell = without(cell, &shared_labels));
            }
            let values = distinct(cells.iter().filter(|cell| *cell != "-"));
            match (field.role, values.as_slice()) {
                (WhereKnown | Labels | InHeading(_) | InPlace, []) => continue,
                (InHeading(PLACEMENTS), [one]) if has_pairs && *one == "out" => continue,
                (InHeading(PLACEMENTS), [one]) => {
                    agreed.push(if *one == "in" { "in place" } else { "out of place" }.to_owned());
                    continue;
                }
                (InHeading(_), [one]) => {
                    agreed.push((*one).clone());
                    continue;
                }
                (InHeading(name), several) => {
                    differences.push((fields.len(), name, several.iter().map(|value| (*value).clone()).collect()));
                }
                _ => {}
            }
            fields.push(at);
            let rows: Vec<document::Row> = cells.into_iter().map(|cell| vec![cell].into()).collect();
            widths[at] = document::widths(&[field.column], &rows)[0];
        }
        if !shared_labels.is_empty() {
            agreed.push(shared_labels.join(" "));
        }
        Section { title: title(first), differences, lines, agreed, shared_labels, fields, widths }
    }

    /// Its lines.
    pub(super) fn lines(&self) -> &[SectionLine] {
        &self.lines
    }

    /// Its columns on a terminal.
    pub(super) fn layout(&self, width: usize) -> TableLayout {
        let widths = self.fields.iter().map(|at| self.widths[*at]).collect();
        TableLayout::new(&self.columns(), widths, width)
    }

    fn columns(&self) -> Vec<Column> {
        self.fields.iter().map(|at| FIELDS[*at].column).collect()
    }

    /// What all rows have in common.
    pub(super) fn heading(&self, layout: &TableLayout) -> String {
        let mut text = self.heading_on_page();
        // Two calls must not look the same because a column was left out.
        for (_, name, values) in self.differences.iter().filter(|(at, ..)| !layout.shows(*at)) {
            text += &format!(", {name} {} (column left out)", values.join("/"));
        }
        text
    }

    fn heading_on_page(&self) -> String {
        let parts = [&self.title].into_iter().chain(&self.agreed);
        parts.map(String::as_str).collect::<Vec<_>>().join(", ")
    }

    /// The cells of a line, in the colour of its worse row.
    pub(super) fn row(&self, row: Noted, in_place: Option<Noted>) -> document::Row {
        let cell = |at: &usize| match &FIELDS[*at] {
            field if field.role == Labels => without(&field.cell_of(row, in_place), &self.shared_labels),
            field => field.cell_of(row, in_place),
        };
        let tones = [Tone::Bad, Tone::Unsure];
        let own = in_place.map(|in_place| tone(in_place.row)).filter(|tone| tones.contains(tone));
        document::Row::toned(own.unwrap_or_else(|| tone(row.row)), self.fields.iter().map(cell).collect())
    }

    /// The section with all its columns.
    pub(super) fn table(&self, rows: &[Row], notes: &[Option<usize>]) -> Table {
        let noted = |index: usize| Noted { row: &rows[index], note: notes.get(index).copied().flatten() };
        let rows = self.lines.iter().map(|line| self.row(noted(line.row), line.in_place.map(noted)));
        Table::new(self.heading_on_page(), &self.columns(), rows)
            .whole_in("`commgauge report --format csv` has every row")
    }
}

/// The colour of a row's status.
pub(super) fn tone(row: &Row) -> Tone {
    match row.status {
        Status::Wrong { .. } | Status::Failed(_) => Tone::Bad,
        Status::Missing | Status::Skipped(_) => Tone::Unsure,
        _ if row.is_incomplete() => Tone::Unsure,
        Status::Synthetic => Tone::Synthetic,
        Status::NotVerified => Tone::Plain,
        Status::Verified => Tone::Good,
    }
}

fn title(row: &Row) -> String {
    let facts = &row.facts;
    let locality = &facts.locality;
    let groups = match (facts.axis, facts.groups) {
        (Axis::World, _) => format!("all {} ranks", facts.group_size),
        (_, 1) => format!("1 group of {} ranks", facts.group_size),
        (_, groups) => format!("{groups} groups of {} ranks at once", facts.group_size),
    };
    let place = match locality.nodes_spanned {
        0 => "placement not known".to_owned(),
        1 => "each on 1 host".to_owned(),
        nodes => format!("over {nodes} hosts, {} per host", locality.ranks_per_node),
    };
    let place = place.replace("each ", if facts.groups == 1 { "" } else { "each " });
    format!("{} {}, {}: {groups}, {place}", facts.axis, facts.style.name(), facts.cadence)
}

// Labels that all rows of a table have in common: its heading has them once, and the rows what they differ in.

/// The words that every cell has, in the order of the first cell; none if a cell has no labels.
pub(super) fn shared(cells: &[String]) -> Vec<String> {
    let Some((first, others)) = cells.split_first() else { return Vec::new() };
    let is_shared = |word: &&str| *word != "-" && others.iter().all(|cell| cell.split(' ').any(|other| other == *word));
    first.split(' ').filter(is_shared).map(str::to_owned).collect()
}

/// A cell without these words; a dash where nothing is left of it.
pub(super) fn without(cell: &str, shared: &[String]) -> String {
    let rest: Vec<&str> = cell.split(' ').filter(|word| shared.iter().all(|shared| shared != word)).collect();
    if rest.is_empty() { "-".to_owned() } else { rest.join(" ") }
}

// Slowdown of a call by others, replicate by replicate.

/// Time of a call together with others over its time alone, both of the same replicate.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
pub struct Slowdown {
    /// Median over the replicates; `null` where none has both times.
    pub factor_median: Option<f64>,
    /// Low end of the 95 % interval of that median; `null` with fewer than 6 replicates.
    pub factor_interval_low: Option<f64>,
    /// High end of that interval.
    pub factor_interval_high: Option<f64>,
    /// Replicates in which both have a time.
    pub replicates: u32,
    /// What it means.
    pub reading: String,
}

impl Slowdown {
    fn of(ratios: impl Iterator<Item = f64>) -> Slowdown {
        let ratios = sorted(ratios);
        let (middle, interval) = (median(&ratios), median_interval(&ratios, 0.95));
        let reading = match (middle, interval) {
            (None, _) => "no time of both".to_owned(),
            (_, None) => format!("not known: an interval needs {MIN_FOR_INTERVAL} replicates"),
            (_, Some(interval)) if interval.low > 1.0 => "slower together".to_owned(),
            (_, Some(interval)) if interval.high < 1.0 => "faster together".to_owned(),
            _ => "no difference seen".to_owned(),
        };
        Slowdown {
            factor_median: middle,
            factor_interval_low: interval.map(|interval| interval.low),
            factor_interval_high: interval.map(|interval| interval.high),
            replicates: ratios.len() as u32,
            reading,
        }
    }
}

/// A call with all groups of its axis at once over the same call with one group alone.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
pub struct Contention {
    /// The case with all groups at once.
    pub case: String,
    /// The case with one group alone.
    pub solo_case: String,
    /// The axis of the groups.
    pub axis: Axis,
    /// Who asks for the call.
    pub style: &'static str,
    /// The call and its variant.
    pub call: String,
    /// The size argument in the sense of nccl-tests.
    pub bytes_total: Bytes,
    /// How calls follow each other.
    pub cadence: Cadence,
    /// Groups at once.
    pub groups: u32,
    /// How much slower it is.
    #[serde(flatten)]
    pub slowdown: Slowdown,
}

impl Contention {
    /// Every call of the record that was measured both with all groups and with one alone.
    pub(super) fn all_of(rows: &[Row], lines_of_case: &[Vec<&CaseLine>]) -> Vec<Contention> {
        let medians = |row: usize| {
            let withheld = rows.get(row)?.latency.is_none();
            if withheld { Some(BTreeMap::new()) } else { Some(medians(lines_of_case.get(row)?)) }
        };
        let of = |solo: &Row, solo_row: usize| {
            let row = solo.facts.solo_of? as usize;
            let (together, all, alone) = (rows.get(row)?, medians(row)?, medians(solo_row)?);
            let facts = &together.facts;
            let ratios = all
                .iter()
                .filter_map(|(replicate, time)| Some(time / alone.get(replicate).filter(|time| **time > 0.0)?));
            Some(Contention {
                case: facts.name.clone(),
                solo_case: solo.facts.name.clone(),
                axis: facts.axis,
                style: facts.style.name(),
                call: collective_and_variant(together),
                bytes_total: facts.bytes_total,
                cadence: facts.cadence,
                groups: facts.groups,
                slowdown: Slowdown::of(ratios),
            })
        };
        rows.iter().enumerate().filter_map(|(solo_row, solo)| of(solo, solo_row)).collect()
    }
}

/// The tables of calls that disturb each other: in all groups at once, and on several axes, where there are any.
pub(super) fn disturbed_document(contention: &[Contention], interference: &[CallInterference]) -> Vec<Block> {
    let answer = context! { contention => Serde(contention), interference => Serde(interference) };
    template::blocks("disturbed.txt", include_str!("templates/disturbed.txt"), answer)
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

// Slowdown of a call while calls of another axis are in flight: alone and together, replicate by replicate.

/// Upper bound on the wait for a call that has already completed: two clock readings and a call into the library.
const NANOSECONDS_OF_A_WAIT_FOR_NOTHING: u64 = 1_000;

/// A call while another is in flight, over all replicates.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
pub struct CallInterference {
    /// The call that is timed.
    pub timed: InterferingCall,
    /// The call that is in flight meanwhile.
    #[serde(rename = "beside")]
    pub overlapping: InterferingCall,
    /// Maximum number of calls of the other that were started before it.
    pub calls_beside: u32,
    /// Median over the replicates, alone.
    #[serde(rename = "alone_seconds_median")]
    pub alone: Option<Seconds>,
    /// Median over the replicates, together.
    #[serde(rename = "together_seconds_median")]
    pub together: Option<Seconds>,
    /// How much slower it is together.
    #[serde(flatten)]
    pub slowdown: Slowdown,
    /// Share of the timed call during which the other was certainly in flight. All of it where the other had not completed
    /// afterwards; else at most the fastest time of one call of the other alone.
    #[serde(rename = "surely_beside_share")]
    pub certain_overlap: Option<f64>,
    /// Why a replicate has no time.
    #[serde(rename = "trouble")]
    pub problem: Option<Outcome>,
}

impl CallInterference {
    /// Every pair of the record.
    pub(super) fn all_of(record: &Record) -> Vec<CallInterference> {
        let kinds = grouped(record.interference.iter().map(|line| ((line.step, &line.timed, &line.overlapping), line)));
        kinds.iter().map(|(_, lines)| CallInterference::of(lines[0], lines)).collect()
    }

    fn of(first: &InterferenceLine, lines: &[&InterferenceLine]) -> CallInterference {
        let good = || lines.iter().filter(|line| matches!(line.outcome, Outcome::Measured { .. }));
        let wrong = lines.iter().any(|line| line.outcome.is_wrong());
        let medians: Vec<(f64, f64)> = good()
            .filter(|_| !wrong)
            .filter_map(|line| Some((middle(&line.alone_nanoseconds)?, middle(&line.together_nanoseconds)?)))
            .filter(|(alone, _)| *alone > 0.0)
            .collect();
        let over = |of: fn(&(f64, f64)) -> f64| sorted(medians.iter().map(of));
        let shares: Vec<f64> = good().filter(|_| !wrong).flat_map(|line| shares_of(line)).collect();
        CallInterference {
            timed: first.timed.clone(),
            overlapping: first.overlapping.clone(),
            calls_beside: lines.iter().map(|line| line.calls_beside).max().unwrap_or(0),
            alone: median(&over(|pair| pair.0 * 1e-9)).map(Seconds),
            together: median(&over(|pair| pair.1 * 1e-9)).map(Seconds),
            slowdown: Slowdown::of(medians.iter().map(|(alone, together)| together / alone)),
            certain_overlap: (!shares.is_empty()).then(|| shares.iter().sum::<f64>() / shares.len() as f64),
            problem: lines
                .iter()
                .map(|line| &line.outcome)
                .find(|outcome| !matches!(outcome, Outcome::Measured { .. }))
                .cloned(),
        }
    }
}

/// For each repetition the share of the timed call during which the other was certainly in flight.
fn shares_of(line: &InterferenceLine) -> Vec<f64> {
    let fastest = line.beside_alone_nanoseconds.iter().min().copied().unwrap_or(0);
    let nothing = NANOSECONDS_OF_A_WAIT_FOR_NOTHING * u64::from(line.calls_beside);
    let share = |(took, waited): (&u64, &u64)| {
        if *waited > nothing { 1.0 } else { (fastest as f64 / (*took).max(1) as f64).min(1.0) }
    };
    line.together_nanoseconds.iter().zip(&line.still_waited_nanoseconds).map(share).collect()
}

fn middle(nanoseconds: &[u64]) -> Option<f64> {
    median(&sorted(nanoseconds.iter().map(|time| *time as f64)))
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn a_heading_has_what_all_rows_have_and_each_row_what_is_left() {
        for (cells, heading, rows) in [
            (
                &["nvls=off symmetric", "nvls=off", "nvls=off symmetric x8"][..],
                "nvls=off",
                &["symmetric", "-", "symmetric x8"][..],
            ),
            (&["ring ll", "ring ll"], "ring ll", &["-", "-"]),
            (&["ring", "-"], "", &["ring", "-"]),
            (&["x8", "x81"], "", &["x8", "x81"]),
            (&["-"], "", &["-"]),
        ] {
            let cells: Vec<String> = cells.iter().map(|cell| (*cell).to_owned()).collect();
            let shared = shared(&cells);
            assert_eq!(shared.join(" "), heading, "{cells:?}");
            assert_eq!(cells.iter().map(|cell| without(cell, &shared)).collect::<Vec<_>>(), rows, "{cells:?}");
        }
    }
}
