//! Live output of rows while the run is in progress: the same tables as in the finished report, written piece by piece.
//!
//! Widths are decided before the first row, from the widest row that can be expected of each case. The live output and
//! the text of [`LiveRows::finish`] together make up the report, with each row once.

mod peers;
mod table;

use super::Format;
use super::peer_table::Peer;
use super::row::Row;
use super::section::{Section, sections};
use super::view::View;
use commgauge_model::record::line::{CaseLine, Header, Line, Plan};
use peers::PeerForm;
use table::TableForm;

/// The rows of a run that has just begun.
pub struct LiveRows {
    form: Box<dyn LiveFormat>,
    run: Option<Run>,
}

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
    header: Box<Header>,
    /// The rows so far; a case without lines has its planned row.
    rows: Vec<Row>,
    lines: Vec<Vec<CaseLine>>,
    /// Cases in the order of the tables, and the place of each in it.
    order: Vec<usize>,
    place: Vec<usize>,
    /// Positions before this one are done, because the last round has passed them.
    passed: usize,
}

impl LiveRows {
    /// `None` where a format cannot be written row by row.
    pub fn new(format: Format, width: u16, color: bool) -> Option<LiveRows> {
        let form: Box<dyn LiveFormat> = match format {
            Format::Table => Box::new(TableForm::new(width, color)),
            Format::NcclTests => Box::new(PeerForm::new(Peer::NcclTests)),
            Format::Osu => Box::new(PeerForm::new(Peer::Osu)),
            Format::Imb => Box::new(PeerForm::new(Peer::Imb)),
            Format::Json | Format::Csv | Format::Markdown | Format::Junit | Format::Prometheus => return None,
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

impl Run {
    fn new(header: Box<Header>) -> Run {
        Run { header, rows: Vec::new(), lines: Vec::new(), order: Vec::new(), place: Vec::new(), passed: 0 }
    }

    /// Sets the plan, and returns the widest rows to expect.
    fn begin(&mut self, plan: &Plan) -> Vec<Row> {
        self.rows = plan.cases.iter().map(|facts| Row::merge(facts, &[], &self.header)).collect();
        self.lines = vec![Vec::new(); self.rows.len()];
        let expected: Vec<Row> = plan.cases.iter().map(|facts| Row::widest(facts, &self.header)).collect();
        // The order in which they are measured: that of the table.
        self.order = sections(&expected, &[]).iter().flat_map(Section::members).copied().collect();
        self.place = vec![0; self.order.len()];
        for (place, case) in self.order.iter().enumerate() {
            self.place[*case] = place;
        }
        expected
    }

    /// Adds a case line, if the plan has the case.
    fn add(&mut self, line: &CaseLine) {
        let case = line.case as usize;
        let Some(lines) = self.lines.get_mut(case) else { return };
        lines.retain(|earlier| !line.replaces.contains(&earlier.replicate));
        lines.push(line.clone());
        let all: Vec<&CaseLine> = lines.iter().collect();
        self.rows[case] = Row::merge(&self.rows[case].facts, &all, &self.header);
        // The last round follows the order of the tables, so rows before this case get no more lines.
        if line.replicate + 1 >= self.header.settings.replicates {
            self.passed = self.passed.max(self.place[case] + 1);
        }
    }

    /// Whether a row gets no more lines.
    fn is_done(&self, row: usize) -> bool {
        self.place[row] < self.passed
    }
}
