//! A record as a JUnit report: a test case for each row. Skipped stays skipped, missing and failed are errors, wrong data a failure.
//! Whether a row is fast enough is not its business: that is the gate's.

use super::row::Status;
use super::text::visible;
use super::view::View;
use crate::error::{Error, Result};
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
    for doubt in &view.doubts {
        suite.add_property(Property::new("warning", visible(doubt)));
    }
    for row in &view.rows {
        let mut case = TestCase::new(visible(&row.facts.name), status(row));
        case.set_classname(format!("{}.{}", row.facts.axis, row.facts.collective));
        suite.add_test_case(case);
    }
    // However the run ended must be seen where only the failures are looked at.
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
    let told = |mut status: TestCaseStatus| {
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
        // Neither shows that data arrives right.
        Status::Skipped(_) | Status::Synthetic | Status::NotVerified => told(TestCaseStatus::skipped()),
        Status::Wrong { .. } => told(TestCaseStatus::non_success(NonSuccessKind::Failure)),
        Status::Failed(_) | Status::Missing => told(TestCaseStatus::non_success(NonSuccessKind::Error)),
    }
}
