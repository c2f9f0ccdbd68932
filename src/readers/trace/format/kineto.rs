//! Chrome traces that PyTorch's profiler exports (Kineto, libkineto/src/output_json.cpp).
//!
//! On GPUs a call is an event `record_param_comms` on the host with collective, sizes and group, and a kernel with the same external id,
//! whose duration it is. On the CPU gloo's events have shapes and a duration, but no group. Events are read one by one, as a trace of a
//! real job is larger than memory; a truncated file is used up to that point.

use super::pytorch::{BATCH, BatchedMessages, Part, read_list};
use crate::trace::call::{
    CallDetail, CallKind, ComputingSpan, Elements, FileTrace, TracedCall, TracedGroup, element_of_torch,
    elements_to_each, listed_ranks,
};
use commgauge_base::units::Seconds;
use commgauge_model::layout::MOST_RANKS;
use serde::{Deserialize, Deserializer};
use std::collections::{BTreeSet, HashMap};
use std::io::Read;

const HOST_EVENT: &str = "record_param_comms";

const GLOO: &str = "gloo:";

/// How backends of devices begin the annotations of calls: all that PyTorch up to 2.1, and backends other than NCCL, say of sizes.
const OF_DEVICES: [&str; 4] = ["nccl:", "hccl:", "xccl:", "oneccl:"];

const STEP: &str = "ProfilerStep#";

/// Categories of device work (libkineto/include/ActivityType.h).
const ON_A_DEVICE: [&str; 3] = ["kernel", "gpu_memcpy", "gpu_memset"];

/// The category of device time under a host annotation.
const ANNOTATED_ON_A_DEVICE: &str = "gpu_user_annotation";

/// Prefixes of NCCL's own kernels.
const NCCL_KERNEL: &str = "nccl";

#[derive(Debug, Default, Deserialize)]
struct DistributedInfo {
    rank: Option<u32>,
    world_size: Option<u32>,
    #[serde(default)]
    pg_config: Vec<TorchGroup>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Event {
    ph: String,
    cat: String,
    name: String,
    #[serde(deserialize_with = "number")]
    tid: Option<u64>,
    ts: Option<f64>,
    dur: Option<f64>,
    args: Arguments,
}

/// Host threads have numbers; other rows may have names.
fn number<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    serde_json::Value::deserialize(from).map(|value| value.as_u64())
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Arguments {
    #[serde(rename = "External id")]
    external_id: Option<u64>,
    #[serde(rename = "Collective name")]
    collective: Option<String>,
    #[serde(rename = "dtype")]
    element: Option<String>,
    #[serde(rename = "In msg nelems")]
    elements_in: Option<u64>,
    #[serde(rename = "Out msg nelems")]
    elements_out: Option<u64>,
    #[serde(rename = "Group size")]
    group_size: Option<u32>,
    #[serde(rename = "Process Group Name")]
    group_name: Option<String>,
    #[serde(rename = "Process Group Ranks")]
    group_ranks: Option<String>,
    /// World ranks of the ends of a message.
    #[serde(rename = "Src Rank")]
    source: Option<u32>,
    #[serde(rename = "Dst Rank")]
    destination: Option<u32>,
    #[serde(rename = "Seq")]
    sequence: Option<u64>,
    /// For an uneven all_to_all: rows to each rank.
    #[serde(rename = "In split size")]
    rows_to_each: Option<String>,
    #[serde(rename = "Input Dims")]
    dimensions: serde_json::Value,
    #[serde(rename = "Input type")]
    types: serde_json::Value,
}

/// What has been read so far.
#[derive(Default)]
struct Reading {
    info: DistributedInfo,
    file: FileTrace,
    /// Calls by the external id of their host event; none for an unknown call.
    by_external_id: HashMap<u64, Option<usize>>,
    /// Kernels of calls whose host events have not come yet, with their durations in microseconds.
    kernels: Vec<(Event, f64)>,
    /// Calls as their annotations describe them, which are used where nothing else does.
    annotated: Vec<Event>,
    batched: BatchedMessages,
    steps: BTreeSet<String>,
    events: u64,
}

/// Reads a trace. A truncated or damaged one is read up to that point, with a note.
pub(super) fn read(source: impl Read) -> FileTrace {
    let mut reading = Reading::default();
    let ended = read_list(source, "traceEvents", Some("distributedInfo"), &mut |part| match part {
        Part::Element(event) => reading.take(event),
        Part::Other(info) => reading.info = serde_json::from_value(info).unwrap_or_default(),
    });
    if let Err(cause) = ended {
        reading.file.note_end(format_args!("{} events", reading.events), cause);
    }
    reading.finish()
}

impl Event {
    fn begin_nanoseconds(&self) -> Option<u64> {
        self.ts.filter(|microseconds| *microseconds > 0.0).map(|microseconds| (microseconds * 1e3) as u64)
    }

