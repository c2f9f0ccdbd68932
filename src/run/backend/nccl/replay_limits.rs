//! Replays that cannot run: those with too many events, and those that could deadlock because streams share a queue to the device or calls
//! of several communicators have no common order.

use super::communicator::{ChannelEnd, Route};
use super::driver::{self, CUevent};
use super::library::{ORDERS_FROM, QUEUES, Version};
use super::open::NcclBackend;
use super::prepared::Work;
use crate::backend::{Binding, HiddenCall, RankTimes, ReplayBinding, Span, SpanKind};
use commgauge_base::error::{Error, Result};
use commgauge_base::sample::Cadence;
use commgauge_base::units::Bytes;
use commgauge_base::variant::Buffers;
use commgauge_model::layout::Axis;
use commgauge_model::workload::replay::{Action, Movement, ReplayProgram, Slot};
use std::collections::BTreeSet;

/// Limit on events; a step with more would take unreasonably long.
const MOST_EVENTS: usize = 4 << 20;

/// The driver's default, used when ranks share GPUs.
const USUAL_QUEUES: usize = 8;

/// Streams that NCCL creates for each communicator: for its device's work and for its host's (`deviceStream` and
/// `hostStream` in its `src/init.cc`).
const STREAMS_OF_A_COMMUNICATOR: usize = 2;

/// Streams on this rank's device; each takes one of its queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Streams {
    /// Of this backend.
    own: usize,
    /// Of NCCL's communicators.
    of_nccl: usize,
}

/// Refuses a replay from its plan, before anything is connected for it.
pub(super) fn ensure_replayable(backend: &NcclBackend, binding: &ReplayBinding) -> Result<()> {
    let (rank, library) = (backend.world.rank(), backend.maker.library);
    let (program, place) = (binding.program(rank)?, binding.places(rank));
    if events_of(program) > MOST_EVENTS {
        return Err(Error::usage(format!(
            "a step of {} actions is too long to replay on a GPU; use fewer micro-batches or layers",
            program.actions.len()
        )));
    }
    let routes: BTreeSet<Route> = channels(program, &place, rank).map(|(route, _)| route).collect();
    let groups = (0..binding.plan.groups.len()).filter(|groups| place(*groups).is_some()).count();
    // Those of groups are split off from one of all ranks, if the library can.
    let communicators = usize::from(library.call.split.is_some()) + groups + routes.len();
    // One for single calls, one for each axis and each channel, and one for computing.
    let own = 1 + binding.plan.groups.len() + routes.len() + 1;
    let streams = Streams { own, of_nccl: STREAMS_OF_A_COMMUNICATOR * communicators };
    refuse_shared_queues(streams, std::env::var(QUEUES.0).ok())?;
    let together = program.slots.iter().filter(|slot| slot.movement == Movement::Together);
    let called: BTreeSet<u32> = together.map(|slot| program.groups[slot.op as usize] as u32).collect();
    refuse_unordered(called.len() + routes.len(), library.version)
}

/// The channels of a program's messages, with this rank's end of each, not deduplicated.
pub(super) fn channels<'a>(
    program: &ReplayProgram,
    place: &impl Fn(usize) -> Option<(&'a [u32], u32)>,
    rank: u32,
) -> impl Iterator<Item = (Route, ChannelEnd)> {
    program.slots.iter().filter_map(move |slot| channel_of(slot, place(program.groups[slot.op as usize])?.0, rank))
}

/// The channel of a slot's message, and this rank's end of it; `None` for a call of all ranks of its group.
pub(super) fn channel_of(slot: &Slot, group: &[u32], rank: u32) -> Option<(Route, ChannelEnd)> {
    match slot.movement {
        Movement::Together => None,
        Movement::Send { to, stream } => {
            Some((Route { from: rank, to: group[to as usize], stream }, ChannelEnd::Sender))
        }
        Movement::Receive { from, stream } => {
            Some((Route { from: group[from as usize], to: rank, stream }, ChannelEnd::Receiver))
        }
    }
}

/// Events that a run of a program records.
pub(super) fn events_of(program: &ReplayProgram) -> usize {
    let of = |action: &Action| match action {
        Action::Start { .. } => 3,
        Action::Compute { .. } | Action::Wait { .. } => 2,
    };
    program.actions.iter().map(of).sum::<usize>() + 1
}

