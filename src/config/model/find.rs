//! Where a model's config.json lies: a path, its folder, or the name of a preset. Reading it is in `read`.

use super::super::shipped;
use super::Model;
use crate::config::document::Place;
use crate::error::{Error, Result};
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

/// The file's name where a folder is given, as Hugging Face has it.
const CONFIG: &str = "config.json";
/// No file of ours is longer; a file of weights given by mistake is not read to its end.
const LONGEST_FILE_BYTES: u64 = 16 << 20;

impl Model {
    /// Reads a model: the path of its config.json, that of the file's folder, or the name of a preset, which is looked
    /// up in `suites/models` below the current directory, then in that of the source tree in which the program lies.
    ///
    /// # Errors
    /// Usage errors: nothing there (with the presets of the nearest names), and all those of [`Model::read`].
    pub fn load(path_or_preset: &str) -> Result<Model> {
        let (name, file) = locate(path_or_preset)?;
        Model::read(&file, &name, &read_text(&file, &Place::flag("MODEL"))?)
    }
}

impl Model {
    /// Names of the presets, in order: of `suites/models` below the current directory, else of the source tree in which the
    /// program lies.
    pub fn presets() -> Vec<String> {
        let folders = shipped::folders("models");
        folders.iter().map(|folder| presets_in(folder)).find(|names| !names.is_empty()).unwrap_or_default()
    }
}

fn locate(asked: &str) -> Result<(String, PathBuf)> {
    let path = Path::new(asked);
    let inside = path.join(CONFIG);
    if inside.is_file() {
        return Ok((name_of(&inside), inside));
    }
    if path.exists() && !path.is_dir() {
        return Ok((name_of(path), path.to_owned()));
    }
    let bare = path.components().count() == 1 && path.file_name().is_some();
    if bare {
        match preset_file(None, asked) {
            Ok(file) => return Ok((asked.to_owned(), file)),
            Err(problem) if !path.exists() => return Err(Error::usage(format!("MODEL: {problem}"))),
            Err(_) => {}
        }
    }
    let problem = if path.is_dir() {
        format!("MODEL: the folder {asked} holds no {CONFIG}")
    } else {
        format!("MODEL: there is no file {asked}; accepted: a config.json, its folder, or the name of a preset")
    };
    Err(Error::usage(problem))
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

/// A preset lies in `models/` beside the suite that names it, or among the shipped ones.
pub(in crate::config) fn preset_file(beside: Option<&Path>, name: &str) -> std::result::Result<PathBuf, String> {
    let mut folders: Vec<PathBuf> = beside.map(|folder| folder.join("models")).into_iter().collect();
    let same = |a: &Path, b: &Path| a.canonicalize().is_ok_and(|a| b.canonicalize().is_ok_and(|b| a == b));
    for (at, next) in shipped::folders("models").into_iter().enumerate() {
        // The nearest is told in any case, that a reader sees where to put a model.
        if at == 0 || !folders.iter().any(|folder| same(folder, &next)) {
            folders.push(next);
        }
    }
    let found = folders.iter().map(|models| models.join(name).join(CONFIG)).find(|file| file.is_file());
    found.ok_or_else(|| not_found(name, &folders))
}

fn not_found(name: &str, folders: &[PathBuf]) -> String {
    let known = folders.iter().map(|models| presets_in(models)).find(|names| !names.is_empty()).unwrap_or_default();
    let asked = name.to_lowercase();
    let mut nearest: Vec<(f64, &str)> =
        known.iter().map(|known| (strsim::jaro_winkler(&asked, known), known.as_str())).collect();
    nearest.retain(|(likeness, _)| *likeness > 0.8);
    nearest.sort_by(|a, b| b.0.total_cmp(&a.0));
    let nearest: Vec<&str> = nearest.into_iter().take(5).map(|(_, known)| known).collect();
    let searched: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
    let known = match (known.len(), nearest.as_slice()) {
        (0, _) => "there are none".to_owned(),
        (_, []) => format!("there: {}", known.join(", ")),
        (count, nearest) => format!("nearest of the {count} there: {}", nearest.join(", ")),
    };
    format!("found no model `{name}` in {}; {known}", searched.join(" and "))
}

/// Names of the presets in a folder of models, sorted.
pub(super) fn presets_in(models: &Path) -> Vec<String> {
    let mut names = names_in(models, "");
    names.retain(|name| models.join(name).join(CONFIG).is_file());
    names
}

/// Names of a folder's entries that end in `ending`, without it, sorted.
pub(in crate::config) fn names_in(folder: &Path, ending: &str) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().to_str()?.strip_suffix(ending).map(str::to_owned));
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

