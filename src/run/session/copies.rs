//! Copies between hosts and GPUs, after the matrix products: every rank with its own GPU, one rank of each host after the other, or all at once.

use super::facts::Ranks;
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
use commgauge_base::units::{Rate, Seconds};
use commgauge_model::record::counters::PerftestLine;
use commgauge_model::record::line::{Line, Outcome, RankFacts};
use commgauge_model::record::work_lines::{CopyLine, InterferenceLine, InterferingCall, ProductLine};
use commgauge_model::workload::{CopyShape, Estimate, Interference, ProductShape, estimated_copy};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::collections::HashMap;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Copies per sample that the deadline assumes, before the backend gives their number.
const MOST_COPIES: u32 = 16;

pub(super) fn measure_copies(run: &mut Run, backend: &mut dyn Backend) -> Result<()> {
    run.carry_out_all(backend, in_replicates(run.request, &run.request.plan.copies))
}

/// A copy or product in one replicate.
struct OwnWork<'a, S> {
    index: usize,
    shape: &'a S,
    replicate: u32,
}

fn in_replicates<'a, S>(request: &Request, shapes: &'a [S]) -> impl Iterator<Item = OwnWork<'a, S>> + Clone {
    let work = |replicate| shapes.iter().enumerate().map(move |(index, shape)| OwnWork { index, shape, replicate });
    (0..request.settings.replicates).flat_map(work)
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

impl WorkItem for OwnWork<'_, CopyShape> {
    fn keys(&self) -> Vec<WorkKey> {
        vec![WorkKey::Copy { index: self.index, replicate: self.replicate }]
    }

    fn estimate(&self, run: &Run) -> Estimate {
        estimated_copy(self.shape, &run.request.settings)
    }

    fn carry_out(&mut self, run: &mut Run, backend: &mut dyn Backend) -> Result<()> {
        let OwnWork { shape, replicate, .. } = *self;
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
    let mut ranks_of: HashMap<&String, u32> = HashMap::new();
    hosts.iter().for_each(|host| *ranks_of.entry(host).or_default() += 1);
    let mine = hosts.iter().take(rank as usize).filter(|host| hosts.get(rank as usize) == Some(host)).count() as u32;
    Turns { mine, count: ranks_of.into_values().max().unwrap_or(1) }
}

// The adapters of the first two hosts, by perftest's `ib_write_bw`: where NCCL is slow, they tell whether the link is. A rank of the first host starts the
// side that is written to, one of the second the side that writes.

const SIDE: &str = include_str!("perftest.sh");

/// Longest time of a write, with looking for the other side.
const LONGEST_WRITE: Duration = Duration::from_secs(120);

/// The writes to measure, in host memory; none unless asked for.
///
/// # Errors
/// Usage errors: one host, or no known adapters.
pub(super) fn adapters(ranks: &Ranks, request: &Request) -> Result<Vec<PerftestLine>> {
    let Some(names) = &request.after_plan.perftest else { return Ok(Vec::new()) };
    let on = |node| ranks.facts.iter().filter(move |facts| facts.node == node && facts.ranks == 1);
    let ends: Vec<[&RankFacts; 2]> = on(0).zip(on(1)).map(|(a, b)| [a, b]).collect();
    let Some(first) = ends.first() else {
        return Err(Error::usage("--perftest: found one host; accepted: two or more, such as --hosts A:8,B:8"));
    };
    let named = names.iter().map(|name| (*first, [name.clone(), name.clone()]));
    let nearest = ends.iter().filter(|_| names.is_empty()).filter_map(|ends| {
        let [a, b] = ends.map(RankFacts::active_adapter);
        Some((*ends, [a?.0.to_owned(), b?.0.to_owned()]))
    });
    let mut writes: Vec<PerftestLine> = Vec::new();
    for (ends, adapters) in named.chain(nearest) {
        if writes.iter().all(|write| write.adapters != adapters) {
            writes.push(PerftestLine { ranks: ends.map(|facts| facts.rank), adapters, ..PerftestLine::default() });
        }
    }
    let unknown =
        || Error::usage("--perftest: no active adapter next to the GPUs; name some, such as --perftest=mlx5_0");
    (!writes.is_empty()).then_some(writes).ok_or_else(unknown)
}

