//! The interference line: a call measured alone, and the same call while calls of another axis are in flight.

use super::outcome::Outcome;
use crate::layout::Axis;
use crate::workload::{Op, Style};
use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use commgauge_base::units::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One call of a replicate, alone and beside another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct InterferenceLine {
    /// Index in the plan's `steps`.
    pub step: u32,
    /// Which repetition, from 0; each has fresh communicators.
    pub replicate: u32,
    /// The call that is timed.
    pub timed: InterferingCall,
    /// The call that is under way meanwhile.
    pub beside: InterferingCall,
    /// What came of it.
    pub outcome: Outcome,
    /// Calls of `beside` that are started before the timed one.
    pub calls_beside: u32,
    /// From the start of the timed call to the moment at which it was seen done, on the rank that took longest; nothing beside it.
    pub alone_nanoseconds: Vec<u64>,
    /// The same with the other calls beside it.
    pub together_nanoseconds: Vec<u64>,
    /// What that rank still waited for the other calls after the timed one was done: above 0 they were under way all the time.
    pub still_waited_nanoseconds: Vec<u64>,
    /// One call of `beside` alone, on the rank that took longest.
    pub beside_alone_nanoseconds: Vec<u64>,
}

/// A call that takes part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct InterferingCall {
    /// Axis whose groups carry it out, all at once.
    pub axis: Axis,
    /// Who asks for it.
    pub style: Style,
    /// The call.
    pub collective: Collective,
    /// Type of the elements.
    pub element_type: ElementType,
    /// The size argument in the sense of nccl-tests.
    pub bytes_total: Bytes,
}

impl InterferingCall {
    /// The record form of an op.
    pub fn of(op: &Op) -> InterferingCall {
        InterferingCall {
            axis: op.axis,
            style: op.style,
            collective: op.collective,
            element_type: op.element,
            bytes_total: op.bytes_total,
        }
    }
}
