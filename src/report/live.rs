//! Rows as they are done, while the run goes on: the same tables as the finished report, written piece by piece.
//!
//! Widths are decided before the first row, from the widest row that can be expected of each case. What is written while the run goes
//! on and what [`LiveRows::finish`] gives make up the report, each row once.

use super::Format;
use super::color::Paint;
use super::nccl_tests::{self, Block, Lines};
use super::row::Row;
use super::section::{Section, sections};
use super::table::{self, NARROWEST, Notes};
use super::view::View;
use crate::record::line::{CaseLine, Header, Line, Plan};

/// The rows of a run that has just begun.
pub struct LiveRows {
    form: Form,
    header: Option<Box<Header>>,
    /// What is known so far; of a case without lines what is planned.
    rows: Vec<Row>,
    lines: Vec<Vec<CaseLine>>,
    /// Cases in the order of the tables, and the place of each in it.
    order: Vec<usize>,
    place: Vec<usize>,
    /// Places up to here are done, because the last round has passed them.
    passed: usize,
}

/// How they are written, and how far it is.
enum Form {
    Table { width: usize, paint: Paint, sections: Vec<Section>, notes: Notes, section: usize, written: usize },
    NcclTests { blocks: Vec<(Block, Option<Lines>)>, left_out: usize, block: usize, line: usize },
}

impl LiveRows {
    /// Where a format can be written row by row.
    pub fn new(format: Format, width: u16, color: bool) -> Option<LiveRows> {
        let form = match format {
            Format::Table => Form::Table {
                width: usize::from(width).max(NARROWEST),
                paint: Paint { on: color },
                sections: Vec::new(),
                notes: Notes::default(),
                section: 0,
                written: 0,
            },
            Format::NcclTests => Form::NcclTests { blocks: Vec::new(), left_out: 0, block: 0, line: 0 },
            Format::Json | Format::Csv | Format::Markdown | Format::Junit | Format::Prometheus => return None,
        };
        let (rows, lines, order, place) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Some(LiveRows { form, header: None, rows, lines, order, place, passed: 0 })
    }

    /// Takes the next line of the record, and gives what is to be written now.
    pub fn take(&mut self, line: &Line) -> String {
        match (line, self.header.is_some()) {
            (Line::Header(header), _) => self.header = Some(header.clone()),
            (Line::Plan(plan), true) if self.rows.is_empty() => return self.begin(plan),
            (Line::Case(case), true) => return self.add(case),
            _ => {}
        }
        String::new()
    }

    /// What comes after the rows that were written, from the finished record.
    pub fn finish(mut self, view: &View) -> String {
        if self.rows.len() != view.rows.len() || self.rows.is_empty() {
            // A record that was cut off before its plan, of which nothing was written.
            return match self.form {
                Form::Table { width, paint, .. } => table::text(view, width, paint.on),
                Form::NcclTests { .. } => nccl_tests::text(view),
            };
        }
        self.rows.clone_from(&view.rows);
        self.passed = self.order.len();
        let rows = self.write();
        match self.form {
            Form::Table { width, paint, notes, .. } => rows + &table::closing(view, &notes, width, paint),
            Form::NcclTests { left_out, .. } => rows + &nccl_tests::closing(left_out),
        }
    }

    fn begin(&mut self, plan: &Plan) -> String {
        let Some(header) = self.header.clone() else { return String::new() };
        self.rows = plan.cases.iter().map(|facts| Row::merge(facts, &[], &header)).collect();
        self.lines = vec![Vec::new(); self.rows.len()];
        let expected: Vec<Row> = plan.cases.iter().map(|facts| Row::widest(facts, &header)).collect();
        self.lay_out(&expected);
        match &self.form {
            Form::Table { width, paint, sections, .. } => {
                let head =
                    sections.first().map_or_else(String::new, |section| table::section_head(section, *width, *paint));
                table::provenance(&header, *width, *paint) + &head
            }
            Form::NcclTests { .. } => String::new(),
        }
    }

    /// Decides on the order of the rows and how wide they are.
    fn lay_out(&mut self, expected: &[Row]) {
        match &mut self.form {
            Form::Table { sections: parts, .. } => {
                *parts = sections(expected, &[]);
                self.order = parts.iter().flat_map(Section::members).copied().collect();
            }
            Form::NcclTests { blocks, left_out, .. } => {
                let (all, others) = nccl_tests::blocks(expected);
                let with_table = |block: Block| {
                    let table = block.only_table(expected);
                    (block, table)
                };
                (*blocks, *left_out) = (all.into_iter().map(with_table).collect(), others);
                // The order in which they are measured: that of the table.
                self.order = sections(expected, &[]).iter().flat_map(Section::members).copied().collect();
            }
        }
        self.place = vec![0; self.order.len()];
        for (place, case) in self.order.iter().enumerate() {
            self.place[*case] = place;
        }
    }

    fn add(&mut self, line: &CaseLine) -> String {
        let case = line.case as usize;
        let (Some(header), Some(lines)) = (&self.header, self.lines.get_mut(case)) else { return String::new() };
        lines.retain(|earlier| !line.replaces.contains(&earlier.replicate));
        lines.push(line.clone());
        let all: Vec<&CaseLine> = lines.iter().collect();
        self.rows[case] = Row::merge(&self.rows[case].facts, &all, header);
        // The last round goes in the order of the tables, so whatever stands before this case gets no more lines.
        if line.replicate + 1 >= header.settings.replicates {
            self.passed = self.passed.max(self.place[case] + 1);
        }
        self.write()
    }

    /// Everything that is done and not written yet.
    fn write(&mut self) -> String {
        let mut out = String::new();
        let LiveRows { form, header, rows, order, place, passed, .. } = self;
        match form {
            Form::Table { width, paint, sections, notes, section, written } => {
                for row in order.iter().take(*passed).skip(*written) {
                    if sections[*section].members().last().is_some_and(|last| place[*last] < *written) {
                        *section += 1;
                        out += &table::section_head(&sections[*section], *width, *paint);
                    }
                    out += &sections[*section].row(&rows[*row], notes.number_of(&rows[*row]), *width, paint.on);
                    *written += 1;
                }
            }
            Form::NcclTests { blocks, block, line, .. } => {
                let Some(header) = header else { return out };
                let is_done = |row: usize| place[row] < *passed;
                while let Some((current, table)) = blocks.get_mut(*block) {
                    // What is known to be amiss stands above the lines, so all of it must be known before.
                    let amiss = |row: usize| {
                        rows[row].status.reason().is_some() || (is_done(row) && rows[row].latency.is_none())
                    };
                    if *line == 0 && current.members().iter().any(|row| amiss(*row)) {
                        *table = None;
                    }
                    let Some(lines) = table else {
                        if !current.members().iter().all(|row| is_done(*row)) {
                            break;
                        }
                        out += &current.begin(None, header, rows);
                        *block += 1;
                        continue;
                    };
                    if !lines.pairs[*line].rows().all(is_done) {
                        break;
                    }
                    if *line == 0 {
                        out += &current.begin(Some(lines), header, rows);
                    }
                    out += &current.line(lines, *line, rows);
                    *line += 1;
                    if *line == lines.pairs.len() {
                        out += &current.end(rows);
                        (*block, *line) = (*block + 1, 0);
                    }
                }
            }
        }
        out
    }
}
