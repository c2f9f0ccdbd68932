//! Properties of the terminal: the one place that evaluates `--color`, NO_COLOR, TERM, `--width` and COLUMNS, for our
//! tables and for the output of the flag parser.

use super::help;
use crate::report::{ColorChoice, Paint};
use clap::{CommandFactory, FromArgMatches};
use std::ffi::OsString;
use std::io::IsTerminal;

/// Columns of a table that is written to a file or a pipe.
pub(crate) const WIDTH_WITHOUT_TERMINAL: u16 = 100;
/// A table does not fit into fewer columns than this.
const MIN_WIDTH: u16 = 40;

/// Where a text goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sink {
    /// To a terminal, which has a width and perhaps colours.
    Terminal,
    /// Into a file or a pipe.
    File,
}

impl Sink {
    /// What standard output is.
    pub(crate) fn stdout() -> Sink {
        if std::io::stdout().is_terminal() { Sink::Terminal } else { Sink::File }
    }
}

/// Whether text is styled.
pub(crate) fn paint(requested: ColorChoice, sink: Sink) -> Paint {
    let (no_color, term) = (std::env::var_os("NO_COLOR"), std::env::var_os("TERM"));
    match sink {
        Sink::Terminal => requested.on_terminal(no_color.as_deref(), term.as_deref()),
        Sink::File => requested.elsewhere(),
    }
}

/// The columns that a table on standard output may take.
pub(crate) fn columns(requested: Option<u16>) -> u16 {
    columns_of(requested, Sink::stdout())
}

/// Columns of a table that may or may not go to a terminal: as requested, else COLUMNS, else those of the terminal.
pub(crate) fn columns_of(requested: Option<u16>, sink: Sink) -> u16 {
    let terminal = terminal_size::terminal_size().filter(|_| sink == Sink::Terminal).map(|(width, _)| width.0);
    decide_columns(requested, std::env::var("COLUMNS").ok().as_deref(), terminal)
}

/// A value of COLUMNS that is not a number, or too small for a table, is ignored.
fn decide_columns(requested: Option<u16>, variable: Option<&str>, terminal: Option<u16>) -> u16 {
    let variable = variable.and_then(|text| text.trim().parse::<u16>().ok()).filter(|columns| *columns >= MIN_WIDTH);
    let terminal = terminal.map(|columns| columns.max(MIN_WIDTH));
    requested.or(variable).or(terminal).unwrap_or(WIDTH_WITHOUT_TERMINAL)
}

/// Parses the command line; help, version and usage errors are coloured and wrapped like all other output.
///
/// # Errors
/// Help, version or a usage error, to be printed.
pub fn parse<P: CommandFactory + FromArgMatches>() -> Result<P, clap::Error> {
    let words: Vec<OsString> = std::env::args_os().collect();
    let color = match colors_of_parser(&words) {
        ColorChoice::Auto => clap::ColorChoice::Auto,
        ColorChoice::Always => clap::ColorChoice::Always,
        ColorChoice::Never => clap::ColorChoice::Never,
    };
    let width = usize::from(columns(None).min(WIDTH_WITHOUT_TERMINAL));
    let definition = help::finished(P::command()).color(color).term_width(width);
    let words = if definition.get_name() == "commgauge" { with_one_name_for_ranks(words) } else { words };
    P::from_arg_matches(&definition.try_get_matches_from(words)?)
}

/// Replaces `-np 4`, as mpirun has it, by `-n 4`; the parser would read it as `-n p`. Arguments after `--` are
/// unchanged.
fn with_one_name_for_ranks(words: Vec<OsString>) -> Vec<OsString> {
    let ours = words.iter().position(|word| word == "--").unwrap_or(words.len());
    let renamed = |(index, word): (usize, OsString)| if index < ours && word == "-np" { "-n".into() } else { word };
    words.into_iter().enumerate().map(renamed).collect()
}

/// The value of `--color` before the flags are parsed; `auto` leaves NO_COLOR to the parser, which evaluates it too.
fn colors_of_parser(words: &[OsString]) -> ColorChoice {
    let mut words = words.iter().filter_map(|word| word.to_str()).take_while(|word| *word != "--");
    let mut choice = ColorChoice::Auto;
    while let Some(word) = words.next() {
        let value = match word.strip_prefix("--color") {
            Some("") => words.next(),
            Some(rest) => rest.strip_prefix('='),
            None => None,
        };
        choice = match value {
            Some("always") => ColorChoice::Always,
            Some("never") => ColorChoice::Never,
            Some(_) => ColorChoice::Auto,
            None => choice,
        };
    }
    choice
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flag_takes_precedence_over_columns_and_columns_over_the_terminal() {
        for (requested, variable, terminal, expected) in [
            (None, None, None, 100),
            (None, None, Some(140), 140),
            (None, None, Some(12), 40),
            (None, Some("72"), Some(140), 72),
            (None, Some("72"), None, 72),
            (Some(60), Some("72"), Some(140), 60),
            (None, Some("wide"), Some(140), 140),
            (None, Some("0"), None, 100),
            (None, Some("999999"), None, 100),
        ] {
            assert_eq!(
                decide_columns(requested, variable, terminal),
                expected,
                "{requested:?} {variable:?} {terminal:?}"
            );
        }
    }

    #[test]
    fn the_number_of_ranks_may_be_written_as_for_mpirun() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        let found = with_one_name_for_ranks(words("commgauge run quick -np 4 -- -np 3"));
        assert_eq!(found, words("commgauge run quick -n 4 -- -np 3"));
    }

    #[test]
    fn the_colour_of_help_follows_the_flag_wherever_it_stands() {
        for (line, expected) in [
            ("commgauge run -h", ColorChoice::Auto),
            ("commgauge run --color never -h", ColorChoice::Never),
            ("commgauge --color=always run", ColorChoice::Always),
            ("commgauge run --color never --color always", ColorChoice::Always),
            ("commgauge run quick -- --color never", ColorChoice::Auto),
            ("commgauge run --color", ColorChoice::Auto),
        ] {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            assert_eq!(colors_of_parser(&words), expected, "{line}");
        }
    }
}
