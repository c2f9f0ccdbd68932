//! Locates named files: suites, models and machines embedded in the program, and those of the working directory, which
//! take precedence. The content of the files is read elsewhere.
//!
//! An embedded file has a path such as `embedded:suites/quick.toml`, which distinguishes it from a file on disk
//! wherever a path is shown, and which is accepted wherever a path is.

use crate::config::document::Place;
use commgauge_base::error::{Error, Result};
use commgauge_base::host;
use commgauge_base::visible::ShownPath;
use commgauge_base::writing::ascending;
use include_dir::{Dir, include_dir};
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Read};
use std::path::{Component, Path, PathBuf};

/// A model's file, as Hugging Face has it.
pub(super) const CONFIG: &str = "config.json";

/// Names less similar to the requested one are not suggested.
const MIN_SIMILARITY: f64 = 0.8;

/// Most names that are suggested instead of an unknown one.
const MOST_OFFERED: usize = 3;

/// The kinds of files that have names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shipped {
    /// What to run.
    Suite,
    /// The config.json of a model.
    Model,
    /// The links of a machine.
    Machine,
}

impl Shipped {
    /// Noun for messages.
    pub fn noun(self) -> &'static str {
        match self {
            Shipped::Suite => "suite",
            Shipped::Model => "model",
            Shipped::Machine => "machine",
        }
    }

    /// The file that a path or a bare name means: the path itself, else `NAME.toml` (`NAME/config.json`) of the working directory,
    /// else that of its `suites/`, else the embedded one.
    pub fn find(self, requested: &Path) -> Option<PathBuf> {
        let within = requested.join(CONFIG);
        if self == Shipped::Model && (within.is_file() || embedded_text(&within).is_some()) {
            return Some(within);
        }
        // A pipe is a path too, a folder is not.
        if embedded_text(requested).is_some() || (requested.exists() && !requested.is_dir()) {
            return Some(requested.to_owned());
        }
        let name = bare(requested)?;
        let embedded = self.embedded_file(name);
        self.files_here(name)
            .into_iter()
            .find(|file| file.is_file())
            .or_else(|| embedded_text(&embedded).is_some().then_some(embedded))
    }

    /// Names of those in `suites/` of the working directory and of the embedded ones, in order.
    pub fn names(self) -> Vec<String> {
        let entries = fs::read_dir(self.folder(Path::new("suites"))).into_iter().flatten().flatten();
        let here = entries
            .filter_map(|entry| self.name_of_file(&entry.path()))
            .filter(|name| self.files_here(name).iter().any(|file| file.is_file()));
        ascending(here.chain(self.embedded_names()))
    }

    /// Names of the embedded ones, in order.
    pub fn embedded_names(self) -> Vec<String> {
        let folder = self.folder(Path::new(""));
        let folder = if folder.as_os_str().is_empty() { Some(&EMBEDDED) } else { EMBEDDED.get_dir(folder) };
        let entries = folder.into_iter().flat_map(|folder| folder.entries());
        let mut names: Vec<String> = entries
            .filter_map(|entry| self.name_of_file(entry.path()))
            .filter(|name| self.embedded(name).is_some())
            .collect();
        names.sort();
        names
    }

    /// The text of the embedded one of this name.
    pub fn embedded(self, name: &str) -> Option<&'static str> {
        embedded_text(&self.embedded_file(bare(Path::new(name))?))
    }

    /// Reports a missing path or name, and what may have been meant.
    pub fn unknown(self, requested: &Path) -> String {
        let (noun, shown) = (self.noun(), requested.shown());
        let searched = match bare(requested) {
            Some(name) => {
                let files: Vec<String> = self.files_here(name).iter().map(|file| file.shown().into_owned()).collect();
                format!("there is no {noun} `{shown}`: no {} here, and none is embedded", files.join(", no "))
            }
            None => format!("there is no file `{shown}`; accepted: a path, or the name of a {noun}"),
        };
        let known = self.names();
        let name = self
            .name_of_file(requested)
            .or_else(|| requested.file_name()?.to_str().map(str::to_owned))
            .unwrap_or_default();
        match nearest(&name, &known).as_slice() {
            [] => format!("{searched}; `commgauge show {noun}s` names all {}", known.len()),
            near => format!("{searched}; did you mean {}?", near.join(" or ")),
        }
    }

    /// Possible places of a name in the working directory, the nearest first.
    fn files_here(self, name: &str) -> Vec<PathBuf> {
        [PathBuf::new(), self.folder(Path::new("suites"))].iter().map(|folder| self.file_in(folder, name)).collect()
    }

    fn embedded_file(self, name: &str) -> PathBuf {
        self.file_in(&self.folder(Path::new(EMBEDDED_ROOT)), name)
    }

    fn folder(self, suites: &Path) -> PathBuf {
        match self {
            Shipped::Suite => suites.to_owned(),
            Shipped::Model => suites.join("models"),
            Shipped::Machine => suites.join("machines"),
        }
    }

    /// The file of a name in a folder of this kind.
    pub(super) fn file_in(self, folder: &Path, name: &str) -> PathBuf {
        match self {
            Shipped::Model => folder.join(name).join(CONFIG),
            Shipped::Suite | Shipped::Machine => folder.join(format!("{name}.toml")),
        }
    }

    /// The name of a folder entry of this kind; names may contain dots, as `gpt-7.5b-16gpu` does.
    fn name_of_file(self, entry: &Path) -> Option<String> {
        let name = entry.file_name()?.to_str()?;
        let name = if self == Shipped::Model { name } else { name.strip_suffix(".toml")? };
        Some(name.to_owned())
    }
}

