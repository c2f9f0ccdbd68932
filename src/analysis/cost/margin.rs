//! How far off predictions may be, by the ground that they stand on.
//!
//! Every kind of prediction has a difficulty in log time, which the measured sizes themselves say: how far apart the candidates between
//! two sizes are, how much the slopes at an end differ, how far ring and tree are apart. What was left out of a fit gives errors
//! as shares of their difficulty, and the share that 95 of 100 stay below is the margin of the kind: conformal prediction, one kind at a
//! time (Vovk, Gammerman and Shafer, "Algorithmic Learning in a Random World", 2005, sections 2.2 and 4.5). Where a fit left out
//! too little of a kind, the margin is that of the machines in `tests/data/nccl`.

use super::curve::{Cleaned, Interpolant, MAX_EXTRAPOLATION, Outside, Point};
use super::errors::Regime;
use super::transfer::GroupDifficulty;
use commgauge_base::stats::sorted;
use commgauge_base::units::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a prediction stands on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Ground {
    /// Below the smallest measured size.
    BelowRange,
    /// Between measured sizes, below 64 KiB.
    InsideSmall,
    /// Between measured sizes, to 16 MiB.
    InsideMiddle,
    /// Between measured sizes, above 16 MiB.
    InsideLarge,
    /// Above the largest measured size.
    AboveRange,
    /// From other group sizes.
    GroupSizes,
}

impl Ground {
    /// Every ground.
    pub const ALL: [Ground; 6] = [
        Ground::BelowRange,
        Ground::InsideSmall,
        Ground::InsideMiddle,
        Ground::InsideLarge,
        Ground::AboveRange,
        Ground::GroupSizes,
    ];

    /// Between measured sizes.
    pub fn inside(bytes: f64) -> Ground {
        match Regime::of(Bytes(bytes as u64)) {
            Regime::Small => Ground::InsideSmall,
            Regime::Middle => Ground::InsideMiddle,
            Regime::Large => Ground::InsideLarge,
        }
    }

    /// The margin on the machines in `tests/data/nccl`: 95 of 100 errors there, in every half of the sizes left out in turn, with 4, 16 and 64
    /// MiB as largest and 16, 64 and 256 KiB as smallest size, and groups of four from two and eight.
    fn published(self) -> f64 {
        match self {
            Ground::BelowRange => 3.1,
            Ground::InsideSmall => 2.5,
            Ground::InsideMiddle => 1.7,
            Ground::InsideLarge => 1.3,
            Ground::AboveRange => 3.8,
            Ground::GroupSizes => 2.3,
        }
    }
}

/// What 95 of 100 errors of a ground stay below, as a share of their difficulty.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Margin {
    /// Which predictions.
    pub ground: Ground,
    /// Error in log time over difficulty.
    pub factor: f64,
    /// Left-out predictions behind it.
    pub points: u64,
}

/// An error of a left-out point, as a share of its difficulty.
#[derive(Clone, Copy, Debug)]
pub(super) struct Score {
    pub ground: Ground,
    pub share: f64,
}

impl Score {
    /// Of a predicted and a measured time.
    pub fn of(ground: Ground, predicted: f64, measured: f64, difficulty: f64) -> Score {
        Score { ground, share: (predicted / measured).ln().abs() / difficulty }
    }
}

/// Fewer left-out predictions than these say little of the 95th percentile.
const FEWEST: usize = 40;
/// A library reaches its bandwidth above this size. A curve that ends below has nothing like the sizes above it to leave out.
const SATURATED_BYTES: f64 = 16.0 * 1024.0 * 1024.0;
/// Sizes at an end that are left out, the outermost first.
const LEFT_OUT_AT_AN_END: usize = 5;
/// Fewest sizes that a curve with left-out ends must keep.
const FEWEST_KEPT: usize = 4;

/// The margins of all grounds of which enough was left out.
pub(super) fn margins(scores: &[Score]) -> Vec<Margin> {
    let of = |ground: Ground| {
        let shares = sorted(scores.iter().filter(|score| score.ground == ground).map(|score| score.share));
        // The rank of split conformal prediction: of n further points at most one in twenty is above it.
        let rank = (((shares.len() + 1) as f64) * 0.95).ceil() as usize;
        let factor = *shares.get(rank.saturating_sub(1)).or(shares.last())?;
        (shares.len() >= FEWEST).then_some(Margin { ground, factor, points: shares.len() as u64 })
    };
    Ground::ALL.into_iter().filter_map(of).collect()
}

