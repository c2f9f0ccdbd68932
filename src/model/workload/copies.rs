//! The copies of a suite's `[[copy]]` tables on the hosts of a launch.

use crate::config::{CopyKind, CopyTable, HostMemory};
use crate::layout::Nodes;
use commgauge_base::units::Bytes;
use std::collections::HashSet;

/// A copy that every rank makes, each with its own GPU.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CopyShape {
    /// From where to where.
    pub kind: CopyKind,
    /// Memory of the host's end, where there is one.
    pub host_memory: Option<HostMemory>,
    /// How far the other rank is in the order of the ranks of a host, where there is one; behind the last one comes the first.
    pub peer_distance: Option<u32>,
    /// Bytes in each direction.
    pub bytes: Bytes,
    /// Whether one rank of each host copies at a time.
    pub alone: bool,
}

impl CopyShape {
    /// In words, such as `host-to-device of 256 MiB, pinned, alone`.
    pub fn name(&self) -> String {
        let memory = self.host_memory.map(|memory| memory.name().to_owned());
        let peer = self.peer_distance.map(|distance| format!("peer +{distance}"));
        let each = if self.alone { "alone" } else { "together" };
        let parts: Vec<String> = memory.into_iter().chain(peer).chain([each.to_owned()]).collect();
        format!("{} of {}, {}", self.kind.name(), self.bytes, parts.join(", "))
    }
}

/// The copies of all tables, each once: with peers at every distance that a host of the launch has. None of those on hosts of one rank.
pub(super) fn of(tables: &[CopyTable], nodes: &Nodes) -> Vec<CopyShape> {
    let most = nodes.ranks_of().iter().map(Vec::len).max().unwrap_or(1) as u32;
    let (mut shapes, mut listed) = (Vec::new(), HashSet::new());
    for table in tables {
        for kind in &table.kinds {
            for (host_memory, peer_distance) in ends(table, *kind, most) {
                let sizes = table.bytes.iter().flat_map(|bytes| table.alone.iter().map(move |alone| (*bytes, *alone)));
                let fresh =
                    sizes.map(|(bytes, alone)| CopyShape { kind: *kind, host_memory, peer_distance, bytes, alone });
                shapes.extend(fresh.filter(|shape| listed.insert(shape.clone())));
            }
        }
    }
    shapes
}

/// Memory of the host, and distance to the peer.
fn ends(table: &CopyTable, kind: CopyKind, most_ranks: u32) -> Vec<(Option<HostMemory>, Option<u32>)> {
    if kind.is_of_peers() {
        return (1..most_ranks).map(|distance| (None, Some(distance))).collect();
    }
    if !kind.is_of_host() {
        return vec![(None, None)];
    }
    let memory = table.host_memory.iter().filter(|memory| **memory == HostMemory::Pinned || !kind.is_both_ways());
    memory.map(|memory| (Some(*memory), None)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(kinds: &[CopyKind]) -> CopyTable {
        CopyTable {
            kinds: kinds.to_vec(),
            host_memory: vec![HostMemory::Pinned, HostMemory::Pageable],
            bytes: vec![Bytes(1 << 20)],
            alone: vec![true],
        }
    }

    fn names(kinds: &[CopyKind], nodes: &Nodes) -> Vec<String> {
        of(&[table(kinds), table(kinds)], nodes).iter().map(CopyShape::name).collect()
    }

    #[test]
    fn peers_are_met_at_every_distance_and_each_copy_is_there_once() {
        let two_hosts = Nodes::of_hosts(&["a", "a", "a", "b"]);
        let expected = ["to-peer of 1 MiB, peer +1, alone", "to-peer of 1 MiB, peer +2, alone"];
        assert_eq!(names(&[CopyKind::ToPeer], &two_hosts), expected);
        assert_eq!(names(&[CopyKind::PeerBothWays], &Nodes::of_hosts(&["a", "b"])), [] as [String; 0]);
    }

    #[test]
    fn of_pageable_memory_both_ways_at_once_are_left_out() {
        let one = Nodes::single(1);
        let expected = ["host-to-device of 1 MiB, pinned, alone", "host-to-device of 1 MiB, pageable, alone"];
        assert_eq!(names(&[CopyKind::HostToDevice], &one), expected);
        assert_eq!(names(&[CopyKind::HostBothWays], &one), ["host-both-ways of 1 MiB, pinned, alone"]);
        assert_eq!(names(&[CopyKind::WithinDevice], &one), ["within-device of 1 MiB, alone"]);
    }
}
