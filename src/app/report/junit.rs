//! A record as a JUnit report: a test case for each row. Missing and failed rows are errors, wrong data is a failure. Whether a
//! row is fast enough is decided by the gate.

use super::row::Status;
use super::test_report::{case, non_success, skipped, suite, text as xml};
use super::text::visible;
use super::view::View;
use commgauge_base::error::Result;
use quick_junit::{NonSuccessKind, Property, TestCaseStatus};
use std::time::Duration;

/// The report.
pub(super) fn text(view: &View) -> Result<String> {
    let mut suite = suite();
    for (name, value) in &view.provenance {
        suite.add_property(Property::new(*name, visible(value)));
    }
    if view.header.backend.synthetic {
        suite.add_property(Property::new("synthetic", "no data moved and no real time passed"));
    }
    for warning in &view.warnings {
        suite.add_property(Property::new("warning", visible(warning)));
    }
    for row in &view.rows {
        let mut case = case(&format!("{}.{}", row.facts.axis, row.facts.collective), &row.facts.name, status(row));
        case.set_time(measured(row));
        suite.add_test_case(case);
    }
    // A failed run must show up where only failures are read.
    let code = view.exit_code();
    let mut status = TestCaseStatus::success();
    if code != 0 {
        status = non_success(NonSuccessKind::Error, &view.summary(), format!("exit code {code}"));
    }
    suite.add_test_case(case("record", "record", status));
    xml(&format!("{}: {}", view.header.suite.name, view.summary()), suite)
}

/// The time that the timed calls of a row took together.
fn measured(row: &super::Row) -> Duration {
    let seconds = row.latency.map_or(0.0, |latency| latency.median.0 * row.calls as f64);
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}

fn status(row: &super::Row) -> TestCaseStatus {
    let reason = row.status.to_string();
    let bad = |kind| non_success(kind, &reason, row.status.label());
    match &row.status {
        Status::Verified if row.is_incomplete() => {
            let message = format!("{} of {} replicates measured", row.replicates, row.replicates_planned);
            non_success(NonSuccessKind::Error, &message, "incomplete")
        }
        Status::Verified => TestCaseStatus::success(),
        // None of these shows that data is correct.
        Status::Skipped(_) | Status::Synthetic | Status::NotVerified => skipped(&reason),
        Status::Wrong { .. } => bad(NonSuccessKind::Failure),
        Status::Failed(_) | Status::Missing => bad(NonSuccessKind::Error),
    }
}