/// A file of the folder of published runs, which `commgauge plan validate` replays.
pub fn published(file: &str) -> Result<&'static str> {
    embedded_file(&format!("published/{file}"))
}

/// A file of `suites/` that users have no copies of.
pub(super) fn embedded_file(file: &str) -> Result<&'static str> {
    let embedded = EMBEDDED.get_file(file).and_then(|file| file.contents_utf8());
    embedded.ok_or_else(|| Error::environment(format!("this program was built without suites/{file}")))
}

/// The files of TOML in a folder of `suites/` by their names. They are part of the program, and a test reads each.
pub(super) fn embedded_tables<T: DeserializeOwned>(folder: &str) -> BTreeMap<&'static str, T> {
    let files = EMBEDDED.get_dir(folder).into_iter().flat_map(|folder| folder.files());
    let named = files.filter_map(|file| Some((file.path().file_name()?.to_str()?, file.contents_utf8()?)));
    let read =
        |(name, text)| (name, toml::from_str(text).unwrap_or_else(|problem| panic!("{folder}/{name}: {problem}")));
    named.filter(|(name, _)| name.ends_with(".toml")).map(read).collect()
}

/// A word that can only be a name: no folder before it, and no ending of a file.
fn bare(requested: &Path) -> Option<&str> {
    let mut parts = requested.components();
    let (Some(Component::Normal(_)), None) = (parts.next(), parts.next()) else { return None };
    requested.to_str().filter(|name| !name.ends_with('/') && !name.ends_with(".toml") && !name.ends_with(".json"))
}

/// The names most similar to the requested one.
pub(super) fn nearest(requested: &str, known: &[String]) -> Vec<String> {
    let requested = requested.to_lowercase();
    let mut near: Vec<(f64, &String)> =
        known.iter().map(|name| (strsim::jaro_winkler(&requested, name), name)).collect();
    near.retain(|(likeness, _)| *likeness > MIN_SIMILARITY);
    near.sort_by(|a, b| b.0.total_cmp(&a.0));
    near.into_iter().take(MOST_OFFERED).map(|(_, name)| name.clone()).collect()
}

// The files of `suites/` within the program: their paths and their text.

/// `suites/` of the source tree, as it was when the program was built.
static EMBEDDED: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../suites");

/// Prefix of the path of an embedded file.
const EMBEDDED_ROOT: &str = "embedded:suites";

/// Whether a path, as records and messages have it, is that of an embedded file.
pub fn is_embedded(path: &str) -> bool {
    path.starts_with(EMBEDDED_ROOT)
}

fn embedded_text(path: &Path) -> Option<&'static str> {
    EMBEDDED.get_file(path.strip_prefix(EMBEDDED_ROOT).ok()?)?.contents_utf8()
}

// The text of a file that a user named, on a disk or embedded.

/// No file of ours is longer; a file of weights given by mistake is not read to its end.
const LONGEST_FILE_BYTES: u64 = 16 << 20;