    fn span_nanoseconds(&self) -> Option<ComputingSpan> {
        let (begin, microseconds) = (self.begin_nanoseconds()?, self.dur.filter(|duration| *duration > 0.0)?);
        Some(begin..begin.saturating_add((microseconds * 1e3) as u64))
    }
}

/// Facts for a replay from an event.
fn detail(event: &Event, kind: CallKind) -> CallDetail {
    let args = &event.args;
    let peer = match kind {
        CallKind::Send => args.destination,
        CallKind::Receive => args.source,
        CallKind::Collective(_) => None,
    };
    let group = args.group_ranks.as_deref().and_then(listed_ranks);
    let place_of = |world_rank: u32| group.as_ref()?.iter().position(|rank| *rank == world_rank).map(|at| at as u32);
    CallDetail {
        begin_nanoseconds: event.begin_nanoseconds(),
        peer: peer.and_then(place_of),
        // Each rank numbers its own messages.
        sequence: args.sequence.filter(|_| matches!(kind, CallKind::Collective(_))),
        elements_to_each: args.rows_to_each.as_deref().and_then(|rows| elements_to_each(rows, args.elements_in?)),
    }
}

impl Reading {
    fn take(&mut self, event: Event) {
        self.events += 1;
        if event.ph != "X" {
            return;
        }
        if event.name.starts_with(STEP) {
            self.steps.insert(event.name);
        } else if event.name == HOST_EVENT {
            self.take_host_event(&event);
        } else if event.name == BATCH {
            self.take_batch(&event);
        } else if event.name.starts_with(GLOO) {
            self.take_gloo_event(&event);
        } else if OF_DEVICES.iter().any(|backend| event.name.starts_with(backend)) && event.args.dimensions.is_array() {
            // Its duration is that of the host.
            self.annotated.push(Event { dur: None, ..event });
        } else if let (Some(_), Some(duration)) = (&event.args.collective, event.dur) {
            if !self.has_taken_kernel(&event, duration) {
                self.kernels.push((event, duration));
            }
        } else if ON_A_DEVICE.contains(&event.cat.as_str()) && !event.name.starts_with(NCCL_KERNEL) {
            self.file.computing.extend(event.span_nanoseconds());
        }
    }

    fn take_host_event(&mut self, event: &Event) {
        let call = self.described_call(event, None);
        if let Some(id) = event.args.external_id {
            self.by_external_id.insert(id, call.as_ref().map(|_| self.file.calls.len()));
        }
        let is_message = call.as_ref().is_some_and(|call| matches!(call.kind, CallKind::Send | CallKind::Receive));
        if let (true, Some(thread), Some(begin)) = (is_message, event.tid, event.begin_nanoseconds()) {
            self.batched.messages.push(((thread, begin), self.file.calls.len()));
        }
        self.file.calls.extend(call);
    }

    fn take_batch(&mut self, event: &Event) {
        let Some(id) = event.args.external_id else { return };
        if event.cat == ANNOTATED_ON_A_DEVICE {
            self.batched.on_device.extend(event.span_nanoseconds().map(|span| (id, span)));
        } else if let (Some(thread), Some(begin)) = (event.tid, event.begin_nanoseconds()) {
            self.batched.ends.push(((thread, begin), id));
        }
    }

    /// A call from an event with collective, type, elements and group.
    fn described_call(&mut self, event: &Event, duration: Option<f64>) -> Option<TracedCall> {
        let args = &event.args;
        let name = args.collective.as_deref()?;
        let kind = self.file.known_kind(name)?;
        let element = args.element.as_deref().and_then(element_of_torch);
        let elements = Elements { sent: args.elements_in.unwrap_or(0), received: args.elements_out.unwrap_or(0) };
        let described = format!("{name} of {}", args.element.as_deref().unwrap_or("no type"));
        let call = self.file.sized(kind, element, elements, &described)?;
        let group = self.file.group(TracedGroup {
            name: args.group_name.clone().unwrap_or_default(),
            size: args.group_size,
            ranks: args.group_ranks.as_deref().and_then(listed_ranks),
        });
        let duration = duration.map(|microseconds| Seconds(microseconds / 1e6));
        Some(TracedCall { group, duration, detail: detail(event, kind), ..call })
    }

