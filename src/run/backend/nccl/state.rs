//! What a rank holds of NCCL and of its device, and what all its calls ask of it. Nothing of single calls.

use super::super::mpi::Rotation;
use super::channel::{Channel, Route};
use super::clock::DeviceClock;
use super::communicator::{Communicator, Maker};
use super::computing::Computing;
use super::cublas::Cublas;
use super::data::Scratch;
use super::driver::{CUevent, CUstream};
use super::hold::Hold;
use super::kernels::Kernels;
use super::log::Log;
use super::members::{Key, Members};
use super::memory::Arena;
use super::readings::NvmlReader;
use super::recent_pairs::RecentPairs;
use super::registration::Registration;
use super::skip::Capabilities;
use super::windows::Windows;
use super::{driver, graphs};
use crate::backend::{BackendFacts, Binding};
use crate::mpi_call::{self, Waiting};
use commgauge_base::error::{Error, Kind, Result};
use commgauge_base::host_clock;
use commgauge_base::pattern::segments::View;
use commgauge_base::sample::Located;
use commgauge_model::layout::Axis;
use std::cell::RefCell;
use std::collections::HashMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

/// Carries ops out with NCCL on the memory of a GPU.
pub struct NcclBackend {
    pub(super) world: mpi_call::Communicator,
    pub(super) maker: Maker,
    pub(super) connected: Connected,
    pub(super) capabilities: Capabilities,
    pub(super) ranks: Ranks,
    pub(super) kernels: Kernels,
    pub(super) stream: CUstream,
    pub(super) buffers: DeviceBuffers,
    pub(super) timeline: Timeline,
    /// Shared with products, which hold the stream too.
    pub(super) hold: Rc<RefCell<Hold>>,
    pub(super) replays: Replays,
    /// More ranks than processors: a waiting rank must yield, or the rank that it waits for may not be scheduled.
    pub(super) waiting: Waiting,
    pub(super) facts: BackendFacts,
    pub(super) reader: NvmlReader,
    /// The log of NCCL's choices, if requested.
    pub(super) log: Option<Log>,
    /// cuBLAS: the file if one was named, and the library after its first use.
    pub(super) cublas: (Option<PathBuf>, Option<&'static Cublas>),
}

/// The communicators that exist.
#[derive(Default)]
pub(super) struct Connected {
    /// All ranks, from which groups are split off; made anew in every replicate.
    pub base: Option<Rc<Communicator>>,
    /// Those split off; `None` where this rank is in none of the groups. Those of pairs are created when a call needs them.
    pub of_groups: RefCell<HashMap<Key, Option<Rc<Communicator>>>>,
    /// Those of pairs among them.
    pub recent_pairs: RefCell<RecentPairs>,
    /// Ranks for each unique id, where a communicator of all ranks takes several; 0 for one id.
    pub ranks_per_id: u32,
}

/// Where the ranks are, in their order.
pub(super) struct Ranks {
    /// The host of each.
    pub hosts: Vec<String>,
    /// The name of the device of each.
    pub uuids: Vec<String>,
    /// Ranks that have this rank's device, this one with them.
    pub on_device: u32,
}

/// The buffers of calls on this rank's device.
#[derive(Default)]
pub(super) struct DeviceBuffers {
    pub send: Arena,
    pub receive: Arena,
    pub scratch: Scratch,
    /// Registration of the case that was bound last.
    pub registration: Option<Registration>,
    pub windows: Windows,
    /// Total length that the copies of a call's buffers must exceed to leave the cache of any rank's device. It is the
    /// same on all ranks, which must use as many copies: the data differ by copy, and windows have the same length on
    /// all ranks.
    pub cold_bytes: u64,
}

impl DeviceBuffers {
    /// A graph captures calls on the buffers.
    pub fn note_capture(&mut self) {
        self.send.note_capture();
        self.receive.note_capture();
    }

    /// Frees what was kept for graphs; the communicators are gone.
    pub fn release_kept(&mut self) -> Result<()> {
        self.send.release_kept()?;
        self.receive.release_kept()
    }
}

/// When calls began and ended, by marks on the streams of the device.
pub(super) struct Timeline {
    pub events: Vec<CUevent>,
    pub clock: DeviceClock,
}

/// What only replays need.
#[derive(Default)]
pub(super) struct Replays {
    /// One for each of the groups of a replay.
    pub axis_streams: Vec<CUstream>,
    /// For the computing of a replay.
    pub computing: Option<Computing>,
    /// For its messages.
    pub channels: HashMap<Route, Channel>,
    /// Time limit of a call of a replay and of the replay itself, if the user sets one.
    pub deadline: Option<Duration>,
}

/// What a rank has for its products and copies.
pub(super) struct OwnWork<'a> {
    pub kernels: &'a Kernels,
    pub hold: &'a Rc<RefCell<Hold>>,
    pub stream: CUstream,
    pub rank: u32,
    /// For errors.
    pub place: &'a str,
    /// Time limit of one, if the user sets it.
    pub deadline: Option<Duration>,
}

