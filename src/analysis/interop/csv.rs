//! Comma-separated values with one time in each row: `collective`, `dtype`, `ranks`, `bytes_total`, `latency_us`,
//! optional `locality`; further columns become labels.

use super::imported::{BadLine, Imported, Known, Row};
use crate::cost::PlaceQuery;
use ::csv::{ReaderBuilder, StringRecord};
use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use commgauge_base::error::{Error, Result};
use commgauge_base::input_file;
use commgauge_base::units::{Bytes, Seconds};
use commgauge_base::visible::ShownPath;
use commgauge_model::layout::Locality;
use std::collections::BTreeMap;
use std::path::Path;

const REQUIRED: [&str; 5] = ["collective", "dtype", "ranks", "bytes_total", "latency_us"];
const LOCALITY: &str = "locality";
/// Ten days; what is above it is a slip of units.
const LONGEST_MICROSECONDS: f64 = 1e12;

/// Reads a file. Unreadable lines are returned with their number.
///
/// # Errors
/// A usage error if the file cannot be read, or lacks a column.
pub fn read(path: &Path) -> Result<Imported> {
    let text =
        input_file::read(path).map_err(|cause| Error::usage(format!("cannot read {}: {cause}", path.shown())))?;
    parse(&text, path)
}

/// Parses the content of a file, as [`read`] does; `path` is for the messages.
///
/// # Errors
/// As [`read`].
pub fn parse(text: &[u8], path: &Path) -> Result<Imported> {
    let mut reader = ReaderBuilder::new().flexible(true).trim(::csv::Trim::All).from_reader(text);
    let wrong = |problem: String| Error::usage(format!("{}: {problem}", path.shown()));
    let columns = reader.headers().map_err(|cause| wrong(format!("line 1: {cause}")))?.clone();
    if let Some(missing) = REQUIRED.iter().find(|name| !columns.iter().any(|column| column == **name)) {
        return Err(wrong(format!(
            "line 1: there is no column `{missing}`; found {}; needed {}",
            columns.iter().collect::<Vec<_>>().join(", "),
            REQUIRED.join(", ")
        )));
    }
    let mut imported = Imported::default();
    for (index, record) in reader.records().enumerate() {
        let (number, row) = match record {
            Ok(record) => {
                let number = record.position().map_or(index as u64 + 2, ::csv::Position::line);
                (number, row(&columns, &record))
            }
            Err(cause) => (cause.position().map_or(index as u64 + 2, ::csv::Position::line), Err(cause.to_string())),
        };
        match row {
            Ok(row) => imported.rows.push(row),
            Err(problem) => imported.bad_lines.push(BadLine { number, problem }),
        }
    }
    Ok(imported)
}

fn row(columns: &StringRecord, record: &StringRecord) -> std::result::Result<Row, String> {
    if record.len() != columns.len() {
        return Err(format!("has {} fields, the heading {}", record.len(), columns.len()));
    }
    let field = |name: &str| {
        let index = columns.iter().position(|column| column == name);
        index.and_then(|index| record.get(index)).ok_or_else(|| format!("{name}: is missing"))
    };
    let ranks = field("ranks")?;
    let ranks: u32 = ranks
        .parse()
        .ok()
        .filter(|ranks| *ranks > 0)
        .ok_or_else(|| format!("ranks: found `{ranks}`; accepted: a whole number from 1 on"))?;
    let bytes = field("bytes_total")?;
    let bytes: u64 =
        bytes.parse().map_err(|_| format!("bytes_total: found `{bytes}`; accepted: a whole number of bytes"))?;
    let locality = match field(LOCALITY) {
        Ok(text) if !text.is_empty() => text.parse::<PlaceQuery>()?.locality(ranks),
        _ => Locality::UNKNOWN,
    };
    let is_label = |name: &str| name != LOCALITY && !REQUIRED.contains(&name);
    let labels: BTreeMap<String, String> = columns
        .iter()
        .zip(record)
        .filter(|(name, _)| is_label(name))
        .map(|(name, text)| (name.to_owned(), text.to_owned()))
        .collect();
    Ok(Row {
        collective: collective(field("collective")?)?,
        element_type: field("dtype")?.parse::<ElementType>().map_err(|problem| format!("dtype: {problem}"))?,
        ranks,
        bytes_total: Bytes(bytes),
        latency: latency(field("latency_us")?)?,
        locality,
        known: Known::default(),
        labels,
    })
}