/// Refuses possible deadlocks: streams beyond the device's queues share one, and a call there waits for those before it.
fn refuse_shared_queues(streams: Streams, queues: Option<String>) -> Result<()> {
    // Values above the maximum have no effect.
    let queues = queues.and_then(|text| text.trim().parse().ok()).unwrap_or(USUAL_QUEUES).min(QUEUES.1);
    let Streams { own, of_nccl } = streams;
    if own + of_nccl <= queues {
        return Ok(());
    }
    let fix = if own + of_nccl <= QUEUES.1 {
        format!("set {}={}, the default unless ranks share GPUs", QUEUES.0, QUEUES.1)
    } else {
        format!("CUDA has at most {}: replay a layout with fewer axes, pipeline neighbours or chunks", QUEUES.1)
    };
    Err(Error::usage(format!(
        "this step has {own} streams and NCCL's communicators {of_nccl}, for {queues} queues to the device: calls would wait for one another and may deadlock; {fix}"
    )))
}

/// Refuses another possible deadlock: kernels of several communicators may start in different orders on each device, and each occupies
/// multiprocessors while it waits for ranks where another came first. From this version on NCCL starts them in the order of the calls.
fn refuse_unordered(communicators: usize, version: Version) -> Result<()> {
    if communicators < 2 || version >= ORDERS_FROM {
        return Ok(());
    }
    Err(Error::usage(format!(
        "calls of several communicators at once need NCCL {}.{} (NCCL_LAUNCH_ORDER_IMPLICIT), found {version}: older versions start them in any order, and ranks may deadlock",
        ORDERS_FROM.0, ORDERS_FROM.1
    )))
}

// Times of computing, waiting and active calls from the events of a replay.

/// The interval between two events, and its kind.
#[derive(Clone, Copy)]
pub(super) struct EventSpan {
    pub kind: SpanKind,
    /// The op of a call that something hides.
    pub hidden_op: Option<usize>,
    pub begin: CUevent,
    pub end: CUevent,
}

/// Room for the spans of a run, the periods of active calls by axis, and hidden calls.
pub(super) struct Intervals {
    in_flight: Vec<Interval>,
    pub hidden: Vec<HiddenCall>,
    pub spans: Vec<Span>,
}

/// A period in which a call of an axis was active, in nanoseconds since the replay began. Ordered by axis, then by time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Interval {
    axis: usize,
    begin: u64,
    end: u64,
}

impl Intervals {
    pub fn with_room(spans: usize) -> Intervals {
        let (in_flight, hidden) = (Vec::with_capacity(spans), Vec::with_capacity(spans));
        Intervals { in_flight, hidden, spans: Vec::with_capacity(spans) }
    }

    /// Sums all spans; overlapping spans of one axis count once. `first` is the event with which the replay began.
    pub fn sum_up(&mut self, first: CUevent, spans: &[EventSpan], times: &mut RankTimes) -> Result<()> {
        self.in_flight.clear();
        self.hidden.clear();
        self.spans.clear();
        for EventSpan { kind, hidden_op, begin, end } in spans.iter().copied() {
            let nanoseconds = driver::nanoseconds_between(begin, end)? as u64;
            let begin = driver::nanoseconds_between(first, begin)? as u64;
            let end = begin + nanoseconds;
            match kind {
                SpanKind::Computing => times.computing_nanoseconds += nanoseconds,
                SpanKind::Waiting { axis } => times.axes[axis].waiting_nanoseconds += nanoseconds,
                SpanKind::InFlight { axis } => self.in_flight.push(Interval { axis, begin, end }),
            }
            self.hidden.extend(hidden_op.map(|op| HiddenCall { op, calls: 1, nanoseconds }));
            self.spans.push(Span { kind, begin, end });
        }
        self.in_flight.sort_unstable();
        let unions = unions(&self.in_flight);
        for (axis, nanoseconds) in unions.into_iter().enumerate() {
            times.axes[axis].in_flight_nanoseconds = nanoseconds;
        }
        Ok(())
    }
}

/// By axis, the total length of the union of the sorted intervals.
fn unions(sorted: &[Interval]) -> [u64; Axis::ALL.len()] {
    let mut lengths = [0; Axis::ALL.len()];
    let mut until = (usize::MAX, 0);
    for Interval { axis, begin, end } in sorted {
        let covered = if until.0 == *axis { until.1 } else { 0 };
        lengths[*axis] += end.saturating_sub(covered.max(*begin));
        until = (*axis, covered.max(*end));
    }
    lengths
}

// NCCL's queue of work to its kernels, which every communicator has: a call that finds no room waits, at the end of the group, for kernels
// that consume work (`waitWorkFifoAvailable` in its `src/enqueue.cc`). Behind a hold kernel, which waits for this thread, that lasts until
// the hold kernel times out.

