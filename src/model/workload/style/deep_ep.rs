//! Exchanges that send each token once to every node with one of its experts, and from there once to every rank: DeepEP
//! (csrc/kernels/legacy/internode.cu, intranode.cu) and HybridEP (its branch hybrid-ep, csrc/hybrid_ep).
//!
//! Bytes are expected values for uniform choices: the number of nodes and ranks that hold a token's K different experts, within the groups
//! of experts that the router keeps. A rank exchanges over the network with the ranks of the same place on other nodes; received tokens are
//! forwarded inside the node. The kernels forward while tokens still arrive; here one step follows the other.

use super::product::product;
use crate::config::Mixture;
use crate::layout::{Axis, Layout};
use crate::workload::step::share_of_tokens;
use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use commgauge_base::error::Result;

/// Elements that share a scale if tokens are sent in 8 bits.
pub(super) const ELEMENTS_PER_SCALE: u64 = 128;

/// Messages between nodes are multiples of this (`get_num_bytes_per_token` of internode.cu: `sizeof(int4)`).
const ALIGNMENT: u64 = 16;

/// `SourceMeta` of internode.cu: a token's source node and destination ranks.
const SOURCE_META_BYTES: u64 = 8;

/// Within a node, a token's source (`src_idx` of intranode.cu).
const SOURCE_INDEX_BYTES: u64 = 4;

/// Which library exchanges tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Library {
    DeepEp,
    HybridEp,
}

/// Data sent with each token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Load {
    /// Only the token.
    Token,
    /// Its experts and their weights.
    TokenWithChoices,
    /// The weights of its experts, or their gradients.
    TokenWithWeights,
}

