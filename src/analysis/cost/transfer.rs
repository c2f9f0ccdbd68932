//! Predicts group sizes that were not measured from those that were.
//!
//! In a ring over n ranks every step moves one chunk of S / n bytes: T = c + steps(n) (alpha + beta S / n), steps being
//! n - 1 for all_gather and reduce_scatter and 2 (n - 1) for all_reduce (Thakur, Rabenseifner and Gropp, "Optimization of
//! Collective Communication Operations in MPICH", 2005). A pairwise all_to_all has n - 1 such exchanges. For one
//! chunk the time is therefore a straight line in n, and so is the size at which a protocol is switched, since
//! switching looks at the chunk. A tree has log2 n levels that each move the whole buffer: for one S a straight line in
//! log2 n.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Factor beyond the measured group sizes up to which predictions are made, in either direction.
pub const MAX_EXTRAPOLATION: u32 = 2;

/// What stays the same when the group grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Scaling {
    /// Steps of one chunk each: for one chunk, a line in n.
    Ring,
    /// Levels: for one buffer, a line in log2 n.
    Tree,
}

impl Scaling {
    /// Every form.
    pub const ALL: [Scaling; 2] = [Scaling::Ring, Scaling::Tree];
}

/// The two measured group sizes to use for `ranks`: its neighbours, or the two outermost on its side. `None` with
/// fewer than two, or farther outside than [`MAX_EXTRAPOLATION`] times.
pub fn neighbours(measured: &[u32], ranks: u32) -> Option<(usize, usize)> {
    let (first, last) = (*measured.first()?, *measured.last()?);
    let outside =
        ranks > last.saturating_mul(MAX_EXTRAPOLATION) || ranks.saturating_mul(MAX_EXTRAPOLATION) < first || ranks < 2;
    if measured.len() < 2 || outside {
        return None;
    }
    let after = measured.partition_point(|size| *size < ranks).clamp(1, measured.len() - 1);
    Some((after - 1, after))
}

/// Seconds for `bytes` on `ranks` ranks, from two group sizes that were measured. `seconds` returns, for the first (0) or
/// the second (1) of them, the time of a size, at any distance from the measured ones.
pub fn seconds(
    scaling: Scaling,
    measured: [u32; 2],
    ranks: u32,
    bytes: f64,
    seconds: impl Fn(usize, f64) -> f64,
) -> f64 {
    let ([a, b], n) = (measured.map(f64::from), f64::from(ranks));
    let (at_a, at_b, way) = match scaling {
        Scaling::Ring => (seconds(0, bytes * a / n), seconds(1, bytes * b / n), (n - a) / (b - a)),
        Scaling::Tree => (seconds(0, bytes), seconds(1, bytes), (n / a).ln() / (b / a).ln()),
    };
    let line = at_a + way * (at_b - at_a);
    // Outside the measured group sizes noise can make the line fall; the result is limited to half of the smaller time.
    line.max(0.5 * at_a.min(at_b))
}

/// A time of a group size that was not measured, and how hard it is to predict.
#[derive(Clone, Copy, Debug)]
pub struct GroupDifficulty {
    /// Of a call.
    pub seconds: f64,
    /// How far ring and tree are apart, in log time.
    pub forms: f64,
    /// In log time; errors are compared by their share of it.
    pub difficulty: f64,
}

/// [`seconds`], and how hard they are to predict: where it matters which form applies, it is hard to say.
pub fn with_difficulty(
    scaling: Scaling,
    measured: [u32; 2],
    ranks: u32,
    bytes: f64,
    of: impl Fn(usize, f64) -> f64,
) -> GroupDifficulty {
    let by = |scaling: Scaling| seconds(scaling, measured, ranks, bytes, &of);
    let forms = (by(Scaling::Ring) / by(Scaling::Tree)).ln().abs();
    GroupDifficulty { seconds: by(scaling), forms, difficulty: 0.03 + forms }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_is_extrapolated_to_any_group_size() {
        let ring = |ranks: f64, bytes: f64| 4e-6 + 2.0 * (ranks - 1.0) * (1.5e-6 + bytes / ranks / 100e9);
        for ranks in [3, 4, 6, 16] {
            for bytes in [1e3, 1e6, 1e9] {
                let measured = |which: usize, bytes: f64| ring([2.0, 8.0][which], bytes);
                let found = seconds(Scaling::Ring, [2, 8], ranks, bytes, measured);
                assert!((found / ring(f64::from(ranks), bytes) - 1.0).abs() < 1e-9, "{ranks}, {bytes}");
            }
        }
    }

    #[test]
    fn a_tree_is_extrapolated_to_any_group_size() {
        let tree = |ranks: f64, bytes: f64| ranks.log2() * (2e-6 + bytes / 50e9);
        let found = seconds(Scaling::Tree, [2, 16], 4, 1e6, |which, bytes| tree([2.0, 16.0][which], bytes));
        assert!((found / tree(4.0, 1e6) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn the_nearest_group_sizes_are_used_and_far_ones_refused() {
        for (measured, ranks, expected) in [
            (&[2, 4, 8][..], 3, Some((0, 1))),
            (&[2, 4, 8], 6, Some((1, 2))),
            (&[2, 4, 8], 16, Some((1, 2))),
            (&[2, 4, 8], 17, None),
            (&[8, 16], 4, Some((0, 1))),
            (&[8, 16], 3, None),
            (&[8], 4, None),
            (&[], 4, None),
        ] {
            assert_eq!(neighbours(measured, ranks), expected, "{measured:?}, {ranks}");
        }
    }
}
