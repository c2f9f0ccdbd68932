//! Text logs of benchmarks: numbered lines without launcher prefixes, the tool that wrote a file, and numbers in columns.
//!
//! Independent of any tool's table; each tool has its own file.

use super::imported::{BadLine, Imported, Known, Origin, Row, RunFault, name};
use ::csv::{ReaderBuilder, StringRecord};
use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use commgauge_base::embedded::pairs;
use commgauge_base::error::{Error, Result};
use commgauge_base::host;
use commgauge_base::units::{Bytes, Seconds, counted};
use commgauge_base::visible::ShownPath;
use commgauge_cost::cost::PlaceQuery;
use commgauge_model::layout::Locality;
use commgauge_model::record::line::ForeignTool;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Ten days; a larger value is a mistake in units.
const LONGEST_MICROSECONDS: f64 = 1e12;

/// Lines outside tables whose numbers a note lists.
const NAMED_LINES: usize = 5;

/// Characters of the first of them that it shows.
const LONGEST_SHOWN: usize = 80;

/// A time printed in the log host's time zone, assumed to be the local one.
pub(super) fn local_time(text: &str, form: &str) -> Option<Timestamp> {
    let time = DateTime::strptime(form, text).ok()?;
    time.to_zoned(TimeZone::system()).ok().map(|zoned| zoned.timestamp())
}

/// A line of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LogLine<'a> {
    /// From 1.
    pub number: u64,
    /// Without line end, surrounding blanks and the prefixes that launchers add.
    pub text: &'a str,
}

impl LogLine<'_> {
    pub(super) fn bad(&self, problem: impl Into<String>) -> BadLine {
        BadLine { number: self.number, problem: problem.into() }
    }
}

/// The text of a file; bytes that are not UTF-8 are replaced, since they occur only in names of hosts and devices.
pub(super) fn text_of(bytes: &[u8], path: &Path) -> Result<String> {
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        return Err(Error::usage(format!("{} is text in UTF-16; convert it to UTF-8", path.shown())));
    }
    Ok(String::from_utf8_lossy(bytes).trim_start_matches('\u{feff}').to_owned())
}

/// The content of a file.
///
/// # Errors
/// A usage error if it cannot be read.
pub fn bytes_of(path: &Path) -> Result<Vec<u8>> {
    host::read(path).map_err(|cause| Error::usage(format!("cannot read {}: {cause}", path.shown())))
}

pub(super) fn log_lines(text: &str) -> impl Iterator<Item = LogLine<'_>> {
    (1..).zip(text.lines()).map(|(number, line)| LogLine { number, text: unmarked(line).trim() })
}

/// Removes what launchers and collectors put before a line: `[1,0]<stdout>:` of Open MPI's --tag-output, `[0] ` of Hydra, `[default0]:` of
/// torchrun, `12: ` of srun --label, and the time of `kubectl logs --timestamps`. Of a line of standard error nothing is left.
fn unmarked(line: &str) -> &str {
    let line = line.trim_start();
    let is_rank = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b',');
    if let Some((mark, rest)) =
        line.strip_prefix('[').and_then(|line| line.split_once(']')).filter(|of| of.0.len() < 40)
    {
        let rank = mark.trim_start_matches(|one: char| one.is_ascii_alphabetic());
        return match (rest.strip_prefix("<stdout>"), rest.strip_prefix(':')) {
            (Some(rest), _) => rest.trim_start_matches(':'),
            _ if rest.starts_with("<stderr>") => "",
            (None, Some(rest)) if is_rank(rank) => rest,
            (None, None) if is_rank(mark) => rest,
            _ => line,
        };
    }
    match line.split_once(' ') {
        Some((rank, rest)) if rank.strip_suffix(':').is_some_and(is_rank) => rest,
        Some((time, rest)) if time.contains('T') && time.parse::<Timestamp>().is_ok() => rest,
        _ => line,
    }
}

/// Refuses a file that contains no output of the requested tool, named as in `writers.txt`, and names the tool that wrote it.
pub(super) fn expect_writer(path: &Path, text: &str, wanted: &str) -> Result<()> {
    let mut first = None;
    for line in log_lines(text) {
        let has_all = |marks: &str| marks.split(" & ").all(|mark| line.text.contains(mark));
        match pairs(include_str!("writers.txt")).find(|(marks, _)| has_all(marks)) {
            Some((_, writer)) if writer.starts_with(wanted) => return Ok(()),
            found => first = first.or(found),
        }
    }
    let origin = first.map_or_else(
        || "nor of another supported tool (nccl-tests, osu, imb, csv)".to_owned(),
        |(_, writer)| format!("it seems to come from {writer}"),
    );
    Err(Error::usage(format!("{} holds no output of {wanted}: {origin}", path.shown())))
}

/// Lines outside every table, which are counted but not read.
#[derive(Debug, Default)]
pub(super) struct Unread {
    count: u64,
    first: Vec<String>,
    /// The text of the first.
    text: String,
}

