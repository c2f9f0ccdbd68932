//! `commgauge model`: the parameters and the shape of a model, and the values inferred from its file.

use super::model_document::ModelDocument;
use super::model_table::table;
use super::table_or_json::AnswerArguments;
use commgauge_base::error::Result;
use commgauge_model::config::Model;

/// Show a model's parameters and shape, and what was inferred, from a Hugging Face config.json
#[derive(Clone, Debug, clap::Args)]
pub struct ModelCommand {
    /// A config.json, the folder that holds one, or the name of a shipped model, such as llama-3-8b
    pub model: String,

    /// How the answer is shown.
    #[command(flatten)]
    pub shown: AnswerArguments,
}

impl ModelCommand {
    /// Reads and shows.
    pub fn execute(&self) -> Result<i32> {
        let document = ModelDocument::new(&Model::load(&self.model)?);
        self.shown.show(&document, |width| table(&document, width))?;
        Ok(0)
    }
}