    /// gloo's events and annotations have the shape of the first tensor, which is the input of a rank.
    fn take_gloo_event(&mut self, event: &Event) {
        let call = self.file.call_by_shape(&event.name, &event.args.dimensions, &event.args.types);
        self.file.calls.extend(call.map(|call| TracedCall {
            duration: event.dur.map(|microseconds| Seconds(microseconds / 1e6)),
            detail: CallDetail { begin_nanoseconds: event.begin_nanoseconds(), ..CallDetail::default() },
            ..call
        }));
    }

    /// Adds a kernel to the call of its host event. False if the host event has not come yet.
    fn has_taken_kernel(&mut self, kernel: &Event, duration: f64) -> bool {
        let Some(of_host) = kernel.args.external_id.and_then(|id| self.by_external_id.get(&id)) else { return false };
        // None: its host event was counted as an unknown call.
        let Some(at) = *of_host else { return true };
        let call = &mut self.file.calls[at];
        let before = call.duration.map_or(0.0, |seconds| seconds.0);
        // On the device it begins with its first kernel.
        let begin = kernel.begin_nanoseconds();
        call.detail.begin_nanoseconds = match call.duration {
            Some(_) => call.detail.begin_nanoseconds.min(begin),
            None => begin.or(call.detail.begin_nanoseconds),
        };
        call.duration = Some(Seconds(before + duration / 1e6));
        true
    }

    /// Kernels without a host event are calls themselves.
    fn finish(mut self) -> FileTrace {
        if self.by_external_id.values().all(Option::is_none) && self.kernels.is_empty() {
            std::mem::take(&mut self.annotated).iter().for_each(|event| self.take_gloo_event(event));
        }
        for (event, duration) in std::mem::take(&mut self.kernels) {
            if !self.has_taken_kernel(&event, duration) {
                let call = self.described_call(&event, Some(duration));
                self.file.calls.extend(call);
            }
        }
        let mut file = self.file;
        self.batched.give_times(&mut file.calls);
        (file.rank, file.world) = (self.info.rank, self.info.world_size);
        file.steps = (!self.steps.is_empty()).then_some(self.steps.len() as u64);
        for group in &mut file.groups {
            let mut configured = self.info.pg_config.iter().filter(|config| config.pg_name == group.name);
            if let (None, Some(config)) = (&group.ranks, configured.next()) {
                group.ranks = config.world_ranks();
                group.size = group.size.or(config.pg_size);
            }
        }
        if file.groups.iter().any(|group| group.name.is_empty() && group.ranks.is_none()) {
            let note = "its events do not name the group of a call, as with gloo and before PyTorch 2.2; the size of an all_gather is the input of one rank, and gloo runs a reduce_scatter as an all_reduce";
            file.notes.push(note.to_owned());
        }
        file
    }
}

// Process groups as PyTorch lists them (`pg_config_info` of torch/distributed/distributed_c10d.py).

/// A process group of a job.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct TorchGroup {
    pub pg_name: String,
    /// The handle that names the group in the calls of versions before 2.4.
    pub backend_id: Option<u64>,
    #[serde(alias = "group_size")]
    pub pg_size: Option<u32>,
    /// Empty if the group contains all ranks of the job.
    pub ranks: Vec<u32>,
}

impl TorchGroup {
    /// World ranks, if known.
    pub(super) fn world_ranks(&self) -> Option<Vec<u32>> {
        match &self.ranks[..] {
            [] => self.pg_size.filter(|size| *size <= MOST_RANKS).map(|size| (0..size).collect()),
            ranks => Some(ranks.to_vec()),
        }
    }

    pub(super) fn traced(&self) -> TracedGroup {
        let ranks = self.world_ranks();
        let size = ranks.as_ref().map(|ranks| ranks.len() as u32);
        TracedGroup { name: self.pg_name.clone(), ranks, size }
    }
}

/// The ranks of a job, from the group that contains all of them.
pub(super) fn world(groups: &[TorchGroup]) -> Option<u32> {
    groups.iter().filter(|group| group.ranks.is_empty()).filter_map(|group| group.pg_size).max()
}

#[cfg(test)]
mod tests {

    use super::*;
    use commgauge_base::units::Bytes;

