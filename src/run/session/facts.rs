//! What a run knows before it measures, and how its record says it: the ranks, the element counts of every case, the header and the plan.
//! `launch_check` has already checked that the ranks belong together. A rehearsal makes such a record on a simulated machine.

use super::request::Request;
use crate::backend::simulated::SimulatedBackend;
use crate::backend::{Backend, Binding, Call, Marks};
use crate::measure::MAX_HISTOGRAMS;
use crate::world::{SoloWorld, World, agree, share_all};
use commgauge_base::error::{Error, Result};
use commgauge_base::geometry::Geometry;
use commgauge_base::sample::{Cadence, Timing};
use commgauge_base::stats::{Histogram, median, percentile};
use commgauge_base::units::{Bytes, Seconds};
use commgauge_base::writing::grouped;
use commgauge_model::config::machine::Fault;
use commgauge_model::config::{Machine, RunSettings};
use commgauge_model::layout::{Axis, Groups, Locality};
use commgauge_model::record::header::without_secrets;
use commgauge_model::record::line::{
    BackendLine, CaseFacts, CaseLine, ClockLine, ClockMoment, End, FORMAT, Header, Line, Outcome, PairTimes, Plan,
    RankFacts, RankHistogram, Samples, StopReason, VERSION,
};
use commgauge_model::record::{Parts, header};
use commgauge_model::workload::Case;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;

/// A case of the plan with its element counts, or the reason why it cannot run.
pub(super) struct Planned<'a> {
    pub case: &'a Case,
    pub geometry: std::result::Result<Geometry, String>,
    /// Hosts of the ranks, for the locality.
    pub host_of_rank: &'a [u32],
}

/// The ranks of the launch and their hosts.
#[derive(Clone)]
pub(super) struct Ranks {
    pub facts: Vec<RankFacts>,
    pub host_of_rank: Vec<u32>,
    pub program_sha256: String,
}

/// Collects the facts of all ranks.
pub(super) fn ranks(world: &dyn World, backend: &dyn Backend, request: &Request) -> Result<Ranks> {
    let identity = agree(world, header::program_sha256())?;
    let mut facts =
        if backend.facts().virtual_clock { synthetic_ranks(request) } else { gathered_ranks(world, backend)? };
    // Host names are made unique by the launch check.
    for (facts, host) in facts.iter_mut().zip(&request.launch.hosts) {
        facts.host.clone_from(host);
    }
    if !backend.facts().virtual_clock {
        header::number_hosts(&mut facts);
    }
    let host_of_rank = facts.iter().flat_map(|facts| std::iter::repeat_n(facts.node, facts.ranks as usize)).collect();
    Ok(Ranks { facts, host_of_rank, program_sha256: identity })
}

/// One entry per simulated host.
fn synthetic_ranks(request: &Request) -> Vec<RankFacts> {
    let ranks_per_node = request.machine.as_ref().map_or(1, Machine::ranks_per_host);
    let here = header::rank_facts(0);
    (0..request.world_size.div_ceil(ranks_per_node))
        .map(|node| {
            let rank = node * ranks_per_node;
            let ranks = ranks_per_node.min(request.world_size - rank);
            let nowhere = "simulated".to_owned();
            RankFacts {
                rank,
                ranks,
                host: SimulatedBackend::host_name(node),
                node,
                cores: nowhere.clone(),
                numa_nodes: nowhere.clone(),
                processor: nowhere,
                ..here.clone()
            }
        })
        .collect()
}

fn gathered_ranks(world: &dyn World, backend: &dyn Backend) -> Result<Vec<RankFacts>> {
    let (device, adapters) = (backend.device(), backend.adapters());
    let mine = RankFacts { device, adapters, ..header::rank_facts(backend.local_ranks().start) };
    share_all(world, &mine)
}

/// The element counts of every case.
pub(super) fn plan<'a>(ranks: &'a Ranks, request: &'a Request) -> Vec<Planned<'a>> {
    request.plan.cases.iter().map(|case| planned(request, case, &ranks.host_of_rank)).collect()
}

