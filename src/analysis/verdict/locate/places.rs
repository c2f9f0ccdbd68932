//! Where ranks are: nodes by number with their hosts, local ranks, and leaf switches, from the records.

use super::super::loaded_record::LoadedRecord;
use commgauge_base::error::{Error, Result};
use commgauge_base::visible::ShownPath;
use commgauge_model::config::Machine;
use commgauge_model::record::line::{BackendLine, RankFacts};

/// What is known of the machine besides the records.
#[derive(Clone, Debug, Default)]
pub struct LocateOptions {
    /// Nodes behind each leaf switch, counted from node 0; `None` takes the value from the records.
    pub nodes_per_leaf: Option<u32>,
    /// Nodes that the links of a rack join, counted from node 0 (18 in an NVL72 rack); `None` takes the value from the records.
    pub nodes_per_rack: Option<u32>,
    /// The machine file that says what pairs of nodes reach; without it, they are only compared with each other.
    pub machine: Option<Machine>,
}

impl LocateOptions {
    /// What a machine file says.
    pub fn of_machine(machine: &Machine) -> LocateOptions {
        let machine = machine.clone();
        LocateOptions {
            nodes_per_leaf: machine.hosts_per_leaf(),
            nodes_per_rack: machine.hosts_per_rack(),
            machine: Some(machine),
        }
    }
}

/// Where the ranks of a run are.
#[derive(Clone, Debug)]
pub(super) struct Places {
    /// Host of each node, by number.
    pub hosts: Vec<String>,
    /// Node of each rank, as an index of `hosts`.
    pub node_of: Vec<u32>,
    /// Local rank of each rank on its node.
    pub local_of: Vec<u32>,
    /// Ranks on each node.
    pub ranks_on: Vec<u32>,
    /// Nodes behind each leaf switch, where that is known.
    pub nodes_per_leaf: Option<u32>,
    /// Nodes that the links inside a rack join, where they do.
    pub nodes_per_rack: Option<u32>,
}

/// What joins two nodes; each kind has times of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// The links of one rack.
    WithinRack,
    /// One leaf switch, or a network of which no leaves are known.
    SameLeaf,
    AcrossLeaves,
}

impl Way {
    pub(super) const ALL: [Way; 3] = [Way::WithinRack, Way::SameLeaf, Way::AcrossLeaves];
}

impl Places {
    /// The places that all records share.
    ///
    /// # Errors
    /// A usage error where records are of different machines or placements, or one is given twice.
    pub(super) fn of(records: &[LoadedRecord], options: &LocateOptions) -> Result<Places> {
        let (first, others) =
            records.split_first().ok_or_else(|| Error::usage("name at least one record to look at"))?;
        let places = Places::of_ranks(&first.record.header.ranks, first.record.header.world_size);
        for (index, other) in others.iter().enumerate() {
            let header = &other.record.header;
            if let Some(twin) = records[..=index].iter().find(|twin| twin.record.header.run_id == header.run_id) {
                let (a, b) = (twin.path.shown(), other.path.shown());
                return Err(Error::usage(format!("{a} and {b} are the same run ({}); it counts once", header.run_id)));
            }
            let theirs = Places::of_ranks(&header.ranks, header.world_size);
            if (&theirs.hosts, &theirs.node_of) != (&places.hosts, &places.node_of) {
                let (a, b) = (first.path.shown(), other.path.shown());
                return Err(Error::usage(format!(
                    "{a} and {b} have their ranks on different hosts; look at them one by one"
                )));
            }
        }
        let recorded =
            |of: fn(&BackendLine) -> Option<u32>| records.iter().find_map(|loaded| of(&loaded.record.header.backend));
        let nodes_per_leaf = options.nodes_per_leaf.or_else(|| recorded(|backend| backend.nodes_per_leaf));
        let nodes_per_rack = options.nodes_per_rack.or_else(|| recorded(|backend| backend.nodes_per_rack));
        Ok(Places {
            nodes_per_leaf: nodes_per_leaf.filter(|each| *each > 0),
            nodes_per_rack: nodes_per_rack.filter(|each| *each > 1),
            ..places
        })
    }

    fn of_ranks(ranks: &[RankFacts], world_size: u32) -> Places {
        let mut places = Places {
            hosts: Vec::new(),
            node_of: vec![0; world_size as usize],
            local_of: vec![0; world_size as usize],
            ranks_on: Vec::new(),
            nodes_per_leaf: None,
            nodes_per_rack: None,
        };
        for facts in ranks {
            // Nodes are numbered in the order of first appearance, but a record may have been written by hand.
            let node = match places.hosts.iter().rposition(|host| *host == facts.host) {
                Some(node) => node,
                None => {
                    places.hosts.push(facts.host.clone());
                    places.ranks_on.push(0);
                    places.hosts.len() - 1
                }
            };
            for rank in facts.rank..facts.rank.saturating_add(facts.ranks).min(world_size) {
                places.node_of[rank as usize] = node as u32;
                places.local_of[rank as usize] = places.ranks_on[node];
                places.ranks_on[node] += 1;
            }
        }
        places
    }

    pub(super) fn nodes(&self) -> usize {
        self.hosts.len()
    }

    /// The leaf of a node; 0 for all where leaves are not known.
    pub(super) fn leaf_of(&self, node: usize) -> usize {
        self.nodes_per_leaf.map_or(0, |each| node / each as usize)
    }

    /// The rack of a node; where no links join several nodes, each is its own.
    pub(super) fn rack_of(&self, node: usize) -> usize {
        self.nodes_per_rack.map_or(node, |each| node / each as usize)
    }

    /// Whether nodes are of several racks that are more than a node each.
    pub(super) fn has_racks(&self) -> bool {
        self.nodes_per_rack.is_some_and(|each| self.nodes() > each as usize)
    }

    /// Whether the links of one rack join all nodes.
    pub(super) fn is_one_rack(&self) -> bool {
        self.nodes_per_rack.is_some() && !self.has_racks()
    }

    pub(super) fn way(&self, [a, b]: [usize; 2]) -> Way {
        if self.rack_of(a) == self.rack_of(b) {
            Way::WithinRack
        } else if self.leaf_of(a) == self.leaf_of(b) {
            Way::SameLeaf
        } else {
            Way::AcrossLeaves
        }
    }

    /// Number of leaves; one where they are not known.
    pub(super) fn leaves(&self) -> usize {
        self.nodes().checked_sub(1).map_or(0, |last| self.leaf_of(last) + 1)
    }

    /// The nodes behind a leaf.
    pub(super) fn behind(&self, leaf: usize) -> Vec<usize> {
        (0..self.nodes()).filter(|node| self.leaf_of(*node) == leaf).collect()
    }

    /// Node and host in a few words.
    pub(super) fn name(&self, node: usize) -> String {
        format!("node {node} ({})", self.hosts.get(node).map_or("unknown host", String::as_str))
    }
}
