//! Shares out a whole number of things in proportion to weights, exactly and the same on every machine.

use std::cmp::Reverse;

/// Shares of `total` in proportion to `weights`, rounded by largest remainder, none above `most_each`; the excess is
/// distributed among the others in proportion. Equal remainders are served in the order of `ties`, which names every
/// index once. Integers throughout: ranks that compute this independently must not differ by one.
///
/// The shares add up to `total`, or to less if too few weights are above 0.
pub(super) fn share_out(total: u64, weights: &[u64], most_each: u64, ties: &[usize]) -> Vec<u64> {
    let mut shares = vec![0; weights.len()];
    let mut is_full = vec![false; weights.len()];
    let mut left = u128::from(total);
    let mut weight_left: u128 = weights.iter().map(|weight| u128::from(*weight)).sum();
    let mut heaviest_first: Vec<usize> = ties.to_vec();
    heaviest_first.sort_by_key(|index| Reverse(weights[*index]));
    for index in heaviest_first {
        let weight = u128::from(weights[index]);
        if left * weight <= u128::from(most_each) * weight_left {
            break; // and so are all lighter ones
        }
        (shares[index], is_full[index]) = (most_each, true);
        left -= u128::from(most_each);
        weight_left -= weight;
    }
    if weight_left == 0 {
        return shares;
    }
    let shared = left;
    let mut remainders = Vec::with_capacity(weights.len());
    for index in ties.iter().copied().filter(|index| !is_full[*index]) {
        let product = shared * u128::from(weights[index]);
        shares[index] = (product / weight_left) as u64;
        left -= u128::from(shares[index]);
        remainders.push((product % weight_left, index));
    }
    // A stable sort: among equals the order of `ties` stays.
    remainders.sort_by_key(|(remainder, _)| Reverse(*remainder));
    for (_, index) in remainders.into_iter().take(left as usize) {
        shares[index] += 1;
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_those_worked_out_by_hand() {
        for (total, weights, most, expected) in [
            (10, vec![1, 1, 1], u64::MAX, vec![4, 3, 3]),
            (7, vec![4, 2, 1], u64::MAX, vec![4, 2, 1]),
            // 3.33, 1.67: the larger remainder gets the last one.
            (5, vec![2, 1], u64::MAX, vec![3, 2]),
            // 8 of 10 would be the share of the first; it gets 5, and the others share 5 evenly.
            (10, vec![8, 1, 1], 5, vec![5, 3, 2]),
            (10, vec![100, 9, 1], 4, vec![4, 4, 2]),
            (10, vec![1, 0], 4, vec![4, 0]),
            (0, vec![1, 2], 4, vec![0, 0]),
            (3, vec![0, 0], 4, vec![0, 0]),
        ] {
            let ties: Vec<usize> = (0..weights.len()).collect();
            assert_eq!(share_out(total, &weights, most, &ties), expected, "{total} by {weights:?}, at most {most}");
        }
    }

    proptest::proptest! {
        #[test]
        fn shares_add_up_and_respect_the_maximum(
            total in 0u64..1 << 46,
            weights in proptest::collection::vec(1u64..1 << 50, 1..40),
            tight in 1u64..20,
        ) {
            let count = weights.len() as u64;
            let most = (total / count + 1).saturating_mul(tight);
            let ties: Vec<usize> = (0..weights.len()).rev().collect();
            let shares = share_out(total, &weights, most, &ties);
            proptest::prop_assert_eq!(shares.iter().sum::<u64>(), total);
            proptest::prop_assert!(shares.iter().all(|share| *share <= most));
        }
    }
}
