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

    /// Ranks that the layout needs.
    pub fn world(&self) -> u64 {
        [self.tp, self.cp, self.dp, self.pp].into_iter().map(u64::from).product()
    }

    /// Ranks of one pipeline stage, all replicas together.
    pub fn ranks_of_stage(&self) -> u64 {
        [self.tp, self.cp, self.dp].into_iter().map(u64::from).product()
    }

    /// Replicas of each expert: what is left of a stage's ranks once experts are divided; `None` where it does not come out
    /// even.
    pub fn edp(&self) -> Option<u32> {
        let divided = u64::from(self.etp) * u64::from(self.ep);
        let even = divided > 0 && self.ranks_of_stage().is_multiple_of(divided);
        even.then(|| (self.ranks_of_stage() / divided) as u32)
    }

    /// The degrees above 1, such as `tp 2 x dp 2`.
    pub fn name(&self) -> String {
        let etp = if self.etp == self.tp { 1 } else { self.etp };
        let all = [
            (Axis::Tp, self.tp),
            (Axis::Cp, self.cp),
            (Axis::Dp, self.dp),
            (Axis::Pp, self.pp),
            (Axis::Ep, self.ep),
            (Axis::Etp, etp),
        ];
        let parts: Vec<_> = all
            .into_iter()
            .filter(|(_, degree)| *degree > 1)
            .map(|(axis, degree)| format!("{axis} {degree}"))
            .collect();
        if parts.is_empty() { "one rank".to_owned() } else { parts.join(" x ") }
    }
}
