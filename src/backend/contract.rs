//! The contract between measuring and carrying out.
//!
//! Everything is written for a stream of work: calls and marks are *enqueued* in order and the marks' times are read after
//! [`Call::complete`]. On host memory enqueueing a call carries it out and a mark is a clock reading; on a GPU
//! both go onto a stream and the mark is an event; the simulated backend advances virtual clocks.
//! Buffers are filled and checked where they lie.

use super::{DeviceReader, Product};
use crate::collective::Placement;
use crate::error::{Error, Result};
use crate::geometry::Geometry;
use crate::layout::{Axis, Groups};
use crate::pattern::segments::View;
use crate::progress::Progress;
use crate::units::{Bytes, Seconds};
use crate::variant::{LibraryChoice, Variant};
use crate::workload::replay::ReplayPlan;
use crate::workload::{Op, ProductShape, of_nccl_alone};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// What a backend says of itself, for the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendFacts {
    /// The name by which it was requested.
    pub name: &'static str,
    /// True where nothing real was measured. Travels as far as the report.
    pub synthetic: bool,
    /// True where one process plays all ranks on a clock of its own, and nothing happens on this machine.
    pub virtual_clock: bool,
    /// The library that carries the data and its version.
    pub library: String,
    /// What the library says of its transports, where it says something.
    pub transport: Option<String>,
    /// How it carries out and times what it does, in sentences for the record.
    pub notes: Vec<String>,
    /// Warnings that hold for everything that it measures.
    pub warnings: Vec<String>,
}

/// All that a backend needs to carry a case out.
#[derive(Clone, Debug)]
pub struct Binding<'a> {
    /// The call.
    pub op: &'a Op,
    /// Whether the result replaces the input.
    pub placement: Placement,
    /// How it is handed over.
    pub variant: Variant,
    /// The groups of the op's axis, all of which take part at once. Ranks in none of them stand aside.
    pub groups: &'a Groups,
    /// The number under which these groups were connected.
    pub groups_number: usize,
    /// Element counts on each group.
    pub geometry: &'a Geometry,
    /// Seed of the data.
    pub seed: u64,
    /// Use the same buffers in every iteration instead of rotating through more than the last-level cache holds.
    pub warm_buffers: bool,
}

