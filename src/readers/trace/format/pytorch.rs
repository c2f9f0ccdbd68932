//! Dumps of PyTorch's flight recorder: the last calls of each rank (torch/csrc/distributed/c10d/FlightRecorder.hpp), as JSON or as
//! the pickle that a job writes when it hangs (`TORCH_NCCL_DEBUG_INFO_TEMP_FILE`).

use super::pickle::{self, Pickled};
use crate::trace::call::{
    CallDetail, CallKind, ComputingSpan, Elements, FileTrace, TracedCall, TracedGroup, element_of_torch, listed_ranks,
};
use commgauge_base::collective::Collective;
use commgauge_base::units::Seconds;
use serde::Deserialize;
use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io::{BufRead, Read};
use std::marker::PhantomData;

/// Content of a dump besides its entries.
#[derive(Debug, Deserialize)]
struct Dump {
    #[serde(default)]
    pg_config: Groups,
}

/// By name.
type Groups = BTreeMap<String, GroupConfig>;

#[derive(Debug, Deserialize)]
struct GroupConfig {
    ranks: String,
}

/// A call. Sizes are those of its tensors, which may be several.
#[derive(Debug, Deserialize)]
struct Entry {
    record_id: u64,
    process_group: (String, String),
    profiling_name: String,
    #[serde(default)]
    input_sizes: Vec<Vec<u64>>,
    #[serde(default)]
    input_dtypes: Vec<String>,
    #[serde(default)]
    output_sizes: Vec<Vec<u64>>,
    #[serde(default)]
    output_dtypes: Vec<String>,
    duration_ms: Option<f64>,
    time_created_ns: Option<u64>,
    collective_seq_id: Option<u64>,
    #[serde(default)]
    is_p2p: bool,
}

/// Whether these are the first bytes of a pickle (protocol 2 and newer).
pub(super) fn is_pickle(bytes: &[u8]) -> bool {
    matches!(bytes, [0x80, 2..=5, ..])
}

/// Reads a dump, entry by entry. One in JSON may be larger than memory.
///
/// # Errors
/// The problem, to follow the name of the file.
pub(super) fn read(mut source: impl BufRead) -> Result<FileTrace, String> {
    let read = match source.fill_buf().map(is_pickle) {
        Ok(true) => read_pickle(source),
        Ok(false) => read_json(source),
        Err(cause) => Err(cause.to_string()),
    };
    read.map_err(|cause| format!("is not a complete dump of a flight recorder: {cause}"))
}

fn read_pickle(mut source: impl Read) -> Result<FileTrace, String> {
    let mut bytes = Vec::new();
    let cut = source.read_to_end(&mut bytes).err().map(|cause| cause.to_string());
    let mut reading = Reading::default();
    let mut take = |entry| reading.take(entry);
    let read: Pickled<Dump> = pickle::read(&bytes, pickle::Each { key: "record_id", take: &mut take })?;
    reading.finish(&read.value.pg_config, cut.or(read.problem))
}

fn read_json(source: impl Read) -> Result<FileTrace, String> {
    let (mut reading, mut groups) = (Reading::default(), Ok(Groups::default()));
    let read = read_list(source, "entries", Some("pg_config"), &mut |part| match part {
        Part::Element(entry) => reading.take(entry),
        Part::Other(config) => groups = serde_json::from_value(config),
    });
    let groups = groups.map_err(|cause| cause.to_string())?;
    reading.finish(&groups, read.err().map(|cause| cause.to_string()))
}

/// What has been read so far.
#[derive(Default)]
struct Reading {
    file: FileTrace,
    first: Option<u64>,
    entries: u64,
    is_of_gloo: bool,
}

impl Reading {
    fn take(&mut self, entry: Entry) {
        self.entries += 1;
        self.first = Some(self.first.map_or(entry.record_id, |first| first.min(entry.record_id)));
        self.is_of_gloo |= entry.profiling_name.starts_with("gloo:");
        let Some(kind) = self.file.known_kind(&entry.profiling_name) else { return };
        let dtype = entry.input_dtypes.first().or(entry.output_dtypes.first());
        let element = dtype.and_then(|dtype| element_of_torch(dtype));
        let elements = Elements { sent: count(&entry.input_sizes), received: count(&entry.output_sizes) };
        let described = format!("{} of {}", entry.profiling_name, dtype.map_or("no type", |dtype| dtype));
        let Some(call) = self.file.sized(kind, element, elements, &described) else { return };
        let name = entry.process_group.0;
        let group = self.file.group(TracedGroup { name, size: size_by_shapes(kind, elements), ranks: None });
        self.file.calls.push(TracedCall {
            group,
            duration: entry.duration_ms.map(|milliseconds| Seconds(milliseconds / 1e3)),
            detail: CallDetail {
                begin_nanoseconds: entry.time_created_ns,
                peer: peer(&entry.profiling_name),
                // Each rank numbers its own messages.
                sequence: entry.collective_seq_id.filter(|_| !entry.is_p2p),
                elements_to_each: None,
            },
            ..call
        });
    }

