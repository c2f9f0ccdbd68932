//! The zero-bubble schedules of one chunk per rank: ZB-H1 and ZB-H2 by hand, ZB-1p and ZB-2p searched.

use super::StageCosts;
use super::event::{Event, Pass};
use super::event_lists::Schedule;
use super::list_scheduler::{self, Fitting, Search};
use super::single_chunk::in_turn;

/// 1F1B with more warm-up and late weight gradients (arXiv 2401.10241 figure 3): `memory` 1 is ZB-H1, 2 is ZB-H2.
///
/// Rank i starts with 1 + memory x (p - 1 - i) forwards before its first backward, and runs the weight gradient of
/// micro-batch k after the input gradient of micro-batch k + memory x i.
pub(super) fn handcrafted(stages: u32, micro_batches: u32, memory: u32) -> Vec<Vec<Event>> {
    (0..stages)
        .map(|rank| {
            let skeleton = in_turn(memory * (stages - rank - 1), micro_batches, forward, input_gradient);
            let mut list = Vec::with_capacity(3 * micro_batches as usize);
            for event in skeleton {
                list.push(event);
                if event.pass == Pass::InputGradient
                    && let Some(late) = event.micro_batch.checked_sub(memory * rank)
                {
                    list.push(Event { pass: Pass::WeightGradient, micro_batch: late, ..event });
                }
            }
            let first_left = micro_batches.saturating_sub(memory * rank);
            list.extend((first_left..micro_batches).map(|k| Event { pass: Pass::WeightGradient, ..forward(k) }));
            list
        })
        .collect()
}

/// The best order found within `memory` times the activations of 1F1B (arXiv 2401.10241 section 3.1): as many forwards
/// as fit before the first backward arrives, then one forward and one backward in turn, weight gradients in the gaps
/// and where the memory is full.
pub(super) fn searched(schedule: &Schedule, fitting: &Fitting, memory: u32) -> Result<Vec<Vec<Event>>, String> {
    let limit = memory * schedule.stages;
    // A forward more may delay the first backward by less than one forward, or leave that much idle.
    let mut warm_ups: Vec<Vec<u32>> = [f64::floor, f64::ceil]
        .map(|round: fn(f64) -> f64| forwards_before_first_backward(schedule, &fitting.costs, limit, round))
        .into();
    warm_ups.dedup();
    let search = |warm_up: &Vec<u32>| Search {
        skeleton: warm_up
            .iter()
            .map(|forwards| in_turn(forwards - 1, schedule.micro_batches, forward, input_gradient))
            .collect(),
        limits: vec![limit; schedule.stages as usize],
    };
    list_scheduler::best(schedule, fitting, &warm_ups.iter().map(search).collect::<Vec<_>>())
}

/// For each rank how many forwards fit between its first and the arrival of its first backward. Each rank has at least
/// one more than the next, without which 1F1B would deadlock.
fn forwards_before_first_backward(
    schedule: &Schedule,
    costs: &StageCosts,
    limit: u32,
    round: fn(f64) -> f64,
) -> Vec<u32> {
    let StageCosts { forward, input_gradient, communication, .. } = *costs;
    let stages = schedule.stages;
    let mut forwards = vec![1; stages as usize];
    let start = |rank: u32| f64::from(rank) * (forward.0 + communication.0);
    let mut backward_finish = start(stages - 1) + forward.0 + input_gradient.0;
    for rank in (0..stages - 1).rev() {
        let arrival = backward_finish + communication.0;
        let fitting = round((arrival - start(rank)) / forward.0);
        // With forwards of zero length: as many as the memory allows. The cast saturates at the range of u32.
        let fitting = if fitting.is_nan() { limit } else { fitting as u32 };
        let fewest = forwards[rank as usize + 1] + 1;
        // The ranks before need memory for one more each.
        let most = limit.saturating_sub(rank).max(fewest);
        let count = fitting.clamp(fewest, most);
        forwards[rank as usize] = count;
        backward_finish = arrival.max(start(rank) + f64::from(count) * forward.0) + input_gradient.0;
    }
    forwards
}

fn forward(micro_batch: u32) -> Event {
    Event { pass: Pass::Forward, micro_batch, chunk: 0 }
}

fn input_gradient(micro_batch: u32) -> Event {
    Event { pass: Pass::InputGradient, micro_batch, chunk: 0 }
}
