//! The report as comma-separated values: one row for each call, copy and matrix product, and one for each pair where pairs were measured,
//! units in the column names, empty where there is no number.
//!
//! Spreadsheets evaluate cells that begin with `=`, `+`, `-` or `@`; such texts get a leading apostrophe, and control
//! characters are written out.

use self::test_report_text as xml;
use super::pairs::PairsView;
use super::row::{Entry, Late, Latency, Row, Status};
use super::text::{harmless, visible};
use super::view::View;
use commgauge_analysis::verdict::RowSubject;
use commgauge_base::collective::Placement;
use commgauge_base::error::{Error, Result};
use commgauge_base::stats::Interval;
use commgauge_base::units::{Rate, Seconds};
use commgauge_base::variant;
use commgauge_base::writing::{Column, CommaSeparated, cells, comma_separated, names};
use commgauge_model::layout::Axis;
use commgauge_model::workload::Style;
use quick_junit::{NonSuccessKind, Property, Report, TestCase, TestCaseStatus, TestSuite};
use serde_json::{Map, Number, Value};
use std::time::Duration;

/// The rows, with a row of names above them.
pub(super) fn csv_text(view: &View) -> Result<String> {
    let Some(pairs) = &view.pairs else { return of_cases(view) };
    match view.entries().all(|entry| is_pair(&entry)) {
        true => super::pairs::document::csv_text(pairs),
        false => of_cases_and_pairs(view, pairs),
    }
}

fn is_pair(entry: &Entry) -> bool {
    entry.row.is_some_and(|row| row.facts.axis == Axis::Pair)
}

fn of_cases(view: &View) -> Result<String> {
    comma_separated("the report as CSV", &columns(), rows(view))
}

/// The columns of cases, then those of pairs; each row leaves the other half empty.
fn of_cases_and_pairs(view: &View, pairs: &PairsView) -> Result<String> {
    let (of_cases, of_pairs) = (columns(), super::pairs::document::columns());
    let renamed = names(&of_pairs).map(|name| if name == "samples" { "pair_samples" } else { name });
    let mut text = CommaSeparated::new("the report as CSV", names(&of_cases).chain(renamed))?;
    for case in rows(view).filter(|case| !is_pair(&case.entry)) {
        text.row(cells(&of_cases, &case).chain(of_pairs.iter().map(|_| String::new())))?;
    }
    for pair in super::pairs::document::rows(pairs) {
        let own = names(&of_cases).map(|name| match name {
            "axis" => Axis::Pair.to_string(),
            "style" => Style::Pairs.name().to_owned(),
            "synthetic" => view.header.backend.synthetic.to_string(),
            "backend" => harmless(&view.header.backend.name),
            "world_size" => view.header.world_size.to_string(),
            "run_id" => harmless(&view.header.run_id),
            _ => String::new(),
        });
        text.row(own.chain(cells(&of_pairs, &pair)))?;
    }
    text.finish()
}

/// The spelling of records and JSON.
fn placement(placement: Placement) -> &'static str {
    match placement {
        Placement::InPlace => "in_place",
        Placement::OutOfPlace => "out_of_place",
    }
}

/// A row with what its cells are made of.
struct CaseRow<'a> {
    view: &'a View,
    entry: Entry<'a>,
}

impl CaseRow<'_> {
    /// What only calls have; empty for copies and products.
    fn of_call<T: ToString>(&self, of: impl Fn(&Row) -> T) -> String {
        text_or_empty(self.entry.row.map(of))
    }

    /// The same where not every call has it.
    fn of_some_calls<T: ToString>(&self, of: impl Fn(&Row) -> Option<T>) -> String {
        text_or_empty(self.entry.row.and_then(of))
    }

    /// The late rank of a call.
    fn late(&self) -> Option<&Late> {
        self.entry.row?.late.as_ref()
    }
}

