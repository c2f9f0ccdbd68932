//! Alpa's profile of a mesh (`alpa/mesh_profiling.py`, `MeshProfilingResult`), as JSON: its own file is a Python
//! pickle of its own classes, which another program cannot write reliably. docs/interop.md has the loader.
//!
//! For every call a list of groups, type and points, each a number of elements and seconds. Elements are counted as
//! Alpa does: the whole buffer; for all_to_all the buffers of all ranks together.

use super::files::{Export, pretty};
use super::options::{ExportOptions, ranks_per_node};
use super::pick::{Curves, Wanted};
use crate::cost::Place;
use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use commgauge_base::error::Result;
use serde_json::{Value, json};

const CALLS: [(&str, Collective); 4] = [
    ("all_gather", Collective::AllGather),
    ("all_reduce", Collective::AllReduce),
    ("all_to_all", Collective::AllToAll),
    ("reduce_scatter", Collective::ReduceScatter),
];

pub(super) fn files(curves: &Curves, options: &ExportOptions) -> Result<Export> {
    let (per_node, nodes) = (ranks_per_node(options)?, options.nodes);
    let mut export = Export::default();
    let mut entries = Vec::new();
    let world = u64::from(per_node) * u64::from(nodes);
    for (name, collective) in CALLS {
        for size in (2..=world).filter(|size| world.is_multiple_of(*size)) {
            let (ranks, groups) = (size as u32, world / size);
            let of_node = ranks.min(per_node);
            let place = Place {
                nodes_spanned: ranks.div_ceil(per_node),
                concurrent_groups_per_node: (per_node / of_node).max(1),
                stride: 1,
            };
            let found = match curves.find(&[collective], ranks, Wanted::At(place)) {
                Ok(found) => found,
                Err(gap) => {
                    export.gaps.push(gap);
                    continue;
                }
            };
            let lists: Vec<Vec<u64>> = (0..groups).map(|group| (group * size..(group + 1) * size).collect()).collect();
            for (dtype, width) in types(found.family.key.element_type) {
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
    let document = json!({
        "source": curves.source(),
        "synthetic": curves.fit.synthetic,
        "mesh_shape": [nodes, per_node],
        "entries": entries,
    });
    export.notes.push("costs of matrix products and memory of a device: keep those of Alpa's own profile".to_owned());
    export.add("alpa.json", pretty(&document)?);
    Ok(export)
}

/// Alpa's names of types with their bytes; a call that only moves bytes takes equally long for any type.
fn types(element: Option<ElementType>) -> Vec<(&'static str, u64)> {
    match element {
        None => vec![("f16", 2), ("f32", 4)],
        Some(ElementType::Float16 | ElementType::Bfloat16) => vec![("f16", 2)],
        Some(ElementType::Float32) => vec![("f32", 4)],
        Some(_) => Vec::new(),
    }
}
