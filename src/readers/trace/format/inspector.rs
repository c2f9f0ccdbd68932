//! Logs of NCCL's inspector, a profiler plugin (plugins/profiler/inspector of NCCL, `inspector_json.cc`; RCCL has the same): one JSON
//! object per completed call, in one file per process.
//!
//! Its sizes are the count argument in bytes (`inspector_plugin.cc`); for calls with blocks that is one block. It has no element types.
//! Calls that NCCL composes of messages, such as all_to_all, appear as messages.

use crate::trace::call::{
    CallDetail, CallKind, Membership, Named, Process, ProcessCall, ProcessTrace, TracedCall, bytes_of_count,
    element_of_nccl, named,
};
use commgauge_base::units::{Bytes, Seconds, counted};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

/// The time that the host took to enqueue a call, which says nothing about the call.
const HOST_TIMES: &str = "collective_cpu";

#[derive(Debug, Deserialize)]
struct Line {
    header: Header,
    metadata: Metadata,
    coll_perf: Option<Performance>,
    p2p_perf: Option<Performance>,
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

/// A completed call: a collective or a message.
#[derive(Debug, Deserialize)]
struct Performance {
    #[serde(rename = "coll", alias = "p2p")]
    name: String,
    /// NCCL numbers the calls of each collective on a communicator (`seqNumber` of src/plugin/profiler.cc), and the plugin the messages.
    #[serde(rename = "coll_sn", alias = "p2p_sn")]
    number: u64,
    #[serde(rename = "coll_msg_size_bytes", alias = "p2p_msg_size_bytes")]
    bytes: u64,
    #[serde(rename = "coll_exec_time_us", alias = "p2p_exec_time_us")]
    microseconds: f64,
    #[serde(rename = "coll_timing_source", alias = "p2p_timing_source")]
    source: Option<String>,
    #[serde(rename = "p2p_peer")]
    peer: Option<u32>,
}

/// Reads a log. A truncated or damaged one is read up to that point, with a note.
pub(super) fn read(source: impl Read) -> ProcessTrace {
    let mut reading = Reading::default();
    for line in serde_json::Deserializer::from_reader(source).into_iter::<Line>() {
        match line {
            Ok(line) => reading.take(line),
            Err(cause) => {
                let calls = reading.trace.calls.len();
                reading.note(format!("the log is truncated or damaged after {calls} calls, which are used: {cause}"));
                break;
            }
        }
    }
    reading.finish()
}

#[derive(Default)]
struct Reading {
    trace: ProcessTrace,
    /// Known processes and communicators.
    known: BTreeSet<(Process, String)>,
    /// The numbers of calls, by process, communicator and collective; absent for messages.
    numbers: BTreeMap<(Process, String, Option<String>), BTreeSet<u64>>,
    timed_by_host: u64,
}

impl Reading {
    fn note(&mut self, note: String) {
        self.trace.notes.push(note);
    }

    fn take(&mut self, line: Line) {
        let Line { header, metadata, coll_perf, p2p_perf } = line;
        let collective = coll_perf.as_ref().map(|of| of.name.clone());
        let Some(measured) = coll_perf.or(p2p_perf) else { return };
        let process = format!("{}:{}", metadata.hostname, metadata.pid);
        let (communicator, rank, ranks) = (header.id, header.rank, header.n_ranks);
        if self.known.insert((process.clone(), communicator.clone())) {
            let membership = Membership { process: process.clone(), communicator: communicator.clone(), rank, ranks };
            self.trace.memberships.push(membership);
        }
        let counter = (process.clone(), communicator.clone(), collective);
        self.numbers.entry(counter).or_default().insert(measured.number);
        let Named::Call(kind) = named(&measured.name) else {
            return self.trace.skip_unknown(measured.name);
        };
        let is_host_time = measured.source.as_deref() == Some(HOST_TIMES);
        self.timed_by_host += u64::from(is_host_time);
        let Some(bytes_total) = bytes_of_count(kind, Bytes(measured.bytes), ranks) else { return };
        let duration = (!is_host_time).then_some(Seconds(measured.microseconds / 1e6));
        // Its lines are unordered across communicators.
        let detail = CallDetail { sequence: Some(measured.number), peer: measured.peer, ..CallDetail::default() };
        let call = TracedCall { duration, detail, ..TracedCall::new(kind, None, bytes_total) };
        self.trace.calls.push(ProcessCall { process, communicator, call });
    }