fn columns<'a>() -> Vec<Column<CaseRow<'a>>> {
    vec![
        Column::new("case", |case| harmless(&case.entry.name)),
        Column::new("axis", |case| case.entry.subject.axis()),
        Column::new("style", |case| case.of_call(|row| row.facts.style.name())),
        Column::new("groups", |case| case.of_call(|row| row.facts.groups)),
        Column::new("group_size", |case| case.of_call(|row| row.facts.group_size)),
        Column::new("nodes_spanned", |case| case.of_call(|row| row.facts.locality.nodes_spanned)),
        Column::new("ranks_per_node", |case| case.of_call(|row| row.facts.locality.ranks_per_node)),
        Column::new("stride", |case| case.of_call(|row| row.facts.locality.stride)),
        Column::new("concurrent_groups_per_node", |case| {
            case.of_call(|row| row.facts.locality.concurrent_groups_per_node)
        }),
        Column::new("collective", |case| case.entry.subject.what().to_owned()),
        Column::new("reduce_op", |case| case.of_some_calls(|row| row.facts.reduce_op)),
        Column::new("root", |case| case.of_some_calls(|row| row.facts.root)),
        Column::new("element_type", |case| text_or_empty(case.entry.subject.element_type())),
        Column::new("bytes_total", |case| text_or_empty(case.entry.subject.bytes().map(|bytes| bytes.0))),
        Column::new("bytes_accounted", |case| case.of_call(|row| row.facts.bytes_accounted.0)),
        Column::new("bytes_per_rank", |case| case.of_call(|row| row.facts.bytes_per_rank.0)),
        Column::new("placement", |case| case.of_call(|row| placement(row.facts.placement))),
        Column::new("cadence", |case| case.of_call(|row| row.facts.cadence)),
        Column::new("transfers_per_call", |case| case.of_call(|row| row.facts.transfers_per_call)),
        Column::new("count_per_step", |case| case.of_some_calls(|row| row.facts.count_per_step())),
        Column::new("status", |case| case.entry.status.label().to_owned()),
        Column::new("status_reason", |case| case.entry.status.reason().map(harmless).unwrap_or_default()),
        Column::new("synthetic", |case| case.view.header.backend.synthetic.to_string()),
        Column::new("samples", |case| case.entry.counts.samples.to_string()),
        Column::new("samples_excluded", |case| case.entry.counts.samples_excluded.to_string()),
        Column::new("replicates", |case| case.entry.counts.replicates.to_string()),
        Column::new("replicates_planned", |case| case.entry.counts.replicates_planned.to_string()),
        Column::new("latency_seconds_median", |case| seconds(case.entry.latency.map(|latency| latency.median))),
        Column::new("latency_seconds_interval_low", |case| seconds(interval(case).map(|interval| interval.low))),
        Column::new("latency_seconds_interval_high", |case| seconds(interval(case).map(|interval| interval.high))),
        Column::new("latency_seconds_p90", |case| seconds(case.entry.latency.and_then(|latency| latency.p90))),
        Column::new("latency_seconds_p99", |case| seconds(case.entry.latency.and_then(|latency| latency.p99))),
        Column::new("latency_seconds_p999", |case| seconds(case.entry.latency.and_then(|latency| latency.p999))),
        Column::new("precision_reached", |case| case.of_some_calls(|row| row.precision_reached)),
        Column::new("algbw_bytes_per_second", |case| rate(case.entry.algbw())),
        Column::new("busbw_bytes_per_second", |case| rate(case.entry.busbw())),
        Column::new("bus_factor", |case| case.of_some_calls(|row| row.facts.bus_factor)),
        Column::new("bound_bytes_per_second", |case| {
            rate(case.entry.row.and_then(|row| row.facts.bound_bytes_per_second))
        }),
        Column::new("bound_share", |case| case.of_some_calls(|row| Some(format!("{:.6}", row.bound_share?)))),
        Column::new("late_rank", |case| text_or_empty(case.late().map(|late| late.rank))),
        Column::new("late_rank_host", |case| case.late().map(|late| harmless(&late.host)).unwrap_or_default()),
        Column::new("late_rank_share", |case| text_or_empty(case.late().map(|late| format!("{:.6}", late.share)))),
        Column::new("late_rank_spread_seconds_median", |case| seconds(case.late().map(|late| late.spread))),
        Column::new("backend", |case| harmless(&case.view.header.backend.name)),
        Column::new("world_size", |case| case.view.header.world_size.to_string()),
        Column::new("run_id", |case| harmless(&case.view.header.run_id)),
        Column::new("variant", |case| case.of_call(|row| harmless(&variant::shown(&row.facts.labels)))),
        Column::new("library_estimate_seconds", |case| seconds(case.entry.row.and_then(|row| row.library_estimate))),
        Column::new("library_choice", |case| case.of_some_calls(|row| Some(harmless(&row.library_choice()?)))),
        Column::new("flops_per_second", |case| {
            text_or_empty(case.entry.flops_per_second().map(|rate| format!("{rate:.0}")))
        }),
    ]
}

