//! The files of a job as one trace: formats are told apart, ranks and groups of all files put together.

use super::call::CallKind;
use super::skipped::Skipped;
use super::trace_file::{FileTrace, TraceFormat, TracedGroup};
use super::{flight_recorder, kineto, nccl_log};
use commgauge_base::element::ElementType;
use commgauge_base::error::{Error, Result};
use commgauge_base::input_file;
use commgauge_base::units::{Bytes, Seconds};
use commgauge_base::visible::ShownPath;
use flate2::read::MultiGzDecoder;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

/// As much of a file as tells its format.
const START_BYTES: usize = 4096;

/// A call of a job on one rank.
#[derive(Clone, Debug, PartialEq)]
pub struct TracedCall {
    /// World rank.
    pub rank: u32,
    /// The call.
    pub kind: CallKind,
    /// Type of the elements; none of a barrier.
    pub element: Option<ElementType>,
    /// The size argument in the sense of nccl-tests; of a message its size.
    pub bytes_total: Bytes,
    /// Index in the trace's groups.
    pub group: usize,
    /// From the first to the last moment of the call on this rank, waiting for others included.
    pub duration: Option<Seconds>,
}

/// What several files of a job say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// The formats that were read.
    pub formats: BTreeSet<TraceFormat>,
    /// Ranks whose calls are known.
    pub ranks: BTreeSet<u32>,
    /// Ranks of the job, where a file says it.
    pub world: Option<u32>,
    /// The groups.
    pub groups: Vec<TracedGroup>,
    /// The calls, in the order of the files.
    pub calls: Vec<TracedCall>,
    /// Steps that every rank marked; absent where none did, or not all the same.
    pub steps: Option<u64>,
    /// What was skipped, and why.
    pub notes: Vec<String>,
}

/// Reads the files of one job.
///
/// # Errors
/// A file of which nothing can be used, whose rank nothing says, two files of one rank, and files of different jobs.
pub fn read_traces(paths: &[PathBuf]) -> Result<Trace> {
    let mut trace = Trace::default();
    let mut file_of_rank: HashMap<u32, &Path> = HashMap::new();
    let mut worlds: BTreeMap<u32, &Path> = BTreeMap::new();
    let mut steps: BTreeSet<Option<u64>> = BTreeSet::new();
    let mut skipped = Skipped::default();
    for path in paths {
        let (format, mut file) = read_file(path)?;
        trace.formats.insert(format);
        if format != TraceFormat::NcclLog {
            let rank = file.rank.or_else(|| rank_of_name(path)).ok_or_else(|| no_rank(path))?;
            if let Some(other) = file_of_rank.insert(rank, path) {
                return Err(two_of_one_rank(rank, other, path));
            }
            file.calls.iter_mut().for_each(|call| call.rank = Some(rank));
            trace.ranks.insert(rank);
            steps.insert(file.steps);
        }
        if let Some(world) = file.world {
            worlds.insert(world, path);
        }
        skipped.add(path, &file);
        trace.add(file);
    }
    trace.notes = skipped.notes();
    if let Some(((less, one), (more, other))) =
        worlds.first_key_value().zip(worlds.last_key_value()).filter(|_| worlds.len() > 1)
    {
        return Err(Error::usage(format!(
            "{} is of a job of {less} ranks and {} of one of {more}; accepted: the files of one job",
            one.shown(),
            other.shown()
        )));
    }
    trace.world = worlds.keys().next().copied();
    trace.ranks.extend(trace.calls.iter().map(|call| call.rank));
    trace.steps = match steps.into_iter().collect::<Vec<_>>()[..] {
        [all] => all,
        _ => None,
    };
    trace.note_missing_ranks();
    Ok(trace)
}

impl Trace {
    fn add(&mut self, file: FileTrace) {
        let groups: Vec<usize> = file.groups.into_iter().map(|group| self.group(group)).collect();
        self.calls.extend(file.calls.into_iter().filter_map(|call| {
            let (rank, group) = (call.rank?, groups[call.group]);
            let (kind, element, bytes_total) = (call.kind, call.element, call.bytes_total);
            Some(TracedCall { rank, kind, element, bytes_total, group, duration: call.duration })
        }));
    }

    /// Groups of the same ranks are one, whatever each rank calls it; without ranks those of the same name are.
    fn group(&mut self, group: TracedGroup) -> usize {
        let is_same = |known: &TracedGroup| match (&known.ranks, &group.ranks) {
            (Some(known), Some(ranks)) => known == ranks,
            (None, None) => known.name == group.name,
            _ => false,
        };
        match self.groups.iter().position(is_same) {
            Some(at) => at,
            None => {
                self.groups.push(group);
                self.groups.len() - 1
            }
        }
    }

