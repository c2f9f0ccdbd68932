//! Replays that cannot be carried out: too many events, and those that could wait for themselves, as streams share a queue to the device, or
//! calls of several communicators have no common order.

use super::channel::{ChannelEnd, Route};
use super::environment::{ORDERS_FROM, QUEUES};
use super::library::Version;
use super::state::NcclBackend;
use crate::backend::ReplayBinding;
use crate::backend::replay_place::{place, program_of};
use commgauge_base::error::{Error, Result};
use commgauge_model::workload::replay::{Action, Movement, ReplayProgram, Slot};
use std::collections::BTreeSet;

/// Limit on events; a step with more would take unreasonably long.
const MOST_EVENTS: usize = 4 << 20;
/// The driver's default, used when ranks share GPUs.
const USUAL_QUEUES: usize = 8;
/// Streams that NCCL creates for each communicator: for its device's work and for its host's (`deviceStream` and
/// `hostStream` in its `src/init.cc`).
const STREAMS_OF_A_COMMUNICATOR: usize = 2;

/// Streams on this rank's device, each of which takes one of its queues.
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
    let (program, place) = (program_of(binding, rank)?, place(binding, rank));
    if events_of(program) > MOST_EVENTS {
        return Err(Error::usage(format!(
            "a step of {} actions is too long to be replayed on a GPU; take fewer micro-batches or layers",
            program.actions.len()
        )));
    }
    let routes: BTreeSet<Route> = channels(program, &place, rank).map(|(route, _)| route).collect();
    let groups = (0..binding.plan.groups.len()).filter(|groups| place(*groups).is_some()).count();
    // Those of groups are split off from one of all ranks, where the library can.
    let communicators = usize::from(library.call.split.is_some()) + groups + routes.len();
    // The one of single calls, one for each axis and for each channel, and that of the computing.
    let own = 1 + binding.plan.groups.len() + routes.len() + 1;
    let streams = Streams { own, of_nccl: STREAMS_OF_A_COMMUNICATOR * communicators };
    refuse_shared_queues(streams, std::env::var(QUEUES.0).ok())?;
    let together = program.slots.iter().filter(|slot| slot.movement == Movement::Together);
    let called: BTreeSet<u32> = together.map(|slot| program.groups[slot.op as usize] as u32).collect();
    refuse_unordered(called.len() + routes.len(), library.version)
}

/// The channels of a program's messages, with this rank's end of each; one may come several times.
pub(super) fn channels<'a>(
    program: &ReplayProgram,
    place: &impl Fn(usize) -> Option<(&'a [u32], u32)>,
    rank: u32,
) -> impl Iterator<Item = (Route, ChannelEnd)> {
    program.slots.iter().filter_map(move |slot| channel_of(slot, place(program.groups[slot.op as usize])?.0, rank))
}

/// The channel of a slot's message, and this rank's end of it; nothing for a call of all ranks of its group.
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

/// Refuses to wait for a deadlock: streams beyond the device's queues share one, and a call there waits for those before it.
fn refuse_shared_queues(streams: Streams, queues: Option<String>) -> Result<()> {
    // More than the most have no effect.
    let queues = queues.and_then(|text| text.trim().parse().ok()).unwrap_or(USUAL_QUEUES).min(QUEUES.1);
    let Streams { own, of_nccl } = streams;
    if own + of_nccl <= queues {
        return Ok(());
    }
    let fix = if own + of_nccl <= QUEUES.1 {
        format!("set {}={}, which happens by itself unless ranks share GPUs", QUEUES.0, QUEUES.1)
    } else {
        format!(
            "{} are the most that CUDA has: replay a layout with fewer axes, pipeline neighbours or chunks",
            QUEUES.1
        )
    };
    Err(Error::usage(format!(
        "this step has {own} streams, NCCL's communicators have {of_nccl} of their own, and there are {queues} queues to the device: \
         calls would wait for one another, and may for ever; {fix}"
    )))
}

/// Refuses to wait for another deadlock: kernels of several communicators may start on each device in another order, and each waits with
/// multiprocessors of its own for ranks where another came first. NCCL gives them one order, that of the calls, from this version on.
fn refuse_unordered(communicators: usize, version: Version) -> Result<()> {
    if communicators < 2 || version >= ORDERS_FROM {
        return Ok(());
    }
    Err(Error::usage(format!(
        "calls of several communicators at once need NCCL {}.{} (NCCL_LAUNCH_ORDER_IMPLICIT), found {version}: older ones start them in any \
         order, and ranks may wait for one another for ever",
        ORDERS_FROM.0, ORDERS_FROM.1
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_with_more_streams_than_the_device_has_queues_is_refused_and_both_are_named() {
        const MORE: &str = "set CUDA_DEVICE_MAX_CONNECTIONS=32";
        const NO_MORE: &str = "32 are the most that CUDA has";
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
            let counts = format!("this step has {own} streams, NCCL's communicators have {of_nccl} of their own");
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
}
