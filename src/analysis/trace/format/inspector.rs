//! Logs of NCCL's inspector, a profiler plugin (plugins/profiler/inspector of NCCL, `inspector_json.cc`; RCCL has the same): one JSON
//! object for each call that ended, in a file of each process.
//!
//! Its sizes are the count argument in bytes (`inspector_plugin.cc`), which of calls with blocks is that of one block. The type of
//! the elements is not in them. Calls that NCCL makes of messages, such as all_to_all, are there as messages.

use crate::trace::call::{Named, bytes_of_count, named};
use crate::trace::process_trace::{Membership, Process, ProcessCall, ProcessTrace};
use crate::trace::trace_file::CallDetail;
use commgauge_base::units::{Bytes, Seconds};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

/// The time from when the host enqueued a call until it had done so, which says nothing of the call.
const HOST_TIMES: &str = "collective_cpu";

#[derive(Debug, Deserialize)]
struct Line {
    header: Header,
    metadata: Metadata,
    coll_perf: Option<CollectivePerformance>,
    p2p_perf: Option<MessagePerformance>,
}

#[derive(Debug, Deserialize)]
struct Header {
    id: String,
    rank: u32,
    n_ranks: u32,
}

#[derive(Debug, Deserialize)]
struct Metadata {
    hostname: String,
    pid: u64,
}

#[derive(Debug, Deserialize)]
struct CollectivePerformance {
    coll: String,
    #[serde(rename = "coll_sn")]
    number: u64,
    #[serde(rename = "coll_msg_size_bytes")]
    bytes: u64,
    #[serde(rename = "coll_exec_time_us")]
    microseconds: f64,
    #[serde(rename = "coll_timing_source")]
    source: Option<String>,
}

#[derive(Debug, Deserialize)]
struct MessagePerformance {
    p2p: String,
    #[serde(rename = "p2p_sn")]
    number: u64,
    #[serde(rename = "p2p_msg_size_bytes")]
    bytes: u64,
    #[serde(rename = "p2p_exec_time_us")]
    microseconds: f64,
    #[serde(rename = "p2p_timing_source")]
    source: Option<String>,
}

/// NCCL numbers the calls of each collective on a communicator (`seqNumber` of src/plugin/profiler.cc), and the plugin the messages.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Counter {
    Collective(String),
    Messages,
}

/// What both kinds of lines say of a call.
struct Measured {
    name: String,
    counter: Counter,
    /// Of the calls that its counter counts.
    number: u64,
    bytes: u64,
    microseconds: f64,
    source: Option<String>,
}

impl Line {
    fn measured(self) -> Option<(Header, Metadata, Measured)> {
        let measured = match (self.coll_perf, self.p2p_perf) {
            (Some(of), _) => Measured {
                counter: Counter::Collective(of.coll.clone()),
                name: of.coll,
                number: of.number,
                bytes: of.bytes,
                microseconds: of.microseconds,
                source: of.source,
            },
            (None, Some(of)) => Measured {
                counter: Counter::Messages,
                name: of.p2p,
                number: of.number,
                bytes: of.bytes,
                microseconds: of.microseconds,
                source: of.source,
            },
            (None, None) => return None,
        };
        Some((self.header, self.metadata, measured))
    }
}

/// Reads a log. Where it is cut off or damaged, with a note, up to there.
pub(super) fn read(source: impl Read) -> ProcessTrace {
    let mut reading = Reading::default();
    for line in serde_json::Deserializer::from_reader(source).into_iter::<Line>() {
        match line {
            Ok(line) => reading.take(line),
            Err(cause) => {
                let calls = reading.trace.calls.len();
                reading.note(format!("the log is cut off or damaged after {calls} calls, which are used: {cause}"));
                break;
            }
        }
    }
    reading.finish()
}

#[derive(Default)]
struct Reading {
    trace: ProcessTrace,
    /// Processes and communicators that are known.
    known: BTreeSet<(Process, String)>,
    /// The numbers of calls, by process, communicator and counter.
    numbers: BTreeMap<(Process, String, Counter), BTreeSet<u64>>,
    timed_by_host: u64,
}

impl Reading {
    fn note(&mut self, note: String) {
        self.trace.notes.push(note);
    }

