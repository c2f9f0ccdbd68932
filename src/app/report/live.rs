//! Live output of rows while the run is in progress: the same tables as in the finished report, written piece by piece.
//!
//! Widths are decided before the first row, from the widest row that can be expected of each case. The live output and
//! the text of [`LiveRows::finish`] together make up the report, with each row once.

use super::columns::{Noted, Section, sections};
use super::document::{TableLayout, Terminal};
use super::peer_table::{Divided, Peer};
use super::row::Row;
use super::text::Paint;
use super::view::View;
use super::{Format, MIN_WIDTH, Notes};
use commgauge_model::record::Line;
use commgauge_model::record::line::{CaseLine, Header, Plan};

/// The rows of a run that has just begun.
pub struct LiveRows {
    form: Box<dyn LiveFormat>,
    run: Option<Run>,
}

impl LiveRows {
    /// `None` where a format cannot be written row by row.
    pub fn new(format: Format, width: u16, paint: Paint) -> Option<LiveRows> {
        let of = |peer| Box::new(PeerForm { peer, tables: Divided::default() });
        let form: Box<dyn LiveFormat> = match format {
            Format::Table => Box::new(TableForm::new(width, paint)),
            Format::NcclTests => of(Peer::NcclTests),
            Format::Osu => of(Peer::Osu),
            Format::Imb => of(Peer::Imb),
            _ => return None,
        };
        Some(LiveRows { form, run: None })
    }

    /// Adds the next line of the record, and returns the text to be written now.
    pub fn take(&mut self, line: &Line) -> String {
        match (line, &mut self.run) {
            (Line::Header(header), _) => self.run = Some(Run::new(header.clone())),
            (Line::Plan(plan), Some(run)) if run.rows.is_empty() => {
                let expected = run.begin(plan);
                return self.form.begin(&run.header, &expected);
            }
            (Line::Case(case), Some(run)) => {
                run.add(case);
                return self.form.write(run);
            }
            _ => {}
        }
        String::new()
    }

    /// The text after the rows that were written, from the finished record.
    pub fn finish(mut self, view: &View) -> String {
        match self.run {
            Some(mut run) if run.rows.len() == view.rows.len() && !run.rows.is_empty() => {
                run.rows.clone_from(&view.rows);
                run.passed = run.order.len();
                self.form.write(&run) + &self.form.end(view)
            }
            // The record was cut off before its plan, and nothing was written.
            _ => self.form.whole(view),
        }
    }
}

// The columns of other tools.

struct PeerForm {
    peer: Peer,
    tables: Divided,
}

impl LiveFormat for PeerForm {
    fn begin(&mut self, header: &Header, expected: &[Row]) -> String {
        self.tables = self.peer.divide(expected);
        self.peer.begin(header)
    }

    fn write(&mut self, run: &Run) -> String {
        self.tables.write(&run.header, &run.rows, &|row| run.is_done(row))
    }

    fn end(&mut self, view: &View) -> String {
        self.peer.closing(&self.tables.left_out, &view.rows)
    }

    fn whole(&self, view: &View) -> String {
        self.peer.text(view)
    }
}

// The table for people.

/// The sections, and how far they are written.
struct TableForm {
    terminal: Terminal,
    sections: Vec<(Section, TableLayout)>,
    notes: Notes,
    section: usize,
    line: usize,
}

impl TableForm {
    fn new(width: u16, paint: Paint) -> TableForm {
        let terminal = Terminal::new(usize::from(width).max(MIN_WIDTH), paint);
        TableForm { terminal, sections: Vec::new(), notes: Notes::default(), section: 0, line: 0 }
    }
}

impl TableForm {
    /// The text above the section that comes next, if there is one.
    fn head(&self) -> String {
        let next = self.sections.get(self.section);
        next.map_or_else(String::new, |(section, layout)| super::section_head(section, layout, self.terminal))
    }
}

impl LiveFormat for TableForm {
    fn begin(&mut self, header: &Header, expected: &[Row]) -> String {
        let terminal = self.terminal;
        let laid_out = |section: Section| {
            let layout = section.layout(terminal.width());
            (section, layout)
        };
        self.sections = sections(expected, &[]).into_iter().map(laid_out).collect();
        terminal.draw(&super::provenance_in_short(header)) + &self.head()
    }

