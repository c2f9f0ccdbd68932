//! The Parquet dataset: a line for each call, copy and matrix product of a run, and one for each measured pair of ranks.
//!
//! Every column is optional; an unknown value is null and never 0. Times are in seconds, rates in bytes per second, and the start of
//! a run is a timestamp in UTC. Machine and month are in the names of the folders.

use crate::report::{RowLine as Line, View, host_of, lines, pair_lines};
use Kind::{Count, Moment, Real, Text};
use commgauge_base::error::{Error, Result};
use commgauge_judge::verdict::LoadedRecord;
use commgauge_model::record::Record;
use parquet::basic::Compression;
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::Result as Written;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::parser::parse_message_type;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A run and its view.
pub(super) struct Run<'a> {
    record: &'a Record,
    view: &'a View,
    /// Facts shared by every line of the run.
    facts: Line,
}

/// The type of a column.
#[derive(Clone, Copy)]
enum Kind {
    Text,
    Count,
    Real,
    /// Microseconds since 1970 in UTC.
    Moment,
}

/// A column: its name, which is the key of its values in a line, and their type.
type Column = (&'static str, Kind);

/// The common columns of all lines of a run.
const RUN: [Column; 8] = [
    ("run_id", Text),
    ("started_at", Moment),
    ("suite", Text),
    ("backend", Text),
    ("library", Text),
    ("driver", Text),
    ("program_version", Text),
    ("world_size", Count),
];

const ROWS: [Column; 21] = [
    ("case", Text),
    ("axis", Text),
    ("style", Text),
    ("collective", Text),
    ("element_type", Text),
    ("placement", Text),
    ("cadence", Text),
    ("bytes_total", Count),
    ("group_size", Count),
    ("groups", Count),
    ("nodes_spanned", Count),
    ("status", Text),
    ("samples", Count),
    ("replicates", Count),
    ("latency_seconds_median", Real),
    ("latency_seconds_p99", Real),
    ("busbw_bytes_per_second", Real),
    ("copy_bytes_per_second", Real),
    ("flops_per_second", Real),
    ("slowest_host", Text),
    ("slowest_host_share", Real),
];

const PAIRS: [Column; 7] = [
    ("host_a", Text),
    ("host_b", Text),
    ("rank_a", Count),
    ("rank_b", Count),
    ("latency_seconds", Real),
    ("one_way_bytes_per_second", Real),
    ("both_ways_bytes_per_second", Real),
];

impl<'a> Run<'a> {
    pub fn of(loaded: &'a LoadedRecord, view: &'a View) -> Run<'a> {
        let record = &loaded.record;
        let header = &record.header;
        let moment = header.started_at.parse::<jiff::Timestamp>().ok();
        let driver = record.devices.iter().flat_map(|line| &line.devices).find_map(|device| device.driver.clone());
        let facts = [
            ("run_id", header.run_id.as_str().into()),
            ("started_at", moment.map(jiff::Timestamp::as_microsecond).into()),
            ("suite", header.suite.name.as_str().into()),
            ("backend", header.backend.name.as_str().into()),
            ("library", header.backend.library.as_str().into()),
            ("driver", driver.into()),
            ("program_version", header.program_version.as_str().into()),
            ("world_size", header.world_size.into()),
        ];
        Run { record, view, facts: facts.map(|(key, value)| (key.to_owned(), value)).into_iter().collect() }
    }
}

/// The lines of all rows, as the content of a file.
pub(super) fn rows(run: &Run) -> Result<Vec<u8>> {
    let mut lines = lines(run.view)?;
    for (line, slowest) in lines.iter_mut().zip(run.slowest_hosts()) {
        line.extend(run.facts.clone());
        for key in ["status", "placement"] {
            // The spelling of the names of cases.
            let text = line[key].as_str().map(|text| text.to_lowercase().replace('_', "-"));
            line.insert(key.to_owned(), text.into());
        }
        let (host, share) = slowest.unzip();
        line.insert("slowest_host".to_owned(), host.into());
        line.insert("slowest_host_share".to_owned(), share.into());
    }
    file(&[&RUN[..], &ROWS].concat(), &lines)
}

