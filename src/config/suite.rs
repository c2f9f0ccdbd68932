//! A suite file: what to run, read once with every file that it names, and checked.
//!
//! The tables have readers of their own: `suite_measure`, `suite_sweep`, `suite_layout`. Whether the degrees of
//! a layout fit the number of ranks is known to `workload` only.

use super::document::{Item, Place, Table};
use super::suite_layout::{Layout, Training};
use super::suite_measure::read_measure;
use super::suite_sweep::Sweep;
use super::{Model, RunSettings};
use crate::error::{Error, Result};
use crate::sample::Cadence;
use sha2::{Digest, Sha256};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The folder of shipped suites, where a bare name is looked up.
const SHIPPED: &str = "suites";

/// What a suite file says, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Suite {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// The file.
    pub path: PathBuf,
    /// SHA-256, in hexadecimal, over the suite and every file that it names.
    pub sha256: String,
    /// How samples are taken.
    pub settings: RunSettings,
    /// Cadences of model ops, and of sweeps that do not say otherwise.
    pub cadences: Vec<Cadence>,
    /// Sweeps over sizes.
    pub sweeps: Vec<Sweep>,
    /// The model whose traffic is measured.
    pub model: Option<Model>,
    /// How its work is divided; several may be measured in one run.
    pub layouts: Vec<Layout>,
    /// The training step that sizes come from; there wherever there is a model.
    pub training: Option<Training>,
}

impl Suite {
    /// Reads a suite and the files that it names. A bare name, such as `quick`, means `suites/quick.toml`.
    ///
    /// # Errors
    /// Usage errors that name file, line and key.
    pub fn load(path: &Path) -> Result<Suite> {
        let path = find(path)?;
        let text = read(&path, &Place::flag("SUITE"))?;
        Suite::parse(&path, &text)
    }

    /// Reads a suite from its text; `path` is where the files that it names are looked for.
    ///
    /// # Errors
    /// As [`Suite::load`].
    pub fn parse(path: &Path, text: &str) -> Result<Suite> {
        let mut hash = Sha256::new();
        add_to_hash(&mut hash, text);
        let mut root = Table::parse(path, text)?;
        let name = match root.take("name") {
            Some(name) => name.text()?.to_owned(),
            None => path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
        };
        let description = root.take("description").map(|item| item.text().map(str::to_owned)).transpose()?;
        let (settings, cadences) = read_measure(root.take("measure").map(Item::table).transpose()?)?;
        let mut sweeps = Vec::new();
        for item in tables(root.take("sweep"))? {
            sweeps.push(Sweep::read(item, &cadences)?);
        }
        let model = match root.take("model") {
            Some(item) => Some(read_model(path, item.table()?, &mut hash)?),
            None => None,
        };
        let mut layouts = Vec::new();
        for item in tables(root.take("layout"))? {
            layouts.push(Layout::read(item)?);
        }
        let training = root.take("training").map(|item| Training::read(item.table()?)).transpose()?;
        let place = root.place.clone();
        root.finish()?;
        let suite = Suite {
            name,
            description: description.unwrap_or_default(),
            path: path.to_owned(),
            sha256: hexadecimal(hash),
            settings,
            cadences,
            sweeps,
            model,
            layouts,
            training,
        };
        suite.check(&place)?;
        Ok(suite)
    }

    /// What only shows when the tables are seen together.
    fn check(&self, place: &Place) -> Result<()> {
        match (&self.model, &self.training) {
            (Some(_), _) if self.layouts.is_empty() => Err(place.wrong(
                "[model] stands without a [layout]; say how the model is divided, for example `[layout]` with `tp = 2`",
            )),
            (Some(_), None) => Err(place.wrong("[model] stands without [training], which says `sequence` and batch")),
            (None, Some(training)) => Err(training.place.wrong("stands without a [model] that it trains")),
            (Some(model), Some(training)) if training.sequence > model.maximum_positions => {
                Err(training.sequence_place.wrong(format!(
                    "found {}; {} allows up to {} (max_position_embeddings)",
                    training.sequence, model.name, model.maximum_positions
                )))
            }
            (None, None) if self.sweeps.is_empty() => {
                Err(place.wrong("names nothing to run; give at least one [[sweep]], or a [model] with a [layout]"))
            }
            _ => Ok(()),
        }
    }
}

