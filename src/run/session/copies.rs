//! Copies between hosts and GPUs, after the matrix products: every rank with its own GPU, one rank of each host after the other, or all at once.

use super::journal::{CompletedWork, WorkKey};
use super::replay;
use super::request::Request;
use super::work_loop::{Run, WorkItem};
use crate::backend::{Backend, LocalWork, product_bytes};
use crate::measure::{LocalTimes, TogetherTimes, Turns, WARM_UP_RUNS, measure_local, measure_together};
use crate::watchdog::{Activity, deadline_of_copy, deadline_of_product};
use crate::world::{World, agree, from_lowest, gather_all};
use commgauge_base::error::{Error, Result};
use commgauge_base::stats::{median, sorted};
use commgauge_base::units::Seconds;
use commgauge_model::record::line::{Line, Outcome, RankFacts};
use commgauge_model::record::work_lines::{CopyLine, InterferenceLine, InterferingCall, ProductLine};
use commgauge_model::workload::{CopyShape, Estimate, Interference, ProductShape, estimated_copy};
use std::collections::HashMap;

/// Copies per sample that the deadline assumes, before the backend gives their number.
const MOST_COPIES: u32 = 16;

pub(super) fn measure_copies(run: &mut Run, backend: &mut dyn Backend) -> Result<()> {
    let request = run.request;
    let shapes = || request.plan.copies.iter().enumerate();
    let work = |replicate| shapes().map(move |(index, shape)| CopyWork { index, shape, replicate });
    run.carry_out_all(backend, (0..request.settings.replicates).flat_map(work))
}

/// Work of every rank by itself: its times, or the outcome of work without times.
fn measure_own(
    run: &Run,
    backend: &mut dyn Backend,
    skip_reason: Option<String>,
    bind: impl FnOnce(&mut dyn Backend) -> Result<Box<dyn LocalWork>>,
    turns: Turns,
) -> Result<(Outcome, LocalTimes)> {
    let without_times = |outcome| Ok((outcome, LocalTimes::default()));
    if let Some(reason) = from_lowest(run.world, skip_reason)? {
        return without_times(Outcome::Skipped { reason });
    }
    let mut work = match run.bound(bind(backend))? {
        Ok(work) => work,
        Err(failed) => return without_times(failed),
    };
    match measure_local(&run.replay_context(backend), work.as_mut(), run.repetitions(), turns)? {
        Ok(times) => Ok((Outcome::Measured { verified: run.request.settings.verify }, times)),
        Err(outcome) => without_times(outcome),
    }
}

struct CopyWork<'a> {
    index: usize,
    shape: &'a CopyShape,
    replicate: u32,
}

impl WorkItem for CopyWork<'_> {
    fn keys(&self) -> Vec<WorkKey> {
        vec![WorkKey::Copy { index: self.index, replicate: self.replicate }]
    }

    fn estimate(&self, run: &Run) -> Estimate {
        estimated_copy(self.shape, &run.request.settings)
    }

    fn carry_out(&mut self, run: &mut Run, backend: &mut dyn Backend) -> Result<()> {
        let CopyWork { shape, replicate, .. } = *self;
        let request = run.request;
        let turns = if shape.alone { turns_of(&request.launch.hosts, run.world.process()) } else { Turns::TOGETHER };
        let deadline =
            request.watch.timeout().unwrap_or_else(|| deadline_of_copy(shape.bytes.0, MOST_COPIES) * turns.count);
        request.watch.begin(|| Activity::named(format!("{}, replicate {replicate}", shape.name()), deadline));
        let mut copies_per_sample = 1;
        let bind = |backend: &mut dyn Backend| {
            let (work, copies) = backend.bind_copy(shape)?;
            copies_per_sample = copies;
            Ok(work)
        };
        let skip_reason = backend.copy_skip_reason(shape);
        let (outcome, times) = measure_own(run, backend, skip_reason, bind, turns)?;
        run.record_if_whole(Line::Copy(Box::new(CopyLine {
            copy: *shape,
            replicate,
            outcome,
            copies_per_sample,
            median_nanoseconds: medians(run, &times)?,
            slowest_nanoseconds: times.slowest_nanoseconds,
            slowest_rank: times.slowest_rank,
        })))
    }
}

