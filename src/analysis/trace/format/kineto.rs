//! Chrome traces that PyTorch's profiler exports (Kineto, libkineto/src/output_json.cpp).
//!
//! On GPUs a call is an event `record_param_comms` on the host with collective, sizes and group, and a kernel with the same
//! external id, whose duration it is. On the CPU gloo's events have shapes and a duration, and no group. Events are taken one by
//! one, as a trace of a real job is larger than memory; where a file is cut off, what came before counts.

use super::json_list::{self, Part};
use super::torch_group::TorchGroup;
use crate::trace::call::{CallKind, Elements, Named, element_of_torch, named};
use crate::trace::trace_file::{FileCall, FileTrace, TracedGroup, listed_ranks};
use commgauge_base::collective::Collective;
use commgauge_base::units::Seconds;
use serde::Deserialize;
use std::collections::{BTreeSet, HashMap};
use std::io::Read;

const HOST_EVENT: &str = "record_param_comms";
const GLOO: &str = "gloo:";
const STEP: &str = "ProfilerStep#";

#[derive(Debug, Default, Deserialize)]
struct DistributedInfo {
    rank: Option<u32>,
    world_size: Option<u32>,
    #[serde(default)]
    pg_config: Vec<TorchGroup>,
}

#[derive(Debug, Deserialize)]
struct Event {
    #[serde(default)]
    ph: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    dur: Option<f64>,
    #[serde(default)]
    args: Arguments,
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
    /// Calls by the external id of their host event.
    by_external_id: HashMap<u64, usize>,
    /// Kernels of calls: external id and duration, in microseconds.
    kernels: Vec<(Event, f64)>,
    steps: BTreeSet<String>,
    events: u64,
}

