//! `network.yml` and `system.json` of ASTRA-sim's analytical network backends.
//!
//! One dimension inside the node, a second between nodes, both switches. Bandwidth is that of a rank's link in GB/s with a GB of
//! 2^30 bytes, latency that of a link in ns (`bw_GBps_to_Bpns`, astra-network-analytical). A ring all_reduce has 2 (n-1) steps, and
//! a message through a switch passes two links: latency = alpha / (2 (n-1)) / 2.

use super::files::{Export, pretty};
use super::options::{ExportOptions, ranks_per_node};
use super::pick::{Curves, Found, Wanted};
use commgauge_base::collective::Collective;
use commgauge_base::error::Result;
use serde_json::json;

const GIBI: f64 = (1u64 << 30) as f64;

pub(super) fn files(curves: &Curves, options: &ExportOptions) -> Result<Export> {
    let per_node = ranks_per_node(options)?;
    let mut export = Export::default();
    let mut dimensions = Vec::new();
    let inside = (per_node > 1).then_some((per_node, Wanted::OnHosts(1)));
    // Between nodes: groups with one rank on each.
    let between = (options.nodes > 1).then_some((options.nodes, Wanted::OnHosts(options.nodes)));
    for (ranks, wanted) in inside.into_iter().chain(between) {
        match curves.find(&[Collective::AllReduce], ranks, wanted) {
            Ok(found) => dimensions.extend(link(curves, &found).map(|(rate, nanoseconds)| (ranks, rate, nanoseconds))),
            Err(gap) => export.gaps.push(gap),
        }
    }
    if dimensions.is_empty() || !export.gaps.is_empty() {
        // A machine that lacks a dimension would be another machine.
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
        "scheduling-policy": "LIFO",
        "endpoint-delay": 0,
        "active-chunks-per-dimension": 1,
        "preferred-dataset-splits": 1,
        "all-reduce-implementation": ring,
        "all-gather-implementation": ring,
        "reduce-scatter-implementation": ring,
        "all-to-all-implementation": ring,
        "collective-optimization": "localBWAware",
    });
    export.add("network.yml", network);
    export.add("system.json", pretty(&system)?);
    export.notes.push("memory bandwidth and peak rate of a rank are not in a fit; add them to system.json".to_owned());
    Ok(export)
}

/// Bytes per second of a link, and its nanoseconds.
fn link(curves: &Curves, found: &Found) -> Option<(f64, f64)> {
    let steps = 2.0 * f64::from(found.curve.ranks.max(2) - 1);
    let (rate, _) = curves.bus_bandwidth(found)?;
    Some((rate, found.curve.alpha_seconds.0 * 1e9 / steps / 2.0))
}
