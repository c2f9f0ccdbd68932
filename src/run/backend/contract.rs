//! The contract between the measuring loop and the backends that execute calls.
//!
//! The interface is written for a stream of work: calls and marks are *enqueued* in order, and the times of the marks
//! are read after [`Call::complete`]. On host memory, enqueueing a call executes it and a mark is a clock reading. On
//! a GPU both go onto a stream and the mark is an event. The simulated backend advances virtual clocks. Buffers are
//! filled and checked in place, in the memory that the call uses.

use super::{DeviceReader, LocalWork, Mismatch};
use commgauge_base::collective::{Collective, Placement};
use commgauge_base::error::{Error, Result};
use commgauge_base::geometry::Geometry;
use commgauge_base::host;
use commgauge_base::pattern::segments::View;
use commgauge_base::progress::Progress;
use commgauge_base::sample::Cadence;
use commgauge_base::units::{Bytes, Seconds};
use commgauge_base::variant::{LibraryChoice, Variant};
use commgauge_base::writing::ascending;
use commgauge_model::layout::{Axis, Groups};
use commgauge_model::record::library_use::LibraryUse;
use commgauge_model::workload::replay::{ReplayPlan, ReplayProgram};
use commgauge_model::workload::{CopyShape, Op, ProductShape, nccl_only_reason};
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// Whether a launch measures pairs of ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MeasuredPairs {
    #[default]
    None,
    /// With other calls.
    Among,
    /// Nothing else.
    Only,
}

/// How much longer than a few ranks each further one may take to create communicators and to connect to all others.
pub const SETUP_OF_EACH_RANK: Duration = Duration::from_millis(100);

/// Description of a backend, for the record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackendFacts {
    /// The name by which it was requested.
    pub name: &'static str,
    /// True if nothing real was measured. Passed on up to the report.
    pub synthetic: bool,
    /// True if one process simulates all ranks on a virtual clock, without load on this machine.
    pub virtual_clock: bool,
    /// The library that carries the data and its version.
    pub library: String,
    /// Transports as reported by the library, if it reports any.
    pub transport: Option<String>,
    /// Channels of the library that carry a message between ranks of two nodes, where this backend sets them.
    pub pair_channels: Option<u32>,
    /// How it executes and times calls, in sentences for the record.
    pub notes: Vec<String>,
    /// Warnings that apply to everything this backend measures.
    pub warnings: Vec<String>,
}

/// Everything that a backend needs to run a case.
#[derive(Clone, Debug)]
pub struct Binding<'a> {
    pub op: &'a Op,
    /// Whether the result replaces the input.
    pub placement: Placement,
    /// How calls are submitted.
    pub variant: Variant,
    /// Whether each call has a start of its own.
    pub cadence: Cadence,
    /// The groups of the op's axis, which all take part at once. Ranks in none of them are idle.
    pub groups: &'a Groups,
    /// The number under which these groups were connected.
    pub groups_number: usize,
    pub geometry: &'a Geometry,
    pub seed: u64,
    /// Use the same buffers in every iteration instead of rotating through more bytes than the last-level cache can
    /// store.
    pub warm_buffers: bool,
    /// Walk through buffers within this many bytes, as nccl-tests does within those of its largest size, instead.
    pub rotation_within: Option<Bytes>,
}

impl<'a> Binding<'a> {
    /// A rank's part in it.
    ///
    /// # Errors
    /// If the rank is in none of the groups.
    pub fn view(&self, rank: u32) -> Result<View<'a>> {
        let axis = self.groups.axis;
        let missing = || Error::environment(format!("rank {rank} is in no group of axis {axis}"));
        let place = self.groups.place_of(rank).ok_or_else(missing)?;
        Ok(View {
            collective: self.op.collective,
            placement: self.placement,
            geometry: self.geometry,
            group: &self.groups.groups[place.group],
            me: place.rank_in_group,
            root: self.op.root,
        })
    }

    /// Bytes of the largest buffer of any rank of a view's group, which is the same on all of them.
    pub fn largest_buffer_bytes(&self, view: &View) -> u64 {
        let all = (0..view.group.len() as u32).map(|me| View { me, ..*view }.buffer_elements());
        let elements = all.map(|(send, receive)| send.max(receive)).max().unwrap_or(0);
        elements * self.geometry.element_bytes
    }
}

