//! The result of `commgauge judge`'s search for suspects, as a document. The published JSON Schema (`commgauge show schema suspects`) is
//! made from these types.
//!
//! Numbers are in base units with the unit in their name; there is no NaN and no infinity, an unknown value is absent.

use super::super::{Metric, Problem, Row, Run, most_severe};
use super::pair_lines::{Measure, Places};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The value of `format` in every such document.
pub const SUSPECTS_FORMAT: &str = "commgauge-suspects";

/// Minimum size of a set in which one member can be an outlier.
pub(super) const MIN_MEMBERS: usize = 4;

/// Minimum number of nodes whose paths to each other can be compared.
pub(super) const FEWEST_COMPARED: usize = 3;

/// With fewer nodes than this a single measure makes no suspect.
pub(super) const FEW_NODES: usize = 8;

/// The version of the format.
pub const SUSPECTS_VERSION: u32 = 1;

/// Entry of `unseen` if the data cannot decide on nodes and links at all.
pub(super) const NODE_OR_LINK: &str = "node or link";

/// Suspects, strongest evidence first, and what the data cannot show.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Suspects {
    /// Always `commgauge-suspects`.
    pub format: String,
    /// Version of the format.
    pub version: u32,
    /// Exit code of the program: 0 no suspect and everything measured, 1 a suspect, 3 undecided, 4 to 7 a problem with the records.
    pub exit_code: i32,
    /// The answer in one sentence.
    pub answer: String,
    /// True if any of the records is synthetic: nothing below was measured.
    pub synthetic: bool,
    /// The records.
    pub runs: Vec<Run>,
    /// The extent of the data.
    pub examined: Examined,
    /// The suspects, strongest evidence first.
    pub suspects: Vec<Suspect>,
    /// Findings of one measure alone, on too few nodes for a suspect. They set `exit_code` 3.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unconfirmed: Vec<Unconfirmed>,
    /// Periods in which the whole machine was slow, as sentences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[serde(rename = "slow_whiles")]
    pub slow_periods: Vec<String>,
    /// Kinds of fault that the data cannot show, in a few words each; `cannot_tell` gives the reasons.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unseen: Vec<String>,
    /// What the data cannot show, as sentences.
    pub cannot_tell: Vec<String>,
    /// Warnings about the records as a whole, each with its exit code.
    #[serde(rename = "troubles")]
    pub problems: Vec<Problem>,
    /// The rule, as sentences.
    pub rule: Vec<String>,
}

impl Suspects {
    /// The kinds of fault that the data cannot show, as a sentence; `None` if it shows all.
    pub fn unseen_in_words(&self) -> Option<String> {
        (!self.unseen.is_empty()).then(|| format!("faults that this record cannot show: {}", self.unseen.join("; ")))
    }

    /// The exit code without the unconfirmed findings.
    pub(in crate::verdict) fn exit_code_when_cleared(&self) -> i32 {
        let suspected = i32::from(!self.suspects.is_empty());
        let undecided = if self.unseen.iter().any(|kind| kind == NODE_OR_LINK) { 3 } else { 0 };
        most_severe(self.problems.iter().map(|problem| problem.exit_code).chain([suspected, undecided]))
    }
}

/// The extent of the data.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Examined {
    /// Nodes of the run.
    pub nodes: u32,
    /// Host names of the nodes, by number of the node.
    pub hosts: Vec<String>,
    /// Maximum number of ranks of a node that met other nodes in pairs; each represents the rail of its adapter.
    pub local_ranks: u32,
    /// Nodes of each leaf switch, if known.
    pub nodes_per_leaf: Option<u32>,
    /// Nodes that the links of each rack join, if any.
    pub nodes_per_rack: Option<u32>,
    /// Number of pairs of nodes.
    pub node_pairs: u64,
    /// Number of these that were measured.
    pub node_pairs_measured: u64,
    /// Nodes whose inner collectives were measured.
    pub nodes_measured_inside: u32,
    /// Pairs of devices inside nodes that were compared with those of other nodes.
    #[serde(default)]
    pub inside_pairs: u64,
    /// Whether a machine file gives the expected rates of pairs.
    #[serde(default)]
    pub pairs_expected: bool,
    /// Numbers of nodes that groups of growing size spanned, ascending.
    pub group_nodes: Vec<u32>,
    /// Cases with a common start, which show late ranks.
    pub isolated_cases: u32,
    /// Replicates.
    pub replicates: u32,
}

