//! Live output of rows while the run is in progress: the same tables as in the finished report, written piece by piece.
//!
//! Widths are decided before the first row, from the widest row that can be expected of each case. The live output and
//! the text of [`LiveRows::finish`] together make up the report, with each row once.

mod form;
mod peers;
mod table;

use super::Format;
use super::color::Paint;
use super::peer_table::Peer;
use super::view::View;
use commgauge_model::record::Line;
use form::{LiveFormat, Run};
use peers::PeerForm;
use table::TableForm;

/// The rows of a run that has just begun.
pub struct LiveRows {
    form: Box<dyn LiveFormat>,
    run: Option<Run>,
}

impl LiveRows {
    /// `None` where a format cannot be written row by row.
    pub fn new(format: Format, width: u16, paint: Paint) -> Option<LiveRows> {
        let form: Box<dyn LiveFormat> = match format {
            Format::Table => Box::new(TableForm::new(width, paint)),
            Format::NcclTests => Box::new(PeerForm::new(Peer::NcclTests)),
            Format::Osu => Box::new(PeerForm::new(Peer::Osu)),
            Format::Imb => Box::new(PeerForm::new(Peer::Imb)),
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
