//! Further results: the fastest layouts for decreasing memory, and the choices of other machines.

use super::question::Priced;
use super::question::Question;
use super::{Found, search};
use crate::planner::rates::Scaled;
use commgauge_base::units::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Each layout of a Pareto list needs at most this share of the memory of the one before.
const LESS_MEMORY: f64 = 0.95;

/// The fastest layout, the fastest that needs less memory, and so on; at most the requested number.
pub fn pareto(question: &Question) -> Found {
    let mut smaller = Question { wanted: 1, ..question.clone() };
    let mut found = search(&smaller);
    while let Some(last) = found.best.last().filter(|last| last.layout.fits) {
        smaller.gpu_memory = Bytes((LESS_MEMORY * last.layout.memory.0 as f64) as u64);
        if found.best.len() >= question.wanted {
            break;
        }
        match search(&smaller).best.pop().filter(|next| next.layout.fits) {
            Some(next) => found.best.push(next),
            None => break,
        }
    }
    found
}

/// Drops every layout that another one beats, or equals, in time, memory and GPUs alike; ordered by time.
pub fn not_beaten(mut all: Vec<Priced>) -> Vec<Priced> {
    all.sort_by(|a, b| a.price.step_seconds.total_cmp(&b.price.step_seconds));
    let mut kept: Vec<Priced> = Vec::new();
    for one in all {
        let beaten = kept.iter().any(|other| {
            other.layout.memory <= one.layout.memory && other.layout.degrees.world() <= one.layout.degrees.world()
        });
        if !beaten {
            kept.push(one);
        }
    }
    kept
}

/// A machine that differs in one property, and its choice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WhatIf {
    /// The difference.
    pub change: String,
    /// The layout that is then the fastest, in the syntax of `--only`; absent if none fits.
    pub layout: Option<String>,
    /// Its step.
    pub step_seconds: Option<f64>,
    /// The step of the current choice on that machine; absent if it does not fit.
    pub todays_step_seconds: Option<f64>,
    /// Whether the current choice is as fast.
    pub same_choice: bool,
}

struct Change {
    name: &'static str,
    within: f64,
    between: f64,
    memory: f64,
}

const CHANGES: [Change; 6] = [
    Change { name: "links within a node half as fast", within: 2.0, between: 1.0, memory: 1.0 },
    Change { name: "links within a node twice as fast", within: 0.5, between: 1.0, memory: 1.0 },
    Change { name: "links between nodes half as fast", within: 1.0, between: 2.0, memory: 1.0 },
    Change { name: "links between nodes twice as fast", within: 1.0, between: 0.5, memory: 1.0 },
    Change { name: "three quarters of the memory", within: 1.0, between: 1.0, memory: 0.75 },
    Change { name: "half as much memory again", within: 1.0, between: 1.0, memory: 1.5 },
];

/// The choices of other machines; `best` is the current choice.
pub fn what_if(question: &Question, best: &Priced) -> Vec<WhatIf> {
    let of = |change: &Change| {
        let rates = Scaled { rates: question.rates, within: change.within, between: change.between };
        let memory = Bytes((change.memory * question.gpu_memory.0 as f64) as u64);
        let other = Question { rates: &rates, gpu_memory: memory, wanted: 1, ..question.clone() };
        let then = search(&other).best.pop().filter(|then| then.layout.fits);
        let today = Question { only: best.layout.only(), ..other.clone() };
        let today = search(&today).best.pop().filter(|today| today.layout.fits).map(|today| today.price.step_seconds);
        let step_seconds = then.as_ref().map(|then| then.price.step_seconds);
        WhatIf {
            change: change.name.to_owned(),
            layout: then.map(|then| then.layout.name()),
            step_seconds,
            todays_step_seconds: today,
            same_choice: step_seconds.zip(today).is_some_and(|(then, today)| today <= then),
        }
    };
    CHANGES.iter().map(of).collect()
}