fn rows(view: &View) -> impl Iterator<Item = CaseRow<'_>> {
    view.entries().map(move |entry| CaseRow { view, entry })
}

fn interval(case: &CaseRow) -> Option<Interval<Seconds>> {
    case.entry.latency.and_then(|latency| latency.interval)
}

fn text_or_empty(value: Option<impl ToString>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

/// Rounded to picoseconds: samples have a resolution of 1 ns, calls of a batch a finer one.
fn seconds(value: Option<Seconds>) -> String {
    text_or_empty(value.map(|seconds| format!("{:.12}", seconds.0)))
}

fn rate(value: Option<Rate>) -> String {
    text_or_empty(value.map(|rate| format!("{:.0}", rate.0)))
}

// A run as a line of SuperBench's `results-summary.jsonl`, which `sb result summary` and `sb result diagnosis` read: one flat object
// with `node` and `BENCHMARK/METRIC`, times in microseconds and rates in GB/s, as SuperBench names them for nccl-tests.
//
// A synthetic run is of another benchmark, so that no rule about measured ones takes it in. Rows with wrong data have no
// numbers; how many there are is a metric of its own.

/// The line.
pub(super) fn superbench_text(view: &View) -> Result<String> {
    let header = &view.header;
    let benchmark = if header.backend.synthetic { "commgauge-synthetic" } else { "commgauge" };
    let benchmark = format!("{benchmark}:{}", plain(&header.suite.name));
    let mut line = Map::new();
    line.insert("node".to_owned(), Value::String(node(view)));
    let mut metric = |name: &str, value: f64| {
        if let Some(number) = Number::from_f64(value) {
            line.insert(format!("{benchmark}/{name}"), Value::Number(number));
        }
    };
    metric("return_code", f64::from(view.exit_code()));
    for status in Status::LABELS {
        let count = view.entries().filter(|entry| entry.status.label() == status).count();
        metric(&format!("rows_{}", status.to_lowercase().replace(' ', "_")), count as f64);
    }
    for entry in view.entries().filter(|entry| !matches!(*entry.status, Status::Wrong { .. })) {
        for (quantity, value) in quantities(&entry) {
            metric(&format!("{}_{quantity}", plain(&entry.name)), value);
        }
    }
    let text = serde_json::to_string(&line);
    Ok(text.map_err(|cause| Error::environment(format!("cannot write the report as JSON: {cause}")))? + "\n")
}

/// What SuperBench knows of a call, a copy (`bw`, as its `gpu-copy-bw`) and a product (`flops`, as its `gemm-flops`): microseconds, GB/s and
/// GFLOP/s.
fn quantities(entry: &Entry) -> impl Iterator<Item = (&'static str, f64)> {
    let time = entry.latency.map(|latency| ("time", latency.median.0 * 1e6));
    let algbw = entry.row.and_then(|row| row.algbw).map(|rate| ("algbw", rate.0 / 1e9));
    let busbw = entry.busbw().map(|rate| ("busbw", rate.0 / 1e9));
    let copied = entry.copy_rate().map(|rate| ("bw", rate.0 / 1e9));
    let computed = entry.flops_per_second().map(|rate| ("flops", rate / 1e9));
    [time, algbw, busbw, copied, computed].into_iter().flatten()
}

/// The hosts of the run, in the order of their first ranks.
fn node(view: &View) -> String {
    let mut hosts: Vec<&str> = Vec::new();
    for rank in &view.header.ranks {
        if !hosts.contains(&rank.host.as_str()) {
            hosts.push(&rank.host);
        }
    }
    visible(&hosts.join(","))
}

/// A name without what separates benchmark and metric.
fn plain(name: &str) -> String {
    name.chars()
        .map(|letter| if letter.is_ascii_alphanumeric() || "-_.".contains(letter) { letter } else { '_' })
        .collect()
}

// A record as a text file for the collector of Prometheus' node exporter: no time stamps, base units, one line for
// each row and known quantity.

/// The file.
pub(super) fn prometheus_text(view: &View) -> String {
    let header = &view.header;
    let mut out = String::new();
    metric(&mut out, "commgauge_record_info", "Which run was recorded.");
    let synthetic = if header.backend.synthetic { "true" } else { "false" };
    let labels = [
        label("backend", &header.backend.name),
        label("library", &header.backend.library),
        label("run_id", &header.run_id),
        label("suite", &header.suite.name),
        label("synthetic", synthetic),
    ];
    line(&mut out, "commgauge_record_info", &labels, 1.0);
    metric(&mut out, "commgauge_record_exit_code", "Exit code of the record; 0 is complete and right.");
    line(&mut out, "commgauge_record_exit_code", &[], f64::from(view.exit_code()));
    metric(&mut out, "commgauge_record_rows", "Rows of the plan by what came of them.");
    for status in Status::LABELS {
        let count = view.entries().filter(|entry| entry.status.label() == status).count();
        line(&mut out, "commgauge_record_rows", &[label("status", &status.to_lowercase())], count as f64);
    }
    latencies(&mut out, view);
    let rate = |out: &mut String, name, help, of: &dyn Fn(&Entry) -> Option<f64>| values(out, view, name, help, of);
    rate(&mut out, "bus_bandwidth_bytes_per_second", "Bus bandwidth at the median.", &|entry| Some(entry.busbw()?.0));
    if !view.copies.is_empty() {
        let help = "Rate of a copy in each direction at the median, on the slowest rank.";
        rate(&mut out, "copy_bytes_per_second", help, &|entry| Some(entry.copy_rate()?.0));
    }
    if !view.products.is_empty() {
        let help = "Rate of a matrix product at the median, on the slowest rank.";
        rate(&mut out, "flops_per_second", help, &|entry| entry.flops_per_second());
    }
    rate(&mut out, "samples", "Samples that count.", &|entry| Some(entry.counts.samples as f64));
    rate(&mut out, "samples_excluded", "Samples left out.", &|entry| Some(entry.counts.samples_excluded as f64));
    out
}

/// A label of a line.
#[derive(Clone, Copy)]
pub(super) struct Label<'a> {
    name: &'a str,
    text: &'a str,
}

