//! The settings of a YAML, JSON or TOML file, each as a dotted key with its text and its line.
//!
//! JSON is read as YAML, which has its lines. Anchors of YAML are not followed.

use crate::config::document::{Item, Place, Table, Value};
use crate::config::model::find::parse;
use commgauge_base::error::{Error, Result};
use commgauge_base::visible::ShownPath;
use saphyr_parser::{Event, Parser, StrInput};
use std::collections::BTreeMap;
use std::path::Path;

/// A setting as the recipe has it.
#[derive(Clone, Debug)]
pub(super) struct Written {
    /// Its name; dotted where it is within others.
    pub key: String,
    pub text: String,
    pub place: Place,
}

/// A longer name of a setting has more lists within lists than any recipe.
const LONGEST_NAME: usize = 1000;

/// Reads a file by its ending.
///
/// # Errors
/// What is not JSON, TOML or YAML, with its line, and keys with two values.
pub(super) fn settings(file: &Path, text: &str) -> Result<Vec<Written>> {
    let ending = file.extension().unwrap_or_default();
    let mut settings = if ending == "toml" {
        let mut settings = Vec::new();
        add_table("", Table::parse(file, text)?, &mut settings);
        settings
    } else {
        if ending == "json" {
            ensure_json(file, text)?;
        }
        let mut yaml = Yaml { file, events: Parser::new_from_str(text), settings: Vec::new() };
        yaml.read()?;
        yaml.settings
    };
    let mut texts: BTreeMap<String, String> = BTreeMap::new();
    for Written { key, text, place } in &settings {
        let before = texts.insert(key.clone(), text.clone());
        if let Some(before) = before.filter(|_| !key.contains("[]")) {
            let problem = format!("has two values: `{before}` before and `{text}` here; accepted: one of them");
            return Err(place.wrong(problem));
        }
    }
    for written in &mut settings {
        // A setting may name another one, as in `${trainer.devices}`.
        let named = written.text.strip_prefix("${").and_then(|text| texts.get(text.strip_suffix('}')?));
        named.inspect(|text| written.text.clone_from(text));
        written.key = written.key.replace("--", "").replace('-', "_");
    }
    Ok(settings)
}

fn ensure_json(file: &Path, text: &str) -> Result<()> {
    parse(text).map(drop).map_err(|problem| {
        let comments = text.lines().any(|line| {
            line.trim_start().starts_with(['/', '#']) || [" //", "/*"].iter().any(|mark| line.contains(mark))
        });
        let hint = if comments { "; JSON has no comments, take them out" } else { "" };
        Error::usage(format!("{}:{problem}{hint}", file.shown()))
    })
}

fn add_table(path: &str, table: Table, settings: &mut Vec<Written>) {
    table.entries.into_iter().for_each(|(key, item)| add_item(joined(path, &key), item, settings));
}

fn add_item(key: String, Item { place, value }: Item, settings: &mut Vec<Written>) {
    match value {
        Value::Table(table) => add_table(&key, table, settings),
        Value::List(items) if items.iter().any(|item| matches!(item.value, Value::Table(_))) => {
            items.into_iter().for_each(|item| add_item(format!("{key}[]"), item, settings));
        }
        value => settings.push(Written { text: value.to_string(), key, place }),
    }
}

struct Yaml<'a> {
    file: &'a Path,
    events: Parser<'a, StrInput<'a>>,
    settings: Vec<Written>,
}

impl<'a> Yaml<'a> {
    fn read(&mut self) -> Result<()> {
        loop {
            match self.next()? {
                (Event::StreamEnd, _) => return Ok(()),
                (event, line) => self.value("", event, line)?,
            }
        }
    }

    /// What comes next, with its line.
    fn next(&mut self) -> Result<(Event<'a>, usize)> {
        match self.events.next_event() {
            Some(Ok((event, span))) => Ok((event, span.start.line())),
            Some(Err(problem)) => Err(self.wrong(problem.marker().line(), problem.info())),
            None => Err(self.wrong(1, "it has no end")),
        }
    }

    fn wrong(&self, line: usize, problem: &str) -> Error {
        Place::on_line(self.file, line, "not YAML").wrong(problem)
    }

    fn add(&mut self, key: &str, text: &str, line: usize) {
        let place = Place::on_line(self.file, line, key);
        self.settings.push(Written { key: key.to_owned(), text: text.to_owned(), place });
    }

    /// Reads the value that an event begins.
    fn value(&mut self, path: &str, event: Event, line: usize) -> Result<()> {
        if path.len() > LONGEST_NAME {
            return Err(self.wrong(line, "found more keys and lists within each other than in any recipe"));
        }
        match event {
            Event::Scalar(text, ..) => self.add(path, &text, line),
            Event::Alias(_) => self.add(path, "*", line),
            Event::SequenceStart(..) => {
                let mut texts = Vec::new();
                loop {
                    match self.next()? {
                        (Event::SequenceEnd, _) => break,
                        (Event::Scalar(text, ..), _) => texts.push(text),
                        (event, line) => self.value(&format!("{path}[]"), event, line)?,
                    }
                }
                if !texts.is_empty() {
                    self.add(path, &texts.join(","), line);
                }
            }
            Event::MappingStart(..) => loop {
                match self.next()? {
                    (Event::MappingEnd, _) => break,
                    (Event::Scalar(key, ..), line) if key != "<<" => {
                        let (event, _) = self.next()?;
                        self.value(&joined(path, &key), event, line)?;
                    }
                    (_, line) => {
                        let problem = "found `<<`, which merges another part, or a key that is no text; accepted: its keys written here";
                        return Err(self.wrong(line, problem));
                    }
                }
            },
            _ => {}
        }
        Ok(())
    }
}

fn joined(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}
