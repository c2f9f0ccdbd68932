//! `nccl_perf.txt` of aiconfigurator (ai-dynamo/aiconfigurator): one time for each call inside a node.
//!
//! Columns and units as its loader reads them (`load_nccl_data`): `message_size` counts elements, `latency` is milliseconds,
//! `nccl_dtype` is `half` or `int8`, and all_to_all is `alltoall`. It scales what crosses nodes by itself, so only groups inside a
//! node are given.

use super::files::Export;
use super::pick::{Curves, Wanted};
use commgauge_base::collective::Collective;
use commgauge_base::comma_separated::CommaSeparated;
use commgauge_base::element::ElementType;
use commgauge_base::error::Result;
use std::collections::BTreeSet;

const HEADING: [&str; 9] =
    ["framework", "version", "device", "op_name", "kernel_source", "nccl_dtype", "num_gpus", "message_size", "latency"];
const CALLS: [(Collective, &str); 4] = [
    (Collective::AllGather, "all_gather"),
    (Collective::AllToAll, "alltoall"),
    (Collective::ReduceScatter, "reduce_scatter"),
    (Collective::AllReduce, "all_reduce"),
];

pub(super) fn files(curves: &Curves) -> Result<Export> {
    let mut export = Export::default();
    let mut text = CommaSeparated::new("CSV", HEADING)?;
    let mut rows = 0;
    for (collective, op_name) in CALLS {
        let own = curves.families().filter(|family| family.key.collective == collective);
        let mut inside: Vec<_> = own.filter(|family| curves.matches(family, Wanted::OnHosts(1))).collect();
        // The format has no placements: a group size is represented by the fewest concurrent groups, then by
        // neighbours.
        inside.sort_by_key(|family| (family.key.place.concurrent_groups_per_node, family.key.place.stride));
        let mut written = BTreeSet::new();
        if inside.is_empty() {
            export.gaps.push(format!("{collective} inside a host was not measured"));
        }
        for family in inside {
            let types = types(family.key.element_type);
            if types.is_empty() {
                let element = family.key.element_type.map_or_else(String::new, |element| element.to_string());
                export.gaps.push(format!("{collective} of {element}: the file knows half and int8"));
            }
            if family.key.element_type == Some(ElementType::Bfloat16) {
                export.notes.push(format!("{collective}: bfloat16 is given as half, which is as wide"));
            }
            for curve in &family.curves {
                for (name, width) in types {
                    for point in curve.points.iter().filter(|point| point.bytes_total.0.is_multiple_of(*width)) {
                        let Some(seconds) = point.curve_seconds else { continue };
                        if !written.insert((*name, curve.ranks, point.bytes_total)) {
                            continue;
                        }
                        let row = [
                            curves.source(),
                            String::new(),
                            String::new(),
                            op_name.to_owned(),
                            "NCCL".to_owned(),
                            (*name).to_owned(),
                            curve.ranks.to_string(),
                            (point.bytes_total.0 / width).to_string(),
                            format!("{}", seconds.0 * 1e3),
                        ];
                        text.row(&row)?;
                        rows += 1;
                    }
                }
            }
        }
    }
    let text = text.finish()?;
    if rows > 0 {
        export.files.push(("nccl_perf.txt".to_owned(), text));
    }
    Ok(export)
}

/// The names of a type and its bytes; a call that only moves bytes takes equally long for any type.
fn types(element: Option<ElementType>) -> &'static [(&'static str, u64)] {
    match element {
        None => &[("half", 2), ("int8", 1)],
        Some(ElementType::Float16 | ElementType::Bfloat16) => &[("half", 2)],
        Some(ElementType::Int8 | ElementType::Uint8) => &[("int8", 1)],
        Some(_) => &[],
    }
}
