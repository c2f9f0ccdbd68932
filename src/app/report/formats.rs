//! The report for programs: CSV, JSON and the small text formats.
//!
//! Comma-separated values have one row for each call, copy and matrix product, and one for each pair where pairs were measured,
//! units in the column names, empty where there is no number.
//!
//! Spreadsheets evaluate cells that begin with `=`, `+`, `-` or `@`; such texts get a leading apostrophe, and control
//! characters are written out.

use super::columns::{CallInterference, Contention};
use super::pairs::document::{JsonPairs, lines as pair_lines};
use super::products::{JsonCopy, JsonProduct, JsonReplay};
use super::row::{Entry, Row, Status};
use super::screen::JsonCosts;
use super::step::JsonStep;
use super::template::through;
use super::text::{Line, harmless, object, pretty_json, visible};
use super::view::View;
use commgauge_base::error::{Error, Result};
use commgauge_base::units::{Rate, Seconds};
use commgauge_base::variant::{self, LibraryChoice};
use commgauge_base::writing::{CommaSeparated, distinct};
use commgauge_model::layout::Axis;
use commgauge_model::record::line::{CaseFacts, ClockLine, End, Header};
use commgauge_model::record::work_lines::CalibrationLine;
use commgauge_model::workload::Style;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Number, Value, json};

/// The columns of the CSV of pairs: keys of a pair in the JSON document.
const PAIR_KEYS: &str = "rank_a rank_b host_a host_b locality latency_seconds latency_percent_of_locality_median \
    bandwidth_bytes_per_second bandwidth_percent_of_locality_median bidirectional_bandwidth_bytes_per_second \
    bidirectional_bandwidth_percent_of_locality_median samples";

/// The rows, with a row of names above them: of pairs after the others, each with the columns of its kind.
pub(super) fn csv_text(view: &View) -> Result<String> {
    let mut cases = lines(view)?;
    let Some(pairs) = &view.pairs else { return table(ROW_KEYS, &cases) };
    cases.retain(|line| line["axis"] != Axis::Pair.name());
    let mut pairs = pair_lines(pairs)?;
    if cases.is_empty() {
        return table(PAIR_KEYS, &pairs);
    }
    let header = &view.header;
    for pair in &mut pairs {
        pair.remove("replicates");
        let samples = pair.remove("samples").unwrap_or_default();
        pair.extend([
            ("pair_samples".to_owned(), samples),
            ("axis".to_owned(), Axis::Pair.name().into()),
            ("style".to_owned(), Style::Pairs.name().into()),
            ("synthetic".to_owned(), header.backend.synthetic.into()),
            ("backend".to_owned(), header.backend.name.as_str().into()),
            ("world_size".to_owned(), header.world_size.into()),
            ("run_id".to_owned(), header.run_id.as_str().into()),
        ]);
    }
    cases.append(&mut pairs);
    table(&format!("{ROW_KEYS} {}", PAIR_KEYS.replace(" samples", " pair_samples")), &cases)
}

/// A column for each key; empty in lines that do not have it.
fn table(keys: &str, lines: &[Line]) -> Result<String> {
    let keys: Vec<&str> = keys.split(' ').collect();
    let mut text = CommaSeparated::new("the report as CSV", &keys)?;
    for line in lines {
        text.row(keys.iter().map(|key| line.get(*key).map_or_else(String::new, |value| cell(key, value))))?;
    }
    text.finish()
}

/// A value as CSV has it: rounded as its unit allows, empty where there is none.
fn cell(key: &str, value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => harmless(text),
        Value::Number(number) => match (number.as_f64().filter(|_| number.is_f64()), decimals(key)) {
            (Some(value), Some(decimals)) => format!("{value:.decimals$}"),
            (Some(value), None) => value.to_string(),
            (None, _) => number.to_string(),
        },
        other => other.to_string(),
    }
}

/// Decimals of a number by the unit in its key. Samples have a resolution of 1 ns, calls of a batch a finer one.
fn decimals(key: &str) -> Option<usize> {
    match key {
        _ if key.ends_with("_per_second") => Some(0),
        _ if key.contains("seconds") => Some(12),
        _ if key.ends_with("_share") => Some(6),
        _ if key.contains("percent") => Some(2),
        _ => None,
    }
}

