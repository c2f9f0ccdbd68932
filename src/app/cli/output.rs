//! Flags for the output format that every program shares, and printing to standard output.

use super::terminal;
use crate::report::{ColorChoice, Format, LiveRows, View, render};
use commgauge_base::error::Result;
use std::io::{IsTerminal, Write};

/// How results are shown.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct OutputArguments {
    /// How to write results
    ///
    /// `nccl-tests` prints that tool's columns, one block for each collective, and holds the streaming cases only.
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,

    /// When to colour the table; NO_COLOR and TERM=dumb are heeded
    #[arg(long, value_enum, default_value_t, value_name = "WHEN")]
    pub color: ColorChoice,

    /// Columns that the table may take [default: COLUMNS, else those of the terminal, else 100]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(40..))]
    pub width: Option<u16>,
}

impl OutputArguments {
    /// Shows a view on standard output.
    pub fn show(&self, view: &View) -> Result<()> {
        let stdout = std::io::stdout();
        self.show_on(view, stdout.is_terminal(), &mut stdout.lock())
    }

    /// Writes a view to `out`.
    pub fn show_on(&self, view: &View, is_terminal: bool, out: &mut dyn Write) -> Result<()> {
        render(view, self.format, self.columns(is_terminal), self.colors(is_terminal), out)
    }

    /// Rows that can be printed as they are done, if the format has such rows.
    pub(crate) fn live_rows(&self, is_terminal: bool) -> Option<LiveRows> {
        LiveRows::new(self.format, self.columns(is_terminal), self.colors(is_terminal))
    }

    /// Columns that tables may take.
    pub(crate) fn columns(&self, is_terminal: bool) -> u16 {
        terminal::columns_of(self.width, is_terminal)
    }

    /// Whether to use colours.
    pub(crate) fn colors(&self, is_terminal: bool) -> bool {
        terminal::colors(self.color, is_terminal)
    }
}
