//! Comparison of two layouts: which choices differ, and which part of the step takes longer because of them.

use super::plan_document::PlannedLayout;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Two layouts, line by line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Comparison {
    /// The first layout.
    pub first: PlannedLayout,
    /// The second.
    pub second: PlannedLayout,
    /// Choices that differ: name, of the first, of the second.
    pub choices: Vec<(String, String, String)>,
    /// The parts of the step, the largest difference first.
    pub parts: Vec<PartDifference>,
    /// Share of draws in which the first is faster.
    pub probability_first_is_faster: Option<f64>,
}

/// A part of the step in both layouts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PartDifference {
    /// The part.
    pub part: String,
    /// Seconds in the first layout.
    pub first_seconds: f64,
    /// Seconds in the second.
    pub second_seconds: f64,
}

impl PartDifference {
    /// The second less the first.
    pub fn difference_seconds(&self) -> f64 {
        self.second_seconds - self.first_seconds
    }
}

impl Comparison {
    /// Of two layouts.
    pub fn new(first: PlannedLayout, second: PlannedLayout, probability: Option<f64>) -> Comparison {
        let mut parts: Vec<PartDifference> = first
            .parts()
            .into_iter()
            .zip(second.parts())
            .map(|((part, first_seconds), (_, second_seconds))| PartDifference { part, first_seconds, second_seconds })
            .filter(|part| part.first_seconds > 0.0 || part.second_seconds > 0.0)
            .collect();
        parts.sort_by(|a, b| b.difference_seconds().abs().total_cmp(&a.difference_seconds().abs()));
        let split = |layout: &PlannedLayout| -> Vec<(String, String)> {
            let pair = |text: &str| text.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
            layout.name.split(',').filter_map(pair).collect()
        };
        let choices = split(&first)
            .into_iter()
            .zip(split(&second))
            .filter(|((_, a), (_, b))| a != b)
            .map(|((name, a), (_, b))| (name, a, b))
            .collect();
        Comparison { first, second, choices, parts, probability_first_is_faster: probability }
    }
}
