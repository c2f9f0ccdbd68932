//! A bound call on host memory: its buffers, its rotation, its marks.

use super::arena::Arena;
use super::{Rotation, Turns};
use crate::backend::{Binding, Call, Marks, Mismatch};
use crate::mpi_call::{Communicator, Datatype, Operation, Prepared, Waiting};
use commgauge_base::collective::{Collective, ReduceOp};
use commgauge_base::element::ElementType;
use commgauge_base::error::Result;
use commgauge_base::host_clock::{self, Readings};
use commgauge_base::pattern::segments::View;
use commgauge_base::pattern::{Buffer, Pattern, Segment, encode};
use commgauge_base::sample::WrongCall;
use std::ops::Range;
use std::time::Duration;

/// A call that MPI carries out while it is enqueued.
pub struct MpiCall<'b> {
    prepared: Prepared,
    rotation: Rotation,
    turns: Turns,
    send: &'b mut Arena,
    receive: &'b mut Arena,
    divide: Option<Divide>,
    waiting: Waiting,
    marks: Readings,
    pattern: Pattern,
    inputs: Vec<Segment>,
    outputs: Vec<Segment>,
    element_bytes: u64,
    rank: u32,
    has_data: bool,
}

/// What another caller needs to make the same call on the same buffers, for comparisons.
pub struct Parts<'a> {
    /// First of the copies that are read.
    pub send: *const u8,
    /// First of the copies that are written.
    pub receive: *mut u8,
    /// The next copy; the caller advances it.
    pub rotation: &'a mut Rotation,
    /// The communicator of the call.
    pub communicator: mpi::ffi::MPI_Comm,
}

/// The second half of an average: the sum divided by the number of ranks.
struct Divide {
    element: ElementType,
    ranks: u32,
    bytes: usize,
}

impl<'b> MpiCall<'b> {
    /// Prepares the call and writes the inputs of all copies.
    ///
    /// # Errors
    /// Where the C interface cannot express the counts, or MPI refuses the operation.
    pub(super) fn new(
        binding: &Binding,
        view: &View,
        communicator: &Communicator,
        rotation: Rotation,
        send: &'b mut Arena,
        receive: &'b mut Arena,
        waiting: Waiting,
    ) -> Result<MpiCall<'b>> {
        let op = binding.op;
        let ranks = view.group.len() as u32;
        let reduce_op = op.collective.reduces().then(|| op.reduce_op.unwrap_or_default());
        let operation = reduce_op.map(|reduce| Operation::of(reduce, op.element)).transpose()?;
        let own = view.geometry.blocks[view.me as usize];
        let has_result = own > 0 && (op.collective != Collective::Reduce || view.me == view.root);
        let divide = (reduce_op == Some(ReduceOp::Avg) && has_result).then(|| Divide {
            element: op.element,
            ranks,
            bytes: (own * op.element.size()) as usize,
        });
        // Groups differ in their data: the seed is mixed with the first world rank of the group.
        let seed = binding.seed ^ u64::from(view.group[0]).wrapping_mul(0xa076_1d64_78bd_642f);
        let mut call = MpiCall {
            prepared: Prepared::new(view, communicator, Datatype::of(op.element), operation)?,
            rotation,
            turns: Turns::default(),
            send,
            receive,
            divide,
            waiting,
            marks: Readings::default(),
            pattern: Pattern::new(op.element, reduce_op, ranks, seed),
            inputs: with_elements(view.inputs(0)),
            outputs: with_elements(view.outputs(0)),
            element_bytes: op.element.size(),
            rank: view.group[view.me as usize],
            has_data: op.collective != Collective::Barrier,
        };
        call.write_inputs(0..rotation.copies);
        Ok(call)
    }

    /// What `enqueue` uses, for a comparison with another caller on the same buffers.
    pub fn parts(&mut self) -> Parts<'_> {
        Parts {
            send: self.send.address(),
            receive: self.receive.address_mut(),
            rotation: &mut self.rotation,
            communicator: self.prepared.communicator(),
        }
    }

    /// Writes the inputs of these copies, of which small buffers have millions.
    fn write_inputs(&mut self, copies: Range<u64>) {
        for segment in self.inputs.clone() {
            let writer = self.pattern.writer(segment.source);
            for copy in copies.clone() {
                let (range, source) = (self.range(&segment, copy), self.shifted(&segment, copy));
                let arena = if segment.buffer == Buffer::Send { &mut *self.send } else { &mut *self.receive };
                writer.write(source, &mut arena.bytes_mut()[range]);
            }
        }
    }

    /// Bytes of a segment in its arena, for one copy of the buffers.
    fn range(&self, segment: &Segment, copy: u64) -> Range<usize> {
        let start = copy * self.rotation.stride_bytes + segment.offset * self.element_bytes;
        start as usize..(start + segment.elements * self.element_bytes) as usize
    }

    /// The first wrong element of the outputs in one copy.
    fn check_copy(&self, copy: u64) -> Option<Mismatch> {
        let mut found: Option<Mismatch> = None;
        for segment in &self.outputs {
            let bytes = &self.receive.bytes()[self.range(segment, copy)];
            let Some(wrong) = self.pattern.check(self.shifted(segment, copy), bytes) else { continue };
            match &mut found {
                Some(first) => first.count += wrong.count,
                None => {
                    found = Some(Mismatch {
                        rank: self.rank,
                        element: segment.offset + wrong.first,
                        expected: wrong.expected,
                        got: wrong.got,
                        count: wrong.count,
                        call: None,
                    });
                }
            }
        }
        found
    }

    /// The source of a segment in one copy: every copy carries other data.
    fn shifted(&self, segment: &Segment, copy: u64) -> commgauge_base::pattern::Source {
        segment.source.shifted_by(copy * self.rotation.stride_bytes / self.element_bytes)
    }
}

