//! `nccl_perf.parquet` of aiconfigurator (ai-dynamo/aiconfigurator): one time for each call inside a node.
//!
//! Columns, types and units as in the files of its package: `message_size` counts elements, `latency` is milliseconds, `nccl_dtype` is
//! `half` or `int8`, and all_to_all is `alltoall`. It scales traffic between nodes by itself, so only groups inside a node are exported.

use super::options::{Curves, ExportOptions, Found, Wanted, parquet_file, ranks_per_node};
use crate::interop::log_text::collective;
use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use commgauge_base::error::{Error, Result};
use commgauge_base::writing::CommaSeparated;
use commgauge_cost::cost::Place;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::fmt::Write;

const SCHEMA: &str = "message nccl_perf {
    required binary framework (STRING); required binary version (STRING); required binary device (STRING);
    required binary op_name (STRING); required binary kernel_source (STRING); required binary nccl_dtype (STRING);
    required int64 num_gpus; required int64 message_size; required double latency;
}";

const AICONFIGURATOR_CALLS: &str = "all_gather alltoall reduce_scatter all_reduce";

pub(super) fn aiconfigurator_files(curves: &Curves) -> Result<Export> {
    let mut export = Export::default();
    let (mut rows, source) = (Vec::new(), curves.source());
    for (op_name, collective) in calls(AICONFIGURATOR_CALLS) {
        let own = curves.families().filter(|family| family.key.collective == collective);
        let mut inside: Vec<_> = own.filter(|family| curves.matches(family, Wanted::OnHosts(1))).collect();
        // The format has no placements: a group size is represented by the fewest concurrent groups, then by
        // neighbours.
        inside.sort_by_key(|family| (family.key.place.concurrent_groups_per_node, family.key.place.stride));
        let mut written = BTreeSet::new();
        if inside.is_empty() {
            let hint = curves.hint_at_places(&[collective]);
            export.gaps.push(format!("{collective} inside a host was not measured{hint}"));
        }
        for family in inside {
            let known: [(_, &[ElementType]); 2] =
                [("half", HALVES), ("int8", &[ElementType::Int8, ElementType::Uint8])];
            let types = types(family.key.element_type, &known);
            if types.is_empty() {
                let element = family.key.element_type.map_or_else(String::new, |element| element.to_string());
                export.gaps.push(format!("{collective} of {element}: the file knows half and int8"));
            }
            if family.key.element_type == Some(ElementType::Bfloat16) {
                export.notes.push(format!("{collective}: bfloat16 is exported as half, which has the same width"));
            }
            for curve in &family.curves {
                for (name, width) in &types {
                    for point in curve.points.iter().filter(|point| point.bytes_total.0.is_multiple_of(*width)) {
                        let Some(seconds) = point.curve_seconds else { continue };
                        if !written.insert((*name, curve.ranks, point.bytes_total)) {
                            continue;
                        }
                        let row = json!({
                            "framework": source, "version": "", "device": "", "op_name": op_name, "kernel_source": "NCCL", "nccl_dtype": name,
                            "num_gpus": curve.ranks, "message_size": point.bytes_total.0 / width, "latency": seconds.0 * 1e3,
                        });
                        rows.extend(row.as_object().cloned());
                    }
                }
            }
        }
    }
    if !rows.is_empty() {
        export.add("nccl_perf.parquet", parquet_file("the export as Parquet", SCHEMA, &rows)?);
    }
    Ok(export)
}