/// The element counts of one case, which need not be in the plan, only its groups.
pub(super) fn planned<'a>(request: &Request, case: &'a Case, host_of_rank: &'a [u32]) -> Planned<'a> {
    let groups = request.plan.groups_of(case);
    Planned { case, geometry: case.op.geometry(groups.group_size()), host_of_rank }
}

/// Rejects a plan whose largest case does not fit into memory, before anything is measured.
pub(super) fn memory(world: &dyn World, backend: &dyn Backend, request: &Request, planned: &[Planned]) -> Result<()> {
    if !backend.refuses_oversized_plans() {
        return Ok(());
    }
    let available = backend.bytes_available();
    let needed = |planned: &Planned| {
        let geometry = planned.geometry.as_ref().ok()?;
        Some((backend.bytes_needed(&binding(request, planned.case, geometry)), planned.case.name()))
    };
    let neediest = planned.iter().filter_map(needed).max_by_key(|(bytes, _)| *bytes);
    let verdict = match neediest {
        Some((Bytes(bytes), name)) if bytes > available.0 => {
            let host = header::rank_facts(0).host;
            let needed = Bytes(bytes);
            Err(Error::usage(format!(
                "case {name} needs {needed} of buffers on each rank; host {host} has {available} per rank; choose smaller sizes"
            )))
        }
        _ => Ok(()),
    };
    agree(world, verdict)
}

/// The length through which calls rotate their buffers when measured as in nccl-tests: the length of its largest size.
fn rotation_within(request: &Request) -> Option<Bytes> {
    let is_whole = request.settings.timing == Timing::Whole;
    is_whole.then(|| request.plan.cases.iter().map(|case| case.op.bytes_total).max()).flatten()
}

pub(super) fn binding<'a>(request: &'a Request, case: &'a Case, geometry: &'a Geometry) -> Binding<'a> {
    Binding {
        op: &case.op,
        placement: case.placement,
        variant: case.variant,
        cadence: case.cadence,
        groups: request.plan.groups_of(case),
        groups_number: case.groups,
        geometry,
        seed: request.settings.seed,
        warm_buffers: request.settings.warm_buffers,
        rotation_within: rotation_within(request),
    }
}

/// Header, the first line of the record.
pub(super) fn header(backend: &dyn Backend, request: &Request, ranks: &Ranks) -> Header {
    let facts = backend.facts();
    let settings = &request.settings;
    let warnings = warnings(backend, request, ranks);
    Header {
        format: FORMAT.to_owned(),
        version: VERSION,
        run_id: request.run_id.clone(),
        started_at: jiff::Zoned::now().strftime("%Y-%m-%dT%H:%M:%S%:z").to_string(),
        program: request.program.to_owned(),
        program_version: header::program_version().to_owned(),
        program_sha256: ranks.program_sha256.clone(),
        command_line: without_secrets(&std::env::args().collect::<Vec<_>>()),
        launch_command: request.launch_command.as_deref().map(without_secrets),
        suite: request.suite.clone(),
        backend: BackendLine {
            name: facts.name.to_owned(),
            measured_by: None,
            synthetic: facts.synthetic,
            library: facts.library,
            transport: facts.transport,
            pair_channels: facts.pair_channels,
            notes: facts.notes,
            machine: request.machine.as_ref().map(|machine| machine.name.clone()),
            nodes_per_leaf: request.machine.as_ref().and_then(Machine::hosts_per_leaf),
            nodes_per_rack: request.machine.as_ref().and_then(Machine::hosts_per_rack),
        },
        world_size: request.world_size,
        seed: settings.seed,
        settings: settings.clone(),
        ranks: ranks.facts.clone(),
        environment: header::environment(),
        warnings,
        notes: request.notes().into_iter().chain(header::nccl_conf_notes()).collect(),
    }
}

/// Maximum number of ranks named in a warning about adapters.
const MAX_ADAPTERS_DOWN: usize = 4;

