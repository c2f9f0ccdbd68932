//! The formats of traces, distinguished by the first bytes of a file.

mod chakra;
mod inspector;
mod kineto;
mod pickle;
mod pytorch;

use super::call::{FileTrace, ProcessTrace};
use commgauge_base::error::{Error, Result};
use commgauge_base::host;
use commgauge_base::visible::ShownPath;
use flate2::read::MultiGzDecoder;
use std::io::{BufReader, Read};
use std::path::Path;

/// The writer of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TraceFormat {
    /// PyTorch's profiler (Kineto), exported as a Chrome trace.
    Kineto,
    /// A dump of PyTorch's flight recorder, as JSON or as a pickle.
    FlightRecorder,
    /// PyTorch's `ExecutionTraceObserver`, as JSON.
    ExecutionTrace,
    /// An execution trace of Chakra (MLCommons), as protobuf messages.
    Chakra,
    /// NCCL's inspector, a profiler plugin.
    NcclInspector,
    /// `NCCL_DEBUG=INFO` with `NCCL_DEBUG_SUBSYS=INIT,COLL`.
    NcclLog,
}

impl TraceFormat {
    pub fn name(self) -> &'static str {
        match self {
            TraceFormat::Kineto => "PyTorch profiler",
            TraceFormat::FlightRecorder => "flight recorder",
            TraceFormat::ExecutionTrace => "PyTorch execution trace",
            TraceFormat::Chakra => "Chakra execution trace",
            TraceFormat::NcclInspector => "NCCL inspector",
            TraceFormat::NcclLog => "NCCL log",
        }
    }
}

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
        return Err(wrong(UNKNOWN.to_owned()));
    };
    let mut source = BufReader::new(start.as_slice().chain(source));
    let content = match format {
        TraceFormat::Kineto => FileContent::Rank(kineto::read(source)),
        TraceFormat::ExecutionTrace => FileContent::Rank(chakra::read_execution_trace(source)),
        TraceFormat::Chakra => FileContent::Rank(chakra::read(source)),
        TraceFormat::NcclInspector => FileContent::Processes(inspector::read(source)),
        TraceFormat::FlightRecorder => FileContent::Rank(pytorch::read(source).map_err(wrong)?),
        TraceFormat::NcclLog => {
            let mut bytes = Vec::new();
            source.read_to_end(&mut bytes).map_err(cannot)?;
            FileContent::Processes(inspector::read_nccl_log(&String::from_utf8_lossy(&bytes)))
        }
    };
    Ok((format, content))
}

const UNKNOWN: &str = "is not a supported trace; accepted: a Chrome trace of PyTorch's profiler, an execution trace of PyTorch or Chakra, a dump of PyTorch's flight recorder (JSON or pickle), a log of NCCL's inspector, or a log of NCCL_DEBUG=INFO with NCCL_DEBUG_SUBSYS=INIT,COLL";

/// The format of a file with these first bytes.
fn format_of(start: &[u8]) -> Option<TraceFormat> {
    let text = String::from_utf8_lossy(start);
    let has = |key: &str| text.contains(key);
    if pytorch::is_pickle(start) {
        return Some(TraceFormat::FlightRecorder);
    }
    if inspector::is_nccl_log(&text) {
        return Some(TraceFormat::NcclLog);
    }
    if !text.trim_start().starts_with('{') {
        return chakra::is_chakra(start).then_some(TraceFormat::Chakra);
    }
    Some(if has("\"inspector_output_format_version\"") {
        TraceFormat::NcclInspector
    } else if has("\"schema\"") && has("chakra") {
        TraceFormat::ExecutionTrace
    } else if has("\"schemaVersion\"") || has("\"traceEvents\"") || has("\"distributedInfo\"") {
        TraceFormat::Kineto
    } else {
        TraceFormat::FlightRecorder
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