/// The direction of tokens.
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
    /// Expected number of token copies to each of them.
    copies: f64,
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

    /// Counts that ranks must know before tokens can be sent, and that all wait for.
    pub(super) fn counts(&self) -> Result<Vec<NodeCall>> {
        let (n, g, experts) = (self.nodes, self.ranks, self.mixture.experts);
        let call = |axis, what: String, bytes: u64| NodeCall {
            axis,
            collective: Collective::AllToAll,
            element: ElementType::Int32,
            bytes,
            why: format!("{what} = {bytes} B: number of tokens of each rank and expert, for which the host waits"),
        };
        if self.library == Library::HybridEp {
            let bytes = product("routing map", &[self.tokens, n * g, experts])?;
            return Ok(vec![NodeCall {
                axis: Axis::Ep,
                collective: Collective::AllGather,
                element: ElementType::Uint8,
                bytes,
                why: format!(
                    "N*e*experts = {}*{}*{experts} = {bytes} B: routing map of tokens and experts (HybridEP executor.cu, \
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
                // Whole bytes, not whole tokens: an expected value that grows with the micro-batch as its tokens do.
                let to_each = (copies * message as f64).round().max(1.0) as u64;
                let bytes = product("tokens sent to experts", &[ranks, to_each])?;
                let why =
                    format!("{ranks} ranks*{copies:.1} tokens*{message} B = {bytes} B; {formula}; {message_formula}");
                Ok(NodeCall { axis, collective: Collective::AllToAllV, element: ElementType::Uint8, bytes, why })
            })
            .collect()
    }

    /// If ep has one rank per node, the groups across nodes are those of ep itself, so that equal groups are one.
    fn outer_axis(&self) -> Axis {
        if self.ranks == 1 { Axis::Ep } else { Axis::EpOuter }
    }

    fn both_hops(&self) -> Vec<Hop> {
        let (n, g, tokens) = (self.nodes, self.ranks, self.tokens);
        let per_node = self.mixture.experts / n;
        let share = |block: u64| share_of_tokens(self.mixture, block).unwrap_or(1.0);
        let chosen = |block: u64, share: f64| {
            format!("{share:.4} of all tokens have one of {block} of {} experts", self.mixture.experts)
        };
        let mut hops = Vec::new();
        if n > 1 {
            let share = share(per_node);
            let formula = format!(
                "each token of N = {tokens} once to each of {n} nodes with one of its experts: {}",
                chosen(per_node, share)
            );
            hops.push(Hop { axis: self.outer_axis(), ranks: n, copies: tokens as f64 * share, formula });
        }
        if g > 1 {
            let (block, arriving) = (per_node / g, n.saturating_mul(tokens));
            let share = share(block);
            let formula = format!(
                "inside the node each of n N = {n}*{tokens} tokens of ranks of one place once to each of {g} ranks with one of its experts: {}",
                chosen(block, share)
            );
            let axis = if n == 1 { Axis::Ep } else { Axis::EpInner };
            hops.push(Hop { axis, ranks: g, copies: arriving as f64 * share, formula });
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
        let extra = match load {
            Load::Token => 0,
            Load::TokenWithChoices => (index_bytes + 4) * k,
            Load::TokenWithWeights => 4 * k,
        };
        match is_within {
            true => (
                token + SOURCE_INDEX_BYTES + extra,
                format!("{token_formula}, {SOURCE_INDEX_BYTES} B of source and {extra} B of choices"),
            ),
            false => (
                (token + SOURCE_META_BYTES + extra).next_multiple_of(ALIGNMENT),
                format!(
                    "{token_formula}, {SOURCE_META_BYTES} B of source and {extra} B of choices, up to a multiple of {ALIGNMENT}"
                ),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    // Copies and bytes of exchanges through nodes, against hand-computed numbers from DeepSeek-V3 and Mixtral.
    use super::*;
    use crate::config::Model;
    use crate::layout::{DEFAULT_ORDER, Degrees, Division};

    fn mixture(preset: &str) -> Mixture {
        Model::load(preset).unwrap().mixture.unwrap()
    }

    fn layout(ep: u32, inner: u32) -> Layout {
        let degrees = Degrees { tp: 1, cp: 1, dp: ep, pp: 1, ep, etp: 1 };
        Layout::new(degrees, &DEFAULT_ORDER).unwrap().divided(Division::InnerExperts, inner).unwrap()
    }

    /// Axis and bytes of calls.
    fn sizes(calls: Vec<NodeCall>) -> Vec<(Axis, u64)> {
        calls.into_iter().map(|call| (call.axis, call.bytes)).collect()
    }

    #[test]
    fn deepseek_v3_on_64_ranks_of_8_nodes_sends_by_deepep() {
        let (mixture, layout) = (mixture("deepseek-v3"), layout(64, 8));
        let exchange = NodeExchange::new(Library::DeepEp, &mixture, &layout, 4096, 7168);
        // Half of the groups of 32 are kept, 8 of the 128 experts in them chosen: 4096 x (1 - C(96, 8)/C(128, 8))/2 to each node, and
        // 8 x 4096 x (1 - C(124, 8)/C(128, 8))/2 to each rank inside.
        let (across, inside) = (1_858.053_593_306, 3_767.997_480_315);
        let on_8 = |tokens: f64, message: u64| 8 * (tokens * message as f64).round() as u64;
        // 7168 in 8 bits, 56 scales, 8 bytes of source, 8 choices of 4 + 4 bytes: 7464, up to a multiple of 16.
        let found = exchange.hops(Direction::ToExperts, ElementType::Fp8E4m3, Load::TokenWithChoices).unwrap();
        assert_eq!(sizes(found), [(Axis::EpOuter, on_8(across, 7472)), (Axis::EpInner, on_8(inside, 7472))]);
        // Back in 16 bits: 14336 and 8 bytes, up to a multiple of 16.
        let found = exchange.hops(Direction::Back, ElementType::Bfloat16, Load::Token).unwrap();
        assert_eq!(sizes(found), [(Axis::EpInner, on_8(inside, 14_352)), (Axis::EpOuter, on_8(across, 14_352))]);
        let found = exchange.hops(Direction::Back, ElementType::Bfloat16, Load::TokenWithWeights).unwrap();
        assert_eq!(sizes(found)[0].1, on_8(inside, 14_384), "8 weights of 4 bytes more");
        // 8 ranks and 32 experts of a node and 1; 8 nodes and the 4 experts of a rank.
        assert_eq!(sizes(exchange.counts().unwrap()), [(Axis::EpOuter, 4 * 8 * 41), (Axis::EpInner, 4 * 8 * 12)]);
    }

    #[test]
    fn on_one_node_or_one_rank_of_each_there_is_one_hop() {
        let mixture = mixture("mixtral-8x7b");
        let hops = |layout: &Layout, library| {
            let exchange = NodeExchange::new(library, &mixture, layout, 4096, 4096);
            sizes(exchange.hops(Direction::ToExperts, ElementType::Bfloat16, Load::TokenWithChoices).unwrap())
        };
        // 2 of 8 experts: a quarter of all tokens to each rank; 8192 bytes, 4 of source, 2 choices of 8 + 4.
        assert_eq!(hops(&layout(8, 8), Library::DeepEp), [(Axis::Ep, 8 * 1024 * (8192 + 4 + 24))]);
        // Across: 8192 + 8 + 2 x 8, up to a multiple of 16.
        assert_eq!(hops(&layout(8, 1), Library::DeepEp), [(Axis::Ep, 8 * 1024 * 8224)]);
        // Two nodes of four: 1 - 4/8 x 3/7 of the tokens (3218.29), and a quarter of those of both ranks of one place.
        assert_eq!(
            hops(&layout(8, 4), Library::HybridEp),
            [(Axis::EpOuter, 2 * 26_415_689), (Axis::EpInner, 4 * 2048 * (8192 + 4 * 4))]
        );
        let exchange = NodeExchange::new(Library::HybridEp, &mixture, &layout(8, 4), 4096, 4096);
        assert_eq!(sizes(exchange.counts().unwrap()), [(Axis::Ep, 4096 * 8 * 8)], "a byte for each token and expert");
    }

    #[test]
    fn fewer_bytes_go_across_nodes_than_by_an_exchange_of_every_copy() {
        let mixture = mixture("deepseek-v3");
        let exchange = NodeExchange::new(Library::DeepEp, &mixture, &layout(64, 8), 4096, 7168);
        let across = exchange.hops(Direction::ToExperts, ElementType::Bfloat16, Load::Token).unwrap()[0].bytes;
        // Of 8 copies 7/8 leave the node in an exchange of every copy.
        let every_copy = 4096 * 8 * 7168 * 2;
        let ratio = across as f64 / every_copy as f64;
        assert!((0.45..0.46).contains(&ratio), "{ratio}: 3.63 of 8");
    }
}
