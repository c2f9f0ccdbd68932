//! Names of calls and element types in PyTorch and NCCL.

use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use commgauge_base::embedded::pairs;
use commgauge_base::error::{Error, Result};
use commgauge_base::units::{Bytes, Seconds};
use commgauge_base::visible::ShownPath;
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// A call of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(into = "&'static str")]
pub enum CallKind {
    /// All ranks of the group call it.
    Collective(Collective),
    /// A message to one rank.
    Send,
    /// A message from one rank.
    Receive,
}

impl CallKind {
    pub fn name(self) -> &'static str {
        match self {
            CallKind::Collective(collective) => collective.name(),
            CallKind::Send => "send",
            CallKind::Receive => "receive",
        }
    }
}

impl From<CallKind> for &'static str {
    fn from(kind: CallKind) -> &'static str {
        kind.name()
    }
}

impl fmt::Display for CallKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Meaning of a name in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Named {
    Call(CallKind),
    /// It moves nothing, such as a wait or the bounds of a coalesced group.
    NoCall,
    Unknown,
}

/// The call of a name: from `record_param_comms` (torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp), with the backend in front as in the
/// flight recorder (`nccl:all_reduce`, `nccl:send 0->1`), or as NCCL logs it (`AllReduce`).
pub(super) fn named(name: &str) -> Named {
    let name = name.rsplit_once(':').map_or(name, |(_, name)| name);
    let word = name.split_ascii_whitespace().next().unwrap_or_default();
    let word: String = word.chars().filter(|c| *c != '_').map(|c| c.to_ascii_lowercase()).collect();
    let is_listed = |names: &str| names.split(' ').any(|name| name == word);
    match pairs(include_str!("call_names.txt")).find(|(names, _)| is_listed(names)) {
        None => Named::Unknown,
        Some((_, "send")) => Named::Call(CallKind::Send),
        Some((_, "receive")) => Named::Call(CallKind::Receive),
        Some((_, name)) => name.parse().map_or(Named::NoCall, |name| Named::Call(CallKind::Collective(name))),
    }
}

/// The type of a name, for PyTorch's scalar types (`BFloat16`, `c10::BFloat16`, `Float`, `long int`).
pub(super) fn element_of_torch(name: &str) -> Option<ElementType> {
    let name = name.trim_start_matches("c10::");
    let is_listed = |names: &str| names.split(", ").any(|known| known == name);
    pairs(include_str!("torch_types.txt")).find(|(names, _)| is_listed(names))?.1.parse().ok()
}

/// The type in `Tensor(float)`, also within lists: `GenericList[Tensor(c10::BFloat16)]`.
pub(super) fn element_of_tensor(text: &str) -> Option<ElementType> {
    let (_, behind) = text.split_once("Tensor(")?;
    element_of_torch(behind.split_once(')')?.0)
}

/// The type of a number in NCCL's `ncclDataType_t` (src/nccl.h.in).
pub(super) fn element_of_nccl(number: u32) -> Option<ElementType> {
    use ElementType::*;
    let all = [Int8, Uint8, Int32, Uint32, Int64, Uint64, Float16, Float32, Float64, Bfloat16, Fp8E4m3, Fp8E5m2];
    all.get(number as usize).copied()
}

/// Elements that one rank passes in and receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Elements {
    pub sent: u64,
    pub received: u64,
}

impl Elements {
    /// The size argument in the sense of nccl-tests: the whole buffer for calls that gather or scatter blocks.
    pub(super) fn bytes_total(self, kind: CallKind, element: ElementType) -> Option<Bytes> {
        let elements = match kind {
            CallKind::Collective(Collective::Barrier) => 0,
            CallKind::Collective(Collective::AllGather | Collective::Gather) | CallKind::Receive => self.received,
            _ => self.sent,
        };
        elements.checked_mul(element.size()).map(Bytes)
    }
}

/// The size argument in the sense of nccl-tests for a count argument of this many bytes; for calls with blocks NCCL counts one rank's block
/// (src/collectives.cc).
pub(super) fn bytes_of_count(kind: CallKind, count: Bytes, ranks: u32) -> Option<Bytes> {
    use Collective::{AllGather, AllToAll, Gather, ReduceScatter, Scatter};
    let blocks = match kind {
        CallKind::Collective(AllGather | Gather | ReduceScatter | Scatter | AllToAll) => u64::from(ranks),
        _ => 1,
    };
    count.0.checked_mul(blocks).map(Bytes)
}