    /// Everything read; if a problem ended it, everything before.
    fn finish(mut self, configured: &Groups, problem: Option<String>) -> Result<FileTrace, String> {
        match (problem, self.entries) {
            (None, _) => {}
            (Some(problem), 0) => return Err(problem),
            (Some(problem), entries) => {
                let note =
                    format!("the dump is truncated or damaged after {entries} entries, which are used: {problem}");
                self.file.notes.push(note);
            }
        }
        if self.is_of_gloo {
            let note = "gloo runs a reduce_scatter as an all_reduce; its recorder omits messages, and records one part of an all_gather into a list";
            self.file.notes.push(note.to_owned());
        }
        // The recorder is a ring: calls before its oldest entry are overwritten.
        if let Some(first) = self.first.filter(|first| *first > 0) {
            let note = format!("the recorder had overwritten its first {first} calls, which are not counted");
            self.file.notes.push(note);
        }
        for group in &mut self.file.groups {
            group.ranks = configured.get(&group.name).and_then(|config| listed_ranks(&config.ranks));
            group.size = group.ranks.as_ref().map(|ranks| ranks.len() as u32).or(group.size);
        }
        Ok(self.file)
    }
}

/// The other end of a message: `nccl:send 0->1`, `nccl:recv 1<-0`.
fn peer(name: &str) -> Option<u32> {
    let (_, peer) = name.split_once("->").or_else(|| name.split_once("<-"))?;
    peer.trim().parse().ok()
}

fn count(sizes: &[Vec<u64>]) -> u64 {
    sizes.iter().map(|sizes| sizes.iter().product::<u64>()).fold(0, u64::saturating_add)
}

/// How many ranks gather or scatter blocks of these sizes. `None` if the recorder has one block as the whole, as for gloo's all_gather into
/// a list.
fn size_by_shapes(kind: CallKind, elements: Elements) -> Option<u32> {
    let (whole, block) = match kind {
        CallKind::Collective(Collective::AllGather) => (elements.received, elements.sent),
        CallKind::Collective(Collective::ReduceScatter) => (elements.sent, elements.received),
        _ => return None,
    };
    (block > 0 && whole > block && whole.is_multiple_of(block)).then(|| u32::try_from(whole / block).ok())?
}

// Messages that PyTorch submits in one batch (`batch_isend_irecv`): the profiler has a host event for each, and one device event for all,
// `nccl:coalesced`, whose external id leads to the end of the batch on the host (torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp
// endCoalescing).

/// Name of batch events.
pub(super) const BATCH: &str = "nccl:coalesced";

/// A position in the order of a host thread's work: thread and time.
type Moment = (u64, u64);

#[derive(Default)]
pub(super) struct BatchedMessages {
    /// Calls whose own kernel is not known yet, by index.
    pub messages: Vec<(Moment, usize)>,
    /// External ids of batches, by submission time.
    pub ends: Vec<(Moment, u64)>,
    /// When the device executed each batch.
    pub on_device: HashMap<u64, ComputingSpan>,
}

impl BatchedMessages {
    /// Gives messages without their own kernel the time of their batch: the next one submitted by their thread.
    pub(super) fn give_times(mut self, calls: &mut [TracedCall]) {
        self.ends.sort_unstable();
        for ((thread, nanoseconds), at) in self.messages {
            let call = &mut calls[at];
            let next = self.ends.partition_point(|(moment, _)| *moment < (thread, nanoseconds));
            let end = self.ends.get(next).filter(|((of, _), _)| *of == thread);
            let (None, Some(span)) = (call.duration, end.and_then(|(_, id)| self.on_device.get(id))) else { continue };
            call.duration = Some(Seconds((span.end - span.start) as f64 * 1e-9));
            call.detail.begin_nanoseconds = Some(span.start);
        }
    }
}

