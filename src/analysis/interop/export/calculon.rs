//! The networks of a Calculon system file (calculon-ai/calculon, `systems/*.json`), inserted into a file of the user.
//!
//! `time = latency + scalar * bytes * (n + offset) / n / (bandwidth * efficiency)` with bandwidth in GB/s of 10^9
//! bytes and latency in seconds (`calculon/network.py`). Older files have `ops: number` and
//! `collective_minus1_scalar`, newer ones `ops: [scalar, offset]`: the form of the given file is used. Processor and
//! memory are not in a fit, so that file is required.

use super::files::{Export, pretty};
use super::options::{ExportOptions, ranks_per_node};
use super::pick::{Curves, Found, Wanted};
use commgauge_base::collective::Collective;
use commgauge_base::error::{Error, Result};
use serde_json::{Map, Value, json};

const OPS: [(&str, Collective); 3] = [
    ("reduce_scatter", Collective::ReduceScatter),
    ("all_gather", Collective::AllGather),
    ("all_reduce", Collective::AllReduce),
];

pub(super) fn files(curves: &Curves, options: &ExportOptions) -> Result<Export> {
    let Some(base) = &options.base else {
        return Err(Error::usage(
            "--base is missing; a Calculon system describes processor and memory, too, which a fit does not hold: give a system \
             file of yours, whose networks are replaced",
        ));
    };
    let networks = base.get("networks").and_then(Value::as_array);
    let Some(networks) = networks.filter(|networks| (1..=2).contains(&networks.len())) else {
        return Err(Error::usage("--base: has no list `networks` of one or two, so it is no Calculon system file"));
    };
    let per_node = ranks_per_node(options)?;
    let mut export = Export::default();
    let mut replaced = Vec::new();
    for (tier, network) in networks.iter().enumerate() {
        let (ranks, hosts) = if tier == 0 { (per_node, 1) } else { (options.nodes, options.nodes) };
        if tier > 0 && options.nodes < 2 {
            export.gaps.push("the network between nodes; say with --nodes how many were measured".to_owned());
            continue;
        }
        match tier_of(curves, network, ranks, Wanted::OnHosts(hosts), &mut export) {
            Some(mut tier_network) => {
                if tier == 0 {
                    tier_network.insert("size".to_owned(), json!(per_node));
                }
                replaced.push(Value::Object(tier_network));
            }
            None => continue,
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
    for (name, collective) in OPS {
        match curves.find(&[collective], ranks, wanted) {
            Ok(found) => measured.extend(slope(curves, &found).map(|(rate, alpha)| (name, rate, alpha))),
            Err(gap) => export.gaps.push(gap),
        }
    }
    let messages = [Collective::SendRecvChain, Collective::SendRecv];
    match curves.find(&messages, ranks, wanted) {
        Ok(found) => measured.extend(slope(curves, &found).map(|(rate, alpha)| ("p2p", rate, alpha))),
        Err(gap) => export.gaps.push(gap),
    }
    if measured.len() < OPS.len() + 1 {
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

/// Bus bandwidth in bytes per second, and alpha.
fn slope(curves: &Curves, found: &Found) -> Option<(f64, f64)> {
    Some((curves.bus_bandwidth(found)?.0, found.curve.alpha_seconds.0))
}
