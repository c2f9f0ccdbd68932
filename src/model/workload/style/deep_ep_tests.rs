//! Copies and bytes of exchanges by way of nodes, against numbers computed by hand from DeepSeek-V3 and Mixtral.

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
    // 4096 x 0.4536 to each node, and 8 x 4096 x 0.1150 to each rank inside.
    let (across, inside) = (8 * 1858, 8 * 3768);
    // 7168 in 8 bits, 56 scales, 8 bytes of source, 8 choices of 4 + 4 bytes: 7464, up to a multiple of 16.
    let found = exchange.hops(Direction::ToExperts, ElementType::Fp8E4m3, Load::TokenWithChoices).unwrap();
    assert_eq!(sizes(found), [(Axis::EpOuter, across * 7472), (Axis::EpInner, inside * 7472)]);
    // Back in 16 bits: 14336 and 8 bytes, up to a multiple of 16.
    let found = exchange.hops(Direction::Back, ElementType::Bfloat16, Load::Token).unwrap();
    assert_eq!(sizes(found), [(Axis::EpInner, inside * 14_352), (Axis::EpOuter, across * 14_352)]);
    let found = exchange.hops(Direction::Back, ElementType::Bfloat16, Load::TokenWithWeights).unwrap();
    assert_eq!(sizes(found)[0].1, inside * 14_384, "8 weights of 4 bytes more");
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
    // Two nodes of four: 1 - 4/8 x 3/7 of the tokens, and a quarter of those of both ranks of one place.
    assert_eq!(
        hops(&layout(8, 4), Library::HybridEp),
        [(Axis::EpOuter, 2 * 3218 * (8192 + 4 * 4)), (Axis::EpInner, 4 * 2048 * (8192 + 4 * 4))]
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