/// The times of enqueued marks, for every rank that this process plays.
#[derive(Clone, Debug, Default)]
pub struct Marks {
    /// Ranks played by this process.
    pub local_ranks: usize,
    /// Row-major: mark, then local rank; nanoseconds on that rank's clock.
    pub nanoseconds: Vec<u64>,
}

impl Marks {
    /// The time of a mark on a local rank.
    pub fn at(&self, mark: usize, local_rank: usize) -> u64 {
        self.nanoseconds[mark * self.local_ranks + local_rank]
    }
}

/// Executes ops for the ranks that this process plays.
pub trait Backend {
    fn facts(&self) -> BackendFacts;

    /// The device of this process's rank, if it has one.
    fn device(&self) -> Option<String> {
        None
    }

    /// The network adapters nearest to that device, all that are equally near.
    fn adapters(&self) -> Vec<String> {
        Vec::new()
    }

    /// Reads the device of this process's rank during the calls, if there is one. All ranks must give the same kind of
    /// answer.
    fn device_reader(&mut self) -> Option<&mut dyn DeviceReader> {
        None
    }

    /// What the library of this process carries data over, by its log so far, or why that is not known; none where a backend has no such
    /// log. All ranks give the same kind of answer.
    fn library_use(&mut self) -> Option<std::result::Result<LibraryUse, String>> {
        None
    }

    /// World ranks that this process plays: one, or all of them when simulated.
    fn local_ranks(&self) -> Range<u32>;

    /// Creates new communicators for groups, under a number by which bindings refer to them. Called by all processes,
    /// once for each set of groups and replicate, including those whose ranks are in none of the groups.
    fn connect(&mut self, number: usize, groups: &Groups) -> Result<()>;

    /// Frees all communicators. Called by all processes at the end of each replicate.
    fn disconnect(&mut self) -> Result<()>;

    /// Bytes of buffers that binding this case would take on the neediest rank of this process.
    fn bytes_needed(&self, binding: &Binding) -> Bytes;

    /// Bytes that the ranks of this process may use together.
    fn bytes_available(&self) -> Bytes;

    /// Why the backend cannot execute this case; `None` if it can. If any rank returns a reason, all ranks skip the
    /// case.
    fn skip_reason(&self, binding: &Binding) -> Option<String> {
        let (op, parts) = (binding.op, binding.variant.name_parts());
        if !parts.is_empty() {
            return Some(format!("{} needs --backend nccl; this is {}", parts.join(", "), self.facts().name));
        }
        nccl_only_reason(op)
    }

    /// True if a plan with a case that does not fit is refused as a whole, to protect the host from running out of
    /// memory; false if such a case is skipped and the others run.
    fn refuses_oversized_plans(&self) -> bool {
        true
    }

