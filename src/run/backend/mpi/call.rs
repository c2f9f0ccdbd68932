//! A bound call on host memory: its buffers, its rotation, its marks.

use crate::backend::{Binding, Call, Marks, Mismatch};
use crate::mpi_call::{Communicator, Datatype, Operation, Prepared, Waiting};
use commgauge_base::collective::{Collective, ReduceOp};
use commgauge_base::element::ElementType;
use commgauge_base::error::{Error, Result};
use commgauge_base::host::{self, Readings};
use commgauge_base::pattern::segments::View;
use commgauge_base::pattern::{Buffer, Pattern, Segment, Source, encode};
use commgauge_base::sample::WrongCall;
use std::ops::Range;

/// A call that MPI executes while it is enqueued.
pub struct MpiCall<'b> {
    prepared: Prepared,
    rotation: Rotation,
    turns: Turns,
    send: &'b mut Arena,
    receive: &'b mut Arena,
    divide: Option<Divide>,
    waiting: Waiting,
    marks: Readings,
    data: Data,
    has_data: bool,
}

/// Everything another caller needs to make the same call on the same buffers, for comparisons.
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

impl<'b> MpiCall<'b> {
    /// Prepares the call and writes the inputs of all copies.
    ///
    /// # Errors
    /// If the C interface cannot express the counts, or MPI refuses the operation.
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
        let reduce_op = op.collective.reduces().then(|| op.reduce_op.unwrap_or_default());
        let operation = reduce_op.map(|reduce| Operation::of(reduce, op.element)).transpose()?;
        let mut call = MpiCall {
            prepared: Prepared::new(view, communicator, Datatype::of(op.element), operation)?,
            rotation,
            turns: Turns::default(),
            send,
            receive,
            divide: Divide::of(op.element, reduce_op, view),
            waiting,
            marks: Readings::default(),
            data: Data::of_collective(op.element, reduce_op, view, binding.seed),
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

    fn write_inputs(&mut self, copies: Range<u64>) {
        let (stride, element) = (self.rotation.stride_bytes, self.data.element_bytes);
        let places = copies.map(|copy| Place::of_copy(copy, stride, element));
        self.data.write_inputs(places, self.send.bytes_mut(), self.receive.bytes_mut());
    }

    fn place(&self, copy: u64) -> Place {
        Place::of_copy(copy, self.rotation.stride_bytes, self.data.element_bytes)
    }
}

/// Waits until the host's clock shows a time; false if that time has passed.
pub(super) fn hold_until(start_nanoseconds: u64, waiting: Waiting) -> bool {
    if host::now_nanoseconds() >= start_nanoseconds {
        return false;
    }
    while host::now_nanoseconds() < start_nanoseconds {
        waiting.pause();
    }
    true
}

/// Where the buffers of a call begin in the arenas, in bytes, and by how many elements their data are shifted: every copy carries other data.
#[derive(Clone, Copy, Default)]
pub(super) struct Place {
    pub send: usize,
    pub receive: usize,
    pub shift: u64,
}

impl Place {
    fn of_copy(copy: u64, stride_bytes: u64, element_bytes: u64) -> Place {
        let start = copy * stride_bytes;
        Place { send: start as usize, receive: start as usize, shift: start / element_bytes }
    }
}

/// The expected content of a call's buffers before and after it, on one rank.
pub(super) struct Data {
    pattern: Pattern,
    inputs: Vec<Segment>,
    outputs: Vec<Segment>,
    element_bytes: u64,
    rank: u32,
}

impl Data {
    /// The data of a collective. Groups differ in their data, so that a stray message is detected. A rank whose share of a vector collective
    /// is empty has no buffer to check.
    pub fn of_collective(element: ElementType, reduce_op: Option<ReduceOp>, view: &View, seed: u64) -> Data {
        let with_elements = |segments: Vec<Segment>| segments.into_iter().filter(|s| s.elements > 0).collect();
        let seed = seed ^ u64::from(view.group[0]).wrapping_mul(0xa076_1d64_78bd_642f);
        Data {
            pattern: Pattern::new(element, reduce_op, view.group.len() as u32, seed),
            inputs: with_elements(view.inputs(0)),
            outputs: with_elements(view.outputs(0)),
            element_bytes: element.size(),
            rank: view.group[view.me as usize],
        }
    }