/// The margin of a ground: that of the fit, or that of published machines. `last_bytes` is the largest size of the curve.
pub(super) fn factor(margins: &[Margin], ground: Ground, last_bytes: f64) -> f64 {
    let own = margins.iter().find(|margin| margin.ground == ground);
    let own = own.filter(|_| ground != Ground::AboveRange || last_bytes >= SATURATED_BYTES);
    own.map_or(ground.published(), |margin| margin.factor)
}

/// The widest margin of a ground. Above the measured sizes a rate changes by as much as a cache is faster than the memory behind it, about four
/// times; that is all that can come of sending a large call as several of the largest measured one.
pub(super) fn most(ground: Ground) -> f64 {
    match ground {
        Ground::AboveRange => 4_f64.ln(),
        _ => f64::INFINITY,
    }
}

/// The scores of a curve's sizes at both ends, left out in turn.
pub(super) fn scores_of_ends(points: &[Point]) -> Vec<Score> {
    let mut scores = Vec::new();
    for count in 1..=LEFT_OUT_AT_AN_END.min(points.len().saturating_sub(FEWEST_KEPT)) {
        let (head, tail) = points.split_at(count);
        if let Some(outside) = Outside::of(&Cleaned::of(tail).points) {
            scores.extend(head.iter().map(|point| {
                let difficulty = outside.difficulty_below(point.bytes);
                Score::of(Ground::BelowRange, outside.below(point.bytes), point.seconds, difficulty)
            }));
        }
        let (head, tail) = points.split_at(points.len() - count);
        let Some(outside) = Outside::of(&Cleaned::of(head).points) else { continue };
        let near = tail.iter().filter(|point| point.bytes <= outside.last.bytes * MAX_EXTRAPOLATION);
        scores.extend(near.map(|point| {
            let difficulty = outside.difficulty_above(point.bytes);
            Score::of(Ground::AboveRange, outside.above(point.bytes), point.seconds, difficulty)
        }));
    }
    scores
}

/// The score of a size between others.
pub(super) fn score_inside(curve: &Interpolant, point: Point) -> Score {
    let Point { bytes, seconds } = point;
    Score::of(Ground::inside(bytes), curve.seconds(bytes), seconds, curve.difficulty(bytes))
}

/// The score of a size of a group size between others.
pub(super) fn score_of_group(predicted: GroupDifficulty, measured: f64) -> Score {
    Score::of(Ground::GroupSizes, predicted.seconds, measured, predicted.difficulty)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scores(count: usize) -> Vec<Score> {
        (1..=count).map(|index| Score { ground: Ground::InsideSmall, share: index as f64 }).collect()
    }

    #[test]
    fn a_margin_holds_95_of_100_and_needs_enough() {
        assert!(margins(&scores(FEWEST - 1)).is_empty());
        let found = margins(&scores(99));
        assert_eq!((found[0].factor, found[0].points), (95.0, 99));
    }

    #[test]
    fn without_enough_the_margin_is_that_of_published_machines() {
        let own = margins(&scores(99));
        assert_eq!(factor(&own, Ground::InsideSmall, 1e3), 95.0);
        assert_eq!(factor(&own, Ground::InsideLarge, 1e3), Ground::InsideLarge.published());
    }

    #[test]
    fn a_curve_that_ends_before_its_bandwidth_is_reached_does_not_judge_its_own_tail() {
        let own = [Margin { ground: Ground::AboveRange, factor: 0.5, points: 100 }];
        assert_eq!(factor(&own, Ground::AboveRange, 1e6), Ground::AboveRange.published());
        assert_eq!(factor(&own, Ground::AboveRange, 1e8), 0.5);
    }

    #[test]
    fn sizes_at_both_ends_are_left_out() {
        let points: Vec<Point> =
            (0..12).map(|step| 1e3 * 2f64.powi(step)).map(|bytes| Point::new(bytes, 1e-5 + bytes * 1e-9)).collect();
        let found = scores_of_ends(&points);
        assert_eq!(found.len(), 2 * (1 + 2 + 3 + 4 + 5));
        assert!(found.iter().all(|score| score.share < 1e-6), "a line is predicted exactly: {found:?}");
    }
}
