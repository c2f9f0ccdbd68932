//! Whether layers that predict further tokens can be listed with the other choices.

use super::TrainingStep;
use crate::config::Blocks;
use crate::config::step::{DataStyle, Linears, TensorStyle, VocabularyStyle};
use commgauge_base::error::Result;

/// The first choice that goes with none.
pub(super) fn check(step: &TrainingStep) -> Result<()> {
    let training = step.training;
    let layers = training.prediction_layers;
    if layers == 0 {
        return Ok(());
    }
    let data = training.data.style;
    let problem = if matches!(step.model.blocks, Blocks::Single { .. }) {
        format!(
            "layers that are a mixer or a feed-forward alone, as those of {}, whose prediction layers no list here has; accepted: models whose \
             layers have both",
            step.model.name
        )
    } else if step.layout.degrees.cp > 1 {
        format!(
            "cp = {}, whose ranks exchange single tokens that no list here has; accepted: cp = 1",
            step.layout.degrees.cp
        )
    } else if step.stages.mirrored() {
        format!("schedule {}, which has two last stages; accepted: dualpipe-v", training.pipeline.schedule)
    } else if matches!(data, DataStyle::Zero3 | DataStyle::Fsdp | DataStyle::Hsdp) {
        format!("data_style {data}, whose units of such a layer no list here has; accepted: ddp, zero1, zero2")
    } else if training.tensor.style != TensorStyle::Megatron || training.tensor.linears != Linears::Pair {
        "linears that are not divided as Megatron-LM does; accepted: tensor_style megatron and linears pair".to_owned()
    } else if training.vocabulary.style != VocabularyStyle::Parallel {
        "gathered logits; accepted: vocabulary_style parallel".to_owned()
    } else {
        return Ok(());
    };
    Err(training.place.wrong(format!("prediction_layers = {layers} with {problem}, or prediction_layers = 0")))
}
