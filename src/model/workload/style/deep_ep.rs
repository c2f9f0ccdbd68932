//! Exchanges of tokens that send each token once to every node with an expert of it, and from there once to every rank: DeepEP
//! (csrc/kernels/legacy/internode.cu, intranode.cu) and HybridEP (its branch hybrid-ep, csrc/hybrid_ep).
//!
//! Bytes are the expected ones of uniform choices: how many of the nodes and ranks a token's K different experts are on, within the
//! groups of experts that the router keeps. A rank exchanges over the network with the ranks of the same place on other nodes; what
//! arrives is forwarded inside the node. The kernels forward while tokens still arrive; here one follows the other.

use super::product::product;
use crate::config::Mixture;
use crate::layout::{Axis, Layout};
use crate::workload::step::share_of_tokens;
use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use commgauge_base::error::Result;

/// Elements that share a scale where tokens travel in 8 bits.
pub(super) const ELEMENTS_PER_SCALE: u64 = 128;
/// Messages between nodes are multiples of this (`get_num_bytes_per_token` of internode.cu: `sizeof(int4)`).
const ALIGNMENT: u64 = 16;
/// `SourceMeta` of internode.cu: the node that a token comes from, and the ranks that it goes to.
const SOURCE_META_BYTES: u64 = 8;
/// Within a node, where a token comes from (`src_idx` of intranode.cu).
const SOURCE_INDEX_BYTES: u64 = 4;

/// Which library exchanges tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Library {
    DeepEp,
    HybridEp,
}

/// What travels with each token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Load {
    /// The token alone.
    Token,
    /// Its experts and their weights.
    TokenWithChoices,
    /// The weights of its experts, or their gradients.
    TokenWithWeights,
}

/// Which way tokens go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    ToExperts,
    Back,
}

/// A call of an exchange.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct NodeCall {
    pub axis: Axis,
    pub collective: Collective,
    pub element: ElementType,
    pub bytes: u64,
    pub why: String,
}

/// An exchange of the tokens of a micro-batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct NodeExchange<'a> {
    library: Library,
    mixture: &'a Mixture,
    /// N: tokens of a rank.
    tokens: u64,
    /// h: elements of a token.
    hidden: u64,
    /// n: nodes that experts are on.
    nodes: u64,
    /// g: ranks of ep on a node.
    ranks: u64,
}

/// One of the two hops.
struct Hop {
    axis: Axis,
    ranks: u64,
    /// Copies of tokens to each of them.
    copies: u64,
    formula: String,
}

