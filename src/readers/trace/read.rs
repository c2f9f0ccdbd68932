//! The files of a job as one trace: detects formats, and joins ranks and groups of all files.

use super::call::{CallKind, ComputingSpan, FileTrace, Processes, TracedCall, TracedGroup};
use super::format::{FileContent, TraceFormat, read_file};
use commgauge_base::collective::Collective;
use commgauge_base::error::{Error, Result};
use commgauge_base::units::{Bytes, Seconds, counted};
use commgauge_base::visible::ShownPath;
use commgauge_model::layout::MOST_RANKS;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

/// Ranks whose starts differ by less than this may have worked one after another only because of few calls.
const FEWEST_NANOSECONDS_APART: u64 = 1_000_000_000;

/// The joined content of a job's files.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// The formats found.
    pub formats: BTreeSet<TraceFormat>,
    /// Ranks with known calls.
    pub ranks: BTreeSet<u32>,
    /// Ranks of the job, if a file gives them.
    pub world: Option<u32>,
    pub groups: Vec<TracedGroup>,
    /// The calls, in file order.
    pub calls: Vec<TracedCall>,
    /// Computing of each rank, if the trace has it: ordered and without overlaps.
    pub computing: BTreeMap<u32, Vec<ComputingSpan>>,
    /// Unknown calls, and how often each occurs.
    pub unknown: BTreeMap<String, u64>,
    /// Steps marked by every rank; absent if none did, or their numbers differ.
    pub steps: Option<u64>,
    /// What was skipped, and why.
    pub notes: Vec<String>,
}

/// Reads the files of one job.
///
/// # Errors
/// If a file has no usable content or an unknown rank, two files belong to one rank, files belong to different jobs, or two kinds of files
/// may hold the same calls.
pub fn read_traces(paths: &[PathBuf]) -> Result<Trace> {
    let mut job = Job::default();
    for path in paths {
        job.add(path)?;
    }
    job.into_trace()
}

/// The files read so far.
#[derive(Default)]
struct Job<'a> {
    trace: Trace,
    file_of_rank: BTreeMap<u32, &'a Path>,
    /// The first file that gives each number of ranks.
    worlds: BTreeMap<u32, &'a Path>,
    steps: BTreeSet<Option<u64>>,
    processes: Processes,
    /// What the files leave out, each reason once.
    files_of_note: BTreeMap<String, Vec<String>>,
}

impl<'a> Job<'a> {
    fn add(&mut self, path: &'a Path) -> Result<()> {
        let (format, content) = read_file(path)?;
        self.trace.formats.insert(format);
        match content {
            FileContent::Rank(file) => self.add_rank(path, file),
            FileContent::Processes(file) => {
                self.skip(path, &file.notes, &file.unknown);
                let rank = file.rank.or_else(|| said_rank(path));
                self.processes.add(path, file, rank)
            }
        }
    }

    fn add_rank(&mut self, path: &'a Path, mut file: FileTrace) -> Result<()> {
        let said = file.rank.or_else(|| said_rank(path));
        let rank = said.or_else(|| last_number(path)).ok_or_else(|| no_rank(path))?;
        if said.is_none() {
            file.notes.push("its rank is the last number of its name, as nothing else says it".to_owned());
        }
        if let Some(world) = file.world.filter(|world| rank >= *world) {
            return Err(Error::usage(format!(
                "{} belongs to rank {rank} by its name, but to a job of {world} ranks by its content; accepted: a name such as trace-rank0.json",
                path.shown()
            )));
        }
        if let Some(other) = self.file_of_rank.insert(rank, path) {
            return Err(both(
                other,
                path,
                &format!("belong to rank {rank}; accepted: one file per rank, from one job"),
            ));
        }
        file.calls.iter_mut().for_each(|call| call.rank = rank);
        self.trace.ranks.insert(rank);
        self.steps.insert(file.steps);
        if let Some(world) = file.world {
            self.worlds.entry(world).or_insert(path);
        }
        self.skip(path, &file.notes, &file.unknown);
        self.trace.computing.insert(rank, merged(std::mem::take(&mut file.computing)));
        self.trace.add(file);
        Ok(())
    }

