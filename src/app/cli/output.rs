//! Flags for the output format that every program shares, and printing to standard output.

use super::terminal::{self, Sink};
use crate::report::{ColorChoice, Format, LiveRows, Paint, View, render};
use commgauge_base::error::Result;
use std::io::Write;

/// How results are shown.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct OutputArguments {
    /// How to write results [default: table, or what the ending of an output file means]
    ///
    /// `nccl-tests` prints that tool's columns, one block for each collective, and holds the streaming cases only.
    #[arg(long, value_enum)]
    pub format: Option<Format>,

    /// When to colour the table; NO_COLOR and TERM=dumb are heeded
    #[arg(long, value_enum, default_value_t, value_name = "WHEN")]
    pub color: ColorChoice,

    /// Columns that the table may take [default: COLUMNS, else those of the terminal, else 100]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(40..))]
    pub width: Option<u16>,
}

impl OutputArguments {
    /// The format of the flag, or its default.
    pub fn format(&self) -> Format {
        self.format.unwrap_or_default()
    }

    /// Shows a view on standard output.
    pub fn show(&self, view: &View) -> Result<()> {
        self.show_on(view, Sink::stdout(), &mut std::io::stdout().lock())
    }

    /// Writes a view to `out`, which ends in this sink.
    pub fn show_on(&self, view: &View, sink: Sink, out: &mut dyn Write) -> Result<()> {
        render(view, self.format(), self.columns(sink), self.paint(sink), out)
    }

    /// Rows that can be printed as they are done, if the format has such rows.
    pub(crate) fn live_rows(&self, sink: Sink) -> Option<LiveRows> {
        LiveRows::new(self.format(), self.columns(sink), self.paint(sink))
    }

    /// Columns that tables may take.
    pub(crate) fn columns(&self, sink: Sink) -> u16 {
        terminal::columns_of(self.width, sink)
    }

    /// Whether to use colours.
    pub(crate) fn paint(&self, sink: Sink) -> Paint {
        terminal::paint(self.color, sink)
    }
}