impl<'a> NodeExchange<'a> {
    pub(super) fn new(
        library: Library,
        mixture: &'a Mixture,
        layout: &Layout,
        tokens: u64,
        hidden: u64,
    ) -> NodeExchange<'a> {
        let (ep, ranks) = (u64::from(layout.degrees.ep), u64::from(layout.group_size(Axis::EpInner)));
        NodeExchange { library, mixture, tokens, hidden, nodes: ep / ranks, ranks }
    }

    /// What ranks must know before tokens can be sent, and all wait for.
    pub(super) fn counts(&self) -> Result<Vec<NodeCall>> {
        let (n, g, experts) = (self.nodes, self.ranks, self.mixture.experts);
        let call = |axis, what: String, bytes: u64| NodeCall {
            axis,
            collective: Collective::AllToAll,
            element: ElementType::Int32,
            bytes,
            why: format!("{what} = {bytes} B: how many tokens each rank and expert gets, for which the host waits"),
        };
        if self.library == Library::HybridEp {
            let bytes = product("routing map", &[self.tokens, n * g, experts])?;
            return Ok(vec![NodeCall {
                axis: Axis::Ep,
                collective: Collective::AllGather,
                element: ElementType::Uint8,
                bytes,
                why: format!(
                    "N*e*experts = {}*{}*{experts} = {bytes} B: which token goes to which expert (HybridEP executor.cu, \
                     allgather_routing_map)",
                    self.tokens,
                    n * g
                ),
            }]);
        }
        if n == 1 {
            let what = format!("4 B*(e + experts) = 4*({g} + {experts})");
            return Ok(vec![call(Axis::Ep, what + " (DeepEP intranode.cu, notify_dispatch)", 4 * (g + experts))]);
        }
        let across = 4 * n * (g + experts / n + 1);
        let what = format!("4 B*n*(g + experts/n + 1) = 4*{n}*({g} + {experts}/{n} + 1)");
        let mut calls = vec![call(self.outer_axis(), what + " (DeepEP internode.cu, notify_dispatch)", across)];
        if g > 1 {
            let inside = 4 * g * (n + experts / (n * g));
            let what = format!("4 B*g*(n + experts/(n g)) = 4*{g}*({n} + {experts}/{})", n * g);
            calls.push(call(Axis::EpInner, what + " (DeepEP internode.cu, notify_dispatch)", inside));
        }
        Ok(calls)
    }

    /// The hops of all tokens, of elements of this type.
    pub(super) fn hops(&self, direction: Direction, element: ElementType, load: Load) -> Result<Vec<NodeCall>> {
        let mut hops = self.both_hops();
        if direction == Direction::Back {
            hops.reverse();
        }
        let (message, message_formula) = self.message(element, load);
        hops.into_iter()
            .map(|Hop { axis, ranks, copies, formula }| {
                let bytes = product("tokens sent to experts", &[ranks, copies, message])?;
                let why =
                    format!("{ranks} ranks*{copies} tokens*{message} B = {bytes} B; {formula}; {message_formula}");
                Ok(NodeCall { axis, collective: Collective::AllToAllV, element: ElementType::Uint8, bytes, why })
            })
            .collect()
    }

    /// Where all of ep is across nodes, its groups are those of ep itself, so that equal groups are one.
    fn outer_axis(&self) -> Axis {
        if self.ranks == 1 { Axis::Ep } else { Axis::EpOuter }
    }

    fn both_hops(&self) -> Vec<Hop> {
        let (n, g, tokens) = (self.nodes, self.ranks, self.tokens);
        let per_node = self.mixture.experts / n;
        let share = |block: u64| share_of_tokens(self.mixture, block).unwrap_or(1.0);
        let copies = |tokens: u64, share: f64| ((tokens as f64 * share).round() as u64).max(1);
        let chosen = |block: u64, share: f64| {
            format!("{share:.4} of all tokens have one of {block} of {} experts", self.mixture.experts)
        };
        let mut hops = Vec::new();
        if n > 1 {
            let share = share(per_node);
            let formula = format!(
                "each token of N = {tokens} once to each of {n} nodes with an expert of it: {}",
                chosen(per_node, share)
            );
            hops.push(Hop { axis: self.outer_axis(), ranks: n, copies: copies(tokens, share), formula });
        }
        if g > 1 {
            let (block, arriving) = (per_node / g, n.saturating_mul(tokens));
            let share = share(block);
            let formula = format!(
                "inside the node each token of n N = {n}*{tokens} ranks of one place once to each of {g} ranks with an expert of it: {}",
                chosen(block, share)
            );
            let axis = if n == 1 { Axis::Ep } else { Axis::EpInner };
            hops.push(Hop { axis, ranks: g, copies: copies(arriving, share), formula });
        }
        hops
    }

    /// Bytes of a message, and their formula.
    fn message(&self, element: ElementType, load: Load) -> (u64, String) {
        let (h, k, size) = (self.hidden, self.mixture.experts_per_token, element.size());
        let scales = if element.moves_only() { 4 * h.div_ceil(ELEMENTS_PER_SCALE) } else { 0 };
        let with_scales = if scales > 0 { format!(" + {scales} B of scales") } else { String::new() };
        let token = h * size + scales;
        let token_formula = format!("a token has h*E = {h}*{size} B{with_scales}");
        if self.library == Library::HybridEp {
            // As floats for all experts of the node (prob_stride of internode_doca.cu).
            let weights = if load == Load::Token { 0 } else { 4 * self.mixture.experts / self.nodes };
            return (token + weights, format!("{token_formula} and {weights} B of weights of a node's experts"));
        }
        let is_within = self.nodes == 1;
        // As 64-bit integers within a node, as 32-bit ones across.
        let index_bytes = if is_within { 8 } else { 4 };
        let beside = match load {
            Load::Token => 0,
            Load::TokenWithChoices => (index_bytes + 4) * k,
            Load::TokenWithWeights => 4 * k,
        };
        match is_within {
            true => (
                token + SOURCE_INDEX_BYTES + beside,
                format!("{token_formula}, {SOURCE_INDEX_BYTES} B of source and {beside} B of choices"),
            ),
            false => (
                (token + SOURCE_META_BYTES + beside).next_multiple_of(ALIGNMENT),
                format!(
                    "{token_formula}, {SOURCE_META_BYTES} B of source and {beside} B of choices, up to a multiple of {ALIGNMENT}"
                ),
            ),
        }
    }
}

#[cfg(test)]
#[path = "deep_ep_tests.rs"]
mod tests;
