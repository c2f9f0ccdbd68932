//! How many elements each rank of a group sends to each other in an all_to_all_v.

/// A matrix of counts, stored no larger than it must be: most are the same for every sender, or for every receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Exchange {
    /// Every rank sends block j to rank j: the dispatch of routing that is the same everywhere.
    SameFromAll(Blocks),
    /// Rank i sends block i to every rank: its transpose, the combine.
    SameToAll(Blocks),
    /// Rank i sends `counts[i * n + j]` to rank j.
    Each(Matrix),
}

/// A count for each rank, and their sum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Blocks {
    each: Vec<u64>,
    sum: u64,
}

/// Counts by sender and receiver, with their sums.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Matrix {
    counts: Vec<u64>,
    sent: Vec<u64>,
    received: Vec<u64>,
}

/// What one rank receives from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Elements.
    pub elements: u64,
    /// Index of the first of them in the sender's buffer.
    pub first_at_sender: u64,
}

impl Blocks {
    pub(super) fn new(each: Vec<u64>) -> Blocks {
        Blocks { sum: each.iter().sum(), each }
    }
}

impl Matrix {
    /// From the rows of all senders, each as long as there are of them.
    pub(super) fn of_rows(rows: &[Vec<u64>]) -> Matrix {
        let received = (0..rows.len()).map(|j| rows.iter().map(|row| row[j]).sum()).collect();
        Matrix { counts: rows.concat(), sent: rows.iter().map(|row| row.iter().sum()).collect(), received }
    }

    /// The way back.
    pub(super) fn transposed(self) -> Matrix {
        let n = self.sent.len();
        let counts = (0..n * n).map(|at| self.counts[at % n * n + at / n]).collect();
        Matrix { counts, sent: self.received, received: self.sent }
    }
}

impl Exchange {
    /// Every count multiplied by a factor: copies of tokens become elements.
    pub(super) fn times(self, factor: u64) -> Exchange {
        let all = |counts: Vec<u64>| counts.into_iter().map(|count| count * factor).collect();
        match self {
            Exchange::SameFromAll(blocks) => Exchange::SameFromAll(Blocks::new(all(blocks.each))),
            Exchange::SameToAll(blocks) => Exchange::SameToAll(Blocks::new(all(blocks.each))),
            Exchange::Each(matrix) => Exchange::Each(Matrix {
                counts: all(matrix.counts),
                sent: all(matrix.sent),
                received: all(matrix.received),
            }),
        }
    }

    /// The most that any rank sends to each rank.
    pub(super) fn most_to_each(&self) -> Vec<u64> {
        match self {
            Exchange::SameFromAll(blocks) => blocks.each.clone(),
            Exchange::SameToAll(blocks) => vec![self.largest_between(); blocks.each.len()],
            Exchange::Each(matrix) => {
                let n = matrix.sent.len();
                (0..n).map(|to| (0..n).map(|from| matrix.counts[from * n + to]).max().unwrap_or(0)).collect()
            }
        }
    }

    /// The way back: what was received is sent.
    pub(super) fn transposed(self) -> Exchange {
        match self {
            Exchange::SameFromAll(blocks) => Exchange::SameToAll(blocks),
            Exchange::SameToAll(blocks) => Exchange::SameFromAll(blocks),
            Exchange::Each(matrix) => Exchange::Each(matrix.transposed()),
        }
    }

    /// Ranks in the group.
    pub(super) fn ranks(&self) -> usize {
        match self {
            Exchange::SameFromAll(blocks) | Exchange::SameToAll(blocks) => blocks.each.len(),
            Exchange::Each(matrix) => matrix.sent.len(),
        }
    }

    /// Elements from one rank to another.
    pub(super) fn between(&self, sender: usize, receiver: usize) -> u64 {
        match self {
            Exchange::SameFromAll(blocks) => blocks.each[receiver],
            Exchange::SameToAll(blocks) => blocks.each[sender],
            Exchange::Each(matrix) => matrix.counts[sender * self.ranks() + receiver],
        }
    }

