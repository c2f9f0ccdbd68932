//! Traffic of a rank in a replay: calls and bytes per op, summed up by axis.

use super::AxisBytes;
use commgauge_base::collective::Collective;
use commgauge_base::error::{Error, Result};
use commgauge_base::geometry::Geometry;
use commgauge_base::units::Bytes;
use commgauge_model::layout::Axis;
use commgauge_model::workload::Op;
use commgauge_model::workload::replay::ReplayProgram;

/// Calls of an op that were started, and the bytes of their size arguments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counted {
    pub calls: u64,
    pub payload_bytes: u64,
    pub crossing_bytes: u64,
}

/// The bytes of one call of an op on a rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CallBytes {
    /// The size argument.
    pub payload: u64,
    /// For an all_to_all_v: the bytes that the rank sends to others or receives from others, whichever is more.
    pub crossing: u64,
}

impl Counted {
    #[inline]
    pub(super) fn add(&mut self, call: CallBytes) {
        self.calls += 1;
        self.payload_bytes += call.payload;
        self.crossing_bytes += call.crossing;
    }
}

/// Bytes that a rank of a group sends to others in an all_to_all_v or receives from them, whichever is more; 0 for
/// other collectives.
pub(super) fn crossing_bytes(op: &Op, geometry: &Geometry, me: u32) -> u64 {
    if op.collective == Collective::AllToAllV { geometry.bytes_with_others(me) } else { 0 }
}

/// Sums up by axis; `counted` has one entry for each op of the program.
///
/// # Errors
/// Where the bytes pass 64 bits.
pub(super) fn by_axis(program: &ReplayProgram, counted: &[Counted]) -> Result<Vec<AxisBytes>> {
    let mut axes: Vec<AxisBytes> = Vec::new();
    for axis in Axis::ALL {
        let mut sum = AxisBytes { axis, calls: 0, payload: Bytes(0), wire: Bytes(0) };
        for ((op, geometry), counted) in program.ops.iter().zip(&program.geometries).zip(counted) {
            if op.axis == axis {
                sum.calls += counted.calls;
                sum.payload.0 += counted.payload_bytes;
                // All calls of an op as one: what each sends is a share of its payload, rounded down over the step and not call by call.
                let together = Op { bytes_total: Bytes(counted.payload_bytes), ..op.clone() };
                let wire = match op.collective {
                    Collective::AllToAllV => Some(counted.crossing_bytes),
                    _ => together.wire_bytes(geometry.ranks(), 1),
                };
                let too_many = || Error::usage(format!("the bytes that a replay moves on {axis} do not fit 64 bits"));
                sum.wire.0 += wire.ok_or_else(too_many)?;
            }
        }
        if sum.calls > 0 {
            axes.push(sum);
        }
    }
    Ok(axes)
}
