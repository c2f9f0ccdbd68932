//! The history as a JUnit report: a test case for each row, which fails where the row is slower since its last change.

use crate::report::document::signed_percent;
use crate::report::test_report::{case, non_success, skipped, suite, text as xml};
use commgauge_analysis::verdict::history::{History, Lineage, Series};
use commgauge_base::error::Result;
use commgauge_base::units::counted;
use quick_junit::{NonSuccessKind, TestCase, TestCaseStatus};

pub(super) fn text(history: &History) -> Result<String> {
    let mut suite = suite();
    for lineage in &history.lineages {
        suite.add_test_cases(lineage.rows.iter().map(|row| of_row(lineage, row)));
    }
    for file in &history.left_out {
        suite.add_test_case(case("left out", &file.path, skipped(&file.reason)));
    }
    if history.exit_code == 3 {
        let message = "too few runs to find any change";
        suite.add_test_case(case("history", "runs", non_success(NonSuccessKind::Error, message, "exit code 3")));
    }
    let runs: usize = history.lineages.iter().map(|lineage| lineage.runs.len()).sum();
    xml(&format!("history of {}", counted(runs, "run")), suite)
}

fn of_row(lineage: &Lineage, row: &Series) -> TestCase {
    let class = format!("{}.{}.{}", lineage.suite, row.subject.axis(), row.subject.what());
    let status = match row.slower_since() {
        Some(change) => {
            let message = format!("{} time since {}", signed_percent(change.slowdown), lineage.run_and_why(change.run));
            non_success(NonSuccessKind::Failure, &message, "slower")
        }
        None if row.latency_seconds.last().copied().flatten().is_none() => skipped("the newest run did not measure it"),
        None if !row.can_show_change() => skipped("it counts in too few runs for a change to be found"),
        None => TestCaseStatus::success(),
    };
    case(&class, &row.name, status)
}
