//! The formats of traces, distinguished by the first bytes of a file.

mod chakra;
mod inspector;
mod kineto;
mod nsys;
mod pickle;
mod pytorch;

use super::call::{FileTrace, ProcessTrace};
use commgauge_base::embedded::pairs;
use commgauge_base::error::{Error, Result};
use commgauge_base::host;
use commgauge_base::visible::ShownPath;
use flate2::read::MultiGzDecoder;
use std::io::{BufReader, Read};
use std::path::Path;

/// The writer of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr)]
pub enum TraceFormat {
    /// PyTorch's profiler (Kineto), exported as a Chrome trace.
    #[strum(serialize = "PyTorch profiler")]
    Kineto,
    /// A dump of PyTorch's flight recorder, as JSON or as a pickle.
    #[strum(serialize = "flight recorder")]
    FlightRecorder,
    /// PyTorch's `ExecutionTraceObserver`, as JSON.
    #[strum(serialize = "PyTorch execution trace")]
    ExecutionTrace,
    /// An execution trace of Chakra (MLCommons), as protobuf messages.
    #[strum(serialize = "Chakra execution trace")]
    Chakra,
    /// NCCL's inspector, a profiler plugin.
    #[strum(serialize = "NCCL inspector")]
    NcclInspector,
    /// `NCCL_DEBUG=INFO` with `NCCL_DEBUG_SUBSYS=INIT,COLL`.
    #[strum(serialize = "NCCL log")]
    NcclLog,
    /// Nsight Systems, exported as SQLite.
    #[strum(serialize = "Nsight Systems")]
    Nsys,
}

commgauge_base::error::names!(TraceFormat);

/// Number of bytes that identify a format.
const START_BYTES: usize = 4096;

/// Content of a file: of one rank, or of processes that give their communicators.
pub(super) enum FileContent {
    Rank(FileTrace),
    Processes(ProcessTrace),
}

/// Reads a file of any of the formats.
///
/// # Errors
/// If the file cannot be read, or has no usable content.
pub(super) fn read_file(path: &Path) -> Result<(TraceFormat, FileContent)> {
    let cannot = |cause: std::io::Error| Error::usage(format!("cannot read {}: {cause}", path.shown()));
    let mut source = opened(path).map_err(cannot)?;
    let mut start = Vec::new();
    source.by_ref().take(START_BYTES as u64).read_to_end(&mut start).map_err(cannot)?;
    let wrong = |problem: String| Error::usage(format!("{} {problem}", path.shown()));
    let Some(format) = format_of(&start) else {
        let text = String::from_utf8_lossy(&start);
        let other = pairs(include_str!("other_files.txt")).find(|(mark, _)| text.contains(mark));
        let what = other.map_or("not a supported trace", |(_, what)| what);
        return Err(wrong(format!("is {what}; accepted: {ACCEPTED}")));
    };
    let longest = if start.trim_ascii_start().starts_with(b"{") { LONGEST_TEXT } else { usize::MAX };
    let source = BoundedTexts { source: start.as_slice().chain(source), longest, since_quote: 0 };
    let mut source = BufReader::new(source);
    let content = match format {
        TraceFormat::Kineto => FileContent::Rank(kineto::read(source)),
        TraceFormat::ExecutionTrace => FileContent::Rank(chakra::read_execution_trace(source)),
        TraceFormat::Chakra => FileContent::Rank(chakra::read(source)),
        TraceFormat::NcclInspector => FileContent::Processes(inspector::read(source)),
        TraceFormat::Nsys => FileContent::Processes(nsys::read(path).map_err(wrong)?),
        TraceFormat::FlightRecorder => FileContent::Rank(pytorch::read(source).map_err(wrong)?),
        TraceFormat::NcclLog => {
            let mut bytes = Vec::new();
            source.by_ref().take(LONGEST_LOG + 1).read_to_end(&mut bytes).map_err(cannot)?;
            if bytes.len() as u64 > LONGEST_LOG {
                return Err(wrong(format!("is longer than {LONGEST_LOG} B; give the logs of the ranks one by one")));
            }
            FileContent::Processes(inspector::read_nccl_log(&String::from_utf8_lossy(&bytes)))
        }
    };
    Ok((format, content))
}

/// Bytes of the longest log that is read: all of it is in memory.
const LONGEST_LOG: u64 = 256 << 20;

/// Bytes of a JSON file between two quotation marks; a text is in memory as a whole, and one of gigabytes may be compressed to a megabyte.
const LONGEST_TEXT: usize = 16 << 20;

