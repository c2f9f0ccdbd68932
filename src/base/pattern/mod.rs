//! The data that collectives carry, as a function of (seed, rank, element), chosen so that every result is known exactly.
//!
//! Moved data are hashed bits, different for every rank and element. Reduced data are small whole numbers from a table: group rank r
//! contributes `table[(b(i) + r) mod m]` at element i, `b` being a hash, so that the reduction over all ranks is also a table look-up, and
//! checking costs the same for 2 and for 2,000 ranks. The table is such that every partial result is exact in the element type, in any
//! order of reduction.
//!
//! [`segments`] says which part of which buffer holds which data; [`encode`] turns numbers into bits of a type.
//! Kernels on devices must produce the same bits from the same formulas.

pub mod encode;
pub mod segments;

pub use encode::multiplier;
pub use segments::{Buffer, Segment, Source};

use crate::collective::ReduceOp;
use crate::element::ElementType;
use crate::random::scramble;
use encode::{Notation, Table};

#[cfg(target_endian = "big")]
compile_error!("the patterns are defined on little-endian element bits");

/// The data of one group in one case.
#[derive(Clone, Debug)]
pub struct Pattern {
    element: ElementType,
    seed: u64,
    table: Option<Table>,
}

/// The first wrong element of a checked stretch, and their number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    pub count: u64,
    /// Index of the first within the stretch.
    pub first: u64,
    /// The expected value.
    pub expected: String,
    /// The value found, and its origin if it can be identified.
    pub got: String,
}

impl Pattern {
    /// The pattern of a group of `ranks` ranks; `reduce_op` for collectives that reduce. Groups with different seeds carry different data,
    /// so that a message that strays into another group is detected.
    pub fn new(element: ElementType, reduce_op: Option<ReduceOp>, ranks: u32, seed: u64) -> Pattern {
        Pattern { element, seed, table: reduce_op.map(|op| Table::new(element, op, ranks)) }
    }

    /// Writes the data of a source into a buffer of whole elements.
    pub fn write(&self, source: Source, buffer: &mut [u8]) {
        self.visit(source, None, Write { element: self.element, buffer, complement: 0 });
    }

    /// Writes the data of a source into many buffers, each possibly starting at another element of it.
    pub fn writer(&self, source: Source) -> Writer<'_> {
        Writer { pattern: self, column: self.column(source) }
    }

    /// Writes the complement of the data into a buffer, so that every element that no message overwrites is detected.
    pub fn poison(&self, source: Source, buffer: &mut [u8]) {
        self.visit(source, None, Write { element: self.element, buffer, complement: u64::MAX });
    }

    /// Compares a buffer of whole elements with the data of a source, bit for bit.
    pub fn check(&self, source: Source, buffer: &[u8]) -> Option<Wrong> {
        let found = self.visit(source, None, Compare { element: self.element, buffer })?;
        let notation = if self.table.is_some() { Notation::Number } else { Notation::Hexadecimal };
        let text = |bits| encode::show(self.element, notation, bits);
        let size = self.element.size() as usize;
        let from = found.first as usize * size;
        let behind = &buffer[from..buffer.len().min(from + LOOKED_AT as usize * size)];
        let known = Known {
            element: self.element,
            reduction: self.table.as_ref().map(Table::reduction),
            write: &|source, buffer| self.write(source, buffer),
            poison: &|source, buffer| self.poison(source, buffer),
        };
        let likeness = known.likeness(source.shifted_by(found.first), behind);
        let got = text(found.got) + &likeness.map_or_else(String::new, |likeness| format!(" ({likeness})"));
        Some(Wrong { count: found.count, first: found.first, expected: text(found.expected), got })
    }

    /// The bits of which one is selected for every element of reduced data (by kernels as well, `kernels/pattern.h`, which store them in
    /// device memory); `None` for moved data, which need none.
    pub fn column(&self, source: Source) -> Option<Vec<u64>> {
        match (source, &self.table) {
            (Source::Contribution { group_rank, .. }, Some(table)) => Some(table.contribution(group_rank)),
            (Source::Reduced { .. }, Some(table)) => Some(table.reduced()),
            _ => None,
        }
    }

    /// Passes the bits of a source's elements, as a function of their index, to a visitor. Generic, so that the loop over the elements is
    /// compiled for each kind of source. `column` is the source's, if already known.
    fn visit<V: Visitor>(&self, source: Source, column: Option<&[u64]>, visitor: V) -> V::Answer {
        match source {
            Source::Moved { rank, first } => {
                let salt = scramble(self.seed ^ (u64::from(rank) + 1).wrapping_mul(0xd6e8_feb8_6659_fd93));
                visitor.visit(|index| moved_bits(salt, first + index))
            }
            Source::Contribution { group_rank, first } => {
                let one = |table: &Table, index| table.contributed(group_rank, index);
                let all = |table: &Table| table.contribution(group_rank);
                self.visit_table(one, all, column, first, visitor)
            }
            Source::Reduced { first } => self.visit_table(Table::reduced_to, Table::reduced, column, first, visitor),
        }
    }

    /// The bits of a table, all computed beforehand unless there are fewer elements.
    fn visit_table<V: Visitor>(
        &self,
        one: impl Fn(&Table, usize) -> u64,
        all: impl Fn(&Table) -> Vec<u64>,
        known: Option<&[u64]>,
        first: u64,
        visitor: V,
    ) -> V::Answer {
        let table = self.table.as_ref().expect("only collectives that reduce have contributions");
        let (salt, length) = (scramble(self.seed), table.len());
        if let Some(column) = known {
            return visitor.visit(|index| column[table_index(salt, first + index, length)]);
        }
        if visitor.bytes() as u64 / self.element.size() < length as u64 {
            return visitor.visit(|index| one(table, table_index(salt, first + index, length)));
        }
        let column = all(table);
        visitor.visit(|index| column[table_index(salt, first + index, length)])
    }
}

