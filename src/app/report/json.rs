//! The report as one JSON document: base units in the names, `null` where there is no number, texts as recorded.

use super::columns::{CallInterference, Contention};
use super::pairs::document::JsonPairs;
use super::products::{JsonCopy, JsonProduct};
use super::replay::replay_time;
use super::row::Row;
use super::screen::JsonCosts;
use super::step::JsonStep;
use super::view::View;
use commgauge_base::error::Result;
use commgauge_base::units::{Rate, Seconds};
use commgauge_base::variant::LibraryChoice;
use commgauge_model::record::line::{CaseFacts, ClockLine, End, Header, Outcome};
use commgauge_model::record::work_lines::{CalibrationLine, InterferingCall, ReplayLine};
use schemars::JsonSchema;
use serde::Serialize;

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
    #[serde(skip_serializing_if = "Vec::is_empty")]
    contention: Vec<JsonContention<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    interference: Vec<JsonDisturbed<'a>>,
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

#[derive(JsonSchema, Serialize)]
struct JsonRow<'a> {
    status: &'static str,
    status_reason: Option<&'a str>,
    case: &'a CaseFacts,
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

/// A call on all groups at once over the same call on one group alone.
#[derive(JsonSchema, Serialize)]
struct JsonContention<'a> {
    case: &'a str,
    solo_case: &'a str,
    groups: u32,
    factor_median: Option<f64>,
    factor_interval_low: Option<f64>,
    factor_interval_high: Option<f64>,
    replicates: u32,
}

/// The schema of the document, without its name.
pub(super) fn schema() -> serde_json::Value {
    let settings = schemars::generate::SchemaSettings::draft2020_12().for_serialize();
    settings.into_generator().into_root_schema_for::<Document>().to_value()
}

/// The document.
pub(super) fn text(view: &View) -> Result<String> {
    let document = Document {
        format: FORMAT,
        schema_version: SCHEMA_VERSION,
        synthetic: view.header.backend.synthetic,
        running: view.completion.running,
        exit_code: view.exit_code(),
        provenance: &view.header,
        clocks: &view.clocks,
        rows: view.rows.iter().map(json_row).collect(),
        costs: JsonCosts::of(view),
        steps: view.steps.iter().map(|step| JsonStep::new(step, &view.rows)).collect(),
        contention: view.contention.iter().filter_map(|pair| json_contention(view, pair)).collect(),
        interference: view.interference.iter().map(JsonDisturbed::new).collect(),
        replays: view.replays.iter().map(JsonReplay::new).collect(),
        products: view.products.iter().map(JsonProduct::new).collect(),
        copies: view.copies.iter().map(JsonCopy::new).collect(),
        calibration: view.calibration.as_ref(),
        pairs: view.pairs.as_ref().map(JsonPairs::of),
        findings: &view.findings.all,
        warnings: &view.warnings,
        end: view.completion.end.as_ref(),
    };
    super::verdict::json(&document)
}

fn json_row(row: &Row) -> JsonRow<'_> {
    let late = row.late.as_ref();
    let latency = row.latency.as_ref();
    let interval = latency.and_then(|latency| latency.interval);
    JsonRow {
        status: row.status.label(),
        status_reason: row.status.reason(),
        case: &row.facts,
        samples: row.counts.samples,
        samples_excluded: row.counts.samples_excluded,
        replicates: row.counts.replicates,
        replicates_planned: row.counts.replicates_planned,
        latency_seconds_median: latency.map(|latency| latency.median),
        latency_seconds_interval_low: interval.map(|interval| interval.low),
        latency_seconds_interval_high: interval.map(|interval| interval.high),
        latency_seconds_p90: latency.and_then(|latency| latency.p90),
        latency_seconds_p99: latency.and_then(|latency| latency.p99),
        latency_seconds_p999: latency.and_then(|latency| latency.p999),
        library_estimate_seconds: row.library_estimate,
        library_choices: &row.library_choices,
        precision_reached: row.precision_reached,
        algbw_bytes_per_second: row.algbw,
        busbw_bytes_per_second: row.busbw,
        bound_bytes_per_second: row.facts.bound_bytes_per_second,
        bound_share: row.bound_share,
        late_rank: late.map(|late| late.rank),
        late_rank_host: late.map(|late| late.host.as_str()),
        late_rank_share: late.map(|late| late.share),
        late_rank_spread_seconds_median: late.map(|late| late.spread),
        warnings: &row.warnings,
    }
}

fn json_contention<'a>(view: &'a View, pair: &Contention) -> Option<JsonContention<'a>> {
    Some(JsonContention {
        case: &view.rows.get(pair.row)?.facts.name,
        solo_case: &view.rows.get(pair.solo_row)?.facts.name,
        groups: pair.groups,
        factor_median: pair.factor,
        factor_interval_low: pair.interval.map(|interval| interval.low),
        factor_interval_high: pair.interval.map(|interval| interval.high),
        replicates: pair.replicates,
    })
}

// Replays and interference in the report's JSON document.

/// A call beside another.
#[derive(JsonSchema, Serialize)]
pub(super) struct JsonDisturbed<'a> {
    timed: &'a InterferingCall,
    beside: &'a InterferingCall,
    calls_beside: u32,
    alone_seconds_median: Option<Seconds>,
    together_seconds_median: Option<Seconds>,
    factor_median: Option<f64>,
    factor_interval_low: Option<f64>,
    factor_interval_high: Option<f64>,
    replicates: u32,
    surely_beside_share: Option<f64>,
    trouble: Option<&'a Outcome>,
}

impl<'a> JsonDisturbed<'a> {
    /// The pair.
    pub(super) fn new(pair: &'a CallInterference) -> JsonDisturbed<'a> {
        JsonDisturbed {
            timed: &pair.timed,
            beside: &pair.beside,
            calls_beside: pair.calls_beside,
            alone_seconds_median: pair.alone,
            together_seconds_median: pair.together,
            factor_median: pair.factor,
            factor_interval_low: pair.interval.map(|interval| interval.low),
            factor_interval_high: pair.interval.map(|interval| interval.high),
            replicates: pair.replicates,
            surely_beside_share: pair.certain_overlap,
            trouble: pair.trouble.as_ref(),
        }
    }
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
