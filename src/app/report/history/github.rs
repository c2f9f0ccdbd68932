//! The history as annotations of a GitHub workflow: what is slower now first, then what became faster and what was left out.

use crate::report::document::signed_percent;
use crate::report::github::{Level, annotation};
use commgauge_analysis::verdict::history::{Change, History, Lineage, Series};

/// Files that are listed one by one.
const MAX_LEFT_OUT: usize = 10;

pub(super) fn text(history: &History) -> String {
    let of_rows = |lineage: &'_ Lineage| -> Vec<(f64, String)> {
        lineage.rows.iter().filter_map(|row| Some(of_change(lineage, row, row.changes.last()?))).collect()
    };
    let mut changed: Vec<(f64, String)> = history.lineages.iter().flat_map(of_rows).collect();
    changed.sort_by(|one, other| other.0.total_cmp(&one.0));
    let mut out: String = changed.into_iter().map(|(_, line)| line).collect();
    if history.exit_code == 3 {
        out += &annotation(Level::Warning, "commgauge history", "too few runs to find any change");
    }
    for file in history.left_out.iter().take(MAX_LEFT_OUT) {
        out += &annotation(Level::Warning, "commgauge history: left out", &format!("{}: {}", file.path, file.reason));
    }
    if history.left_out.len() > MAX_LEFT_OUT {
        let more = format!("{} more files are left out", history.left_out.len() - MAX_LEFT_OUT);
        out += &annotation(Level::Warning, "commgauge history: left out", &more);
    }
    if out.is_empty() {
        out += &annotation(Level::Notice, "commgauge history", "no row changed");
    }
    out
}

/// The slow-down, by which lines are sorted, and the line.
fn of_change(lineage: &Lineage, row: &Series, change: &Change) -> (f64, String) {
    let level = if change.slowdown > 0.0 { Level::Error } else { Level::Notice };
    let text = format!("{} time since {}", signed_percent(change.slowdown), lineage.run_and_why(change.run));
    (change.slowdown, annotation(level, &format!("commgauge history: {}", row.name), &text))
}