/// Waits until the host's clock shows a time; false if that time has passed.
pub(super) fn hold_until(start_nanoseconds: u64, waiting: Waiting) -> bool {
    if host_clock::now_nanoseconds() >= start_nanoseconds {
        return false;
    }
    while host_clock::now_nanoseconds() < start_nanoseconds {
        waiting.pause();
    }
    true
}

/// The non-empty segments. A rank whose share of a vector collective is empty has no buffer to check.
fn with_elements(mut segments: Vec<Segment>) -> Vec<Segment> {
    segments.retain(|segment| segment.elements > 0);
    segments
}

impl Call for MpiCall<'_> {
    fn fill(&mut self) -> Result<()> {
        let copy = self.rotation.upcoming();
        for segment in &self.outputs {
            let range = self.range(segment, copy);
            let source = self.shifted(segment, copy);
            self.pattern.poison(source, &mut self.receive.bytes_mut()[range]);
        }
        // After the poison: in place the two overlap.
        self.write_inputs(copy..copy + 1);
        self.turns.restart(copy);
        Ok(())
    }

    #[inline]
    fn enqueue(&mut self) -> Result<()> {
        let offset = self.rotation.advance();
        self.turns.count(1);
        // SAFETY: both arenas are borrowed by this call for as long as it lives, were reserved for all copies of the
        // buffers that the prepared call reads and writes, and are page-aligned; the communicator is the backend's,
        // which cannot free it while it is borrowed. Where a rank has no buffer, MPI does not look at the address.
        unsafe {
            self.prepared
                .issue(self.send.address().wrapping_add(offset), self.receive.address_mut().wrapping_add(offset))
        }?;
        if let Some(divide) = &self.divide {
            let result = &mut self.receive.bytes_mut()[offset..offset + divide.bytes];
            encode::divide_all(divide.element, result, divide.ranks);
        }
        Ok(())
    }

    fn reserve_marks(&mut self, marks: usize) {
        self.marks.reserve(marks);
    }

    #[inline]
    fn mark(&mut self) {
        self.marks.take();
    }

    fn hold_until(&mut self, start_nanoseconds: u64) -> bool {
        hold_until(start_nanoseconds, self.waiting)
    }

    /// Blocking calls are complete when they return.
    fn complete(&mut self, _: Duration) -> Result<()> {
        Ok(())
    }

    fn read_marks(&self, marks: &mut Marks) {
        marks.local_ranks = 1;
        self.marks.copy_to(&mut marks.nanoseconds);
    }

    fn check(&mut self) -> Result<Option<Mismatch>> {
        let copies = self.rotation.copies;
        let (first_copy, calls) = self.turns.used(copies);
        let mut found: Option<(u64, Mismatch)> = None;
        let mut wrong_copies = 0;
        for (index, copy) in (0..).zip(self.rotation.copies_from(first_copy, calls)) {
            let Some(wrong) = self.check_copy(copy) else { continue };
            wrong_copies += 1;
            found.get_or_insert((index, wrong));
        }
        Ok(found.map(|(index, wrong)| {
            let number = self.turns.last_call(index, copies, copies);
            Mismatch { call: Some(WrongCall { number, wrong_copies, compared_copies: calls }), ..wrong }
        }))
    }

    fn verifies(&self) -> bool {
        self.has_data
    }

    fn now_nanoseconds(&self) -> u64 {
        host_clock::now_nanoseconds()
    }

    fn buffer_copies(&self) -> u32 {
        u32::try_from(self.rotation.copies).unwrap_or(u32::MAX)
    }

    /// Blocking calls cannot be aborted; the launch as a whole is aborted instead.
    fn abort(&mut self) {}
}
