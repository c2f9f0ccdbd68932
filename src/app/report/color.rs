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
    /// What follows on a terminal whose NO_COLOR and TERM have these values.
    pub fn on_terminal(self, no_color: Option<&OsStr>, term: Option<&OsStr>) -> Paint {
        // See no-color.org: an empty value is ignored.
        let can = no_color.is_none_or(OsStr::is_empty) && term.is_none_or(|term| term != "dumb");
        if self == ColorChoice::Always || (self == ColorChoice::Auto && can) { Paint::Colors } else { Paint::Plain }
    }

    /// What follows in a file or a pipe.
    pub fn elsewhere(self) -> Paint {
        if self == ColorChoice::Always { Paint::Colors } else { Paint::Plain }
    }
}

/// Whether text is styled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paint {
    /// Text alone.
    Plain,
    /// Text and the escape characters of terminals.
    Colors,
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
        match self {
            Paint::Plain => text.to_owned(),
            Paint::Colors => format!("\x1b[38;5;{color}m{text}\x1b[39m"),
        }
    }

    fn wrapped(self, code: &str, text: &str) -> String {
        match self {
            Paint::Plain => text.to_owned(),
            Paint::Colors => format!("\x1b[{code}m{text}\x1b[0m"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flag_overrides_the_environment_which_overrides_the_terminal() {
        let set = |value: &'static str| Some(OsStr::new(value));
        for (choice, no_color, term, expected) in [
            (ColorChoice::Auto, None, set("xterm"), Paint::Colors),
            (ColorChoice::Auto, set("1"), set("xterm"), Paint::Plain),
            (ColorChoice::Auto, set(""), set("xterm"), Paint::Colors),
            (ColorChoice::Auto, None, set("dumb"), Paint::Plain),
            (ColorChoice::Auto, None, None, Paint::Colors),
            (ColorChoice::Always, set("1"), set("dumb"), Paint::Colors),
            (ColorChoice::Never, None, set("xterm"), Paint::Plain),
        ] {
            assert_eq!(choice.on_terminal(no_color, term), expected, "{choice:?} {no_color:?} {term:?}");
        }
        for (choice, expected) in [
            (ColorChoice::Auto, Paint::Plain),
            (ColorChoice::Always, Paint::Colors),
            (ColorChoice::Never, Paint::Plain),
        ] {
            assert_eq!(choice.elsewhere(), expected, "{choice:?}");
        }
    }
}