    /// Keeps a file's notes, and its unknown calls.
    fn skip(&mut self, path: &Path, notes: &[String], unknown: &BTreeMap<String, u64>) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        for note in notes {
            self.files_of_note.entry(note.clone()).or_default().push(name.clone());
        }
        for (call, count) in unknown {
            *self.trace.unknown.entry(call.clone()).or_default() += count;
        }
    }

    fn into_trace(self) -> Result<Trace> {
        let mut trace = self.trace;
        if let Some(((less, one), (more, other))) =
            self.worlds.first_key_value().zip(self.worlds.last_key_value()).filter(|_| self.worlds.len() > 1)
        {
            return Err(Error::usage(format!(
                "{} comes from a job of {less} ranks and {} from one of {more}; accepted: the files of one job",
                one.shown(),
                other.shown()
            )));
        }
        trace.world = self.worlds.keys().next().copied();
        if let Some(of_processes) = self.processes.a_file() {
            if let Some(of_rank) = self.file_of_rank.values().next() {
                let problem = "may hold the same calls, which would be counted twice; accepted: logs of NCCL and its inspector, or traces of PyTorch";
                return Err(both(of_processes, of_rank, problem));
            }
            let file = self.processes.into_ranks()?;
            trace.world = file.world;
            trace.add(file);
        }
        if let Some(world) = trace.world.filter(|world| *world > MOST_RANKS) {
            return Err(Error::usage(format!("the files give a job of {world} ranks; accepted: up to {MOST_RANKS}")));
        }
        trace.notes = skipped(self.files_of_note, &trace.unknown);
        trace.notes.extend(complete(&mut trace.calls));
        trace.ranks.extend(trace.calls.iter().map(|call| call.rank));
        trace.steps = match self.steps.into_iter().collect::<Vec<_>>()[..] {
            [all] => all,
            _ => None,
        };
        trace.note_missing_ranks();
        trace.note_ranks_apart();
        Ok(trace)
    }
}

impl Trace {
    /// The ranks that call on each group.
    pub(super) fn callers(&self) -> BTreeMap<usize, BTreeSet<u32>> {
        let mut callers: BTreeMap<usize, BTreeSet<u32>> = BTreeMap::new();
        for call in &self.calls {
            callers.entry(call.group).or_default().insert(call.rank);
        }
        callers
    }

    fn add(&mut self, file: FileTrace) {
        let groups: Vec<usize> = file.groups.into_iter().map(|group| self.group(group)).collect();
        self.calls.extend(file.calls.into_iter().map(|call| TracedCall { group: groups[call.group], ..call }));
    }

    /// Groups with the same ranks are one, whatever name each rank gives it; without ranks those with the same name are.
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

    pub(super) fn note_missing_ranks(&mut self) {
        let Some(world) = self.world else { return self.note_larger_group() };
        let missing: Vec<u32> = (0..world).filter(|rank| !self.ranks.contains(rank)).collect();
        if !missing.is_empty() {
            let list = commgauge_base::writing::ranges(&missing);
            self.notes.push(format!("the files lack {} of {world} ranks: {list}", missing.len()));
        }
    }

    /// If no file gives the number of ranks, the job has at least as many as its largest group.
    fn note_larger_group(&mut self) {
        let largest = (0..self.groups.len()).filter_map(|group| self.group_size(group)).max().unwrap_or(0);
        let files = self.ranks.len();
        if largest as usize > files {
            self.notes
                .push(format!("a group has {largest} ranks, but the files cover {files}: part of the job is missing"));
        }
    }
}

