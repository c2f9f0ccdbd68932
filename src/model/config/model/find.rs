//! Locates a model's config.json: by path, by folder, or by the name of a preset. Reading it is in `read`.

use super::super::shipped::{CONFIG, Shipped, is_embedded, read_text};
use super::Model;
use crate::config::document::Place;
use commgauge_base::error::{Error, Result};
use commgauge_base::visible::ShownPath;
use std::path::{Path, PathBuf};

impl Model {
    /// Reads a model: the path of its config.json, that of the file's folder, or a name, as [`Shipped::find`] finds it.
    ///
    /// # Errors
    /// Usage errors: nothing there (with the nearest names), and all those of [`Model::read`].
    pub fn load(path_or_name: &str) -> Result<Model> {
        let requested = Path::new(path_or_name);
        let Some(file) = Shipped::Model.find(requested) else {
            let problem = match requested.is_dir() {
                true => format!("the folder {path_or_name} holds no {CONFIG}"),
                false => Shipped::Model.unknown(requested),
            };
            return Err(Error::usage(format!("MODEL: {problem}")));
        };
        Model::read(&file, &name_of(&file), &read_text(&file, &Place::flag("MODEL"))?)
    }
}

/// The folder's name where the file is called config.json, else the file's own.
pub(in crate::config) fn name_of(file: &Path) -> String {
    let folder = file.parent().filter(|_| file.file_name().is_some_and(|name| name == CONFIG));
    // `.` and `..` have no name of their own.
    let whole = folder.filter(|folder| folder.file_name().is_none()).and_then(|folder| {
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        folder.canonicalize().ok()
    });
    let named = whole.as_deref().or(folder);
    let stem = named.map_or(file.file_stem(), Path::file_name);
    stem.or(file.file_stem()).unwrap_or_default().to_string_lossy().into_owned()
}

/// The model that a suite names: in `models/` beside the suite, unless the suite is embedded, else as found by name.
pub(in crate::config) fn preset_file(suite: &Path, name: &str) -> std::result::Result<PathBuf, String> {
    let folder = suite.parent().unwrap_or(Path::new("")).join("models");
    let beside = Some(Shipped::Model.file_in(&folder, name)).filter(|file| file.is_file());
    let elsewhere = || Shipped::Model.find(Path::new(name));
    beside.or_else(elsewhere).ok_or_else(|| {
        let unknown = Shipped::Model.unknown(Path::new(name));
        if is_embedded(&folder.to_string_lossy()) {
            unknown
        } else {
            format!("{unknown} Nor is it in {}", folder.shown())
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const TINY: &str = r#"{"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 8,
        "intermediate_size": 128, "vocab_size": 256, "max_position_embeddings": 512}"#;

    #[test]
    fn missing_models_are_refused_with_what_would_be_accepted() {
        let folder = tempfile::tempdir().unwrap();
        for (requested, expected) in [
            (
                "llama3-8b",
                "MODEL: there is no model `llama3-8b`: no llama3-8b/config.json, no suites/models/llama3-8b/config.json here",
            ),
            ("llama3-8b", "did you mean llama-3-8b or "),
            ("zzz", "`commgauge list models` names all 43"),
            ("no/config.json", "there is no file `no/config.json`; accepted: a path, or the name of a model"),
            (folder.path().to_str().unwrap(), "holds no config.json"),
            ("", "there is no file ``; accepted"),
        ] {
            let error = Model::load(requested).expect_err(requested);
            assert!(error.to_string().contains(expected), "{requested}\n  gave     {error}\n  expected {expected}");
            assert_eq!(error.exit_code(), 2, "{error}");
        }
    }

    #[test]
    fn a_model_is_found_by_file_by_folder_and_by_name() {
        commgauge_base::checkout::enter_checkout();
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join("mine");
        fs::create_dir(&own).unwrap();
        fs::write(own.join(CONFIG), TINY).unwrap();
        fs::write(folder.path().join("other.json"), TINY).unwrap();
        for (requested, name) in [
            (own.display().to_string(), "mine"),
            (format!("{}/", own.display()), "mine"),
            (own.join(CONFIG).display().to_string(), "mine"),
            (own.join("../mine/.").display().to_string(), "mine"),
            (folder.path().join("other.json").display().to_string(), "other"),
            ("llama-3-8b".to_owned(), "llama-3-8b"),
            ("qwen2.5-0.5b".to_owned(), "qwen2.5-0.5b"),
            ("suites/models/gpt2".to_owned(), "gpt2"),
            ("embedded:suites/models/gpt2/config.json".to_owned(), "gpt2"),
        ] {
            assert_eq!(Model::load(&requested).expect(&requested).name, name, "{requested}");
        }
    }

    #[test]
    fn a_preset_is_found_in_the_folder_of_the_suite() {
        commgauge_base::checkout::enter_checkout();
        for suite in ["/nowhere/s.toml", "embedded:suites/quick.toml"] {
            let file = preset_file(Path::new(suite), "gpt2").unwrap();
            assert_eq!(file, Path::new("suites/models/gpt2/config.json"), "{suite}");
        }
        let problem = preset_file(Path::new("/nowhere/s.toml"), "gpt").unwrap_err();
        assert!(problem.contains("did you mean gpt2") && problem.ends_with("/nowhere/models"), "{problem}");
    }
}