    fn take(&mut self, line: Line) {
        let Some((header, metadata, measured)) = line.measured() else { return };
        let process = format!("{}:{}", metadata.hostname, metadata.pid);
        let (communicator, rank, ranks) = (header.id, header.rank, header.n_ranks);
        if self.known.insert((process.clone(), communicator.clone())) {
            let membership = Membership { process: process.clone(), communicator: communicator.clone(), rank, ranks };
            self.trace.memberships.push(membership);
        }
        let counter = (process.clone(), communicator.clone(), measured.counter);
        self.numbers.entry(counter).or_default().insert(measured.number);
        let Named::Call(kind) = named(&measured.name) else {
            *self.trace.unknown.entry(measured.name).or_default() += 1;
            return;
        };
        let is_host_time = measured.source.as_deref() == Some(HOST_TIMES);
        self.timed_by_host += u64::from(is_host_time);
        let Some(bytes_total) = bytes_of_count(kind, Bytes(measured.bytes), ranks) else { return };
        let duration = (!is_host_time).then_some(Seconds(measured.microseconds / 1e6));
        // Its lines are in no order over communicators.
        let detail = CallDetail { sequence: Some(measured.number), ..CallDetail::default() };
        self.trace.calls.push(ProcessCall {
            process,
            communicator,
            kind,
            element: None,
            bytes_total,
            duration,
            detail,
        });
    }

    fn finish(mut self) -> ProcessTrace {
        if self.timed_by_host > 0 {
            self.note(format!(
                "{} calls have the time of the host alone ({HOST_TIMES}), which is not used",
                self.timed_by_host
            ));
        }
        let missing: u64 = self.numbers.values().map(missing).sum();
        if missing > 0 {
            self.note(format!(
                "{missing} calls are missing by their numbers: the plugin leaves out those below NCCL_INSPECTOR_DUMP_MIN_SIZE_BYTES (8192 \
                 unless set), and those for which its buffers had no room (NCCL_INSPECTOR_DUMP_COLL_RING_SIZE)"
            ));
        }
        self.trace
    }
}

/// Calls between the first and the last that are not there.
fn missing(numbers: &BTreeSet<u64>) -> u64 {
    let span = numbers.first().zip(numbers.last()).map_or(0, |(first, last)| (last - first).saturating_add(1));
    span.saturating_sub(numbers.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(coll: &str, number: u64, bytes: u64, microseconds: u64, algbw: f64) -> String {
        format!(
            r#"{{"header":{{"id":"0x7f","comm_name":"unknown","rank":2,"n_ranks":8,"nnodes":1}},"metadata":{{
            "inspector_output_format_version":"v4.0","git_rev":"","rec_mechanism":"nccl_profiler_interface",
            "dump_timestamp_us":1,"hostname":"n1","pid":7}},"coll_perf":{{"coll":"{coll}","coll_sn":{number},
            "coll_msg_size_bytes":{bytes},"coll_exec_time_us":{microseconds},"coll_timing_source":"kernel_gpu",
            "coll_algobw_gbs":{algbw},"coll_busbw_gbs":1.0}}}}
            "#
        )
    }

    /// The two lines of the README of the plugin, whose rates say how it counts: bytes in the sense of nccl-tests over the time.
    #[test]
    fn sizes_agree_with_the_rates_that_the_plugin_itself_computed() {
        for (coll, bytes, microseconds, algbw) in
            [("AllReduce", 17_179_869_184, 61_974, 277.210914), ("ReduceScatter", 2_147_483_648, 41_057, 418.439467)]
        {
            let trace = read(line(coll, 0, bytes, microseconds, algbw).as_bytes());
            let [call] = &trace.calls[..] else { panic!("{trace:?}") };
            let rate = call.bytes_total.0 as f64 / call.duration.unwrap().0 / 1e9;
            assert!((rate / algbw - 1.0).abs() < 1e-6, "{coll}: {rate}");
        }
    }

    #[test]
    fn a_cut_an_unknown_call_and_times_of_the_host_are_said() {
        let mut text = line("AllGather", 3, 100, 5, 1.0).replace("kernel_gpu", HOST_TIMES);
        text += &line("AllGather", 7, 100, 5, 1.0);
        text += &line("RingOfDreams", 0, 1, 1, 1.0);
        text += r#"{"header": {"id": "0x"#;
        let trace = read(text.as_bytes());
        assert_eq!((trace.calls[0].bytes_total, trace.calls[0].duration), (Bytes(800), None));
        assert_eq!(trace.unknown.get("RingOfDreams"), Some(&1));
        assert!(trace.notes[0].contains("cut off or damaged after 2 calls"), "{:?}", trace.notes);
        assert!(trace.notes[1].contains("1 calls have the time of the host"), "{:?}", trace.notes);
        assert!(trace.notes[2].contains("3 calls are missing by their numbers"), "{:?}", trace.notes);
    }
}
