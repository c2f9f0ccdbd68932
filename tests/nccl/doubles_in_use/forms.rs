//! The forms of using NCCL: groups, splits, communicators that do not block, graphs, several streams, registered buffers.

use crate::doubles_in_use::api::{call, good};
use crate::doubles_in_use::nccl::{Config, Rank, eventually};
use std::ffi::c_int;

/// Messages around the ring in a group, larger than what is carried at once, with an all_reduce among them.
pub fn a_group_posts_its_calls_together(rank: Rank) {
    let (count, me, ranks) = (200_000, rank.me.rank, rank.me.ranks);
    let (out, inward, sum) = (rank.floats(count, me as f32), rank.floats(count, -1.0), rank.floats(10, 1.0));
    good!(rank.nccl, "ncclGroupStart");
    assert_eq!(rank.send(out, count, (me + 1) % ranks), 0);
    assert_eq!(rank.all_reduce(sum, 10), 0);
    assert_eq!(rank.receive(inward, count, (me + ranks - 1) % ranks), 0);
    assert!(rank.is_idle(), "nothing begins before the end of the group");
    good!(rank.nccl, "ncclGroupEnd");
    rank.cuda.synchronize();
    assert_eq!(rank.values(inward, count), vec![((me + ranks - 1) % ranks) as f32; count]);
    assert_eq!(rank.values(sum, 10), vec![ranks as f32; 10]);

    // A wrong call spoils its whole group, and the communicator lives on.
    good!(rank.nccl, "ncclGroupStart");
    assert_eq!(rank.all_reduce(sum, 10), 0);
    assert_eq!(rank.send(out, count + 1, 0), 4, "one element too long for its buffer");
    assert_eq!(call!(rank.nccl, "ncclGroupEnd"), 4);
    assert_eq!(call!(rank.nccl, "ncclGroupEnd"), 5, "no group is open");
    good!(rank.nccl, "ncclGroupStart");
    assert_eq!(call!(rank.nccl, "ncclCommDestroy", rank.communicator => usize), 5, "a group is open");
    good!(rank.nccl, "ncclGroupEnd");
    predicts(&rank, sum);
    rank.finish();
}

/// NCCL's own prediction of a group, which is then not carried out.
fn predicts(rank: &Rank, buffer: usize) {
    #[repr(C)]
    struct Simulation(usize, u32, u32, f32);
    let mut simulation = Simulation(size_of::<Simulation>(), 0x7468_5283, 23007, -1.0);
    good!(rank.nccl, "ncclGroupStart");
    assert_eq!(rank.all_reduce(buffer, 10), 0);
    good!(rank.nccl, "ncclGroupSimulateEnd", &mut simulation => *mut Simulation);
    // With one rank it is a copy that is enqueued at once, without an error.
    let alone = rank.me.ranks == 1;
    assert_eq!(simulation.3, if alone { -1.0 } else { 10.0 + 40.0 * 1e-4 });
    assert!(alone || rank.is_idle());

    simulation.3 = -1.0;
    good!(rank.nccl, "ncclGroupStart");
    assert_eq!(rank.send(buffer, 10, rank.me.rank), 0);
    assert_eq!(rank.receive(buffer, 10, rank.me.rank), 0);
    good!(rank.nccl, "ncclGroupSimulateEnd", &mut simulation => *mut Simulation);
    assert_eq!(simulation.3, -1.0, "of messages there is no estimate");
    assert_eq!(rank.send(buffer, 10, rank.me.rank), 5, "the simulated ones would be carried first");
    assert_eq!(rank.all_reduce(buffer, 10), 0);
}