/// Writes data of one source. Small buffers have many copies; computing the bits for each would take most of a launch.
#[derive(Debug)]
pub struct Writer<'a> {
    pattern: &'a Pattern,
    column: Option<Vec<u64>>,
}

impl Writer<'_> {
    /// Writes the data of the source, from another element on, into a buffer of whole elements.
    pub fn write(&self, source: Source, buffer: &mut [u8]) {
        let Pattern { element, .. } = *self.pattern;
        self.pattern.visit(source, self.column.as_deref(), Write { element, buffer, complement: 0 });
    }
}

/// Processes the bits of every element; the low bits are used if the element is narrower.
trait Visitor {
    type Answer;
    /// Length of the buffer.
    fn bytes(&self) -> usize;
    fn visit(self, bits: impl Fn(u64) -> u64) -> Self::Answer;
}

struct Write<'a> {
    element: ElementType,
    buffer: &'a mut [u8],
    complement: u64,
}

impl Visitor for Write<'_> {
    type Answer = ();

    fn bytes(&self) -> usize {
        self.buffer.len()
    }

    fn visit(self, bits: impl Fn(u64) -> u64) {
        fn store<const N: usize>(buffer: &mut [u8], bits: impl Fn(u64) -> u64) {
            for (index, element) in buffer.as_chunks_mut::<N>().0.iter_mut().enumerate() {
                element.copy_from_slice(&bits(index as u64).to_le_bytes()[..N]);
            }
        }
        let bits = |index| bits(index) ^ self.complement;
        match self.element.size() {
            1 => store::<1>(self.buffer, bits),
            2 => store::<2>(self.buffer, bits),
            4 => store::<4>(self.buffer, bits),
            _ => store::<8>(self.buffer, bits),
        }
    }
}

struct Compare<'a> {
    element: ElementType,
    buffer: &'a [u8],
}

struct Difference {
    count: u64,
    first: u64,
    expected: u64,
    got: u64,
}