// A run as a line of SuperBench's `results-summary.jsonl`, which `sb result summary` and `sb result diagnosis` read: one flat object
// with `node` and `BENCHMARK/METRIC`, times in microseconds and rates in GB/s, as SuperBench names them for nccl-tests.
//
// A synthetic run has another benchmark name, so that no rule about measured runs applies to it. Rows with wrong data have no
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
    for row in lines(view)?.iter().filter(|row| row["status"] != "WRONG") {
        let name = plain(row["case"].as_str().unwrap_or_default());
        for (quantity, key, scaled) in QUANTITIES {
            // What a copy moves has a name of its own there.
            let value = row[key].as_f64().filter(|_| quantity != "algbw" || row["copy_bytes_per_second"].is_null());
            if let Some(value) = value {
                metric(&format!("{name}_{quantity}"), scaled(value));
            }
        }
    }
    let text = serde_json::to_string(&line);
    Ok(text.map_err(|cause| Error::environment(format!("cannot write the report as JSON: {cause}")))? + "\n")
}

/// From base units to those of SuperBench.
type Scaled = fn(f64) -> f64;

/// What SuperBench knows of a call, a copy (`bw`, as its `gpu-copy-bw`) and a product (`flops`, as its `gemm-flops`): microseconds, GB/s and
/// GFLOP/s.
const QUANTITIES: [(&str, &str, Scaled); 5] = [
    ("time", "latency_seconds_median", |seconds| seconds * 1e6),
    ("algbw", "algbw_bytes_per_second", |rate| rate / 1e9),
    ("busbw", "busbw_bytes_per_second", |rate| rate / 1e9),
    ("bw", "copy_bytes_per_second", |rate| rate / 1e9),
    ("flops", "flops_per_second", |rate| rate / 1e9),
];

/// The hosts of the run, in the order of their first ranks.
fn node(view: &View) -> String {
    visible(&distinct(view.header.ranks.iter().map(|rank| rank.host.as_str())).join(","))
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
pub(super) fn prometheus_text(view: &View) -> Result<String> {
    let mut answer = answer(view)?;
    answer["statuses"] = Status::LABELS.map(str::to_lowercase).to_vec().into();
    const SOURCE: &str = concat!(include_str!("templates/row.prom"), include_str!("templates/report.prom"));
    through("report.prom", SOURCE, answer)
}

// A record as a JUnit report: a test case for each call, copy and matrix product. Missing and failed rows are errors, wrong data is a failure. Whether a
// row is fast enough is decided by the gate.

/// The report.
pub(super) fn junit_text(view: &View) -> Result<String> {
    let mut answer = answer(view)?;
    let seconds =
        |entry: &Entry| entry.latency.map_or(0.0, |latency| latency.median.0 * entry.counts.repetitions as f64);
    answer["times"] = view.entries().map(|entry| format!("{:.3}", seconds(&entry))).collect();
    answer["summary"] = view.summary().into();
    answer["facts"] = view.provenance.iter().map(|(name, value)| Value::from(vec![*name, value])).collect();
    const SOURCE: &str = concat!(include_str!("templates/junit.xml"), include_str!("templates/report.xml"));
    through("report.xml", SOURCE, answer)
}

// The report as one JSON document: base units in the names, `null` where there is no number, texts as recorded.

/// Name of this document.
pub const FORMAT: &str = "commgauge-report";

/// Version of this document; raised when a field changes its meaning or goes away.
pub const SCHEMA_VERSION: u32 = 1;

#[derive(JsonSchema, Serialize)]
struct Document<'a> {
    format: &'static str,
    schema_version: u32,
    synthetic: bool,
    running: bool,
    exit_code: i32,
    provenance: &'a Header,
    clocks: &'a [ClockLine],
    rows: Vec<JsonRow<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    costs: Option<JsonCosts>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    steps: Vec<JsonStep<'a>>,
    #[serde(skip_serializing_if = "<[Contention]>::is_empty")]
    contention: &'a [Contention],
    #[serde(skip_serializing_if = "<[CallInterference]>::is_empty")]
    interference: &'a [CallInterference],
    #[serde(skip_serializing_if = "Vec::is_empty")]
    replays: Vec<JsonReplay<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    products: Vec<JsonProduct<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    copies: Vec<JsonCopy<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    calibration: Option<&'a CalibrationLine>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pairs: Option<JsonPairs<'a>>,
    findings: &'a [String],
    warnings: &'a [String],
    end: Option<&'a End>,
}

