//! NCCL's functions that move data.

use crate::communicator;
use crate::element::Element;
use crate::group;
use crate::op::{Call, Kind};
use crate::operator::{Named, Operator};
use crate::result::{Answer, INVALID_ARGUMENT, INVALID_USAGE, code_of, failure};
use std::ffi::c_int;
use std::sync::LazyLock;

/// What the environment forces that NCCL does not have: of the algorithms only ring and tree know other protocols than Simple.
static IMPOSSIBLE: LazyLock<Option<String>> = LazyLock::new(|| {
    let (algorithm, protocol) = (std::env::var("NCCL_ALGO").ok()?, std::env::var("NCCL_PROTO").ok()?);
    let known = ["Ring", "Tree"].iter().any(|name| name.eq_ignore_ascii_case(&algorithm));
    let simple = protocol.eq_ignore_ascii_case("Simple");
    (!known && !simple).then(|| format!("NCCL_ALGO was set to {algorithm}. NCCL_PROTO was set to {protocol}."))
});

struct Raw {
    kind: Kind,
    send: usize,
    receive: usize,
    count: usize,
    element: c_int,
    operator: c_int,
    peer: c_int,
    communicator: usize,
    stream: usize,
}

fn call(raw: Raw) -> c_int {
    code_of(checked(raw))
}

fn checked(raw: Raw) -> Answer {
    let element = Element::of(raw.element)?;
    let reduces = matches!(raw.kind, Kind::AllReduce | Kind::Reduce | Kind::ReduceScatter);
    let operator = match reduces {
        true => Named::of(raw.operator, element, &*communicator::find(raw.communicator)?)?,
        false => Named::Now(Operator::Sum),
    };
    let Ok(peer) = u32::try_from(raw.peer) else {
        return failure(INVALID_ARGUMENT, format!("rank {} is named", raw.peer));
    };
    let Raw { kind, send, receive, count, .. } = raw;
    if kind == Kind::AllReduce
        && let Some(forced) = &*IMPOSSIBLE
    {
        return failure(INVALID_USAGE, format!("no algorithm/protocol available for function AllReduce. {forced}"));
    }
    if kind == Kind::AllToAll && send == receive && count > 0 {
        return failure(INVALID_ARGUMENT, "all_to_all in place is not offered");
    }
    group::call(
        raw.communicator,
        raw.stream,
        Call { kind, send, receive, count, element, operator, peer, is_registered: false },
    )
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclAllReduce(
    send: usize,
    receive: usize,
    count: usize,
    element: c_int,
    operator: c_int,
    communicator: usize,
    stream: usize,
) -> c_int {
    call(Raw { kind: Kind::AllReduce, send, receive, count, element, operator, peer: 0, communicator, stream })
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclReduce(
    send: usize,
    receive: usize,
    count: usize,
    element: c_int,
    operator: c_int,
    root: c_int,
    communicator: usize,
    stream: usize,
) -> c_int {
    call(Raw { kind: Kind::Reduce, send, receive, count, element, operator, peer: root, communicator, stream })
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclReduceScatter(
    send: usize,
    receive: usize,
    count: usize,
    element: c_int,
    operator: c_int,
    communicator: usize,
    stream: usize,
) -> c_int {
    call(Raw { kind: Kind::ReduceScatter, send, receive, count, element, operator, peer: 0, communicator, stream })
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclAllGather(
    send: usize,
    receive: usize,
    count: usize,
    element: c_int,
    communicator: usize,
    stream: usize,
) -> c_int {
    call(Raw { kind: Kind::AllGather, send, receive, count, element, operator: 0, peer: 0, communicator, stream })
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclBroadcast(
    send: usize,
    receive: usize,
    count: usize,
    element: c_int,
    root: c_int,
    communicator: usize,
    stream: usize,
) -> c_int {
    call(Raw { kind: Kind::Broadcast, send, receive, count, element, operator: 0, peer: root, communicator, stream })
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclBcast(
    buffer: usize,
    count: usize,
    element: c_int,
    root: c_int,
    communicator: usize,
    stream: usize,
) -> c_int {
    ncclBroadcast(buffer, buffer, count, element, root, communicator, stream)
}

#[cfg(since_2_28)]
#[unsafe(no_mangle)]
pub extern "C" fn ncclAlltoAll(
    send: usize,
    receive: usize,
    count: usize,
    element: c_int,
    communicator: usize,
    stream: usize,
) -> c_int {
    call(Raw { kind: Kind::AllToAll, send, receive, count, element, operator: 0, peer: 0, communicator, stream })
}

#[cfg(since_2_28)]
#[unsafe(no_mangle)]
pub extern "C" fn ncclGather(
    send: usize,
    receive: usize,
    count: usize,
    element: c_int,
    root: c_int,
    communicator: usize,
    stream: usize,
) -> c_int {
    call(Raw { kind: Kind::Gather, send, receive, count, element, operator: 0, peer: root, communicator, stream })
}

#[cfg(since_2_28)]
#[unsafe(no_mangle)]
pub extern "C" fn ncclScatter(
    send: usize,
    receive: usize,
    count: usize,
    element: c_int,
    root: c_int,
    communicator: usize,
    stream: usize,
) -> c_int {
    call(Raw { kind: Kind::Scatter, send, receive, count, element, operator: 0, peer: root, communicator, stream })
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclSend(
    send: usize,
    count: usize,
    element: c_int,
    peer: c_int,
    communicator: usize,
    stream: usize,
) -> c_int {
    call(Raw { kind: Kind::Send, send, receive: 0, count, element, operator: 0, peer, communicator, stream })
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclRecv(
    receive: usize,
    count: usize,
    element: c_int,
    peer: c_int,
    communicator: usize,
    stream: usize,
) -> c_int {
    call(Raw { kind: Kind::Receive, send: 0, receive, count, element, operator: 0, peer, communicator, stream })
}