/// A table, or a list of tables, as a list.
fn tables(item: Option<Item>) -> Result<Vec<Table>> {
    item.map_or(Ok(Vec::new()), |item| item.items()?.into_iter().map(Item::table).collect())
}

fn read_model(suite: &Path, mut table: Table, hash: &mut Sha256) -> Result<Model> {
    let folder = suite.parent().unwrap_or(Path::new(""));
    let (config, preset) = (table.take("config"), table.take("preset"));
    let (place, name, file) = match (config, preset) {
        (Some(config), None) => {
            let file = folder.join(config.text()?);
            (config.place, name_of(&file), file)
        }
        (None, Some(preset)) => {
            let name = preset.text()?.to_owned();
            let file = preset_file(folder, &name).map_err(|problem| preset.wrong(problem))?;
            (preset.place, name, file)
        }
        _ => {
            let accepted = "accepted: either `config`, a path relative to the suite, or `preset`, a shipped model";
            return Err(table.place.wrong(accepted));
        }
    };
    let text = read(&file, &place)?;
    add_to_hash(hash, &text);
    let mut model = Model::read(&file, &name, &text)?;
    if let Some(layers) = table.take("layers") {
        model.keep_layers(layers.count()?).map_err(|problem| layers.wrong(problem))?;
    }
    table.finish()?;
    Ok(model)
}

/// The folder's name where the file is called config.json, else the file's own.
fn name_of(file: &Path) -> String {
    let named = if file.file_name().is_some_and(|name| name == "config.json") { file.parent() } else { None };
    let stem = named.map_or(file.file_stem(), Path::file_name);
    stem.or(file.file_stem()).unwrap_or_default().to_string_lossy().into_owned()
}

/// A preset lies in `models/` beside the suite, or among the shipped ones below the current directory.
fn preset_file(folder: &Path, name: &str) -> std::result::Result<PathBuf, String> {
    let folders = [folder.join("models"), Path::new(SHIPPED).join("models")];
    let found = folders.iter().map(|models| models.join(name).join("config.json")).find(|file| file.is_file());
    found.ok_or_else(|| {
        let known = folders.iter().map(|models| names_in(models, "")).find(|names| !names.is_empty());
        let searched = folders.map(|models| models.display().to_string()).join(" and ");
        format!("found no model `{name}` in {searched}; there: {}", known.unwrap_or_default().join(", "))
    })
}

fn find(path: &Path) -> Result<PathBuf> {
    let bare = path.extension().is_none() && path.components().count() == 1 && !path.exists();
    let file = if bare { Path::new(SHIPPED).join(path).with_extension("toml") } else { path.to_owned() };
    if file.exists() {
        return Ok(file);
    }
    let shipped = match names_in(Path::new(SHIPPED), ".toml") {
        names if names.is_empty() => format!("and there is no folder `{SHIPPED}` with suites here"),
        names => format!("shipped suites: {}", names.join(", ")),
    };
    Err(Error::usage(format!("{}: no such suite; {shipped}", file.display())))
}

/// Names of a folder's entries that end in `ending`, without it, sorted.
fn names_in(folder: &Path, ending: &str) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().to_str()?.strip_suffix(ending).map(str::to_owned));
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

fn read(file: &Path, place: &Place) -> Result<String> {
    fs::read_to_string(file).map_err(|cause| match cause.kind() {
        ErrorKind::NotFound => place.wrong(format!("there is no file {}", file.display())),
        ErrorKind::InvalidData => place.wrong(format!("{} is not text in UTF-8", file.display())),
        _ => Error::file("read", file, cause),
    })
}

/// The length goes first, so that no two lists of files can give the same bytes.
fn add_to_hash(hash: &mut Sha256, text: &str) {
    hash.update((text.len() as u64).to_le_bytes());
    hash.update(text);
}

fn hexadecimal(hash: Sha256) -> String {
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
