//! The training of a question, before the planner's choices.

use commgauge_base::error::{Error, Result};
use commgauge_model::config::Training;
use commgauge_model::config::step::{DataStyle, Framework};

/// ZeRO stages, of which 0 shards nothing.
pub(super) const ZERO_STAGES: [u8; 4] = [0, 1, 2, 3];

/// One training for each ZeRO stage: what a framework does by default may depend on it, and a framework may not have it.
#[derive(Clone, Debug)]
pub struct Bases {
    /// That of the lowest stage, for what all have in common.
    pub first: Training,
    by_stage: [Option<Training>; 4],
}

impl Bases {
    /// The training in every stage; the third is ZeRO-3 or HSDP where the training says so, and FSDP otherwise.
    pub fn of(training: &Training) -> Bases {
        let sharded = match training.data.style {
            style @ (DataStyle::Zero3 | DataStyle::Hsdp) => style,
            _ => DataStyle::Fsdp,
        };
        let by_stage = [DataStyle::Ddp, DataStyle::Zero1, DataStyle::Zero2, sharded].map(|style| {
            let mut training = training.clone();
            training.data.style = style;
            if style != sharded {
                training.data.shards.replicas = 1;
                training.data.shards.secondary = None;
                training.data.shards.gather_inner = None;
                training.data.shards.quantised_gradients = None;
            }
            Some(training)
        });
        Bases { first: training.clone(), by_stage }
    }

    /// What `read` gives for each style of data parallelism that the framework has. The third stage is `sharded` where that is named, and
    /// else what the framework has of FSDP and ZeRO-3.
    ///
    /// # Errors
    /// A framework that has none of the stages, and those of `read`.
    pub fn of_framework(
        framework: Framework,
        sharded: Option<DataStyle>,
        read: impl Fn(DataStyle) -> Result<Training>,
    ) -> Result<Bases> {
        let offers = |style: &DataStyle| framework.offers("data_style", style.name());
        let sharded = sharded.or_else(|| [DataStyle::Fsdp, DataStyle::Zero3].into_iter().find(offers));
        let styles = [Some(DataStyle::Ddp), Some(DataStyle::Zero1), Some(DataStyle::Zero2), sharded];
        let mut by_stage = [const { None }; 4];
        for (base, style) in by_stage.iter_mut().zip(styles) {
            *base = style.filter(offers).map(&read).transpose()?;
        }
        match by_stage.iter().flatten().next().cloned() {
            Some(first) => Ok(Bases { first, by_stage }),
            None => Err(Error::usage(format!("{framework} has none of the ZeRO stages"))),
        }
    }

    /// The training of a stage, if it can be chosen.
    pub fn stage(&self, stage: u8) -> Option<&Training> {
        self.by_stage.get(usize::from(stage))?.as_ref()
    }

    /// The stages that can be chosen where so many ranks share the parameters, ascending: with one, sharding changes nothing, and
    /// only the lowest counts.
    pub(super) fn stages(&self, ranks: u64) -> impl Iterator<Item = u8> {
        let chosen = ZERO_STAGES.into_iter().filter(|stage| self.stage(*stage).is_some());
        chosen.take(if ranks > 1 { ZERO_STAGES.len() } else { 1 })
    }
}
