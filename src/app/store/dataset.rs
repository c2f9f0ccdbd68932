//! The Parquet dataset: a line for each call, copy and matrix product of a run, and one for each pair of ranks where pairs were measured.
//!
//! Every column is optional; an unknown value is null and never 0. Times are in seconds, rates in bytes per second, and the start of
//! a run is a timestamp in UTC. Machine and month are in the names of the folders.

use crate::report::{Entry, Pair, PairMeasure, PairsView, View, host_of};
use commgauge_analysis::verdict::LoadedRecord;
use commgauge_base::error::{Error, Result};
use commgauge_model::record::Record;
use parquet::basic::Compression;
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::Result as Written;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A run and its view.
pub(super) struct Run<'a> {
    record: &'a Record,
    view: &'a View,
    started_at: Option<i64>,
    driver: Option<String>,
}

/// A column's name and its values.
struct Column {
    name: &'static str,
    values: Values,
}

/// The values of a column, none where unknown.
enum Values {
    Text(Vec<Option<String>>),
    Count(Vec<Option<i64>>),
    Real(Vec<Option<f64>>),
    /// Microseconds since 1970 in UTC.
    Moment(Vec<Option<i64>>),
}

impl<'a> Run<'a> {
    pub fn of(loaded: &'a LoadedRecord, view: &'a View) -> Run<'a> {
        let record = &loaded.record;
        let moment = record.header.started_at.parse::<jiff::Timestamp>().ok();
        let devices = record.devices.iter().flat_map(|line| &line.devices);
        let driver = devices.filter_map(|device| device.driver.clone()).next();
        Run { record, view, started_at: moment.map(|moment| moment.as_microsecond()), driver }
    }

    /// What all lines of a run have in common.
    fn common(&self, lines: usize) -> Vec<Column> {
        let header = &self.record.header;
        let same = |name, text: &str| Column { name, values: Values::Text(vec![Some(text.to_owned()); lines]) };
        vec![
            same("run_id", &header.run_id),
            Column { name: "started_at", values: Values::Moment(vec![self.started_at; lines]) },
            same("suite", &header.suite.name),
            same("backend", &header.backend.name),
            same("library", &header.backend.library),
            Column { name: "driver", values: Values::Text(vec![self.driver.clone(); lines]) },
            same("program_version", &header.program_version),
            Column { name: "world_size", values: Values::Count(vec![Some(i64::from(header.world_size)); lines]) },
        ]
    }
}

/// The lines of all rows, as the content of a file.
pub(super) fn rows(run: &Run) -> Result<Vec<u8>> {
    let entries: Vec<Entry> = run.view.entries().collect();
    let text = |name, of: &dyn Fn(&Entry) -> Option<String>| Column {
        name,
        values: Values::Text(entries.iter().map(of).collect()),
    };
    let count = |name, of: &dyn Fn(&Entry) -> Option<u64>| Column {
        name,
        values: Values::Count(entries.iter().map(|entry| of(entry).map(|value| value as i64)).collect()),
    };
    let real = |name, of: &dyn Fn(&Entry) -> Option<f64>| Column {
        name,
        values: Values::Real(entries.iter().map(of).collect()),
    };
    let mut columns = run.common(entries.len());
    columns.extend([
        text("case", &|entry| Some(entry.name.clone().into_owned())),
        text("axis", &|entry| Some(entry.subject.axis())),
        text("style", &|entry| Some(entry.row?.facts.style.name().to_owned())),
        text("collective", &|entry| Some(entry.subject.what().to_owned())),
        text("element_type", &|entry| Some(entry.subject.element_type()?.name().to_owned())),
        text("placement", &|entry| Some(entry.row?.facts.placement.to_string())),
        text("cadence", &|entry| Some(entry.row?.facts.cadence.name().to_owned())),
        count("bytes_total", &|entry| Some(entry.subject.bytes()?.0)),
        count("group_size", &|entry| Some(u64::from(entry.row?.facts.group_size))),
        count("groups", &|entry| Some(u64::from(entry.row?.facts.groups))),
        count("nodes_spanned", &|entry| Some(u64::from(entry.row?.facts.locality.nodes_spanned))),
        text("status", &|entry| Some(entry.status.label().to_lowercase())),
        count("samples", &|entry| Some(entry.counts.samples)),
        count("replicates", &|entry| Some(u64::from(entry.counts.replicates))),
        real("latency_seconds_median", &|entry| Some(entry.latency?.median.0)),
        real("latency_seconds_p99", &|entry| Some(entry.latency?.p99?.0)),
        real("busbw_bytes_per_second", &|entry| Some(entry.busbw()?.0)),
        real("copy_bytes_per_second", &|entry| Some(entry.copy_rate()?.0)),
        real("flops_per_second", &|entry| entry.flops_per_second()),
    ]);
    let slowest = run.slowest_hosts();
    let host = |found: &Option<(String, f64)>| found.as_ref().map(|(host, _)| host.clone());
    let share = |found: &Option<(String, f64)>| found.as_ref().map(|(_, share)| *share);
    columns.push(Column { name: "slowest_host", values: Values::Text(slowest.iter().map(host).collect()) });
    columns.push(Column { name: "slowest_host_share", values: Values::Real(slowest.iter().map(share).collect()) });
    file(&columns)
}

