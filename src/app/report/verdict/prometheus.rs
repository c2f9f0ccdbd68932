//! The verdict as a text file for the collector of Prometheus' node exporter: no time stamps, one line for each judged row.

use super::super::prometheus::{RowLabels, label, line, metric};
use commgauge_analysis::verdict::{Metric, Row, Verdict};

/// The file.
pub(super) fn text(verdict: &Verdict) -> String {
    let question = verdict.question.name();
    let coverage = &verdict.coverage;
    let mut out = String::new();
    metric(&mut out, "commgauge_verdict_info", "Which runs were judged.");
    for run in &verdict.runs {
        let labels = [
            label("question", question),
            label("role", &run.role),
            label("run_id", &run.run_id),
            label("suite", &run.suite),
        ];
        line(&mut out, "commgauge_verdict_info", &labels, 1.0);
    }
    metric(&mut out, "commgauge_verdict_exit_code", "Exit code of the verdict; 0 is a pass.");
    line(&mut out, "commgauge_verdict_exit_code", &[label("question", question)], f64::from(verdict.exit_code));
    metric(&mut out, "commgauge_verdict_rows", "Rows of the plan by what came of them.");
    for (decision, count) in [
        ("pass", coverage.rows_passed),
        ("fail", coverage.rows_failed),
        ("inconclusive", coverage.rows_inconclusive),
        ("not_judged", coverage.rows_not_judged),
    ] {
        line(
            &mut out,
            "commgauge_verdict_rows",
            &[label("decision", decision), label("question", question)],
            f64::from(count),
        );
    }
    metric(&mut out, "commgauge_verdict_row_passed", "1 where a judged row passed, else 0.");
    for (row, decision) in verdict.rows.iter().filter_map(|row| Some((row, row.decision?))) {
        let passed = f64::from(u8::from(decision == commgauge_analysis::verdict::Decision::Pass));
        let further = [label("decision", decision.name()), label("question", question)];
        labels(verdict, row).line(&mut out, "commgauge_verdict_row_passed", &further, passed);
    }
    measured(&mut out, verdict);
    beyond_rows(&mut out, verdict);
    out
}

fn labels<'a>(verdict: &'a Verdict, row: &'a Row) -> RowLabels<'a> {
    // Runs that are judged together are of one suite and backend.
    let run = verdict.runs.last();
    RowLabels {
        case: &row.name,
        subject: &row.subject,
        suite: run.map_or("", |run| &run.suite),
        machine: verdict.machine.as_deref().unwrap_or(""),
        backend: run.map_or("", |run| &run.backend),
        hosts: row.hosts.as_deref(),
    }
}

/// Violations of self-consistency, and changes of whole curves.
fn beyond_rows(out: &mut String, verdict: &Verdict) {
    if !verdict.findings.is_empty() {
        metric(
            out,
            "commgauge_verdict_times_allowed_ratio",
            "Time of a call over what a rule of self-consistency allows.",
        );
    }
    for finding in &verdict.findings {
        let case = finding.cases.first().map_or("", String::as_str);
        let certain = if finding.certain { "true" } else { "false" };
        let labels = [label("case", case), label("guideline", finding.guideline.name()), label("certain", certain)];
        line(out, "commgauge_verdict_times_allowed_ratio", &labels, finding.times_allowed);
    }
    if !verdict.curves.is_empty() {
        metric(out, "commgauge_verdict_curve_slowdown_ratio", "Share by which alpha or beta of a curve got worse.");
    }
    for curve in &verdict.curves {
        let labels = [label("curve", &curve.name), label("part", curve.part.name())];
        line(out, "commgauge_verdict_curve_slowdown_ratio", &labels, curve.slowdown);
    }
}

fn measured(out: &mut String, verdict: &Verdict) {
    let rows = &verdict.rows;
    for (wanted, name, help) in [
        (Metric::BusBandwidthBytesPerSecond, "bus_bandwidth_bytes_per_second", "bus bandwidth"),
        (Metric::LatencySeconds, "latency_seconds", "latency"),
        (Metric::CopyBytesPerSecond, "copy_bytes_per_second", "rate in each direction of the slowest rank"),
        (Metric::FlopsPerSecond, "flops_per_second", "rate of the slowest rank"),
    ] {
        let about: Vec<_> = rows
            .iter()
            .filter_map(|row| Some((row, row.against_limit.as_ref().filter(|against| against.metric == wanted)?)))
            .collect();
        if about.is_empty() {
            continue;
        }
        let (median, limit) = (format!("commgauge_verdict_row_{name}"), format!("commgauge_verdict_row_{name}_limit"));
        metric(out, &median, &format!("Median {help} of the replicates of a judged row."));
        for (row, against) in &about {
            if let Some(number) = against.median {
                labels(verdict, row).line(out, &median, &[], number);
            }
        }
        metric(out, &limit, &format!("Limit of the {help} of a judged row."));
        for (row, against) in &about {
            labels(verdict, row).line(out, &limit, &[], against.limit);
        }
    }
    let slower: Vec<_> = rows.iter().filter_map(|row| Some((row, row.against_base.as_ref()?.slowdown?))).collect();
    if !slower.is_empty() {
        metric(out, "commgauge_verdict_row_slowdown_ratio", "Share by which a row is slower than in the base.");
    }
    for (row, slowdown) in slower {
        labels(verdict, row).line(out, "commgauge_verdict_row_slowdown_ratio", &[], slowdown);
    }
}