/// The text of a file that the user named at `place`.
pub fn read_text(file: &Path, place: &Place) -> Result<String> {
    if let Some(text) = embedded_text(file) {
        return Ok(text.to_owned());
    }
    let mut bytes = Vec::new();
    let read = host::open(file).and_then(|open| open.take(LONGEST_FILE_BYTES + 1).read_to_end(&mut bytes));
    match read {
        Ok(length) if length as u64 > LONGEST_FILE_BYTES => {
            Err(place.wrong(format!("{} is longer than 16 MiB; accepted: a file of text", file.shown())))
        }
        Ok(_) => String::from_utf8(bytes).map_err(|_| place.wrong(format!("{} is not text in UTF-8", file.shown()))),
        Err(cause) => Err(match cause.kind() {
            ErrorKind::NotFound => place.wrong(format!("there is no file {}", file.shown())),
            ErrorKind::IsADirectory => place.wrong(format!("{} is a folder", file.shown())),
            ErrorKind::InvalidInput => place.wrong(format!("{}: {cause}", file.shown())),
            _ => Error::file("read", file, cause),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::fs::File;

    #[test]
    fn every_file_of_suites_is_embedded_as_it_is() {
        fn check(folder: &Path, below: &Path, count: &mut usize) {
            for entry in fs::read_dir(folder).unwrap().flatten() {
                let below = below.join(entry.file_name());
                if entry.path().is_dir() {
                    check(&entry.path(), &below, count);
                } else {
                    let embedded =
                        EMBEDDED.get_file(&below).unwrap_or_else(|| panic!("{} is embedded", below.display()));
                    assert_eq!(embedded.contents(), fs::read(entry.path()).unwrap(), "{}", below.display());
                    *count += 1;
                }
            }
        }
        let mut count = 0;
        check(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../suites"), Path::new(""), &mut count);
        assert!(count > 80, "{count}");
    }

    #[test]
    fn the_working_directory_wins_and_the_embedded_file_can_be_named_itself() {
        commgauge_base::testing::enter_checkout();
        for (kind, name, here, embedded) in [
            (Shipped::Suite, "quick", "suites/quick.toml", "embedded:suites/quick.toml"),
            (Shipped::Suite, "gpt-7.5b-16gpu", "suites/gpt-7.5b-16gpu.toml", "embedded:suites/gpt-7.5b-16gpu.toml"),
            (Shipped::Model, "gpt2", "suites/models/gpt2/config.json", "embedded:suites/models/gpt2/config.json"),
            (
                Shipped::Machine,
                "gb200-nvl72",
                "suites/machines/gb200-nvl72.toml",
                "embedded:suites/machines/gb200-nvl72.toml",
            ),
        ] {
            assert_eq!(kind.find(Path::new(name)).as_deref(), Some(Path::new(here)), "{name}");
            for path in [here, embedded] {
                assert_eq!(kind.find(Path::new(path)).as_deref(), Some(Path::new(path)));
            }
            assert!(is_embedded(embedded) && !is_embedded(here));
            assert!(kind.embedded(name).is_some() && kind.names().contains(&name.to_owned()));
            assert_eq!(kind.embedded_names(), kind.names(), "the checkout has what is embedded");
        }
    }

    #[test]
    fn nothing_but_a_name_leads_to_an_embedded_file() {
        for nothing in
            ["", ".", "..", "/", "gb200", "../machines/gb200-nvl72", "suites", "gb200-nvl72.toml", "gb200-nvl72/"]
        {
            assert_eq!(Shipped::Machine.find(Path::new(nothing)), None, "{nothing}");
            assert_eq!(Shipped::Machine.embedded(nothing), None, "{nothing}");
        }
        assert_eq!(Shipped::Suite.find(Path::new("models")), None);
        assert_eq!(Shipped::Suite.embedded("README"), None);
    }

    #[test]
    fn an_unknown_name_is_reported_with_the_search_path_and_similar_names() {
        for (kind, requested, expected) in [
            (
                Shipped::Suite,
                "quik",
                "there is no suite `quik`: no quik.toml, no suites/quik.toml here, and none is embedded; did you mean quick?",
            ),
            (
                Shipped::Model,
                "Llama3-8b",
                "there is no model `Llama3-8b`: no Llama3-8b/config.json, no suites/models/Llama3-8b/config.json here, and none is \
                 embedded; did you mean llama-3-8b or llama-2-13b or llama-3-70b?",
            ),
            (Shipped::Machine, "zzz", "`commgauge show machines` names all 26"),
            (
                Shipped::Machine,
                "gone/h200-nvswitch-ndr.toml",
                "there is no file `gone/h200-nvswitch-ndr.toml`; accepted: a path, or the name of a machine; did you mean \
                 h200-nvswitch-ndr or h100-nvswitch-ndr or h800-nvswitch-ndr?",
            ),
        ] {
            let message = kind.unknown(Path::new(requested));
            assert!(message.ends_with(expected), "{message}");
        }
    }

    #[test]
    fn a_file_that_is_not_text_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("binary"), [0xff, 0xfe]).unwrap();
        File::create(folder.path().join("long")).unwrap().set_len(LONGEST_FILE_BYTES + 1).unwrap();
        for (name, expected) in [
            ("binary", "is not text in UTF-8"),
            ("long", "is longer than 16 MiB"),
            ("none", "there is no file"),
            ("", "is a folder"),
        ] {
            let error = read_text(&folder.path().join(name), &Place::flag("MODEL")).expect_err(name);
            assert!(error.to_string().contains(expected) && error.exit_code() == 2, "{name}: {error}");
        }
    }
}
