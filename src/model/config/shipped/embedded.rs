//! The files of `suites/` within the program: their paths and their text.

use include_dir::{Dir, include_dir};
use std::path::Path;

/// `suites/` of the source tree, as it was when the program was built.
pub(super) static EMBEDDED: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../suites");

/// Prefix of the path of an embedded file.
pub(super) const EMBEDDED_ROOT: &str = "embedded:suites";

/// Whether a path, as records and messages have it, is that of an embedded file.
pub fn is_embedded(path: &str) -> bool {
    path.starts_with(EMBEDDED_ROOT)
}

pub(super) fn embedded_text(path: &Path) -> Option<&'static str> {
    EMBEDDED.get_file(path.strip_prefix(EMBEDDED_ROOT).ok()?)?.contents_utf8()
}