/// Even and odd ranks, in reverse order; the last rank in no group.
pub fn a_split_makes_groups_by_colour_and_key(rank: Rank) {
    let (me, ranks) = (rank.me.rank as c_int, rank.me.ranks as c_int);
    let colour = if me == ranks - 1 { -1 } else { me % 2 };
    let mut part = 0usize;
    let none = std::ptr::null::<Config>();
    good!(
        rank.nccl, "ncclCommSplit", rank.communicator => usize, colour => c_int, -me => c_int, &mut part => *mut usize,
        none => *const Config,
    );
    assert_eq!(part == 0, colour < 0);
    if part != 0 {
        let (mut number, mut count) = (0, 0);
        good!(rank.nccl, "ncclCommUserRank", part => usize, &mut number => *mut c_int);
        good!(rank.nccl, "ncclCommCount", part => usize, &mut count => *mut c_int);
        let members: Vec<c_int> = (0..ranks - 1).filter(|other| other % 2 == colour).rev().collect();
        assert_eq!((members[number as usize], count as usize), (me, members.len()));
        let buffer = rank.floats(10, me as f32);
        good!(
            rank.nccl, "ncclAllReduce", buffer => usize, buffer => usize, 10 => usize, 7 => c_int, 0 => c_int, part => usize,
            rank.cuda.stream => usize,
        );
        rank.cuda.synchronize();
        assert_eq!(rank.values(buffer, 10), vec![members.iter().sum::<c_int>() as f32; 10]);
        good!(rank.nccl, "ncclCommDestroy", part => usize);
        assert_eq!(call!(rank.nccl, "ncclCommDestroy", part => usize), 4, "destroyed twice");
    }
    rank.finish();
}

/// Every call returns "in progress" and is on the stream only once the state says so.
pub fn a_communicator_that_does_not_block_is_in_progress_first(rank: Rank) {
    eventually("the communicator", || rank.state() != 7);
    assert_eq!(rank.state(), 0);
    let buffer = rank.floats(10, 1.0);
    for _ in 0..3 {
        assert_eq!(rank.all_reduce(buffer, 10), 7);
        eventually("the call", || rank.state() == 0);
    }
    rank.cuda.synchronize();
    assert_eq!(rank.values(buffer, 10), vec![(rank.me.ranks as f32).powi(3); 10]);
    assert_eq!(call!(rank.nccl, "ncclCommFinalize", rank.communicator => usize), 7);
    eventually("the end", || rank.state() == 0);
    good!(rank.nccl, "ncclCommDestroy", rank.communicator => usize);
}

/// What was captured, over two streams, is done at each launch and not before.
pub fn a_graph_does_again_what_was_captured(rank: Rank) {
    let cuda = &rank.cuda.library;
    let (buffer, copy) = (rank.floats(10, 1.0), rank.floats(10, 0.0));
    let (mut graph, mut executable, mut side, mut forked, mut joined) = (0usize, 0usize, 0usize, 0usize, 0usize);
    good!(cuda, "cuStreamCreate", &mut side => *mut usize, 1 => u32);
    for event in [&mut forked, &mut joined] {
        good!(cuda, "cuEventCreate", event => *mut usize, 2 => u32);
    }
    let begin = || good!(cuda, "cuStreamBeginCapture_v2", rank.cuda.stream => usize, 2 => c_int);
    begin();
    assert_eq!(rank.all_reduce(copy, 10), 1, "what was never called would connect within the capture");
    good!(cuda, "cuStreamEndCapture", rank.cuda.stream => usize, &mut graph => *mut usize);
    good!(cuda, "cuGraphDestroy", graph => usize);
    assert_eq!(rank.all_reduce(copy, 10), 0);
    rank.cuda.synchronize();
    begin();
    assert_eq!(rank.all_reduce(buffer, 10), 0);
    good!(cuda, "cuEventRecord", forked => usize, rank.cuda.stream => usize);
    good!(cuda, "cuStreamWaitEvent", side => usize, forked => usize, 0 => u32);
    good!(cuda, "cuMemcpyDtoDAsync_v2", copy => usize, buffer => usize, 40 => usize, side => usize);
    good!(cuda, "cuEventRecord", joined => usize, side => usize);
    good!(cuda, "cuStreamWaitEvent", rank.cuda.stream => usize, joined => usize, 0 => u32);
    good!(cuda, "cuStreamEndCapture", rank.cuda.stream => usize, &mut graph => *mut usize);
    good!(cuda, "cuGraphInstantiateWithFlags", &mut executable => *mut usize, graph => usize, 0 => u64);
    assert_eq!(rank.values(buffer, 10), vec![1.0; 10], "capturing carries nothing out");
    for turn in 1..4 {
        good!(cuda, "cuGraphLaunch", executable => usize, rank.cuda.stream => usize);
        rank.cuda.synchronize();
        let expected = vec![(rank.me.ranks as f32).powi(turn); 10];
        assert_eq!((rank.values(buffer, 10), rank.values(copy, 10)), (expected.clone(), expected));
    }
    gives_up_only_without_graphs(&rank, graph, executable);

    good!(cuda, "cuStreamBeginCapture_v2", side => usize, 2 => c_int);
    assert_eq!(call!(cuda, "cuStreamSynchronize", side => usize), 900);
    assert_eq!(call!(cuda, "cuStreamEndCapture", side => usize, &mut graph => *mut usize), 901);
}

