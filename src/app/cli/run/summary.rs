//! What is printed of a record once its run has ended.

use super::arguments::RunArguments;
use crate::cli::places;
use crate::cli::table_or_json::print_drawn_on;
use crate::launch;
use crate::report::screen::{self, CommandNames, Screen};
use crate::report::{Format, View};
use commgauge_base::error::Result;
use commgauge_base::message::eprintln;
use commgauge_base::visible::ShownPath;
use commgauge_model::record::Record;
use std::io::{IsTerminal, Write};
use std::path::Path;

/// Prints a summary of a record on one screen, the whole table, or the format of `--format`.
pub(super) fn summarise(arguments: &RunArguments, record: &Path, out: &mut dyn Write) -> Result<()> {
    show(arguments, record, out)?;
    eprintln!("record: {}", record.shown());
    Ok(())
}

pub(super) fn show(arguments: &RunArguments, path: &Path, out: &mut dyn Write) -> Result<()> {
    let record = Record::read(path)?;
    let (view, is_terminal) = (View::new(&record), std::io::stdout().is_terminal());
    let output = &arguments.output;
    // For pairs, the table is the summary.
    if arguments.full || output.format != Format::Table || view.pairs.is_some() {
        return output.show_on(&view, is_terminal, out);
    }
    let path = launch::quote(&path.display().to_string());
    let screen = Screen::of(&record, &view, CommandNames { program: &places::program_as_typed(), record: &path });
    print_drawn_on(out, &screen::text(&screen, output.columns(is_terminal), output.colors(is_terminal)))
}
