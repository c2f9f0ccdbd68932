//! The text logs of benchmarks: numbered lines without the launcher's marks, whose output a file is, and numbers in columns.
//!
//! Knows no tool's table; see the file of each.

use super::imported::BadLine;
use commgauge_base::error::{Error, Result};
use commgauge_base::input_file;
use commgauge_base::units::{Seconds, counted};
use commgauge_base::visible::ShownPath;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use std::path::Path;

/// Ten days; what is above it is a slip of units.
const LONGEST_MICROSECONDS: f64 = 1e12;
/// Lines outside tables that a note names by their numbers.
const NAMED_LINES: usize = 5;

/// A time that a log has in the zone of its host, which is taken to be this one's.
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
    Ok(String::from_utf8_lossy(bytes).into_owned())
}

/// The content of a file.
pub(super) fn bytes_of(path: &Path) -> Result<Vec<u8>> {
    input_file::read(path).map_err(|cause| Error::usage(format!("cannot read {}: {cause}", path.shown())))
}

pub(super) fn log_lines(text: &str) -> impl Iterator<Item = LogLine<'_>> {
    (1..).zip(text.lines()).map(|(number, line)| LogLine { number, text: unmarked(line).trim() })
}

/// Without `[1,0]<stdout>:` of Open MPI's --tag-output and `12: ` of srun --label.
fn unmarked(line: &str) -> &str {
    if line.starts_with('[')
        && let Some((mark, rest)) = line.split_once("]<stdout>")
        && mark.len() < 40
    {
        return rest.trim_start_matches(':');
    }
    match line.trim_start().split_once(": ") {
        Some((rank, rest)) if !rank.is_empty() && rank.bytes().all(|byte| byte.is_ascii_digit()) => rest,
        _ => line,
    }
}

/// The tool that wrote a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Writer {
    NcclTests,
    Osu,
    Imb,
    Record,
    Csv,
    /// A tool of which only the name is known.
    Other(&'static str),
}

impl Writer {
    /// Recognised by text that only this tool writes.
    fn of_line(text: &str) -> Option<Writer> {
        let has = |words: &[&str]| words.iter().all(|word| text.contains(word));
        let found = match text {
            _ if has(&["\"commgauge-record\""]) => Writer::Record,
            _ if has(&["algbw", "busbw"]) || has(&["# nThread", "nGpus"]) || has(&["\"alg_bw\"", "\"bus_bw\""]) => {
                Writer::NcclTests
            }
            _ if has(&["# OSU ", " Test"]) || has(&["# OSU ", " Rate"]) => Writer::Osu,
            _ if has(&["Intel(R) MPI Benchmarks"]) || has(&["#repetitions"]) || has(&["# Benchmarking "]) => {
                Writer::Imb
            }
            _ if has(&["collective,", "ranks", "latency_us"]) => Writer::Csv,
            _ if has(&["#bytes", "#iterations"]) => Writer::Other("perftest (ib_write_bw and its kin)"),
            _ if has(&["nvbandwidth"]) => Writer::Other("nvbandwidth"),
            _ => return None,
        };
        Some(found)
    }

    /// Name of the tool, and the flag that reads its files.
    fn describe(self) -> String {
        match self {
            Writer::NcclTests => "nccl-tests; read it with --from nccl-tests".to_owned(),
            Writer::Osu => "the OSU micro-benchmarks; read it with --from osu".to_owned(),
            Writer::Imb => "the Intel MPI Benchmarks; read it with --from imb".to_owned(),
            Writer::Record => "commgauge itself; it is a record already".to_owned(),
            Writer::Csv => "a program that writes comma-separated values; read it with --from csv".to_owned(),
            Writer::Other(name) => format!("{name}, which commgauge does not read"),
        }
    }
}

/// Refuses a file that contains no output of the requested tool, and names the tool that wrote it.
pub(super) fn expect_writer(path: &Path, text: &str, wanted: Writer, name: &str) -> Result<()> {
    let mut first = None;
    for line in log_lines(text) {
        match Writer::of_line(line.text) {
            Some(writer) if writer == wanted => return Ok(()),
            found => first = first.or(found),
        }
    }
    let origin = first.map_or_else(
        || "nor of another tool that commgauge knows (nccl-tests, osu, imb, csv)".to_owned(),
        |writer| format!("it seems to be written by {}", writer.describe()),
    );
    Err(Error::usage(format!("{} holds no output of {name}: {origin}", path.shown())))
}

/// Lines outside of every table, which are not read but counted.
#[derive(Debug, Default)]
pub(super) struct Unread {
    count: u64,
    first: Vec<String>,
}

impl Unread {
    pub(super) fn add(&mut self, line: LogLine) {
        self.count += 1;
        if self.first.len() < NAMED_LINES {
            self.first.push(line.number.to_string());
        }
    }

    /// As a sentence, if there are any.
    pub(super) fn note(&self) -> Option<String> {
        let more = if self.count as usize > self.first.len() { ", ..." } else { "" };
        (self.count > 0).then(|| {
            let (lines, were) = (counted(self.count as usize, "line"), if self.count == 1 { "was" } else { "were" });
            format!("{lines} outside of tables {were} not read: line {}{more}", self.first.join(", "))
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

/// `bytes` once for each rank.
pub(super) fn for_each_rank(bytes: u64, ranks: u32) -> std::result::Result<u64, String> {
    bytes.checked_mul(u64::from(ranks)).ok_or_else(|| format!("{bytes} bytes for each of {ranks} ranks are too many"))
}

/// Whether a line begins as the row of a table does: with a number, and numbers after it.
pub(super) fn looks_like_a_row(text: &str) -> bool {
    let mut words = text.split_whitespace();
    let whole = |word: &str| word.bytes().all(|byte| byte.is_ascii_digit());
    let number = |word: &str| word.parse::<f64>().is_ok() && word.contains('.');
    words.next().is_some_and(whole) && words.clone().count() >= 1 && words.any(number)
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
            ("[0] NCCL INFO x", "[0] NCCL INFO x"),
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
            ("{\"line\":\"header\",\"format\":\"commgauge-record\"}\n", "a record already"),
            (" #bytes     #iterations    BW peak[MB/sec]\n", "perftest"),
            ("hello\n", "nor of another tool"),
            ("", "nor of another tool"),
        ] {
            let error = expect_writer(Path::new("f"), text, Writer::Other("x"), "x").unwrap_err().to_string();
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
}
