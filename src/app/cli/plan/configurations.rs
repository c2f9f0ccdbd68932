//! A file of configurations to be priced: a line for each, written as for `--only`.

use super::none_found::none_found;
use super::only;
use commgauge_analysis::planner::search::{Found, Question, search};
use commgauge_base::error::{Error, Result};
use commgauge_base::visible::ShownPath;
use std::path::Path;

/// The fastest layout of every line, ordered by time.
///
/// # Errors
/// A file that cannot be read or is empty; a line that cannot be parsed, or that leaves no layout with a price.
pub(super) fn priced(question: &Question, path: &Path) -> Result<Found> {
    let file = path.shown();
    let text = commgauge_base::input_file::read_to_string(path)
        .map_err(|cause| Error::usage(format!("--configurations {file}: cannot be read: {cause}")))?;
    let mut all = Found::default();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong = |problem: String| Error::usage(format!("--configurations {file}: line {number}: {problem}"));
        let only = only::parse(line).map_err(wrong)?;
        let asked = Question { only, wanted: 1, ..question.clone() };
        let found = search(&asked);
        if found.best.is_empty() {
            return Err(wrong(none_found(&asked, &found)));
        }
        all.add(found);
    }
    all.best.sort_by(|a, b| a.price.step_seconds.total_cmp(&b.price.step_seconds));
    if all.best.is_empty() {
        Err(Error::usage(format!("--configurations {file}: there is no line in it")))
    } else {
        Ok(all)
    }
}
