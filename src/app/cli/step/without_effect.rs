//! Flags of a step that change nothing, as the layout or the model has not what they are about: they are accepted, since a layout may be
//! varied with all else kept, and said.

use commgauge_model::config::Model;
use commgauge_model::config::step::STEP_KEYS;
use commgauge_model::layout::Degrees;

/// What of the tensor-parallel flags also matters on one rank.
const ON_ONE_RANK: [&str; 2] = ["--recompute", "--vocabulary-padding"];
/// Flags of a model that serves that are about stages.
const OF_SERVING_STAGES: [&str; 2] = ["--boundary-tensors", "--sampled-tokens"];

/// A sentence for each thing that is not there, with the given flags that are about it.
pub(crate) fn sentences(given: &[&'static str], degrees: &Degrees, model: &Model) -> Vec<String> {
    let of_group = |heading: &str, flag: &str| {
        let group = STEP_KEYS.iter().find(|group| group.heading == heading);
        group.is_some_and(|group| group.keys.iter().any(|key| key.flag == flag))
    };
    let about = |heading: &str, flag: &str| match heading {
        "Tensor parallelism" => of_group(heading, flag) && !ON_ONE_RANK.contains(&flag),
        "Pipeline parallelism" => of_group(heading, flag) || OF_SERVING_STAGES.contains(&flag),
        _ => of_group(heading, flag),
    };
    let missing = [
        (degrees.tp == 1, "Tensor parallelism", "tp is 1"),
        (degrees.pp == 1, "Pipeline parallelism", "pp is 1"),
        (degrees.cp == 1, "Context parallelism", "cp is 1"),
        (model.mixture.is_none(), "Expert parallelism", "the model has no experts"),
    ];
    let sentence = |(is_missing, heading, why): (bool, &str, &str)| {
        let flags: Vec<&str> = given.iter().copied().filter(|flag| is_missing && about(heading, flag)).collect();
        (!flags.is_empty()).then(|| format!("{}: changes nothing, as {why}", flags.join(", ")))
    };
    missing.into_iter().filter_map(sentence).collect()
}