    /// As a GPU job writes it, according to Kineto's source.
    const GPU: &str = r#"{"schemaVersion": 1, "distributedInfo": {"backend": "nccl", "rank": 1, "world_size": 4}, "host_name": "n1",
        "traceEvents": [
        {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#3", "ts": 1.0, "dur": 9.0, "args": {}},
        {"ph": "X", "cat": "cpu_op", "name": "record_param_comms", "ts": 2.0, "dur": 1.0, "args": {"External id": 7,
         "Collective name": "_allgather_base", "dtype": "BFloat16", "In msg nelems": 512, "Out msg nelems": 1024, "Group size": 2,
         "Process Group Name": "3", "Process Group Ranks": "[0, 1]"}},
        {"ph": "X", "cat": "cpu_op", "name": "record_param_comms", "ts": 3.0, "dur": 1.0, "args": {"External id": 8,
         "Collective name": "wait", "dtype": "BFloat16", "In msg nelems": 0, "Out msg nelems": 0}},
        {"ph": "X", "cat": "kernel", "name": "gemm", "ts": 44.0, "dur": 3.5, "args": {"External id": 9}},
        {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_SendRecv", "ts": 60.0, "dur": 3.5, "args": {"External id": 10}},
        {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllGather_RING_LL(...)", "ts": 5.0, "dur": 40.0, "args": {"External id": 7,
         "Collective name": "_allgather_base", "dtype": "BFloat16", "In msg nelems": 512, "Out msg nelems": 1024, "Group size": 2}}
        ]}"#;

    #[test]
    fn a_call_is_counted_once_and_takes_as_long_as_its_kernel() {
        let file = read(GPU.as_bytes());
        let [call] = &file.calls[..] else { panic!("{file:?}") };
        assert_eq!((call.bytes_total.0, call.duration), (2048, Some(Seconds(40e-6))));
        let [computing] = &file.computing[..] else { panic!("{file:?}") };
        assert_eq!((call.detail.begin_nanoseconds, computing), (Some(5_000), &(44_000..47_500)));
        assert_eq!(file.groups[0].ranks, Some(vec![0, 1]));
        assert_eq!((file.rank, file.world, file.steps), (Some(1), Some(4), Some(1)));
        assert!(file.notes.is_empty() && file.unknown.is_empty(), "{file:?}");
    }

    /// Written by PyTorch 2.15 on gloo without shapes.
    #[test]
    fn a_call_of_gloo_without_its_size_is_skipped_with_what_gives_it() {
        let trace = r#"{"traceEvents": [{"ph": "X", "cat": "user_annotation", "name": "gloo:all_gather", "pid": 31457, "tid": 31501,
            "ts": 4847153404767.115, "dur": 5297.567, "args": {"External id": 1025, "Record function id": 0, "Ev Idx": 0}}]}"#;
        let file = read(trace.as_bytes());
        assert!(file.calls.is_empty());
        assert!(file.unknown.keys().any(|name| name.contains("record_shapes=True")), "{:?}", file.unknown);
    }

    /// As PyTorch up to 2.1 writes it, and with backends of other devices.
    #[test]
    fn annotations_are_calls_where_nothing_else_describes_them() {
        for backend in ["nccl", "hccl"] {
            let annotation = format!(
                r#"{{"ph": "X", "cat": "user_annotation", "name": "{backend}:all_reduce", "ts": 12, "dur": 1, "args": {{"External id": 3,
                "Input Dims": [[1048576]], "Input type": ["float"]}}}}"#
            );
            let host = r#"{"ph": "X", "cat": "cpu_op", "name": "record_param_comms", "ts": 11, "dur": 3, "args": {"External id": 2}}"#;
            let file = read(format!("{{\"traceEvents\": [{host}, {annotation}]}}").as_bytes());
            let [call] = &file.calls[..] else { panic!("{file:?}") };
            assert_eq!((call.kind.name(), call.bytes_total, call.duration), ("all_reduce", Bytes(4 << 20), None));
            let described = GPU.replacen("\"traceEvents\": [", &format!("\"traceEvents\": [{annotation},"), 1);
            assert_eq!(read(described.as_bytes()).calls.len(), 1, "{backend}");
        }
    }

    #[test]
    fn rows_of_an_uneven_exchange_become_elements() {
        assert_eq!(elements_to_each("[1, 0, 3]", 64), Some(vec![16, 0, 48]));
        assert_eq!(elements_to_each("[0, 0]", 0), Some(vec![0, 0]));
        for (rows, elements) in [("[1, ..., 3]", 64), ("[1, 2]", 64), ("[0, 0]", 8), ("[]", 8), ("[]", 0)] {
            assert_eq!(elements_to_each(rows, elements), None, "{rows}");
        }
    }

    #[test]
    fn what_came_before_the_cut_is_used_and_the_cut_is_said() {
        let cut = &GPU[..GPU.find("\"cat\": \"kernel\"").unwrap()];
        let file = read(cut.as_bytes());
        assert_eq!((file.calls.len(), file.calls[0].duration), (1, None));
        assert!(file.notes[0].contains("truncated or damaged after 3 events"), "{:?}", file.notes);
    }
}
