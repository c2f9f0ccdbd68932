//! A call of a replay on host memory, prepared so that it can be started again and again.

use super::replay_data::{Offsets, SlotData};
use crate::backend::counted::CallBytes;
use crate::mpi_call::{Communicator, Datatype, Message, Operation, Prepared, Request};
use commgauge_base::collective::ReduceOp;
use commgauge_base::error::Result;
use commgauge_base::pattern::segments::View;
use commgauge_model::workload::replay::{Movement, ReplayProgram, Slot, placement_of};

/// A slot, ready to be started.
pub(super) struct SlotCall {
    pub kind: SlotKind,
    pub data: SlotData,
    pub request: Request,
    pub offsets: Offsets,
    pub op: usize,
    pub axis: usize,
    pub bytes: CallBytes,
    pub divide: Option<Divide>,
    /// A collective that is waited for at once wherever it is started.
    pub at_once: bool,
    /// Something hides it.
    pub is_hidden: bool,
    /// Of a hidden call under way: which it is in order, and when it was started.
    pub hidden: (usize, u64),
}

pub(super) enum SlotKind {
    Together(Prepared),
    Send(Message),
    Receive(Message),
}

/// The second half of an average.
#[derive(Clone, Copy)]
pub(super) struct Divide {
    pub element: commgauge_base::element::ElementType,
    pub ranks: u32,
    pub bytes: usize,
}

pub(super) fn prepare(
    program: &ReplayProgram,
    slot: &Slot,
    communicator: &Communicator,
    group: &[u32],
    me: u32,
    seed: u64,
) -> Result<SlotCall> {
    let op = program.op_of(slot);
    let geometry = &program.geometries[slot.op as usize];
    let elements = geometry.bytes_total.0 / geometry.element_bytes;
    let message = |peer, stream| Message::new(elements, Datatype::of(op.element), peer, stream, communicator);
    let seed = seed_of(seed, group[0]);
    let (kind, data, divide) = match slot.movement {
        Movement::Send { to, stream } => (
            SlotKind::Send(message(to, stream)?),
            SlotData::sent(op.element, elements, group[me as usize], stream),
            None,
        ),
        Movement::Receive { from, stream } => {
            let data = SlotData::received(op.element, elements, group[from as usize], stream);
            (SlotKind::Receive(message(from, stream)?), data, None)
        }
        Movement::Together => {
            let placement = placement_of(op.collective);
            let view = View { collective: op.collective, placement, geometry, group, me, root: op.root };
            let reduce_op = op.collective.reduces().then(|| op.reduce_op.unwrap_or_default());
            let operation = reduce_op.map(|reduce| Operation::of(reduce, op.element)).transpose()?;
            let prepared = Prepared::new(&view, communicator, Datatype::of(op.element), operation)?;
            let own = geometry.blocks[me as usize] * geometry.element_bytes;
            let divide = (reduce_op == Some(ReduceOp::Avg)).then_some(Divide {
                element: op.element,
                ranks: group.len() as u32,
                bytes: own as usize,
            });
            (SlotKind::Together(prepared), SlotData::collective(op.element, reduce_op, &view, seed), divide)
        }
    };
    let (named, crossing) = match &kind {
        SlotKind::Together(prepared) => {
            let crossing = prepared.elements_exchanged_with_others(me);
            // Dropped tokens are part of the nominal size but are not sent, so no count that MPI sees includes them.
            let named = crossing.map_or_else(|| prepared.elements_named(group.len() as u32), |_| elements);
            (named, crossing.unwrap_or(0))
        }
        SlotKind::Send(message) | SlotKind::Receive(message) => (message.elements(), 0),
    };
    let of = |elements: u64| elements * geometry.element_bytes;
    Ok(SlotCall {
        kind,
        data,
        request: Request::none(),
        offsets: Offsets { send: 0, receive: 0 },
        op: slot.op as usize,
        axis: program.groups[slot.op as usize],
        bytes: CallBytes { payload: of(named), crossing: of(crossing) },
        divide,
        at_once: false,
        is_hidden: false,
        hidden: (0, 0),
    })
}

/// Groups differ in their data, so that a message that strays is found.
fn seed_of(seed: u64, first_rank: u32) -> u64 {
    seed ^ u64::from(first_rank).wrapping_mul(0xa076_1d64_78bd_642f)
}
