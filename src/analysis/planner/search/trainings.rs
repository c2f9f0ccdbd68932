//! One training for each set of choices, created once and cached.

use super::choices::Choices;
use super::question::Question;
use super::space::{Space, divisors};
use commgauge_model::config::Training;
use commgauge_model::config::step::Recompute;
use std::collections::HashMap;

/// Trainings by their choices.
pub(super) struct Trainings(HashMap<Choices, Training>);

impl Trainings {
    /// All that the shapes can need.
    pub fn of(question: &Question, space: &Space) -> Trainings {
        let mut pipelines: Vec<_> = space.stages.keys().map(|cut| (cut.schedule, cut.virtual_stages)).collect();
        pipelines.sort_unstable();
        pipelines.dedup();
        let mut all = HashMap::new();
        for micro_batch in divisors(question.global_batch) {
            for recompute in [Recompute::None, Recompute::Selective, Recompute::Full] {
                for zero_stage in question.bases.stages(u64::MAX) {
                    for sequence_parallel in [false, true] {
                        for (schedule, virtual_stages) in pipelines.iter().copied() {
                            let choices = Choices {
                                zero_stage,
                                schedule,
                                virtual_stages,
                                micro_batch,
                                recompute,
                                sequence_parallel,
                            };
                            all.insert(choices, question.training(choices));
                        }
                    }
                }
            }
        }
        Trainings(all)
    }

    /// The training of these choices; none for a micro-batch that divides no batch.
    pub fn get(&self, choices: Choices) -> Option<&Training> {
        self.0.get(&choices)
    }
}
