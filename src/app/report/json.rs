//! The report as one JSON document: base units in the names, `null` where there is no number, texts as recorded.

use super::columns::{CallInterference, Contention};
use super::pairs::document::JsonPairs;
use super::products::{JsonCopy, JsonProduct};
use super::replay::replay_time;
use super::row::{Entry, Row};
use super::screen::JsonCosts;
use super::step::JsonStep;
use super::text::{Line, object, pretty_json};
use super::view::View;
use commgauge_base::element::ElementType;
use commgauge_base::error::Result;
use commgauge_base::units::{Bytes, Rate, Seconds};
use commgauge_base::variant::{self, LibraryChoice};
use commgauge_model::record::line::{CaseFacts, ClockLine, End, Header};
use commgauge_model::record::work_lines::{CalibrationLine, ReplayLine};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

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

/// What a line has beyond the fields of its row and its case.
#[derive(Serialize)]
struct LineFacts<'a> {
    case: &'a str,
    axis: String,
    collective: &'static str,
    element_type: Option<ElementType>,
    bytes_total: Option<Bytes>,
    count_per_step: Option<u64>,
    variant: Option<String>,
    library_choice: Option<String>,
    copy_bytes_per_second: Option<Rate>,
    flops_per_second: Option<f64>,
    synthetic: bool,
    backend: &'a str,
    machine: &'a str,
    suite: &'a str,
    world_size: u32,
    run_id: &'a str,
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
    line.extend(object(&LineFacts {
        case: &entry.name,
        axis: entry.subject.axis(),
        collective: entry.subject.what(),
        element_type: entry.subject.element_type(),
        bytes_total: entry.subject.bytes(),
        count_per_step: entry.row.and_then(|row| row.facts.count_per_step()),
        variant: entry.row.map(|row| variant::shown(&row.facts.labels)),
        library_choice: entry.row.and_then(Row::library_choice),
        copy_bytes_per_second: entry.copy_rate(),
        flops_per_second: entry.flops_per_second(),
        synthetic: header.backend.synthetic,
        backend: &header.backend.name,
        machine: header.backend.machine.as_deref().unwrap_or(""),
        suite: &header.suite.name,
        world_size: header.world_size,
        run_id: &header.run_id,
    })?);
    for key in ROW_KEYS.split(' ') {
        line.entry(key).or_insert(Value::Null);
    }
    Ok(line)
}

/// The schema of the document, without its name.
pub(super) fn schema() -> serde_json::Value {
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

/// A replay: as recorded, and what its repetitions come to.
#[derive(JsonSchema, Serialize)]
pub(super) struct JsonReplay<'a> {
    #[serde(flatten)]
    line: &'a ReplayLine,
    seconds_median: Option<Seconds>,
    seconds_interval_low: Option<Seconds>,
    seconds_interval_high: Option<Seconds>,
}

impl<'a> JsonReplay<'a> {
    /// The replay.
    pub(super) fn new(line: &'a ReplayLine) -> JsonReplay<'a> {
        let time = replay_time(line);
        let interval = time.and_then(|time| time.interval);
        JsonReplay {
            line,
            seconds_median: time.map(|time| time.median),
            seconds_interval_low: interval.map(|interval| interval.low),
            seconds_interval_high: interval.map(|interval| interval.high),
        }
    }
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
