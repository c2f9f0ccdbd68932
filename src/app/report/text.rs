//! Escaping of text from records, and wrapping of paragraphs.

use commgauge_base::visible;
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
    fn words_are_wrapped_but_never_cut() {
        assert_eq!(wrap("one two three four", 9, 2), "one two\n  three\n  four");
        assert_eq!(wrap("a very-long-word-indeed b", 6, 0), "a\nvery-long-word-indeed\nb");
        assert_eq!(wrap("", 9, 2), "");
    }
}
