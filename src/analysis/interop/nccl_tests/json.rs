//! The JSON that nccl-tests writes with `-J` (its versions 1 and 2 of the format, from 2.17 on).
//!
//! It lists one device for each process even where a process drives several, writes booleans as strings and the root
//! with blanks before it.

use super::collective::Named;
use super::columns::{Fields, Half, Printed};
use super::devices::{Device, Group};
use super::run::{Facts, nccl_version};
use crate::interop::imported::{BadLine, Imported, RunFault, RunFaultKind};
use crate::interop::log_text::{local_time, microseconds};
use commgauge_base::collective::Placement;
use commgauge_base::error::{Error, Result};
use commgauge_base::units::Bytes;
use commgauge_base::visible::ShownPath;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

/// The newest version of the format that was read.
const NEWEST: u64 = 2;

#[derive(Deserialize)]
struct Document {
    version: Option<u64>,
    start_time: Option<String>,
    #[serde(default)]
    args: Vec<String>,
    nccl_version: Option<u64>,
    config: Config,
    results: Vec<Value>,
    out_of_bounds: Option<OutOfBounds>,
    average_bus_bandwidth: Option<Average>,
    #[serde(default)]
    errors: Vec<Value>,
}

#[derive(Deserialize)]
struct OutOfBounds {
    count: Option<Value>,
    #[serde(default)]
    okay: Value,
}

#[derive(Deserialize)]
struct Average {
    #[serde(default)]
    okay: Value,
}

#[derive(Deserialize)]
struct Config {
    nthreads: u32,
    ngpus: u32,
    aggregated_iterations: Option<u64>,
    graph: Option<u64>,
    blocking_collectives: Option<Value>,
    devices: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    rank: u32,
    #[serde(default)]
    group: i64,
    #[serde(default)]
    pid: i64,
    hostname: String,
    #[serde(default)]
    device_info: Option<String>,
}

#[derive(Deserialize)]
struct ResultRow {
    size: u64,
    count: u64,
    #[serde(rename = "type")]
    element_type: String,
    redop: String,
    root: Value,
    #[serde(default)]
    out_of_place: Option<Measured>,
    #[serde(default)]
    in_place: Option<Measured>,
}

#[derive(Deserialize)]
struct Measured {
    time: Option<f64>,
    alg_bw: Option<f64>,
    bus_bw: Option<f64>,
    nwrong: Option<f64>,
}

pub(super) fn parse(text: &str, file: &str, path: &Path) -> Result<Imported> {
    let document: Document = serde_json::from_str(text).map_err(|cause| {
        let corrupted = if cause.is_eof() { "it ends too early: the run was cut off; " } else { "" };
        Error::usage(format!("{}: {corrupted}no JSON of nccl-tests: {cause}", path.shown()))
    })?;
    let mut imported = Imported::default();
    if let Some(version) = document.version.filter(|version| *version > NEWEST) {
        imported.notes.push(format!("version {version} of nccl-tests' JSON is newer than the newest known, {NEWEST}"));
    }
    imported.started = document.start_time.as_deref().and_then(|text| local_time(text, "%Y-%m-%d %H:%M:%S"));
    let devices = devices(&document.config);
    imported.ranks = devices.iter().flatten().map(Device::as_rank).collect();
    imported.settings.extend(document.args.get(1..).map(|words| words.join(" ")));
    let (facts, group) = (facts(&document, file), devices.and_then(|devices| Group::of(&devices)));
    if group.as_ref().is_ok_and(|group| group.groups > 1) {
        imported
            .warnings
            .push("times of runs with several groups are means over the groups: a slow one is not seen".to_owned());
    }
    imported.faults = faults(&document);
    for (index, result) in document.results.into_iter().enumerate() {
        let rows = fields(result).and_then(|fields| facts.rows(&group, &fields));
        match rows {
            Ok(rows) => imported.rows.extend(rows),
            Err(problem) => {
                imported.bad_lines.push(BadLine { number: 1, problem: format!("results[{index}]: {problem}") });
            }
        }
    }
    Ok(imported)
}

