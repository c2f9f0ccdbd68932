//! Traces of processes that say which communicators they are in, and not which rank of the job they are: the rank is that in the
//! communicator that all of them are in.

use super::call::CallKind;
use super::trace_file::{CallDetail, FileCall, FileTrace, TracedGroup};
use commgauge_base::element::ElementType;
use commgauge_base::error::{Error, Result};
use commgauge_base::units::{Bytes, Seconds};
use commgauge_base::visible::ShownPath;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Host and process number.
pub(super) type Process = String;

/// What a process says of a communicator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Membership {
    pub process: Process,
    /// The same on all ranks of the communicator.
    pub communicator: String,
    pub rank: u32,
    pub ranks: u32,
}

/// A call of a process on a communicator.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ProcessCall {
    pub process: Process,
    pub communicator: String,
    pub kind: CallKind,
    /// Absent where the trace does not say it.
    pub element: Option<ElementType>,
    pub bytes_total: Bytes,
    pub duration: Option<Seconds>,
    pub detail: CallDetail,
}

/// What a file of such processes held.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ProcessTrace {
    pub memberships: Vec<Membership>,
    pub calls: Vec<ProcessCall>,
    /// Names of calls of a kind that is not known, and how often each came.
    pub unknown: BTreeMap<String, u64>,
    /// Sentences about what was skipped.
    pub notes: Vec<String>,
}

/// Rank and size of a member.
#[derive(Clone, Copy, Debug)]
struct Place {
    rank: u32,
    ranks: u32,
}

/// The processes of all files of a job.
#[derive(Debug, Default)]
pub(super) struct Processes {
    /// By communicator and process.
    members: BTreeMap<String, BTreeMap<Process, Place>>,
    file_of: BTreeMap<Process, PathBuf>,
    rank_of_name: BTreeMap<Process, u32>,
    calls: Vec<ProcessCall>,
}

impl Processes {
    /// A file of them, where there is any.
    pub(super) fn a_file(&self) -> Option<&Path> {
        self.file_of.values().next().map(PathBuf::as_path)
    }

    /// Adds a file. The rank that its name says is taken where the file is of one process.
    ///
    /// # Errors
    /// If another file holds the same process.
    pub(super) fn add(&mut self, path: &Path, trace: ProcessTrace, rank_of_name: Option<u32>) -> Result<()> {
        let processes: BTreeSet<&Process> = trace.memberships.iter().map(|of| &of.process).collect();
        for process in &processes {
            if let Some(other) = self.file_of.insert((*process).clone(), path.to_owned()) {
                return Err(Error::usage(format!(
                    "{} and {} are both of process {process}; accepted: one file of each process, of one job",
                    other.shown(),
                    path.shown()
                )));
            }
        }
        if let (Some(process), 1, Some(rank)) = (processes.first(), processes.len(), rank_of_name) {
            self.rank_of_name.insert((*process).clone(), rank);
        }
        for of in trace.memberships {
            let place = Place { rank: of.rank, ranks: of.ranks };
            self.members.entry(of.communicator).or_default().insert(of.process, place);
        }
        self.calls.extend(trace.calls);
        Ok(())
    }

    /// The calls with the ranks of their processes and the ranks of their communicators.
    ///
    /// # Errors
    /// If nothing says the ranks.
    pub(super) fn into_ranks(self) -> Result<FileTrace> {
        let ranks = self.ranks()?;
        let mut file = FileTrace { world: self.world(), ..FileTrace::default() };
        let mut group_of: BTreeMap<&str, usize> = BTreeMap::new();
        for (communicator, members) in &self.members {
            let size = members.values().map(|place| place.ranks).next();
            let group = TracedGroup { name: communicator.clone(), size, ranks: world_ranks(members, &ranks) };
            group_of.insert(communicator, file.group(group));
        }
        for call in &self.calls {
            let (Some(rank), Some(group)) = (ranks.get(&call.process), group_of.get(call.communicator.as_str())) else {
                continue;
            };
            file.calls.push(FileCall {
                rank: Some(*rank),
                kind: call.kind,
                element: call.element,
                bytes_total: call.bytes_total,
                group: *group,
                duration: call.duration,
                detail: call.detail.clone(),
            });
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
                "{} does not say which rank process {process} is, as no communicator holds all {} processes of the files; accepted: \
                 one file of each process, with the rank in its name, such as inspector-rank3.log",
                path.shown(),
                self.file_of.len()
            ))),
        }
    }

    /// The largest communicator, if every process is in it.
    fn world_communicator(&self) -> Option<&BTreeMap<Process, Place>> {
        let size = |members: &BTreeMap<Process, Place>| members.values().map(|place| place.ranks).max();
        let largest = self.members.values().filter_map(size).max()?;
        let holds_all = |members: &&BTreeMap<Process, Place>| members.len() == self.file_of.len();
        self.members.values().filter(|members| size(members) == Some(largest)).find(holds_all)
    }

    /// Ranks of the job. Names of files do not say how many there are beyond them.
    fn world(&self) -> Option<u32> {
        self.world_communicator()?.values().map(|place| place.ranks).next()
    }
}

/// The world ranks of a communicator in its order, where the files have all of them.
fn world_ranks(members: &BTreeMap<Process, Place>, ranks: &BTreeMap<Process, u32>) -> Option<Vec<u32>> {
    let mut placed: Vec<(u32, u32)> = Vec::new();
    for (process, place) in members {
        placed.push((place.rank, *ranks.get(process)?));
    }
    placed.sort_unstable();
    let size = members.values().next()?.ranks;
    (placed.len() == size as usize).then(|| placed.into_iter().map(|(_, rank)| rank).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use commgauge_base::collective::Collective;

    /// A file of a process that is in these communicators, each by name, rank and size, and calls once on each.
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
            trace.calls.push(ProcessCall {
                process,
                communicator,
                kind,
                element: None,
                bytes_total: Bytes(8),
                duration: None,
                detail: CallDetail::default(),
            });
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
        assert_eq!(file.calls.iter().map(|call| call.rank).collect::<Vec<_>>(), [Some(1), Some(1), Some(0)]);
        let ranks: Vec<_> = file.groups.iter().map(|group| group.ranks.clone().unwrap()).collect();
        assert_eq!((ranks, file.world), (vec![vec![1], vec![0, 1]], Some(2)));
    }

    #[test]
    fn without_such_a_communicator_the_names_of_the_files_say_the_ranks_or_nothing_is_assumed() {
        let trace = |process| file(process, &[("0xa", 0, 2)]);
        let other = |process| file(process, &[("0xb", 0, 2)]);
        let named = of(&[("rank4", trace("n1:1"), Some(4)), ("rank6", other("n1:2"), Some(6))]).unwrap();
        assert_eq!(named.calls.iter().filter_map(|call| call.rank).collect::<Vec<_>>(), [4, 6]);
        assert_eq!(named.groups[0].ranks, None);
        let error = of(&[("x", trace("n1:1"), Some(4)), ("y", other("n1:2"), None)]).unwrap_err().to_string();
        assert!(error.contains("y does not say which rank process n1:2 is"), "{error}");
        assert!(error.contains("no communicator holds all 2 processes"), "{error}");
    }

    #[test]
    fn two_files_of_one_process_are_refused() {
        let files = [("x", file("n1:1", &[("0xa", 0, 1)]), None), ("y", file("n1:1", &[("0xa", 0, 1)]), None)];
        let error = of(&files).unwrap_err().to_string();
        assert!(error.contains("x and y are both of process n1:1"), "{error}");
    }
}