impl Examined {
    /// Whether enough nodes met in pairs to identify a slow node or path: two of three agree, and for two a machine file gives the expected
    /// rate.
    pub fn can_name_a_node(&self) -> bool {
        self.node_pairs_measured > 0 && (self.nodes as usize >= FEWEST_COMPARED || self.pairs_expected)
    }
}

/// A node or link that only one measure shows as slow, where another one must agree.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Unconfirmed {
    /// The measure.
    pub measure: Measure,
    /// The slow place, such as `link between node 0 (a) and node 1 (b)`.
    pub name: String,
    /// Share by which it is slower: 0.5 is half as much time again.
    pub slower_by: f64,
}

impl Unconfirmed {
    /// What the measure shows, as a sentence.
    pub fn in_words(&self) -> String {
        format!(
            "only {} shows {} as slow, by {:.0} %: on fewer than {FEW_NODES} nodes another measure must agree, so it is not suspected; more replicates would decide",
            self.measure.name(),
            self.name,
            100.0 * self.slower_by
        )
    }
}

/// A suspect.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Suspect {
    /// Kind and place.
    #[serde(rename = "culprit")]
    pub kind: SuspectKind,
    /// Its name, such as `node 17 (node-0017)`.
    pub name: String,
    /// True if it was slow only in some of its measurements.
    pub intermittent: bool,
    /// Share by which work with it is slower: 0.5 is half as much time again. Absent for late ranks.
    pub slower_by: Option<f64>,
    /// How late it came, for late ranks.
    pub late_seconds: Option<f64>,
    /// How far beyond the scatter: the distance as a multiple of the allowed one; at least 1.
    pub strength: f64,
    /// The reasons, as sentences, the strongest first.
    pub evidence: Vec<String>,
    /// What an operator should do: `suspect-node`, `suspect-link`, `suspect-rail`, `suspect-leaf`, `environment`.
    pub action: String,
    /// The command that would confirm it or narrow it down.
    pub next_step: String,
}

impl Suspect {
    /// Whether a row runs where the suspect is, and would reach its threshold at the rate of the others.
    pub fn explains(&self, row: &Row) -> bool {
        let (Some(slower), Some(against)) = (self.slower_by, &row.against_limit) else { return false };
        let is_there = match self.kind {
            SuspectKind::Node { .. } | SuspectKind::Device { .. } => true,
            SuspectKind::NvLink { .. } => !row.between_nodes,
            _ => row.between_nodes,
        };
        let reaches = |median: f64| match against.metric {
            Metric::LatencySeconds => median / (1.0 + slower) <= against.limit,
            _ => median * (1.0 + slower) >= against.limit,
        };
        is_there && against.median.is_some_and(reaches)
    }
}

/// Possible suspects. Nodes are numbered as in the record's rank map, local ranks from 0 on each node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema, strum::IntoStaticStr)]
#[serde(tag = "class", rename_all = "snake_case")]
#[strum(serialize_all = "lowercase")]
#[schemars(rename = "Culprit")]
pub enum SuspectKind {
    /// A node: slow with all others, or inside.
    Node {
        /// Its number.
        node: u32,
    },
    /// The path between two nodes, both of which are normal with all others.
    Link {
        /// Its ends, the lower first.
        nodes: [u32; 2],
        /// The local rank of the path, if the paths of other local ranks are normal.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        local_rank: Option<u32>,
    },
    /// One adapter of one node: a local rank that is slow with all other nodes while its neighbours are normal.
    Adapter {
        /// The node.
        node: u32,
        /// The local rank that uses it.
        local_rank: u32,
    },
    /// The cable or port of an adapter, in one direction: with both directions at once it is as slow as a slow adapter, back and forth half
    /// as much.
    Cable {
        /// The node.
        node: u32,
        /// The local rank that uses it.
        local_rank: u32,
    },
    /// One device of a node: slow with the others inside, and with other nodes.
    Device {
        /// The node.
        node: u32,
        /// The local rank that drives it.
        local_rank: u32,
    },
    /// Links inside a node (NVLink or its replacement): of one device to all others, or between two devices.
    #[serde(rename = "nvlink")]
    NvLink {
        /// The node.
        node: u32,
        /// The local rank that drives the device.
        local_rank: u32,
        /// The local rank at the other end, if its links with others are normal.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        peer: Option<u32>,
    },
    /// A rail: the same local rank is slow on all nodes.
    Rail {
        /// The local rank.
        local_rank: u32,
    },
    /// A leaf switch: all nodes behind it are slow with all others.
    Leaf {
        /// Its number, counting nodes from 0.
        leaf: u32,
        /// The nodes behind it.
        nodes: Vec<u32>,
    },
    /// All nodes and the paths between them: none reaches the expectation of the machine file.
    Network,
    /// No single node: slow only when many nodes communicate together.
    #[strum(serialize = "only at scale")]
    OnlyAtScale {
        /// The smallest number of nodes with which it showed.
        from_nodes: u32,
    },
    /// A rank that is late for common starts.
    #[strum(serialize = "late rank")]
    LateRank {
        /// World rank.
        rank: u32,
        /// Its node.
        node: u32,
    },
}

