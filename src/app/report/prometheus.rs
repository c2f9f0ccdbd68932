//! A record as a text file for the collector of Prometheus' node exporter: no time stamps, base units, one line for
//! each row and known quantity.

use super::entry::Entry;
use super::row::Latency;
use super::status::Status;
use super::text::visible;
use super::view::View;
use commgauge_analysis::verdict::RowSubject;
use commgauge_base::units::Seconds;

/// The file.
pub(super) fn text(view: &View) -> String {
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