// Traces of processes that give their communicators but not their rank in the job: the rank is the one in the communicator that contains
// all processes.

/// Host and process id.
pub(super) type Process = String;

/// A process's place in a communicator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Membership {
    pub process: Process,
    /// The same on all ranks of the communicator.
    pub communicator: String,
    pub rank: u32,
    /// 0 if neither they nor the rank are known.
    pub ranks: u32,
}

/// A call of a process on a communicator.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ProcessCall {
    pub process: Process,
    pub communicator: String,
    /// Without its rank and group, which follow from the files of all processes.
    pub call: TracedCall,
}

/// Content of a file with such processes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ProcessTrace {
    /// Of its only process in the job, if the file gives it.
    pub rank: Option<u32>,
    pub memberships: Vec<Membership>,
    pub calls: Vec<ProcessCall>,
    /// Names of unknown calls, and how often each occurs.
    pub unknown: BTreeMap<String, u64>,
    /// Notes about skipped data.
    pub notes: Vec<String>,
}

impl ProcessTrace {
    pub(super) fn skip_unknown(&mut self, name: String) {
        *self.unknown.entry(name).or_default() += 1;
    }
}

/// The processes of all files of a job.
#[derive(Debug, Default)]
pub(super) struct Processes {
    /// By communicator and process.
    members: BTreeMap<String, BTreeMap<Process, Membership>>,
    file_of: BTreeMap<Process, PathBuf>,
    rank_of_name: BTreeMap<Process, u32>,
    calls: Vec<ProcessCall>,
}

impl Processes {
    /// One of their files, if any.
    pub(super) fn a_file(&self) -> Option<&Path> {
        self.file_of.values().next().map(PathBuf::as_path)
    }

    /// Adds a file. The rank in its name counts if the file has a single process.
    ///
    /// # Errors
    /// If another file holds the same process.
    pub(super) fn add(&mut self, path: &Path, trace: ProcessTrace, rank_of_name: Option<u32>) -> Result<()> {
        let processes: BTreeSet<&Process> = trace.memberships.iter().map(|of| &of.process).collect();
        for process in &processes {
            if let Some(other) = self.file_of.insert((*process).clone(), path.to_owned()) {
                return Err(Error::usage(format!(
                    "{} and {} both belong to process {process}; accepted: one file per process, from one job",
                    other.shown(),
                    path.shown()
                )));
            }
        }
        if let (Some(process), 1, Some(rank)) = (processes.first(), processes.len(), rank_of_name) {
            self.rank_of_name.insert((*process).clone(), rank);
        }
        for of in trace.memberships {
            self.members.entry(of.communicator.clone()).or_default().insert(of.process.clone(), of);
        }
        self.calls.extend(trace.calls);
        Ok(())
    }

    /// The calls with the ranks of their processes and the ranks of their communicators.
    ///
    /// # Errors
    /// If no file gives the ranks.
    pub(super) fn into_ranks(self) -> Result<FileTrace> {
        let ranks = self.ranks()?;
        let mut file = FileTrace { world: self.world(), ..FileTrace::default() };
        let mut group_of: BTreeMap<&str, usize> = BTreeMap::new();
        for (communicator, members) in &self.members {
            let (size, ranks) = (size(members), world_ranks(members, &ranks));
            let group = TracedGroup { name: communicator.clone(), size, ranks };
            group_of.insert(communicator, file.group(group));
        }
        for ProcessCall { process, communicator, call } in &self.calls {
            if let (Some(rank), Some(group)) = (ranks.get(process), group_of.get(communicator.as_str())) {
                file.calls.push(TracedCall { rank: *rank, group: *group, ..call.clone() });
            }
        }
        Ok(file)
    }

    /// The rank in the job of each process.
    fn ranks(&self) -> Result<BTreeMap<Process, u32>> {
        if let Some(members) = self.world_communicator() {
            return Ok(members.iter().map(|(process, place)| (process.clone(), place.rank)).collect());
        }
        match self.file_of.iter().find(|(process, _)| !self.rank_of_name.contains_key(*process)) {
            None => Ok(self.rank_of_name.clone()),
            Some((process, path)) => Err(Error::usage(format!(
                "{} does not give the rank of process {process}, and no communicator contains all {} processes of the files; accepted: one file per process, with the rank in its name, such as inspector-rank3.log",
                path.shown(),
                self.file_of.len()
            ))),
        }
    }

