//! The verdict as a JUnit report: a test case for each row. Rows that were not judged are skipped, rows that could not
//! be judged are errors, and failed rows are failures. Troubles of the records are test cases of their own.

use super::words::{coverage, headline, reasons};
use crate::report::document::signed_percent;
use crate::report::test_report::{case, non_success, skipped, suite, text as xml};
use crate::report::text::visible;
use commgauge_analysis::verdict::{CurveChange, Decision, Finding, Row, Trouble, Verdict};
use commgauge_base::error::Result;
use quick_junit::{NonSuccessKind, Property, TestCase, TestCaseStatus};

/// The report.
pub(super) fn text(verdict: &Verdict) -> Result<String> {
    let mut suite = suite();
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
    xml(&headline(verdict), suite)
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
    let status = match trouble.exit_code {
        0 => skipped(&trouble.text),
        code => non_success(NonSuccessKind::Error, &trouble.text, format!("exit code {code}")),
    };
    case("record", "record", status)
}

fn of_row(row: &Row) -> TestCase {
    let status = match row.decision {
        None => skipped("not judged"),
        Some(Decision::Pass) => TestCaseStatus::success(),
        Some(bad) => {
            let kind = if bad == Decision::Fail { NonSuccessKind::Failure } else { NonSuccessKind::Error };
            non_success(kind, &reasons(row), bad.name())
        }
    };
    case(&format!("{}.{}", row.subject.axis(), row.subject.what()), &row.full_name(), status)
}

fn of_finding(finding: &Finding) -> TestCase {
    let kind = if finding.certain { NonSuccessKind::Failure } else { NonSuccessKind::Error };
    let name = finding.cases.first().map_or("", String::as_str);
    case("self-consistency", name, non_success(kind, &finding.text, finding.guideline.name()))
}

fn of_curve(curve: &CurveChange) -> TestCase {
    let status = match curve.worse {
        false => TestCaseStatus::success(),
        true => {
            let message = format!("{} got worse by {}", curve.part.name(), signed_percent(curve.slowdown));
            non_success(NonSuccessKind::Failure, &message, "slower")
        }
    };
    case("curve", &format!("{}: {}", curve.name, curve.part.name()), status)
}
