//! The flags for a model, a layout and a step. They stand for the keys of a suite's tables and are parsed by the same code, so that
//! both have the same checks.

use super::given_keys::GivenKeys;
use crate::cli::degrees::DegreeFlags;
use clap::Args;
use commgauge_base::error::Result;
use commgauge_model::config::step::{ModelWork, Work};
use commgauge_model::config::{LayoutTable, Model, Place, Serving, Table, Training};
use commgauge_model::workload::step::ranks_of;
use std::sync::Arc;

/// A model, a layout and a step.
#[derive(Clone, Debug, Default, Args)]
pub struct StepFlags {
    /// Model: a config.json, its folder, or a name, such as llama-3-8b (`commgauge list models`)
    #[arg(long, value_name = "MODEL", required = true)]
    pub model: Option<String>,
    /// Use only so many layers of it
    #[arg(long, value_name = "N", help_heading = "Model")]
    pub layers: Option<String>,

    /// How the model is divided.
    #[command(flatten)]
    pub degrees: DegreeFlags,

    /// The keys of its step.
    #[command(flatten)]
    pub(super) keys: GivenKeys,
}

impl StepFlags {
    /// The layout on that many ranks with its work, as a suite would define it.
    ///
    /// # Errors
    /// Usage errors that name the flag.
    pub fn table(&self, world: u32) -> Result<LayoutTable> {
        let mut table = self.degrees.table_on(world)?;
        let (training, serving) = match self.keys.work() {
            Work::Training => (Some(Training::read(Table::of_flags(self.keys.entries(Work::Training)?))?), None),
            Work::Serving => (None, Some(Serving::read(Table::of_flags(self.keys.entries(Work::Serving)?))?)),
        };
        let path = self.model.as_deref().ok_or_else(|| Place::flag("--model").wrong("is missing"))?;
        let mut model = Model::load(path)?;
        if let Some(layers) = &self.layers {
            let place = Place::flag("--layers");
            let layers =
                layers.parse().map_err(|_| place.wrong(format!("found `{layers}`; accepted: a whole number")))?;
            model.keep_layers(layers).map_err(|problem| place.wrong(problem))?;
        }
        if let Some(training) =
            training.as_ref().filter(|training| training.sequence > model.embedding.maximum_positions)
        {
            return Err(training.sequence_place.wrong(format!(
                "found {}; {} allows up to {} (max_position_embeddings)",
                training.sequence, model.name, model.embedding.maximum_positions
            )));
        }
        table.work = Some(Arc::new(ModelWork { model, training, serving }));
        Ok(table)
    }

    /// Ranks that the degrees need; dp is 1 if it is left out.
    ///
    /// # Errors
    /// If there are more ranks than on any machine.
    pub fn ranks(&self) -> Result<u32> {
        let mut table = self.degrees.table()?;
        table.dp = table.dp.or(Some(1));
        ranks_of(&table).map(|ranks| ranks.unwrap_or(1))
    }

    /// The given flags of a model and its step; those of the layout are not among them.
    pub(crate) fn given_of_model(&self) -> Vec<&'static str> {
        let of_model = [("--model", &self.model), ("--layers", &self.layers)];
        let of_model = of_model.into_iter().filter(|(_, text)| text.is_some()).map(|(flag, _)| flag);
        of_model.chain(self.keys.flags()).collect()
    }
}
