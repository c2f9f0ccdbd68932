//! Every collective, type, operation and placement, filled and checked by the kernels.

use crate::doubles_in_use::api::{Kernels, call, good};
use crate::doubles_in_use::kernels::Filled;
use crate::doubles_in_use::nccl::Rank;
use commgauge::collective::{Collective, Placement, ReduceOp};
use commgauge::element::ElementType;
use commgauge::geometry::{Geometry, Splits};
use commgauge::pattern::segments::View;
use commgauge::pattern::{Buffer, Pattern, Segment};
use commgauge::units::Bytes;
use std::ffi::c_int;

const SEED: u64 = 99;

/// Those that NCCL has a function for; the others are made of messages.
const COLLECTIVES: [Collective; 8] = [
    Collective::AllReduce,
    Collective::AllGather,
    Collective::ReduceScatter,
    Collective::Broadcast,
    Collective::Reduce,
    Collective::Gather,
    Collective::Scatter,
    Collective::AllToAll,
];

/// One that is carried in one piece, and one in several.
const SIZES: [u64; 2] = [6000, 400_000];

pub fn is_right(rank: Rank) {
    let mut cases = 0;
    for collective in COLLECTIVES {
        for element in ElementType::ALL {
            let ops: Vec<_> = if collective.reduces() { ReduceOp::ALL.map(Some).into() } else { vec![None] };
            for op in ops {
                for placement in collective.placements() {
                    let refused = collective == Collective::AllToAll && *placement == Placement::InPlace;
                    for bytes in SIZES {
                        let many = bytes == SIZES[1] && element != ElementType::Bfloat16 && element.size() != 8;
                        if !refused && !many {
                            check(&rank, collective, element, op, *placement, Bytes(bytes));
                            cases += 1;
                        }
                    }
                }
            }
        }
    }
    assert!(cases > 400, "{cases} cases");
    rank.finish();
}

fn check(
    rank: &Rank,
    collective: Collective,
    element: ElementType,
    op: Option<ReduceOp>,
    placement: Placement,
    bytes: Bytes,
) {
    let ranks = rank.me.ranks as u32;
    let geometry = Geometry::new(collective, element, bytes, ranks, &Splits::Equal).expect("it exists");
    let group: Vec<u32> = (0..ranks).collect();
    let (me, root) = (rank.me.rank as u32, ranks - 1);
    let view = View { collective, placement, geometry: &geometry, group: &group, me, root };
    let pattern = Pattern::new(element, op, ranks, SEED);
    let (send_elements, receive_elements) = view.buffer_elements();
    let allocate =
        |elements: u64| if elements == 0 { 0 } else { rank.cuda.allocate((elements * element.size()) as usize) };
    let (send, receive) = (allocate(send_elements), allocate(receive_elements));
    let kernels = Kernels::load(&rank.cuda);
    let filled = Filled { cuda: &rank.cuda, kernels: &kernels, element, seed: SEED };
    let place = |segment: &Segment| {
        let buffer = if segment.buffer == Buffer::Send { send } else { receive };
        buffer + (segment.offset * element.size()) as usize
    };
    // MPI leaves the result of a reduce_scatter in place at the beginning of the buffer, NCCL at the rank's own block.
    let at_own_block = collective == Collective::ReduceScatter && placement == Placement::InPlace;
    let shift = if at_own_block { geometry.block_start(me) } else { 0 };
    let outputs: Vec<_> =
        view.outputs(7).into_iter().map(|one| Segment { offset: one.offset + shift, ..one }).collect();
    for segment in &outputs {
        filled.fill(&pattern, segment.source, place(segment), segment.elements, true);
    }
    for segment in view.inputs(7) {
        filled.fill(&pattern, segment.source, place(&segment), segment.elements, false);
    }
    issue(rank, &view, element, op, send, receive);
    rank.cuda.synchronize();
    assert_eq!(rank.state(), 0);
    for segment in &outputs {
        let wrong = filled.verify(&pattern, segment.source, place(segment), segment.elements);
        assert_eq!(wrong, (0, u64::MAX), "{collective} of {element} {op:?} {placement} on {ranks} ranks, {bytes}");
    }
    for buffer in [send, receive].into_iter().filter(|buffer| *buffer != 0) {
        rank.cuda.free(buffer);
    }
}

