//! The folder `hardware_configs` of Hetu-Galvatron: bus bandwidths of all_reduce and of messages, and times of all_reduce and
//! all_to_all by size.
//!
//! Keys as its profiler writes them (`core/profiler/hardware_profiler.py`): `allreduce_size_N_consec_C` for groups of neighbours
//! (C = 1) and of ranks as far apart as possible (C = 0), all groups at the same time; `pp_size_N`; `allreduce_size_N_SMB_time` and
//! `all2all_size_N_SMB_time` in milliseconds. Its search divides megabytes of 2^20 bytes by the bandwidths to get milliseconds
//! (`utils/config_utils.py`, `core/cost_model`), so they are given in 2^20 bytes per millisecond. Of other keys its reader takes no
//! notice.

use super::files::{Export, pretty};
use super::options::{ExportOptions, ranks_per_node};
use super::pick::{Curves, Wanted};
use crate::cost::Place;
use commgauge_base::collective::Collective;
use commgauge_base::error::{Error, Result};
use serde_json::{Map, Value, json};

const MEBI: f64 = (1u64 << 20) as f64;
/// Messages between stages.
const MESSAGES: [Collective; 2] = [Collective::SendRecvChain, Collective::SendRecv];
/// What stands in for them: rings of the same ranks.
const RINGS: [Collective; 2] = [Collective::AllGather, Collective::AllReduce];
/// Its reader refuses fewer sizes.
const FEWEST_SIZES: usize = 8;

pub(super) fn files(curves: &Curves, options: &ExportOptions) -> Result<Export> {
    let (per_node, nodes) = (ranks_per_node(options)?, options.nodes);
    let world = per_node.checked_mul(nodes).filter(|world| *world > 1 && world.is_power_of_two()).ok_or_else(|| {
        Error::usage(format!("{nodes} nodes of {per_node} ranks: Galvatron plans on 2, 4, 8 ... ranks"))
    })?;
    let mut export = Export::default();
    let sizes = || std::iter::successors(Some(world), |size| Some(size / 2)).take_while(|size| *size > 1);
    let mut all_reduce = Map::new();
    for (size, neighbours) in sizes().flat_map(|size| [(size, true), (size, false)]) {
        if size == world && !neighbours {
            continue;
        }
        let key = format!("allreduce_size_{size}_consec_{}", u32::from(neighbours));
        let stride = if neighbours { 1 } else { world / size };
        bandwidth(
            curves,
            &[Collective::AllReduce],
            size,
            place(size, stride, per_node, world),
            &key,
            &mut all_reduce,
            &mut export,
        );
    }
    let mut messages = Map::new();
    let mut derived = Vec::new();
    for size in sizes() {
        let key = format!("pp_size_{size}");
        let at = place(size, world / size, per_node, world);
        let is_measured = curves.find(&MESSAGES, size, Wanted::At(at)).is_ok();
        // In a ring every rank sends to its neighbour what a pipeline sends: bus bandwidth is the rate of that.
        let ring = RINGS.into_iter().find(|ring| curves.find(&[*ring], size, Wanted::At(at)).is_ok());
        match ring.filter(|_| !is_measured) {
            None => bandwidth(curves, &MESSAGES, size, at, &key, &mut messages, &mut export),
            Some(ring) => {
                bandwidth(curves, &[ring], size, at, &key, &mut messages, &mut export);
                export.notes.push(format!("{key}: DERIVED from {ring} at the same place; no messages were measured"));
                derived.push(format!("{key} from {ring}"));
            }
        }
    }
    if !derived.is_empty() {
        messages.insert("_derived".to_owned(), json!(derived.join(", ")));
    }
    let mut times = Map::new();
    for (name, collective) in [("allreduce", Collective::AllReduce), ("all2all", Collective::AllToAll)] {
        for size in sizes() {
            by_size(curves, collective, name, size, place(size, 1, per_node, world), &mut times, &mut export);
        }
    }
    export.notes.push(
        "overlap_coefficient.json: how much calls and compute slow each other down is not in the fit; keep the file of Galvatron's \
         profile_overlap"
            .to_owned(),
    );
    let tail = format!("{nodes}nodes_{per_node}gpus_per_node.json");
    for (name, mut values) in [("allreduce_bandwidth", all_reduce), ("p2p_bandwidth", messages), ("sp_time", times)] {
        if !values.is_empty() {
            values.insert("_source".to_owned(), json!(curves.source()));
            export.add(format!("{name}_{tail}"), pretty(&Value::Object(values))?);
        }
    }
    Ok(export)
}

/// Placement of groups of `size` ranks that are `stride` apart, all of them active.
fn place(size: u32, stride: u32, per_node: u32, world: u32) -> Place {
    // All are powers of two, so a group has either whole nodes or an equal part of each.
    let of_group_on_node = (per_node / stride).clamp(1, size);
    let nodes_spanned = size / of_group_on_node;
    let nodes = world / per_node;
    let groups = world / size;
    Place { nodes_spanned, concurrent_groups_per_node: (groups * nodes_spanned / nodes).max(1), stride }
}

fn bandwidth(
    curves: &Curves,
    collectives: &[Collective],
    ranks: u32,
    place: Place,
    key: &str,
    values: &mut Map<String, Value>,
    export: &mut Export,
) {
    let found = curves.find(collectives, ranks, Wanted::At(place));
    let rate = found.and_then(|found| curves.bus_bandwidth(&found).ok_or_else(|| "no usable curve".to_owned()));
    match rate {
        Ok((rate, bytes)) => {
            values.insert(key.to_owned(), json!(rate / MEBI / 1e3));
            export.notes.push(format!("{key}: bus bandwidth at {bytes} B"));
        }
        Err(gap) => export.gaps.push(format!("{key}: {gap}")),
    }
}

fn by_size(
    curves: &Curves,
    collective: Collective,
    name: &str,
    ranks: u32,
    place: Place,
    values: &mut Map<String, Value>,
    export: &mut Export,
) {
    let found = match curves.find(&[collective], ranks, Wanted::At(place)) {
        Ok(found) => found,
        Err(gap) => return export.gaps.push(format!("{name}_size_{ranks}_*MB_time: {gap}")),
    };
    let seconds = |power: u32| Some((1u64 << power, curves.seconds(&found, 1 << (20 + power))?));
    let times: Vec<(u64, f64)> = (0..=10).filter_map(seconds).collect();
    if times.len() < FEWEST_SIZES {
        let gap = format!("{} of the sizes 1 MiB ... 1 GiB were measured; Galvatron needs {FEWEST_SIZES}", times.len());
        return export.gaps.push(format!("{name}_size_{ranks}_*MB_time: {gap}"));
    }
    for (mebibytes, seconds) in times {
        values.insert(format!("{name}_size_{ranks}_{mebibytes}MB_time"), json!(seconds * 1e3));
    }
}