impl Unread {
    pub(super) fn add(&mut self, line: LogLine) {
        self.count += 1;
        if self.first.is_empty() {
            self.text = line.text.chars().take(LONGEST_SHOWN).collect();
        }
        if self.first.len() < NAMED_LINES {
            self.first.push(line.number.to_string());
        }
    }

    /// A note about them, if any.
    pub(super) fn note(&self) -> Option<String> {
        let more = if self.count as usize > self.first.len() { ", ..." } else { "" };
        (self.count > 0).then(|| {
            let (lines, were) = (counted(self.count as usize, "line"), if self.count == 1 { "was" } else { "were" });
            format!(
                "{lines} that no table has {were} not read: line {}{more}; the first is `{}`",
                self.first.join(", "),
                self.text
            )
        })
    }
}

/// A time above zero.
pub(super) fn microseconds(column: &str, text: &str) -> std::result::Result<Seconds, String> {
    let value = text.parse::<f64>().ok().filter(|value| *value > 0.0 && *value < LONGEST_MICROSECONDS);
    value
        .map(|value| Seconds(value * 1e-6))
        // The smallest numbers that a text can express become zero in the conversion.
        .filter(|seconds| seconds.0 > 0.0)
        .ok_or_else(|| format!("{column}: found `{text}`; accepted: microseconds above 0"))
}

/// A whole number.
pub(super) fn whole(column: &str, text: &str) -> std::result::Result<u64, String> {
    text.parse().map_err(|_| format!("{column}: found `{text}`; accepted: a whole number from 0 on"))
}

/// `bytes` times the number of ranks.
pub(super) fn for_each_rank(bytes: u64, ranks: u32) -> std::result::Result<u64, String> {
    bytes.checked_mul(u64::from(ranks)).ok_or_else(|| format!("{bytes} bytes on each of {ranks} ranks exceed 64 bits"))
}

/// The processes of a launch command: `mpirun -np 16 ...`, `srun -N 2 --ntasks-per-node 8 ...`, `mpirun -H a:8,b:8 ...`.
pub(super) fn launched_processes(text: &str) -> Option<u32> {
    let launchers = ["mpirun", "mpiexec", "mpirun_rsh", "srun"];
    let is_launcher = |word: &str| launchers.contains(&word.rsplit('/').next().unwrap_or(word));
    let words = text.split_whitespace().skip_while(|word| !is_launcher(word)).skip(1);
    let words = words.take_while(|word| !["_perf", "osu_"].iter().any(|of_program| word.contains(of_program)));
    let words: Vec<&str> = words.flat_map(|word| word.splitn(2, '=')).collect();
    let is_number = |text: &&str| text.bytes().all(|byte| byte.is_ascii_digit());
    let after = |names: &[&str]| {
        let mut found = words.iter().enumerate().filter_map(|(at, word)| {
            let rest = names.iter().find_map(|name| word.strip_prefix(name).filter(is_number))?;
            Some((at, rest))
        });
        let (at, rest) = found.next()?;
        if rest.is_empty() { words.get(at + 1).copied() } else { Some(rest) }
    };
    let number = |names: &[&str]| after(names)?.parse::<u32>().ok().filter(|number| *number > 0);
    let slots = |host: &str| host.split_once(':').map_or(Some(1), |(_, slots)| slots.parse::<u32>().ok());
    let sum = |hosts: &str| hosts.split(',').try_fold(0_u32, |sum, host| sum.checked_add(slots(host)?));
    let of_nodes = || number(&["-N", "--nodes"])?.checked_mul(number(&["--ntasks-per-node"])?);
    number(&["-np", "--np", "--ntasks", "-n"])
        .or_else(of_nodes)
        .or_else(|| sum(after(&["-H", "--host", "-hosts", "-host"])?))
}

/// Whether a line looks like a table row: a number, followed by numbers.
pub(super) fn looks_like_a_row(text: &str) -> bool {
    let mut words = text.split_whitespace();
    let whole = |word: &str| word.bytes().all(|byte| byte.is_ascii_digit());
    let number = |word: &str| word.parse::<f64>().is_ok() && word.contains('.');
    words.next().is_some_and(whole) && words.clone().count() >= 1 && words.any(number)
}

// Comma-separated values with one time in each row: `collective`, `dtype`, `ranks`, `bytes_total`, `latency_us`,
// optional `locality`; further columns become labels.

const REQUIRED: [&str; 5] = ["collective", "dtype", "ranks", "bytes_total", "latency_us"];

const LOCALITY: &str = "locality";

/// Reads a file. Unreadable lines are returned with their number.
///
/// # Errors
/// A usage error if the file cannot be read, or lacks a column.
pub fn read(path: &Path) -> Result<Imported> {
    parse(&bytes_of(path)?, path)
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
            "line 1: no column `{missing}`; found {}; needed {}",
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
        bytes_total: Bytes(whole("bytes_total", field("bytes_total")?)?),
        latency: microseconds("latency_us", field("latency_us")?)?,
        locality,
        known: Known::default(),
        labels,
    })
}

