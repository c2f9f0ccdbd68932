//! NCCL's own log: `NCCL_DEBUG=INFO` with `NCCL_DEBUG_SUBSYS=INIT,COLL` (src/enqueue.cc and src/init.cc of NCCL).
//!
//! A call's line names its communicator by an address of its process; which ranks that has is known from the lines with which
//! it was made, that share an identifier over all processes.

use super::call::{CallKind, Elements, Named, element_of_nccl, named};
use super::trace_file::{FileCall, FileTrace, TracedGroup};
use commgauge_base::collective::Collective;
use std::collections::BTreeMap;

const MARK: &str = " NCCL INFO ";

/// A process, and a communicator of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Communicator {
    process: String,
    address: String,
}

/// What the line says with which a communicator was made.
#[derive(Clone, Debug)]
struct Made {
    id: String,
    rank: u32,
    ranks: u32,
}

/// Whether a text looks like such a log.
pub(super) fn is_nccl_log(start: &str) -> bool {
    start.contains(MARK)
}

/// Reads a log, of one process or of many.
pub(super) fn read(text: &str) -> FileTrace {
    let lines = || text.lines().filter_map(|line| line.split_once(MARK));
    let mut made: BTreeMap<Communicator, Made> = BTreeMap::new();
    for (prefix, line) in lines() {
        if let Some((communicator, facts)) = made_communicator(prefix, line) {
            made.insert(communicator, facts);
        }
    }
    let world = world_ranks(&made);
    let mut file = FileTrace::default();
    let mut unplaced = 0_u64;
    for (prefix, line) in lines().filter(|(_, line)| line.contains(": opCount ")) {
        match call(prefix, line, &made, &world, &mut file) {
            Some(call) => file.calls.push(call),
            None => unplaced += 1,
        }
    }
    if unplaced > 0 {
        file.notes.push(format!(
            "{unplaced} lines of calls are of a communicator or a kind that the log does not explain (NCCL_DEBUG_SUBSYS=INIT,COLL \
             shows how communicators are made)"
        ));
    }
    file.world = world.values().max().map(|rank| rank + 1);
    file
}

/// `node1:123:456 [0] NCCL INFO ncclCommInitRankConfig comm 0x55 rank 0 nranks 8 cudaDev 0 ... commId 0xabc - Init COMPLETE`
fn made_communicator(prefix: &str, line: &str) -> Option<(Communicator, Made)> {
    if !line.contains("Init COMPLETE") && !line.contains("Init START") {
        return None;
    }
    let field = |name| field(line, name);
    let communicator = Communicator { process: process(prefix)?, address: field("comm")?.to_owned() };
    let (rank, ranks) = (field("rank")?.parse().ok()?, field("nranks").or(field("nRanks"))?.parse().ok()?);
    Some((communicator, Made { id: field("commId")?.to_owned(), rank, ranks }))
}

/// `node1:123:456 [0]` without thread and device: what identifies the process.
fn process(prefix: &str) -> Option<String> {
    let name = prefix.split_ascii_whitespace().rev().find(|word| word.matches(':').count() == 2)?;
    name.rsplit_once(':').map(|(process, _)| process.to_owned())
}

/// The rank in the world of each process: that in the largest communicator, where all processes are in it.
fn world_ranks(made: &BTreeMap<Communicator, Made>) -> BTreeMap<String, u32> {
    let Some(largest) = made.values().max_by_key(|made| made.ranks).map(|made| made.id.clone()) else {
        return BTreeMap::new();
    };
    let of_it = made.iter().filter(|(_, made)| made.id == largest);
    of_it.map(|(communicator, made)| (communicator.process.clone(), made.rank)).collect()
}

/// `AllReduce: opCount 1a sendbuff 0x1 recvbuff 0x2 count 64 datatype 7 op 0 root 0 comm 0x7f [nranks=2] stream 0x3`
fn call(
    prefix: &str,
    line: &str,
    made: &BTreeMap<Communicator, Made>,
    world: &BTreeMap<String, u32>,
    file: &mut FileTrace,
) -> Option<FileCall> {
    let name = line.split(": opCount").next()?.split_ascii_whitespace().last()?;
    let kind = match named(name) {
        Named::Call(kind) => kind,
        _ => {
            file.skip_unknown(name);
            return None;
        }
    };
    let count: u64 = field(line, "count")?.parse().ok()?;
    let element = element_of_nccl(field(line, "datatype")?.parse().ok()?)?;
    let size: u32 = line.split_once("[nranks=")?.1.split_once(']')?.0.parse().ok()?;
    let communicator = Communicator { process: process(prefix)?, address: field(line, "comm")?.to_owned() };
    let rank = *world.get(&communicator.process)?;
    let facts = made.get(&communicator)?;
    let group =
        file.group(TracedGroup { name: facts.id.clone(), size: Some(size), ranks: members(facts, made, world) });
    // The count is that of one rank's block, where there are blocks (collectives.cc).
    let whole = count.checked_mul(u64::from(size))?;
    let elements = match kind {
        CallKind::Collective(Collective::AllGather | Collective::Gather) => Elements { sent: count, received: whole },
        CallKind::Collective(Collective::ReduceScatter | Collective::Scatter | Collective::AllToAll) => {
            Elements { sent: whole, received: count }
        }
        _ => Elements { sent: count, received: count },
    };
    let bytes_total = elements.bytes_total(kind, element)?;
    Some(FileCall { rank: Some(rank), kind, element: Some(element), bytes_total, group, duration: None })
}

/// The world ranks of a communicator in its order, where the log has all of them.
fn members(facts: &Made, made: &BTreeMap<Communicator, Made>, world: &BTreeMap<String, u32>) -> Option<Vec<u32>> {
    let mut ranks: Vec<(u32, u32)> = Vec::new();
    for (communicator, of) in made.iter().filter(|(_, of)| of.id == facts.id) {
        ranks.push((of.rank, *world.get(&communicator.process)?));
    }
    ranks.sort_unstable();
    (ranks.len() == facts.ranks as usize).then(|| ranks.into_iter().map(|(_, world)| world).collect())
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
    fn a_call_has_its_size_and_the_ranks_of_its_communicator() {
        let file = read(&log());
        let [call] = &file.calls[..] else { panic!("{file:?}") };
        assert_eq!((call.rank, call.bytes_total.0, call.kind.name()), (Some(2), 4096, "all_gather"));
        assert_eq!(file.groups[call.group].ranks, Some(vec![0, 2]));
        assert_eq!(file.world, Some(4));
        assert!(file.notes[0].starts_with("1 lines of calls"), "{:?}", file.notes);
    }
}
