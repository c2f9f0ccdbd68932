//! Known data in device memory: written, poisoned and compared in place by kernels that follow [`commgauge_base::pattern`] bit
//! for bit.

use super::abi::SCALAR_ON_HOST;
use super::communicator::{ChannelEnd, Communicator, Route};
use super::driver::{Arena, CUdeviceptr, CUstream};
use super::kernels::{Bits, Content, Kernels, Stretch, Walk};
use super::library::Library;
use super::{abi, driver};
use crate::backend::Mismatch;
use commgauge_base::collective::ReduceOp;
use commgauge_base::element::ElementType;
use commgauge_base::error::Result;
use commgauge_base::pattern::segments::View;
use commgauge_base::pattern::{Buffer, LOOKED_AT, Pattern, Segment, Source, encode};
use std::ffi::c_int;
use std::rc::Rc;

/// Bytes for the counts of a comparison: the wrong elements, and the first of them.
const FOUND_BYTES: u64 = 16;

/// Memory shared by the kernels: room for the results of comparisons, then the numbers of all columns.
#[derive(Default)]
pub(super) struct Scratch {
    arena: Arena,
    comparisons: u64,
    numbers: Vec<u64>,
}

impl Scratch {
    /// Forgets the columns of the last binding.
    pub fn clear(&mut self) {
        self.numbers.clear();
        self.comparisons = 0;
    }

    /// Makes room for this many comparisons, from the next upload on.
    pub fn reserve_comparisons(&mut self, comparisons: u64) {
        self.comparisons = self.comparisons.max(comparisons);
    }

    /// Stores a column unless an equal one is stored already, and returns its offset and length among the numbers.
    fn intern(&mut self, column: &[u64]) -> (u64, u32) {
        let place = self.numbers.windows(column.len().max(1)).position(|window| window == column);
        let place = place.unwrap_or_else(|| {
            self.numbers.extend_from_slice(column);
            self.numbers.len() - column.len()
        });
        (place as u64, column.len() as u32)
    }

    /// Copies all columns to the device.
    pub fn upload(&mut self, stream: CUstream) -> Result<()> {
        self.arena.reserve(FOUND_BYTES * self.comparisons + 8 * self.numbers.len() as u64)?;
        let bytes: Vec<u8> = self.numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        // SAFETY: room was reserved for all of them.
        unsafe { driver::copy_to_device(self.column(0), &bytes, stream) }
    }

    fn column(&self, place: u64) -> CUdeviceptr {
        self.arena.address() + FOUND_BYTES * self.comparisons + 8 * place
    }

    fn found(&self, comparison: u64) -> CUdeviceptr {
        debug_assert!(comparison < self.comparisons);
        self.arena.address() + FOUND_BYTES * comparison
    }
}

/// A segment, and the place of its column among the numbers.
#[derive(Clone, Copy)]
struct Known {
    segment: Segment,
    column: (u64, u32),
}

/// Address of a call's buffers, and the offset of this copy in the data.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub send: CUdeviceptr,
    pub receive: CUdeviceptr,
    /// Elements by which this copy's data differ from the first one's.
    pub shift: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub comparison: u64,
    /// The first call of its walk with a wrong element, and that element.
    pub call: u64,
    pub element: u64,
    /// Wrong elements in the whole walk.
    pub count: u64,
}

/// Resources for launching the kernels.
#[derive(Clone, Copy)]
pub(super) struct Tools<'a> {
    pub kernels: &'a Kernels,
    pub scratch: &'a Scratch,
    pub stream: CUstream,
}

/// The expected content of a call's buffers before and after it.
pub(super) struct Data {
    pattern: Pattern,
    seed: u64,
    inputs: Vec<Known>,
    outputs: Vec<Known>,
    element: ElementType,
    rank: u32,
}

impl Data {
    /// The data of one rank of a group in a collective; `result_offset` is where its outputs begin in the receive buffer.
    pub fn new(
        view: &View,
        element: ElementType,
        reduce_op: Option<ReduceOp>,
        result_offset: u64,
        seed: u64,
        scratch: &mut Scratch,
    ) -> Data {
        // Groups differ in their data, so that a stray message is detected.
        let seed = seed ^ u64::from(view.group[0]).wrapping_mul(0xa076_1d64_78bd_642f);
        let ranks = view.group.len() as u32;
        let moved = |mut segment: Segment| {
            segment.offset += result_offset;
            segment
        };
        let pattern = Pattern::new(element, reduce_op, ranks, seed);
        let outputs: Vec<Segment> = view.outputs(0).into_iter().map(moved).collect();
        scratch.reserve_comparisons(outputs.len() as u64);
        Data {
            inputs: known(&pattern, view.inputs(0), scratch),
            outputs: known(&pattern, outputs, scratch),
            pattern,
            seed,
            element,
            rank: view.group[view.me as usize],
        }
    }

