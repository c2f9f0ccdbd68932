//! Curves that differ only in the size of the group: the scaling form that suits them best, and its errors.

use super::FamilyKey;
use super::curve::Point;
use super::document::{FamilyFit, LoneCall};
use super::errors::{Errors, PredictionPair};
use super::fitted_curve::Fitted;
use super::margin::{Score, score_of_group};
use super::transfer::{self, Scaling};
use std::collections::BTreeMap;

/// A time at a group size that was left out.
#[derive(Clone, Copy)]
pub(super) struct LeftOutGroup {
    pub seconds: PredictionPair,
    pub score: Score,
}

/// The times at the group sizes that were left out.
type Pairs = Vec<LeftOutGroup>;

/// A call that was measured without a curve, and the family it is of.
pub(super) struct LoneMember<'a> {
    pub family: &'a FamilyKey,
    pub call: LoneCall,
}

/// The families of some curves, and the pairs behind their errors.
pub(super) fn families(curves: Vec<Fitted>, lone: Vec<LoneMember>) -> Vec<(FamilyFit, Pairs)> {
    let mut by_family: BTreeMap<FamilyKey, Members> = BTreeMap::new();
    for fitted in curves {
        by_family.entry(fitted.key.family.clone()).or_default().curves.push(fitted);
    }
    for LoneMember { family, call } in lone {
        by_family.entry(family.clone()).or_default().lone.push(call);
    }
    by_family.into_iter().map(|(key, members)| family(key, members)).collect()
}

/// What was measured of a family.
#[derive(Default)]
struct Members {
    curves: Vec<Fitted>,
    lone: Vec<LoneCall>,
}

/// The form with the smallest mean error at the inner group sizes, each left out once; a ring where nothing can be left
/// out.
fn family(key: FamilyKey, members: Members) -> (FamilyFit, Pairs) {
    let Members { curves, lone } = members;
    let tried = Scaling::ALL.into_iter().filter_map(|scaling| {
        let pairs = left_out_group_sizes(&curves, scaling);
        Some((Errors::of(pairs.iter().map(|pair| pair.seconds))?, scaling, pairs))
    });
    let best = tried.min_by(|a, b| a.0.mean.total_cmp(&b.0.mean));
    let (errors, scaling, pairs) =
        best.map_or((None, Scaling::Ring, Vec::new()), |(errors, scaling, pairs)| (Some(errors), scaling, pairs));
    let documents = curves.into_iter().map(|fitted| fitted.document).collect();
    (FamilyFit { key, scaling, held_out_group_sizes: errors, curves: documents, lone }, pairs)
}

fn left_out_group_sizes(curves: &[Fitted], scaling: Scaling) -> Pairs {
    let mut pairs = Vec::new();
    for around in curves.windows(3) {
        let [below, out, above] = around else { continue };
        let measured = [below.document.ranks, above.document.ranks];
        pairs.extend(out.points.iter().map(|&Point { bytes, seconds }| {
            let predicted = transfer::with_difficulty(scaling, measured, out.document.ranks, bytes, |which, bytes| {
                [below, above][which].curve.seconds(bytes)
            });
            LeftOutGroup {
                seconds: PredictionPair { predicted: predicted.seconds, measured: seconds },
                score: score_of_group(predicted, seconds),
            }
        }));
    }
    pairs
}