impl Trace {
    /// Ranks of one job work at the same time. If their clocks disagree by more than the work of any rank, calls still count, with a note.
    fn note_ranks_apart(&mut self) {
        let mut times: BTreeMap<u32, ComputingSpan> = BTreeMap::new();
        for call in &self.calls {
            let Some(begin) = call.detail.begin_nanoseconds else { continue };
            let of_rank = times.entry(call.rank).or_insert(begin..begin);
            *of_rank = of_rank.start.min(begin)..of_rank.end.max(begin);
        }
        let first_over = times.iter().min_by_key(|(_, time)| time.end);
        let last_begun = times.iter().max_by_key(|(_, time)| time.start);
        let (Some((over, ended)), Some((begun, time))) = (first_over, last_begun) else { return };
        let longest = times.values().map(|time| time.end - time.start).max().unwrap_or(0).max(FEWEST_NANOSECONDS_APART);
        if let Some(between) = time.start.checked_sub(ended.end).filter(|between| *between > longest) {
            let between = Seconds(between as f64 / 1e9);
            self.notes.push(format!(
                "the calls of rank {begun} begin {between} after the last of rank {over}: their clocks disagree, or their files come from different jobs or parts of one"
            ));
        }
    }
}

/// The same periods in order, adjacent ones joined.
fn merged(mut spans: Vec<ComputingSpan>) -> Vec<ComputingSpan> {
    spans.sort_unstable_by_key(|span| (span.start, span.end));
    let mut merged: Vec<ComputingSpan> = Vec::new();
    for span in spans {
        match merged.last_mut() {
            Some(last) if span.start <= last.end => last.end = last.end.max(span.end),
            _ => merged.push(span),
        }
    }
    merged
}

/// A file's name without the suffixes of compression and format.
fn stem(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    let name = name.trim_end_matches(".gz").trim_end_matches(".json").trim_end_matches(".et");
    name.trim_end_matches(".pt.trace").to_owned()
}