    /// Elements that a rank sends, itself included.
    pub(super) fn sent_by(&self, rank: usize) -> u64 {
        match self {
            Exchange::SameFromAll(blocks) => blocks.sum,
            Exchange::SameToAll(blocks) => blocks.each[rank] * blocks.each.len() as u64,
            Exchange::Each(matrix) => matrix.sent[rank],
        }
    }

    /// Elements that a rank receives, itself included.
    pub(super) fn received_by(&self, rank: usize) -> u64 {
        match self {
            Exchange::SameFromAll(blocks) => blocks.each[rank] * blocks.each.len() as u64,
            Exchange::SameToAll(blocks) => blocks.sum,
            Exchange::Each(matrix) => matrix.received[rank],
        }
    }

    /// What a rank receives from each, in the order of the senders.
    pub(super) fn arrivals_at(&self, rank: usize) -> Vec<Arrival> {
        let first_at = |sender: usize| (0..rank).map(|before| self.between(sender, before)).sum();
        // The same for every sender, so that a large group needs no quadratic memory.
        let shared: Option<u64> = matches!(self, Exchange::SameFromAll(_)).then(|| first_at(0));
        let arrival = |sender: usize| Arrival {
            elements: self.between(sender, rank),
            first_at_sender: match self {
                Exchange::SameToAll(blocks) => blocks.each[sender] * rank as u64,
                _ => shared.unwrap_or_else(|| first_at(sender)),
            },
        };
        (0..self.ranks()).map(arrival).collect()
    }

    /// The most that any rank sends to one rank, itself included.
    pub(super) fn largest_between(&self) -> u64 {
        let counts = match self {
            Exchange::SameFromAll(blocks) | Exchange::SameToAll(blocks) => &blocks.each,
            Exchange::Each(matrix) => &matrix.counts,
        };
        counts.iter().copied().max().unwrap_or(0)
    }

    /// The most that any rank sends or receives, itself included.
    pub(super) fn busiest(&self) -> u64 {
        (0..self.ranks()).map(|rank| self.sent_by(rank).max(self.received_by(rank))).max().unwrap_or(0)
    }

    /// The most that any rank sends to others or receives from others.
    pub(super) fn busiest_with_others(&self) -> u64 {
        let with_others = |rank| self.sent_by(rank).max(self.received_by(rank)) - self.between(rank, rank);
        (0..self.ranks()).map(with_others).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn each() -> Exchange {
        Exchange::Each(Matrix::of_rows(&[vec![1, 2, 3], vec![4, 0, 6], vec![7, 8, 9]]))
    }

    #[test]
    fn a_rank_finds_its_part_in_the_buffer_of_every_sender() {
        let blocks = || Blocks::new(vec![5, 1, 2]);
        for (exchange, expected) in [
            (each(), [(3, 3), (6, 4), (9, 15)]),
            (Exchange::SameFromAll(blocks()), [(2, 6), (2, 6), (2, 6)]),
            (Exchange::SameToAll(blocks()), [(5, 10), (1, 2), (2, 4)]),
        ] {
            let arrivals =
                exchange.arrivals_at(2).into_iter().map(|arrival| (arrival.elements, arrival.first_at_sender));
            assert_eq!(arrivals.collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn the_way_back_is_the_transpose_in_every_form() {
        let blocks = || Blocks::new(vec![5, 1, 2]);
        for there in [each(), Exchange::SameFromAll(blocks()), Exchange::SameToAll(blocks())] {
            let back = there.clone().transposed();
            for i in 0..3 {
                assert_eq!((back.sent_by(i), back.received_by(i)), (there.received_by(i), there.sent_by(i)));
                assert!((0..3).all(|j| back.between(i, j) == there.between(j, i)));
            }
            assert_eq!(back.busiest_with_others(), there.busiest_with_others());
            assert_eq!(back.transposed(), there);
        }
    }

    #[test]
    fn the_part_of_the_busiest_rank_for_itself_is_not_sent() {
        // Rank 2 sends 7 + 8 to others and 9 to itself; it receives 3 + 6 from others.
        let each = each();
        assert_eq!((each.busiest(), each.busiest_with_others(), each.largest_between()), (24, 15, 9));
    }
}
