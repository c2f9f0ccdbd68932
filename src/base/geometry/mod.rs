//! Elements that every rank of a group sends and receives in one call.
//!
//! `bytes_total` is the size argument in the sense of nccl-tests: the full buffer of all_gather, reduce_scatter, gather and scatter, one
//! rank's whole send buffer of all_to_all. Sizes that do not divide are rounded down, and the rounded size is reported.

mod routed;

pub use routed::{Arrival, MOST_EXPERTS, Routed, Routing};

use crate::collective::{Collective, Division, Extent};
use crate::element::ElementType;
use crate::units::Bytes;
use routed::Exchange;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How the vector forms divide their elements among the ranks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Splits {
    /// Every rank the same.
    #[default]
    Equal,
    /// In proportion to these weights, one for each rank of the group.
    Given(Vec<u64>),
    /// Rank i gets 1 / (i + 1)^exponent (Zipf): rank 0 is the hot one.
    Skewed {
        /// 0 is equal, 1 the usual Zipf law.
        exponent: f64,
    },
    /// Divided by a router of experts; all_to_all_v only.
    Routed(Routed),
}

/// The element counts of one call on one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// The size of the call, after rounding down.
    pub bytes_total: Bytes,
    /// Bytes for the bandwidth: `bytes_total`, but for all_to_all_v the maximum that any rank sends or receives (as counted by nccl-tests).
    pub bytes_accounted: Bytes,
    /// Elements of the block that belongs to each rank of the group. For all_to_all_v: the maximum that any rank sends to this rank; see
    /// [`Geometry::counts_sent`].
    pub blocks: Vec<u64>,
    pub element_bytes: u64,
    collective: Collective,
    /// The bytes between each pair of ranks, for all_to_all_v.
    exchange: Option<Exchange>,
}

impl Geometry {
    /// The counts for `bytes_total` on `ranks` ranks, or why no such call exists (a sentence without full stop).
    pub fn new(
        collective: Collective,
        element: ElementType,
        bytes_total: Bytes,
        ranks: u32,
        splits: &Splits,
    ) -> Result<Geometry, String> {
        if ranks < collective.fewest_ranks() {
            return Err(format!(
                "{collective} needs a group of at least {} ranks, this one has {ranks}",
                collective.fewest_ranks()
            ));
        }
        let (n, element_bytes) = (u64::from(ranks), element.size());
        let elements = bytes_total.0 / element_bytes;
        if collective == Collective::AllToAllV {
            return Geometry::of_exchange(elements, element, bytes_total, ranks, splits);
        }
        let blocks = match collective.division() {
            Division::Nothing => vec![0; ranks as usize],
            Division::Whole => vec![elements; ranks as usize],
            Division::EqualBlocks => vec![elements / n; ranks as usize],
            Division::OwnBlocks => divide(elements, ranks, splits)?,
        };
        let carried: u64 = match collective.division() {
            Division::Nothing => 0,
            Division::Whole => elements,
            Division::EqualBlocks | Division::OwnBlocks => blocks.iter().sum(),
        };
        if carried == 0 && collective.division() != Division::Nothing {
            return Err(too_little(bytes_total, ranks, element));
        }
        let bytes_total = Bytes(carried * element_bytes);
        Ok(Geometry { bytes_total, bytes_accounted: bytes_total, blocks, element_bytes, collective, exchange: None })
    }

    /// An all_to_all_v. With routing, its size is the bytes that a rank has for the experts before any are dropped, also for the return;
    /// nothing smaller gives the number of tokens.
    fn of_exchange(
        elements: u64,
        element: ElementType,
        bytes_total: Bytes,
        ranks: u32,
        splits: &Splits,
    ) -> Result<Geometry, String> {
        let together = u128::from(elements) * u128::from(element.size()) * u128::from(ranks);
        if together > u128::from(u64::MAX) {
            return Err(format!("{bytes_total} on each of {ranks} ranks exceed 64 bits"));
        }
        let (carried, exchange) = match splits {
            Splits::Routed(routed) => {
                let copy = routed.experts_per_token.saturating_mul(routed.elements_per_token).max(1);
                let tokens = elements / copy;
                let exchange = routed.copies(tokens, ranks)?.times(routed.elements_per_token);
                if tokens == 0 {
                    return Err(format!(
                        "{bytes_total} is less than one token, which has {} elements of {element} for each of {} experts",
                        routed.elements_per_token, routed.experts_per_token
                    ));
                }
                (tokens * copy, exchange)
            }
            _ => {
                let blocks = divide(elements, ranks, splits)?;
                (blocks.iter().sum(), Exchange::same_from_all(blocks))
            }
        };
        if carried == 0 {
            return Err(too_little(bytes_total, ranks, element));
        }
        Ok(Geometry::from_exchange(carried, exchange, element))
    }

