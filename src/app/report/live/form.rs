//! A format that is written row by row, and how far a run is.

use crate::report::row::Row;
use crate::report::section::{Section, sections};
use crate::report::view::View;
use commgauge_model::record::line::{CaseLine, Header, Plan};

/// A format that can be written row by row.
pub(super) trait LiveFormat: Send {
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
pub(super) struct Run {
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
        self.order = sections(&expected, &[]).iter().flat_map(Section::members).copied().collect();
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