/// A communicator cannot be aborted while graphs contain its calls.
fn gives_up_only_without_graphs(rank: &Rank, graph: usize, executable: usize) {
    let (cuda, communicator) = (&rank.cuda.library, rank.communicator);
    let aborting = std::thread::spawn(
        move || call!(crate::doubles_in_use::api::Library::load("libnccl.so.2"), "ncclCommAbort", communicator => usize),
    );
    std::thread::sleep(std::time::Duration::from_millis(30));
    good!(cuda, "cuGraphDestroy", graph => usize);
    assert!(!aborting.is_finished(), "the executable holds the calls as well");
    good!(cuda, "cuGraphExecDestroy", executable => usize);
    assert_eq!(aborting.join().expect("it returns"), 0);
}

/// Calls on two streams are carried out in the order in which they were made, on every rank.
pub fn calls_on_several_streams_keep_their_order(rank: Rank) {
    let mut other = 0usize;
    good!(rank.cuda.library, "cuStreamCreate", &mut other => *mut usize, 1 => u32);
    let buffers = [rank.floats(50_000, 1.0), rank.floats(10, 2.0)];
    for _ in 0..20 {
        for (buffer, count, stream) in [(buffers[0], 50_000, rank.cuda.stream), (buffers[1], 10, other)] {
            good!(
                rank.nccl, "ncclAllReduce", buffer => usize, buffer => usize, count => usize, 7 => c_int, 2 => c_int,
                rank.communicator => usize, stream => usize,
            );
        }
    }
    good!(rank.cuda.library, "cuCtxSynchronize");
    assert_eq!((rank.values(buffers[0], 1), rank.values(buffers[1], 1)), (vec![1.0], vec![2.0]));
    rank.finish();
}

/// Buffers that NCCL allocates, or that are registered with it.
pub fn registered_buffers_are_known(rank: Rank) {
    let (mut memory, mut handle, mut window) = (0usize, 0usize, 0usize);
    good!(rank.nccl, "ncclMemAlloc", &mut memory => *mut usize, 5000 => usize);
    let register = |bytes: usize, handle: &mut usize| call!(rank.nccl, "ncclCommRegister", rank.communicator => usize, memory => usize, bytes => usize, handle => *mut usize);
    assert_eq!(register(5000, &mut handle), 0);
    assert_eq!(register(50_000, &mut handle.clone()), 4, "more than was allocated");
    let plain = rank.floats(10, 1.0);
    let registered = call!(
        rank.nccl, "ncclCommRegister", rank.communicator => usize, plain => usize, 40 => usize, &mut window => *mut usize,
    );
    assert_eq!((registered, window), (4, 0), "not of ncclMemAlloc");
    let windowed = |address: usize, window: &mut usize| {
        call!(
            rank.nccl, "ncclCommWindowRegister", rank.communicator => usize, address => usize, 1000 => usize,
            window => *mut usize, 1 => c_int,
        )
    };
    assert_eq!(windowed(memory, &mut window), 0);
    assert_eq!(windowed(memory + 512, &mut window.clone()), 4, "not aligned");
    let mut other = 0usize;
    let bytes = if rank.me.rank == 0 { 5000 } else { 50_000 };
    good!(rank.nccl, "ncclMemAlloc", &mut other => *mut usize, bytes => usize);
    assert_eq!(windowed(other, &mut window.clone()), 4, "ranks that allocated more than others");
    good!(rank.nccl, "ncclMemFree", other => usize);
    assert_eq!(rank.all_reduce(memory, 100), 0);
    good!(rank.nccl, "ncclCommWindowDeregister", rank.communicator => usize, window => usize);
    good!(rank.nccl, "ncclCommDeregister", rank.communicator => usize, handle => usize);
    assert_eq!(call!(rank.nccl, "ncclCommDeregister", rank.communicator => usize, handle => usize), 4, "a second time");
    rank.cuda.synchronize();
    good!(rank.nccl, "ncclMemFree", memory => usize);
    assert_eq!(call!(rank.nccl, "ncclMemFree", memory => usize), 1, "a second time");
    rank.finish();
}
