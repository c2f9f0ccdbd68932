//! The table for people.

use super::super::color::Paint;
use super::super::row::Row;
use super::super::section::{Section, sections};
use super::super::table::{self, MIN_WIDTH, Notes};
use super::super::view::View;
use super::{LiveFormat, Run};
use commgauge_model::record::line::Header;

/// The sections, and how far they are written.
pub(super) struct TableForm {
    width: usize,
    paint: Paint,
    sections: Vec<Section>,
    notes: Notes,
    section: usize,
    written: usize,
}

impl TableForm {
    pub(super) fn new(width: u16, color: bool) -> TableForm {
        let (width, paint) = (usize::from(width).max(MIN_WIDTH), Paint { on: color });
        TableForm { width, paint, sections: Vec::new(), notes: Notes::default(), section: 0, written: 0 }
    }
}

impl LiveFormat for TableForm {
    fn begin(&mut self, header: &Header, expected: &[Row]) -> String {
        self.sections = sections(expected, &[]);
        let head = |section| table::section_head(section, self.width, self.paint);
        table::provenance(header, self.width, self.paint) + &self.sections.first().map_or_else(String::new, head)
    }

    fn write(&mut self, run: &Run) -> String {
        let mut out = String::new();
        for index in run.order.iter().take(run.passed).skip(self.written) {
            if self.sections[self.section].members().last().is_some_and(|last| run.place[*last] < self.written) {
                self.section += 1;
                out += &table::section_head(&self.sections[self.section], self.width, self.paint);
            }
            let row = &run.rows[*index];
            out += &self.sections[self.section].row(row, self.notes.number_of(row), self.width, self.paint.on);
            self.written += 1;
        }
        out
    }

    fn end(&mut self, view: &View) -> String {
        table::closing(view, &self.notes, self.width, self.paint)
    }

    fn whole(&self, view: &View) -> String {
        table::text(view, self.width, self.paint.on)
    }
}
