//! The verdict as annotations of a GitHub workflow: troubles first, then the rows that did not pass, the worst first.

use super::words::{headline, reasons};
use crate::report::github::{Level, annotation};
use commgauge_analysis::verdict::{Decision, Row, Verdict};
use std::cmp::Reverse;

/// The annotations; the last one is the answer.
pub(super) fn text(verdict: &Verdict) -> String {
    let title = format!("commgauge {}", verdict.question.name());
    let mut out = String::new();
    for trouble in &verdict.troubles {
        let level = if trouble.exit_code == 0 { Level::Warning } else { Level::Error };
        out += &annotation(level, &title, &trouble.text);
    }
    let decided = |row: &&Row| row.decision.is_some_and(|decision| decision != Decision::Pass);
    let mut rows: Vec<&Row> = verdict.rows.iter().filter(decided).collect();
    rows.sort_by_key(|row| Reverse(row.decision));
    for row in rows {
        let level = if row.decision == Some(Decision::Inconclusive) { Level::Warning } else { Level::Error };
        out += &annotation(level, &format!("{title}: {}", row.full_name()), &reasons(row));
    }
    for finding in &verdict.findings {
        let level = if finding.certain { Level::Error } else { Level::Warning };
        out += &annotation(level, &title, &finding.text);
    }
    let level = match verdict.decision {
        Decision::Pass => Level::Notice,
        Decision::Inconclusive => Level::Warning,
        Decision::Fail | Decision::Error => Level::Error,
    };
    out + &annotation(level, &title, &headline(verdict))
}