pub(super) fn label<'a>(name: &'a str, text: &'a str) -> Label<'a> {
    Label { name, text }
}

/// What a row is selected and grouped by; every metric of a row has these labels.
pub(super) struct RowLabels<'a> {
    /// Name of the case.
    pub case: &'a str,
    /// The call, or what each rank does by itself.
    pub subject: &'a RowSubject,
    /// Name of the suite.
    pub suite: &'a str,
    /// Name of the machine, or its file; empty where none was given.
    pub machine: &'a str,
    /// Name of the backend.
    pub backend: &'a str,
    /// The hosts, where rows of several sets of hosts are shown together.
    pub hosts: Option<&'a str>,
}

impl RowLabels<'_> {
    /// A line of the metric with these labels and further ones.
    pub fn line(&self, out: &mut String, name: &str, further: &[Label], value: f64) {
        // The size of a product is its name.
        let bytes = self.subject.bytes().map_or_else(String::new, |bytes| bytes.0.to_string());
        let axis = self.subject.axis();
        let mut labels = vec![
            label("axis", &axis),
            label("backend", self.backend),
            label("bytes", &bytes),
            label("case", self.case),
            label("collective", self.subject.what()),
            label("machine", self.machine),
            label("suite", self.suite),
        ];
        labels.extend(self.hosts.map(|hosts| label("hosts", hosts)));
        labels.extend_from_slice(further);
        line(out, name, &labels, value);
    }
}

