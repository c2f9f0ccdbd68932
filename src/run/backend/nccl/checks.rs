//! Checking the calls of a case: how many are made between their producers and comparisons, and what comparisons found in the copies of
//! the buffers.

use super::data::{Data, Found, Place, Tools};
use super::driver::CUdeviceptr;
use super::graphs::Graphs;
use super::kernels::Walk;
use super::work_queue;
use crate::backend::mpi::{Rotation, Turns};
use crate::backend::{Binding, Mismatch};
use commgauge_base::error::Result;
use commgauge_base::pattern::segments::View;
use commgauge_base::sample::WrongCall;

/// Turns that a check enqueues with their producers and comparisons, at most.
const CHECKED_TURNS: u64 = 8;
/// Pieces of work that wait behind a held stream, at most: the driver has room for about a thousand, and who enqueues more waits.
const MOST_HELD: u64 = 512;
/// Calls that are looked at one by one after a wrong one was found.
const LOOKED_AT_CLOSELY: usize = 4096;

/// What a check enqueues, and what of it is enqueued now.
#[derive(Clone, Copy)]
pub(super) struct Checks {
    /// Turns of one call or group each; the same on all ranks of a group.
    pub turns: u64,
    /// Whether the stream can be held until all of them are enqueued.
    pub can_be_held: bool,
    pub is_held: bool,
    /// The copy of the first of them and the turns before it, while their comparisons are there to be read.
    pub enqueued: Option<(u64, u64)>,
}

impl Checks {
    pub(super) fn of(binding: &Binding, view: &View, copies: u64) -> Checks {
        // A call is compared in as many stretches as ranks can have data in it; its inputs are one.
        let pieces = u64::from(binding.variant.aggregate) * (view.group.len() as u64 + 2) + 1;
        let fitting = (MOST_HELD / pieces).min(work_queue::turns_with_room(binding));
        let turns = fitting.clamp(1, CHECKED_TURNS).min(copies);
        Checks { turns, can_be_held: fitting > 0, is_held: false, enqueued: None }
    }
}

/// Where the buffers of every call are.
#[derive(Clone, Copy)]
pub(super) struct Places {
    pub send: CUdeviceptr,
    pub receive: CUdeviceptr,
    /// Calls in a group, and bytes from the buffers of one to those of the next.
    pub aggregate: u64,
    pub stride_bytes: u64,
    pub element_bytes: u64,
    pub rotation: Rotation,
}

impl Places {
    /// The buffers of every call of a group.
    pub(super) fn of(self, copy: u64) -> impl Iterator<Item = Place> {
        (0..self.aggregate).map(move |call| {
            let offset = copy * self.rotation.stride_bytes + call * self.stride_bytes;
            Place { send: self.send + offset, receive: self.receive + offset, shift: offset / self.element_bytes }
        })
    }

    /// The copies of `calls` turns, beginning with `copy`.
    pub(super) fn walk(&self, copy: u64, calls: u64) -> Walk {
        let Rotation { copies, stride_bytes, .. } = self.rotation;
        Walk { stride: stride_bytes / self.element_bytes, copies, copy, step: self.rotation.step(), calls }
    }

    pub(super) fn all_copies(&self) -> Walk {
        Walk { step: 1, ..self.walk(0, self.rotation.copies) }
    }
}

/// What is compared once the stream is done.
pub(super) struct Comparison<'a> {
    pub data: &'a Data,
    pub tools: Tools<'a>,
    pub places: Places,
    /// The turns since the last check.
    pub turns: Turns,
    pub graphs: Option<&'a Graphs>,
}

impl Comparison<'_> {
    /// What the comparisons of a check found that were enqueued behind its calls.
    pub(super) fn of_check(&self, first_copy: u64, turns: u64, before: u64) -> Result<Option<Mismatch>> {
        let copies = self.places.rotation.copies_from(first_copy, turns);
        let places: Vec<Place> = copies.flat_map(|copy| self.places.of(copy)).collect();
        let found = self.data.found(places.len() as u64 * self.data.comparisons(), self.tools)?;
        let Some(first) = found.first() else { return Ok(None) };
        let call = |found: &Found| found.comparison / self.data.comparisons();
        let count = found.iter().filter(|found| call(found) == call(first)).map(|found| found.count).sum();
        let mut wrong: Vec<u64> = found.iter().map(call).collect();
        wrong.dedup();
        let mismatch = self.data.mismatch(first, places[call(first) as usize], count, self.tools)?;
        let call = WrongCall {
            number: before * self.places.aggregate + call(first) + 1,
            wrong_copies: wrong.len() as u64,
            compared_copies: places.len() as u64,
        };
        Ok(Some(Mismatch { call: Some(call), ..mismatch }))
    }

    /// Compares all copies that calls since the last check have used: in one launch for each stretch, and after a wrong one call by call.
    pub(super) fn of_copies(&self) -> Result<Option<Mismatch>> {
        let rotation = self.places.rotation;
        let (first_copy, turns) = self.turns.used(rotation.copies);
        let first_copy = self.graphs.map_or(first_copy, |graphs| graphs.first_copy);
        if turns == 0 {
            return Ok(None);
        }
        let each = self.data.comparisons();
        let mut found = Vec::new();
        for (place, call) in self.places.of(0).zip(0u64..) {
            Data::forget(each, self.tools)?;
            self.data.compare(place, self.places.walk(first_copy, turns), 0, self.tools)?;
            found.extend(self.data.found(each, self.tools)?.into_iter().map(|found| (found.call, call, found)));
        }
        let Some((turn, call, found)) = found.into_iter().min_by_key(|(turn, call, _)| (*turn, *call)) else {
            return Ok(None);
        };
        let from_there = rotation.copies_from(first_copy, turns).skip(turn as usize);
        let places = from_there.flat_map(|copy| self.places.of(copy)).skip(call as usize);
        let (mut first, mut wrong_copies, mut compared_copies) = (None, 0, 0);
        for place in places.take(LOOKED_AT_CLOSELY) {
            let wrong = self.data.check(place, self.tools)?;
            (wrong_copies, compared_copies) = (wrong_copies + u64::from(wrong.is_some()), compared_copies + 1);
            if compared_copies == 1 {
                // What was wrong at first and is right now is wrong all the same.
                first = Some(wrong.map_or_else(|| self.data.mismatch(&found, place, found.count, self.tools), Ok)?);
            }
        }
        let period = self.graphs.map_or(rotation.copies, Graphs::period);
        let last = self.turns.last_call(turn, rotation.copies, period);
        let call = WrongCall {
            number: (last - 1) * self.places.aggregate + call + 1,
            wrong_copies: wrong_copies.max(1),
            compared_copies,
        };
        Ok(first.map(|mismatch| Mismatch { call: Some(call), ..mismatch }))
    }
}