    /// Reserves buffers and returns the call, ready to be filled. The axis must be connected.
    ///
    /// # Errors
    /// If memory does not suffice or the library cannot execute the call. The other ranks must then be informed (see
    /// [`crate::world::agree`]) before anything is enqueued.
    fn bind<'b>(&'b mut self, binding: &Binding) -> Result<Box<dyn Call + 'b>>;

    /// Refuses a replay that cannot be carried out here, from its plan alone: before anything is measured or connected.
    ///
    /// # Errors
    /// A usage error with what would be right.
    fn ensure_replayable(&self, binding: &ReplayBinding) -> Result<()>;

    /// Bytes of buffers for a replay on the neediest rank of this process.
    fn replay_bytes_needed(&self, binding: &ReplayBinding) -> Result<Bytes>;

    /// Reserves the buffers of a whole step and returns it, ready to be replayed. All groups of the plan must have been connected.
    ///
    /// # Errors
    fn bind_replay<'b>(&'b mut self, binding: &ReplayBinding<'b>) -> Result<Box<dyn Replayer + 'b>>;

    /// Why the backend does not compute this product; `None` if it does. If any rank returns a reason, all ranks skip the product.
    fn product_skip_reason(&self, _shape: &ProductShape) -> Option<String> {
        None
    }

    /// Reserves the matrices of a product that the rank computes by itself, filled with known data.
    ///
    /// # Errors
    /// If memory does not suffice, the type is not supported, or the backend computes nothing.
    fn bind_product(&mut self, shape: &ProductShape) -> Result<Box<dyn LocalWork>> {
        let name = self.facts().name;
        Err(Error::usage(format!(
            "the {name} backend computes nothing, so the product of {} x {} x {} has no time",
            shape.m, shape.n, shape.k
        )))
    }

    /// Called on every rank before measuring a plan with matrix products: checks that the library for them is present
    /// and supports these element types.
    ///
    /// # Errors
    /// What is missing or not supported. Backends that find this out only in `bind_product` return no error here.
    fn prepare_products(&mut self, _shapes: &[ProductShape]) -> Result<()> {
        Ok(())
    }

    /// Name and version of the library for products; empty if there is none.
    fn product_library(&self) -> &'static str {
        ""
    }

    /// Why this rank cannot make a copy; `None` if it can. If any rank returns a reason, all ranks skip it.
    fn copy_skip_reason(&self, _shape: &CopyShape) -> Option<String> {
        Some(format!("copies between hosts and GPUs need --backend nccl; this is {}", self.facts().name))
    }

    /// Reserves the buffers of a copy, with known data at its source and other data at its target, and returns it with the copies that a
    /// run of it makes back to back.
    ///
    /// # Errors
    /// If memory does not suffice, or the backend makes no copies.
    fn bind_copy(&mut self, shape: &CopyShape) -> Result<(Box<dyn LocalWork>, u32)> {
        Err(Error::usage(format!("{}: the {} backend makes no copies", shape.name(), self.facts().name)))
    }

    /// The clock of the marks, in nanoseconds, now.
    fn now_nanoseconds(&self) -> u64 {
        host::now_nanoseconds()
    }

    /// The smallest difference between two marks that can be resolved, in nanoseconds.
    fn clock_resolution_nanoseconds(&self) -> u64;
}

/// A bound case. Methods are called by all processes in the same order.
pub trait Call {
    /// Prepares the buffers for [`Call::enqueue_checked`]: outputs are poisoned, and inputs follow [`commgauge_base::pattern`], or are poisoned
    /// as well where the call that is checked has a producer. Untimed.
    fn fill(&mut self) -> Result<()>;

    /// Enqueues one call on the next buffers of the rotation. In the timed loop: no allocation, no lock, no
    /// system call of ours.
    fn enqueue(&mut self) -> Result<()>;

    /// Enqueues calls on what `fill` prepared as jobs do: on a stream each follows the kernel that produces its inputs and is followed by
    /// one that compares its outputs, and nothing of it begins before [`Call::complete`]. Untimed.
    fn enqueue_checked(&mut self) -> Result<()> {
        self.enqueue()
    }

    /// Reserves memory for `marks` marks and drops the old ones. Untimed.
    fn reserve_marks(&mut self, marks: usize);

    /// Enqueues a reading of the clock. In the timed loop.
    fn mark(&mut self);

    /// Enqueues a wait until the rank's clock shows `start_nanoseconds`. False if that time has already passed on a
    /// rank.
    fn hold_until(&mut self, start_nanoseconds: u64) -> bool;

    /// Whether the last wait ended after its start time because the work behind it was not enqueued in time. Valid
    /// only after `complete`.
    fn started_late(&self) -> bool {
        false
    }

    /// By how much all marks since `reserve_marks` may be off on this process's clock, in nanoseconds; 0 where they are readings
    /// of it.
    fn clock_error_nanoseconds(&self) -> u64 {
        0
    }

    /// Waits until all that was enqueued is done, at most for `deadline`; errors that happened meanwhile surface here. Blocking calls are
    /// complete when they return.
    fn complete(&mut self, _deadline: Duration) -> Result<()> {
        Ok(())
    }

    /// Copies the times of all marks since `reserve_marks`. Only after `complete`.
    fn read_marks(&self, marks: &mut Marks);

    /// The current time on the clock of the marks: [`Backend::now_nanoseconds`] while the case is bound. If one
    /// process simulates several ranks, the clock that is furthest ahead, so that every rank can meet a start set
    /// after it.
    fn now_nanoseconds(&self) -> u64 {
        host::now_nanoseconds()
    }

    /// Copies of the buffers in the rotation; 1 where the same buffers are used in every iteration.
    fn buffer_copies(&self) -> u32;