// A call, a copy or a matrix product over all its replicates. This is the one list of its fields: CSV, Parquet and the templates take
// theirs from `lines` by key. In the document copies and products have lists of their own.
#[derive(JsonSchema, Serialize)]
struct JsonRow<'a> {
    status: &'static str,
    status_reason: Option<&'a str>,
    #[schemars(with = "CaseFacts")]
    case: Option<&'a CaseFacts>,
    samples: u64,
    samples_excluded: u64,
    replicates: u32,
    replicates_planned: u32,
    latency_seconds_median: Option<Seconds>,
    latency_seconds_interval_low: Option<Seconds>,
    latency_seconds_interval_high: Option<Seconds>,
    latency_seconds_p90: Option<Seconds>,
    latency_seconds_p99: Option<Seconds>,
    latency_seconds_p999: Option<Seconds>,
    #[serde(skip_serializing_if = "Option::is_none")]
    library_estimate_seconds: Option<Seconds>,
    #[serde(skip_serializing_if = "<[LibraryChoice]>::is_empty")]
    library_choices: &'a [LibraryChoice],
    precision_reached: Option<f64>,
    algbw_bytes_per_second: Option<Rate>,
    busbw_bytes_per_second: Option<Rate>,
    bound_bytes_per_second: Option<Rate>,
    bound_share: Option<f64>,
    late_rank: Option<u32>,
    late_rank_host: Option<&'a str>,
    late_rank_share: Option<f64>,
    late_rank_spread_seconds_median: Option<Seconds>,
    warnings: &'a [String],
}

