//! The kinds of calls of NCCL, and the parts of which some are made.

use crate::backend::nccl::abi::{RawCommunicator, RawStream};
use std::ffi::{c_int, c_void};

/// A call as NCCL is asked for it.
pub(super) enum Kind {
    AllReduce {
        count: usize,
    },
    AllGather {
        block: usize,
        own_offset: usize,
    },
    ReduceScatter {
        block: usize,
        own_offset: usize,
    },
    Broadcast {
        count: usize,
    },
    Reduce {
        count: usize,
        at_root: bool,
    },
    AllToAll {
        block: usize,
        call: AllToAll,
    },
    Gather {
        block: usize,
        own_offset: usize,
        at_root: bool,
        call: Rooted,
    },
    Scatter {
        block: usize,
        own_offset: usize,
        at_root: bool,
        call: Rooted,
    },
    /// Started together.
    Group(Vec<Piece>),
    /// One after the other.
    Turns(Vec<Piece>),
    Nothing,
}

pub(super) type AllToAll =
    unsafe extern "C" fn(*const c_void, *mut c_void, usize, c_int, RawCommunicator, RawStream) -> c_int;
pub(super) type Rooted =
    unsafe extern "C" fn(*const c_void, *mut c_void, usize, c_int, c_int, RawCommunicator, RawStream) -> c_int;

/// A part of a call, its place in bytes from the begin of its buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) what: Part,
    pub(super) offset: usize,
    pub(super) count: usize,
    pub(super) peer: c_int,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// From the send buffer.
    Send,
    /// From the receive buffer, which contains the input in place.
    SendOwn,
    Receive,
    /// One rank's block reduced to that rank; with `in_place` from its place in the receive buffer.
    Reduce {
        in_place: bool,
        receives: bool,
    },
}