/// Suffix of an adapter that is down ([`RankFacts::adapters`]).
const IS_DOWN: &str = " is down";

/// Adapters at least as near to a GPU as those in use, without an active port.
fn adapters_down(ranks: &[RankFacts]) -> Option<String> {
    let of_rank = |facts: &RankFacts| {
        let down: Vec<&str> =
            facts.adapters.iter().map(String::as_str).filter(|text| text.ends_with(IS_DOWN)).collect();
        (!down.is_empty()).then(|| format!("rank {}, host {}: {}", facts.rank, facts.host, down.join(", ")))
    };
    let all: Vec<String> = ranks.iter().filter_map(of_rank).collect();
    let more = if all.len() > MAX_ADAPTERS_DOWN {
        format!(", and {} ranks more", all.len() - MAX_ADAPTERS_DOWN)
    } else {
        String::new()
    };
    let shown = all.iter().take(MAX_ADAPTERS_DOWN).map(String::as_str).collect::<Vec<_>>().join("; ");
    (!all.is_empty()).then(|| {
        format!(
            "adapters near GPUs have no active port, so NCCL uses others: {shown}{more}; check `ibstat` and the cable, or exclude them with NCCL_IB_HCA"
        )
    })
}

/// Warnings about the machine that apply to every case.
fn warnings(backend: &dyn Backend, request: &Request, ranks: &Ranks) -> Vec<String> {
    let facts = backend.facts();
    let mut warnings = facts.warnings;
    if facts.virtual_clock {
        warnings.push("synthetic: no data moved and no real time passed; these are not measurements".to_owned());
        return warnings;
    }
    warnings.extend(request.launch.warnings.iter().cloned());
    warnings.extend(adapters_down(&ranks.facts));
    let resolution = backend.clock_resolution_nanoseconds();
    if resolution > 1000 {
        warnings.push(format!("the clock of rank 0 has a resolution of only {resolution} ns"));
    }
    warnings
}

/// Plan, the second line of the record.
pub(super) fn plan_line(request: &Request, planned: &[Planned]) -> Plan {
    // With a budget for all cases, it is not known beforehand which of them get a second replicate.
    let replicates_planned = if request.settings.within.is_some() { 1 } else { u64::from(request.settings.replicates) };
    Plan {
        cases: planned.iter().map(|planned| case_facts(request, planned)).collect(),
        case_lines: planned.len() as u64 * replicates_planned,
        product_lines: (request.plan.products.len() + request.plan.copies.len()) as u64
            * u64::from(request.settings.replicates),
        estimated_seconds: request.plan.estimated_seconds(&request.settings),
        steps: request.plan.steps.clone(),
        ranking: request.plan.ranking.clone(),
    }
}

/// The plan's facts about a case.
pub(super) fn case_facts(request: &Request, planned: &Planned) -> CaseFacts {
    let (case, op) = (planned.case, &planned.case.op);
    let groups = request.plan.groups_of(case);
    let group_size = groups.group_size();
    let locality = Locality::of(groups, planned.host_of_rank);
    let geometry = planned.geometry.as_ref().ok();
    let busiest = |g: &commgauge_base::geometry::Geometry| {
        (0..group_size).map(|rank| g.send_elements(rank, op.root)).max().unwrap_or(0)
    };
    let bound = request.machine.as_ref().and_then(|machine| {
        let Locality { nodes_spanned, ranks_per_node, concurrent_groups_per_node, .. } = locality;
        machine.bus_bandwidth_bound(op.collective, nodes_spanned, ranks_per_node, concurrent_groups_per_node)
    });
    CaseFacts {
        name: case.name(),
        style: op.style,
        axis: op.axis,
        group_size,
        groups: groups.groups.len() as u32,
        locality,
        collective: op.collective,
        element_type: op.element,
        reduce_op: op.reduce_op.filter(|_| op.collective.reduces()),
        root: op.collective.has_root().then_some(op.root),
        bytes_total: geometry.map_or(op.bytes_total, |g| g.bytes_total),
        bytes_accounted: geometry.map_or(op.bytes_total, |g| g.bytes_accounted),
        bytes_per_rank: geometry.map_or(Bytes(0), |g| Bytes(busiest(g) * g.element_bytes)),
        splits: op.collective.has_splits().then(|| op.splits.clone()),
        placement: case.placement,
        cadence: case.cadence,
        transfers_per_call: op.collective.transfers_per_call(),
        bus_factor: op.collective.bus_factor(group_size),
        bound_bytes_per_second: bound,
        uses: case.uses.clone(),
        solo_of: case.solo_of.map(|index| index as u32),
        labels: request.labels.clone().into_iter().chain(case.variant.labels()).collect(),
    }
}

