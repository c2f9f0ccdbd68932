//! The contract between measuring and carrying out.
//!
//! Everything is written for a stream of work: calls and marks are *enqueued* in order and the marks' times are read after
//! [`Call::complete`]. On host memory enqueueing a call carries it out and a mark is a clock reading; on a GPU
//! both go onto a stream and the mark is an event; the simulated backend advances virtual clocks.
//! Buffers are filled and checked where they lie.

use crate::collective::Placement;
use crate::error::Result;
use crate::geometry::Geometry;
use crate::layout::Groups;
use crate::units::Bytes;
use crate::workload::Op;
use std::ops::Range;
use std::time::Duration;

/// What a backend says of itself, for the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendFacts {
    /// The name by which it was asked for.
    pub name: &'static str,
    /// True where no data moved and no real time passed. Travels as far as the report.
    pub synthetic: bool,
    /// The library that carries the data and its version.
    pub library: String,
    /// What the library says of its transports, where it says something.
    pub transport: Option<String>,
}

/// All that a backend needs to carry a case out.
#[derive(Clone, Debug)]
pub struct Binding<'a> {
    /// The call.
    pub op: &'a Op,
    /// Whether the result replaces the input.
    pub placement: Placement,
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

    /// Reserves buffers and returns the call, ready to be filled. The axis must have been connected.
    ///
    /// # Errors
    /// Where memory does not suffice or the library cannot carry the call; the other ranks must then be told
    /// (see [`crate::world::agree`]) before anything is enqueued.
    fn bind<'b>(&'b mut self, binding: &Binding) -> Result<Box<dyn Call + 'b>>;

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

    /// Makes room for `marks` marks and forgets the old ones. Untimed.
    fn reserve_marks(&mut self, marks: usize);

    /// Enqueues a reading of the clock. In the timed loop.
    fn mark(&mut self);

    /// Enqueues a wait until the rank's clock shows `start_nanoseconds`. False where a rank came too late to wait.
    fn hold_until(&mut self, start_nanoseconds: u64) -> bool;

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

    /// Gives up what is enqueued, so that a later `complete` returns an error instead of waiting.
    fn abort(&mut self);
}
