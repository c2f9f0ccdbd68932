//! Parses `sequence_parallel=false`: a choice of the training that the planner does not make.

use commgauge_model::config::likely_key;
use commgauge_model::config::step::{Framework, Work, keys_of};

/// Keys that the planner chooses itself, or that have flags of their own.
const CHOSEN: [&str; 8] = [
    "sequence",
    "micro_batch",
    "micro_batches",
    "global_batch",
    "recompute",
    "schedule",
    "virtual_stages",
    "framework",
];

/// A key of `[training]` with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli) struct TrainingChoice {
    /// The key.
    pub key: &'static str,
    /// Its value, as text.
    pub value: String,
}

/// Parses the name of a framework that trains.
pub(super) fn framework(text: &str) -> Result<Framework, String> {
    let trains = |framework: &&Framework| framework.work() == Work::Training;
    let named = text.parse().ok().filter(|framework| trains(&framework));
    named.ok_or_else(|| {
        let names: Vec<&str> = Framework::ALL.iter().filter(trains).map(|framework| framework.name()).collect();
        format!("found `{text}`; accepted, as they train: {}", names.join(", "))
    })
}

/// Parses one.
pub(super) fn choice(text: &str) -> Result<TrainingChoice, String> {
    let known = || keys_of(Work::Training).filter(|key| !CHOSEN.contains(key));
    let accepted = || known().collect::<Vec<_>>().join(", ");
    let (key, value) =
        text.split_once('=').ok_or_else(|| format!("found `{text}`; accepted: key=value; keys: {}", accepted()))?;
    let (key, value) = (key.trim(), value.trim().to_owned());
    if CHOSEN.contains(&key) {
        return Err(format!(
            "{key} is chosen by the planner or has a flag of its own (--only, --sequence, --global-batch, --framework)"
        ));
    }
    if key == "data_style" && value != "zero3" {
        return Err(format!(
            "data_style: found `{value}`; accepted: zero3, for ZeRO-3 as DeepSpeed has it; else --only zero_stage="
        ));
    }
    match known().find(|known| *known == key) {
        Some(key) => Ok(TrainingChoice { key, value }),
        None => Err(format!("found key `{key}`{} Accepted: {}", likely_key(key, known()), accepted())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_that_are_the_planners_or_unknown_are_refused() {
        let expected = TrainingChoice { key: "sequence_parallel", value: "false".to_owned() };
        assert_eq!(choice("sequence_parallel = false"), Ok(expected));
        assert!(choice("gather_recipe=mxfp8").is_ok() && choice("expert_inner=4").is_ok());
        for (text, expected) in [
            ("sequence_parallel", "accepted: key=value"),
            ("micro_batch=2", "chosen by the planner"),
            ("micro_batches=2", "chosen by the planner"),
            ("data_style=ddp", "accepted: zero3"),
            ("sequence_paralel=false", "did you mean `sequence_parallel`?"),
        ] {
            let problem = choice(text).unwrap_err();
            assert!(problem.contains(expected), "{text}: {problem}");
        }
    }
}
