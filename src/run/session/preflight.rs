//! Prepares a run before anything is timed: collects the ranks, and checks that every case fits into memory. `launch_check` has already
//! checked that the ranks belong together.

use super::request::Request;
use crate::backend::simulated::SimulatedBackend;
use crate::backend::{Backend, Binding};
use crate::world::{World, agree, share_all};
use commgauge_base::error::{Error, Result};
use commgauge_base::geometry::Geometry;
use commgauge_base::sample::Timing;
use commgauge_base::units::Bytes;
use commgauge_model::config::Machine;
use commgauge_model::record::header;
use commgauge_model::record::line::RankFacts;
use commgauge_model::workload::Case;

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