    /// An all_to_all_v in which rank i sends `rows[i][j]` elements to rank j, or why no such call exists. Its size is the maximum that any
    /// rank sends.
    pub fn of_rows(element: ElementType, rows: &[Vec<u64>]) -> Result<Geometry, String> {
        if rows.len() < 2 || rows.iter().any(|row| row.len() != rows.len()) {
            return Err(format!("an exchange among {} ranks needs as many counts of each", rows.len()));
        }
        let all = rows.iter().flatten().try_fold(0u64, |sum, count| sum.checked_add(*count));
        if all.and_then(|all| all.checked_mul(element.size())).is_none() {
            return Err("the bytes of an exchange exceed 64 bits".to_owned());
        }
        let exchange = Exchange::of_rows(rows);
        let most = (0..rows.len()).map(|rank| exchange.sent_by(rank)).max().unwrap_or(0);
        Ok(Geometry::from_exchange(most, exchange, element))
    }

    /// The exchange of ranks that send at most this many elements.
    fn from_exchange(elements: u64, exchange: Exchange, element: ElementType) -> Geometry {
        Geometry {
            bytes_total: Bytes(elements * element.size()),
            bytes_accounted: Bytes(exchange.busiest() * element.size()),
            blocks: exchange.most_to_each(),
            element_bytes: element.size(),
            collective: Collective::AllToAllV,
            exchange: Some(exchange),
        }
    }

    /// Ranks in the group.
    pub fn ranks(&self) -> u32 {
        self.blocks.len() as u32
    }

    /// Elements of all blocks together.
    pub fn elements_of_all_blocks(&self) -> u64 {
        self.blocks.iter().sum()
    }

    /// First element of a rank's block within the blocks laid end to end.
    pub fn block_start(&self, rank: u32) -> u64 {
        self.blocks[..rank as usize].iter().sum()
    }

    /// Elements in the buffer that a rank of the group reads. `root` only matters to rooted collectives.
    pub fn send_elements(&self, rank: u32, root: u32) -> u64 {
        match &self.exchange {
            Some(exchange) => exchange.sent_by(rank as usize),
            None => self.elements_of(self.collective.sent(), rank, root),
        }
    }

    /// Elements in the buffer that a rank of the group writes. `root` only matters to rooted collectives.
    pub fn receive_elements(&self, rank: u32, root: u32) -> u64 {
        match &self.exchange {
            Some(exchange) => exchange.received_by(rank as usize),
            None => self.elements_of(self.collective.received(), rank, root),
        }
    }

    fn elements_of(&self, extent: Extent, rank: u32, root: u32) -> u64 {
        match extent {
            Extent::Nothing => 0,
            Extent::OwnBlockAtRoot | Extent::AllBlocksAtRoot if rank != root => 0,
            Extent::OwnBlock | Extent::OwnBlockAtRoot => self.blocks[rank as usize],
            Extent::AllBlocks | Extent::AllBlocksAtRoot => self.elements_of_all_blocks(),
        }
    }

    /// Elements that a rank sends to each rank in an all_to_all_v; for other collectives the blocks.
    pub fn counts_sent(&self, rank: u32) -> Vec<u64> {
        match &self.exchange {
            Some(exchange) => (0..exchange.ranks()).map(|to| exchange.between(rank as usize, to)).collect(),
            None => self.blocks.clone(),
        }
    }

    /// What a rank receives from each rank in an all_to_all_v, and its offset in the buffer; empty for other
    /// collectives.
    pub fn arrivals(&self, rank: u32) -> Vec<Arrival> {
        self.exchange.as_ref().map_or_else(Vec::new, |exchange| exchange.arrivals_at(rank as usize))
    }

    /// Bytes that the busiest rank of an all_to_all_v sends to others or receives from others, whichever is more: the traffic of its link.
    /// `None` for other collectives.
    pub fn busiest_bytes_with_others(&self) -> Option<u64> {
        self.exchange.as_ref().map(|exchange| exchange.busiest_with_others() * self.element_bytes)
    }