impl Run<'_> {
    /// For each entry the host whose ranks were slowest most often, and in which share of the samples.
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

/// The lines of all pairs, where there are any.
pub(super) fn pairs(run: &Run) -> Result<Option<Vec<u8>>> {
    let Some(view) = &run.view.pairs else { return Ok(None) };
    let host = |index: usize| view.ranks.get(index).map(|rank| rank.host.clone());
    let rank = |index: usize| view.ranks.get(index).map(|rank| i64::from(rank.rank));
    let mut columns = run.common(view.pairs.len());
    columns.extend([
        Column { name: "host_a", values: Values::Text(view.pairs.iter().map(|pair| host(pair.a)).collect()) },
        Column { name: "host_b", values: Values::Text(view.pairs.iter().map(|pair| host(pair.b)).collect()) },
        Column { name: "rank_a", values: Values::Count(view.pairs.iter().map(|pair| rank(pair.a)).collect()) },
        Column { name: "rank_b", values: Values::Count(view.pairs.iter().map(|pair| rank(pair.b)).collect()) },
        measured(view, "latency_seconds", PairMeasure::Latency),
        measured(view, "one_way_bytes_per_second", PairMeasure::OneWay),
        measured(view, "both_ways_bytes_per_second", PairMeasure::BothWays),
    ]);
    file(&columns).map(Some)
}

fn measured(view: &PairsView, name: &'static str, measure: PairMeasure) -> Column {
    let value = |pair: &Pair| pair.values[measure as usize].map(|value| value.value);
    Column { name, values: Values::Real(view.pairs.iter().map(value).collect()) }
}

/// A file with one group of lines.
fn file(columns: &[Column]) -> Result<Vec<u8>> {
    written(columns).map_err(|cause| Error::environment(format!("cannot write the dataset: {cause}")))
}

fn written(columns: &[Column]) -> Written<Vec<u8>> {
    let fields: String = columns
        .iter()
        .map(|column| format!("  OPTIONAL {} {}{};\n", column.kind(), column.name, column.meaning()))
        .collect();
    let schema = Arc::new(parse_message_type(&format!("message commgauge {{\n{fields}}}"))?);
    let properties = Arc::new(WriterProperties::builder().set_compression(Compression::SNAPPY).build());
    let mut content = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut content, schema, properties)?;
    let mut group = writer.next_row_group()?;
    columns.iter().try_for_each(|column| column.write(&mut group))?;
    group.close()?;
    writer.close()?;
    Ok(content)
}

impl Column {
    fn kind(&self) -> &'static str {
        match self.values {
            Values::Text(_) => "BYTE_ARRAY",
            Values::Count(_) | Values::Moment(_) => "INT64",
            Values::Real(_) => "DOUBLE",
        }
    }

    fn meaning(&self) -> &'static str {
        match self.values {
            Values::Text(_) => " (STRING)",
            Values::Moment(_) => " (TIMESTAMP(MICROS,true))",
            Values::Count(_) | Values::Real(_) => "",
        }
    }

    fn write<W: std::io::Write + Send>(&self, group: &mut SerializedRowGroupWriter<W>) -> Written<()> {
        let Some(mut column) = group.next_column()? else { return Ok(()) };
        match &self.values {
            Values::Text(values) => {
                let known: Vec<ByteArray> = values.iter().flatten().map(|text| text.as_str().into()).collect();
                column.typed::<ByteArrayType>().write_batch(&known, Some(&levels(values)), None)?;
            }
            Values::Count(values) | Values::Moment(values) => {
                let known: Vec<i64> = values.iter().flatten().copied().collect();
                column.typed::<Int64Type>().write_batch(&known, Some(&levels(values)), None)?;
            }
            Values::Real(values) => {
                let known: Vec<f64> = values.iter().flatten().copied().collect();
                column.typed::<DoubleType>().write_batch(&known, Some(&levels(values)), None)?;
            }
        }
        column.close()
    }
}

/// Parquet's definition levels: 1 where there is a value.
fn levels<T>(values: &[Option<T>]) -> Vec<i16> {
    values.iter().map(|value| i16::from(value.is_some())).collect()
}