impl Visitor for Compare<'_> {
    type Answer = Option<Difference>;

    fn bytes(&self) -> usize {
        self.buffer.len()
    }

    fn visit(self, bits: impl Fn(u64) -> u64) -> Option<Difference> {
        fn compare<const N: usize>(buffer: &[u8], bits: impl Fn(u64) -> u64) -> Option<Difference> {
            let wide = |element: &[u8]| {
                let mut bytes = [0; 8];
                bytes[..N].copy_from_slice(element);
                u64::from_le_bytes(bytes)
            };
            let expected = |index: usize| wide(&bits(index as u64).to_le_bytes()[..N]);
            let elements = buffer.as_chunks::<N>().0;
            let differs = |(index, element): (usize, &[u8; N])| wide(element) != expected(index);
            let count = elements.iter().enumerate().filter(|e| differs(*e)).count() as u64;
            let first = (count > 0).then(|| elements.iter().enumerate().position(differs)).flatten()?;
            Some(Difference { count, first: first as u64, expected: expected(first), got: wide(&elements[first]) })
        }
        match self.element.size() {
            1 => compare::<1>(self.buffer, bits),
            2 => compare::<2>(self.buffer, bits),
            4 => compare::<4>(self.buffer, bits),
            _ => compare::<8>(self.buffer, bits),
        }
    }
}

#[inline(always)]
fn moved_bits(salt: u64, index: u64) -> u64 {
    let mixed = (index ^ salt).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 32)
}

/// Which of `length` entries of a column is at an element of the data of a seed, if kernels filled it.
pub fn entry_at(seed: u64, index: u64, length: usize) -> usize {
    table_index(scramble(seed), index, length)
}

#[inline(always)]
fn table_index(salt: u64, index: u64, length: usize) -> usize {
    let mixed = (index ^ salt).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    ((mixed * length as u64) >> 32) as usize
}

// The origin of wrong data, if more elements identify it: the previous content, or some rank's data.

/// Number of wrong elements inspected: enough to distinguish kinds of data.
pub const LOOKED_AT: u64 = 64;

/// Fewer elements, or bytes, match too many things by chance.
const FEWEST_ELEMENTS: usize = 8;

const FEWEST_BYTES: usize = 16;

/// Maximum number of ranks compared with.
const MOST_RANKS: u32 = 4096;

/// The candidates for wrong data.
struct Known<'a> {
    pub element: ElementType,
    /// The reduction and the ranks of its group, if data are reduced.
    pub reduction: Option<(ReduceOp, u32)>,
    /// Writes the data of a source into a buffer.
    pub write: &'a dyn Fn(Source, &mut [u8]),
    /// Writes the content of a buffer before a call.
    pub poison: &'a dyn Fn(Source, &mut [u8]),
}