impl SuspectKind {
    /// The class in a word or two.
    pub fn class(&self) -> &'static str {
        self.into()
    }

    /// What an operator should do.
    pub fn action(&self) -> &'static str {
        match self {
            SuspectKind::Node { .. }
            | SuspectKind::Adapter { .. }
            | SuspectKind::Device { .. }
            | SuspectKind::NvLink { .. } => "suspect-node",
            SuspectKind::Link { .. } | SuspectKind::Cable { .. } => "suspect-link",
            SuspectKind::Rail { .. } => "suspect-rail",
            SuspectKind::Leaf { .. } => "suspect-leaf",
            SuspectKind::Network | SuspectKind::OnlyAtScale { .. } | SuspectKind::LateRank { .. } => "environment",
        }
    }

    /// The nodes that it is or belongs to; none for what all nodes share.
    pub(in crate::verdict) fn nodes(&self) -> Vec<u32> {
        match self {
            SuspectKind::Node { node }
            | SuspectKind::Adapter { node, .. }
            | SuspectKind::Cable { node, .. }
            | SuspectKind::Device { node, .. }
            | SuspectKind::NvLink { node, .. } => vec![*node],
            SuspectKind::Link { nodes, .. } => nodes.to_vec(),
            SuspectKind::Leaf { nodes, .. } => nodes.clone(),
            _ => Vec::new(),
        }
    }
}

// The name of a suspect in sentences.

pub(super) fn name(suspect: &SuspectKind, places: &Places) -> String {
    let of = |node: u32| places.name(node as usize);
    match suspect {
        SuspectKind::Node { node } => of(*node),
        SuspectKind::Link { nodes: [a, b], local_rank: None } => format!("link between {} and {}", of(*a), of(*b)),
        SuspectKind::Link { nodes: [a, b], local_rank: Some(local) } => {
            format!("path of local rank {local} between {} and {}", of(*a), of(*b))
        }
        SuspectKind::Adapter { node, local_rank } => format!("adapter of local rank {local_rank} of {}", of(*node)),
        SuspectKind::Cable { node, local_rank } => {
            format!("cable of local rank {local_rank} of {}, in one direction", of(*node))
        }
        SuspectKind::Device { node, local_rank } => format!("device of local rank {local_rank} of {}", of(*node)),
        SuspectKind::NvLink { node, local_rank, peer: None } => {
            format!("links of local rank {local_rank} inside {}", of(*node))
        }
        SuspectKind::NvLink { node, local_rank, peer: Some(peer) } => {
            format!("link between local ranks {local_rank} and {peer} inside {}", of(*node))
        }
        SuspectKind::Rail { local_rank } => {
            format!("rail {local_rank}, the adapters of local rank {local_rank} on all nodes")
        }
        SuspectKind::Leaf { leaf, nodes } => match (nodes.first(), nodes.last()) {
            (Some(first), Some(last)) => format!("leaf {leaf}, nodes {first} to {last}"),
            _ => format!("leaf {leaf}"),
        },
        SuspectKind::Network => "the network of all nodes".to_owned(),
        SuspectKind::OnlyAtScale { from_nodes } => format!("only at scale, from {from_nodes} nodes on"),
        SuspectKind::LateRank { rank, node } => format!("rank {rank} on {}", of(*node)),
    }
}