    /// A message of the sender's data, as this end of the channel sees it.
    pub fn message(element: ElementType, elements: u64, route: Route, end: ChannelEnd) -> Data {
        let source = Source::Moved { rank: route.from, first: 0 };
        let of = |buffer| vec![Known { segment: Segment { buffer, offset: 0, elements, source }, column: (0, 0) }];
        let seed = u64::from(route.stream);
        let pattern = Pattern::new(element, None, 2, seed);
        let (inputs, outputs, rank) = match end {
            ChannelEnd::Sender => (of(Buffer::Send), vec![], route.from),
            ChannelEnd::Receiver => (vec![], of(Buffer::Receive), route.to),
        };
        Data { pattern, seed, inputs, outputs, element, rank }
    }

    pub fn write_inputs(&self, place: Place, walk: Walk, tools: Tools) -> Result<()> {
        self.inputs.iter().try_for_each(|known| self.fill(known, place, walk, tools, Bits::AsTheyAre))
    }

    /// Fills the places of the inputs with other data, so that a call that reads them too early is detected.
    pub fn poison_inputs(&self, place: Place, walk: Walk, tools: Tools) -> Result<()> {
        self.inputs.iter().try_for_each(|known| self.fill(known, place, walk, tools, Bits::TurnedOver))
    }

    /// Poisons the outputs, so that missing messages are detected.
    pub fn poison_outputs(&self, place: Place, walk: Walk, tools: Tools) -> Result<()> {
        self.outputs.iter().try_for_each(|known| self.fill(known, place, walk, tools, Bits::TurnedOver))
    }

    fn fill(&self, known: &Known, place: Place, walk: Walk, tools: Tools, bits: Bits) -> Result<()> {
        let stretch = self.stretch(known, place, tools.scratch);
        // SAFETY: the buffers were reserved for every segment in every copy, and the scratch memory for every column.
        unsafe { tools.kernels.fill(stretch, walk, bits, tools.stream) }
    }

    /// Writes the inputs as the preceding kernel of a job does.
    pub fn produce_inputs(&self, place: Place, tools: Tools) -> Result<()> {
        self.inputs.iter().try_for_each(|known| {
            // SAFETY: as in `fill`.
            unsafe { tools.kernels.produce(self.stretch(known, place, tools.scratch), tools.stream) }
        })
    }

    /// Number of comparisons per call, or per walk.
    pub fn comparisons(&self) -> u64 {
        self.outputs.len() as u64
    }

    /// Forgets the results of the first comparisons. Waits for the stream.
    pub fn forget(comparisons: u64, tools: Tools) -> Result<()> {
        let nothing = [[0; 8], [0xff; 8]].concat().repeat(comparisons as usize);
        // SAFETY: the scratch memory begins with room for them.
        unsafe { driver::copy_to_device(tools.scratch.arena.address(), &nothing, tools.stream) }
    }

    /// Enqueues the comparison of the outputs; its results begin at a number.
    pub fn compare(&self, place: Place, walk: Walk, first: u64, tools: Tools) -> Result<()> {
        self.outputs.iter().zip(first..).try_for_each(|(known, comparison)| {
            let (stretch, found) = (self.stretch(known, place, tools.scratch), tools.scratch.found(comparison));
            // SAFETY: the scratch memory begins with room for the counts; the rest as in `fill`.
            unsafe { tools.kernels.verify(stretch, walk, found, tools.stream) }
        })
    }

    /// The mismatches of the first comparisons, once the stream has passed them.
    pub fn found(&self, comparisons: u64, tools: Tools) -> Result<Vec<Found>> {
        let mut bytes = vec![0; (FOUND_BYTES * comparisons) as usize];
        // SAFETY: the scratch memory begins with room for them.
        unsafe { driver::copy_to_host(&mut bytes, tools.scratch.arena.address(), tools.stream)? };
        let number = |bytes: &[u8]| bytes.iter().rev().fold(0u64, |all, byte| all << 8 | u64::from(*byte));
        let found = bytes.chunks_exact(FOUND_BYTES as usize).zip(0u64..).map(|(found, comparison)| {
            let segment = (comparison % self.comparisons().max(1)) as usize;
            let elements = self.outputs[segment].segment.elements;
            let (count, first) = (number(&found[..8]), number(&found[8..]));
            Found { comparison, call: first / elements, element: first % elements, count }
        });
        Ok(found.filter(|found| found.count > 0).collect())
    }

