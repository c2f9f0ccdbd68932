//! Converts the internal types of a run to the lines of its record.

use super::preflight::{Planned, Ranks};
use super::request::Request;
use crate::backend::Backend;
use commgauge_base::units::Bytes;
use commgauge_model::config::Machine;
use commgauge_model::layout::Locality;
use commgauge_model::record::line::{
    BackendLine, CaseFacts, FORMAT, Header, Plan, RankFacts, Settings, StepUse, VERSION,
};
use commgauge_model::record::provenance;
use commgauge_model::record::secrets::without_secrets;
use commgauge_model::workload::Use;

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
        program_version: provenance::program_version().to_owned(),
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
            notes: facts.notes,
            machine: request.machine.as_ref().map(|machine| machine.name.clone()),
            nodes_per_leaf: request.machine.as_ref().and_then(Machine::hosts_per_leaf),
            nodes_per_rack: request.machine.as_ref().and_then(Machine::hosts_per_rack),
        },
        world_size: request.world_size,
        seed: settings.seed,
        settings: Settings {
            precision: settings.precision,
            minimum_samples: settings.minimum_samples,
            maximum_samples: settings.maximum_samples,
            case_budget_seconds: settings.case_budget,
            replicates: settings.replicates,
            warm_buffers: settings.warm_buffers,
            start: settings.start,
            timing: settings.timing,
            verify: settings.verify,
            within_seconds: settings.within,
            soak: settings.is_soak(),
            iterations: settings.fixed_iterations,
            calls_like: settings.calls_like.map(|tool| tool.name().to_owned()),
        },
        ranks: ranks.facts.clone(),
        environment: provenance::environment(),
        warnings,
        notes: request.notes(),
    }
}

/// Warnings about the machine that apply to every case.
/// Ranks whose adapters are named in a warning.
const MAX_ADAPTERS_DOWN: usize = 4;

/// What an adapter that is down ends with ([`RankFacts::adapters`]).
const IS_DOWN: &str = " is down";

/// Adapters as near to a GPU as those in use, or nearer, of which no port is active.
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
            "adapters near GPUs have no active port, so that NCCL takes others: {shown}{more}; look at `ibstat` and at the cable, or leave \
             them out by NCCL_IB_HCA"
        )
    })
}

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

fn step_use(of: &Use) -> StepUse {
    StepUse {
        step: of.step as u32,
        style: of.style,
        when: of.when,
        count_per_step: of.count_per_step,
        wire_bytes_per_step: of.wire_bytes_per_step,
        exposed: of.overlap.is_exposed(),
        overlaps_with: (!of.overlap.is_exposed()).then(|| of.overlap.name().to_owned()),
        why: of.why.clone(),
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
        uses: case.uses.iter().map(step_use).collect(),
        solo_of: case.solo_of.map(|index| index as u32),
        labels: request.labels.clone().into_iter().chain(case.variant.labels()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adapters_without_an_active_port_are_named_with_the_ranks_that_have_none_nearer() {
        let rank = |rank: u32, adapters: &[&str]| RankFacts {
            rank,
            host: "a".to_owned(),
            adapters: adapters.iter().map(|text| (*text).to_owned()).collect(),
            ..provenance::rank_facts(rank)
        };
        assert_eq!(adapters_down(&[rank(0, &["mlx5_0 (same PCIe switch, 400 Gb/sec (4X NDR))"]), rank(1, &[])]), None);
        let down = ["mlx5_0 (same PCIe root, 400 Gb/sec (4X NDR))", "mlx5_1 (same PCIe switch) is down"];
        let ranks: Vec<RankFacts> = (0..6).map(|number| rank(number, &down)).collect();
        let said = adapters_down(&ranks).expect("they are down");
        for words in ["rank 0, host a: mlx5_1 (same PCIe switch) is down; rank 1", "and 2 ranks more; look at `ibstat`"]
        {
            assert!(said.contains(words), "{said}");
        }
    }
}