/// A file in which no text of JSON is too long for memory.
struct BoundedTexts<R> {
    source: R,
    /// Most bytes between two quotation marks.
    longest: usize,
    since_quote: usize,
}

impl<R: Read> Read for BoundedTexts<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let length = self.source.read(buffer)?;
        self.since_quote = match buffer[..length].iter().rposition(|byte| *byte == b'"') {
            Some(quote) => length - quote,
            None => self.since_quote + length,
        };
        if self.since_quote > self.longest {
            let problem = format!("a text of it is longer than {} B", self.longest);
            return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, problem));
        }
        Ok(length)
    }
}

const ACCEPTED: &str = "a Chrome trace of PyTorch's profiler, an execution trace of PyTorch or Chakra, a dump of PyTorch's flight recorder (JSON or pickle), a log of NCCL's inspector, an SQLite export of Nsight Systems, or a log of NCCL_DEBUG=INFO with NCCL_DEBUG_SUBSYS=INIT,COLL";

/// The format of a file with these first bytes.
fn format_of(start: &[u8]) -> Option<TraceFormat> {
    let text = String::from_utf8_lossy(start);
    let has = |key: &str| text.contains(key);
    Some(match () {
        () if start.starts_with(nsys::MAGIC) => TraceFormat::Nsys,
        () if pytorch::is_pickle(start) => TraceFormat::FlightRecorder,
        () if inspector::is_nccl_log(&text) => TraceFormat::NcclLog,
        () if !text.trim_start().starts_with('{') => return chakra::is_chakra(start).then_some(TraceFormat::Chakra),
        () if has("\"inspector_output_format_version\"") => TraceFormat::NcclInspector,
        () if has("\"schema\"") && has("\"nodes\"") => TraceFormat::ExecutionTrace,
        () if has("\"schemaVersion\"") || has("\"traceEvents\"") || has("\"distributedInfo\"") => TraceFormat::Kineto,
        () => TraceFormat::FlightRecorder,
    })
}

/// The bytes of a file, decompressed if it is gzipped.
fn opened(path: &Path) -> std::io::Result<Box<dyn Read>> {
    let mut magic = [0; 2];
    let length = host::open(path)?.read(&mut magic)?;
    let file = BufReader::new(host::open(path)?);
    match &magic[..length] {
        [0x1f, 0x8b] => Ok(Box::new(MultiGzDecoder::new(file))),
        _ => Ok(Box::new(file)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::io::Write;

    #[test]
    fn files_of_other_profilers_are_named_with_what_they_lack() {
        let folder = tempfile::tempdir().unwrap();
        for (name, text, expected) in [
            (
                "nvtx.csv",
                "Time (%),Total Time (ns),Instances,Style,Range\n",
                "is a table of Nsight Systems, which has no bytes of calls, as its export `nsys export --type sqlite` has",
            ),
            (
                "p_1_0.json",
                "[\n{\"name\": \"Group API\", \"args\": {\"groupApiId\": 0}},\n{}]\n",
                "is a dump of NCCL's example profiler",
            ),
            (
                "p_2_0.json",
                "[\n{\"name\": \"Group\", \"cat\": \"GROUP\", \"args\": {\"groupId\": 0}},\n{}]\n",
                "is a dump of NCCL's example profiler",
            ),
            (
                "n1.prom",
                "nccl_bus_bandwidth_gbs{comm=\"0x1\"} 1.5\n",
                "is a page of metrics of NCCL's inspector (NCCL_INSPECTOR_PROM_DUMP=1), which has means and no calls",
            ),
            ("notes.txt", "nothing", "notes.txt is not a supported trace; accepted: a Chrome trace"),
        ] {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            let error = read_file(&path).err().expect(name);
            assert!(error.exit_code() == 2 && error.to_string().contains(expected), "{error}");
        }
    }

    #[test]
    fn a_text_of_gigabytes_in_a_small_file_is_named_and_never_in_memory() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.json.gz");
        let mut file = GzEncoder::new(std::fs::File::create(&path).unwrap(), Compression::fast());
        file.write_all(br#"{"schemaVersion":1,"traceEvents":[{"name":""#).unwrap();
        for _ in 0..(2 * LONGEST_TEXT) >> 20 {
            file.write_all(&vec![b'a'; 1 << 20]).unwrap();
        }
        file.write_all(br#""}]}"#).unwrap();
        drop(file.finish().unwrap());
        let (format, FileContent::Rank(trace)) = read_file(&path).unwrap() else { panic!("it is a rank's") };
        let problem = trace.notes.join("; ");
        assert!(format == TraceFormat::Kineto && problem.contains("longer than 16777216 B"), "{problem}");
    }
}
