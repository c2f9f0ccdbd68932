//! Annotations as workflows of GitHub print them: one line each, of which GitHub shows the first ten of each level.
//!
//! The form and its escapes: docs.github.com, "Workflow commands for GitHub Actions", and `escapeData` and `escapeProperty` in
//! `packages/core/src/command.ts` of actions/toolkit.

use super::text::visible;

/// How grave an annotation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    /// Fails where the job does.
    Error,
    /// Is to be looked at.
    Warning,
    /// Is good to know.
    Notice,
}

/// A line that GitHub shows as an annotation.
pub(super) fn annotation(level: Level, title: &str, text: &str) -> String {
    let level = match level {
        Level::Error => "error",
        Level::Warning => "warning",
        Level::Notice => "notice",
    };
    let title = escaped(title).replace(':', "%3A").replace(',', "%2C");
    format!("::{level} title={title}::{}\n", escaped(text))
}

fn escaped(text: &str) -> String {
    visible(text).replace('%', "%25")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_annotation_stays_on_its_line_and_keeps_its_title() {
        let line = annotation(Level::Warning, "gate: 1, 2", "50 %\r\n::error::\u{1b}[31mno");
        assert_eq!(line, "::warning title=gate%3A 1%2C 2::50 %25\\r\\n::error::\\u{1b}[31mno\n");
    }
}
