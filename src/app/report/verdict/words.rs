//! The sentences and words of a verdict that all of its formats share.

use crate::report::flops_unit::FlopsUnit;
use crate::report::text::visible;
use commgauge_analysis::verdict::{Coverage, Metric, Question, Row, Verdict};
use commgauge_base::units::{Rate, Seconds};

/// The first line: the question, the answer and its exit code.
pub(super) fn headline(verdict: &Verdict) -> String {
    let what = verdict.question.name();
    let judged = if verdict.question == Question::Gate { format!("; {}", thresholds(verdict)) } else { String::new() };
    format!("{what}: {} (exit code {}){judged}", verdict.decision.name().to_uppercase(), verdict.exit_code)
}

/// How many limits of the machine file the verdict rests on.
pub(in crate::report) fn thresholds(verdict: &Verdict) -> String {
    let c = &verdict.coverage;
    let missing = c.expectations.saturating_sub(c.expectations_judged);
    format!("{} of {} thresholds judged, {missing} not measured", c.expectations_judged, c.expectations)
}

/// The coverage, as sentences.
pub(in crate::report) fn coverage(verdict: &Verdict) -> Vec<String> {
    let c = &verdict.coverage;
    if verdict.question == Question::Consistency {
        let certain = verdict.findings.iter().filter(|finding| finding.certain).count();
        let found = verdict.findings.len();
        return vec![format!(
            "{} rows; {certain} findings beyond chance, {} that may be chance",
            c.rows,
            found - certain
        )];
    }
    let rows = format!(
        "coverage: {} of {} rows judged: {} passed, {} failed, {} inconclusive; {} not judged",
        c.rows_judged, c.rows, c.rows_passed, c.rows_failed, c.rows_inconclusive, c.rows_not_judged
    );
    let replicates =
        format!("replicates of judged rows: {} of {} measured", c.replicates_measured, c.replicates_planned);
    [rows].into_iter().chain(network(c)).chain([replicates]).collect()
}

/// Whether the network was judged; nothing where that was not asked.
fn network(c: &Coverage) -> Option<String> {
    Some(match (c.nodes, c.rows_judged_between_nodes) {
        (0, _) => return None,
        (1, _) => "network: not judged, since the run is of one node".to_owned(),
        (nodes, 0) => format!("network: NOT JUDGED: no judged row is between the {nodes} nodes"),
        (nodes, rows) => format!("network: {rows} of the judged rows are between the {nodes} nodes"),
    })
}

/// A row's decision in a word.
pub(in crate::report) fn decision(row: &Row) -> &'static str {
    row.decision.map_or("not judged", |decision| decision.name())
}

/// A value of a limit with its unit.
pub(in crate::report) fn value(metric: Metric, value: f64) -> String {
    match metric {
        Metric::BusBandwidthBytesPerSecond => Rate(value).to_string(),
        Metric::LatencySeconds => Seconds(value).to_string(),
        Metric::CopyBytesPerSecond => Rate(value).to_string(),
        Metric::FlopsPerSecond => flops(value),
    }
}

/// A rate of computing in the unit that fits it.
fn flops(per_second: f64) -> String {
    let unit = FlopsUnit::of(per_second);
    format!("{} {}", unit.number(per_second), unit.name())
}

/// Reasons joined into one escaped text.
pub(super) fn reasons(row: &Row) -> String {
    visible(&row.reasons.join("; "))
}
