//! Copies between hosts and GPUs, after the matrix products: every rank with its own GPU, one rank of each host after the other, or all at once.

use super::completed::CompletedWork;
use super::work_loop::{Run, WorkItem};
use crate::backend::Backend;
use crate::measure::{LocalTimes, Turns, measure_local};
use crate::watchdog::{Activity, deadline_of_copy};
use commgauge_base::error::Result;
use commgauge_base::stats::{median, sorted};
use commgauge_model::record::copy_line::{CopyFacts, CopyLine};
use commgauge_model::record::line::{Line, Outcome};
use commgauge_model::workload::{CopyShape, Estimate, estimated_copy};
use std::collections::HashMap;

/// Copies of a sample for which the deadline is meant, before the backend says how many it makes.
const MOST_COPIES: u32 = 16;

/// Writes one line for each copy and replicate.
pub(super) fn measure_all(run: &mut Run, backend: &mut dyn Backend) -> Result<()> {
    for replicate in 0..run.request.settings.replicates {
        let shapes = run.request.plan.copies.iter().enumerate();
        run.carry_out_all(backend, shapes.map(|(index, shape)| CopyWork { index, shape, replicate }))?;
    }
    Ok(())
}

/// A copy of a replicate.
struct CopyWork<'a> {
    /// Its index in the plan.
    index: usize,
    shape: &'a CopyShape,
    replicate: u32,
}

impl WorkItem for CopyWork<'_> {
    fn is_completed(&self, completed: &CompletedWork) -> bool {
        completed.has_copy(self.index, self.replicate)
    }

    fn estimate(&self, run: &Run) -> Estimate {
        estimated_copy(self.shape, &run.request.settings)
    }

    fn carry_out(&mut self, run: &mut Run, backend: &mut dyn Backend) -> Result<()> {
        let line = self.line(run, backend)?;
        run.record_if_whole(Line::Copy(Box::new(line)))
    }
}

impl CopyWork<'_> {
    fn line(&self, run: &Run, backend: &mut dyn Backend) -> Result<CopyLine> {
        let CopyWork { shape, replicate, .. } = *self;
        let request = run.request;
        let mut line = CopyLine {
            copy: CopyFacts::of(shape),
            replicate,
            outcome: Outcome::Measured { verified: request.settings.verify },
            copies_per_sample: 1,
            slowest_nanoseconds: Vec::new(),
            slowest_rank: Vec::new(),
            median_nanoseconds: Vec::new(),
        };
        let turns = if shape.alone { turns_of(&request.launch.hosts, run.world.process()) } else { Turns::TOGETHER };
        let deadline =
            request.watch.timeout().unwrap_or_else(|| deadline_of_copy(shape.bytes.0, MOST_COPIES) * turns.count);
        request.watch.begin(|| Activity::named(format!("{}, replicate {replicate}", shape.name()), deadline));
        if let Some(reason) = run.common_skip_reason(backend.copy_skip_reason(shape))? {
            line.outcome = Outcome::Skipped { reason };
            return Ok(line);
        }
        let (mut copy, copies) = match run.bound(backend.bind_copy(shape))? {
            Ok(bound) => bound,
            Err(failed) => return Ok(CopyLine { outcome: failed, ..line }),
        };
        line.copies_per_sample = copies;
        match measure_local(&run.replay_context(backend), copy.as_mut(), run.repetitions(), turns)? {
            Ok(times) => {
                line.median_nanoseconds = medians(run, &times)?;
                line.slowest_nanoseconds = times.slowest_nanoseconds;
                line.slowest_rank = times.slowest_rank;
            }
            Err(outcome) => line.outcome = outcome,
        }
        Ok(line)
    }
}

/// The median of each rank; on process 0 only.
fn medians(run: &Run, times: &LocalTimes) -> Result<Vec<u64>> {
    let mine = median(&sorted(times.own_nanoseconds.iter().map(|time| *time as f64))).unwrap_or(0.0);
    let all = run.world.gather(&(mine as u64).to_le_bytes())?;
    Ok(all.iter().map(|bytes| bytes.as_slice().try_into().map_or(0, u64::from_le_bytes)).collect())
}

/// The turn of a rank among those of its host; as many turns as ranks of the fullest host.
fn turns_of(hosts: &[String], rank: u32) -> Turns {
    let (mut ranks_of, mut mine) = (HashMap::new(), 0);
    for (index, host) in hosts.iter().enumerate() {
        let before: &mut u32 = ranks_of.entry(host).or_default();
        if index == rank as usize {
            mine = *before;
        }
        *before += 1;
    }
    Turns { mine, count: ranks_of.into_values().max().unwrap_or(1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_rank_of_each_host_has_its_turn_at_a_time() {
        let hosts = ["a", "b", "a", "a", "b"].map(str::to_owned);
        let turns = |rank| turns_of(&hosts, rank);
        assert_eq!([0, 1, 2, 3, 4].map(|rank| turns(rank).mine), [0, 0, 1, 2, 1]);
        assert_eq!(turns(1).count, 3);
    }
}
