//! One training for each set of choices but the micro-batch, created once and cached.

use super::choices::Choices;
use super::question::Question;
use super::space::Space;
use commgauge_model::config::Training;
use commgauge_model::config::step::Recompute;
use std::collections::HashMap;

/// Trainings by their choices, with micro-batches of one sample.
pub(super) struct Trainings(HashMap<Choices, Training>);

/// Samples of a micro-batch of the trainings that are cached.
const CACHED: u64 = 1;

impl Trainings {
    /// All that the shapes can need.
    pub fn of(question: &Question, space: &Space) -> Trainings {
        let mut pipelines: Vec<_> = space.stages.keys().map(|cut| (cut.schedule, cut.virtual_stages)).collect();
        pipelines.sort_unstable();
        pipelines.dedup();
        let mut all = HashMap::new();
        for recompute in [Recompute::None, Recompute::Selective, Recompute::Full] {
            for zero_stage in question.bases.stages(u64::MAX) {
                for sequence_parallel in [false, true] {
                    for (schedule, virtual_stages) in pipelines.iter().copied() {
                        let choices = Choices {
                            zero_stage,
                            schedule,
                            virtual_stages,
                            micro_batch: CACHED,
                            recompute,
                            sequence_parallel,
                        };
                        all.insert(choices, question.training(choices));
                    }
                }
            }
        }
        Trainings(all)
    }

    /// The training of these choices, but with micro-batches of one sample.
    pub fn of_one_sample(&self, choices: Choices) -> Option<&Training> {
        self.0.get(&Choices { micro_batch: CACHED, ..choices })
    }

    /// The training of these choices.
    pub fn get(&self, choices: Choices) -> Option<Training> {
        let training = self.of_one_sample(choices)?;
        Some(Training { micro_batch: choices.micro_batch, ..training.clone() })
    }
}