    /// The largest communicator, if every process is in it.
    fn world_communicator(&self) -> Option<&BTreeMap<Process, Membership>> {
        let largest = self.members.values().filter_map(size).max()?;
        let holds_all = |members: &&BTreeMap<Process, Membership>| members.len() == self.file_of.len();
        self.members.values().filter(|members| size(members) == Some(largest)).find(holds_all)
    }

    /// Ranks of the job. File names do not show whether there are more.
    fn world(&self) -> Option<u32> {
        self.world_communicator().and_then(size)
    }
}

/// The ranks of a communicator, if all its processes know them.
fn size(members: &BTreeMap<Process, Membership>) -> Option<u32> {
    members.values().map(|place| place.ranks).min().filter(|ranks| *ranks > 0)
}

/// The world ranks of a communicator in its order, if the files have all of them.
fn world_ranks(members: &BTreeMap<Process, Membership>, ranks: &BTreeMap<Process, u32>) -> Option<Vec<u32>> {
    let mut placed: Vec<(u32, u32)> = Vec::new();
    for (process, place) in members {
        placed.push((place.rank, *ranks.get(process)?));
    }
    placed.sort_unstable();
    (placed.len() == size(members)? as usize).then(|| placed.into_iter().map(|(_, rank)| rank).collect())
}

// One file of a trace in any format: its calls, and its unusable parts.

/// Facts about a call that a replay needs in addition to its size, if the trace has them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CallDetail {
    /// Start time on the clock of its rank.
    pub begin_nanoseconds: Option<u64>,
    /// The other end of a message, as the rank within the group.
    pub peer: Option<u32>,
    /// Its number among the calls of its kind on the group, the same on all ranks.
    pub sequence: Option<u64>,
    /// For an uneven all_to_all: elements to each rank of the group.
    pub elements_to_each: Option<Vec<u64>>,
}

/// The elements of an all_to_all to each rank; the trace gives rows of the first dimension (`all_to_all_single` of PyTorch).
pub(super) fn elements_to_each(rows: &str, elements: u64) -> Option<Vec<u64>> {
    let rows: Vec<u64> = listed_ranks(rows)?.into_iter().map(u64::from).collect();
    let all: u64 = rows.iter().sum();
    if all == 0 && elements == 0 && !rows.is_empty() {
        // The rank takes part without sending anything.
        return Some(rows);
    }
    let elements_of_row = elements.checked_div(all).filter(|each| each.checked_mul(all) == Some(elements))?;
    rows.into_iter().map(|rows| rows.checked_mul(elements_of_row)).collect()
}

/// A call of a job on one rank.
#[derive(Clone, Debug, PartialEq)]
pub struct TracedCall {
    /// World rank; 0 until the file of a rank is complete.
    pub rank: u32,
    pub kind: CallKind,
    /// Type of the elements; absent for a barrier, and if the trace lacks it.
    pub element: Option<ElementType>,
    /// The size argument in the sense of nccl-tests; for a message its size.
    pub bytes_total: Bytes,
    /// Index in the groups of the file, then of the trace.
    pub group: usize,
    /// From start to end of the call on this rank, including the wait for others.
    pub duration: Option<Seconds>,
    /// Further facts for a replay.
    pub detail: CallDetail,
}

/// A period of computing, in nanoseconds on the clock of its rank.
pub type ComputingSpan = Range<u64>;

impl TracedCall {
    /// A call of which only its size is known.
    pub(super) fn new(kind: CallKind, element: Option<ElementType>, bytes_total: Bytes) -> TracedCall {
        TracedCall { rank: 0, kind, element, bytes_total, group: 0, duration: None, detail: CallDetail::default() }
    }
}

/// A group of ranks with calls; without any facts it is the group of calls that do not name theirs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TracedGroup {
    /// Its name in the job.
    pub name: String,
    /// World ranks in the order of the group, if the trace has them.
    pub ranks: Option<Vec<u32>>,
    /// Number of ranks, if known.
    pub size: Option<u32>,
}

/// Content of a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct FileTrace {
    pub rank: Option<u32>,
    pub world: Option<u32>,
    pub groups: Vec<TracedGroup>,
    pub calls: Vec<TracedCall>,
    /// The rank's computing, unordered.
    pub computing: Vec<ComputingSpan>,
    /// Steps marked by the job.
    pub steps: Option<u64>,
    /// Names of unknown calls, and how often each occurs.
    pub unknown: BTreeMap<String, u64>,
    /// Notes about skipped data.
    pub notes: Vec<String>,
}

