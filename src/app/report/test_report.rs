//! What every report in JUnit's XML shares: rows as test cases, and the text that Jenkins' schema accepts.

use super::text::visible;
use commgauge_base::error::{Error, Result};
use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

/// The one suite of a report.
pub(super) fn suite() -> TestSuite {
    TestSuite::new("commgauge")
}

/// A test case that did not succeed, with the reason and a word for its kind.
pub(super) fn non_success(kind: NonSuccessKind, message: &str, word: impl Into<String>) -> TestCaseStatus {
    let mut status = TestCaseStatus::non_success(kind);
    status.set_message(visible(message)).set_type(word.into());
    status
}

/// A skipped test case with the reason.
pub(super) fn skipped(message: &str) -> TestCaseStatus {
    let mut status = TestCaseStatus::skipped();
    status.set_message(visible(message));
    status
}

/// A test case of a class, by its name.
pub(super) fn case(class: &str, name: &str, status: TestCaseStatus) -> TestCase {
    let mut case = TestCase::new(visible(name), status);
    case.set_classname(visible(class));
    case
}

/// The text of a report with one suite. Only the suite says how many cases were skipped, as Jenkins' junit-10.xsd has it. Text
/// within attributes has no plain quotes, so that nothing else can be meant.
///
/// # Errors
/// Where it cannot be written as XML.
pub(super) fn text(name: &str, suite: TestSuite) -> Result<String> {
    let mut report = Report::new(visible(name));
    report.add_test_suite(suite);
    match report.to_string() {
        Ok(text) => {
            let (whole, suites) = text.split_once("<testsuite ").unwrap_or((&text, ""));
            let whole = match whole.split_once(" skipped=\"") {
                Some((before, after)) => before.to_owned() + after.split_once('"').map_or("", |(_, rest)| rest),
                None => whole.to_owned(),
            };
            Ok(format!("{whole}<testsuite {suites}"))
        }
        Err(cause) => Err(Error::environment(format!("cannot write a test report as XML: {cause}"))),
    }
}
