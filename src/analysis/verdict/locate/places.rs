//! Where ranks are: nodes by number with their hosts, local ranks, and leaf switches, from the records.

use super::super::loaded_record::LoadedRecord;
use commgauge_base::error::{Error, Result};
use commgauge_base::visible::ShownPath;
use commgauge_model::record::line::RankFacts;

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
}

impl Places {
    /// The places that all records share.
    ///
    /// # Errors
    /// A usage error where records are of different machines or placements, or one is given twice.
    pub(super) fn of(records: &[LoadedRecord], nodes_per_leaf: Option<u32>) -> Result<Places> {
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
        let recorded = records.iter().find_map(|loaded| loaded.record.header.backend.nodes_per_leaf);
        Ok(Places { nodes_per_leaf: nodes_per_leaf.or(recorded).filter(|each| *each > 0), ..places })
    }

    fn of_ranks(ranks: &[RankFacts], world_size: u32) -> Places {
        let mut places = Places {
            hosts: Vec::new(),
            node_of: vec![0; world_size as usize],
            local_of: vec![0; world_size as usize],
            ranks_on: Vec::new(),
            nodes_per_leaf: None,
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