impl<'a> Binding<'a> {
    /// A rank's part in it.
    ///
    /// # Errors
    /// Where the rank is in none of the groups.
    pub fn view(&self, rank: u32) -> Result<View<'a>> {
        let axis = self.groups.axis;
        let missing = || Error::environment(format!("rank {rank} is in no group of axis {axis}"));
        let (group, me) = self.groups.place_of(rank).ok_or_else(missing)?;
        Ok(View {
            collective: self.op.collective,
            placement: self.placement,
            geometry: self.geometry,
            group: &self.groups.groups[group],
            me,
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

/// The first wrong element of a checked buffer, and how many were wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// World rank that holds the buffer.
    pub rank: u32,
    /// Index of the first wrong element in the receive buffer.
    pub element: u64,
    /// What it should be, as a number of the element type (hexadecimal bits where data is only moved).
    pub expected: String,
    /// What it is.
    pub got: String,
    /// Wrong elements in this buffer.
    pub count: u64,
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

/// Carries ops out for the ranks that this process plays.
pub trait Backend {
    /// What it says of itself.
    fn facts(&self) -> BackendFacts;

    /// The device of this process's rank, where it has one.
    fn device(&self) -> Option<String> {
        None
    }

    /// Reads the device of this process's rank beside the calls, where there is one. The same kind of answer on all ranks.
    fn device_reader(&mut self) -> Option<&mut dyn DeviceReader> {
        None
    }

    /// World ranks that this process plays: one, or all of them when simulated.
    fn local_ranks(&self) -> Range<u32>;

    /// Makes fresh communicators for groups, under a number by which bindings name them. Called by all processes, once for
    /// each set of groups and replicate, also by those whose ranks are in none of the groups.
    fn connect(&mut self, number: usize, groups: &Groups) -> Result<()>;

    /// Frees all communicators. Called by all processes at the end of each replicate.
    fn disconnect(&mut self) -> Result<()>;

    /// Bytes of buffers that binding this case would take on the neediest rank of this process.
    fn bytes_needed(&self, binding: &Binding) -> Bytes;

    /// Bytes that the ranks of this process may use together.
    fn bytes_available(&self) -> Bytes;

    /// Why the backend does not carry this case out, though it exists. It is then skipped on all ranks, whichever of them said so.
    fn waiver(&self, binding: &Binding) -> Option<String> {
        let (op, parts) = (binding.op, binding.variant.name_parts());
        if !parts.is_empty() {
            return Some(format!("{} is of --backend nccl, and this is {}", parts.join(", "), self.facts().name));
        }
        of_nccl_alone(op)
    }

    /// True where a plan with a case that does not fit is refused as a whole, so that a host is not driven out of memory; false
    /// where such a case is skipped and the others go on.
    fn refuses_what_does_not_fit(&self) -> bool {
        true
    }

    /// Reserves buffers and returns the call, ready to be filled. The axis must have been connected.
    ///
    /// # Errors
    /// Where memory does not suffice or the library cannot carry the call; the other ranks must then be told
    /// (see [`crate::world::agree`]) before anything is enqueued.
    fn bind<'b>(&'b mut self, binding: &Binding) -> Result<Box<dyn Call + 'b>>;

    /// Bytes of buffers that a replay would take on the neediest rank of this process.
    fn replay_bytes_needed(&self, binding: &ReplayBinding) -> Result<Bytes>;

    /// Reserves the buffers of a whole step and returns it, ready to be replayed. All groups of the plan must have been connected.
    ///
    /// # Errors
    /// As [`Backend::bind`].
    fn bind_replay<'b>(&'b mut self, binding: &ReplayBinding<'b>) -> Result<Box<dyn Replayer + 'b>>;

    /// Reserves the matrices of a product that the rank computes for itself, filled with known data.
    ///
    /// # Errors
    /// Where memory does not suffice, the type is not multiplied here, or nothing computes.
    fn bind_product(&mut self, shape: &ProductShape) -> Result<Box<dyn Product>> {
        let name = self.facts().name;
        Err(Error::usage(format!(
            "the {name} backend computes nothing, so the product of {} x {} x {} has no time",
            shape.m, shape.n, shape.k
        )))
    }

    /// Asked on every rank before anything is measured, where products are to be: whether what computes them is there, and multiplies
    /// these types.
    ///
    /// # Errors
    /// What is missing, or not multiplied. Backends that find out when they bind a product say nothing here.
    fn prepare_products(&mut self, _shapes: &[ProductShape]) -> Result<()> {
        Ok(())
    }

    /// What computes products, and its version; empty where nothing does.
    fn product_library(&self) -> &'static str {
        ""
    }

    /// The clock of the marks, in nanoseconds, now.
    fn now_nanoseconds(&self) -> u64;

    /// The smallest difference that marks can tell, in nanoseconds.
    fn clock_resolution_nanoseconds(&self) -> u64;
}

/// A bound case. Methods are called by all processes in the same order.
pub trait Call {
    /// Writes the inputs that [`crate::pattern`] defines and poisons the outputs of every buffer that will be
    /// checked next. Untimed.
    fn fill(&mut self) -> Result<()>;

    /// Enqueues one call on the next buffers of the rotation. In the timed loop: no allocation, no lock, no
    /// system call of ours.
    fn enqueue(&mut self) -> Result<()>;

    /// Enqueues what one `fill` prepared, and nothing else: where [`Call::enqueue`] repeats a call on the same buffers, as a graph of
    /// several calls does, this does not. Untimed.
    fn enqueue_once(&mut self) -> Result<()> {
        self.enqueue()
    }

    /// Makes room for `marks` marks and forgets the old ones. Untimed.
    fn reserve_marks(&mut self, marks: usize);

    /// Enqueues a reading of the clock. In the timed loop.
    fn mark(&mut self);

    /// Enqueues a wait until the rank's clock shows `start_nanoseconds`. False where a rank came too late to wait.
    fn hold_until(&mut self, start_nanoseconds: u64) -> bool;

    /// Whether the last hold ended after its time, because what was enqueued behind it was not there yet. Only after `complete`.
    fn came_late(&self) -> bool {
        false
    }

