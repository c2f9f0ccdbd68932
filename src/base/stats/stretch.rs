//! Finds the stretch of a series with the highest density of marks, and its probability under chance.

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;
use std::ops::Range;

/// A stretch of a series of marks.
#[derive(Clone, Debug, PartialEq)]
pub struct Stretch {
    /// Where it lies; it begins and ends with a marked value.
    pub range: Range<usize>,
    /// Marked values in it.
    pub marked: usize,
    /// Upper bound on its probability if marks were placed at random.
    pub probability: f64,
}

/// Up to this many values the probability is simulated; beyond it an analytic bound is used.
const MAX_DRAWN: usize = 5_000;
const DRAWS: usize = 1_999;
const ENOUGH: usize = 20;

/// The stretch with the most marked values beyond those that are not: the largest sum of a part of the series in which
/// a mark counts 1 and the lack of one -1 (J. Bentley, "Programming pearls: algorithm design techniques", 1984). `None`
/// without a mark.
pub fn densest_stretch(marks: &[bool]) -> Option<Stretch> {
    let (most, range) = largest_sum(marks);
    if most == 0 {
        return None;
    }
    let probability = bound(marks, most).min(drawn(marks, most));
    let marked = marks[range.clone()].iter().filter(|marked| **marked).count();
    Some(Stretch { range, marked, probability })
}

fn largest_sum(marks: &[bool]) -> (i64, Range<usize>) {
    let (mut sum, mut from, mut best) = (0i64, 0, (0i64, 0..0));
    for (at, marked) in marks.iter().enumerate() {
        if sum <= 0 {
            (sum, from) = (0, at);
        }
        sum += if *marked { 1 } else { -1 };
        if sum > best.0 {
            best = (sum, from..at + 1);
        }
    }
    best
}

/// From any place on, the sum comes to m or more with a probability of at most (q / p)^m, where q is the share of marks
/// and p of the others, and q < p (W. Feller, "An Introduction to Probability Theory and Its Applications", vol. 1, 3rd
/// ed., XIV.2: the gambler who is ruined). Over all places the sum of these bounds holds. The stretch's own marks count
/// into q, which makes the bound larger.
fn bound(marks: &[bool], most: i64) -> f64 {
    let all = marks.len() as f64;
    let share = (marks.iter().filter(|marked| **marked).count() as f64 + 1.0) / (all + 2.0);
    if share < 0.5 { (all * (share / (1.0 - share)).powf(most as f64)).min(1.0) } else { 1.0 }
}

/// The share of shuffled series, this one included, whose largest sum is as large. Drawing stops once enough of them
/// are (J. Besag and P. Clifford, "Sequential Monte Carlo p-values", Biometrika 78, 1991). The same marks always give
/// the same answer.
fn drawn(marks: &[bool], most: i64) -> f64 {
    if marks.len() > MAX_DRAWN {
        return 1.0;
    }
    let mut random = Xoshiro256PlusPlus::seed_from_u64(marks.len() as u64);
    let mut shuffled = marks.to_vec();
    let mut as_large = 0;
    for draw in 1..=DRAWS {
        shuffled.shuffle(&mut random);
        as_large += usize::from(largest_sum(&shuffled).0 >= most);
        if as_large == ENOUGH {
            return as_large as f64 / draw as f64;
        }
    }
    (as_large + 1) as f64 / (DRAWS + 1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::RngExt;

    fn marks(text: &str) -> Vec<bool> {
        text.chars().map(|letter| letter == 'x').collect()
    }

    #[test]
    fn without_a_mark_there_is_no_stretch_and_where_all_are_marked_nothing_is_rare() {
        for text in ["", ".", "......"] {
            assert_eq!(densest_stretch(&marks(text)), None, "{text}");
        }
        assert_eq!(densest_stretch(&marks("xxxx")).map(|found| found.probability), Some(1.0));
    }

    #[test]
    fn the_stretch_begins_and_ends_with_marks_and_may_have_gaps() {
        for (text, range, marked) in
            [("..xxx..", 2..5, 3), ("x...xx.xxx.x...", 4..10, 5), ("x.x", 0..1, 1), ("....x", 4..5, 1)]
        {
            let found = densest_stretch(&marks(text)).expect("one");
            assert_eq!((found.range, found.marked), (range, marked), "{text}");
        }
    }

    /// Counts how often the stated probability is reached by chance.
    #[test]
    fn a_random_stretch_is_no_more_frequent_than_its_probability() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        for share in [0.02, 0.1, 0.25, 0.4, 0.6] {
            let below = (0..200).filter(|_| {
                let series: Vec<bool> = (0..60).map(|_| random.random_bool(share)).collect();
                densest_stretch(&series).is_some_and(|found| found.probability <= 0.05)
            });
            // 5 % of 200, and three standard deviations of that count.
            let counted = below.count();
            assert!(counted <= 19, "{share}: {counted} of 200");
        }
        // An obvious stretch is found.
        let planted = format!("{}{}{}", ".".repeat(80), "x".repeat(15), ".".repeat(25));
        assert!(densest_stretch(&marks(&planted)).expect("one").probability < 1e-6);
        let near_half = format!("{}{}", "x".repeat(20), ".".repeat(30));
        assert!(densest_stretch(&marks(&near_half)).expect("one").probability < 1e-3);
    }
}