/// The number after `rank` in a file's name: `trace-rank3.json`, `nccl_trace_rank_3`.
fn said_rank(path: &Path) -> Option<u32> {
    let stem = stem(path);
    let (_, behind) = stem.rsplit_once("rank")?;
    let behind = behind.trim_start_matches(['-', '_', '=', '.']);
    behind.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// The last number of a file's name, another naming of jobs: `fr-2.json.gz`, `chakra.0.et`.
fn last_number(path: &Path) -> Option<u32> {
    stem(path).rsplit(|c: char| !c.is_ascii_digit()).find(|digits| !digits.is_empty())?.parse().ok()
}

fn no_rank(path: &Path) -> Error {
    Error::usage(format!(
        "{} gives its rank neither in `distributedInfo` nor in its name; accepted: a name such as trace-rank3.json",
        path.shown()
    ))
}

fn both(one: &Path, other: &Path, problem: &str) -> Error {
    Error::usage(format!("{} and {} both {problem}", one.shown(), other.shown()))
}

/// Maximum number of unknown names in a note.
const NAMED_UNKNOWN: usize = 4;

/// The skipped parts of a job's files as sentences.
fn skipped(files_of_note: BTreeMap<String, Vec<String>>, unknown: &BTreeMap<String, u64>) -> Vec<String> {
    let of_files = |(note, files): (String, Vec<String>)| match &files[..] {
        [file] => format!("{file}: {note}"),
        _ => format!("{} and {} more: {note}", files[0], files.len() - 1),
    };
    let mut notes: Vec<String> = files_of_note.into_iter().map(of_files).collect();
    if !unknown.is_empty() {
        let count: u64 = unknown.values().sum();
        let named =
            |(name, count): (&String, &u64)| if *count > 1 { format!("{name} ({count})") } else { name.clone() };
        let names: Vec<String> = unknown.iter().take(NAMED_UNKNOWN).map(named).collect();
        let more = if unknown.len() > NAMED_UNKNOWN { ", ..." } else { "" };
        let calls = counted(count as usize, "call");
        notes.push(format!("not understood: {calls} of unknown kinds: {}{more}", names.join(", ")));
    }
    notes
}

// Scatters and gathers: only the root passes in or receives the whole. On other ranks PyTorch records no size, and the root's size is the
// size of the call.

/// A call on all ranks of its group: group, kind, and number within it.
type OneCall = (usize, Collective, u64);

/// Gives each scatter and gather the size at its root. Calls whose root is not in the files are skipped, with a note.
pub(super) fn complete(calls: &mut Vec<TracedCall>) -> Option<String> {
    let ones = numbered(calls);
    let mut of_root: HashMap<OneCall, Bytes> = HashMap::new();
    for (at, one) in &ones {
        let size = of_root.entry(*one).or_insert(Bytes(0));
        *size = (*size).max(calls[*at].bytes_total);
    }
    for (at, one) in &ones {
        calls[*at].bytes_total = of_root[one];
    }
    let left_out = of_root.values().filter(|size| size.0 == 0).count();
    let is_known = |call: &TracedCall| with_root(call.kind).is_none() || call.bytes_total.0 > 0;
    calls.retain(is_known);
    (left_out > 0).then(|| {
        format!("{left_out} scatter or gather calls were skipped: no file belongs to their root, the only rank with their size")
    })
}

/// The indices of scatters and gathers among the calls. Those without a number are taken in order.
fn numbered(calls: &[TracedCall]) -> Vec<(usize, OneCall)> {
    let mut before: HashMap<(u32, usize, Collective), u64> = HashMap::new();
    let of_root = calls.iter().enumerate().filter_map(|(at, call)| Some((at, call, with_root(call.kind)?)));
    of_root
        .map(|(at, call, collective)| {
            let order = before.entry((call.rank, call.group, collective)).or_default();
            let number = call.detail.sequence.unwrap_or(*order);
            *order += 1;
            (at, (call.group, collective, number))
        })
        .collect()
}

/// The scatter or gather of a kind, if it is one.
fn with_root(kind: CallKind) -> Option<Collective> {
    match kind {
        CallKind::Collective(collective @ (Collective::Scatter | Collective::Gather)) => Some(collective),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::call::CallDetail;

    #[test]
    fn stretches_of_computing_that_overlap_are_one() {
        assert_eq!(merged(vec![5..9, 0..3, 8..12, 3..4, 20..21]), [0..4, 5..12, 20..21]);
    }

    #[test]
    fn the_rank_of_a_file_is_read_from_its_name() {
        for (name, said, last) in [
            ("trace-rank3.json", Some(3), Some(3)),
            ("nccl_trace_rank_12", Some(12), Some(12)),
            ("fr-2.json.gz", None, Some(2)),
            ("chakra.1.et", None, Some(1)),
            ("node7_rank4.pt.trace.json.gz", Some(4), Some(4)),
            ("rank4-node7.json", Some(4), Some(7)),
            ("trace.json", None, None),
        ] {
            let path = Path::new(name);
            assert_eq!((said_rank(path), last_number(path)), (said, last), "{name}");
        }
    }

    fn call(rank: u32, collective: Collective, bytes: u64, sequence: Option<u64>) -> TracedCall {
        let kind = CallKind::Collective(collective);
        let detail = CallDetail { sequence, ..CallDetail::default() };
        TracedCall { rank, kind, element: None, bytes_total: Bytes(bytes), group: 0, duration: None, detail }
    }

    #[test]
    fn every_rank_has_the_size_that_the_root_has() {
        use Collective::{AllReduce, Gather, Scatter};
        for numbers in [[Some(7), Some(8)], [None, None]] {
            let of = |rank, first, second, gathered| {
                let [one, other] = numbers;
                [call(rank, Scatter, first, one), call(rank, Scatter, second, other), call(rank, Gather, gathered, one)]
            };
            let mut calls = [of(0, 64, 0, 32), of(1, 0, 128, 0)].concat();
            calls.push(call(1, AllReduce, 0, None));
            assert_eq!(complete(&mut calls), None);
            let sizes: Vec<u64> = calls.iter().map(|call| call.bytes_total.0).collect();
            assert_eq!(sizes, [64, 128, 32, 64, 128, 32, 0], "{numbers:?}");
        }
    }

    #[test]
    fn a_scatter_without_its_root_is_left_out_and_said() {
        let mut calls = vec![call(1, Collective::Scatter, 0, Some(3)), call(1, Collective::AllReduce, 8, None)];
        let note = complete(&mut calls).unwrap();
        assert_eq!(calls.len(), 1);
        assert_eq!(
            note,
            "1 scatter or gather calls were skipped: no file belongs to their root, the only rank with their size"
        );
    }
}