/// The median of each rank; on process 0 only, and empty without times.
fn medians(run: &Run, times: &LocalTimes) -> Result<Vec<u64>> {
    if times.own_nanoseconds.is_empty() {
        return Ok(Vec::new());
    }
    let mine = median(&sorted(times.own_nanoseconds.iter().map(|time| *time as f64))).unwrap_or(0.0);
    gather_all(run.world, &(mine as u64))
}

/// The turn of a rank among those of its host; there are as many turns as ranks on the fullest host.
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

// The matrix products of a run, in every replicate: each on all ranks at the same time.

/// Rejects products that the backend cannot compute, or on host memory those whose matrices do not fit, before anything is measured.
pub(super) fn preflight(world: &dyn World, backend: &mut dyn Backend, request: &Request) -> Result<()> {
    if request.plan.products.is_empty() {
        return Ok(());
    }
    agree(world, backend.prepare_products(&request.plan.products))?;
    if !backend.refuses_oversized_plans() {
        return Ok(());
    }
    let available = backend.bytes_available();
    let verdict = match request.plan.products.iter().max_by_key(|shape| product_bytes(shape)) {
        Some(shape) if product_bytes(shape) > available => {
            let (needed, layer) = (product_bytes(shape), shape.uses.join("; "));
            Err(Error::usage(format!(
                "the product of {layer} needs {needed} of matrices on each rank, but {available} is available; choose a \
                 smaller micro-batch, or a higher tensor-parallel degree"
            )))
        }
        _ => Ok(()),
    };
    agree(world, verdict)
}

/// Writes one line for each product and replicate.
pub(super) fn measure_products(run: &mut Run, backend: &mut dyn Backend) -> Result<()> {
    let request = run.request;
    let shapes = || request.plan.products.iter().enumerate();
    let work = |replicate| shapes().map(move |(index, shape)| ProductWork { index, shape, replicate });
    run.carry_out_all(backend, (0..request.settings.replicates).flat_map(work))
}

struct ProductWork<'a> {
    index: usize,
    shape: &'a ProductShape,
    replicate: u32,
}

impl WorkItem for ProductWork<'_> {
    fn keys(&self) -> Vec<WorkKey> {
        vec![WorkKey::Product { index: self.index, replicate: self.replicate }]
    }

    fn estimate(&self, run: &Run) -> Estimate {
        Estimate::Budget(run.request.settings.case_budget)
    }

    fn carry_out(&mut self, run: &mut Run, backend: &mut dyn Backend) -> Result<()> {
        let ProductWork { shape, replicate, .. } = *self;
        let watch = &run.request.watch;
        let deadline = watch.timeout().unwrap_or_else(|| deadline_of_product(shape));
        let named = || format!("product of {} x {} x {}, replicate {replicate}", shape.m, shape.n, shape.k);
        watch.begin(|| Activity::named(named(), deadline));
        let (skip_reason, library) = (backend.product_skip_reason(shape), backend.product_library().to_owned());
        let bind = |backend: &mut dyn Backend| backend.bind_product(shape);
        let (outcome, times) = measure_own(run, backend, skip_reason, bind, Turns::TOGETHER)?;
        run.record_if_whole(Line::Product(Box::new(ProductLine {
            product: shape.clone(),
            replicate,
            library,
            ranks_per_host: ranks_per_host(&run.ranks.facts),
            threads_per_rank: 1,
            outcome,
            warm_up_products: WARM_UP_RUNS,
            slowest_nanoseconds: times.slowest_nanoseconds,
            slowest_rank: times.slowest_rank,
        })))
    }
}

fn ranks_per_host(ranks: &[RankFacts]) -> u32 {
    let nodes = ranks.iter().map(|facts| facts.node).max().unwrap_or(0);
    let on = |node: u32| ranks.iter().filter(|facts| facts.node == node).map(|facts| facts.ranks).sum::<u32>();
    (0..=nodes).map(on).max().unwrap_or(1)
}

// Two concurrent calls, in every replicate: each alone, then each while the other runs.

/// Times of a program, or the reason why there are none.
type Times = std::result::Result<TogetherTimes, Outcome>;

