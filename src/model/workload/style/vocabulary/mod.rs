//! The ends of the model, divided by vocabulary: embedding, output projection, loss, the gradient of a word embedding that two stages
//! share, and the batch that goes in and is compared.
//!
//! Learned positions need no calls: only the first stage of a decoder has them, so that their group has one rank.

mod batch;
mod calls;
mod divided;
mod gathered;
mod predicted;
#[cfg(test)]
mod tests;

use super::product::product;
use crate::config::step::VocabularyStyle;
use crate::layout::Axis;
use crate::workload::step::TrainingStep;
use crate::workload::when::{End, Moment, Overlap, When};
use crate::workload::{Op, Style};
use commgauge_base::collective::Collective;
use commgauge_base::error::Result;
use divided::{cross_entropy, embedding, output_projection};

/// The calls of one rank of a stage in an optimizer step.
pub(super) fn ops(step: &TrainingStep, stage: u32) -> Result<Vec<Op>> {
    let mut ops = batch::ops(step, stage)?;
    if step.layout.degrees.tp > 1 {
        if step.stages.has_input(stage) {
            ops.extend(embedding(step, End::Input));
        }
        match step.training.vocabulary.style {
            _ if !step.stages.has_output(stage) => {}
            VocabularyStyle::Parallel => {
                ops.extend(output_projection(step));
                ops.extend(cross_entropy(step)?);
                ops.extend(predicted::ops(step)?);
            }
            VocabularyStyle::Gathered => ops.extend(gathered::ops(step)?),
        }
    }
    ops.extend(shared_embedding(step, stage)?);
    Ok(ops)
}

/// First and last stage have the same word embedding and add up their gradients, after those of data parallelism.
///
/// V-shaped schedules have both ends on one stage; nothing is shared there. With mirrored stages both stages have both
/// ends, and the two copies are added up.
fn shared_embedding(step: &TrainingStep, stage: u32) -> Result<Option<Op>> {
    let ends = [step.stages.has_input(stage), step.stages.has_output(stage)];
    let shares = match ends {
        [false, false] => false,
        [true, true] => step.stages.mirrored(),
        _ => true,
    };
    // Layers that predict further tokens embed them with the words of the first stage.
    let embeds_again = step.training.prediction_layers > 0;
    if !(step.model.embedding.tied || embeds_again) || step.layout.degrees.pp == 1 || !shares {
        return Ok(None);
    }
    let (t, h, element) =
        (u64::from(step.layout.degrees.tp), step.model.hidden, step.training.data.gradient_element_type);
    let padded = step.padded_vocabulary();
    let bytes = product("gradient of the word embedding", &[element.size(), padded / t, h])?;
    Ok(Some(Op {
        when: When::Step { moment: Moment::AfterBackward, calls: 1 },
        overlap: Overlap::Exposed,
        why: format!(
            "Eg*V*h/t = {} B*{padded}*{h}/{t} = {bytes} B: gradient of the word embedding that the first and the last stage \
             share, vocabulary padded from {} (Megatron-LM core/distributed/finalize_model_grads.py \
             _allreduce_word_embedding_grads)",
            element.size(),
            step.model.embedding.vocabulary
        ),
        ..Op::new(Style::Vocabulary, Axis::Embedding, Collective::AllReduce, element, bytes)
    }))
}