    /// Checks the outputs of all calls since `fill` against [`commgauge_base::pattern`], as far as no later call has written over them; only
    /// after `complete`. The first mismatch of the lowest local rank, if any. `None` also where there is no data to check
    /// (see [`Call::verifies`]).
    fn check(&mut self) -> Result<Option<Mismatch>>;

    /// False if there is no data (simulated, barrier), so that results are "not verified", never "verified".
    fn verifies(&self) -> bool;

    /// True if a local rank, counted from 0, is in none of the groups. It marks and waits with the others, moves no
    /// data, and its times are ignored.
    fn is_idle_rank(&self, _local_rank: usize) -> bool {
        false
    }

    /// Whether [`Call::enqueue`] returns only when the call is complete; false if it runs on a stream.
    fn blocks(&self) -> bool {
        true
    }

    /// The library's own estimate of the time of one call; `None` if it has no estimate. Untimed; executes nothing.
    fn library_estimate(&mut self) -> Result<Option<Seconds>> {
        Ok(None)
    }

    /// The algorithm that the library chose for the calls of this binding, if it was configured to report it and
    /// reports it on this rank. Untimed.
    fn library_choice(&mut self) -> Result<Option<LibraryChoice>> {
        Ok(None)
    }

    /// Aborts what is enqueued, so that a later `complete` returns an error instead of waiting. Blocking calls cannot be aborted; the launch
    /// as a whole is aborted instead.
    fn abort(&mut self) {}
}

/// Everything that a backend needs to replay a step.
#[derive(Clone, Copy, Debug)]
pub struct ReplayBinding<'a> {
    /// The programs of this process's ranks, and the groups.
    pub plan: &'a ReplayPlan,
    /// The number under which the plan's first groups were connected; the others follow.
    pub first_groups_number: usize,
    pub seed: u64,
}

impl<'a> ReplayBinding<'a> {
    /// # Errors
    /// If the plan has no program for the rank.
    pub fn program(&self, rank: u32) -> Result<&'a ReplayProgram> {
        let missing = || Error::environment(format!("the replay has no program for rank {rank}"));
        self.plan.program_of_rank(rank).ok_or_else(missing)
    }

    /// The group of a rank, and its place in it, by index of the plan's groups.
    pub fn places(&self, rank: u32) -> impl Fn(usize) -> Option<(&'a [u32], u32)> + use<'a> {
        let plan = self.plan;
        let place = |groups: &'a Groups| {
            groups.place_of(rank).map(|place| (groups.groups[place.group].as_slice(), place.rank_in_group))
        };
        let places: Vec<Option<(&'a [u32], u32)>> = plan.groups.iter().map(place).collect();
        move |groups| places.get(groups).copied().flatten()
    }
}

/// Times on one axis in one replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AxisTimes {
    /// Time for which the rank waited for its calls.
    pub waiting_nanoseconds: u64,
    /// Time in which at least one call was in progress, as far as the rank saw it.
    pub in_flight_nanoseconds: u64,
}

/// Times of one rank in one replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankTimes {
    /// From the common start to the rank's own end.
    pub total_nanoseconds: u64,
    pub computing_nanoseconds: u64,
    /// By index of the plan's groups.
    pub axes: [AxisTimes; Axis::ALL.len()],
}

/// Hidden collectives of a replay: one, or several of one op.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HiddenCall {
    /// The number of calls.
    pub op: usize,
    pub calls: u64,
    /// From start to end, as far as the rank saw it.
    pub nanoseconds: u64,
}

/// What a rank did in a part of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub kind: SpanKind,
    /// In nanoseconds since the rank's own start.
    pub begin: u64,
    pub end: u64,
}

/// What a rank does in a span; `axis` is an index of the plan's groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SpanKind {
    Computing,
    Waiting { axis: usize },
    InFlight { axis: usize },
}

/// Ranks with a timeline.
const MOST_RANKS_WITH_SPANS: usize = 256;

/// The ranks whose spans are kept, in order: all, or as many from every stage.
pub fn ranks_with_spans(plan: &ReplayPlan) -> Vec<u32> {
    let mut ranks: Vec<u32> = (0..plan.stage_of_rank.len() as u32).collect();
    ranks.sort_by_key(|rank| plan.stage_of_rank[*rank as usize]);
    let stride = ranks.len().div_ceil(MOST_RANKS_WITH_SPANS).max(1);
    ascending(ranks.into_iter().step_by(stride))
}