// Cases that are measured together, and their order in each replicate.

/// The cases of the plan, or those that a round adds to it.
#[derive(Clone, Copy)]
pub(super) struct CaseSet<'a> {
    pub planned: &'a [Planned<'a>],
    /// Index in the plan of the first of these cases.
    pub first_case: usize,
    /// 0 for the plan of the suite, then the rounds in which a run adds cases.
    pub round: u32,
}

#[derive(Clone, Copy)]
pub(super) struct CaseSlot {
    pub case: usize,
    pub replicate: u32,
    pub position: u32,
}

impl CaseSet<'_> {
    pub(super) fn index_in_plan(&self, case: usize) -> usize {
        self.first_case + case
    }

    /// Indices in the plan of all of them.
    pub(super) fn indices(&self) -> Range<usize> {
        self.first_case..self.first_case + self.planned.len()
    }

    /// Creates new communicators for all groups in use.
    pub(super) fn connect(&self, request: &Request, backend: &mut dyn Backend) -> Result<()> {
        let used: BTreeSet<usize> = self.planned.iter().map(|planned| planned.case.groups).collect();
        used.iter().try_for_each(|number| backend.connect(*number, &request.plan.groups[*number]))
    }

    /// The order of the cases in a replicate.
    pub(super) fn order(&self, settings: &RunSettings, replicate: u32) -> Vec<usize> {
        if settings.last_in_order && replicate + 1 == settings.replicates {
            return in_order_of_rows(self.planned);
        }
        let seed = settings.seed.wrapping_add(u64::from(self.round) << 32);
        shuffled(self.planned.len(), seed, replicate)
    }
}

/// Shuffled, so that slow drift does not always affect the same cases.
fn shuffled(cases: usize, seed: u64, replicate: u32) -> Vec<usize> {
    let mut order: Vec<usize> = (0..cases).collect();
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed.wrapping_add(u64::from(replicate)));
    order.shuffle(&mut random);
    order
}

/// The order of the rows of a table: sorted by table, and within a table as in the plan.
fn in_order_of_rows(planned: &[Planned]) -> Vec<usize> {
    let part = |case: usize| {
        let case = planned[case].case;
        (case.groups, case.op.style, case.cadence)
    };
    grouped((0..planned.len()).map(|case| (part(case), case))).into_iter().flat_map(|(_, cases)| cases).collect()
}

// Runs a plan on simulated ranks with few calls of each case, and returns the record in memory: enough for verdicts,
// and fast enough to be repeated with hundreds of seeds.
//
// Cases, their order, rounds, replicates and lines are those of a run. Differences: no warm-up and no stop rule, but a fixed number
// of calls; and one histogram for each node instead of each rank, or medians on many nodes, only for the cases whose verdict uses them.

/// Calls of each case in each replicate.
const CALLS: usize = 20;

/// Nanoseconds between the last end and the next common start.
const LEAD: u64 = 1_000_000;

/// A plan that can be rehearsed repeatedly.
pub struct Rehearsal<'a> {
    request: &'a Request,
    machine: Machine,
    ranks: Ranks,
}

