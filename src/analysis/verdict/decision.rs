//! The outcomes of a row and of a verdict, and the exit code for several troubles at once.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What came of a question, from best to worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// The data show that it is good.
    Pass,
    /// The data do not show it, one way or the other.
    Inconclusive,
    /// The data show that it is bad.
    Fail,
    /// The data cannot be judged: wrong, cut off, or the run failed.
    Error,
}

impl Decision {
    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Decision::Pass => "pass",
            Decision::Inconclusive => "inconclusive",
            Decision::Fail => "fail",
            Decision::Error => "error",
        }
    }

    /// The decision that an exit code stands for.
    pub fn from_exit_code(code: i32) -> Decision {
        match code {
            0 => Decision::Pass,
            1 => Decision::Fail,
            3 => Decision::Inconclusive,
            _ => Decision::Error,
        }
    }
}

/// The most severe exit code, in this order: wrong data, hang, environment, coverage, failed gate, inconclusive, passed. An
/// unknown code ranks above a failed gate, so that it is never hidden.
pub fn most_severe(codes: impl IntoIterator<Item = i32>) -> i32 {
    const ORDER: [i32; 7] = [4, 5, 6, 7, 1, 3, 0];
    let place = |code: &i32| ORDER.iter().position(|known| known == code).unwrap_or(3);
    let most_severe = codes.into_iter().min_by_key(place).unwrap_or(0);
    if ORDER.contains(&most_severe) { most_severe } else { 7 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_severe_code_wins_and_none_is_lost() {
        for (codes, worst) in [
            (vec![], 0),
            (vec![0, 3], 3),
            (vec![3, 1, 0], 1),
            (vec![1, 7], 7),
            (vec![7, 6, 5, 4, 1, 3], 4),
            (vec![0, 256], 7),
            (vec![1, 42], 7),
        ] {
            assert_eq!(most_severe(codes.clone()), worst, "{codes:?}");
        }
    }
}