/// The names of a type and its bytes, among those that a planner knows; a call that only moves bytes takes equally long for any type.
fn types(element: Option<ElementType>, known: &[(&'static str, &[ElementType])]) -> Vec<(&'static str, u64)> {
    let is_of = |types: &[ElementType]| element.is_none_or(|element| types.contains(&element));
    known.iter().filter(|(_, types)| is_of(types)).map(|(name, types)| (*name, types[0].size())).collect()
}

/// Each call of a planner's list, with its own name.
fn calls(names: &'static str) -> impl Iterator<Item = (&'static str, Collective)> {
    names.split(' ').filter_map(|name| Some((name, collective(name).ok()?)))
}

const HALVES: &[ElementType] = &[ElementType::Float16, ElementType::Bfloat16];

// Alpa's profile of a mesh (`alpa/mesh_profiling.py`, `MeshProfilingResult`), as JSON: its native file is a Python pickle of its own
// classes, which another program cannot write reliably. docs/interop.md has the loader.
//
// For every call a list of groups, type and points, each a number of elements and seconds. Elements are counted as
// Alpa does: the whole buffer; for all_to_all the buffers of all ranks together.

const ALPA_CALLS: &str = "all_gather all_reduce all_to_all reduce_scatter";

pub(super) fn alpa_files(curves: &Curves, options: &ExportOptions) -> Result<Export> {
    let (per_node, nodes) = (ranks_per_node(options)?, options.nodes);
    let mut export = Export::default();
    let mut entries = Vec::new();
    let world = u64::from(per_node) * u64::from(nodes);
    for (name, collective) in calls(ALPA_CALLS) {
        for size in (2..=world).filter(|size| world.is_multiple_of(*size)) {
            let (ranks, groups) = (size as u32, world / size);
            let of_node = ranks.min(per_node);
            let place = Place {
                nodes_spanned: ranks.div_ceil(per_node),
                concurrent_groups_per_node: (per_node / of_node).max(1),
                stride: 1,
            };
            let Some(found) = export.known(curves.find(&[collective], ranks, Wanted::At(place))) else { continue };
            let lists: Vec<Vec<u64>> = (0..groups).map(|group| (group * size..(group + 1) * size).collect()).collect();
            for (dtype, width) in
                types(found.family.key.element_type, &[("f16", HALVES), ("f32", &[ElementType::Float32])])
            {
                let scale = if collective == Collective::AllToAll { size } else { 1 };
                let elements = |bytes: u64| bytes.checked_mul(scale).map(|bytes| bytes / width);
                let points = found.curve.points.iter();
                let points: Vec<Value> = points
                    .filter_map(|point| Some(json!([elements(point.bytes_total.0)?, point.curve_seconds?.0])))
                    .collect();
                entries.push(json!({ "call": name, "groups": lists, "dtype": dtype, "points": points }));
            }
        }
    }
    if entries.is_empty() {
        return Ok(export);
    }
    let (source, synthetic) = (curves.source(), curves.fit.synthetic);
    let document =
        json!({ "source": source, "synthetic": synthetic, "mesh_shape": [nodes, per_node], "entries": entries });
    export.notes.push("matrix products and device memory: keep the values of Alpa's own profile".to_owned());
    export.add("alpa.json", pretty(&document)?);
    Ok(export)
}

// The networks of a Calculon system file (calculon-ai/calculon, `systems/*.json`), inserted into a file of the user.
//
// `time = latency + scalar * bytes * (n + offset) / n / (bandwidth * efficiency)` with bandwidth in GB/s of 10^9
// bytes and latency in seconds (`calculon/network.py`). Older files have `ops: number` and
// `collective_minus1_scalar`, newer ones `ops: [scalar, offset]`: the form of the given file is used. Processor and
// memory are not in a fit, so that file is required.

const OPS: [(&str, &[Collective]); 4] = [
    ("reduce_scatter", &[Collective::ReduceScatter]),
    ("all_gather", &[Collective::AllGather]),
    ("all_reduce", &[Collective::AllReduce]),
    ("p2p", &MESSAGES),
];

pub(super) fn calculon_files(curves: &Curves, options: &ExportOptions) -> Result<Export> {
    let Some(base) = &options.base else {
        return Err(Error::usage(
            "--base is missing; a Calculon system also describes processor and memory, which a fit does not contain: give your own system file, whose networks are replaced",
        ));
    };
    let networks = base.get("networks").and_then(Value::as_array);
    let Some(networks) = networks.filter(|networks| (1..=2).contains(&networks.len())) else {
        return Err(Error::usage("--base: has no list `networks` of one or two, so it is not a Calculon system file"));
    };
    let per_node = ranks_per_node(options)?;
    let mut export = Export::default();
    let mut replaced = Vec::new();
    for (tier, network) in networks.iter().enumerate() {
        let (ranks, hosts) = if tier == 0 { (per_node, 1) } else { (options.nodes, options.nodes) };
        if tier > 0 && options.nodes < 2 {
            export.gaps.push("the network between nodes; give the number of measured nodes with --nodes".to_owned());
            continue;
        }
        if let Some(mut network) = tier_of(curves, network, ranks, Wanted::OnHosts(hosts), &mut export) {
            if tier == 0 {
                network.insert("size".to_owned(), json!(per_node));
            }
            replaced.push(Value::Object(network));
        }
    }
    if replaced.len() < networks.len() {
        return Ok(export);
    }
    let mut system = base.clone();
    if let Some(object) = system.as_object_mut() {
        object.insert("networks".to_owned(), Value::Array(replaced));
        object.insert("_source".to_owned(), json!(curves.source()));
    }
    export.add("system.json", pretty(&system)?);
    Ok(export)
}

/// One network with its rates replaced, or none if a call was not measured.
fn tier_of(
    curves: &Curves,
    network: &Value,
    ranks: u32,
    wanted: Wanted,
    export: &mut Export,
) -> Option<Map<String, Value>> {
    let mut measured: Vec<(&str, f64, f64)> = Vec::new();
    for (name, collectives) in OPS {
        let found = export.known(curves.find(collectives, ranks, wanted));
        let slope = found.and_then(|found| slope(curves, &found));
        measured.extend(slope.map(|(rate, alpha)| (name, rate, alpha)));
    }
    if measured.len() < OPS.len() {
        return None;
    }
    let mut changed = network.as_object()?.clone();
    let old_form = changed.get("ops").and_then(|ops| ops.get("all_reduce")).is_some_and(Value::is_number);
    let fastest = measured.iter().map(|(_, rate, _)| *rate).fold(0.0, f64::max);
    let mut ops = Map::new();
    for (name, rate, _) in &measured {
        let bytes_factor = if *name == "all_reduce" { 2.0 } else { 1.0 };
        let scalar = bytes_factor * fastest / rate;
        let value = match (old_form, *name) {
            (true, _) => json!(scalar),
            (false, "p2p") => json!([scalar, Value::Null]),
            (false, _) => json!([scalar, -1]),
        };
        ops.insert((*name).to_owned(), value);
    }
    let latency = measured.iter().map(|(_, _, alpha)| *alpha).sum::<f64>() / measured.len() as f64;
    changed.insert("bandwidth".to_owned(), json!(fastest * 1e-9));
    changed.insert("efficiency".to_owned(), json!(1.0));
    changed.insert("latency".to_owned(), json!(latency));
    changed.insert("ops".to_owned(), Value::Object(ops));
    if old_form {
        changed.insert("collective_minus1_scalar".to_owned(), json!(true));
    }
    export.notes.push(format!(
        "{ranks} ranks {wanted}: one latency for all calls, the mean of their alphas; group sizes other than {ranks} follow its (n-1)/n"
    ));
    Some(changed)
}

/// Bus bandwidth in bytes per second, and alpha in seconds.
fn slope(curves: &Curves, found: &Found) -> Option<(f64, f64)> {
    Some((curves.bus_bandwidth(found)?.0, found.curve.alpha_seconds.0))
}

// The folder `hardware_configs` of Hetu-Galvatron: bus bandwidths of all_reduce and of messages, and times of all_reduce and
// all_to_all by size.
//
// Keys as its profiler writes them (`core/profiler/hardware_profiler.py`): `allreduce_size_N_consec_C` for groups of neighbours (C = 1) and
// of ranks as far apart as possible (C = 0), all groups at the same time; `pp_size_N`; `allreduce_size_N_SMB_time` and
// `all2all_size_N_SMB_time` in milliseconds. Its search divides megabytes of 2^20 bytes by the bandwidths to get milliseconds
// (`utils/config_utils.py`, `core/cost_model`), so they are written in 2^20 bytes per millisecond. Its reader ignores other keys.

const MEBI: f64 = (1u64 << 20) as f64;

const MESSAGES: [Collective; 2] = [Collective::SendRecvChain, Collective::SendRecv];

/// Substitute for messages: rings of the same ranks.
const RINGS: [Collective; 2] = [Collective::AllGather, Collective::AllReduce];

/// Its reader rejects fewer sizes.
const FEWEST_SIZES: usize = 8;

pub(super) fn galvatron_files(curves: &Curves, options: &ExportOptions) -> Result<Export> {
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
        let rate = curves.rate(&[Collective::AllReduce], size, place(size, stride, per_node, world));
        export.take_rate(&key, rate, &mut all_reduce);
    }
    let mut messages = Map::new();
    let mut derived = Vec::new();
    for size in sizes() {
        let key = format!("pp_size_{size}");
        let at = place(size, world / size, per_node, world);
        let is_measured = curves.find(&MESSAGES, size, Wanted::At(at)).is_ok();
        // In a ring every rank sends to its neighbour, as in a pipeline: bus bandwidth is the rate of these messages.
        let ring = RINGS.into_iter().find(|ring| curves.find(&[*ring], size, Wanted::At(at)).is_ok());
        match ring.filter(|_| !is_measured) {
            None => export.take_rate(&key, curves.rate(&MESSAGES, size, at), &mut messages),
            Some(ring) => {
                export.take_rate(&key, curves.rate(&[ring], size, at), &mut messages);
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
            let found = curves.find(&[collective], size, Wanted::At(place(size, 1, per_node, world)));
            match found.and_then(|found| times_by_mebibytes(curves, &found)) {
                Ok(found) => times.extend(found.into_iter().map(|(mebibytes, seconds)| {
                    (format!("{name}_size_{size}_{mebibytes}MB_time"), json!(seconds * 1e3))
                })),
                Err(gap) => export.gaps.push(format!("{name}_size_{size}_*MB_time: {gap}")),
            }
        }
    }
    let note = "overlap_coefficient.json: the fit does not contain the mutual slowdown of calls and compute; keep the file of Galvatron's profile_overlap";
    export.notes.push(note.to_owned());
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

impl Export {
    /// Adds a bus bandwidth in units of 1000 MiB/s, or why there is none.
    fn take_rate(&mut self, key: &str, rate: std::result::Result<(f64, u64), String>, values: &mut Map<String, Value>) {
        match rate {
            Ok((rate, bytes)) => {
                values.insert(key.to_owned(), json!(rate / MEBI / 1e3));
                self.notes.push(format!("{key}: bus bandwidth at {bytes} B"));
            }
            Err(gap) => self.gaps.push(format!("{key}: {gap}")),
        }
    }
}

/// Times of the sizes 1 MiB, 2 MiB ... 1 GiB, each with its MiB, or why there are too few.
fn times_by_mebibytes(curves: &Curves, found: &Found) -> std::result::Result<Vec<(u64, f64)>, String> {
    let seconds = |power: u32| Some((1u64 << power, curves.seconds(found, 1 << (20 + power))?));
    let times: Vec<(u64, f64)> = (0..=10).filter_map(seconds).collect();
    match times.len() {
        FEWEST_SIZES.. => Ok(times),
        few => Err(format!("{few} of the sizes 1 MiB ... 1 GiB were measured; Galvatron needs {FEWEST_SIZES}")),
    }
}

// `network.yml` and `system.json` of ASTRA-sim's analytical network backends.
//
// One dimension inside the node, a second between nodes, both switches. Bandwidth is the rate of a rank's link in GB/s with a GB of 2^30
// bytes, latency the time of a link in ns (`bw_GBps_to_Bpns`, astra-network-analytical). A ring all_reduce has 2 (n-1) steps, and a message
// through a switch passes two links: latency = alpha / (2 (n-1)) / 2.

const GIBI: f64 = (1u64 << 30) as f64;

pub(super) fn astra_sim_files(curves: &Curves, options: &ExportOptions) -> Result<Export> {
    let per_node = ranks_per_node(options)?;
    let mut export = Export::default();
    let mut dimensions = Vec::new();
    let inside = (per_node > 1).then_some((per_node, Wanted::OnHosts(1)));
    // Between nodes: groups with one rank per node.
    let between = (options.nodes > 1).then_some((options.nodes, Wanted::OnHosts(options.nodes)));
    for (ranks, wanted) in inside.into_iter().chain(between) {
        let found = export.known(curves.find(&[Collective::AllReduce], ranks, wanted));
        let link = found.and_then(|found| link(curves, &found));
        dimensions.extend(link.map(|(rate, nanoseconds)| (ranks, rate, nanoseconds)));
    }
    if dimensions.is_empty() || !export.gaps.is_empty() {
        // A machine without one of its dimensions would be a different machine.
        return Ok(export);
    }
    let list = |value: &dyn Fn(&(u32, f64, f64)) -> String| dimensions.iter().map(value).collect::<Vec<_>>().join(", ");
    let network = format!(
        "# {}\n# links of all_reduce; GB is 2^30 bytes\ntopology: [ {} ]\nnpus_count: [ {} ]\nbandwidth: [ {} ]  # GB/s\nlatency: [ {} ]  # ns\n",
        curves.source(),
        list(&|_| "Switch".to_owned()),
        list(&|dimension| dimension.0.to_string()),
        list(&|dimension| format!("{:.4}", dimension.1 / GIBI)),
        list(&|dimension| format!("{:.2}", dimension.2)),
    );
    let ring = vec!["ring"; dimensions.len()];
    let system = json!({
        "scheduling-policy": "LIFO", "endpoint-delay": 0, "active-chunks-per-dimension": 1, "preferred-dataset-splits": 1,
        "all-reduce-implementation": ring, "all-gather-implementation": ring, "reduce-scatter-implementation": ring,
        "all-to-all-implementation": ring, "collective-optimization": "localBWAware",
    });
    export.add("network.yml", network);
    export.add("system.json", pretty(&system)?);
    let note = "a fit does not contain memory bandwidth and peak rate of a rank; add them to system.json";
    export.notes.push(note.to_owned());
    Ok(export)
}

/// Bytes per second of a link, and its nanoseconds.
fn link(curves: &Curves, found: &Found) -> Option<(f64, f64)> {
    let steps = 2.0 * f64::from(found.curve.ranks.max(2) - 1);
    let (rate, _) = curves.bus_bandwidth(found)?;
    Some((rate, found.curve.alpha_seconds.0 * 1e9 / steps / 2.0))
}

// `busbw.yaml` of SimAI-Analytical (aliyun/SimAI): one bus bandwidth for each call of each axis.
//
// Its reader (`AstraParamParse.hh`) skips the first line, treats `#` as a comment, requires a comma behind the name
// of a call, and reads `null` as unknown. It computes times with `GBps` = 1/1024^3 (`Common.hh`): a GB is 2^30 bytes.
// It has no latency.

const SIMAI_CALLS: [(&str, &[Collective]); 4] = [
    ("allreduce,", &[Collective::AllReduce]),
    ("allgather,", &[Collective::AllGather]),
    ("reducescatter,", &[Collective::ReduceScatter]),
    ("alltoall,", &[Collective::AllToAll]),
];

pub(super) fn simai_files(curves: &Curves, options: &ExportOptions) -> Result<Export> {
    if options.axes.is_empty() {
        return Err(Error::usage(
            "--axis is missing; SimAI needs one bus bandwidth per axis: give group size and place of each, such as \
             --axis tp=8@1n/1g/s1 --axis dp=2@2n/8g/s8",
        ));
    }
    let mut export = Export::default();
    let mut text = format!("{}\n", curves.source());
    let mut known = 0;
    for section in ["tp", "dp", "ep", "pp"] {
        let _ = writeln!(text, "{}:", section.to_ascii_uppercase());
        let axis_place = options.axes.iter().find(|axis| axis.axis == section);
        let of_messages: &[(&str, &[Collective])] = &[("busbw", &MESSAGES)];
        for (name, collectives) in if section == "pp" { of_messages } else { &SIMAI_CALLS } {
            let value = axis_place.and_then(|axis| {
                let rate = curves.rate(collectives, axis.ranks, axis.place);
                let (rate, bytes) = rate.map_err(|gap| export.gaps.push(format!("{section}: {gap}"))).ok()?;
                export.notes.push(format!("{section} {}: bus bandwidth at {bytes} B", name.trim_end_matches(',')));
                Some(rate)
            });
            known += u32::from(value.is_some());
            let value = value.map_or_else(|| "null".to_owned(), |rate| format!("{:.4}", rate / GIBI));
            let _ = writeln!(text, "{name}: {value}");
        }
    }
    if known > 0 {
        export.add("busbw.yaml", text);
    }
    Ok(export)
}

// The measured points of a fit in the columns that `commgauge import --from csv` reads: a fit of them is the same.

const HEADING: [&str; 7] = ["collective", "dtype", "ranks", "bytes_total", "latency_us", "locality", "source"];

pub(super) fn comma_separated_files(curves: &Curves) -> Result<Export> {
    // Labels that distinguish families, such as an algorithm, become columns.
    let names: BTreeSet<&String> = curves.families().flat_map(|family| family.key.labels.keys()).collect();
    let heading = HEADING.into_iter().chain(names.iter().map(|name| name.as_str()));
    let mut text = CommaSeparated::new("CSV", heading)?;
    let mut gaps = Vec::new();
    for family in curves.families() {
        // A type is required; for a call that only moves bytes any type fits.
        let element = family.key.element_type.map_or("uint8", |element| element.name());
        for curve in &family.curves {
            for point in &curve.points {
                let microseconds = |seconds: f64| format!("{}", seconds * 1e6);
                let row = [
                    family.key.collective.name().to_owned(),
                    element.to_owned(),
                    curve.ranks.to_string(),
                    point.bytes_total.0.to_string(),
                    microseconds(point.measured_seconds.0),
                    family.key.place.to_string(),
                    curves.source(),
                ];
                let labels = names.iter().map(|name| family.key.labels.get(*name).cloned().unwrap_or_default());
                text.row(row.into_iter().chain(labels))?;
            }
        }
    }
    let left = curves.fit.families.len() - curves.families().count();
    if left > 0 {
        gaps.push(format!("{left} families of isolated calls; the columns have one cadence, streaming"));
    }
    let text = text.finish()?;
    let mut export = Export { gaps, ..Export::default() };
    export.add("calibration.csv", text);
    Ok(export)
}

// The files of an export, and the values missing in them.

/// The files, and the values missing in them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Export {
    pub files: Vec<ExportedFile>,
    /// Values that the planner needs and the fit does not contain, as sentences.
    pub gaps: Vec<String>,
    pub notes: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportedFile {
    /// Its name within an export folder.
    pub name: String,
    /// Content: text, or Parquet.
    pub content: Vec<u8>,
}

impl Export {
    /// What was found; a gap is kept.
    fn known<T>(&mut self, found: std::result::Result<T, String>) -> Option<T> {
        found.map_err(|gap| self.gaps.push(gap)).ok()
    }

    pub(super) fn add(&mut self, name: impl Into<String>, content: impl Into<Vec<u8>>) {
        self.files.push(ExportedFile { name: name.into(), content: content.into() });
    }
}

/// A JSON text indented by four spaces, with a final line feed.
pub(super) fn pretty(value: &Value) -> Result<String> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|cause| Error::environment(format!("cannot write the export as JSON: {cause}")))?;
    Ok(text + "\n")
}
