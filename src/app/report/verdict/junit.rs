//! The verdict as a JUnit report: a test case for each row. Rows that were not judged are skipped, rows that could not
//! be judged are errors, and failed rows are failures. Troubles of the records are test cases of their own.

use super::{coverage, headline, reasons};
use crate::report::document::signed_percent;
use crate::report::text::visible;
use commgauge_analysis::verdict::{CurveChange, Decision, Finding, Row, Trouble, Verdict};
use commgauge_base::error::{Error, Result};
use quick_junit::{NonSuccessKind, Property, Report, TestCase, TestCaseStatus, TestSuite};

/// The report.
pub(super) fn text(verdict: &Verdict) -> Result<String> {
    let mut suite = TestSuite::new("commgauge");
    for (name, value) in properties(verdict) {
        suite.add_property(Property::new(visible(&name), visible(&value)));
    }
    for trouble in &verdict.troubles {
        suite.add_test_case(of_trouble(trouble));
    }
    for row in &verdict.rows {
        suite.add_test_case(of_row(row));
    }
    suite.add_test_cases(verdict.findings.iter().map(of_finding));
    suite.add_test_cases(verdict.curves.iter().map(of_curve));
    let mut report = Report::new(visible(&headline(verdict)));
    report.add_test_suite(suite);
    report.to_string().map_err(|cause| Error::environment(format!("cannot write the verdict as XML: {cause}")))
}

fn properties(verdict: &Verdict) -> Vec<(String, String)> {
    let mut properties = vec![("verdict".to_owned(), headline(verdict))];
    properties.extend(coverage(verdict).into_iter().map(|sentence| ("coverage".to_owned(), sentence)));
    properties.extend(verdict.rule.iter().map(|rule| ("rule".to_owned(), rule.clone())));
    properties.extend(verdict.machine.iter().map(|machine| ("machine".to_owned(), machine.clone())));
    properties.extend(verdict.runs.iter().map(|run| (run.role.clone(), format!("{} ({})", run.run_id, run.path))));
    properties
}

fn of_trouble(trouble: &Trouble) -> TestCase {
    let mut status = TestCaseStatus::non_success(NonSuccessKind::Error);
    status.set_message(visible(&trouble.text)).set_type(format!("exit code {}", trouble.exit_code));
    TestCase::new("record", status)
}

fn of_row(row: &Row) -> TestCase {
    let status = match row.decision {
        None => {
            let mut skipped = TestCaseStatus::skipped();
            skipped.set_message("not judged");
            skipped
        }
        Some(Decision::Pass) => TestCaseStatus::success(),
        Some(bad) => {
            let kind = if bad == Decision::Fail { NonSuccessKind::Failure } else { NonSuccessKind::Error };
            let mut status = TestCaseStatus::non_success(kind);
            status.set_message(reasons(row)).set_type(bad.name());
            status
        }
    };
    let mut case = TestCase::new(visible(&row.name), status);
    case.set_classname(format!("{}.{}", row.axis, row.collective));
    case
}

fn of_finding(finding: &Finding) -> TestCase {
    let kind = if finding.certain { NonSuccessKind::Failure } else { NonSuccessKind::Error };
    let mut status = TestCaseStatus::non_success(kind);
    status.set_message(visible(&finding.text)).set_type(finding.guideline.name());
    let mut case = TestCase::new(visible(finding.cases.first().map_or("", String::as_str)), status);
    case.set_classname("self-consistency");
    case
}

fn of_curve(curve: &CurveChange) -> TestCase {
    let status = match curve.worse {
        false => TestCaseStatus::success(),
        true => {
            let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
            status.set_message(format!("{} got worse by {}", curve.part.name(), signed_percent(curve.slowdown)));
            status
        }
    };
    let mut case = TestCase::new(visible(&format!("{}: {}", curve.name, curve.part.name())), status);
    case.set_classname("curve");
    case
}
