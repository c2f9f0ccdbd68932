//! The table for people.

use super::super::color::Paint;
use super::super::document::{TableLayout, Terminal};
use super::super::row::Row;
use super::super::section::{Section, sections};
use super::super::table::{self, MIN_WIDTH, Notes};
use super::super::view::View;
use super::form::{LiveFormat, Run};
use commgauge_model::record::line::Header;

/// The sections, and how far they are written.
pub(super) struct TableForm {
    terminal: Terminal,
    sections: Vec<(Section, TableLayout)>,
    notes: Notes,
    section: usize,
    written: usize,
}

impl TableForm {
    pub(super) fn new(width: u16, paint: Paint) -> TableForm {
        let terminal = Terminal::new(usize::from(width).max(MIN_WIDTH), paint);
        TableForm { terminal, sections: Vec::new(), notes: Notes::default(), section: 0, written: 0 }
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
        let head = |(section, layout): &(Section, TableLayout)| table::section_head(section, layout, terminal);
        terminal.draw(&table::provenance(header)) + &self.sections.first().map_or_else(String::new, head)
    }

    fn write(&mut self, run: &Run) -> String {
        let mut out = String::new();
        for index in run.order.iter().take(run.passed).skip(self.written) {
            if self.sections[self.section].0.members().last().is_some_and(|last| run.place[*last] < self.written) {
                self.section += 1;
                let (section, layout) = &self.sections[self.section];
                out += &table::section_head(section, layout, self.terminal);
            }
            let row = &run.rows[*index];
            let (section, layout) = &self.sections[self.section];
            out += &layout.row(&section.row(row, self.notes.number_of(row)), self.terminal.paint());
            self.written += 1;
        }
        out
    }

    fn end(&mut self, view: &View) -> String {
        format!("\n{}", self.terminal.draw(&table::closing(view, &self.notes)))
    }

    fn whole(&self, view: &View) -> String {
        table::text(view, self.terminal.width(), self.terminal.paint())
    }
}
