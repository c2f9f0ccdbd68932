//! Escaping of text from records, and wrapping of paragraphs.

use unicode_width::UnicodeWidthStr;

/// The text on one line, with control characters, line breaks, bidirectional controls and zero-width characters written out.
pub(crate) fn visible(text: &str) -> String {
    if !text.chars().any(is_control_or_format) {
        return text.to_owned();
    }
    text.chars().map(|c| if is_control_or_format(c) { c.escape_default().to_string() } else { c.to_string() }).collect()
}

/// A text from a record, for CSV, escaped so that no spreadsheet takes it for a formula.
pub(super) fn harmless(text: &str) -> String {
    let shown = visible(text);
    if shown.starts_with(['=', '+', '-', '@']) { format!("'{shown}") } else { shown }
}

/// True for control and format characters, which are not visible themselves.
pub(super) fn is_control_or_format(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_control_character_is_passed_on() {
        for (text, shown) in [
            ("node-a", "node-a"),
            ("naïve 東", "naïve 東"),
            ("a\x1b[31mb", "a\\u{1b}[31mb"),
            ("a\nb\tc\r", "a\\nb\\tc\\r"),
            ("\u{9b}x\u{202e}y\u{200b}", "\\u{9b}x\\u{202e}y\\u{200b}"),
        ] {
            assert_eq!(visible(text), shown);
        }
    }

    #[test]
    fn words_are_wrapped_but_never_cut() {
        assert_eq!(wrap("one two three four", 9, 2), "one two\n  three\n  four");
        assert_eq!(wrap("a very-long-word-indeed b", 6, 0), "a\nvery-long-word-indeed\nb");
        assert_eq!(wrap("", 9, 2), "");
    }
}