/// Between two looks at what happened in the background while waiting.
const NANOSECONDS_BETWEEN_POLLS: u64 = 200_000;

impl NcclBackend {
    /// Copies of the buffers that together leave the cache of the device, the same on all ranks of a group.
    pub(super) fn rotation(&self, binding: &Binding, view: &View) -> Rotation {
        let cold = match (binding.warm_buffers, binding.rotation_within) {
            (true, _) => 0,
            (false, None) => self.buffers.cold_bytes,
            (false, Some(within)) => {
                return graphs::rotation_within(binding.largest_buffer_bytes(view), within.0, binding.variant);
            }
        };
        graphs::rotation(binding.largest_buffer_bytes(view), cold, binding.variant)
    }

    /// The communicator with these members, with a limit to thread blocks or without.
    pub(super) fn communicator(&self, members: Members, axis: Axis, max_ctas: Option<u32>) -> Result<Rc<Communicator>> {
        let limit = max_ctas.filter(|blocks| !self.maker.limits_to(*blocks));
        let connected = match (members, limit) {
            (Members::World, None) => self.connected.base.clone(),
            key => self.connected.of_groups.borrow().get(&key).cloned().flatten(),
        };
        connected.ok_or_else(|| Error::environment(format!("axis {axis} was not connected before its first call")))
    }

    /// Communicators of groups and of all ranks that exist now.
    pub(super) fn live_communicators(&self) -> Vec<Rc<Communicator>> {
        let split = self.connected.of_groups.borrow();
        self.connected.base.iter().chain(split.values().flatten()).cloned().collect()
    }

    /// Whether a step succeeded on all ranks. Called by all of them.
    pub(super) fn all_succeeded(&self, mine: bool) -> Result<bool> {
        let mut worst = [Located { value: if mine { 0.0 } else { 1.0 }, rank: self.world.rank() as i32 }];
        self.world.all_max(&mut worst)?;
        Ok(worst[0].value == 0.0)
    }

    /// Ends the registration of the buffers of the last case.
    pub(super) fn end_registration(&mut self) -> Result<()> {
        self.buffers.registration.take().map_or(Ok(()), Registration::end)
    }

    /// What products and copies of this rank take.
    pub(super) fn own_work(&self) -> OwnWork<'_> {
        OwnWork {
            kernels: &self.kernels,
            hold: &self.hold,
            stream: self.stream,
            rank: self.world.rank(),
            place: &self.maker.place,
            deadline: self.replays.deadline,
        }
    }

    /// Gives the memory of the buffers of calls back, for work that needs none of them and may need all memory.
    pub(super) fn release_buffers(&mut self) -> Result<()> {
        self.end_registration()?;
        self.buffers.send.release()?;
        self.buffers.receive.release()
    }

    /// Waits until streams are done, at most for a deadline, and looks at what happens to the communicators meanwhile.
    pub(super) fn wait_for(
        &self,
        streams: &[CUstream],
        communicators: &[Rc<Communicator>],
        deadline: Duration,
    ) -> Result<()> {
        let begun = host_clock::now_nanoseconds();
        let end = begun.saturating_add(u64::try_from(deadline.as_nanos()).unwrap_or(u64::MAX));
        let mut next_poll = begun + NANOSECONDS_BETWEEN_POLLS;
        let look = || communicators.iter().try_for_each(|communicator| communicator.asynchronous_error());
        for stream in streams {
            while !driver::is_done(*stream)? {
                let now = host_clock::now_nanoseconds();
                if now >= next_poll {
                    next_poll = now + NANOSECONDS_BETWEEN_POLLS;
                    look()?;
                    if now >= end {
                        let seconds = deadline.as_secs_f64();
                        return Err(Kind::Hang(format!("not done within {seconds} s; given up")).into());
                    }
                }
                // Times are read from events, so that nothing is lost by giving way to threads of the libraries.
                std::thread::yield_now();
            }
        }
        // An error may have left the stream idle, with the correct result of an earlier call in the buffer.
        look()
    }
}