    /// A message that a rank sends, or that it receives, by the buffer.
    pub fn of_message(
        element: ElementType,
        elements: u64,
        [sender, rank]: [u32; 2],
        stream: u32,
        buffer: Buffer,
    ) -> Data {
        let segment = Segment { buffer, offset: 0, elements, source: Source::Moved { rank: sender, first: 0 } };
        let (inputs, outputs) = match buffer {
            Buffer::Send => (vec![segment], vec![]),
            Buffer::Receive => (vec![], vec![segment]),
        };
        let pattern = Pattern::new(element, None, 2, u64::from(stream));
        Data { pattern, inputs, outputs, element_bytes: element.size(), rank }
    }

    /// Writes what calls read, at each of the places; small buffers have millions of them.
    pub fn write_inputs(&self, places: impl Iterator<Item = Place> + Clone, send: &mut [u8], receive: &mut [u8]) {
        for segment in &self.inputs {
            let writer = self.pattern.writer(segment.source);
            for place in places.clone() {
                let (bytes, start) = match segment.buffer {
                    Buffer::Send => (&mut *send, place.send),
                    Buffer::Receive => (&mut *receive, place.receive),
                };
                writer.write(segment.source.shifted_by(place.shift), &mut bytes[self.range(segment, start)]);
            }
        }
    }

    /// Poisons where a call writes. Called before the inputs are written, as in place both are one buffer.
    pub fn poison_outputs(&self, place: Place, receive: &mut [u8]) {
        for segment in &self.outputs {
            let source = segment.source.shifted_by(place.shift);
            self.pattern.poison(source, &mut receive[self.range(segment, place.receive)]);
        }
    }

    /// The first wrong element of the outputs, and how many are wrong.
    pub fn first_wrong(&self, place: Place, receive: &[u8]) -> Option<Mismatch> {
        let mut found: Option<Mismatch> = None;
        for segment in &self.outputs {
            let bytes = &receive[self.range(segment, place.receive)];
            let Some(wrong) = self.pattern.check(segment.source.shifted_by(place.shift), bytes) else { continue };
            match &mut found {
                Some(first) => first.count += wrong.count,
                None => {
                    let (element, count) = (segment.offset + wrong.first, wrong.count);
                    let (expected, got) = (wrong.expected, wrong.got);
                    found = Some(Mismatch { rank: self.rank, element, expected, got, count, call: None });
                }
            }
        }
        found
    }

    /// Bytes of a segment in a buffer that begins at `start`.
    fn range(&self, segment: &Segment, start: usize) -> Range<usize> {
        let start = start + (segment.offset * self.element_bytes) as usize;
        start..start + (segment.elements * self.element_bytes) as usize
    }
}

/// The second half of an average: the sum divided by the number of ranks.
#[derive(Clone, Copy)]
pub(super) struct Divide {
    element: ElementType,
    ranks: u32,
    bytes: usize,
}

impl Divide {
    /// `None` if it is no average, or this rank gets no result.
    pub fn of(element: ElementType, reduce_op: Option<ReduceOp>, view: &View) -> Option<Divide> {
        let own = view.geometry.blocks[view.me as usize];
        let has_result = own > 0 && (view.collective != Collective::Reduce || view.me == view.root);
        (reduce_op == Some(ReduceOp::Avg) && has_result).then(|| Divide {
            element,
            ranks: view.group.len() as u32,
            bytes: (own * element.size()) as usize,
        })
    }