    fn finish(mut self) -> ProcessTrace {
        if self.timed_by_host > 0 {
            self.note(format!(
                "{} calls have only the time of the host ({HOST_TIMES}), which is not used",
                self.timed_by_host
            ));
        }
        let missing: u64 = self.numbers.values().map(missing).sum();
        if missing > 0 {
            self.note(format!(
                "{missing} call numbers are missing: the plugin omits calls below NCCL_INSPECTOR_DUMP_MIN_SIZE_BYTES (8192 unless set), and calls that did not fit into its buffers (NCCL_INSPECTOR_DUMP_COLL_RING_SIZE)"
            ));
        }
        self.trace
    }
}

/// Missing calls between the first and the last.
fn missing(numbers: &BTreeSet<u64>) -> u64 {
    let span = numbers.first().zip(numbers.last()).map_or(0, |(first, last)| (last - first).saturating_add(1));
    span.saturating_sub(numbers.len() as u64)
}

// NCCL's own log: `NCCL_DEBUG=INFO` with `NCCL_DEBUG_SUBSYS=INIT,COLL` (src/enqueue.cc and src/init.cc of NCCL).
//
// A call's line names its communicator by an address in its process; the ranks come from the lines of its creation, which share an
// identifier across all processes.

const MARK: &str = " NCCL INFO ";

/// A process, and the address of one of its communicators.
type Address = (Process, String);

/// Whether a text looks like such a log.
pub(super) fn is_nccl_log(start: &str) -> bool {
    start.contains(MARK)
}

/// Reads a log, of one or many processes.
pub(super) fn read_nccl_log(text: &str) -> ProcessTrace {
    let lines = || text.lines().filter_map(|line| line.rsplit_once(MARK));
    let made: BTreeMap<Address, Membership> =
        lines().filter_map(|(prefix, line)| made_communicator(prefix, line)).collect();
    let mut trace = ProcessTrace { memberships: made.values().cloned().collect(), ..ProcessTrace::default() };
    let mut unplaced = 0_u64;
    for (prefix, line) in lines().filter(|(_, line)| line.contains(": opCount ")) {
        match call(prefix, line, &made, &mut trace) {
            Some(call) => trace.calls.push(call),
            None => unplaced += 1,
        }
    }
    let unexplained = u64::saturating_sub(unplaced, trace.unknown.values().sum());
    if unexplained > 0 {
        trace.notes.push(format!(
            "not understood: {} whose communicator or type the log does not explain (NCCL_DEBUG_SUBSYS=INIT,COLL logs the creation of communicators)",
            counted(unexplained as usize, "call")
        ));
    }
    trace
}

/// `node1:123:456 [0] NCCL INFO ncclCommInitRankConfig comm 0x55 rank 0 nranks 8 cudaDev 0 ... commId 0xabc - Init COMPLETE`
fn made_communicator(prefix: &str, line: &str) -> Option<(Address, Membership)> {
    if !line.contains("Init COMPLETE") && !line.contains("Init START") {
        return None;
    }
    let field = |name| field(line, name);
    let process = process(prefix)?;
    let address = (process.clone(), field("comm")?.to_owned());
    let (rank, ranks) = (field("rank")?.parse().ok()?, field("nranks").or(field("nRanks"))?.parse().ok()?);
    Some((address, Membership { process, communicator: field("commId")?.to_owned(), rank, ranks }))
}

/// `node1:123:456 [0]` without thread and device: what identifies the process.
fn process(prefix: &str) -> Option<Process> {
    // torchrun --tee puts `[default0]:` before it.
    let mut words =
        prefix.split_ascii_whitespace().rev().map(|word| word.rsplit_once("]:").map_or(word, |(_, word)| word));
    let name = words.find(|word| word.matches(':').count() == 2)?;
    name.rsplit_once(':').map(|(process, _)| process.to_owned())
}

/// `AllReduce: opCount 1a sendbuff 0x1 recvbuff 0x2 count 64 datatype 7 op 0 root 0 comm 0x7f [nranks=2] stream 0x3`
fn call(
    prefix: &str,
    line: &str,
    made: &BTreeMap<Address, Membership>,
    trace: &mut ProcessTrace,
) -> Option<ProcessCall> {
    let name = line.split(": opCount").next()?.split_ascii_whitespace().last()?;
    let Named::Call(kind) = named(name) else {
        trace.skip_unknown(name.to_owned());
        return None;
    };
    let count: u64 = field(line, "count")?.parse().ok()?;
    let element = element_of_nccl(field(line, "datatype")?.parse().ok()?)?;
    let ranks: u32 = line.split_once("[nranks=")?.1.split_once(']')?.0.parse().ok()?;
    let address = (process(prefix)?, field(line, "comm")?.to_owned());
    let membership = made.get(&address)?;
    let peer = field(line, "root").and_then(|root| root.parse().ok());
    let is_message = matches!(kind, CallKind::Send | CallKind::Receive);
    let bytes_total = bytes_of_count(kind, Bytes(count.checked_mul(element.size())?), ranks)?;
    // For a message the root is its other end (src/collectives.cc).
    let detail = CallDetail { peer: peer.filter(|_| is_message), ..CallDetail::default() };
    let call = TracedCall { detail, ..TracedCall::new(kind, Some(element), bytes_total) };
    Some(ProcessCall { process: address.0, communicator: membership.communicator.clone(), call })
}

/// The word after a name.
fn field<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let mut words = line.split_ascii_whitespace();
    words.by_ref().find(|word| *word == name)?;
    words.next()
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

