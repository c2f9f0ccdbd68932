//! NCCL's queue of work to its kernels, which every communicator has: whoever calls what it has no room for waits, at the end of the group,
//! for kernels that take work out (`waitWorkFifoAvailable` in its `src/enqueue.cc`). Behind a kernel of ours that waits for this thread
//! that would be until that one gives up.

use super::prepared::Work;
use crate::backend::Binding;
use commgauge_base::sample::Cadence;
use commgauge_base::units::Bytes;
use commgauge_base::variant::Buffers;

/// Sets its length, a power of two (`ncclParamWorkFifoBytes`).
const VARIABLE: &str = "NCCL_WORK_FIFO_BYTES";
const USUAL_BYTES: u64 = 1 << 20;
/// Work of a collective, and of one whose buffers are registered (`ncclDevWorkColl` and `ncclDevWorkCollReg` in its `src/include/device.h`,
/// 2.30).
const COLLECTIVE_BYTES: u64 = 128;
const REGISTERED_BYTES: u64 = 320;
/// The same of a message in each direction, where the two do not share one piece (twice `ncclDevWorkP2p`).
const MESSAGES_BYTES: u64 = 96;

/// Why an isolated case cannot be held until its start; none if it can. Graphs have memory of their own for their work.
pub(super) fn skip_reason(binding: &Binding) -> Option<String> {
    let is_held = binding.cadence == Cadence::Isolated && binding.variant.calls_in_a_graph().is_none();
    let (pieces, needed) = needed(binding);
    let (calls, room) = (binding.variant.aggregate, length(std::env::var(VARIABLE).ok()));
    (is_held && needed > room).then(|| {
        format!(
            "{calls} calls of {pieces} pieces each are {} of work for NCCL, whose queue has {} ({VARIABLE}): the rest would be enqueued only \
             after the start; submit them as a graph, or fewer at a time",
            Bytes(needed),
            Bytes(room)
        )
    })
}

/// How many turns of a case, of one call or group each, can be enqueued behind something that is held.
pub(super) fn turns_with_room(binding: &Binding) -> u64 {
    if binding.variant.calls_in_a_graph().is_some() {
        return u64::MAX;
    }
    length(std::env::var(VARIABLE).ok()) / needed(binding).1.max(1)
}

/// Pieces of work of a call, and the bytes of all calls of a turn.
fn needed(binding: &Binding) -> (u64, u64) {
    let work = Work::of(binding.op.collective, binding.groups.group_size());
    let (pieces, bytes) = pieces(work, binding.variant.buffers);
    (pieces, bytes * u64::from(binding.variant.aggregate) * pieces)
}

/// Pieces of work, and the bytes of each.
fn pieces(work: Work, buffers: Buffers) -> (u64, u64) {
    match (work, buffers) {
        (Work::Messages(pieces), _) => (u64::from(pieces), MESSAGES_BYTES),
        // Graphs apart, which have memory of their own, NCCL registers by itself nothing that was only allocated.
        (Work::Collectives(pieces), Buffers::Plain | Buffers::Allocated) => (u64::from(pieces), COLLECTIVE_BYTES),
        (Work::Collectives(pieces), Buffers::Registered | Buffers::Symmetric) => (u64::from(pieces), REGISTERED_BYTES),
    }
}

/// The length of the queue; NCCL does not take what is no power of two.
fn length(set: Option<String>) -> u64 {
    let set = set.and_then(|text| text.trim().parse::<u64>().ok()).filter(|bytes| bytes.is_power_of_two());
    set.unwrap_or(USUAL_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use commgauge_base::collective::Collective;

    #[test]
    fn the_queue_is_full_at_64_all_to_alls_of_171_ranks_and_at_8193_all_reduces() {
        let bytes = |collective, ranks, buffers, calls| {
            let (pieces, bytes) = pieces(Work::of(collective, ranks), buffers);
            calls * pieces * bytes
        };
        for (collective, ranks, buffers, calls) in [
            (Collective::AllToAll, [170, 171], Buffers::Plain, [64; 2]),
            (Collective::AllReduce, [2048; 2], Buffers::Plain, [8192, 8193]),
            (Collective::AllReduce, [2048; 2], Buffers::Registered, [3276, 3277]),
        ] {
            assert!(bytes(collective, ranks[0], buffers, calls[0]) <= USUAL_BYTES, "{collective}");
            assert!(bytes(collective, ranks[1], buffers, calls[1]) > USUAL_BYTES, "{collective}");
        }
    }

    #[test]
    fn the_queue_is_as_long_as_the_environment_says_where_nccl_takes_that() {
        for (set, expected) in [(None, 1 << 20), (Some("65536"), 65536), (Some("65537"), 1 << 20), (Some("x"), 1 << 20)]
        {
            assert_eq!(length(set.map(str::to_owned)), expected, "{set:?}");
        }
    }
}