impl<'a> Rehearsal<'a> {
    /// Prepares a plan on a simulated machine.
    ///
    /// # Errors
    /// If the request names no machine, or the machine lacks the target of a fault.
    pub fn new(request: &'a Request) -> Result<Rehearsal<'a>> {
        let machine = request.machine.clone().ok_or_else(|| Error::usage("a rehearsal needs a machine file"))?;
        let backend = SimulatedBackend::new(&machine, request.world_size, request.settings.seed)?;
        Ok(Rehearsal { request, machine, ranks: ranks(&SoloWorld, &backend, request)? })
    }

    /// With other faults.
    pub fn with_faults(&self, faults: Vec<Fault>) -> Rehearsal<'a> {
        let machine = Machine { faults, ..self.machine.clone() };
        Rehearsal { request: self.request, machine, ranks: self.ranks.clone() }
    }

    /// The machine with its faults.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Hosts of its ranks.
    pub fn hosts(&self) -> u32 {
        self.machine.hosts_of(self.request.world_size)
    }

    /// The case facts that a record of the plan would have, without executing any case.
    pub fn planned_cases(&self) -> Vec<CaseFacts> {
        plan_line(self.request, &plan(&self.ranks, self.request)).cases
    }

    /// The lines of a record whose noise and transient faults follow from a seed, and the elapsed time of the virtual clock.
    ///
    /// # Errors
    /// If the plan has calls that the simulation does not support, or the machine lacks the target of a fault.
    pub fn lines(&self, seed: u64) -> Result<(Vec<Line>, Seconds)> {
        let mut backend = SimulatedBackend::new(&self.machine, self.request.world_size, seed)?;
        // New communicators of each replicate would be placed like the first ones.
        for (number, groups) in self.request.plan.groups.iter().enumerate() {
            backend.connect(number, groups)?;
        }
        // Faults are placed by the time of cases; the plan counts communicators.
        backend.restart_clock();
        let planned = plan(&self.ranks, self.request);
        let mut header = header(&backend, self.request, &self.ranks);
        header.run_id = format!("{}-{seed}", header.run_id);
        header.seed = seed;
        // Copies and products of the suite are not rehearsed.
        let mut record = Parts::new(header);
        record.plan = Plan { product_lines: 0, ..plan_line(self.request, &planned) };
        record.clocks = Some([ClockMoment::Start, ClockMoment::End].map(|moment| ClockLine::synchronised(moment, 0)));
        let cases = CaseSet { planned: &planned, first_case: 0, round: 0 };
        let settings = RunSettings { seed, ..self.request.settings.clone() };
        for replicate in 0..settings.replicates {
            for (position, case) in (0..).zip(cases.order(&settings, replicate)) {
                let line = self.case_line(&mut backend, &planned[case], case as u32, replicate)?;
                record.cases.push(CaseLine { position, ..line });
            }
        }
        let elapsed = Seconds::from_nanoseconds(backend.now_nanoseconds());
        record.end.elapsed_seconds = elapsed;
        let corrupt = record.cases.iter().filter(|case| matches!(case.outcome, Outcome::Corrupt { .. })).count();
        if corrupt > 0 {
            let error = Some(format!("{corrupt} case lines carry wrong data"));
            record.end = End { exit_code: 4, error, ..record.end };
        }
        Ok((record.lines(), elapsed))
    }

    fn case_line(
        &self,
        backend: &mut SimulatedBackend,
        planned: &Planned,
        case: u32,
        replicate: u32,
    ) -> Result<CaseLine> {
        let groups = self.request.plan.groups_of(planned.case);
        let mut line = CaseLine {
            stop: Some(StopReason::FixedCount),
            ..CaseLine::new(case, planned.case.name(), replicate, Outcome::Measured { verified: false })
        };
        let geometry = match &planned.geometry {
            Ok(geometry) => geometry,
            Err(reason) => {
                (line.outcome, line.stop) = (Outcome::Skipped { reason: reason.clone() }, None);
                return Ok(line);
            }
        };
        let now = backend.now_nanoseconds();
        let mut call = backend.bind(&binding(self.request, planned.case, geometry))?;
        if let Some(wrong) = call.check()? {
            line.outcome = wrong.outcome("before");
            line.stop = None;
            return Ok(line);
        }
        let taken = match planned.case.cadence {
            Cadence::Streaming => streaming(call.as_mut())?,
            Cadence::Isolated => isolated(call.as_mut(), now)?,
        };
        line.samples = samples(&taken, groups, planned.case.cadence);
        match groups.axis {
            Axis::Pair => line.pairs = Some(Box::new(pair_times(&taken, groups))),
            Axis::Node | Axis::Nodes if self.hosts() > MAX_HISTOGRAMS => {
                line.rank_medians = rank_medians(&taken, groups)
            }
            Axis::Node | Axis::Nodes => line.histograms = self.histograms(&taken, groups)?,
            _ => {}
        }
        Ok(line)
    }