    /// The two lines of the plugin's README, whose rates show how it counts: bytes in the sense of nccl-tests over the time.
    #[test]
    fn sizes_agree_with_the_rates_that_the_plugin_itself_computed() {
        for (coll, bytes, microseconds, algbw) in
            [("AllReduce", 17_179_869_184, 61_974, 277.210914), ("ReduceScatter", 2_147_483_648, 41_057, 418.439467)]
        {
            let trace = read(line(coll, 0, bytes, microseconds, algbw).as_bytes());
            let [ProcessCall { call, .. }] = &trace.calls[..] else { panic!("{trace:?}") };
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
        assert_eq!((trace.calls[0].call.bytes_total, trace.calls[0].call.duration), (Bytes(800), None));
        assert_eq!(trace.unknown.get("RingOfDreams"), Some(&1));
        assert!(trace.notes[0].contains("truncated or damaged after 2 calls"), "{:?}", trace.notes);
        assert!(trace.notes[1].contains("1 calls have only the time of the host"), "{:?}", trace.notes);
        assert!(trace.notes[2].contains("3 call numbers are missing"), "{:?}", trace.notes);
    }

    fn log() -> String {
        let init = |process: u32, address: &str, rank: u32, ranks: u32, id: &str| {
            format!(
                "node1:{process}:9 [{rank}] NCCL INFO ncclCommInitRankConfig comm {address} rank {rank} nranks {ranks} cudaDev \
                 {rank} nvmlDev 0 busId 1000 commId {id} - Init COMPLETE\n"
            )
        };
        let mut text = String::from("node1:11:11 [0] NCCL INFO Bootstrap: Using eth0\nnot of NCCL\n");
        for rank in 0..4 {
            text += &init(11 + rank, "0xa", rank, 4, "0x1");
            text += &init(11 + rank, "0xb", rank / 2, 2, if rank % 2 == 0 { "0x2" } else { "0x3" });
        }
        text += "node1:13:40 [2] NCCL INFO AllGather: opCount d sendbuff 0x7 recvbuff 0x8 count 1024 datatype 9 op 0 root 0 comm \
                 0xb [nranks=2] stream 0x5\n";
        text += "node1:13:40 [2] NCCL INFO AllReduce: opCount e sendbuff 0x7 recvbuff 0x8 count 10 datatype 7 op 0 root 0 comm \
                 0xdead [nranks=2] stream 0x5\n";
        text
    }

    #[test]
    fn a_call_has_its_size_and_the_communicator_of_its_address() {
        let trace = read_nccl_log(&log());
        let [call] = &trace.calls[..] else { panic!("{trace:?}") };
        assert_eq!((call.process.as_str(), call.communicator.as_str()), ("node1:13", "0x2"));
        assert_eq!((call.call.bytes_total.0, call.call.kind.name()), (4096, "all_gather"));
        assert_eq!(trace.memberships.len(), 8);
        let other = read_nccl_log(&log().replace("AllGather: opCount d", "Frobnicate: opCount d"));
        assert_eq!(other.unknown.into_iter().collect::<Vec<_>>(), [("Frobnicate".to_owned(), 1)]);
        for notes in [&trace.notes, &other.notes] {
            assert!(notes[0].starts_with("not understood: 1 call whose communicator"), "{notes:?}");
        }
        let of_torchrun = log().replace("node1:", "[default0]:node1:");
        let joined =
            log().replace("node1:13:40 [2] NCCL INFO AllG", "node1:11:11 [0] NCCL INFO node1:13:40 [2] NCCL INFO AllG");
        for text in [of_torchrun, joined] {
            assert_eq!(read_nccl_log(&text), trace, "{text}");
        }
    }
}
