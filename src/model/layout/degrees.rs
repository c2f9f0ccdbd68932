//! Degrees of parallelism, and the order in which the axes vary over consecutive ranks.

use super::Axis;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Degrees of all axes in one layout. Experts divide the same ranks in a way of their own:
/// `tp x cp x dp x pp = etp x ep x edp x pp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Degrees {
    /// Tensor parallel.
    pub tp: u32,
    /// Context parallel.
    pub cp: u32,
    /// Data parallel.
    pub dp: u32,
    /// Pipeline parallel.
    pub pp: u32,
    /// Expert parallel.
    pub ep: u32,
    /// Tensor parallel inside experts.
    pub etp: u32,
}

impl Degrees {
    /// Dense degrees, without expert parallelism.
    pub fn dense(tp: u32, cp: u32, dp: u32, pp: u32) -> Degrees {
        Degrees { tp, cp, dp, pp, ep: 1, etp: tp }
    }

    /// Ranks that the layout needs; `u64::MAX` for more, which no checked layout has.
    pub fn world(&self) -> u64 {
        u64::try_from(self.world_exactly()).unwrap_or(u64::MAX)
    }

    /// Ranks that the layout needs, however large the degrees are.
    pub fn world_exactly(&self) -> u128 {
        [self.tp, self.cp, self.dp, self.pp].into_iter().map(u128::from).product()
    }

    /// Ranks of one pipeline stage, all replicas together; `u64::MAX` for more.
    pub fn ranks_of_stage(&self) -> u64 {
        Degrees { pp: 1, ..*self }.world()
    }

    /// Replicas of each expert: the ranks of a stage divided by the degrees of the experts; `None` if that is no
    /// integer.
    pub fn edp(&self) -> Option<u32> {
        let divided = u64::from(self.etp) * u64::from(self.ep);
        let even = divided > 0 && self.ranks_of_stage().is_multiple_of(divided);
        even.then(|| u32::try_from(self.ranks_of_stage() / divided).ok()).flatten()
    }

    /// True if experts have their own division. Otherwise they are placed like the dense layers, and their replicas
    /// are the groups of `dp_cp`.
    pub fn divides_experts(&self) -> bool {
        self.ep != 1 || self.etp != self.tp
    }

    /// The degrees above 1, such as `tp 2 x dp 2`; that inside experts also where it is 1, if the dense layers' is not.
    pub fn name(&self) -> String {
        let dense =
            [(Axis::Tp, self.tp), (Axis::Cp, self.cp), (Axis::Dp, self.dp), (Axis::Pp, self.pp), (Axis::Ep, self.ep)];
        let etp = Some((Axis::Etp, self.etp)).filter(|_| self.etp != self.tp);
        let all = dense.into_iter().filter(|(_, degree)| *degree > 1).chain(etp);
        let parts: Vec<_> = all.map(|(axis, degree)| format!("{axis} {degree}")).collect();
        if parts.is_empty() { "one rank".to_owned() } else { parts.join(" x ") }
    }
}

/// The divisors of `number` next to `wanted`, the one below (or equal) first; for messages that suggest valid values.
pub fn nearest_divisors(number: u64, wanted: u64) -> Vec<u64> {
    let (mut below, mut above) = (None, None);
    let small = (1..=number.isqrt()).filter(|divisor| number.is_multiple_of(*divisor));
    for divisor in small.flat_map(|divisor| [divisor, number / divisor]) {
        if divisor <= wanted {
            below = below.max(Some(divisor));
        } else {
            above = Some(above.map_or(divisor, |other: u64| other.min(divisor)));
        }
    }
    below.into_iter().chain(above).collect()
}

/// Numbers as a choice: `4 or 8`.
pub fn either(numbers: &[u64]) -> String {
    numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(" or ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_divisors_lie_on_both_sides() {
        for (number, wanted, expected) in [
            (16, 3, vec![2, 4]),
            (16, 16, vec![16]),
            (16, 99, vec![16]),
            (12, 5, vec![4, 6]),
            (7, 3, vec![1, 7]),
            (1, 0, vec![1]),
        ] {
            assert_eq!(nearest_divisors(number, wanted), expected, "{number} {wanted}");
        }
    }

    #[test]
    fn the_name_identifies_the_layout() {
        let degrees = Degrees { tp: 8, cp: 1, dp: 4, pp: 2, ep: 8, etp: 8 };
        assert_eq!(degrees.name(), "tp 8 x dp 4 x pp 2 x ep 8");
        assert_eq!(Degrees { etp: 1, ..degrees }.name(), "tp 8 x dp 4 x pp 2 x ep 8 x etp 1");
        assert_eq!(Degrees::dense(1, 1, 1, 1).name(), "one rank");
    }

    #[test]
    fn degrees_whose_product_exceeds_64_bits_are_still_multiplied() {
        let vast = Degrees { tp: u32::MAX, cp: u32::MAX, dp: u32::MAX, pp: u32::MAX, ep: 1, etp: 1 };
        assert_eq!((vast.world_exactly(), vast.world()), (u128::from(u32::MAX).pow(4), u64::MAX));
        assert_eq!(vast.edp(), None, "more replicas than 32 bits can count");
    }
}
