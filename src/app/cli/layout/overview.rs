//! The displayed facts of a layout: its axes, in order, and the placement of each on the nodes. Independent of the
//! output format.

use commgauge_model::layout::{Axis, Groups, Layout, Locality};

/// The displayed axes, in the order of the table.
pub(super) const SHOWN: [Axis; 10] =
    [Axis::Tp, Axis::Cp, Axis::Ep, Axis::Etp, Axis::Dp, Axis::Pp, Axis::Mp, Axis::DpCp, Axis::Edp, Axis::Embedding];

/// A layout on nodes.
pub(super) struct Overview {
    pub layout: Layout,
    pub ranks_per_node: u32,
    /// Node of each rank: launchers fill one node after the other.
    pub host_of_rank: Vec<u32>,
    pub axes: Vec<AxisView>,
}

/// One axis, without its groups: these are computed while they are written, one axis at a time, so that 131,072 ranks
/// need little memory.
pub(super) struct AxisView {
    pub axis: Axis,
    pub groups: usize,
    pub group_size: u32,
    pub locality: Locality,
    pub first: Vec<u32>,
    pub last: Vec<u32>,
}

impl Overview {
    /// The overview of these axes, or of all if none is given. Tensor parallelism inside experts is included if its
    /// groups differ from those of the dense layers.
    pub fn new(layout: Layout, ranks_per_node: u32, axes: &[Axis]) -> Overview {
        let host_of_rank: Vec<u32> = (0..layout.group_size(Axis::World)).map(|rank| rank / ranks_per_node).collect();
        let is_shown = |axis: &Axis| match axes {
            [] => *axis != Axis::Etp || layout.has_own_expert_tensor_groups(),
            named => named.contains(axis),
        };
        let axes = SHOWN.into_iter().filter(is_shown);
        let axes = axes.map(|axis| AxisView::new(layout.groups(axis), &host_of_rank)).collect();
        Overview { layout, ranks_per_node, host_of_rank, axes }
    }

    /// Number of ranks.
    pub fn world(&self) -> u32 {
        self.host_of_rank.len() as u32
    }

    /// Number of nodes; the last one may be partially filled.
    pub fn nodes(&self) -> u32 {
        self.world().div_ceil(self.ranks_per_node)
    }
}

impl AxisView {
    fn new(groups: Groups, host_of_rank: &[u32]) -> AxisView {
        let end = |group: Option<&Vec<u32>>| group.cloned().unwrap_or_default();
        AxisView {
            axis: groups.axis,
            groups: groups.groups.len(),
            group_size: groups.group_size(),
            locality: Locality::of(&groups, host_of_rank),
            first: end(groups.groups.first()),
            last: end(groups.groups.last()),
        }
    }
}

/// The ranks of a group with a bar at each node boundary, such as `0 4 | 8 12`; the middle of long groups is replaced
/// by `..`.
pub(super) fn group_text(group: &[u32], host_of_rank: &[u32], most_columns: usize) -> String {
    let host = |rank: u32| host_of_rank.get(rank as usize);
    let mut text = String::new();
    let mut previous: Option<u32> = None;
    let tail = group.last().map_or(String::new(), |last| format!(" .. {last}"));
    // Longest prefix that fits together with the elided rest.
    let mut fitting = 0;
    for rank in group {
        match previous {
            Some(previous) if host(previous) != host(*rank) => text += " | ",
            Some(_) => text.push(' '),
            None => {}
        }
        text += &rank.to_string();
        previous = Some(*rank);
        if text.len() + tail.len() <= most_columns {
            fitting = text.len();
        }
        if text.len() > most_columns {
            text.truncate(fitting);
            return if fitting == 0 { tail.trim_start().to_owned() } else { text + &tail };
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_mark_node_boundaries_and_long_groups_are_elided() {
        let hosts: Vec<u32> = (0..200).map(|rank| rank / 8).collect();
        for (group, most_columns, expected) in [
            (vec![0, 4, 8, 12], 40, "0 4 | 8 12"),
            (vec![0, 8], 5, "0 | 8"),
            (vec![], 5, ""),
            (vec![3], 1, "3"),
            ((0..8).collect(), 9, "0 1 .. 7"),
            ((0..16).map(|i| i * 8).collect(), 20, "0 | 8 | 16 .. 120"),
            (vec![100, 101, 102], 4, ".. 102"),
        ] {
            assert_eq!(group_text(&group, &hosts, most_columns), expected, "{group:?}");
        }
    }
}