    /// Bytes that a rank of an all_to_all_v sends to others or receives from others, whichever is more; 0 for other collectives.
    pub fn bytes_with_others(&self, rank: u32) -> u64 {
        let Some(exchange) = &self.exchange else { return 0 };
        let rank = rank as usize;
        let own = exchange.between(rank, rank);
        (exchange.sent_by(rank).max(exchange.received_by(rank)) - own) * self.element_bytes
    }

    /// The largest count of an all_to_all_v from one rank to one rank; for other collectives the largest block.
    pub fn largest_count(&self) -> u64 {
        match &self.exchange {
            Some(exchange) => exchange.largest_between(),
            None => self.blocks.iter().copied().max().unwrap_or(0),
        }
    }
}

fn too_little(bytes_total: Bytes, ranks: u32, element: ElementType) -> String {
    format!("{bytes_total} over {ranks} ranks leaves less than one {element} for each")
}

/// Elements of each rank with a split; their sum never exceeds `elements`.
fn divide(elements: u64, ranks: u32, splits: &Splits) -> Result<Vec<u64>, String> {
    match splits {
        Splits::Equal => Ok(vec![elements / u64::from(ranks); ranks as usize]),
        Splits::Given(weights) => {
            if weights.len() != ranks as usize {
                return Err(format!("the splits name {} ranks, the group has {ranks}", weights.len()));
            }
            let total: u128 = weights.iter().map(|w| u128::from(*w)).sum();
            if total == 0 {
                return Err("the splits are all zero; at least one rank must get something".to_owned());
            }
            Ok(weights.iter().map(|w| (u128::from(elements) * u128::from(*w) / total) as u64).collect())
        }
        Splits::Skewed { exponent } => {
            if !(0.0..=8.0).contains(exponent) {
                return Err(format!("a skew of {exponent}; accepted: 0 (equal) to 8"));
            }
            let weights: Vec<f64> = (1..=ranks).map(|i| f64::from(i).powf(-exponent)).collect();
            let total: f64 = weights.iter().sum();
            Ok(weights.iter().map(|w| (elements as f64 * w / total) as u64).collect())
        }
        Splits::Routed(_) => {
            Err("routed splits set the counts between each pair of ranks; only all_to_all_v has them".to_owned())
        }
    }
}

#[cfg(test)]
mod tests {

    use super::*;
    use Collective::*;

    fn geometry(collective: Collective, bytes: u64, ranks: u32, splits: Splits) -> Result<Geometry, String> {
        Geometry::new(collective, ElementType::Float32, Bytes(bytes), ranks, &splits)
    }

    #[test]
    fn what_the_ranks_send_and_receive_agrees_with_the_size_argument() {
        for (collective, send, receive) in
            [(AllReduce, 64, 64), (AllGather, 16, 64), (ReduceScatter, 64, 16), (AllToAll, 64, 64), (SendRecv, 64, 64)]
        {
            let g = geometry(collective, 256, 4, Splits::Equal).unwrap();
            assert_eq!((g.send_elements(1, 0), g.receive_elements(1, 0)), (send, receive), "{collective}");
            assert_eq!(g.bytes_total, Bytes(256), "{collective}");
        }
    }

    #[test]
    fn sizes_are_rounded_down_to_what_can_be_carried() {
        assert_eq!(geometry(AllGather, 70, 4, Splits::Equal).unwrap().bytes_total, Bytes(64));
        let message = geometry(AllGather, 8, 4, Splits::Equal).unwrap_err();
        assert_eq!(message, "8 B over 4 ranks leaves less than one float32 for each");
    }

    #[test]
    fn skewed_all_to_all_counts_the_busiest_rank() {
        let g = geometry(AllToAllV, 400, 4, Splits::Given(vec![7, 1, 1, 1])).unwrap();
        assert_eq!(g.blocks, [70, 10, 10, 10]);
        assert_eq!(g.receive_elements(0, 0), 280);
        assert_eq!(g.bytes_accounted, Bytes(280 * 4));
    }

    fn hot(experts: u64, elements_per_token: u64, back: bool) -> Splits {
        let routing = Routing::Hot(0.4);
        let (capacity_factor, seed) = (None, 1);
        Splits::Routed(Routed {
            experts,
            experts_per_token: 2,
            elements_per_token,
            routing,
            capacity_factor,
            seed,
            back,
        })
    }

