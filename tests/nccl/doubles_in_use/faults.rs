//! Injected faults, seen from every rank: rank 1 of three is the affected one.

use crate::doubles_in_use::api::{call, good};
use crate::doubles_in_use::nccl::{Rank, eventually};
use std::ffi::c_int;
use std::time::{Duration, Instant};

/// The rank and the op of the faults of the tests.
const STRUCK: usize = 1;

/// Two all_reduces of which the second fails; returns whether this rank is the affected one.
fn until_the_second(rank: &Rank) -> (usize, bool) {
    let buffer = rank.floats(1000, 1.0);
    assert_eq!(rank.all_reduce(buffer, 1000), 0);
    rank.cuda.synchronize();
    assert_eq!(rank.values(buffer, 1000), vec![rank.me.ranks as f32; 1000], "the first went well");
    assert_eq!(rank.all_reduce(buffer, 1000), 0);
    (buffer, rank.me.rank == STRUCK)
}

/// Nothing ends until it is aborted, and then everything does.
fn stuck_until_aborted(rank: &Rank) {
    std::thread::sleep(Duration::from_millis(100));
    assert!(!rank.is_idle());
    rank.abort();
    eventually("the stream after the abort", || rank.is_idle());
}

pub fn hang(rank: Rank) {
    let (buffer, _) = until_the_second(&rank);
    let end = rank.cuda.mark();
    assert_eq!(call!(rank.cuda.library, "cuEventQuery", end => usize), 600, "not ready");
    assert_eq!(rank.state(), 0, "a hang is no error");
    stuck_until_aborted(&rank);
    rank.cuda.free(buffer);
}

pub fn slow(rank: Rank) {
    let start = rank.cuda.mark();
    until_the_second(&rank);
    let end = rank.cuda.mark();
    rank.cuda.synchronize();
    assert!(rank.cuda.milliseconds(start, end) >= 50.0, "all wait for the slow one");
    rank.finish();
}

pub fn corrupt(rank: Rank) {
    let (buffer, struck) = until_the_second(&rank);
    rank.cuda.synchronize();
    let right = (rank.me.ranks * rank.me.ranks) as f32;
    let wrong: Vec<_> =
        rank.values(buffer, 1000).into_iter().enumerate().filter(|(_, value)| *value != right).collect();
    assert_eq!(wrong.len(), usize::from(struck), "{wrong:?}");
    assert!(wrong.iter().all(|(index, value)| *index == 500 && value.to_bits() == right.to_bits() ^ 1));
    rank.finish();
}

pub fn async_error(rank: Rank) {
    let (buffer, struck) = until_the_second(&rank);
    if struck {
        rank.cuda.synchronize();
        assert_eq!(rank.state(), 6);
        assert_eq!(rank.values(buffer, 1), vec![rank.me.ranks as f32], "what was there before is still there");
        assert_eq!(rank.all_reduce(buffer, 1000), 6, "and nothing more is taken");
        rank.abort();
    } else {
        stuck_until_aborted(&rank);
    }
}

pub fn error(rank: Rank) {
    let buffer = rank.floats(1000, 1.0);
    assert_eq!(rank.all_reduce(buffer, 1000), 0);
    rank.cuda.synchronize();
    let code = rank.all_reduce(buffer, 1000);
    if rank.me.rank == STRUCK {
        assert_eq!(code, 3);
        assert!(rank.is_idle());
        rank.abort();
    } else {
        stuck_until_aborted(&rank);
    }
}

pub fn lost(rank: Rank) {
    let (buffer, struck) = until_the_second(&rank);
    if !struck {
        return stuck_until_aborted(&rank);
    }
    let waited = call!(rank.cuda.library, "cuStreamSynchronize", rank.cuda.stream => usize);
    assert_eq!(waited, 719);
    assert_eq!(call!(rank.cuda.library, "cuMemFree_v2", buffer => usize), 719, "it stays lost");
    assert_eq!(rank.all_reduce(buffer, 10), 4, "no buffer is known any more");
    rank.abort();
}

pub fn kill(rank: Rank) {
    until_the_second(&rank);
    stuck_until_aborted(&rank);
    assert_ne!(rank.me.rank, STRUCK, "it is gone");
}

pub fn open_group(rank: Rank) {
    let (buffer, struck) = until_the_second(&rank);
    if struck {
        rank.cuda.synchronize();
        assert_eq!(rank.values(buffer, 1), vec![rank.me.ranks as f32], "the second never began");
        assert_eq!(call!(rank.nccl, "ncclCommDestroy", rank.communicator => usize), 5);
        rank.abort();
    } else {
        stuck_until_aborted(&rank);
    }
}

/// The ranks call different collectives: an error, not a hang.
pub fn different_calls(rank: Rank) {
    let buffer = rank.floats(1000, 1.0);
    let count = if rank.me.rank == STRUCK { 999 } else { 1000 };
    assert_eq!(rank.all_reduce(buffer, count), 0);
    eventually("the error", || rank.state() == 5);
    rank.abort();
}

/// A rank that is missing when a communicator is created; the others can abort.
pub fn init_hang(rank: Rank) {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(100) {
        assert_eq!(rank.state(), 7);
    }
    rank.abort();
}

pub fn out_of_memory(rank: Rank) {
    let allocate = || {
        let mut address = 0usize;
        call!(rank.cuda.library, "cuMemAlloc_v2", &mut address => *mut usize, 4096 => usize)
    };
    let codes: Vec<c_int> = (0..3).map(|_| allocate()).collect();
    assert_eq!(codes, if rank.me.rank == STRUCK { [0, 2, 0] } else { [0; 3] });
    let mut address = 0usize;
    let too_much = call!(rank.cuda.library, "cuMemAlloc_v2", &mut address => *mut usize, 1 << 20 => usize);
    assert_eq!(too_much, 2, "the device has 1 MiB, some of it used");
    let (mut free, mut total) = (0usize, 0usize);
    good!(rank.cuda.library, "cuMemGetInfo_v2", &mut free => *mut usize, &mut total => *mut usize);
    assert_eq!((total, total - free), (1 << 20, 4096 * codes.iter().filter(|code| **code == 0).count()));
}

/// Two ranks on one device, which NCCL from 2.30 on allows if configured.
pub fn shared_device(rank: Rank) {
    let device_of_all = 0;
    let mut context = 0usize;
    good!(rank.cuda.library, "cuDevicePrimaryCtxRetain", &mut context => *mut usize, device_of_all => c_int);
    good!(rank.cuda.library, "cuCtxSetCurrent", context => usize);
    let (mut communicator, id) = (0usize, rank.unique_id());
    let code = call!(
        rank.nccl, "ncclCommInitRank", &mut communicator => *mut usize, rank.me.ranks as c_int => c_int,
        id => crate::doubles_in_use::api::UniqueId, rank.me.rank as c_int => c_int,
    );
    let allowed = std::env::var("NCCL_MULTI_RANK_GPU_ENABLE").is_ok_and(|value| value == "1");
    assert_eq!(code, if allowed { 0 } else { 5 });
}
