//! The data by which the calls of a replay are checked, each once, before anything is timed.

use crate::backend::Mismatch;
use commgauge_base::collective::ReduceOp;
use commgauge_base::element::ElementType;
use commgauge_base::pattern::segments::View;
use commgauge_base::pattern::{Buffer, Pattern, Segment, Source};
use std::ops::Range;

/// Where the buffers of a slot begin within the arenas, in bytes.
#[derive(Clone, Copy)]
pub(super) struct Offsets {
    pub send: usize,
    pub receive: usize,
}

/// The expected content of a slot's buffers before and after its call.
pub(super) struct SlotData {
    pattern: Pattern,
    inputs: Vec<Segment>,
    outputs: Vec<Segment>,
    element_bytes: u64,
}

impl SlotData {
    pub(super) fn collective(element: ElementType, reduce_op: Option<ReduceOp>, view: &View, seed: u64) -> SlotData {
        let with_elements = |segments: Vec<Segment>| segments.into_iter().filter(|s| s.elements > 0).collect();
        SlotData {
            pattern: Pattern::new(element, reduce_op, view.group.len() as u32, seed),
            inputs: with_elements(view.inputs(0)),
            outputs: with_elements(view.outputs(0)),
            element_bytes: element.size(),
        }
    }

    /// A message that this rank sends: known data is written, and nothing arrives.
    pub(super) fn sent(element: ElementType, elements: u64, sender: u32, stream: u32) -> SlotData {
        let inputs = vec![message(Buffer::Send, elements, sender)];
        SlotData { inputs, ..SlotData::of_message(element, stream) }
    }

    /// A message that this rank receives: nothing is written, and the sender's data arrives.
    pub(super) fn received(element: ElementType, elements: u64, sender: u32, stream: u32) -> SlotData {
        let outputs = vec![message(Buffer::Receive, elements, sender)];
        SlotData { outputs, ..SlotData::of_message(element, stream) }
    }

    fn of_message(element: ElementType, stream: u32) -> SlotData {
        SlotData {
            pattern: Pattern::new(element, None, 2, u64::from(stream)),
            inputs: Vec::new(),
            outputs: Vec::new(),
            element_bytes: element.size(),
        }
    }

    /// Poisons where the call writes, then writes what it reads; in this order, as in place both are one buffer.
    pub(super) fn write(&self, places: Offsets, send: &mut [u8], receive: &mut [u8]) {
        for segment in &self.outputs {
            self.pattern.poison(segment.source, &mut receive[self.range(segment, places.receive)]);
        }
        for segment in &self.inputs {
            let (bytes, offset) = match segment.buffer {
                Buffer::Send => (&mut *send, places.send),
                Buffer::Receive => (&mut *receive, places.receive),
            };
            self.pattern.write(segment.source, &mut bytes[self.range(segment, offset)]);
        }
    }

    /// The first element of this rank that the call left wrong.
    pub(super) fn first_wrong(&self, places: Offsets, receive: &[u8], rank: u32) -> Option<Mismatch> {
        let (element, wrong) = self.outputs.iter().find_map(|segment| {
            let bytes = &receive[self.range(segment, places.receive)];
            self.pattern.check(segment.source, bytes).map(|wrong| (segment.offset + wrong.first, wrong))
        })?;
        Some(Mismatch { rank, element, expected: wrong.expected, got: wrong.got, count: wrong.count, call: None })
    }

    fn range(&self, segment: &Segment, offset: usize) -> Range<usize> {
        let start = offset + (segment.offset * self.element_bytes) as usize;
        start..start + (segment.elements * self.element_bytes) as usize
    }
}

/// The only segment of a message of a world rank's data.
fn message(buffer: Buffer, elements: u64, sender: u32) -> Segment {
    Segment { buffer, offset: 0, elements, source: Source::Moved { rank: sender, first: 0 } }
}