/// The collective of a name: ours, or that of a tool which writes it without underscores (`alltoall`, `AllReduce`).
pub fn collective(text: &str) -> std::result::Result<Collective, String> {
    let bare = |name: &str| name.chars().filter(|c| *c != '_').collect::<String>().to_ascii_lowercase();
    let known = Collective::ALL.into_iter().find(|collective| bare(collective.name()) == bare(text));
    known.map_or_else(|| text.parse().map_err(|problem| format!("collective: {problem}")), Ok)
}

fn latency(text: &str) -> std::result::Result<Seconds, String> {
    let microseconds = text.parse::<f64>().ok().filter(|value| *value > 0.0 && *value < LONGEST_MICROSECONDS);
    microseconds
        .map(|microseconds| Seconds(microseconds * 1e-6))
        // The smallest numbers that a text can express become zero in the conversion.
        .filter(|seconds| seconds.0 > 0.0)
        .ok_or_else(|| format!("latency_us: found `{text}`; accepted: microseconds above 0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADING: &str = "system,collective,dtype,ranks,bytes_total,latency_us\n";

    fn parsed(rows: &str) -> Imported {
        parse(format!("{HEADING}{rows}").as_bytes(), Path::new("t.csv")).unwrap()
    }

    #[test]
    fn an_unparsable_line_is_reported_with_its_number() {
        for (line, problem) in [
            ("x,poem,half,2,512,8", "found collective `poem`"),
            ("x,alltoall,float3,2,512,8", "found element type `float3`"),
            ("x,alltoall,half,two,512,8", "ranks: found `two`"),
            ("x,alltoall,half,0,512,8", "ranks: found `0`"),
            ("x,alltoall,half,2,-512,8", "bytes_total: found `-512`"),
            ("x,alltoall,half,2,512,-8", "latency_us: found `-8`"),
            ("x,alltoall,half,2,512,NaN", "latency_us: found `NaN`"),
            ("x,alltoall,half,2,512,inf", "latency_us: found `inf`"),
            ("x,alltoall,half,2,512", "has 5 fields, the heading 6"),
        ] {
            let imported = parsed(&format!("x,alltoall,half,2,512,8.98\n{line}\n"));
            assert_eq!(imported.rows.len(), 1, "{line}");
            assert_eq!(imported.bad_lines[0].number, 3, "{line}");
            assert!(imported.bad_lines[0].problem.contains(problem), "{:?}", imported.bad_lines);
        }
    }

    #[test]
    fn a_missing_column_is_named_with_those_that_are_needed() {
        let error = parse(b"collective,ranks\n", Path::new("t.csv")).unwrap_err().to_string();
        assert!(error.contains("no column `dtype`") && error.contains("latency_us"), "{error}");
    }

    #[test]
    fn names_of_other_tools_are_understood_and_further_columns_become_labels() {
        let imported = parsed("h100,alltoall,half,8,512,5.31\nh100,AllReduce,bfloat16,2,512,1\n");
        assert!(imported.bad_lines.is_empty());
        assert_eq!(imported.rows[0].collective, Collective::AllToAll);
        assert_eq!(imported.rows[1].collective, Collective::AllReduce);
        assert_eq!(imported.rows[0].labels, BTreeMap::from([("system".to_owned(), "h100".to_owned())]));
        assert!((imported.rows[0].latency.0 - 5.31e-6).abs() < 1e-15 && !imported.rows[0].locality.is_known());
    }

    #[test]
    fn a_locality_column_sets_the_placement_of_the_group() {
        let text = "collective,dtype,ranks,bytes_total,latency_us,locality\nall_reduce,half,16,512,1,2n/4g/s8\n";
        let row = parse(text.as_bytes(), Path::new("t.csv")).unwrap().rows.remove(0);
        let expected = Locality { nodes_spanned: 2, ranks_per_node: 8, stride: 8, concurrent_groups_per_node: 4 };
        assert_eq!(row.locality, expected);
    }
}
