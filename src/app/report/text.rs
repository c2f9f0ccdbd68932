//! Escaping of text from records, wrapping of paragraphs, and documents as comma-separated values.

use commgauge_base::error::{Error, Result};
use commgauge_base::visible;
use commgauge_base::writing::CommaSeparated;
use serde::Serialize;
use serde_json::{Map, Value};
use std::ffi::OsStr;
use std::io::ErrorKind;
use unicode_width::UnicodeWidthStr;

/// The text on one line, as [`visible::visible`] has it.
pub(crate) fn visible(text: &str) -> String {
    visible::visible(text).into_owned()
}

/// A text from a record, for CSV, escaped so that no spreadsheet takes it for a formula.
pub(super) fn harmless(text: &str) -> String {
    let shown = visible(text);
    if shown.starts_with(['=', '+', '-', '@']) { format!("'{shown}") } else { shown }
}

/// A call, a copy or a matrix product as one flat object; `null` where a key does not apply.
pub(crate) type Line = Map<String, Value>;

/// A value with fields as an object.
pub(crate) fn object(fields: &impl Serialize) -> Result<Line> {
    match serde_json::to_value(fields) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(other) => Err(Error::environment(format!("cannot write the report: {other} has no fields"))),
        Err(cause) => Err(Error::environment(format!("cannot write the report: {cause}"))),
    }
}

/// The end of writing an answer: a reader that closes the pipe early (`| head`) ends it without an error.
pub(crate) fn written(result: std::io::Result<()>, what: &str) -> Result<()> {
    match result {
        Err(cause) if cause.kind() != ErrorKind::BrokenPipe => {
            Err(Error::environment(format!("cannot write {what}: {cause}")))
        }
        _ => Ok(()),
    }
}

/// A document as JSON without control characters for terminals.
pub(crate) fn pretty_json(document: &impl Serialize) -> Result<String> {
    let text = serde_json::to_string_pretty(document)
        .map_err(|cause| Error::environment(format!("cannot write the answer as JSON: {cause}")))?;
    Ok(visible::visible_json(&text).into_owned() + "\n")
}

/// Rows of a document as CSV. A column is the name of a field, or `name=field/field` for one of a nested object; blanks are between them.
///
/// # Errors
/// As [`CommaSeparated::new`].
pub(super) fn fields_csv<T: Serialize>(
    what: &'static str,
    columns: &str,
    rows: impl IntoIterator<Item = T>,
) -> Result<String> {
    let columns = columns.split_whitespace().map(|column| column.split_once('=').unwrap_or((column, column)));
    let columns: Vec<(&str, String)> = columns.map(|(name, field)| (name, format!("/{field}"))).collect();
    let mut text = CommaSeparated::new(what, columns.iter().map(|(name, _)| name))?;
    for row in rows {
        let row =
            serde_json::to_value(row).map_err(|cause| Error::environment(format!("cannot write {what}: {cause}")))?;
        text.row(columns.iter().map(|(_, pointer)| match row.pointer(pointer) {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(Value::Number(number)) if number.is_f64() => format!("{:e}", number.as_f64().unwrap_or(f64::NAN)),
            Some(other) => other.to_string(),
        }))?;
    }
    text.finish()
}

/// Columns that a text takes on a terminal, where letters of some scripts take two.
pub(super) fn text_width(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { text.width() }
}

/// The text broken between words to lines of at most `width` columns. Longer words get a line of their own, so
/// that they can be copied. Lines after the first are indented by `indent`.
pub(crate) fn wrap(text: &str, width: usize, indent: usize) -> String {
    hung("", text, width, indent)
}

/// The same after a lead, which is never separated from the first word.
pub(super) fn hung(lead: &str, text: &str, width: usize, indent: usize) -> String {
    let mut wrapped = lead.to_owned();
    let mut column = text_width(lead);
    for (index, word) in text.split(' ').filter(|word| !word.is_empty()).enumerate() {
        let length = text_width(word);
        if index > 0 && column + 1 + length > width {
            wrapped.push('\n');
            wrapped.extend(std::iter::repeat_n(' ', indent));
            column = indent;
        } else if index > 0 {
            wrapped.push(' ');
            column += 1;
        }
        wrapped += word;
        column += length;
    }
    wrapped
}

// Terminal colours, and when to use them.
//
// Without colour no escape character is ever written, whatever the record contains.

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

    /// For letters in one of the eight basic colours.
    pub fn colored(self, color: u8, text: &str) -> String {
        match self {
            Paint::Plain => text.to_owned(),
            Paint::Colors => format!("\x1b[3{color}m{text}\x1b[39m"),
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
    fn words_are_wrapped_but_never_cut() {
        assert_eq!(wrap("one two three four", 9, 2), "one two\n  three\n  four");
        assert_eq!(wrap("a very-long-word-indeed b", 6, 0), "a\nvery-long-word-indeed\nb");
        assert_eq!(wrap("", 9, 2), "");
    }

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