    fn write(&mut self, run: &Run) -> String {
        let mut out = String::new();
        while let Some((section, layout)) = self.sections.get(self.section) {
            let Some(line) = section.lines().get(self.line) else {
                (self.section, self.line) = (self.section + 1, 0);
                out += &self.head();
                continue;
            };
            if !line.rows().all(|row| run.is_done(row)) {
                break;
            }
            let mut noted = |index: usize| {
                let row = &run.rows[index];
                Noted { row, note: self.notes.number_of(row) }
            };
            let row = section.row(noted(line.row), line.in_place.map(noted));
            out += &layout.row(&row, self.terminal.paint());
            self.line += 1;
        }
        out
    }

    fn end(&mut self, view: &View) -> String {
        format!("\n{}", self.terminal.draw(&super::closing(view, &self.notes)))
    }

    fn whole(&self, view: &View) -> String {
        super::text(view, self.terminal.width(), self.terminal.paint())
    }
}

// A format that is written row by row, and how far a run is.

/// A format that can be written row by row.
trait LiveFormat: Send {
    /// Computes the tables and their widths from the widest rows, and returns the text above the first row.
    fn begin(&mut self, header: &Header, expected: &[Row]) -> String;
    /// The text of all rows that are done and not written yet.
    fn write(&mut self, run: &Run) -> String;
    /// The text after the last row.
    fn end(&mut self, view: &View) -> String;
    /// The whole report, where nothing was written before.
    fn whole(&self, view: &View) -> String;
}

/// Progress of a run.
struct Run {
    pub header: Box<Header>,
    /// The rows so far; a case without lines has its planned row.
    pub rows: Vec<Row>,
    lines: Vec<Vec<CaseLine>>,
    /// Cases in the order of the tables, and the place of each in it.
    pub order: Vec<usize>,
    pub place: Vec<usize>,
    /// Positions before this one are done: the last planned round has passed them, and they are precise.
    pub passed: usize,
    /// Positions before this one were passed by the last planned round.
    visited: usize,
}

impl Run {
    pub fn new(header: Box<Header>) -> Run {
        Run { header, rows: Vec::new(), lines: Vec::new(), order: Vec::new(), place: Vec::new(), passed: 0, visited: 0 }
    }

    /// Sets the plan, and returns the widest rows to expect.
    pub fn begin(&mut self, plan: &Plan) -> Vec<Row> {
        self.rows = plan.cases.iter().map(|facts| Row::merge(facts, &[], &self.header)).collect();
        self.lines = vec![Vec::new(); self.rows.len()];
        let expected: Vec<Row> = plan.cases.iter().map(|facts| Row::widest(facts, &self.header)).collect();
        // The order in which they are measured: that of the table.
        let sections = sections(&expected, &[]);
        self.order = sections.iter().flat_map(Section::lines).flat_map(|line| line.rows()).collect();
        self.place = vec![0; self.order.len()];
        for (place, case) in self.order.iter().enumerate() {
            self.place[*case] = place;
        }
        expected
    }

    /// Adds a case line, if the plan has the case.
    pub fn add(&mut self, line: &CaseLine) {
        let case = line.case as usize;
        let Some(lines) = self.lines.get_mut(case) else { return };
        lines.retain(|earlier| !line.replaces.contains(&earlier.replicate));
        lines.push(line.clone());
        let all: Vec<&CaseLine> = lines.iter().collect();
        self.rows[case] = Row::merge(&self.rows[case].facts, &all, &self.header);
        // The last planned round follows the order of the tables; further ones measure what is not precise by then.
        if line.replicate + 1 >= self.header.settings.replicates {
            self.visited = self.visited.max(self.place[case] + 1);
        }
        while self.passed < self.visited && !self.rows[self.order[self.passed]].is_less_precise_than_requested() {
            self.passed += 1;
        }
    }

    /// Whether a row gets no more lines.
    pub fn is_done(&self, row: usize) -> bool {
        self.place[row] < self.passed
    }
}