/// The collective of a name, including names without underscores as other tools write them (`alltoall`, `AllReduce`).
pub fn collective(text: &str) -> std::result::Result<Collective, String> {
    let bare = |name: &str| name.chars().filter(|c| *c != '_').collect::<String>().to_ascii_lowercase();
    let known = Collective::ALL.into_iter().find(|collective| bare(collective.name()) == bare(text));
    known.map_or_else(|| text.parse().map_err(|problem| format!("collective: {problem}")), Ok)
}

// Several logs of one command as replicates, and the reasons against that.

/// A file of another tool.
#[derive(Clone, Debug, PartialEq)]
pub struct ImportedFile {
    pub name: String,
    pub imported: Imported,
}

/// The rows of several files of a tool, and their source. A warning names rows that one file has and another lacks.
pub fn joined(tool: ForeignTool, files: Vec<ImportedFile>) -> (Origin, Vec<Row>) {
    let names: Vec<String> = files.iter().map(|file| file.name.clone()).collect();
    let mut origin = Origin::of(tool, &names);
    for ImportedFile { name: file, imported } in &files {
        origin.facts.notes.extend(imported.facts.notes.iter().map(|note| format!("{file}: {note}")));
        origin.facts.warnings.extend(imported.facts.warnings.iter().map(|warning| format!("{file}: {warning}")));
        let faults = imported.facts.faults.iter();
        origin.facts.faults.extend(faults.map(|fault| RunFault { text: format!("{file}: {}", fault.text), ..*fault }));
    }
    origin.facts.started =
        files.iter().map(|file| file.imported.facts.started).collect::<Option<Vec<_>>>().into_iter().flatten().max();
    let largest = files.iter().max_by_key(|file| file.imported.facts.ranks.len());
    origin.facts.library_use = largest.map(|file| file.imported.facts.library_use.clone()).unwrap_or_default();
    origin.facts.ranks = largest.map(|file| file.imported.facts.ranks.clone()).unwrap_or_default();
    let mut rows: Vec<Row> = files.into_iter().flat_map(|file| file.imported.rows).collect();
    // They make rows of other hosts or settings other rows; where all are alike they say nothing.
    for name in ["hosts", "iters"] {
        let values: BTreeSet<_> = rows.iter().map(|row| row.labels.get(name)).collect();
        if values.len() == 1 {
            rows.iter_mut().for_each(|row| drop(row.labels.remove(name)));
        }
    }
    origin.facts.warnings.extend(uneven(&rows));
    (origin, rows)
}

/// Rows of one curve that occur in different numbers.
fn uneven(rows: &[Row]) -> Option<String> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut curve_of: BTreeMap<String, String> = BTreeMap::new();
    for row in rows {
        let name = name(row);
        let curve = Row { bytes_total: commgauge_base::units::Bytes(0), ..row.clone() };
        curve_of.entry(name.clone()).or_insert_with(|| self::name(&curve));
        *counts.entry(name).or_default() += 1;
    }
    let mut rows_of_curve: BTreeMap<&str, Vec<(usize, &str)>> = BTreeMap::new();
    for (name, count) in &counts {
        rows_of_curve.entry(curve_of[name].as_str()).or_default().push((*count, name.as_str()));
    }
    rows_of_curve.into_values().find_map(|rows| {
        let ((few, rare), (many, often)) = (rows.iter().min()?, rows.iter().max()?);
        (few < many).then(|| {
            format!("{rare} occurs {few} times and {often} {many} times: a log is truncated or from another command")
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_of_launchers_are_removed() {
        for (line, text) in [
            ("[1,0]<stdout>:# Size   Latency (us)", "# Size   Latency (us)"),
            ("[1,12]<stdout>: 8    1.20", "8    1.20"),
            (" 0:  8  1.20\r", "8  1.20"),
            ("[0] NCCL INFO x", "NCCL INFO x"),
            ("host: 8 1", "host: 8 1"),
        ] {
            assert_eq!(log_lines(line).next().unwrap().text, text);
        }
    }

    #[test]
    fn a_file_of_another_tool_is_recognised() {
        for (text, expected) in [
            ("# OSU MPI Latency Test v7.4\n", "--from osu"),
            ("#bytes #repetitions  t[usec]\n", "--from imb"),
            ("# size count type time algbw busbw\n", "--from nccl-tests"),
            ("collective,dtype,ranks,bytes_total,latency_us\n", "--from csv"),
            ("{\"line\":\"header\",\"format\":\"commgauge-record\"}\n", "already a record"),
            (" #bytes     #iterations    BW peak[MB/sec]\n", "perftest"),
            ("hello\n", "nor of another supported tool"),
            ("", "nor of another supported tool"),
        ] {
            let error = expect_writer(Path::new("f"), text, "x").unwrap_err().to_string();
            assert!(error.contains(expected), "{text:?}: {error}");
        }
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        for text in ["0", "-1", "NaN", "inf", "1e300", "", "x"] {
            assert!(microseconds("time", text).is_err(), "{text}");
        }
        assert!(for_each_rank(u64::MAX / 2, 3).is_err());
        assert!(whole("size", "18446744073709551616").is_err());
    }

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
