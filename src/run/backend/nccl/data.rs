//! Known data in device memory: written, poisoned and compared in place by kernels that follow [`commgauge_base::pattern`] bit
//! for bit.

use super::channel::{ChannelEnd, Route};
use super::driver::{self, CUdeviceptr, CUstream};
use super::kernels::{Bits, Content, Kernels, Stretch};
use super::memory::Arena;
use crate::backend::Mismatch;
use commgauge_base::collective::ReduceOp;
use commgauge_base::element::ElementType;
use commgauge_base::error::Result;
use commgauge_base::pattern::segments::View;
use commgauge_base::pattern::{Buffer, LOOKED_AT, Pattern, Segment, Source};

/// Bytes at the begin of the scratch memory in which a comparison counts.
const FOUND_BYTES: u64 = 16;

/// Memory shared by the kernels: the numbers of all columns, and a counter of wrong elements.
#[derive(Default)]
pub(super) struct Scratch {
    arena: Arena,
    numbers: Vec<u64>,
}

impl Scratch {
    /// Forgets the columns of the last binding.
    pub fn clear(&mut self) {
        self.numbers.clear();
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
        self.arena.reserve(FOUND_BYTES + 8 * self.numbers.len() as u64)?;
        let bytes: Vec<u8> = self.numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        // SAFETY: room was reserved for all of them.
        unsafe { driver::copy_to_device(self.arena.address() + FOUND_BYTES, &bytes, stream) }
    }

    fn column(&self, place: u64) -> CUdeviceptr {
        self.arena.address() + FOUND_BYTES + 8 * place
    }
}

/// A segment, and where its column is among the numbers.
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
        // Groups differ in their data, so that a message that strays is found.
        let seed = seed ^ u64::from(view.group[0]).wrapping_mul(0xa076_1d64_78bd_642f);
        let ranks = view.group.len() as u32;
        let moved = |mut segment: Segment| {
            segment.offset += result_offset;
            segment
        };
        let pattern = Pattern::new(element, reduce_op, ranks, seed);
        let outputs = view.outputs(0).into_iter().map(moved).collect();
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

    /// Writes the inputs.
    pub fn write_inputs(&self, place: Place, tools: Tools) -> Result<()> {
        self.inputs.iter().try_for_each(|known| self.fill(known, place, tools, Bits::AsTheyAre))
    }

    /// Writes the inputs of all copies of the buffers; the last copy starts that many elements after the first. Data
    /// continue from copy to copy, so that a single launch suffices: a small message needs a million copies to exceed
    /// the cache of a large device, and as many launches would take seconds.
    pub fn write_all_inputs(&self, first: Place, elements_to_last: u64, tools: Tools) -> Result<()> {
        debug_assert!(self.inputs.len() <= 1, "a second input would write over copies of the first");
        self.inputs.iter().try_for_each(|known| {
            let elements = known.segment.elements + elements_to_last;
            self.fill(
                &Known { segment: Segment { elements, ..known.segment }, ..*known },
                first,
                tools,
                Bits::AsTheyAre,
            )
        })
    }

    /// Poisons the outputs, so that what no message overwrites is found wrong.
    pub fn poison_outputs(&self, place: Place, tools: Tools) -> Result<()> {
        self.outputs.iter().try_for_each(|known| self.fill(known, place, tools, Bits::TurnedOver))
    }

    fn fill(&self, known: &Known, place: Place, tools: Tools, bits: Bits) -> Result<()> {
        let (stretch, content) = (self.stretch(known, place), self.content(known, place, tools.scratch));
        // SAFETY: the buffers were reserved for every segment, and the scratch memory for every column.
        unsafe { tools.kernels.fill(stretch, self.seed, content, bits, tools.stream) }
    }

    /// The first wrong element of the outputs, and how many there are.
    pub fn check(&self, place: Place, tools: Tools) -> Result<Option<Mismatch>> {
        let mut found: Option<Mismatch> = None;
        for known in &self.outputs {
            let Some(wrong) = self.check_one(known, place, tools)? else { continue };
            match &mut found {
                Some(first) => first.count += wrong.count,
                None => found = Some(wrong),
            }
        }
        Ok(found)
    }

    fn check_one(&self, known: &Known, place: Place, tools: Tools) -> Result<Option<Mismatch>> {
        let (stretch, content) = (self.stretch(known, place), self.content(known, place, tools.scratch));
        let counted = tools.scratch.arena.address();
        let mut found = [0u8; FOUND_BYTES as usize];
        found[8..].fill(0xff);
        // SAFETY: the scratch memory begins with room to count; the rest as in `fill`.
        unsafe {
            driver::copy_to_device(counted, &found, tools.stream)?;
            tools.kernels.verify(stretch, self.seed, content, counted, tools.stream)?;
            driver::copy_to_host(&mut found, counted, tools.stream)?;
        }
        let number = |at: usize| found[at..at + 8].iter().rev().fold(0u64, |all, byte| all << 8 | u64::from(*byte));
        let (count, first) = (number(0), number(8));
        if count == 0 {
            return Ok(None);
        }
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
        Ok(Some(Mismatch { rank: self.rank, element: known.segment.offset + first, expected, got, count }))
    }

    fn stretch(&self, known: &Known, place: Place) -> Stretch {
        let base = if known.segment.buffer == Buffer::Send { place.send } else { place.receive };
        let element_bytes = self.element.size();
        Stretch {
            address: base + known.segment.offset * element_bytes,
            elements: known.segment.elements,
            element_bytes,
        }
    }

    fn content(&self, known: &Known, place: Place, scratch: &Scratch) -> Content {
        let (address, length) = (scratch.column(known.column.0), known.column.1);
        match known.segment.source.shifted_by(place.shift) {
            Source::Moved { rank, first } => Content::Moved { rank, first },
            Source::Contribution { first, .. } | Source::Reduced { first } => {
                Content::Column { address, length, first }
            }
        }
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