// A JSON object with a long list, whose elements are passed on one by one: a trace of a real job is larger than memory.

/// A part of the object.
pub(super) enum Part<T> {
    Element(T),
    /// The other value.
    Other(Value),
}

/// Passes on the elements of the list under `list`, and the value under `other`, if any, in file order; ignores the rest.
///
/// # Errors
/// If the text is truncated or is not such an object; everything before that was passed on.
pub(super) fn read_list<T: DeserializeOwned>(
    source: impl Read,
    list: &'static str,
    other: Option<&'static str>,
    take: &mut dyn FnMut(Part<T>),
) -> Result<(), serde_json::Error> {
    let mut json = serde_json::Deserializer::from_reader(source);
    Parts { list, other, take, is_list: false, of: PhantomData }.deserialize(&mut json)?;
    json.end()
}

/// The object, or the list in it.
struct Parts<'a, T> {
    list: &'static str,
    other: Option<&'static str>,
    take: &'a mut dyn FnMut(Part<T>),
    is_list: bool,
    of: PhantomData<T>,
}

impl<'de, T: DeserializeOwned> DeserializeSeed<'de> for Parts<'_, T> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        if self.is_list { deserializer.deserialize_seq(self) } else { deserializer.deserialize_map(self) }
    }
}

impl<'de, T: DeserializeOwned> Visitor<'de> for Parts<'_, T> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_list { f.write_str("a list") } else { write!(f, "a trace with {}", self.list) }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            if key == self.list {
                map.next_value_seed(Parts { take: &mut *self.take, is_list: true, ..self })?;
            } else if Some(key.as_str()) == self.other {
                (self.take)(Part::Other(map.next_value()?));
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while let Some(element) = list.next_element::<T>()? {
            (self.take)(Part::Element(element));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn the_other_end_of_a_message_is_in_its_name() {
        for (name, expected) in [
            ("nccl:send 0->1", Some(1)),
            ("nccl:recv 1<-3", Some(3)),
            ("nccl:all_reduce", None),
            ("nccl:send 0->", None),
        ] {
            assert_eq!(peer(name), expected, "{name}");
        }
    }

    const DUMP: &str = r#"{"version": "2.10", "pg_config": {"7": {"name": "7", "desc": "tp", "ranks": "[2, 3]"}},
        "pg_status": {}, "entries": [
        {"record_id": 5, "process_group": ["7", "tp"], "profiling_name": "nccl:_all_gather_base", "input_sizes": [[16, 64]],
         "input_dtypes": ["BFloat16"], "output_sizes": [[32, 64]], "output_dtypes": ["BFloat16"],
         "time_created_ns": 2000000000, "duration_ms": 0.5, "state": "completed", "pg_id": 1, "is_p2p": false},
        {"record_id": 6, "process_group": ["7", "tp"], "profiling_name": "nccl:fancy"}]}"#;

    #[test]
    fn calls_have_their_sizes_groups_and_what_was_overwritten_is_said() {
        let file = read(DUMP.as_bytes()).unwrap();
        let call = &file.calls[0];
        assert_eq!((call.bytes_total.0, call.duration), (4096, Some(Seconds(0.0005))));
        assert_eq!(file.groups, [TracedGroup { name: "7".into(), size: Some(2), ranks: Some(vec![2, 3]) }]);
        assert!(file.notes[0].contains("its first 5 calls"), "{:?}", file.notes);
        assert_eq!(file.unknown.get("nccl:fancy"), Some(&1));
    }

    #[test]
    fn of_a_dump_that_is_cut_off_the_whole_entries_are_used_with_their_groups() {
        let folder = tempfile::tempdir().unwrap();
        let pickle = folder.path().join("dump");
        crate::trace::pickled_dump::write(&pickle, 2, 3);
        let pickle = std::fs::read(pickle).unwrap();
        for (whole, from, groups) in [(DUMP.as_bytes(), 300, vec![2, 3]), (&pickle, 300, vec![0, 1])] {
            let cut: Vec<_> = (0..whole.len()).map(|end| read(&whole[..end])).collect();
            let used = |file: &FileTrace| file.notes.iter().any(|note| note.contains("is truncated or damaged after"));
            assert!(cut[..from].iter().all(Result::is_err) && cut[whole.len() - 1].is_ok());
            for file in cut.iter().flatten() {
                assert!(used(file) && file.groups[0].ranks.as_ref() == Some(&groups), "{file:?}");
            }
        }
    }
}