    /// One histogram for each node.
    fn histograms(&self, taken: &Taken, groups: &Groups) -> Result<Vec<RankHistogram>> {
        let mut ranks = groups.groups.concat();
        ranks.sort_unstable();
        let node_of = |rank: u32| self.ranks.host_of_rank[rank as usize];
        let of_node = |ranks: &[u32]| {
            let mut histogram = Histogram::new();
            for call in 0..taken.calls {
                ranks.iter().for_each(|rank| histogram.record(taken.of(call, *rank)));
            }
            Ok(RankHistogram {
                rank: ranks[0],
                ranks: ranks.len() as u32,
                hdr_v2_deflate_base64: histogram.encode()?.into(),
            })
        };
        ranks.chunk_by(|a, b| node_of(*a) == node_of(*b)).map(of_node).collect()
    }
}

/// When every rank began and ended each call.
struct Taken {
    ranks: usize,
    calls: usize,
    /// Readings of all ranks, one after another.
    readings: Vec<u64>,
    /// Readings from the beginning of a call to that of the next; a call ends one reading after it begins.
    readings_per_call: usize,
}

impl Taken {
    /// The readings at which a call began.
    fn begins(&self, call: usize) -> &[u64] {
        &self.readings[call * self.readings_per_call * self.ranks..][..self.ranks]
    }

    fn ends(&self, call: usize) -> &[u64] {
        &self.readings[(call * self.readings_per_call + 1) * self.ranks..][..self.ranks]
    }

    /// Duration of a call on a rank.
    fn of(&self, call: usize, rank: u32) -> u64 {
        self.ends(call)[rank as usize].saturating_sub(self.begins(call)[rank as usize])
    }
}

fn streaming(call: &mut dyn Call) -> Result<Taken> {
    call.reserve_marks(CALLS + 1);
    call.mark();
    for _ in 0..CALLS {
        call.enqueue()?;
        call.mark();
    }
    let mut marks = Marks::default();
    call.complete(Duration::from_secs(1))?;
    call.read_marks(&mut marks);
    Ok(Taken { ranks: marks.local_ranks, calls: CALLS, readings: marks.nanoseconds, readings_per_call: 1 })
}

fn isolated(call: &mut dyn Call, mut now: u64) -> Result<Taken> {
    let mut marks = Marks::default();
    let mut readings = Vec::new();
    for _ in 0..CALLS {
        call.reserve_marks(2);
        call.hold_until(now.saturating_add(LEAD));
        call.mark();
        call.enqueue()?;
        call.mark();
        call.complete(Duration::from_secs(1))?;
        call.read_marks(&mut marks);
        now = marks.nanoseconds.iter().copied().max().unwrap_or(now);
        readings.extend_from_slice(&marks.nanoseconds);
    }
    Ok(Taken { ranks: marks.local_ranks, calls: CALLS, readings, readings_per_call: 2 })
}

