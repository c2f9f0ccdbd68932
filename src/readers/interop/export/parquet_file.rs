//! Parquet files from rows of JSON: the dataset of a store, and planners' files.

use commgauge_base::error::{Error, Result};
use parquet::basic::{Compression, Type};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::Result as Written;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::parser::parse_message_type;
use serde_json::{Map, Value};
use std::sync::Arc;

/// A file with one group of rows. The schema is a message of Parquet; each column has the name of its key in a row, and is a text, an int64
/// or a double.
///
/// # Errors
/// A row without a required column, or an invalid schema; `what` names the file.
pub fn parquet_file(what: &str, schema: &str, rows: &[Map<String, Value>]) -> Result<Vec<u8>> {
    written(schema, rows).map_err(|cause| Error::environment(format!("cannot write {what}: {cause}")))
}

fn written(schema: &str, rows: &[Map<String, Value>]) -> Written<Vec<u8>> {
    let schema = Arc::new(parse_message_type(schema)?);
    let properties = Arc::new(WriterProperties::builder().set_compression(Compression::SNAPPY).build());
    let mut writer = SerializedFileWriter::new(Vec::new(), schema.clone(), properties)?;
    let mut group = writer.next_row_group()?;
    for field in schema.get_fields() {
        let Some(mut column) = group.next_column()? else { continue };
        let values = || rows.iter().map(|row| row.get(field.name()).unwrap_or(&Value::Null));
        match field.get_physical_type() {
            Type::INT64 => write::<Int64Type>(&mut column, values().map(Value::as_i64))?,
            Type::DOUBLE => write::<DoubleType>(&mut column, values().map(Value::as_f64))?,
            _ => write::<ByteArrayType>(&mut column, values().map(|value| value.as_str().map(ByteArray::from)))?,
        }
        column.close()?;
    }
    group.close()?;
    writer.into_inner()
}

/// Writes the values of a column. Parquet's definition level is 1 for a present value.
fn write<T: DataType>(column: &mut SerializedColumnWriter, values: impl Iterator<Item = Option<T::T>>) -> Written<()> {
    let values: Vec<Option<T::T>> = values.collect();
    let levels: Vec<i16> = values.iter().map(|value| i16::from(value.is_some())).collect();
    let known: Vec<T::T> = values.into_iter().flatten().collect();
    column.typed::<T>().write_batch(&known, Some(&levels), None).map(drop)
}
