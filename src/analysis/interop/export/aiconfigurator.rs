//! `nccl_perf.parquet` of aiconfigurator (ai-dynamo/aiconfigurator): one time for each call inside a node.
//!
//! Columns, types and units as in the files that its package has: `message_size` counts elements, `latency` is milliseconds,
//! `nccl_dtype` is `half` or `int8`, and all_to_all is `alltoall`. It scales what crosses nodes by itself, so only groups inside a
//! node are given.

use super::files::Export;
use super::pick::{Curves, Wanted};
use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use commgauge_base::error::{Error, Result};
use parquet::basic::Compression;
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::Result as Written;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use std::collections::BTreeSet;
use std::sync::Arc;

const SCHEMA: &str = "message nccl_perf {
    required binary framework (STRING); required binary version (STRING); required binary device (STRING);
    required binary op_name (STRING); required binary kernel_source (STRING); required binary nccl_dtype (STRING);
    required int64 num_gpus; required int64 message_size; required double latency;
}";
const CALLS: [(Collective, &str); 4] = [
    (Collective::AllGather, "all_gather"),
    (Collective::AllToAll, "alltoall"),
    (Collective::ReduceScatter, "reduce_scatter"),
    (Collective::AllReduce, "all_reduce"),
];

pub(super) fn files(curves: &Curves) -> Result<Export> {
    let mut export = Export::default();
    let mut rows: Vec<Row> = Vec::new();
    for (collective, op_name) in CALLS {
        let own = curves.families().filter(|family| family.key.collective == collective);
        let mut inside: Vec<_> = own.filter(|family| curves.matches(family, Wanted::OnHosts(1))).collect();
        // The format has no placements: a group size is represented by the fewest concurrent groups, then by
        // neighbours.
        inside.sort_by_key(|family| (family.key.place.concurrent_groups_per_node, family.key.place.stride));
        let mut written = BTreeSet::new();
        if inside.is_empty() {
            export
                .gaps
                .push(format!("{collective} inside a host was not measured{}", curves.hint_at_places(&[collective])));
        }
        for family in inside {
            let types = types(family.key.element_type);
            if types.is_empty() {
                let element = family.key.element_type.map_or_else(String::new, |element| element.to_string());
                export.gaps.push(format!("{collective} of {element}: the file knows half and int8"));
            }
            if family.key.element_type == Some(ElementType::Bfloat16) {
                export.notes.push(format!("{collective}: bfloat16 is given as half, which is as wide"));
            }
            for curve in &family.curves {
                for (name, width) in types {
                    for point in curve.points.iter().filter(|point| point.bytes_total.0.is_multiple_of(*width)) {
                        let Some(seconds) = point.curve_seconds else { continue };
                        if !written.insert((*name, curve.ranks, point.bytes_total)) {
                            continue;
                        }
                        rows.push(Row {
                            op_name,
                            nccl_dtype: name,
                            num_gpus: curve.ranks,
                            message_size: point.bytes_total.0 / width,
                            latency_milliseconds: seconds.0 * 1e3,
                        });
                    }
                }
            }
        }
    }
    if !rows.is_empty() {
        export.add("nccl_perf.parquet", parquet(&rows, &curves.source())?);
    }
    Ok(export)
}

/// A line of the file.
struct Row {
    op_name: &'static str,
    nccl_dtype: &'static str,
    num_gpus: u32,
    /// Elements.
    message_size: u64,
    latency_milliseconds: f64,
}

/// The rows as Parquet; the fit that they come from is their `framework`.
fn parquet(rows: &[Row], source: &str) -> Result<Vec<u8>> {
    written(rows, source).map_err(|cause| Error::environment(format!("cannot write the export as Parquet: {cause}")))
}

fn written(rows: &[Row], source: &str) -> Written<Vec<u8>> {
    let properties = Arc::new(WriterProperties::builder().set_compression(Compression::SNAPPY).build());
    let mut writer = SerializedFileWriter::new(Vec::new(), Arc::new(parse_message_type(SCHEMA)?), properties)?;
    let mut group = writer.next_row_group()?;
    let same = |text| vec![text; rows.len()];
    let texts: [Vec<&str>; 6] = [
        same(source),
        same(""),
        same(""),
        rows.iter().map(|row| row.op_name).collect(),
        same("NCCL"),
        rows.iter().map(|row| row.nccl_dtype).collect(),
    ];
    for text in texts {
        let values: Vec<ByteArray> = text.into_iter().map(ByteArray::from).collect();
        if let Some(mut column) = group.next_column()? {
            column.typed::<ByteArrayType>().write_batch(&values, None, None)?;
            column.close()?;
        }
    }
    let counts: [Vec<i64>; 2] = [
        rows.iter().map(|row| i64::from(row.num_gpus)).collect(),
        rows.iter().map(|row| row.message_size.cast_signed()).collect(),
    ];
    for values in counts {
        if let Some(mut column) = group.next_column()? {
            column.typed::<Int64Type>().write_batch(&values, None, None)?;
            column.close()?;
        }
    }
    let latencies: Vec<f64> = rows.iter().map(|row| row.latency_milliseconds).collect();
    if let Some(mut column) = group.next_column()? {
        column.typed::<DoubleType>().write_batch(&latencies, None, None)?;
        column.close()?;
    }
    group.close()?;
    writer.into_inner()
}

/// The names of a type and its bytes; a call that only moves bytes takes equally long for any type.
fn types(element: Option<ElementType>) -> &'static [(&'static str, u64)] {
    match element {
        None => &[("half", 2), ("int8", 1)],
        Some(ElementType::Float16 | ElementType::Bfloat16) => &[("half", 2)],
        Some(ElementType::Int8 | ElementType::Uint8) => &[("int8", 1)],
        Some(_) => &[],
    }
}