impl FileTrace {
    /// The index of a group, which is added if it is new. A group without ranks learns its size only from some calls.
    pub(super) fn group(&mut self, group: TracedGroup) -> usize {
        match self.groups.iter().position(|known| known.name == group.name && known.ranks == group.ranks) {
            Some(at) => {
                self.groups[at].size = self.groups[at].size.or(group.size);
                at
            }
            None => {
                self.groups.push(group);
                self.groups.len() - 1
            }
        }
    }

    pub(super) fn skip_unknown(&mut self, name: &str) {
        *self.unknown.entry(name.to_owned()).or_default() += 1;
    }

    /// Notes where a truncated or damaged file ended; what is before counts.
    pub(super) fn note_end(&mut self, parts: impl fmt::Display, cause: impl fmt::Display) {
        self.notes.push(format!("the file is truncated or damaged after {parts}, which are used: {cause}"));
    }

    /// The type of a call and its size by the elements that a rank passes in and receives; none, and counted, where the type is unknown.
    /// A barrier has no type.
    pub(super) fn sized(
        &mut self,
        kind: CallKind,
        element: Option<ElementType>,
        elements: Elements,
        described: &str,
    ) -> Option<TracedCall> {
        let is_barrier = kind == CallKind::Collective(Collective::Barrier);
        let bytes = if is_barrier { Some(Bytes(0)) } else { element.and_then(|of| elements.bytes_total(kind, of)) };
        let Some(bytes_total) = bytes else {
            self.skip_unknown(described);
            return None;
        };
        Some(TracedCall::new(kind, element.filter(|_| !is_barrier), bytes_total))
    }

    /// A call that names no group, by the shape and type of its first tensor, the input of a rank, as gloo's are.
    pub(super) fn call_by_shape(&mut self, name: &str, shapes: &Value, types: &Value) -> Option<TracedCall> {
        let kind = self.known_kind(name)?;
        let first = |value: &Value| value.get(0).cloned().unwrap_or_default();
        let sent = first(shapes).as_array().map_or(0, |dimensions| {
            dimensions.iter().map(|dimension| dimension.as_u64().unwrap_or(0)).fold(1, u64::saturating_mul)
        });
        let element = first(types).as_str().and_then(|text| element_of_tensor(text).or_else(|| element_of_torch(text)));
        let elements = Elements { sent, received: sent };
        let call =
            self.sized(kind, element, elements, &format!("{name} without its size; use profile(record_shapes=True)"))?;
        Some(TracedCall { group: self.group(TracedGroup::default()), ..call })
    }

    /// The call of a name; unknown ones are counted.
    pub(super) fn known_kind(&mut self, name: &str) -> Option<CallKind> {
        match named(name) {
            Named::Call(kind) => return Some(kind),
            Named::NoCall => {}
            Named::Unknown => self.skip_unknown(name),
        }
        None
    }
}