/// Calls and bytes of a rank on one axis in one replay, counted from the calls made to the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AxisBytes {
    pub axis: Axis,
    /// Calls that were started; of messages, those that were sent.
    pub calls: u64,
    /// Their size arguments, in the sense of [`commgauge_base::geometry`].
    pub payload: Bytes,
    /// Bytes on the wire, as counted for bandwidth-optimal algorithms.
    pub wire: Bytes,
}

/// A bound step. Methods are called by all processes in the same order.
pub trait Replayer {
    /// Executes every call of the step once, one after another, on known data, and checks the results. Untimed.
    fn check(&mut self) -> Result<Option<Mismatch>>;

    /// False if there is no data.
    fn verifies(&self) -> bool {
        true
    }

    /// Executes the step once, from start to end. Allocates nothing and takes no lock.
    fn run(&mut self) -> Result<()>;

    /// The times of the last run, by local rank.
    fn times(&self) -> &[RankTimes];

    /// Stores the progress of each later run in the given counter. Not needed if one process simulates all ranks.
    fn watch(&mut self, _progress: Arc<Progress>) {}

    /// The hidden collectives of a local rank in the last run, in the order of their starts; their number is the same on all ranks of a
    /// group.
    fn hidden_calls(&self, local_rank: usize) -> Vec<HiddenCall>;

    /// What a local rank did in the last run, in any order; empty for ranks that [`ranks_with_spans`] leaves out.
    fn spans(&self, local_rank: usize) -> Vec<Span>;

    /// Traffic of a local rank in the last run.
    fn moved(&self, local_rank: usize) -> Result<Vec<AxisBytes>>;
}

// Traffic of a rank in a replay: calls and bytes per op, summed by axis.

/// Calls of an op that were started, and the bytes of their size arguments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counted {
    pub calls: u64,
    pub payload_bytes: u64,
    pub crossing_bytes: u64,
}

/// The bytes of one call of an op on a rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CallBytes {
    pub payload: u64,
    /// For an all_to_all_v: the bytes that the rank sends to others or receives from others, whichever is more.
    pub crossing: u64,
}

impl Counted {
    #[inline]
    pub(super) fn add(&mut self, call: CallBytes) {
        self.calls += 1;
        self.payload_bytes += call.payload;
        self.crossing_bytes += call.crossing;
    }
}

/// Bytes that a rank of a group sends to others in an all_to_all_v or receives from them, whichever is more; 0 for
/// other collectives.
pub(super) fn crossing_bytes(op: &Op, geometry: &Geometry, me: u32) -> u64 {
    if op.collective == Collective::AllToAllV { geometry.bytes_with_others(me) } else { 0 }
}

/// Sums by axis; `counted` has one entry for each op of the program.
///
/// # Errors
/// If the bytes exceed 64 bits.
pub(super) fn by_axis(program: &ReplayProgram, counted: &[Counted]) -> Result<Vec<AxisBytes>> {
    let mut axes: Vec<AxisBytes> = Vec::new();
    for axis in Axis::ALL {
        let mut sum = AxisBytes { axis, calls: 0, payload: Bytes(0), wire: Bytes(0) };
        for ((op, geometry), counted) in program.ops.iter().zip(&program.geometries).zip(counted) {
            if op.axis == axis {
                sum.calls += counted.calls;
                sum.payload.0 += counted.payload_bytes;
                // All calls of an op as one: the share of the payload that each sends is rounded down once per step, not per call.
                let together = Op { bytes_total: Bytes(counted.payload_bytes), ..op.clone() };
                let wire = match op.collective {
                    Collective::AllToAllV => Some(counted.crossing_bytes),
                    _ => together.wire_bytes(geometry.ranks(), 1),
                };
                let too_many = || Error::usage(format!("the bytes that a replay moves on {axis} do not fit 64 bits"));
                sum.wire.0 += wire.ok_or_else(too_many)?;
            }
        }
        if sum.calls > 0 {
            axes.push(sum);
        }
    }
    Ok(axes)
}
