//! What one rank sends in a call: wire bytes, as against the payload that the size argument names.
//!
//! The counts are those of bandwidth-optimal algorithms, which are also the factors from bandwidth to bus bandwidth: all_reduce
//! 2(n-1)/n S, reduce_scatter and all_gather (n-1)/n S with S the full buffer, all_to_all (n-1)/n S with S this rank's send buffer,
//! a message S (Chan et al. 2007, "Collective communication: theory, practice, and experience", section 4; NCCL's ring).

use super::Op;
use commgauge_base::collective::Collective;

impl Op {
    /// Bytes that one rank of a group of `ranks` sends in `count` calls: the busiest rank if they differ. `None` if
    /// the number passes 64 bits.
    pub fn wire_bytes(&self, ranks: u32, count: u64) -> Option<u64> {
        let payload = u128::from(self.bytes_total.0).checked_mul(u128::from(count))?;
        let wire = match (self.collective, self.collective.bus_ratio(ranks)) {
            // A call that does not exist in this group sends nothing.
            (Collective::AllToAllV, _) => match self.geometry(ranks) {
                Ok(geometry) => u128::from(geometry.busiest_bytes_with_others()?).checked_mul(u128::from(count))?,
                Err(_) => 0,
            },
            (_, Some([numerator, denominator])) if ranks > 1 => {
                payload.checked_mul(u128::from(numerator))? / u128::from(denominator)
            }
            _ => 0,
        };
        u64::try_from(wire).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Axis;
    use crate::workload::Style;
    use commgauge_base::element::ElementType;
    use commgauge_base::geometry::Splits;

    #[test]
    fn wire_bytes_are_those_of_bandwidth_optimal_algorithms() {
        for (collective, expected) in [
            (Collective::AllReduce, 2 * 3 * 250 * 3),
            (Collective::AllGather, 3 * 250 * 3),
            (Collective::ReduceScatter, 3 * 250 * 3),
            (Collective::AllToAll, 3 * 250 * 3),
            (Collective::SendRecvChain, 1000 * 3),
            (Collective::Barrier, 0),
        ] {
            let op = Op::new(Style::Sweep, Axis::World, collective, ElementType::Int8, 1000);
            assert_eq!(op.wire_bytes(4, 3), Some(expected), "{collective}");
            assert_eq!(op.wire_bytes(1, 3), Some(0), "{collective}");
        }
    }

    #[test]
    fn an_uneven_exchange_counts_the_busiest_rank_without_its_own_part() {
        let given = |weights: &[u64]| Op {
            splits: Splits::Given(weights.to_vec()),
            ..Op::new(Style::Sweep, Axis::World, Collective::AllToAllV, ElementType::Int8, 1000)
        };
        // Rank 0 receives 700 from each of three others; 1000 in balance: 250 to each.
        for (op, expected) in [(given(&[7, 1, 1, 1]), 2100), (given(&[1, 1, 1, 1]), 750)] {
            assert_eq!((op.wire_bytes(4, 1), op.wire_bytes(4, 3)), (Some(expected), Some(3 * expected)));
        }
        assert_eq!(given(&[1]).wire_bytes(1, 3), Some(0));
        assert_eq!(given(&[1, 1, 1, 1]).wire_bytes(4, u64::MAX), None);
    }

    #[test]
    fn more_than_64_bits_is_not_a_number() {
        let op = Op::new(Style::Sweep, Axis::World, Collective::AllReduce, ElementType::Int8, 1 << 60);
        assert_eq!(op.wire_bytes(4, 1 << 30), None);
    }
}