    /// The first wrong element of the outputs, and how many there are.
    pub fn check(&self, place: Place, tools: Tools) -> Result<Option<Mismatch>> {
        Data::forget(self.comparisons(), tools)?;
        self.compare(place, Walk::ONE, 0, tools)?;
        let found = self.found(self.comparisons(), tools)?;
        let Some(first) = found.first() else { return Ok(None) };
        let count = found.iter().map(|found| found.count).sum();
        self.mismatch(first, place, count, tools).map(Some)
    }

    /// A mismatch in words; `count` are wrong in that call.
    pub fn mismatch(&self, found: &Found, place: Place, count: u64, tools: Tools) -> Result<Mismatch> {
        let known = &self.outputs[(found.comparison % self.comparisons()) as usize];
        let (stretch, first) = (self.stretch(known, place, tools.scratch), found.element);
        let source = known.segment.source.shifted_by(place.shift);
        let bytes = self.element.size();
        let mut elements = vec![0; ((stretch.elements - first).min(LOOKED_AT) * bytes) as usize];
        // SAFETY: the elements are inside the stretch that was compared.
        unsafe { driver::copy_to_host(&mut elements, stretch.address + first * bytes, tools.stream)? };
        let wrong = self.pattern.check(source.shifted_by(first), &elements);
        let (expected, got) = wrong.map_or_else(
            || ("what a later look found".to_owned(), "something else at first".to_owned()),
            |wrong| (wrong.expected, wrong.got),
        );
        let element = known.segment.offset + first;
        Ok(Mismatch { rank: self.rank, element, expected, got, count, call: None })
    }

    fn stretch(&self, known: &Known, place: Place, scratch: &Scratch) -> Stretch {
        let Segment { buffer, offset, elements, source } = known.segment;
        let content = match source.shifted_by(place.shift) {
            Source::Moved { rank, first } => Content::Moved { rank, first },
            Source::Contribution { first, .. } | Source::Reduced { first } => {
                Content::Column { address: scratch.column(known.column.0), length: known.column.1, first }
            }
        };
        let (element_bytes, seed) = (self.element.size(), self.seed);
        let base = if buffer == Buffer::Send { place.send } else { place.receive };
        Stretch { address: base + offset * element_bytes, elements, element_bytes, seed, content }
    }
}

fn known(pattern: &Pattern, segments: Vec<Segment>, scratch: &mut Scratch) -> Vec<Known> {
    let intern = |segment: Segment| {
        let column = pattern.column(segment.source).map_or((0, 0), |column| scratch.intern(&column));
        Known { segment, column }
    };
    // A rank without a share of a vector form has no buffer to look at.
    segments.into_iter().filter(|segment| segment.elements > 0).map(intern).collect()
}

// Reductions with a premultiplied scalar: operations that a communicator creates and destroys.

/// An operation of `ncclRedOpCreatePreMulSum`, until it is dropped.
pub(super) struct Multiplied {
    library: &'static Library,
    communicator: Rc<Communicator>,
    raw: c_int,
}

impl Multiplied {
    /// For a scalar of an element type.
    pub fn new(
        library: &'static Library,
        communicator: Rc<Communicator>,
        element: ElementType,
        number: u32,
    ) -> Result<Multiplied> {
        let create = library.newer(library.call.create_pre_mul_sum, "ncclRedOpCreatePreMulSum")?;
        let mut bits = encode::bits(element, f64::from(number)).to_le_bytes();
        let (mut raw, datatype) = (0, abi::datatype(element, abi::ElementUse::Reduced));
        // SAFETY: the number has at least the bytes of the type and is read before the call returns; the handle is ours, the
        // communicator lives.
        let code = unsafe { create(&mut raw, bits.as_mut_ptr().cast(), datatype, SCALAR_ON_HOST, communicator.raw()) };
        library.check(code, "ncclRedOpCreatePreMulSum")?;
        Ok(Multiplied { library, communicator, raw })
    }

    /// `ncclRedOp_t`.
    pub fn raw(&self) -> c_int {
        self.raw
    }
}

impl Drop for Multiplied {
    fn drop(&mut self) {
        if let (Some(destroy), false) = (self.library.call.destroy_operation, self.communicator.raw().is_null()) {
            // SAFETY: created by this communicator, which still exists, and not used again; enqueued calls keep what
            // they need (nccl.h).
            let _ = unsafe { destroy(self.raw, self.communicator.raw()) };
        }
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn equal_columns_are_stored_once() {
        let mut scratch = Scratch::default();
        assert_eq!(scratch.intern(&[1, 2, 3]), (0, 3));
        assert_eq!(scratch.intern(&[4, 5, 6]), (3, 3));
        assert_eq!(scratch.intern(&[1, 2, 3]), (0, 3));
        assert_eq!(scratch.numbers.len(), 6);
    }
}