impl Known<'_> {
    /// The origin of the data in place of a source's, from its first element on; `None` if it matches no candidate.
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
            return Some("the content before the call".to_owned());
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

    /// As above for a result: the contribution of one rank, or the sum without one.
    fn reduced_likeness(&self, first: u64, got: &[u8]) -> Option<String> {
        let (op, ranks) = self.reduction?;
        let (mut whole, mut one) = (vec![0; got.len()], vec![0; got.len()]);
        (self.write)(Source::Reduced { first }, &mut whole);
        (0..ranks.min(MOST_RANKS)).find_map(|group_rank| {
            (self.write)(Source::Contribution { group_rank, first }, &mut one);
            if one == got {
                return Some(format!("the contribution of rank {group_rank} of the group"));
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

    /// Reduces contributions in plain arithmetic of the element type, from the first rank to the last.
    fn reduced_by_hand(element: ElementType, op: ReduceOp, ranks: u32, elements: u64) -> Vec<u8> {
        let pattern = Pattern::new(element, Some(op), ranks, 7);
        let bytes = (elements * element.size()) as usize;
        let contribution = |group_rank| {
            let mut brought = vec![0; bytes];
            pattern.write(Source::Contribution { group_rank, first: 3 }, &mut brought);
            if op == ReduceOp::PreMulSum {
                let number = super::encode::bits(element, f64::from(multiplier(group_rank))).to_le_bytes();
                let numbers = number[..element.size() as usize].repeat(elements as usize);
                super::encode::reduce_into(element, ReduceOp::Prod, &numbers, &mut brought);
            }
            brought
        };
        let mut total = contribution(0);
        for group_rank in 1..ranks {
            let next = contribution(group_rank);
            super::encode::reduce_into(element, op, &next, &mut total);
        }
        if op == ReduceOp::Avg {
            super::encode::divide_all(element, &mut total, ranks);
        }
        total
    }

    #[test]
    fn the_table_of_results_is_what_reducing_gives_in_every_type_and_operation() {
        for element in ElementType::ALL.into_iter().filter(|e| !e.moves_only()) {
            for op in ReduceOp::ALL.into_iter().chain([ReduceOp::PreMulSum]) {
                for ranks in [1, 2, 3, 4, 7, 64, 300] {
                    let result = reduced_by_hand(element, op, ranks, 500);
                    let wrong = Pattern::new(element, Some(op), ranks, 7).check(Source::Reduced { first: 3 }, &result);
                    assert_eq!(wrong, None, "{op} of {element} on {ranks} ranks");
                }
            }
        }
    }

    #[test]
    fn a_single_flipped_bit_is_found_and_named() {
        let pattern = Pattern::new(ElementType::Float32, Some(ReduceOp::Sum), 4, 7);
        let mut result = reduced_by_hand(ElementType::Float32, ReduceOp::Sum, 4, 500);
        result[4 * 123 + 1] ^= 0x10;
        let wrong = pattern.check(Source::Reduced { first: 3 }, &result).unwrap();
        assert_eq!((wrong.count, wrong.first), (1, 123));
        assert_ne!(wrong.expected, wrong.got);
    }

    #[test]
    fn every_poisoned_element_is_found_wrong() {
        for element in ElementType::ALL {
            let pattern = Pattern::new(element, None, 4, 7);
            let source = Source::Moved { rank: 2, first: 100 };
            let mut buffer = vec![0; 256 * element.size() as usize];
            pattern.poison(source, &mut buffer);
            assert_eq!(pattern.check(source, &buffer).map(|w| w.count), Some(256), "{element}");
            pattern.write(source, &mut buffer);
            assert_eq!(pattern.check(source, &buffer), None, "{element}");
        }
    }

    #[test]
    fn copies_that_are_written_one_after_another_hold_what_each_would_hold_alone() {
        for (reduce_op, source) in [
            (None, Source::Moved { rank: 2, first: 0 }),
            (Some(ReduceOp::Sum), Source::Contribution { group_rank: 3, first: 0 }),
            (Some(ReduceOp::Avg), Source::Reduced { first: 0 }),
        ] {
            let pattern = Pattern::new(ElementType::Float32, reduce_op, 4, 7);
            let writer = pattern.writer(source);
            for (first, bytes) in [(0, 8), (5, 64), (1000, 4096)] {
                let [mut together, mut alone] = [vec![0; bytes], vec![0; bytes]];
                writer.write(source.shifted_by(first), &mut together);
                pattern.write(source.shifted_by(first), &mut alone);
                assert!(alone.iter().any(|byte| *byte != 0) && together == alone, "{source:?} from {first}");
            }
        }
    }

    #[test]
    fn ranks_groups_and_places_carry_different_data() {
        let written = |seed, rank, first| {
            let mut buffer = vec![0; 64];
            Pattern::new(ElementType::Uint8, None, 4, seed).write(Source::Moved { rank, first }, &mut buffer);
            buffer
        };
        let base = written(1, 0, 0);
        for other in [written(2, 0, 0), written(1, 1, 0), written(1, 0, 64)] {
            assert_ne!(base, other);
        }
    }

    fn found(pattern: &Pattern, source: Source, got: &[u8]) -> String {
        pattern.check(source, got).expect("it is wrong").got
    }

    #[test]
    fn what_replaces_a_sum_is_named() {
        let (ranks, first) = (3, 1000);
        let pattern = Pattern::new(ElementType::Bfloat16, Some(ReduceOp::Sum), ranks, 7);
        let source = Source::Reduced { first };
        let mut got = vec![0; 200];
        assert!(found(&pattern, source, &got).ends_with("(zeros)"));
        pattern.poison(source, &mut got);
        assert!(found(&pattern, source, &got).ends_with("(the content before the call)"));
        for group_rank in 0..ranks {
            pattern.write(Source::Contribution { group_rank, first }, &mut got);
            let words = format!("(the contribution of rank {group_rank} of the group)");
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
        // One bit matches nothing, and neither do a few elements.
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
