//! NCCL's functions that create, query and destroy communicators.

use crate::communicator::{self, Communicator};
use crate::config::{self, Asked, Config};
use crate::group;
use crate::op::Kind;
use crate::result::{Answer, INVALID_ARGUMENT, INVALID_USAGE, code_of, failure};
use crate::segment;
use std::ffi::c_int;
use std::sync::Arc;

/// The common id of the ranks of a communicator: here the name of a file.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct UniqueId([u8; 128]);

const MAGIC: &[u8] = b"commgauge double:";

impl UniqueId {
    fn name(&self) -> Answer<String> {
        let name = self.0.strip_prefix(MAGIC).and_then(|rest| rest.split(|byte| *byte == 0).next());
        let name = name.and_then(|name| std::str::from_utf8(name).ok()).filter(|name| !name.contains('/'));
        name.map_or_else(
            || failure(INVALID_ARGUMENT, "the unique id was not made by this library"),
            |name| Ok(name.to_owned()),
        )
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGetUniqueId(id: *mut UniqueId) -> c_int {
    code_of((|| {
        let name = segment::create()?;
        let mut bytes = [0; 128];
        bytes[..MAGIC.len()].copy_from_slice(MAGIC);
        bytes[MAGIC.len()..MAGIC.len() + name.len()].copy_from_slice(name.as_bytes());
        *id = UniqueId(bytes);
        Ok(())
    })())
}

/// Makes a communicator that is connected in a thread.
pub fn make(handle: &mut usize, rank: u32, ranks: u32, name: String, asked: Asked) -> Answer {
    *handle = 0;
    let communicator = Communicator::new(rank, ranks, asked)?;
    *handle = communicator::add(communicator.clone());
    let made = group::make(asked.blocking, move || communicator.connect(&name));
    if !group::is_open() && made.as_ref().is_err_and(|failure| failure.code != crate::result::IN_PROGRESS) {
        let _ = communicator::remove(std::mem::take(handle));
    }
    made
}

unsafe fn init(handle: *mut usize, ranks: c_int, id: UniqueId, rank: c_int, config: *const Config) -> Answer {
    let asked = config::read(config, true)?;
    let name = id.name()?;
    match (u32::try_from(rank), u32::try_from(ranks)) {
        (Ok(rank), Ok(ranks)) if rank < ranks && ranks <= 1024 => make(&mut *handle, rank, ranks, name, asked),
        _ => failure(INVALID_ARGUMENT, format!("rank {rank} of {ranks} ranks")),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommInitRank(handle: *mut usize, ranks: c_int, id: UniqueId, rank: c_int) -> c_int {
    code_of(init(handle, ranks, id, rank, std::ptr::null()))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommInitRankConfig(
    handle: *mut usize,
    ranks: c_int,
    id: UniqueId,
    rank: c_int,
    config: *const Config,
) -> c_int {
    code_of(init(handle, ranks, id, rank, config))
}

#[cfg(since_2_23)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommInitRankScalable(
    handle: *mut usize,
    ranks: c_int,
    rank: c_int,
    ids: c_int,
    id: *const UniqueId,
    config: *const Config,
) -> c_int {
    code_of(match usize::try_from(ids) {
        Ok(count @ 1..) if ids <= ranks => {
            let all = std::slice::from_raw_parts(id, count);
            let names: Answer<Vec<String>> = all.iter().map(UniqueId::name).collect();
            names.and_then(|mut names| {
                names.sort_unstable();
                names.dedup();
                match names.len() == count {
                    // The files of the others are not used.
                    true => init(handle, ranks, *id, rank, config),
                    false => failure(INVALID_ARGUMENT, "two of the unique ids are the same"),
                }
            })
        }
        _ => failure(INVALID_ARGUMENT, format!("{ids} unique ids for {ranks} ranks")),
    })
}

/// Waits for calls in flight, and for all ranks. Afterwards only destroy may be called.
#[unsafe(no_mangle)]
pub extern "C" fn ncclCommFinalize(handle: usize) -> c_int {
    code_of((|| {
        let communicator = communicator::ready(handle)?;
        if group::is_open() {
            return failure(INVALID_USAGE, "finalize in a group");
        }
        communicator.set_state(crate::result::IN_PROGRESS);
        let number = communicator.issue();
        group::make(communicator.blocking, move || finalize(&communicator, number))
    })())
}

fn finalize(communicator: &Arc<Communicator>, number: u64) -> Answer {
    let mut met = Ok(());
    communicator.outlive_graphs();
    communicator.in_turn(number, || met = group::control(Kind::Barrier).run(communicator).map(|_| ()));
    communicator.settle(met)
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclCommDestroy(handle: usize) -> c_int {
    if handle == 0 {
        return 0;
    }
    code_of((|| {
        if group::is_open() {
            return failure(INVALID_USAGE, "destroy while a group is open: what was called in it never begins");
        }
        let communicator = communicator::remove(handle)?;
        communicator.drain();
        Ok(())
    })())
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclCommAbort(handle: usize) -> c_int {
    if handle == 0 {
        return 0;
    }
    code_of(communicator::remove(handle).map(|communicator| {
        communicator.abort();
        communicator.outlive_graphs();
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommGetAsyncError(handle: usize, code: *mut c_int) -> c_int {
    code_of(communicator::find(handle).map(|communicator| *code = communicator.state()))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommCount(handle: usize, count: *mut c_int) -> c_int {
    code_of(communicator::ready(handle).map(|communicator| *count = communicator.ranks as c_int))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommUserRank(handle: usize, rank: *mut c_int) -> c_int {
    code_of(communicator::ready(handle).map(|communicator| *rank = communicator.rank as c_int))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommCuDevice(handle: usize, device: *mut c_int) -> c_int {
    code_of(communicator::ready(handle).map(|communicator| *device = communicator.device))
}