/// The call in NCCL's form: in place, one buffer is a part of the other.
fn issue(rank: &Rank, view: &View, element: ElementType, op: Option<ReduceOp>, send: usize, receive: usize) {
    use Collective::*;
    let block = view.geometry.blocks[view.me as usize];
    let own = (block * element.size()) as usize * view.me as usize;
    let (send, receive) = match (view.collective, view.placement) {
        (AllReduce, Placement::InPlace) => (receive, receive),
        (AllGather, Placement::InPlace) => (receive + own, receive),
        (ReduceScatter, Placement::InPlace) => (receive, receive + own),
        (Reduce, Placement::InPlace) if view.me == view.root => (receive, receive),
        (Gather, Placement::InPlace) if view.me == view.root => (receive + own, receive),
        (Scatter, Placement::InPlace) if view.me == view.root => (send, send + own),
        (Broadcast, _) => (receive, receive),
        _ => (send, receive),
    };
    let (count, element, root) = (block as usize, number_of(element), view.root as c_int);
    let op = op.map_or(0, |op| match op {
        ReduceOp::Sum => 0,
        ReduceOp::Prod => 1,
        ReduceOp::Max => 2,
        ReduceOp::Min => 3,
        ReduceOp::Avg => 4,
        ReduceOp::PreMulSum => unreachable!("it is made by a communicator, and not among ReduceOp::ALL"),
    });
    let (communicator, stream) = (rank.communicator, rank.cuda.stream);
    macro_rules! issue {
        ($name:literal $(, $more:expr)*) => {
            good!(
                rank.nccl, $name, send => usize, receive => usize, count => usize, element => c_int $(, $more => c_int)*,
                communicator => usize, stream => usize,
            )
        };
    }
    match view.collective {
        AllReduce => issue!("ncclAllReduce", op),
        Reduce => issue!("ncclReduce", op, root),
        ReduceScatter => issue!("ncclReduceScatter", op),
        AllGather => issue!("ncclAllGather"),
        Broadcast => issue!("ncclBroadcast", root),
        Gather => issue!("ncclGather", root),
        Scatter => issue!("ncclScatter", root),
        AllToAll => issue!("ncclAlltoAll"),
        other => panic!("{other} is no function of NCCL"),
    }
}

/// The number of a type in NCCL's header.
fn number_of(element: ElementType) -> c_int {
    use ElementType::*;
    let order = [Int8, Uint8, Int32, Uint32, Int64, Uint64, Float16, Float32, Float64, Bfloat16, Fp8E4m3, Fp8E5m2];
    order.iter().position(|one| *one == element).expect("every type is in NCCL's header") as c_int
}

/// A sum of data that are multiplied first, by a number of the host and by one of the device.
pub fn multiplies_first(rank: Rank) {
    let count = 100;
    let scalar = rank.floats(1, 0.5);
    for (residence, place) in [(1, (&0.5f32) as *const f32 as usize), (0, scalar)] {
        let buffer = rank.floats(count, 2.0 * (rank.me.rank as f32 + 1.0));
        let mut operator = 0;
        good!(
            rank.nccl, "ncclRedOpCreatePreMulSum", &mut operator => *mut c_int, place => usize, 7 => c_int,
            residence => c_int, rank.communicator => usize,
        );
        assert!(operator >= 5);
        let with = |element: c_int| {
            call!(
                rank.nccl, "ncclAllReduce", buffer => usize, buffer => usize, count => usize, element => c_int,
                operator => c_int, rank.communicator => usize, rank.cuda.stream => usize,
            )
        };
        assert_eq!(with(2), 4, "it was made for another type");
        assert_eq!(with(7), 0);
        good!(rank.nccl, "ncclRedOpDestroy", operator => c_int, rank.communicator => usize);
        rank.cuda.synchronize();
        let sum = (rank.me.ranks * (rank.me.ranks + 1) / 2) as f32;
        assert_eq!(rank.values(buffer, count), vec![sum; count]);
        assert_eq!(with(7), 4, "it was destroyed");
        rank.cuda.free(buffer);
    }
    rank.finish();
}
