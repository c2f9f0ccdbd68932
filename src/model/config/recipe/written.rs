//! A setting as a recipe has it, and what its text alone says.

use crate::config::document::Place;

/// A setting as the recipe has it.
#[derive(Clone, Debug)]
pub(super) struct Written {
    /// Its name; dotted where it is within others.
    pub key: String,
    pub text: String,
    pub place: Place,
}

/// Why a text is not the value itself.
pub(super) fn why_not_followed(text: &str) -> Option<&'static str> {
    if text.contains("$((") {
        Some("which is arithmetic of the shell")
    } else if text.contains("$(") || text.contains('`') {
        Some("which a command prints, and nothing is executed")
    } else if text.contains('$') {
        Some("which no plain assignment outside of a branch sets")
    } else if text.starts_with(['&', '*']) {
        Some("an anchor of YAML, which is not followed")
    } else {
        None
    }
}

/// Whether a setting says nothing.
pub(super) fn is_absent(text: &str) -> bool {
    ["", "null", "None", "~"].contains(&text)
}

/// Whether a setting switches off what it is about.
pub(super) fn is_off(text: &str) -> bool {
    is_absent(text) || ["false", "no", "off", "none", "0", "1", "-1"].contains(&text.to_lowercase().as_str())
}