    /// Divides the result at an offset.
    #[inline]
    pub fn divide(self, receive: &mut [u8], offset: usize) {
        encode::divide_all(self.element, &mut receive[offset..offset + self.bytes], self.ranks);
    }
}

impl Call for MpiCall<'_> {
    fn fill(&mut self) -> Result<()> {
        let copy = self.rotation.upcoming();
        self.data.poison_outputs(self.place(copy), self.receive.bytes_mut());
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
        if let Some(divide) = self.divide {
            divide.divide(self.receive.bytes_mut(), offset);
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
            let Some(wrong) = self.data.first_wrong(self.place(copy), self.receive.bytes()) else { continue };
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

    fn buffer_copies(&self) -> u32 {
        u32::try_from(self.rotation.copies).unwrap_or(u32::MAX)
    }
}

// The call of a rank that is in none of the groups: it marks and waits like the others, and moves no data.

/// The call of an idle rank, which is in none of the groups.
pub struct IdleCall {
    marks: Readings,
    /// Whether the working ranks have data to check. All ranks must answer alike, since they agree on the result of
    /// the check.
    others_have_data: bool,
    waiting: Waiting,
}

impl IdleCall {
    pub(in crate::backend) fn new(collective: Collective, waiting: Waiting) -> IdleCall {
        IdleCall { marks: Readings::default(), others_have_data: collective != Collective::Barrier, waiting }
    }
}

impl Call for IdleCall {
    fn fill(&mut self) -> Result<()> {
        Ok(())
    }

    fn enqueue(&mut self) -> Result<()> {
        Ok(())
    }

    fn reserve_marks(&mut self, marks: usize) {
        self.marks.reserve(marks);
    }

    fn mark(&mut self) {
        self.marks.take();
    }

    fn hold_until(&mut self, start_nanoseconds: u64) -> bool {
        hold_until(start_nanoseconds, self.waiting)
    }

    fn read_marks(&self, marks: &mut Marks) {
        marks.local_ranks = 1;
        self.marks.copy_to(&mut marks.nanoseconds);
    }

    fn check(&mut self) -> Result<Option<Mismatch>> {
        Ok(None)
    }

    fn verifies(&self) -> bool {
        self.others_have_data
    }

    fn buffer_copies(&self) -> u32 {
        1
    }

    fn is_idle_rank(&self, _: usize) -> bool {
        true
    }
}

// Page-aligned buffers, already touched, that grow and are reused between cases, and the rotation through copies of
// them.

const PAGE: usize = 4096;

const CACHE_LINE: u64 = 64;

/// A stretch of page-aligned memory, every page of which was written.
#[derive(Debug, Default)]
pub struct Arena {
    storage: Vec<u8>,
    start: usize,
}

impl Arena {
    /// At least `bytes` bytes. Their content is left over from earlier use, or zero.
    ///
    /// # Errors
    /// If the system has not enough memory.
    pub fn reserve(&mut self, bytes: usize) -> Result<()> {
        // Never empty: the address that Rust gives an empty vector of bytes is 1, and to Open MPI that is
        // `MPI_IN_PLACE`.
        let bytes = bytes.max(1);
        if self.bytes().len() >= bytes {
            return Ok(());
        }
        self.storage = Vec::new();
        let with_alignment = bytes + PAGE;
        let refused = |_| Error::environment(format!("cannot reserve {with_alignment} bytes for buffers on this host"));
        self.storage.try_reserve_exact(with_alignment).map_err(refused)?;
        // Written with something else than zero: pages of zeroes may be shared by the system and read too fast.
        self.storage.resize(with_alignment, 0x5a);
        self.start = self.storage.as_ptr().align_offset(PAGE);
        Ok(())
    }

    pub fn bytes(&self) -> &[u8] {
        &self.storage[self.start.min(self.storage.len())..]
    }

    /// Address of the memory, for calls into C; valid until the arena grows.
    #[inline(always)]
    pub fn address(&self) -> *const u8 {
        self.storage.as_ptr().wrapping_add(self.start)
    }

    /// Address of the memory, for calls into C that write; valid until the arena grows.
    #[inline(always)]
    pub fn address_mut(&mut self) -> *mut u8 {
        self.storage.as_mut_ptr().wrapping_add(self.start)
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let start = self.start.min(self.storage.len());
        &mut self.storage[start..]
    }
}

/// Which copy of the buffers each call uses. Laid out as in C, so that a loop in C can advance it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Rotation {
    /// Number of copies.
    pub copies: u64,
    /// Bytes from one copy to the next.
    pub stride_bytes: u64,
    /// Step from one copy to the next: coprime to `copies` and about 0.618 of them, so that no prefetcher can follow.
    pub step: u64,
    pub current: u64,
}

impl Rotation {
    /// Copies of `buffer_bytes` bytes that together fill at least `cold_bytes`, or a single one.
    ///
    /// The distance between copies is a whole number of cache lines, or of pages if a copy has at least a page, so
    /// that neighbours share no line.
    pub fn new(buffer_bytes: u64, cold_bytes: u64) -> Rotation {
        let grain = if buffer_bytes >= PAGE as u64 { PAGE as u64 } else { CACHE_LINE };
        let stride_bytes = buffer_bytes.max(1).next_multiple_of(grain);
        let copies = cold_bytes.div_ceil(stride_bytes).max(1);
        let golden = (copies as f64 * 0.618_033_988_75) as u64;
        let step = (golden.max(1)..=copies).find(|step| greatest_common_divisor(*step, copies) == 1).unwrap_or(1);
        Rotation { copies, stride_bytes, step, current: 0 }
    }