impl<'a> JsonRow<'a> {
    fn of(entry: &'a Entry) -> JsonRow<'a> {
        let (row, latency) = (entry.row, entry.latency);
        let late = row.and_then(|row| row.late.as_ref());
        let interval = latency.and_then(|latency| latency.interval);
        JsonRow {
            status: entry.status.label(),
            status_reason: entry.status.reason(),
            case: row.map(|row| &row.facts),
            samples: entry.counts.samples,
            samples_excluded: entry.counts.samples_excluded,
            replicates: entry.counts.replicates,
            replicates_planned: entry.counts.replicates_planned,
            latency_seconds_median: latency.map(|latency| latency.median),
            latency_seconds_interval_low: interval.map(|interval| interval.low),
            latency_seconds_interval_high: interval.map(|interval| interval.high),
            latency_seconds_p90: latency.and_then(|latency| latency.p90),
            latency_seconds_p99: latency.and_then(|latency| latency.p99),
            latency_seconds_p999: latency.and_then(|latency| latency.p999),
            library_estimate_seconds: row.and_then(|row| row.library_estimate),
            library_choices: row.map_or(&[], |row| &row.library_choices),
            precision_reached: row.and_then(|row| row.precision_reached),
            algbw_bytes_per_second: entry.algbw(),
            busbw_bytes_per_second: entry.busbw(),
            bound_bytes_per_second: row.and_then(|row| row.facts.bound_bytes_per_second),
            bound_share: row.and_then(|row| row.bound_share),
            late_rank: late.map(|late| late.rank),
            late_rank_host: late.map(|late| late.host.as_str()),
            late_rank_share: late.map(|late| late.share),
            late_rank_spread_seconds_median: late.map(|late| late.spread),
            warnings: row.map_or(&[], |row| &row.warnings),
        }
    }
}

/// The columns of the CSV of calls, copies and matrix products: keys of [`lines`].
pub(super) const ROW_KEYS: &str = "case axis style groups group_size nodes_spanned ranks_per_node stride concurrent_groups_per_node collective \
    reduce_op root element_type bytes_total bytes_accounted bytes_per_rank placement cadence transfers_per_call count_per_step status \
    status_reason synthetic samples samples_excluded replicates replicates_planned latency_seconds_median \
    latency_seconds_interval_low latency_seconds_interval_high latency_seconds_p90 latency_seconds_p99 latency_seconds_p999 \
    precision_reached algbw_bytes_per_second busbw_bytes_per_second bus_factor bound_bytes_per_second bound_share late_rank \
    late_rank_host late_rank_share late_rank_spread_seconds_median backend world_size run_id variant library_estimate_seconds \
    library_choice flops_per_second";

/// Every call, copy and matrix product of a view.
pub(crate) fn lines(view: &View) -> Result<Vec<Line>> {
    view.entries().map(|entry| line(view, &entry)).collect()
}

fn line(view: &View, entry: &Entry) -> Result<Line> {
    let header = &view.header;
    let mut line = object(&JsonRow::of(entry))?;
    for part in ["case", "locality"] {
        if let Some(Value::Object(fields)) = line.remove(part) {
            line.extend(fields);
        }
    }
    line.extend(object(&json!({
        "case": &entry.name,
        "axis": entry.subject.axis(),
        "collective": entry.subject.what(),
        "element_type": entry.subject.element_type(),
        "bytes_total": entry.subject.bytes(),
        "count_per_step": entry.row.and_then(|row| row.facts.count_per_step()),
        "variant": entry.row.map(|row| variant::shown(&row.facts.labels)),
        "library_choice": entry.row.and_then(Row::library_choice),
        "copy_bytes_per_second": entry.copy_rate(),
        "flops_per_second": entry.flops_per_second(),
        "synthetic": header.backend.synthetic,
        "backend": &header.backend.name,
        "machine": header.backend.machine.as_deref().unwrap_or(""),
        "suite": &header.suite.name,
        "world_size": header.world_size,
        "run_id": &header.run_id,
    }))?);
    for key in ROW_KEYS.split(' ') {
        line.entry(key).or_insert(Value::Null);
    }
    Ok(line)
}

/// The schema of the document, without its name.
pub fn schema() -> serde_json::Value {
    let settings = schemars::generate::SchemaSettings::draft2020_12().for_serialize();
    settings.into_generator().into_root_schema_for::<Document>().to_value()
}

/// The document.
pub(super) fn text(view: &View) -> Result<String> {
    with_document(view, |document| pretty_json(document))
}

/// What a template of a report sees: the document, and as `lines` what CSV has a line for, unformatted.
pub fn answer(view: &View) -> Result<Value> {
    let mut answer = with_document(view, |document| object(document))?;
    let lines = lines(view)?.into_iter().map(Value::Object).collect();
    answer.insert("lines".to_owned(), Value::Array(lines));
    Ok(Value::Object(answer))
}

fn with_document<T>(view: &View, draw: impl FnOnce(&Document) -> T) -> T {
    let calls: Vec<Entry> = view.rows.iter().map(Entry::of_call).collect();
    draw(&Document {
        format: FORMAT,
        schema_version: SCHEMA_VERSION,
        synthetic: view.header.backend.synthetic,
        running: view.completion.running,
        exit_code: view.exit_code(),
        provenance: &view.header,
        clocks: &view.clocks,
        rows: calls.iter().map(JsonRow::of).collect(),
        costs: JsonCosts::of(view),
        steps: view.steps.iter().map(|step| JsonStep::new(step, &view.rows)).collect(),
        contention: &view.contention,
        interference: &view.interference,
        replays: view.replays.iter().map(JsonReplay::new).collect(),
        products: view.products.iter().map(JsonProduct::new).collect(),
        copies: view.copies.iter().map(JsonCopy::new).collect(),
        calibration: view.calibration.as_ref(),
        pairs: view.pairs.as_ref().map(JsonPairs::of),
        findings: &view.findings.all,
        warnings: &view.warnings,
        end: view.completion.end.as_ref(),
    })
}

/// The schema of a document, with its name, version and title.
pub fn schema_of<T: JsonSchema>(format: &str, version: u32, title: &str) -> serde_json::Value {
    published(schemars::schema_for!(T).to_value(), format, version, title)
}

/// A document's schema with its name and version, both also as constants, which the types cannot express.
pub fn published(mut schema: serde_json::Value, format: &str, version: u32, title: &str) -> serde_json::Value {
    if let Some(root) = schema.as_object_mut() {
        root.insert("$id".to_owned(), serde_json::json!(format!("urn:{format}:{version}")));
        root.insert("title".to_owned(), serde_json::json!(title));
        root.insert("version".to_owned(), serde_json::json!(version));
    }
    for (property, value) in [
        ("format", serde_json::json!(format)),
        ("version", serde_json::json!(version)),
        ("schema_version", serde_json::json!(version)),
    ] {
        if let Some(serde_json::Value::Object(facts)) = schema.pointer_mut(&format!("/properties/{property}")) {
            facts.insert("const".to_owned(), value);
        }
    }
    schema
}