fn samples(taken: &Taken, groups: &Groups, cadence: Cadence) -> Samples {
    let mut samples = Samples::default();
    let ranks = || groups.groups.iter().flatten().copied();
    for call in 0..taken.calls {
        let slowest = ranks().max_by_key(|rank| taken.of(call, *rank)).unwrap_or(0);
        samples.slowest_nanoseconds.push(taken.of(call, slowest));
        samples.slowest_rank.push(slowest);
        if cadence == Cadence::Isolated {
            let begin = |rank: u32| taken.begins(call)[rank as usize];
            let last = ranks().max_by_key(|rank| begin(*rank)).unwrap_or(0);
            let first = ranks().map(begin).min().unwrap_or(0);
            let end = ranks().map(|rank| taken.ends(call)[rank as usize]).max().unwrap_or(0);
            samples.last_rank.push(last);
            samples.arrival_spread_nanoseconds.push(begin(last) - first);
            samples.transfer_nanoseconds.push(end.saturating_sub(begin(last)));
        }
    }
    samples
}

/// The median of each rank's own times, 0 for ranks in no group.
fn rank_medians(taken: &Taken, groups: &Groups) -> Vec<u64> {
    let mut medians = vec![0; taken.ranks];
    let mut times = Vec::with_capacity(taken.calls);
    for rank in groups.groups.iter().flatten() {
        times.clear();
        times.extend((0..taken.calls).map(|call| taken.of(call, *rank)));
        times.sort_unstable();
        medians[*rank as usize] = three_digits(times[times.len().saturating_sub(1) / 2]);
    }
    medians
}

/// A time to three significant digits, as histograms have it: its ten highest bits. Records of many ranks stay short.
fn three_digits(nanoseconds: u64) -> u64 {
    let shift = (nanoseconds | 1).ilog2().saturating_sub(10);
    nanoseconds >> shift << shift
}

fn pair_times(taken: &Taken, groups: &Groups) -> PairTimes {
    let mut columns = PairTimes::default();
    // A run of 512 nodes has ten million pairs.
    let mut times = Vec::with_capacity(taken.calls);
    for pair in &groups.groups {
        let &[a, b] = pair.as_slice() else { continue };
        times.clear();
        times.extend((0..taken.calls).map(|call| taken.of(call, a).max(taken.of(call, b)) as f64));
        times.sort_unstable_by(f64::total_cmp);
        let whole = |time: Option<f64>| time.map_or(0, |time| three_digits(time as u64));
        columns.rank_a.push(a);
        columns.rank_b.push(b);
        columns.samples.push(times.len() as u64);
        columns.p10_nanoseconds.push(whole(percentile(&times, 10.0)));
        columns.median_nanoseconds.push(whole(median(&times)));
        columns.p90_nanoseconds.push(whole(percentile(&times, 90.0)));
    }
    columns
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn every_replicate_has_all_cases_in_an_order_of_its_own_that_the_seed_repeats() {
        let mut sorted = shuffled(50, 7, 0);
        assert_ne!(sorted, shuffled(50, 7, 1));
        assert_eq!(sorted, shuffled(50, 7, 0));
        sorted.sort_unstable();
        assert_eq!(sorted, (0..50).collect::<Vec<_>>());
    }

    #[test]
    fn adapters_without_an_active_port_are_named_with_the_ranks_that_have_none_nearer() {
        let rank = |rank: u32, adapters: &[&str]| RankFacts {
            rank,
            host: "a".to_owned(),
            adapters: adapters.iter().map(|text| (*text).to_owned()).collect(),
            ..header::rank_facts(rank)
        };
        assert_eq!(adapters_down(&[rank(0, &["mlx5_0 (same PCIe switch, 400 Gb/sec (4X NDR))"]), rank(1, &[])]), None);
        let down = ["mlx5_0 (same PCIe root, 400 Gb/sec (4X NDR))", "mlx5_1 (same PCIe switch) is down"];
        let ranks: Vec<RankFacts> = (0..6).map(|number| rank(number, &down)).collect();
        let said = adapters_down(&ranks).expect("they are down");
        for words in ["rank 0, host a: mlx5_1 (same PCIe switch) is down; rank 1", "and 2 ranks more; check `ibstat`"] {
            assert!(said.contains(words), "{said}");
        }
    }
}
