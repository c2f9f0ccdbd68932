//! Checks the received data: an error found by any process is shared with all.

use super::MeasureContext;
use crate::backend::{Call, Mismatch};
use crate::world::Located;
use commgauge_base::error::{Error, Result};
use commgauge_model::record::line::Outcome;

/// When data was checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    Before,
    After,
}

/// Fills the buffers, makes calls between the kernels that produce and compare their data where they run on a stream, and checks them if
/// there is data and verification is on.
pub(crate) fn fill_run_and_check(
    context: &MeasureContext,
    call: &mut dyn Call,
    moment: Moment,
) -> Result<Option<Outcome>> {
    call.fill()?;
    call.enqueue_checked()?;
    // Released together, so that a call that does not wait for its producer finds that of another rank still under way.
    context.world.barrier()?;
    call.complete(context.completion_deadline)?;
    check(context, call, moment)
}

/// Checks what the calls since the last fill left. Every process gets the same result: that of the lowest rank with an error.
pub(crate) fn check(context: &MeasureContext, call: &mut dyn Call, moment: Moment) -> Result<Option<Outcome>> {
    if !verifies(context, call) {
        return Ok(None);
    }
    let mine = call.check()?;
    let lowest = mine.as_ref().map_or(f64::INFINITY, |mismatch| f64::from(mismatch.rank));
    let mut lowest = [Located { value: lowest, rank: context.world.process() as i32 }];
    context.world.all_min(&mut lowest)?;
    if lowest[0].value == f64::INFINITY {
        return Ok(None);
    }
    let broken = |cause: serde_json::Error| Error::environment(format!("cannot pass on a mismatch: {cause}"));
    let parts = mine.map(|m: Mismatch| (m.rank, m.element, m.expected, m.got, m.count, m.call));
    let mut found = serde_json::to_vec(&parts).map_err(broken)?;
    found = context.world.gather(&found)?.into_iter().nth(lowest[0].rank as usize).unwrap_or_default();
    context.world.broadcast(&mut found)?;
    let (rank, element, expected, got, count, call) = serde_json::from_slice(&found).map_err(broken)?;
    let when = match moment {
        Moment::Before => "before".to_owned(),
        Moment::After => "after".to_owned(),
    };
    Ok(Some(Outcome::Corrupt { when, rank, element, expected, got, count, call }))
}

/// Whether there is data and verification is on.
pub(crate) fn verifies(context: &MeasureContext, call: &dyn Call) -> bool {
    context.settings.verify && call.verifies()
}

#[cfg(test)]
mod tests {
    use super::super::fakes::{FakeCall, on_threads, with_context};
    use super::*;
    use crate::world::World;

    #[test]
    fn every_process_names_the_mismatch_of_the_lowest_rank() {
        on_threads(4, |world| {
            let me = world.process();
            with_context(world, me..me + 1, |context| {
                let mut call = FakeCall::alone(world, me..me + 1, |_, _| 10);
                call.data.corrupt_from = [None, None, Some(0), Some(0)][me as usize];
                let found = fill_run_and_check(context, &mut call, Moment::Before).unwrap();
                let expected = Outcome::Corrupt {
                    when: "before".into(),
                    rank: 2,
                    element: 17,
                    expected: "3".into(),
                    got: "nan".into(),
                    count: 2,
                    call: None,
                };
                assert_eq!(found, Some(expected));
                call.data.corrupt_from = None;
                assert_eq!(check(context, &mut call, Moment::After).unwrap(), None);
            });
        });
    }
}
