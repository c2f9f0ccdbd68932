//! A record as a JUnit report: a test case for each call, copy and matrix product. Missing and failed rows are errors, wrong data is a failure. Whether a
//! row is fast enough is decided by the gate.

use super::entry::Entry;
use super::status::Status;
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
    for entry in view.entries() {
        let class = format!("{}.{}", entry.subject.axis(), entry.subject.what());
        let mut case = case(&class, &entry.name, status(&entry));
        case.set_time(measured(&entry));
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

/// The time that the timed calls of an entry took together.
fn measured(entry: &Entry) -> Duration {
    let seconds = entry.latency.map_or(0.0, |latency| latency.median.0 * entry.counts.repetitions as f64);
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}

fn status(entry: &Entry) -> TestCaseStatus {
    let reason = entry.status.to_string();
    let bad = |kind| non_success(kind, &reason, entry.status.label());
    match entry.status.as_ref() {
        Status::Verified if entry.is_incomplete() => {
            let message =
                format!("{} of {} replicates measured", entry.counts.replicates, entry.counts.replicates_planned);
            non_success(NonSuccessKind::Error, &message, "incomplete")
        }
        Status::Verified => TestCaseStatus::success(),
        // None of these shows that data is correct.
        Status::Skipped(_) | Status::Synthetic | Status::NotVerified => skipped(&reason),
        Status::Wrong { .. } => bad(NonSuccessKind::Failure),
        Status::Failed(_) | Status::Missing => bad(NonSuccessKind::Error),
    }
}
