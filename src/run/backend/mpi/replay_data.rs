//! The data by which the calls of a replay are checked, each once, before anything is timed.

use super::replay::{MpiReplayer, SlotKind};
use crate::backend::Mismatch;
use commgauge_base::collective::ReduceOp;
use commgauge_base::element::ElementType;
use commgauge_base::error::Result;
use commgauge_base::pattern::segments::View;
use commgauge_base::pattern::{Buffer, Pattern, Segment, Source};
use commgauge_model::workload::replay::ReplayProgram;
use std::ops::Range;

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

    /// A message of a world rank's data.
    pub(super) fn message(element: ElementType, elements: u64, sender: u32, stream: u32) -> SlotData {
        let source = Source::Moved { rank: sender, first: 0 };
        let segment = |buffer| vec![Segment { buffer, offset: 0, elements, source }];
        SlotData {
            pattern: Pattern::new(element, None, 2, u64::from(stream)),
            inputs: segment(Buffer::Send),
            outputs: segment(Buffer::Receive),
            element_bytes: element.size(),
        }
    }

    fn range(&self, segment: &Segment, offset: usize) -> Range<usize> {
        let start = offset + (segment.offset * self.element_bytes) as usize;
        start..start + (segment.elements * self.element_bytes) as usize
    }
}

impl MpiReplayer<'_> {
    /// Every slot once, alone. Then the buffers are cleared, as sums of sums would soon be infinite.
    pub(super) fn check_all(&mut self, program: &ReplayProgram) -> Result<Option<Mismatch>> {
        let mut first_wrong = None;
        for slot in program.slots_to_check() {
            let wrong = self.check_slot(slot)?;
            first_wrong = first_wrong.or(wrong);
        }
        self.send.bytes_mut().fill(0);
        self.receive.bytes_mut().fill(0);
        Ok(first_wrong)
    }

    fn check_slot(&mut self, slot: usize) -> Result<Option<Mismatch>> {
        let call = &self.slots[slot];
        let (send, receive) = call.offsets();
        let data = &call.data;
        if !matches!(call.kind, SlotKind::Send(_)) {
            for segment in &data.outputs {
                let range = data.range(segment, receive);
                data.pattern.poison(segment.source, &mut self.receive.bytes_mut()[range]);
            }
        }
        if !matches!(call.kind, SlotKind::Receive(_)) {
            for segment in &data.inputs {
                let (arena, offset) = match segment.buffer {
                    Buffer::Send => (&mut *self.send, send),
                    Buffer::Receive => (&mut *self.receive, receive),
                };
                data.pattern.write(segment.source, &mut arena.bytes_mut()[data.range(segment, offset)]);
            }
        }
        self.start(slot as u32)?;
        self.wait(slot as u32)?;
        let call = &self.slots[slot];
        if matches!(call.kind, SlotKind::Send(_)) {
            return Ok(None);
        }
        let wrong = call.data.outputs.iter().find_map(|segment| {
            let bytes = &self.receive.bytes()[call.data.range(segment, receive)];
            call.data.pattern.check(segment.source, bytes).map(|wrong| (segment.offset + wrong.first, wrong))
        });
        Ok(wrong.map(|(element, wrong)| Mismatch {
            rank: self.rank,
            element,
            expected: wrong.expected,
            got: wrong.got,
            count: wrong.count,
        }))
    }
}