fn labels<'a>(view: &'a View, entry: &'a Entry) -> RowLabels<'a> {
    let header = &view.header;
    RowLabels {
        case: &entry.name,
        subject: &entry.subject,
        suite: &header.suite.name,
        machine: header.backend.machine.as_deref().unwrap_or(""),
        backend: &header.backend.name,
        hosts: None,
    }
}

fn latencies(out: &mut String, view: &View) {
    type Quantile = (&'static str, fn(&Latency) -> Option<Seconds>);
    // Not the label `quantile`, which belongs to summaries, and these have neither sum nor count.
    const QUANTILES: [Quantile; 4] = [
        ("median", |latency| Some(latency.median)),
        ("p90", |latency| latency.p90),
        ("p99", |latency| latency.p99),
        ("p999", |latency| latency.p999),
    ];
    let name = "commgauge_row_latency_seconds";
    metric(out, name, "Time of a call, copy or product; quantiles with too few samples are absent.");
    for entry in view.entries() {
        let Some(latency) = &entry.latency else { continue };
        for (statistic, of) in QUANTILES {
            if let Some(seconds) = of(latency) {
                labels(view, &entry).line(out, name, &[label("statistic", statistic)], seconds.0);
            }
        }
    }
}

fn values(out: &mut String, view: &View, name: &str, help: &str, of: &dyn Fn(&Entry) -> Option<f64>) {
    let name = format!("commgauge_row_{name}");
    metric(out, &name, help);
    for entry in view.entries() {
        if let Some(value) = of(&entry) {
            labels(view, &entry).line(out, &name, &[], value);
        }
    }
}

/// The head of a metric.
pub(super) fn metric(out: &mut String, name: &str, help: &str) {
    *out += &format!("# HELP {name} {help}\n# TYPE {name} gauge\n");
}

/// Label values escape what the exposition format says: backslash, double quote, line feed; the last is written out before.
pub(super) fn line(out: &mut String, name: &str, labels: &[Label], value: f64) {
    let labels: Vec<String> = labels
        .iter()
        .map(|Label { name, text }| format!("{name}=\"{}\"", visible(text).replace('\\', "\\\\").replace('"', "\\\"")))
        .collect();
    match labels.is_empty() {
        true => *out += &format!("{name} {value}\n"),
        false => *out += &format!("{name}{{{}}} {value}\n", labels.join(",")),
    }
}

// Annotations as workflows of GitHub print them: one line each, of which GitHub shows the first ten of each level.
//
// The form and its escapes: docs.github.com, "Workflow commands for GitHub Actions", and `escapeData` and `escapeProperty` in
// `packages/core/src/command.ts` of actions/toolkit.

/// How grave an annotation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    /// Fails where the job does.
    Error,
    /// Is to be looked at.
    Warning,
    /// Is good to know.
    Notice,
}

/// A line that GitHub shows as an annotation.
pub(super) fn annotation(level: Level, title: &str, text: &str) -> String {
    let level = match level {
        Level::Error => "error",
        Level::Warning => "warning",
        Level::Notice => "notice",
    };
    let title = escaped(title).replace(':', "%3A").replace(',', "%2C");
    format!("::{level} title={title}::{}\n", escaped(text))
}

fn escaped(text: &str) -> String {
    visible(text).replace('%', "%25")
}

// A record as a JUnit report: a test case for each call, copy and matrix product. Missing and failed rows are errors, wrong data is a failure. Whether a
// row is fast enough is decided by the gate.

/// The report.
pub(super) fn junit_text(view: &View) -> Result<String> {
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

// What every report in JUnit's XML shares: rows as test cases, and the text that Jenkins' schema accepts.

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
pub(super) fn test_report_text(name: &str, suite: TestSuite) -> Result<String> {
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

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn an_annotation_stays_on_its_line_and_keeps_its_title() {
        let line = annotation(Level::Warning, "gate: 1, 2", "50 %\r\n::error::\u{1b}[31mno");
        assert_eq!(line, "::warning title=gate%3A 1%2C 2::50 %25\\r\\n::error::\\u{1b}[31mno\n");
    }
}