/// Sets its length, a power of two (`ncclParamWorkFifoBytes`).
const VARIABLE: &str = "NCCL_WORK_FIFO_BYTES";

const USUAL_BYTES: u64 = 1 << 20;

/// Work of a collective, and of one whose buffers are registered (`ncclDevWorkColl` and `ncclDevWorkCollReg` in its `src/include/device.h`,
/// 2.30).
const COLLECTIVE_BYTES: u64 = 128;

const REGISTERED_BYTES: u64 = 320;

/// Work of a message in each direction if the two do not share one piece (twice `ncclDevWorkP2p`).
const MESSAGES_BYTES: u64 = 96;

/// Why an isolated case cannot be held until its start; `None` if it can. Graphs have their own memory for their work.
pub(super) fn skip_reason(binding: &Binding) -> Option<String> {
    let is_held = binding.cadence == Cadence::Isolated && binding.variant.calls_in_a_graph().is_none();
    let (pieces, needed) = needed(binding);
    let (calls, room) = (binding.variant.aggregate, length(std::env::var(VARIABLE).ok()));
    (is_held && needed > room).then(|| {
        format!(
            "{calls} calls of {pieces} pieces each are {} of work for NCCL, whose queue holds {} ({VARIABLE}): the rest would be enqueued only after the start; use a graph, or fewer calls per sample",
            Bytes(needed),
            Bytes(room)
        )
    })
}

/// How many turns of a case, of one call or group each, can be enqueued behind a held stream.
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
        // Except for graphs, which have their own memory, NCCL registers nothing by itself that was only allocated.
        (Work::Collectives(pieces), Buffers::Plain | Buffers::Allocated) => (u64::from(pieces), COLLECTIVE_BYTES),
        (Work::Collectives(pieces), Buffers::Registered | Buffers::Symmetric) => (u64::from(pieces), REGISTERED_BYTES),
    }
}

/// The length of the queue; NCCL rejects lengths that are not a power of two.
fn length(set: Option<String>) -> u64 {
    let set = set.and_then(|text| text.trim().parse::<u64>().ok()).filter(|bytes| bytes.is_power_of_two());
    set.unwrap_or(USUAL_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use commgauge_base::collective::Collective;

    #[test]
    fn a_step_with_more_streams_than_the_device_has_queues_is_refused_and_both_are_named() {
        const MORE: &str = "set CUDA_DEVICE_MAX_CONNECTIONS=32";
        const NO_MORE: &str = "CUDA has at most 32";
        for (own, of_nccl, queues, refused) in [
            (3, 0, Some("1"), Some(MORE)),
            (3, 6, Some("8"), Some(MORE)),
            (4, 4, Some("8"), None),
            (12, 20, Some("32"), None),
            (12, 22, Some("32"), Some(NO_MORE)),
            (12, 22, Some("64"), Some(NO_MORE)),
            (12, 22, None, Some(NO_MORE)),
            (3, 6, None, Some(MORE)),
            (4, 4, None, None),
        ] {
            let streams = Streams { own, of_nccl };
            let error = refuse_shared_queues(streams, queues.map(str::to_owned)).err().map(|error| error.to_string());
            assert_eq!(error.is_some(), refused.is_some(), "{streams:?}, {queues:?}");
            let Some((text, words)) = error.zip(refused) else { continue };
            let counts = format!("this step has {own} streams and NCCL's communicators {of_nccl}");
            assert!(text.contains(&counts) && text.contains(words), "{text}");
        }
    }

    #[test]
    fn calls_of_several_communicators_at_once_are_refused_where_nccl_gives_them_no_order() {
        for (communicators, version, refused) in [
            (2, Version(2, 25, 1), true),
            (2, Version(2, 26, 2), false),
            (1, Version(2, 18, 1), false),
            (0, Version(2, 18, 1), false),
        ] {
            let error = refuse_unordered(communicators, version).err().map(|error| error.to_string());
            assert_eq!(error.is_some(), refused, "{communicators}, {version}");
            assert!(error.is_none_or(|text| text.contains("need NCCL 2.26") && text.contains("found 2.25.1")));
        }
    }

    #[test]
    fn calls_of_one_axis_that_overlap_count_once_and_those_of_others_apart() {
        let sorted = [(0, 10, 20), (0, 15, 18), (0, 19, 30), (0, 50, 60), (2, 0, 5), (2, 12, 13)]
            .map(|(axis, begin, end)| Interval { axis, begin, end });
        let lengths = unions(&sorted);
        assert_eq!((lengths[0], lengths[1], lengths[2]), (30, 0, 6));
    }

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