/// Reads a trace. Where it is cut off or damaged, with a note, up to there.
pub(super) fn read(source: impl Read) -> FileTrace {
    let mut reading = Reading::default();
    let ended = json_list::read(source, "traceEvents", Some("distributedInfo"), &mut |part| match part {
        Part::Element(event) => reading.take(event),
        Part::Beside(info) => reading.info = serde_json::from_value(info).unwrap_or_default(),
    });
    if let Err(cause) = ended {
        let events = reading.events;
        reading
            .file
            .notes
            .push(format!("the file is cut off or damaged after {events} events, which are used: {cause}"));
    }
    reading.finish()
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
        } else if event.name.starts_with(GLOO) {
            self.take_gloo_event(&event);
        } else if let (Some(_), Some(duration)) = (&event.args.collective, event.dur) {
            self.kernels.push((event, duration));
        }
    }

    fn take_host_event(&mut self, event: &Event) {
        let Some(call) = self.described_call(event, None) else { return };
        if let Some(id) = event.args.external_id {
            self.by_external_id.insert(id, self.file.calls.len());
        }
        self.file.calls.push(call);
    }

    /// A call of an event that says collective, type, elements and group.
    fn described_call(&mut self, event: &Event, duration: Option<f64>) -> Option<FileCall> {
        let args = &event.args;
        let name = args.collective.as_deref()?;
        let kind = self.known_kind(name)?;
        let element = args.element.as_deref().and_then(element_of_torch);
        let elements = Elements { sent: args.elements_in.unwrap_or(0), received: args.elements_out.unwrap_or(0) };
        let Some((element, bytes_total)) = element.and_then(|of| Some((of, elements.bytes_total(kind, of)?))) else {
            self.file.skip_unknown(&format!("{name} of {}", args.element.as_deref().unwrap_or("no type")));
            return None;
        };
        let group = self.file.group(TracedGroup {
            name: args.group_name.clone().unwrap_or_default(),
            size: args.group_size,
            ranks: args.group_ranks.as_deref().and_then(listed_ranks),
        });
        let is_barrier = kind == CallKind::Collective(Collective::Barrier);
        Some(FileCall {
            rank: None,
            kind,
            element: (!is_barrier).then_some(element),
            bytes_total,
            group,
            duration: duration.map(|microseconds| Seconds(microseconds / 1e6)),
        })
    }

    /// gloo's events hold the shape of the first tensor, which is what a rank passes in.
    fn take_gloo_event(&mut self, event: &Event) {
        let Some(kind) = self.known_kind(&event.name) else { return };
        let first = |value: &serde_json::Value| value.get(0).cloned().unwrap_or_default();
        let elements = first(&event.args.dimensions).as_array().map_or(0, |dimensions| {
            dimensions.iter().map(|dimension| dimension.as_u64().unwrap_or(0)).fold(1, u64::saturating_mul)
        });
        let element = first(&event.args.types).as_str().and_then(element_of_torch);
        if element.is_none() && kind != CallKind::Collective(Collective::Barrier) {
            self.file.skip_unknown(&format!("{} without a type", event.name));
            return;
        }
        let group = self.file.group(TracedGroup { name: String::new(), size: None, ranks: None });
        let bytes = element.map_or(0, |element| elements.saturating_mul(element.size()));
        self.file.calls.push(FileCall {
            rank: None,
            kind,
            element,
            bytes_total: commgauge_base::units::Bytes(bytes),
            group,
            duration: event.dur.map(|microseconds| Seconds(microseconds / 1e6)),
        });
    }

    fn known_kind(&mut self, name: &str) -> Option<CallKind> {
        match named(name) {
            Named::Call(kind) => Some(kind),
            Named::NoCall => None,
            Named::Unknown => {
                self.file.skip_unknown(name);
                None
            }
        }
    }

    /// Gives each call the duration of its kernels; kernels without a host event are calls themselves.
    fn finish(mut self) -> FileTrace {
        for (event, duration) in std::mem::take(&mut self.kernels) {
            let known = event.args.external_id.and_then(|id| self.by_external_id.get(&id).copied());
            match known {
                Some(at) => {
                    let call = &mut self.file.calls[at];
                    let before = call.duration.map_or(0.0, |seconds| seconds.0);
                    call.duration = Some(Seconds(before + duration / 1e6));
                }
                None => {
                    let call = self.described_call(&event, Some(duration));
                    self.file.calls.extend(call);
                }
            }
        }
        let mut file = self.file;
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
            file.notes.push("its events do not say in which group a call is, as those of gloo never do, and the size of an all_gather is that of what one rank \
                 passes in".to_owned());
        }
        file
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a GPU job leaves it, by Kineto's source.
    const GPU: &str = r#"{"schemaVersion": 1, "distributedInfo": {"backend": "nccl", "rank": 1, "world_size": 4}, "host_name": "n1",
        "traceEvents": [
        {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#3", "ts": 1.0, "dur": 9.0, "args": {}},
        {"ph": "X", "cat": "cpu_op", "name": "record_param_comms", "ts": 2.0, "dur": 1.0, "args": {"External id": 7,
         "Collective name": "_allgather_base", "dtype": "BFloat16", "In msg nelems": 512, "Out msg nelems": 1024, "Group size": 2,
         "Process Group Name": "3", "Process Group Ranks": "[0, 1]"}},
        {"ph": "X", "cat": "cpu_op", "name": "record_param_comms", "ts": 3.0, "dur": 1.0, "args": {"External id": 8,
         "Collective name": "wait", "dtype": "BFloat16", "In msg nelems": 0, "Out msg nelems": 0}},
        {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllGather_RING_LL(...)", "ts": 5.0, "dur": 40.0, "args": {"External id": 7,
         "Collective name": "_allgather_base", "dtype": "BFloat16", "In msg nelems": 512, "Out msg nelems": 1024, "Group size": 2}}
        ]}"#;

    #[test]
    fn a_call_is_counted_once_and_takes_as_long_as_its_kernel() {
        let file = read(GPU.as_bytes());
        let [call] = &file.calls[..] else { panic!("{file:?}") };
        assert_eq!((call.bytes_total.0, call.duration), (2048, Some(Seconds(40e-6))));
        assert_eq!(file.groups[0].ranks, Some(vec![0, 1]));
        assert_eq!((file.rank, file.world, file.steps), (Some(1), Some(4), Some(1)));
        assert!(file.notes.is_empty() && file.unknown.is_empty(), "{file:?}");
    }

    #[test]
    fn what_came_before_the_cut_is_used_and_the_cut_is_said() {
        let cut = &GPU[..GPU.find("\"cat\": \"kernel\"").unwrap()];
        let file = read(cut.as_bytes());
        assert_eq!((file.calls.len(), file.calls[0].duration), (1, None));
        assert!(file.notes[0].contains("cut off or damaged after 3 events"), "{:?}", file.notes);
    }
}
