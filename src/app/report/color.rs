//! Terminal colours, and when to use them.
//!
//! Without colour no escape character is ever written, whatever the record contains.

use std::ffi::OsStr;

/// The choice of `--color`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum ColorChoice {
    /// On a terminal, unless NO_COLOR is set or TERM is `dumb`.
    #[default]
    Auto,
    /// Even into a file or a pipe.
    Always,
    /// Nowhere.
    Never,
}

impl ColorChoice {
    /// Whether to colour. `no_color` and `term` are the values of these environment variables.
    pub fn decide(self, no_color: Option<&OsStr>, term: Option<&OsStr>, is_terminal: bool) -> bool {
        match self {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            // See no-color.org: an empty value is ignored.
            ColorChoice::Auto => {
                is_terminal && no_color.is_none_or(OsStr::is_empty) && term.is_none_or(|term| term != "dumb")
            }
        }
    }
}

/// Styles text outside tables, if enabled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Paint {
    /// Whether styling is enabled.
    pub on: bool,
}

impl Paint {
    /// For headings.
    pub fn bold(self, text: &str) -> String {
        self.wrapped("1", text)
    }

    /// For labels next to values.
    pub fn dim(self, text: &str) -> String {
        self.wrapped("2", text)
    }

    /// For warnings.
    pub fn alarm(self, text: &str) -> String {
        self.wrapped("1;31", text)
    }

    /// For cells of a map: white on one of the 256 colours.
    pub fn background(self, color: u8, text: &str) -> String {
        self.wrapped(&format!("48;5;{color};38;5;15"), text)
    }

    /// For letters in one of the 256 colours.
    pub fn colored(self, color: u8, text: &str) -> String {
        if self.on { format!("\x1b[38;5;{color}m{text}\x1b[39m") } else { text.to_owned() }
    }

    fn wrapped(self, code: &str, text: &str) -> String {
        if self.on { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flag_overrides_the_environment_which_overrides_the_terminal() {
        let set = |value: &'static str| Some(OsStr::new(value));
        for (choice, no_color, term, is_terminal, expected) in [
            (ColorChoice::Auto, None, set("xterm"), true, true),
            (ColorChoice::Auto, None, set("xterm"), false, false),
            (ColorChoice::Auto, set("1"), set("xterm"), true, false),
            (ColorChoice::Auto, set(""), set("xterm"), true, true),
            (ColorChoice::Auto, None, set("dumb"), true, false),
            (ColorChoice::Auto, None, None, true, true),
            (ColorChoice::Always, set("1"), set("dumb"), false, true),
            (ColorChoice::Never, None, set("xterm"), true, false),
        ] {
            assert_eq!(choice.decide(no_color, term, is_terminal), expected, "{choice:?} {no_color:?} {term:?}");
        }
    }
}