/// How the run ended, where that is not well. Booleans are strings in some versions.
fn faults(document: &Document) -> Vec<RunFault> {
    let says = |value: &Value, wanted: bool| {
        value.as_bool() == Some(wanted) || value.as_str() == Some(if wanted { "true" } else { "false" })
    };
    let bounds = match &document.out_of_bounds {
        None => Some((RunFaultKind::CutOff, "the run was cut off: `out_of_bounds` is missing".to_owned())),
        Some(found) if found.count.as_ref().and_then(Value::as_f64) == Some(0.0) && says(&found.okay, true) => None,
        Some(found) => {
            let count = found.count.clone().unwrap_or_default();
            Some((
                RunFaultKind::WrongData,
                format!("nccl-tests found wrong data: out_of_bounds: {count}, okay: {}", found.okay),
            ))
        }
    };
    let is_slow = document.average_bus_bandwidth.as_ref().is_some_and(|average| says(&average.okay, false));
    let slow = is_slow.then(|| (RunFaultKind::Failed, "nccl-tests failed by its average bus bandwidth".to_owned()));
    let error =
        document.errors.first().map(|error| (RunFaultKind::Failed, format!("nccl-tests ended with errors: {error}")));
    bounds.into_iter().chain(slow).chain(error).map(|(kind, text)| RunFault { kind, text }).collect()
}

fn facts(document: &Document, file: &str) -> Facts {
    let program = document.args.first().map(|program| program.rsplit('/').next().unwrap_or(program));
    let named = program.and_then(Named::of_program).unwrap_or_else(|| Named::of_file(file));
    let config = &document.config;
    let blocking = match &config.blocking_collectives {
        Some(Value::String(text)) => text == "true",
        Some(Value::Bool(blocking)) => *blocking,
        _ => false,
    };
    let mut facts = Facts { named, blocking, ..Facts::default() };
    if blocking {
        facts.label("blocking", "wait");
    }
    if let Some(code) = document.nccl_version {
        facts.label("nccl_version", nccl_version(code));
    }
    facts.unusual("agg_iters", config.aggregated_iterations, 1);
    facts.unusual("graph", config.graph, 0);
    facts
}

/// All ranks: if an entry describes a whole process, its other ranks follow it on the same host and in its group.
fn devices(config: &Config) -> std::result::Result<Vec<Device>, String> {
    let per_process = config.nthreads.checked_mul(config.ngpus).filter(|ranks| (1..=4096).contains(ranks));
    let per_process = per_process.ok_or("config: nthreads x ngpus: accepted: from 1 to 4096")?;
    let processes: BTreeSet<(&str, i64)> = config.devices.iter().map(|entry| (&*entry.hostname, entry.pid)).collect();
    let is_process = processes.len() == config.devices.len();
    let ranks = if is_process { per_process } else { 1 };
    let mut devices = Vec::new();
    for entry in &config.devices {
        for offset in 0..ranks {
            devices.push(Device {
                rank: entry.rank.checked_add(offset).ok_or("config: devices: a rank is too large")?,
                group: entry.group,
                host: entry.hostname.clone(),
                model: entry.device_info.clone().unwrap_or_default(),
                slot: None,
            });
        }
    }
    Ok(devices)
}

fn fields(result: Value) -> std::result::Result<Fields, String> {
    let row: ResultRow = serde_json::from_value(result).map_err(|cause| cause.to_string())?;
    let mut halves = Vec::new();
    for (placement, measured) in [(Placement::OutOfPlace, &row.out_of_place), (Placement::InPlace, &row.in_place)] {
        let Some(measured) = measured else { continue };
        let time = measured.time.ok_or("there is no `time` (with -C it is that of the processor, not of the call)")?;
        let wrong_elements = measured.nwrong.filter(|count| *count >= 0.0).map(|count| count.ceil() as u64);
        let printed = |column: &str, value: f64| Printed::of(column, &value.to_string());
        halves.push(Half {
            placement,
            latency: microseconds("time", &time.to_string())?,
            time: printed("time", time)?,
            algbw: measured.alg_bw.map(|rate| printed("alg_bw", rate)).transpose()?,
            busbw: measured.bus_bw.map(|rate| printed("bus_bw", rate)).transpose()?,
            wrong_elements,
        });
    }
    if halves.is_empty() {
        return Err("holds no time: neither out_of_place nor in_place".to_owned());
    }
    let root = match &row.root {
        Value::String(text) => text.trim().parse::<i64>().ok(),
        other => other.as_i64(),
    };
    Ok(Fields {
        bytes: Bytes(row.size),
        count: row.count,
        element_type: row.element_type.parse().map_err(|problem| format!("type: {problem}"))?,
        reduce_op: Some(row.redop).filter(|op| op != "none"),
        root: root.and_then(|root| u32::try_from(root).ok()),
        halves,
    })
}
