//! Reads the work of a suite: the `[model]`, `[training]` and `[serving]` tables, at the top or of one layout, and the layouts
//! that divide it.

use super::Model;
use super::document::{Item, Place, Table};
use super::model::find::{name_of, preset_file};
use super::shipped::read_text;
use super::step::{LayoutTable, ModelWork, Serving, Training};
use super::suite_hash::add_to_hash;
use commgauge_base::error::Result;
use sha2::Sha256;
use std::path::Path;
use std::sync::Arc;

/// Reads the work of a suite: tables at the top are the default of every layout.
pub(super) struct WorkReader<'a> {
    pub path: &'a Path,
    pub hash: &'a mut Sha256,
}

/// The tables that describe the work of a model, each where it was given.
#[derive(Clone, Default)]
struct WorkTables {
    model: Option<Model>,
    training: Option<Training>,
    serving: Option<Serving>,
}

impl WorkReader<'_> {
    /// The layouts that are measured, and the one whose parallelisms are ranked.
    pub fn layouts(&mut self, root: &mut Table) -> Result<(Vec<LayoutTable>, Option<LayoutTable>)> {
        let common = self.tables(root)?;
        let tables = root.tables("layout")?;
        let ranking = root.take("ranking").map(Item::table).transpose()?;
        let ranking = ranking.map(|table| self.ranking(table, &common)).transpose()?;
        if tables.is_empty() && ranking.is_none() && common.model.is_some() {
            return Err(root.place.wrong(
                "[model] needs a [[layout]]; say how the model is divided, for example `[[layout]]` with `tp = 2`",
            ));
        }
        if let (None, Some(training), true) = (&common.model, &common.training, tables.is_empty() && ranking.is_none())
        {
            return Err(training.place.wrong("needs a [model] that it trains"));
        }
        let mut layouts = Vec::new();
        for table in tables {
            layouts.push(self.layout(table, &common)?);
        }
        Ok((layouts, ranking))
    }

    fn layout(&mut self, mut table: Table, common: &WorkTables) -> Result<LayoutTable> {
        let own = self.tables(&mut table)?;
        let mut layout = LayoutTable::read(table)?;
        layout.work = work(own, common, &layout.place)?.map(Arc::new);
        Ok(layout)
    }

    /// A layout with its own number of ranks, since the run may have fewer, and a training step.
    fn ranking(&mut self, table: Table, common: &WorkTables) -> Result<LayoutTable> {
        let layout = self.layout(table, common)?;
        if layout.dp.is_none() {
            return Err(layout.place.wrong("`dp` is missing: this layout has a number of ranks of its own"));
        }
        match layout.work.as_ref().map(|work| work.training.is_some()) {
            Some(true) => Ok(layout),
            Some(false) => Err(layout.place.wrong("[serving] alone has one parallelism; accepted: a [training] step")),
            None => Err(layout.place.wrong("stands without a [model]; say which model's step is divided so")),
        }
    }

    fn tables(&mut self, table: &mut Table) -> Result<WorkTables> {
        let model = match table.take("model") {
            Some(item) => Some(read_model(self.path, item.table()?, self.hash)?),
            None => None,
        };
        let training = table.take("training").map(|item| Training::read(item.table()?)).transpose()?;
        let serving = table.take("serving").map(|item| Serving::read(item.table()?)).transpose()?;
        Ok(WorkTables { model, training, serving })
    }
}

/// A layout's own tables take precedence over those at the top of the suite; a layout that only serves is not trained
/// as well.
fn work(own: WorkTables, common: &WorkTables, place: &Place) -> Result<Option<ModelWork>> {
    let names_work = own.training.is_some() || own.serving.is_some();
    let (training, serving) = match names_work {
        true => (own.training, own.serving),
        false => (common.training.clone(), common.serving.clone()),
    };
    let Some(model) = own.model.or_else(|| common.model.clone()) else {
        return match training {
            Some(training) => Err(training.place.wrong("needs a [model] that it trains")),
            None => Ok(None),
        };
    };
    if training.is_none() && serving.is_none() {
        return Err(place.wrong("[model] needs [training], with `sequence` and batch, or [serving]"));
    }
    if let Some(training) = training.as_ref().filter(|training| training.sequence > model.embedding.maximum_positions) {
        return Err(training.sequence_place.wrong(format!(
            "found {}; {} allows up to {} (max_position_embeddings)",
            training.sequence, model.name, model.embedding.maximum_positions
        )));
    }
    Ok(Some(ModelWork { model, training, serving }))
}

/// Reads a table that names a model.
pub(super) fn read_model(suite: &Path, mut table: Table, hash: &mut Sha256) -> Result<Model> {
    let (config, preset) = (table.take("config"), table.take("preset"));
    let (place, name, file) = match (config, preset) {
        (Some(config), None) => {
            let file = suite.parent().unwrap_or(Path::new("")).join(config.text()?);
            (config.place, name_of(&file), file)
        }
        (None, Some(preset)) => {
            let name = preset.text()?.to_owned();
            let file = preset_file(suite, &name).map_err(|problem| preset.wrong(problem))?;
            (preset.place, name, file)
        }
        _ => {
            let accepted = "accepted: either `config`, a path relative to the suite, or `preset`, a shipped model";
            return Err(table.place.wrong(accepted));
        }
    };
    let text = read_text(&file, &place)?;
    add_to_hash(hash, &text);
    let mut model = Model::read(&file, &name, &text)?;
    if let Some(layers) = table.take("layers") {
        model.keep_layers(layers.count()?).map_err(|problem| layers.wrong(problem))?;
    }
    table.finish()?;
    Ok(model)
}