    fn note_missing_ranks(&mut self) {
        let Some(world) = self.world else { return };
        let missing: Vec<u32> = (0..world).filter(|rank| !self.ranks.contains(rank)).collect();
        if !missing.is_empty() {
            let list = commgauge_base::rank_list::ranges(&missing);
            self.notes.push(format!("of {world} ranks {} are not in the files: {list}", missing.len()));
        }
    }
}

fn read_file(path: &Path) -> Result<(TraceFormat, FileTrace)> {
    let cannot = |cause: std::io::Error| Error::usage(format!("cannot read {}: {cause}", path.shown()));
    let mut source = opened(path).map_err(cannot)?;
    let mut start = Vec::new();
    source.by_ref().take(START_BYTES as u64).read_to_end(&mut start).map_err(cannot)?;
    let text = String::from_utf8_lossy(&start).into_owned();
    let wrong = |problem: String| Error::usage(format!("{} {problem}", path.shown()));
    let whole = |mut source: Box<dyn Read>| -> Result<Vec<u8>> {
        let mut bytes = start.clone();
        source.read_to_end(&mut bytes).map_err(cannot)?;
        Ok(bytes)
    };
    if flight_recorder::is_pickle(&start) {
        return Ok((TraceFormat::FlightRecorder, flight_recorder::read_pickle(&whole(source)?).map_err(wrong)?));
    }
    if nccl_log::is_nccl_log(&text) {
        return Ok((TraceFormat::NcclLog, nccl_log::read(&String::from_utf8_lossy(&whole(source)?))));
    }
    let is_object = text.trim_start().starts_with('{');
    if is_object
        && (text.contains("\"schemaVersion\"")
            || text.contains("\"traceEvents\"")
            || text.contains("\"distributedInfo\""))
    {
        let file = kineto::read(BufReader::new(start.as_slice().chain(source)));
        return Ok((TraceFormat::Kineto, file));
    }
    if is_object {
        return Ok((TraceFormat::FlightRecorder, flight_recorder::read_json(&whole(source)?).map_err(wrong)?));
    }
    Err(wrong(
        "is none of the traces that are read: a Chrome trace of PyTorch's profiler, a dump of its flight recorder (JSON or pickle), or \
         a log of NCCL_DEBUG=INFO with NCCL_DEBUG_SUBSYS=INIT,COLL"
            .to_owned(),
    ))
}

/// The bytes of a file, unpacked where it is gzipped.
fn opened(path: &Path) -> std::io::Result<Box<dyn Read>> {
    let mut magic = [0; 2];
    let length = input_file::open(path)?.read(&mut magic)?;
    let file = BufReader::new(input_file::open(path)?);
    match &magic[..length] {
        [0x1f, 0x8b] => Ok(Box::new(MultiGzDecoder::new(file))),
        _ => Ok(Box::new(file)),
    }
}

/// The number behind `rank`, or else the last number of a file's name, as jobs name their files: `trace-rank3.json`,
/// `nccl_trace_rank_3`.
fn rank_of_name(path: &Path) -> Option<u32> {
    let name = path.file_name()?.to_string_lossy().to_lowercase();
    let stem = name.trim_end_matches(".gz").trim_end_matches(".json").trim_end_matches(".pt.trace");
    let behind = stem.rsplit_once("rank").map(|(_, rest)| rest.trim_start_matches(['-', '_', '=', '.']));
    let leading = |text: &str| text.split(|c: char| !c.is_ascii_digit()).next().and_then(|digits| digits.parse().ok());
    let last = || {
        stem.rsplit(|c: char| !c.is_ascii_digit())
            .find(|digits| !digits.is_empty())
            .and_then(|digits| digits.parse().ok())
    };
    behind.and_then(leading).or_else(last)
}

fn no_rank(path: &Path) -> Error {
    Error::usage(format!(
        "{} does not say of which rank it is, in `distributedInfo` or in its name; accepted: a name such as trace-rank3.json",
        path.shown()
    ))
}

fn two_of_one_rank(rank: u32, one: &Path, other: &Path) -> Error {
    Error::usage(format!(
        "{} and {} are both of rank {rank}; accepted: one file of each rank, of one job",
        one.shown(),
        other.shown()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rank_of_a_file_is_read_from_its_name() {
        for (name, rank) in [
            ("trace-rank3.json", Some(3)),
            ("nccl_trace_rank_12", Some(12)),
            ("fr-2.json.gz", Some(2)),
            ("node7_rank4.pt.trace.json.gz", Some(4)),
            ("trace.json", None),
        ] {
            assert_eq!(rank_of_name(Path::new(name)), rank, "{name}");
        }
    }
}