    #[test]
    fn routed_calls_are_named_by_the_tokens_of_a_rank_and_accounted_by_the_busiest() {
        // 400 floats are 20 tokens of 10 elements for each of 2 experts; 16 of 40 copies go to the first of 4, 8 to the others.
        for back in [false, true] {
            let g = geometry(AllToAllV, 4 * 417, 4, hot(4, 10, back)).unwrap();
            assert_eq!((g.bytes_total, g.bytes_accounted), (Bytes(1600), Bytes(4 * 4 * 160)));
            assert_eq!(g.busiest_bytes_with_others(), Some(4 * 3 * 160));
            let (there, here) = if back { (640, 400) } else { (400, 640) };
            assert_eq!((g.send_elements(0, 0), g.receive_elements(0, 0)), (there, here));
            assert_eq!(g.counts_sent(1), if back { [80; 4] } else { [160, 80, 80, 80] });
            assert_eq!(g.arrivals(1)[0], Arrival { elements: if back { 160 } else { 80 }, first_at_sender: 160 });
        }
    }

    #[test]
    fn impossible_routed_calls_are_refused_with_the_reason() {
        for (collective, bytes, ranks, splits, expected) in [
            (AllGatherV, 400, 4, hot(4, 1, false), "only all_to_all_v has them"),
            (
                AllToAllV,
                400,
                3,
                hot(4, 1, false),
                "4 experts do not divide evenly over 3 ranks; nearest that do: 3 or 6",
            ),
            (
                AllToAllV,
                76,
                4,
                hot(4, 10, false),
                "76 B is less than one token, which has 10 elements of float32 for each of 2",
            ),
            (AllToAllV, u64::MAX, 4, hot(4, 1, false), "exceed 64 bits"),
            (AllToAllV, 4, 4, Splits::Equal, "4 B over 4 ranks leaves less than one float32 for each"),
        ] {
            let problem = geometry(collective, bytes, ranks, splits).unwrap_err();
            assert!(problem.contains(expected), "{problem}");
        }
    }

    #[test]
    fn splits_that_do_not_fit_the_group_are_refused() {
        for splits in [Splits::Given(vec![1, 2]), Splits::Given(vec![0; 4]), Splits::Skewed { exponent: f64::NAN }] {
            assert!(geometry(AllGatherV, 400, 4, splits.clone()).is_err(), "{splits:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn uniform_routing_is_the_balanced_exchange_wherever_copies_come_out_even(
            ranks in 1u32..17,
            experts_on_rank in 1u64..9,
            k in 1u64..9,
            width in 1u64..50,
            share in 1u64..500,
        ) {
            let experts = experts_on_rank * u64::from(ranks);
            let bytes = 4 * width * k * share * u64::from(ranks);
            for back in [false, true] {
                let routed = Routed {
                    experts,
                    experts_per_token: k,
                    elements_per_token: width,
                    routing: Routing::Uniform,
                    capacity_factor: Some(1.0),
                    seed: 1,
                    back,
                };
                let Ok(routed) = geometry(AllToAllV, bytes, ranks, Splits::Routed(routed)) else { continue };
                let equal = geometry(AllToAllV, bytes, ranks, Splits::Equal).unwrap();
                proptest::prop_assert_eq!(&routed.blocks, &equal.blocks);
                proptest::prop_assert_eq!(
                    (routed.bytes_total, routed.bytes_accounted, routed.busiest_bytes_with_others()),
                    (equal.bytes_total, equal.bytes_accounted, equal.busiest_bytes_with_others())
                );
            }
        }

        #[test]
        fn bytes_in_and_out_agree_over_the_group(bytes in 1u64..1 << 20, ranks in 2u32..17, exponent in 0f64..3.0) {
            for collective in Collective::ALL {
                let Ok(g) = geometry(collective, bytes, ranks, Splits::Skewed { exponent }) else { continue };
                proptest::prop_assert!(g.bytes_total.0 <= bytes);
                if matches!(collective, AllToAll | AllToAllV) {
                    let sent: u64 = (0..ranks).map(|r| g.send_elements(r, 0)).sum();
                    let received: u64 = (0..ranks).map(|r| g.receive_elements(r, 0)).sum();
                    proptest::prop_assert_eq!(sent, received);
                }
            }
        }
    }
}
