//! What wrong data are, where a look at more of them tells: what was there before, or what some rank brought.

use super::encode;
use super::segments::Source;
use crate::collective::ReduceOp;
use crate::element::ElementType;

/// Wrong elements that are looked at: as many as tell data of one kind from those of another.
pub const LOOKED_AT: u64 = 64;

/// Fewer elements, or bytes, are like too many things by chance.
const FEWEST_ELEMENTS: usize = 8;
const FEWEST_BYTES: usize = 16;

/// Ranks whose data are compared with.
const MOST_RANKS: u32 = 4096;

/// What wrong data are compared with.
pub(super) struct Known<'a> {
    pub element: ElementType,
    /// The reduction and the ranks of its group, where data are reduced.
    pub reduction: Option<(ReduceOp, u32)>,
    /// Writes the data of a source into a buffer.
    pub write: &'a dyn Fn(Source, &mut [u8]),
    /// Writes what stands in a buffer before a call.
    pub poison: &'a dyn Fn(Source, &mut [u8]),
}

impl Known<'_> {
    /// What stands in place of a source's data, from its first element on; none where it is like nothing that is known.
    pub fn likeness(&self, source: Source, got: &[u8]) -> Option<String> {
        let bytes = self.element.size() as usize;
        if got.len() < FEWEST_BYTES.max(FEWEST_ELEMENTS * bytes) {
            return None;
        }
        if got.iter().all(|byte| *byte == 0) {
            return Some("zeros".to_owned());
        }
        let mut other = vec![0; got.len()];
        (self.poison)(source, &mut other);
        if other == got {
            return Some("what was there before the call".to_owned());
        }
        match source {
            Source::Moved { first, .. } => (0..MOST_RANKS).find_map(|rank| {
                (self.write)(Source::Moved { rank, first }, &mut other);
                (other == got).then(|| format!("the data of rank {rank}"))
            }),
            Source::Reduced { first } => self.reduced_likeness(first, got),
            Source::Contribution { .. } => None,
        }
    }

    /// The same of a result: what one rank alone brought, or the sum without one.
    fn reduced_likeness(&self, first: u64, got: &[u8]) -> Option<String> {
        let (op, ranks) = self.reduction?;
        let (mut whole, mut one) = (vec![0; got.len()], vec![0; got.len()]);
        (self.write)(Source::Reduced { first }, &mut whole);
        (0..ranks.min(MOST_RANKS)).find_map(|group_rank| {
            (self.write)(Source::Contribution { group_rank, first }, &mut one);
            if one == got {
                return Some(format!("what rank {group_rank} of the group alone brought"));
            }
            let values = |buffer| values(self.element, buffer);
            let mut sums = values(&whole).zip(values(&one)).zip(values(got));
            let lacks_it = op == ReduceOp::Sum && sums.all(|((sum, part), got)| sum - part == got);
            lacks_it.then(|| format!("the sum without rank {group_rank} of the group"))
        })
    }
}

/// The numbers of a buffer.
fn values(element: ElementType, buffer: &[u8]) -> impl Iterator<Item = f64> {
    buffer.chunks_exact(element.size() as usize).map(move |bytes| {
        let mut wide = [0; 8];
        wide[..bytes.len()].copy_from_slice(bytes);
        encode::value(element, u64::from_le_bytes(wide))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::Pattern;

    fn found(pattern: &Pattern, source: Source, got: &[u8]) -> String {
        pattern.check(source, got).expect("it is wrong").got
    }

    #[test]
    fn what_stands_in_place_of_a_sum_is_named() {
        let (ranks, first) = (3, 1000);
        let pattern = Pattern::new(ElementType::Bfloat16, Some(ReduceOp::Sum), ranks, 7);
        let source = Source::Reduced { first };
        let mut got = vec![0; 200];
        assert!(found(&pattern, source, &got).ends_with("(zeros)"));
        pattern.poison(source, &mut got);
        assert!(found(&pattern, source, &got).ends_with("(what was there before the call)"));
        for group_rank in 0..ranks {
            pattern.write(Source::Contribution { group_rank, first }, &mut got);
            let words = format!("(what rank {group_rank} of the group alone brought)");
            assert!(found(&pattern, source, &got).ends_with(&words), "{words}");
        }
        let (mut one, mut other) = (vec![0; 200], vec![0; 200]);
        pattern.write(Source::Contribution { group_rank: 0, first }, &mut one);
        pattern.write(Source::Contribution { group_rank: 2, first }, &mut other);
        let sums = values(ElementType::Bfloat16, &one)
            .zip(values(ElementType::Bfloat16, &other))
            .map(|(one, other)| one + other);
        for (at, sum) in sums.enumerate() {
            let bits = encode::bits(ElementType::Bfloat16, sum).to_le_bytes();
            got[2 * at..2 * at + 2].copy_from_slice(&bits[..2]);
        }
        assert!(found(&pattern, source, &got).ends_with("(the sum without rank 1 of the group)"));
        // One bit is like nothing, and neither are a few elements.
        pattern.write(source, &mut got);
        got[11] ^= 1;
        assert!(!found(&pattern, source, &got).contains('('));
        assert!(!found(&pattern, source, &[0; 8]).contains('('));
    }

    #[test]
    fn data_of_another_rank_are_named() {
        for element in [ElementType::Int8, ElementType::Float32, ElementType::Float64] {
            let pattern = Pattern::new(element, None, 8, 7);
            let mut got = vec![0; 1024];
            pattern.write(Source::Moved { rank: 5, first: 40 }, &mut got);
            let text = found(&pattern, Source::Moved { rank: 2, first: 40 }, &got);
            assert!(text.ends_with("(the data of rank 5)"), "{element}: {text}");
        }
    }
}