/// Writes a line for each two adapters and kind of memory.
pub(super) fn measure_adapters(run: &mut Run) -> Result<()> {
    for write in adapters(run.ranks, run.request)? {
        let device = |rank: u32| run.ranks.facts[rank as usize].device.as_ref()?.split(", ").nth(1);
        let devices = write.ranks.map(device);
        for gpudirect in [false, true] {
            if run.tally.is_stopped() || gpudirect && devices.contains(&None) {
                continue;
            }
            run.request.watch.begin(|| Activity::named("ib_write_bw".to_owned(), LONGEST_WRITE));
            let rate = written(run, &write, devices.map(|device| device.filter(|_| gpudirect).unwrap_or_default()))?;
            let (bytes_per_second, problem) = (rate.as_ref().ok().copied(), rate.err());
            let line = PerftestLine { gpudirect, bytes_per_second, problem, ..write.clone() };
            run.record_if_whole(Line::Perftest(Box::new(line)))?;
        }
    }
    Ok(())
}

/// What a side said, or why it failed.
type Said = std::result::Result<String, String>;

/// The rate of one write, or why there is none, the same on every process.
fn written(run: &Run, write: &PerftestLine, gpus: [&str; 2]) -> Result<std::result::Result<Rate, String>> {
    let hosts = write.ranks.map(|rank| run.host_of(rank));
    let [serves, writes] = write.ranks.map(|rank| rank == run.world.process());
    let side = |end: usize, server: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", SIDE, "sh", &write.adapters[end], gpus[end], server]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()
    };
    let said = |side: std::io::Result<Child>| -> Said {
        let output = side.and_then(Child::wait_with_output).map_err(|cause| format!("sh: {cause}"))?;
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if output.status.success() { Ok(text) } else { Err(text) }
    };
    let server = serves.then(|| side(0, ""));
    run.world.barrier()?;
    let client = from_lowest(run.world, writes.then(|| said(side(1, &hosts[0]))))?;
    let unserved = server.as_ref().filter(|_| !matches!(client, Some(Ok(_))));
    // It ends by itself, unless no one came.
    let _ = unserved.and_then(|side| kill_process(Pid::from_raw(side.as_ref().ok()?.id() as i32)?, Signal::TERM).ok());
    let server = from_lowest(run.world, server.map(said))?;
    let rate = client.unwrap_or_else(|| Err("not started".to_owned())).and_then(|json| rate_in(&json));
    let of_server = server.and_then(Said::err).filter(|why| !why.is_empty());
    let of_server = of_server.map_or_else(String::new, |why| format!("; {}: {why}", hosts[0]));
    Ok(rate.map_err(|why| format!("{}: {why}{of_server}", hosts[1])))
}

/// The average of a report of perftest, in 10^9 bits per second (`write_bw_report_to_file`, perftest_parameters.c).
fn rate_in(json: &str) -> std::result::Result<Rate, String> {
    let report: Value =
        serde_json::from_str(json).map_err(|cause| format!("JSON of ib_write_bw is broken: {cause}"))?;
    let rate = report["results"]["BW_average"].as_f64().filter(|gigabits| *gigabits > 0.0);
    rate.map(|gigabits| Rate(gigabits * 1e9 / 8.0)).ok_or("JSON of ib_write_bw has no results.BW_average".to_owned())
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
    let largest = request.plan.products.iter().max_by_key(|shape| product_bytes(shape));
    let oversized = largest.filter(|shape| product_bytes(shape) > available).map(|shape| {
        let (needed, layer) = (product_bytes(shape), shape.uses.join("; "));
        Error::usage(format!(
            "the product of {layer} needs {needed} of matrices on each rank, but {available} is available; choose a \
             smaller micro-batch, or a higher tensor-parallel degree"
        ))
    });
    agree(world, oversized.map_or(Ok(()), Err))
}

/// Writes one line for each product and replicate.
pub(super) fn measure_products(run: &mut Run, backend: &mut dyn Backend) -> Result<()> {
    run.carry_out_all(backend, in_replicates(run.request, &run.request.plan.products))
}

impl WorkItem for OwnWork<'_, ProductShape> {
    fn keys(&self) -> Vec<WorkKey> {
        vec![WorkKey::Product { index: self.index, replicate: self.replicate }]
    }

    fn estimate(&self, run: &Run) -> Estimate {
        Estimate::Budget(run.request.settings.case_budget)
    }

    fn carry_out(&mut self, run: &mut Run, backend: &mut dyn Backend) -> Result<()> {
        let OwnWork { shape, replicate, .. } = *self;
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