/// The ranks in `[0, 1, 2]`, as PyTorch writes a list. Long lists are abbreviated (`[0, 1, ..., 7]`) and then unknown.
pub(super) fn listed_ranks(text: &str) -> Option<Vec<u32>> {
    let inner = text.trim().strip_prefix('[')?.strip_suffix(']')?;
    inner.split(',').map(|rank| rank.trim().parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use commgauge_base::collective::Collective;

    #[test]
    fn the_names_of_pytorch_and_nccl_are_known() {
        for (name, kind) in [
            ("nccl:all_reduce", Some(CallKind::Collective(Collective::AllReduce))),
            ("_allgather_base", Some(CallKind::Collective(Collective::AllGather))),
            ("nccl:_reduce_scatter_base", Some(CallKind::Collective(Collective::ReduceScatter))),
            ("reduce_scatter_tensor_coalesced", Some(CallKind::Collective(Collective::ReduceScatter))),
            ("all_to_allv", Some(CallKind::Collective(Collective::AllToAll))),
            ("AllReduce", Some(CallKind::Collective(Collective::AllReduce))),
            ("nccl:send 0->1", Some(CallKind::Send)),
            ("nccl:recv 1<-0", Some(CallKind::Receive)),
            ("nccl:all_reduce_barrier", Some(CallKind::Collective(Collective::Barrier))),
        ] {
            assert_eq!(named(name), kind.map_or(Named::NoCall, Named::Call), "{name}");
        }
        assert_eq!(named("wait"), Named::NoCall);
        assert_eq!(named("nccl:ring_of_dreams"), Named::Unknown);
        assert_eq!(element_of_torch("c10::BFloat16"), Some(ElementType::Bfloat16));
        assert_eq!(element_of_torch("ComplexFloat"), None);
        assert_eq!((element_of_nccl(9), element_of_nccl(12)), (Some(ElementType::Bfloat16), None));
    }

    #[test]
    fn sizes_are_those_of_nccl_tests() {
        let elements = Elements { sent: 100, received: 400 };
        for (collective, bytes) in [
            (Collective::AllReduce, 200),
            (Collective::AllGather, 800),
            (Collective::ReduceScatter, 200),
            (Collective::Barrier, 0),
        ] {
            let found = elements.bytes_total(CallKind::Collective(collective), ElementType::Bfloat16);
            assert_eq!(found, Some(Bytes(bytes)), "{collective}");
        }
        assert_eq!(elements.bytes_total(CallKind::Receive, ElementType::Float32), Some(Bytes(1600)));
    }

    /// A file of a process that belongs to these communicators, each by name, rank and size, and calls once on each.
    fn file(process: &str, communicators: &[(&str, u32, u32)]) -> ProcessTrace {
        let mut trace = ProcessTrace::default();
        for (communicator, rank, ranks) in communicators {
            let (process, communicator) = (process.to_owned(), (*communicator).to_owned());
            trace.memberships.push(Membership {
                process: process.clone(),
                communicator: communicator.clone(),
                rank: *rank,
                ranks: *ranks,
            });
            let kind = CallKind::Collective(Collective::AllReduce);
            let call = TracedCall::new(kind, None, Bytes(8));
            trace.calls.push(ProcessCall { process, communicator, call });
        }
        trace
    }

    fn of(files: &[(&str, ProcessTrace, Option<u32>)]) -> Result<FileTrace> {
        let mut processes = Processes::default();
        for (path, trace, rank) in files {
            processes.add(Path::new(path), trace.clone(), *rank)?;
        }
        processes.into_ranks()
    }

    #[test]
    fn ranks_are_those_in_the_communicator_of_all_processes() {
        let files =
            [("a", file("n1:1", &[("0xw", 1, 2), ("0xpp", 0, 1)]), None), ("b", file("n1:2", &[("0xw", 0, 2)]), None)];
        let file = of(&files).unwrap();
        assert_eq!(file.calls.iter().map(|call| call.rank).collect::<Vec<_>>(), [1, 1, 0]);
        let ranks: Vec<_> = file.groups.iter().map(|group| group.ranks.clone().unwrap()).collect();
        assert_eq!((ranks, file.world), (vec![vec![1], vec![0, 1]], Some(2)));
    }

    #[test]
    fn without_such_a_communicator_the_names_of_the_files_say_the_ranks_or_nothing_is_assumed() {
        let trace = |process| file(process, &[("0xa", 0, 2)]);
        let other = |process| file(process, &[("0xb", 0, 2)]);
        let named = of(&[("rank4", trace("n1:1"), Some(4)), ("rank6", other("n1:2"), Some(6))]).unwrap();
        assert_eq!(named.calls.iter().map(|call| call.rank).collect::<Vec<_>>(), [4, 6]);
        assert_eq!(named.groups[0].ranks, None);
        let error = of(&[("x", trace("n1:1"), Some(4)), ("y", other("n1:2"), None)]).unwrap_err().to_string();
        assert!(error.contains("y does not give the rank of process n1:2"), "{error}");
        assert!(error.contains("no communicator contains all 2 processes"), "{error}");
    }

    #[test]
    fn two_files_of_one_process_are_refused() {
        let files = [("x", file("n1:1", &[("0xa", 0, 1)]), None), ("y", file("n1:1", &[("0xa", 0, 1)]), None)];
        let error = of(&files).unwrap_err().to_string();
        assert!(error.contains("x and y both belong to process n1:1"), "{error}");
    }

    #[test]
    fn a_list_of_ranks_is_read_whole_or_not_at_all() {
        assert_eq!(listed_ranks("[0, 2, 5]"), Some(vec![0, 2, 5]));
        for text in ["[0, 1, ..., 7]", "", "[]", "0, 1", "[0, -1]"] {
            assert_eq!(listed_ranks(text), None, "{text}");
        }
    }
}
