//! NCCL's own log: `NCCL_DEBUG=INFO` with `NCCL_DEBUG_SUBSYS=INIT,COLL` (src/enqueue.cc and src/init.cc of NCCL).
//!
//! A call's line names its communicator by an address of its process; which ranks that has is known from the lines with which
//! it was made, that share an identifier over all processes.

use crate::trace::call::{CallKind, Named, bytes_of_count, element_of_nccl, named};
use crate::trace::process_trace::{Membership, Process, ProcessCall, ProcessTrace};
use crate::trace::trace_file::CallDetail;
use commgauge_base::units::Bytes;
use std::collections::BTreeMap;

const MARK: &str = " NCCL INFO ";

/// A process, and the address of a communicator of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Address {
    process: Process,
    address: String,
}

/// Whether a text looks like such a log.
pub(super) fn is_nccl_log(start: &str) -> bool {
    start.contains(MARK)
}

/// Reads a log, of one process or of many.
pub(super) fn read(text: &str) -> ProcessTrace {
    let lines = || text.lines().filter_map(|line| line.split_once(MARK));
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
    if unplaced > 0 {
        trace.notes.push(format!(
            "{unplaced} lines of calls are of a communicator or a kind that the log does not explain (NCCL_DEBUG_SUBSYS=INIT,COLL \
             shows how communicators are made)"
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
    let address = Address { process: process.clone(), address: field("comm")?.to_owned() };
    let (rank, ranks) = (field("rank")?.parse().ok()?, field("nranks").or(field("nRanks"))?.parse().ok()?);
    Some((address, Membership { process, communicator: field("commId")?.to_owned(), rank, ranks }))
}

/// `node1:123:456 [0]` without thread and device: what identifies the process.
fn process(prefix: &str) -> Option<Process> {
    let name = prefix.split_ascii_whitespace().rev().find(|word| word.matches(':').count() == 2)?;
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
        *trace.unknown.entry(name.to_owned()).or_default() += 1;
        return None;
    };
    let count: u64 = field(line, "count")?.parse().ok()?;
    let element = element_of_nccl(field(line, "datatype")?.parse().ok()?)?;
    let ranks: u32 = line.split_once("[nranks=")?.1.split_once(']')?.0.parse().ok()?;
    let address = Address { process: process(prefix)?, address: field(line, "comm")?.to_owned() };
    let membership = made.get(&address)?;
    let peer = field(line, "root").and_then(|root| root.parse().ok());
    let is_message = matches!(kind, CallKind::Send | CallKind::Receive);
    Some(ProcessCall {
        process: address.process,
        communicator: membership.communicator.clone(),
        kind,
        element: Some(element),
        bytes_total: bytes_of_count(kind, Bytes(count.checked_mul(element.size())?), ranks)?,
        duration: None,
        // Of a message the root is its other end (src/collectives.cc).
        detail: CallDetail { peer: peer.filter(|_| is_message), ..CallDetail::default() },
    })
}

/// The word behind a name.
fn field<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let mut words = line.split_ascii_whitespace();
    words.by_ref().find(|word| *word == name)?;
    words.next()
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let trace = read(&log());
        let [call] = &trace.calls[..] else { panic!("{trace:?}") };
        assert_eq!((call.process.as_str(), call.communicator.as_str()), ("node1:13", "0x2"));
        assert_eq!((call.bytes_total.0, call.kind.name()), (4096, "all_gather"));
        assert_eq!(trace.memberships.len(), 8);
        assert!(trace.notes[0].starts_with("1 lines of calls"), "{:?}", trace.notes);
    }
}
