//! Flags of a step that change nothing, as the layout or the model has not what they are about: they are accepted, since a layout may be
//! varied with all else kept, and said.

use commgauge_model::config::Model;
use commgauge_model::config::step::{Needs, needs_of_flag};
use commgauge_model::layout::Degrees;

/// A sentence for each thing that is not there, with the given flags that are about it.
pub(crate) fn sentences(given: &[&'static str], degrees: &Degrees, model: &Model) -> Vec<String> {
    let missing = [
        (degrees.tp == 1, Needs::TensorParallelism, "tp is 1"),
        (degrees.pp == 1, Needs::PipelineParallelism, "pp is 1"),
        (degrees.cp == 1, Needs::ContextParallelism, "cp is 1"),
        (model.mixture.is_none(), Needs::Experts, "the model has no experts"),
    ];
    let sentence = |(is_missing, what, why): (bool, Needs, &str)| {
        let is_about = |flag: &&str| is_missing && needs_of_flag(flag) == Some(what);
        let flags: Vec<&str> = given.iter().copied().filter(is_about).collect();
        (!flags.is_empty()).then(|| format!("{}: changes nothing, as {why}", flags.join(", ")))
    };
    missing.into_iter().filter_map(sentence).collect()
}