    /// As many copies of `buffer_bytes` bytes as fit into `within_bytes`, used in turn; at least one, and at most a few thousand, which no
    /// case exhausts.
    pub fn within(buffer_bytes: u64, within_bytes: u64) -> Rotation {
        let Rotation { stride_bytes, .. } = Rotation::new(buffer_bytes, 0);
        let copies = (within_bytes / buffer_bytes.max(1)).clamp(1, MOST_COPIES_WITHIN);
        Rotation { copies, stride_bytes, step: 1 % copies, current: 0 }
    }

    /// Bytes of all copies together.
    pub fn bytes(&self) -> u64 {
        self.copies * self.stride_bytes
    }

    /// The copy that the next call will use.
    pub fn upcoming(&self) -> u64 {
        let next = self.current + self.step;
        if next >= self.copies { next - self.copies } else { next }
    }

    /// The copies that consecutive calls use, beginning with `first`, in order.
    pub fn copies_from(&self, first: u64, calls: u64) -> impl Iterator<Item = u64> + use<> {
        let Rotation { copies, step, .. } = *self;
        (0..calls).scan(first, move |next, _| {
            let copy = *next;
            *next = (copy + step) % copies;
            Some(copy)
        })
    }

    /// Advances, and returns the offset in bytes of the copy to use now.
    #[inline(always)]
    pub fn advance(&mut self) -> usize {
        self.current = self.upcoming();
        (self.current * self.stride_bytes) as usize
    }
}

const MOST_COPIES_WITHIN: u64 = 4096;

/// The calls through a rotation since its last check, whose results can be compared.
#[derive(Clone, Copy, Debug, Default)]
pub struct Turns {
    before: u64,
    since: u64,
    /// The copy of the first call since then.
    first_copy: u64,
}

impl Turns {
    /// Discards the results so far; the next call uses a copy.
    pub fn restart(&mut self, first_copy: u64) {
        *self = Turns { before: self.made(), since: 0, first_copy };
    }

    #[inline(always)]
    pub fn count(&mut self, calls: u64) {
        self.since += calls;
    }

    pub fn made(&self) -> u64 {
        self.before + self.since
    }

    /// The first copy that was used, and how many were, of `copies` through which the calls go.
    pub fn used(&self, copies: u64) -> (u64, u64) {
        (self.first_copy, self.since.min(copies))
    }

    /// The number, from 1 on, of the last call that used the `index`-th of these copies; the calls repeat themselves after `period`.
    pub fn last_call(&self, index: u64, copies: u64, period: u64) -> u64 {
        let uses = |call: &u64| (call % period) % copies == index;
        self.before + 1 + (0..self.since).rev().find(uses).unwrap_or(index)
    }
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_rank_marks_and_waits_but_moves_no_data() {
        let mut call = IdleCall::new(Collective::AllReduce, Waiting::Yields);
        call.reserve_marks(2);
        call.mark();
        assert!(call.hold_until(call.now_nanoseconds() + 1_000_000));
        call.enqueue().unwrap();
        call.mark();
        let mut marks = Marks::default();
        call.read_marks(&mut marks);
        assert!(marks.at(1, 0) - marks.at(0, 0) >= 1_000_000 - 100_000, "{marks:?}");
        assert!(call.is_idle_rank(0) && call.verifies());
        assert_eq!(call.check().unwrap(), None);
    }

    #[test]
    fn memory_is_page_aligned_and_reused_when_large_enough() {
        let mut arena = Arena::default();
        arena.reserve(10_000).unwrap();
        let first = arena.bytes().as_ptr();
        assert!(first.addr().is_multiple_of(PAGE));
        assert!(arena.bytes().len() >= 10_000);
        arena.reserve(5_000).unwrap();
        assert_eq!(arena.bytes().as_ptr(), first);
    }

    #[test]
    fn more_memory_than_exists_is_an_error() {
        assert!(Arena::default().reserve(1 << 55).is_err());
    }

    #[test]
    fn the_rotation_visits_every_copy_once_before_repeating() {
        for (bytes, cold) in [(8, 1000), (64, 6400), (5000, 100_000), (1, 0), (4096, 3 * 4096)] {
            let mut rotation = Rotation::new(bytes, cold);
            let mut offsets: Vec<usize> = (0..rotation.copies).map(|_| rotation.advance()).collect();
            offsets.sort_unstable();
            offsets.dedup();
            assert_eq!(offsets.len() as u64, rotation.copies, "{bytes} of {cold}");
            assert!(offsets.iter().all(|offset| *offset as u64 + bytes <= rotation.bytes()));
            assert!(rotation.bytes() >= cold);
        }
    }
}
