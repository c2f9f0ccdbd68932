//! Dividing a communicator: the ranks exchange colour and key over it, and the first of each colour names the file of
//! the new group.

use crate::communicator::{self, Communicator};
use crate::config::{self, Config};
use crate::exchange::Exchange;
use crate::group;
#[cfg(since_2_18)]
use crate::result::code_of;
use crate::result::{Answer, IN_PROGRESS, INVALID_ARGUMENT, INVALID_USAGE, failure};
use crate::segment;
use std::ffi::c_int;
use std::sync::Arc;

const NO_COLOUR: c_int = -1;
/// Message number of the exchange in a split; see `op`.
const TALK: u64 = 11;
const NAME_BYTES: usize = 96;

#[cfg(since_2_18)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommSplit(
    parent: usize,
    colour: c_int,
    key: c_int,
    handle: *mut usize,
    config: *const Config,
) -> c_int {
    code_of(split(parent, colour, key, &mut *handle, config))
}

/// Only for the side of the API that has it; older builds leave it unused.
#[cfg_attr(not(since_2_18), allow(dead_code))]
unsafe fn split(parent: usize, colour: c_int, key: c_int, handle: &mut usize, config: *const Config) -> Answer {
    *handle = 0;
    let parent = communicator::ready(parent)?;
    if group::is_open() {
        return failure(INVALID_USAGE, "the doubles split outside of groups alone");
    }
    if colour < NO_COLOUR {
        return failure(INVALID_ARGUMENT, format!("colour {colour} is less than no colour"));
    }
    let asked = config::read(config, parent.blocking)?;
    // The groups are known only after the exchange, which therefore blocks even if the rest does not.
    let number = parent.issue();
    let mut place = failure(IN_PROGRESS, "");
    parent.in_turn(number, || place = talk(&parent, colour, key));
    match place? {
        Some(place) => crate::communicator_calls::make(handle, place.rank, place.ranks, place.name, asked),
        None => Ok(()),
    }
}

struct Place {
    rank: u32,
    ranks: u32,
    name: String,
}

fn talk(parent: &Arc<Communicator>, colour: c_int, key: c_int) -> Answer<Option<Place>> {
    let said = all_say(parent, &[colour.to_ne_bytes(), key.to_ne_bytes()].concat())?;
    let number = |bytes: &[u8]| c_int::from_ne_bytes(bytes.try_into().expect("4 bytes"));
    let mut group: Vec<(c_int, u32)> = said
        .iter()
        .zip(0..)
        .filter(|(bytes, _)| number(&bytes[..4]) == colour && colour != NO_COLOUR)
        .map(|(bytes, rank)| (number(&bytes[4..]), rank))
        .collect();
    group.sort_unstable();
    let leads = group.first().is_some_and(|(_, rank)| *rank == parent.rank);
    let mut name = if leads { segment::create()?.into_bytes() } else { Vec::new() };
    name.resize(NAME_BYTES, 0);
    let names = all_say(parent, &name)?;
    let Some((_, leader)) = group.first() else { return Ok(None) };
    let name = String::from_utf8_lossy(&names[*leader as usize]).trim_end_matches('\0').to_owned();
    let rank = group.iter().position(|(_, rank)| *rank == parent.rank).expect("I am of my colour") as u32;
    Ok(Some(Place { rank, ranks: group.len() as u32, name }))
}

/// Every rank sends the same number of bytes to every other.
pub fn all_say(parent: &Communicator, mine: &[u8]) -> Answer<Vec<Vec<u8>>> {
    let heard = vec![vec![0u8; mine.len()]; parent.ranks as usize];
    let mut exchange = Exchange::new(parent.ranks);
    for (peer, place) in (0..).zip(&heard) {
        exchange.send(peer, TALK, mine.as_ptr() as usize, mine.len());
        exchange.receive(peer, TALK, place.as_ptr() as usize, mine.len());
    }
    match exchange.run(parent)? {
        true => Ok(heard),
        false => failure(INVALID_USAGE, "the communicator was aborted while it was split"),
    }
}