/// The text of a file that the user named at `place`.
pub(in crate::config) fn read_text(file: &Path, place: &Place) -> Result<String> {
    let mut bytes = Vec::new();
    let read = File::open(file).and_then(|open| open.take(LONGEST_FILE_BYTES + 1).read_to_end(&mut bytes));
    match read {
        Ok(length) if length as u64 > LONGEST_FILE_BYTES => {
            Err(place.wrong(format!("{} is longer than 16 MiB; accepted: a file of text", file.display())))
        }
        Ok(_) => String::from_utf8(bytes).map_err(|_| place.wrong(format!("{} is not text in UTF-8", file.display()))),
        Err(cause) => Err(match cause.kind() {
            ErrorKind::NotFound => place.wrong(format!("there is no file {}", file.display())),
            ErrorKind::IsADirectory => place.wrong(format!("{} is a folder", file.display())),
            _ => Error::file("read", file, cause),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TINY: &str = r#"{"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 8,
        "intermediate_size": 128, "vocab_size": 256, "max_position_embeddings": 512}"#;

    #[test]
    fn what_is_not_there_is_refused_with_what_would_be_accepted() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("binary"), [0xff, 0xfe]).unwrap();
        File::create(folder.path().join("long")).unwrap().set_len(LONGEST_FILE_BYTES + 1).unwrap();
        let inside = |name: &str| folder.path().join(name).display().to_string();
        for (asked, expected) in [
            ("llama3-8b".to_owned(), "there: llama-3-8b, "),
            ("zzz".to_owned(), "MODEL: found no model `zzz` in suites/models; there: codegeex-13b, "),
            ("no/config.json".to_owned(), "there is no file no/config.json; accepted: a config.json, its folder"),
            (inside(""), "holds no config.json"),
            (inside("binary"), "is not text in UTF-8"),
            (inside("long"), "is longer than 16 MiB"),
            (String::new(), "there is no file ; accepted"),
        ] {
            let error = Model::load(&asked).expect_err(&asked);
            assert!(error.to_string().contains(expected), "{asked}\n  gave     {error}\n  expected {expected}");
            assert_eq!(error.exit_code(), 2, "{error}");
        }
    }

    #[test]
    fn a_model_is_found_by_file_by_folder_and_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join("mine");
        fs::create_dir(&own).unwrap();
        fs::write(own.join(CONFIG), TINY).unwrap();
        fs::write(folder.path().join("other.json"), TINY).unwrap();
        for (asked, name) in [
            (own.display().to_string(), "mine"),
            (format!("{}/", own.display()), "mine"),
            (own.join(CONFIG).display().to_string(), "mine"),
            (own.join("../mine/.").display().to_string(), "mine"),
            (folder.path().join("other.json").display().to_string(), "other"),
            ("llama-3-8b".to_owned(), "llama-3-8b"),
            ("qwen2.5-0.5b".to_owned(), "qwen2.5-0.5b"),
            ("suites/models/gpt2".to_owned(), "gpt2"),
        ] {
            assert_eq!(Model::load(&asked).expect(&asked).name, name, "{asked}");
        }
    }

    #[test]
    fn a_preset_is_found_beside_a_suite_that_is_elsewhere() {
        assert_eq!(
            preset_file(Some(Path::new("/nowhere")), "gpt2").unwrap(),
            Path::new("suites/models/gpt2/config.json")
        );
    }
}