impl Run<'_> {
    /// For each entry the host whose ranks were slowest most often, and its share of the samples.
    fn slowest_hosts(&self) -> Vec<Option<(String, f64)>> {
        let (record, view) = (self.record, self.view);
        let mut slowest_ranks = vec![Vec::<&[u32]>::new(); view.rows.len()];
        for line in &record.cases {
            if let Some(of_case) = slowest_ranks.get_mut(line.case as usize) {
                of_case.push(&line.samples.slowest_rank);
            }
        }
        let copies = view.copies.iter().map(|time| {
            let lines = record.copies.iter().filter(|line| line.copy == time.copy);
            lines.map(|line| line.slowest_rank.as_slice()).collect()
        });
        let products = view.products.iter().map(|time| {
            let lines = record.products.iter().filter(|line| line.product == time.product);
            lines.map(|line| line.slowest_rank.as_slice()).collect()
        });
        slowest_ranks
            .into_iter()
            .chain(copies)
            .chain(products)
            .map(|ranks| self.slowest_host(&ranks.concat()))
            .collect()
    }

    fn slowest_host(&self, slowest_ranks: &[u32]) -> Option<(String, f64)> {
        let mut samples_of_rank = BTreeMap::<u32, usize>::new();
        slowest_ranks.iter().for_each(|rank| *samples_of_rank.entry(*rank).or_default() += 1);
        let all = slowest_ranks.len();
        let mut samples_of_host = BTreeMap::<String, usize>::new();
        for (rank, samples) in samples_of_rank {
            *samples_of_host.entry(host_of(self.record, rank)).or_default() += samples;
        }
        let (host, samples) = samples_of_host.into_iter().max_by_key(|(_, samples)| *samples)?;
        Some((host, samples as f64 / all as f64))
    }
}

/// The lines of all pairs, if any.
pub(super) fn pairs(run: &Run) -> Result<Option<Vec<u8>>> {
    let Some(view) = &run.view.pairs else { return Ok(None) };
    let mut lines = pair_lines(view)?;
    for line in &mut lines {
        line.extend(run.facts.clone());
        for (name, key) in [
            ("one_way_bytes_per_second", "bandwidth_bytes_per_second"),
            ("both_ways_bytes_per_second", "bidirectional_bandwidth_bytes_per_second"),
        ] {
            line.insert(name.to_owned(), line[key].clone());
        }
    }
    file(&[&RUN[..], &PAIRS].concat(), &lines).map(Some)
}

/// A file with one group of lines.
fn file(columns: &[Column], lines: &[Line]) -> Result<Vec<u8>> {
    written(columns, lines).map_err(|cause| Error::environment(format!("cannot write the dataset: {cause}")))
}

fn written(columns: &[Column], lines: &[Line]) -> Written<Vec<u8>> {
    let field = |(name, kind): &Column| {
        let (physical, meaning) = match kind {
            Text => ("BYTE_ARRAY", " (STRING)"),
            Count => ("INT64", ""),
            Real => ("DOUBLE", ""),
            Moment => ("INT64", " (TIMESTAMP(MICROS,true))"),
        };
        format!("  OPTIONAL {physical} {name}{meaning};\n")
    };
    let fields: String = columns.iter().map(field).collect();
    let schema = Arc::new(parse_message_type(&format!("message commgauge {{\n{fields}}}"))?);
    let properties = Arc::new(WriterProperties::builder().set_compression(Compression::SNAPPY).build());
    let mut content = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut content, schema, properties)?;
    let mut group = writer.next_row_group()?;
    for (key, kind) in columns {
        let Some(mut column) = group.next_column()? else { continue };
        let values = || lines.iter().map(|line| line.get(*key).unwrap_or(&Value::Null));
        match kind {
            Text => write::<ByteArrayType>(&mut column, values().map(|value| value.as_str().map(ByteArray::from)))?,
            Count | Moment => write::<Int64Type>(&mut column, values().map(Value::as_i64))?,
            Real => write::<DoubleType>(&mut column, values().map(Value::as_f64))?,
        }
        column.close()?;
    }
    group.close()?;
    writer.close()?;
    Ok(content)
}

/// Writes the values of a column. Parquet's definition level is 1 for a present value.
fn write<T: DataType>(column: &mut SerializedColumnWriter, values: impl Iterator<Item = Option<T::T>>) -> Written<()> {
    let values: Vec<Option<T::T>> = values.collect();
    let levels: Vec<i16> = values.iter().map(|value| i16::from(value.is_some())).collect();
    let known: Vec<T::T> = values.into_iter().flatten().collect();
    column.typed::<T>().write_batch(&known, Some(&levels), None).map(drop)
}
