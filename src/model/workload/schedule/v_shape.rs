//! The schedules of two chunks per rank in a V: ZB-V, V-Half and V-Min.

use super::event::{Event, Pass};
use super::event_lists::Schedule;
use super::kind::ScheduleKind;
use super::list_scheduler::{self, Fitting, Search};

/// The best order found within the memory limit of the kind.
pub(super) fn events(schedule: &Schedule, fitting: &Fitting) -> Result<Vec<Vec<Event>>, String> {
    let stages = schedule.stages;
    let (skeleton, limit): (Vec<Vec<Event>>, u32) = match schedule.kind {
        ScheduleKind::VHalf => (blocks(schedule, half_block), 2 * ((stages + 2) / 2)),
        ScheduleKind::VMin => (blocks(schedule, third_block), 2 * ((stages + 4) / 3)),
        _ => ((0..stages).map(|rank| zero_bubble(schedule, rank)).collect(), 2 * stages),
    };
    list_scheduler::best(schedule, fitting, &[Search { skeleton, limits: vec![limit; stages as usize] }])
}

/// The order of forwards and input gradients of ZB-V (arXiv 2401.10241 section 6 and figure 8): 2p - 1 forwards, then
/// groups of a forward and a backward of the second chunk, then groups of both chunks in turn.
fn zero_bubble(schedule: &Schedule, rank: u32) -> Vec<Event> {
    let (stages, micro_batches) = (schedule.stages, schedule.micro_batches);
    let mut list = Vec::with_capacity(4 * micro_batches as usize);
    let mut next = [[0u32; 2]; 2];
    // Passes beyond the last micro-batch fall out; what is left stays in a possible order.
    let mut push = |pass: Pass, chunk: u32| {
        let count = &mut next[usize::from(pass == Pass::InputGradient)][chunk as usize];
        if *count < micro_batches {
            list.push(Event { pass, micro_batch: *count, chunk });
            *count += 1;
        }
    };
    for _ in 0..2 * (stages - rank) - 1 {
        push(Pass::Forward, 0);
    }
    for _ in 0..rank {
        push(Pass::Forward, 1);
        push(Pass::Forward, 0);
    }
    for _ in 0..stages - rank - 1 {
        push(Pass::Forward, 1);
        push(Pass::InputGradient, 1);
    }
    for _ in 0..micro_batches {
        push(Pass::Forward, 1);
        push(Pass::InputGradient, 1);
        push(Pass::Forward, 0);
        push(Pass::InputGradient, 0);
    }
    list
}

/// Start times of one micro-batch on a rank, in passes: forward of chunk 0 and 1, input gradient of chunk 1 and 0.
type Block = [u32; 4];

/// A new micro-batch starts every six passes: F, B and W of two chunks.
const INTERVAL: u32 = 6;

/// V-Half: F of the first chunk runs at half speed, so that activations stored long in one chunk are stored shortly in
/// the other (arXiv 2405.15362 section 3 and appendix; the shift for even p separates the passes of a rank).
fn half_block(stages: u32, rank: u32) -> Block {
    let shift = if stages.is_multiple_of(2) { 3 } else { 0 };
    let (p, i) = (stages, rank);
    [2 * i, 3 * p - 2 - i, 3 * p + shift - 1 + 2 * i, 6 * p + shift - 2 - i]
}

/// V-Min: down, up, down and up again without a wait (arXiv 2405.15362 section 3 and appendix; the shift where 3
/// divides p separates the passes of a rank).
fn third_block(stages: u32, rank: u32) -> Block {
    let shift = if stages.is_multiple_of(3) { 2 } else { 0 };
    let (p, i) = (stages, rank);
    [i, 2 * p - 1 - i, 2 * p + shift + i, 4 * p + shift - 1 - i]
}

/// The building block of each rank, repeated for each micro-batch, in order of time.
fn blocks(schedule: &Schedule, block: fn(u32, u32) -> Block) -> Vec<Vec<Event>> {
    const ROLES: [(Pass, u32); 4] =
        [(Pass::Forward, 0), (Pass::Forward, 1), (Pass::InputGradient, 1), (Pass::InputGradient, 0)];
    (0..schedule.stages)
        .map(|rank| {
            let block = block(schedule.stages, rank);
            let mut timed: Vec<(u64, Event)> = (0..schedule.micro_batches)
                .flat_map(|micro_batch| {
                    ROLES.into_iter().zip(block).map(move |((pass, chunk), start)| {
                        let time = u64::from(start) + u64::from(INTERVAL) * u64::from(micro_batch);
                        (time, Event { pass, micro_batch, chunk })
                    })
                })
                .collect();
            timed.sort_by_key(|(time, _)| *time);
            timed.into_iter().map(|(_, event)| event).collect()
        })
        .collect()
}