    /// Waits until all that was enqueued is done, at most for `deadline`; errors that happened meanwhile surface here.
    fn complete(&mut self, deadline: Duration) -> Result<()>;

    /// Copies the times of all marks since `reserve_marks`. Only after `complete`.
    fn read_marks(&self, marks: &mut Marks);

    /// The clock of the marks, now: [`Backend::now_nanoseconds`] while the case is bound. Where a process plays several
    /// ranks, the clock of the one that is furthest, so that a start set after it can be kept by all.
    fn now_nanoseconds(&self) -> u64;

    /// Copies of the buffers in the rotation; 1 where the same buffers are used in every iteration.
    fn buffer_copies(&self) -> u32;

    /// Checks the outputs of the buffers last used against [`crate::pattern`]; only after `complete`.
    /// The first mismatch of the lowest local rank, if any. `None` also where there is no data to check
    /// (see [`Call::verifies`]).
    fn check(&mut self) -> Result<Option<Mismatch>>;

    /// False where no data exists (simulated, barrier), so that results are "not verified", never "verified".
    fn verifies(&self) -> bool;

    /// True where a local rank, counted from 0, is in none of the groups: it marks and waits with the others, moves nothing,
    /// and its times say nothing.
    fn stands_aside(&self, _local_rank: usize) -> bool {
        false
    }

    /// Whether [`Call::enqueue`] returns only when the call is carried out; false where that is a stream's business.
    fn blocks(&self) -> bool {
        true
    }

    /// What the library itself estimates that one call takes; `None` where it estimates nothing. Untimed, and nothing is carried out.
    fn library_estimate(&mut self) -> Result<Option<Seconds>> {
        Ok(None)
    }

    /// What the library chose for the calls of this binding, where it was asked and told this rank. Untimed.
    fn library_choice(&mut self) -> Result<Option<LibraryChoice>> {
        Ok(None)
    }

    /// Gives up what is enqueued, so that a later `complete` returns an error instead of waiting.
    fn abort(&mut self);
}

/// All that a backend needs to replay a step.
#[derive(Clone, Copy, Debug)]
pub struct ReplayBinding<'a> {
    /// The programs of this process's ranks, and the groups.
    pub plan: &'a ReplayPlan,
    /// The number under which the plan's first groups were connected; the others follow.
    pub first_groups_number: usize,
    /// Seed of the data that is checked.
    pub seed: u64,
}

/// Times on one axis in one replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AxisTimes {
    /// What the rank spent waiting for its calls.
    pub waiting_nanoseconds: u64,
    /// Time in which at least one call was under way, as far as the rank saw it.
    pub under_way_nanoseconds: u64,
}

/// Times of one rank in one replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RankTimes {
    /// From the common start to the rank's own end.
    pub total_nanoseconds: u64,
    /// What it spent computing.
    pub computing_nanoseconds: u64,
    /// By index of the plan's groups.
    pub axes: [AxisTimes; Axis::ALL.len()],
}

/// What a rank moved on one axis in one replay, counted from what was handed to the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AxisBytes {
    /// The axis.
    pub axis: Axis,
    /// Calls that were started; of messages, those that were sent.
    pub calls: u64,
    /// Their size arguments, in the sense of [`crate::geometry`].
    pub payload: Bytes,
    /// What of it went out, by the counts of bandwidth-optimal algorithms.
    pub wire: Bytes,
}

/// A bound step. Methods are called by all processes in the same order.
pub trait Replayer {
    /// Performs every call of the step once, one after another, on data that is known, and checks what arrives. Untimed.
    fn check(&mut self) -> Result<Option<Mismatch>>;

    /// False where no data exists.
    fn verifies(&self) -> bool;

    /// Carries the step out once, from start to end. In it: no allocation, no lock.
    fn run(&mut self) -> Result<()>;

    /// The times of the last run, by local rank.
    fn times(&self) -> &[RankTimes];

    /// Stores how far each run comes, from now on. Where one process plays several ranks nobody has to be waited for.
    fn watch(&mut self, _progress: Arc<Progress>) {}

    /// What a local rank moved in the last run.
    fn moved(&self, local_rank: usize) -> Result<Vec<AxisBytes>>;
}