/// Writes two lines in every replicate, one with each of the two as the timed call.
pub(super) fn measure_interference(run: &mut Run, backend: &mut dyn Backend) -> Result<()> {
    let Some(pair) = &run.request.after_plan.interference else { return Ok(()) };
    let replicates = 0..run.request.settings.replicates;
    run.carry_out_all(backend, replicates.map(|replicate| PairWork { pair, replicate }))
}

/// Both calls of a replicate, each as the timed one, since they share the times of each call alone.
struct PairWork<'a> {
    pair: &'a Interference,
    replicate: u32,
}

impl WorkItem for PairWork<'_> {
    fn keys(&self) -> Vec<WorkKey> {
        [0, 1].map(|timed| WorkKey::Interference { replicate: self.replicate, timed }).to_vec()
    }

    /// Each call alone, and each with the other one running concurrently.
    fn estimate(&self, run: &Run) -> Estimate {
        let measurements = 2 + self.missing(&run.completed).len();
        Estimate::Budget(Seconds(run.request.settings.case_budget.0 * measurements as f64))
    }

    fn carry_out(&mut self, run: &mut Run, backend: &mut dyn Backend) -> Result<()> {
        for (number, groups) in self.pair.groups.iter().enumerate() {
            backend.connect(number, groups)?;
        }
        let alone = [self.times(run, backend, 0, 0)?, self.times(run, backend, 1, 0)?];
        let typical = [typical(&alone[0]), typical(&alone[1])];
        for timed in self.missing(&run.completed) {
            let calls = self.pair.concurrent_calls(timed, typical);
            let together = self.times(run, backend, timed, calls)?;
            run.record_if_whole(Line::Interference(Box::new(self.line(run, timed, calls, &alone, together))))?;
            if run.tally.is_stopped() {
                return Ok(());
            }
        }
        backend.disconnect()
    }
}

impl PairWork<'_> {
    /// The calls that earlier launches have not timed.
    fn missing(&self, completed: &CompletedWork) -> Vec<usize> {
        let key = |timed: usize| WorkKey::Interference { replicate: self.replicate, timed };
        (0..2).filter(|timed| !completed.has(key(*timed))).collect()
    }

    /// Times of one call with `concurrent` instances of the other.
    fn times(&self, run: &Run, backend: &mut dyn Backend, timed: usize, concurrent: u32) -> Result<Times> {
        let plan = self.pair.program(timed, concurrent);
        let context = run.replay_context(backend);
        match replay::bind(run, backend, "two calls at once", &plan)? {
            Ok(mut replayer) => measure_together(&context, replayer.as_mut(), timed, run.repetitions()),
            Err(failed) => Ok(Err(failed)),
        }
    }

    /// From the times of both calls alone, and of the timed one with the other running.
    fn line(
        &self,
        run: &Run,
        timed: usize,
        calls_beside: u32,
        alone: &[Times; 2],
        together: Times,
    ) -> InterferenceLine {
        let bad = alone.iter().chain([&together]).find_map(|times| times.as_ref().err().cloned());
        let outcome = bad.unwrap_or(Outcome::Measured { verified: run.request.settings.verify });
        let is_measured = matches!(outcome, Outcome::Measured { .. });
        let numbers = |times: &Times| times.clone().ok().filter(|_| is_measured).unwrap_or_default();
        let together = numbers(&together);
        InterferenceLine {
            step: self.pair.step,
            replicate: self.replicate,
            timed: InterferingCall::of(&self.pair.ops[timed]),
            overlapping: InterferingCall::of(&self.pair.ops[1 - timed]),
            outcome,
            calls_beside,
            alone_nanoseconds: numbers(&alone[timed]).timed_nanoseconds,
            together_nanoseconds: together.timed_nanoseconds,
            still_waited_nanoseconds: together.still_waited_nanoseconds,
            beside_alone_nanoseconds: numbers(&alone[1 - timed]).timed_nanoseconds,
        }
    }
}

/// Median time in nanoseconds, the same on every process.
fn typical(times: &Times) -> u64 {
    let nanoseconds = times.iter().flat_map(|times| &times.timed_nanoseconds).map(|time| *time as f64);
    median(&sorted(nanoseconds)).map_or(0, |middle| middle as u64)
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
