//! A record as a JUnit report: a test case for each row. Missing and failed rows are errors, wrong data is a failure. Whether a
//! row is fast enough is decided by the gate.

use super::row::Status;
use super::text::visible;
use super::view::View;
use commgauge_base::error::{Error, Result};
use quick_junit::{NonSuccessKind, Property, Report, TestCase, TestCaseStatus, TestSuite};

/// The report.
pub(super) fn text(view: &View) -> Result<String> {
    let mut suite = TestSuite::new("commgauge");
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
        let mut case = TestCase::new(visible(&row.facts.name), status(row));
        case.set_classname(format!("{}.{}", row.facts.axis, row.facts.collective));
        suite.add_test_case(case);
    }
    // A failed run must show up where only failures are read.
    let code = view.exit_code();
    let mut status = TestCaseStatus::success();
    if code != 0 {
        status = TestCaseStatus::non_success(NonSuccessKind::Error);
        status.set_message(visible(&view.summary())).set_type(format!("exit code {code}"));
    }
    suite.add_test_case(TestCase::new("record", status));
    let mut report = Report::new(visible(&format!("{}: {}", view.header.suite.name, view.summary())));
    report.add_test_suite(suite);
    report.to_string().map_err(|cause| Error::environment(format!("cannot write the report as XML: {cause}")))
}

fn status(row: &super::Row) -> TestCaseStatus {
    let with_reason = |mut status: TestCaseStatus| {
        status.set_message(visible(&row.status.to_string()));
        status
    };
    match &row.status {
        Status::Verified if row.is_incomplete() => {
            let mut status = TestCaseStatus::non_success(NonSuccessKind::Error);
            status.set_message(format!("{} of {} replicates measured", row.replicates, row.replicates_planned));
            status
        }
        Status::Verified => TestCaseStatus::success(),
        // None of these shows that data is correct.
        Status::Skipped(_) | Status::Synthetic | Status::NotVerified => with_reason(TestCaseStatus::skipped()),
        Status::Wrong { .. } => with_reason(TestCaseStatus::non_success(NonSuccessKind::Failure)),
        Status::Failed(_) | Status::Missing => with_reason(TestCaseStatus::non_success(NonSuccessKind::Error)),
    }
}
