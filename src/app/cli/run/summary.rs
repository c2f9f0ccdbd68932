//! What is printed of a record once its run has ended.

use super::arguments::{RunArguments, SummaryParts};
use crate::cli::places;
use crate::cli::table_or_json::print_drawn_on;
use crate::cli::terminal::Sink;
use crate::launch;
use crate::report::screen::{self, CommandNames, Screen};
use crate::report::{Format, View};
use commgauge_base::error::Result;
use commgauge_base::message::eprintln;
use commgauge_base::visible::ShownPath;
use commgauge_model::record::Record;
use std::io::Write;
use std::path::Path;

/// Prints a summary of a record on one screen, the whole table, or the format of `--format`.
pub(super) fn summarise(arguments: &RunArguments, record: &Path, out: &mut dyn Write) -> Result<()> {
    show(arguments, record, out)?;
    eprintln!("record: {}", record.shown());
    Ok(())
}

pub(super) fn show(arguments: &RunArguments, path: &Path, out: &mut dyn Write) -> Result<()> {
    let record = Record::read(path)?;
    let (view, sink) = (View::new(&record), Sink::stdout());
    let output = &arguments.output;
    // Of pairs, and of copies alone, the table is the summary.
    let has_table = view.pairs.is_some() || view.rows.is_empty() && !view.copies.is_empty();
    if arguments.full || output.format() != Format::Table || has_table {
        return output.show_on(&view, sink, out);
    }
    let path = launch::quote(&path.display().to_string());
    let screen = Screen::of(&record, &view, CommandNames { program: &places::program_as_typed(), record: &path });
    let text = match arguments.summary {
        SummaryParts::Screen => screen::text,
        SummaryParts::Head => screen::head_text,
    };
    print_drawn_on(out, &text(&screen, output.columns(sink), output.paint(sink)))
}
