//! What the settings of a framework's recipes mean: the files of `suites/recipes`, read once.

use super::settings::Written;
use super::shell::{Word, settings};
use crate::config::document::{Place, likely_key};
use crate::config::shipped::embedded_tables;
use commgauge_base::error::Result;
use commgauge_base::writing::ascending;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::LazyLock;

/// What is around a list of texts, and around each of them.
const LIST_MARKS: &[char] = &['[', ']', '\'', '"', ' '];

/// Texts by their names.
type Texts = BTreeMap<String, String>;

/// What names the framework where no setting does.
pub(super) const FRAMEWORK: &str = "a setting of another";

/// A file of `suites/recipes`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Facts {
    /// The framework, for messages, with the version whose settings were read.
    pub title: String,
    /// The framework whose defaults hold, unless a setting says another one.
    pub framework: String,
    /// Patterns of settings that only its recipes have.
    #[serde(default)]
    marks: Vec<String>,
    /// What only its commands have.
    #[serde(default)]
    commands: Vec<String>,
    /// Keys that may be around all settings.
    #[serde(default)]
    within: Vec<String>,
    /// Another file, whose settings may be there too.
    like: Option<String>,
    /// Other names of settings.
    #[serde(default)]
    also: Texts,
    /// Settings that it fills where they are left out.
    #[serde(default)]
    pub defaults: Texts,
    /// Settings whose value is that of a key.
    #[serde(default)]
    keys: Texts,
    /// What other settings do.
    pub rows: BTreeMap<String, Row>,
    /// Patterns of settings that say the model, which its own file says.
    #[serde(default)]
    of_model: Vec<String>,
    /// By the reason, patterns of settings that change calls and have no key.
    #[serde(default)]
    not_modelled: BTreeMap<String, Vec<String>>,
    /// Patterns of settings that change no calls.
    #[serde(default)]
    no_effect: Vec<String>,
}

/// What a setting does.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Row {
    /// The key that takes every value that is not in `values`.
    key: Option<String>,
    /// For each value the keys that it sets; `*` for any other. A value is a text, or a product of `it` (the setting's own value),
    /// `hidden` and `layers` (the model's) and other keys; `/` before a factor divides. Keys with `_` before them are for products.
    values: BTreeMap<String, Texts>,
    /// Why every other value is not modelled.
    pub otherwise: Option<String>,
    /// Whether settings of the same key multiply.
    pub times: bool,
    /// Settings that it overrules, or keys of them, such as `fp16.gradient_element_type`.
    pub over: Vec<String>,
    /// Values of keys without which it changes nothing.
    pub only: BTreeMap<String, Vec<String>>,
    /// Whether it names another file of settings.
    pub file: bool,
}

/// What is known of a setting.
pub(super) enum Fact {
    Row(&'static Row),
    OfModel,
    NotModelled(&'static str),
    NoEffect,
    Unknown,
}

/// The files by their names.
static ALL: LazyLock<BTreeMap<&'static str, Facts>> = LazyLock::new(|| {
    let mut all: BTreeMap<_, Facts> = embedded_tables("recipes");
    for facts in all.values_mut() {
        let row = |key| Row { key: Some(key), ..Row::default() };
        let keys = std::mem::take(&mut facts.keys).into_iter().map(|(setting, key)| (setting, row(key)));
        facts.rows.extend(keys.chain([(FRAMEWORK.to_owned(), row("framework".to_owned()))]));
        facts.defaults.insert(FRAMEWORK.to_owned(), facts.framework.clone());
    }
    all
});

impl Facts {
    pub fn all() -> impl Iterator<Item = &'static Facts> {
        ALL.values()
    }

    /// Those of the framework whose marks these settings have.
    pub fn of_settings(settings: &[Written]) -> Option<&'static Facts> {
        Facts::all().find(|facts| settings.iter().any(|written| is_among(&facts.marks, &written.key)))
    }

    /// Those of the framework whose command is among these, with the command's settings.
    ///
    /// # Errors
    /// Several such commands.
    pub fn of_commands(file: &Path, commands: &[Vec<Word>]) -> Result<Option<(&'static Facts, Vec<Written>)>> {
        let mut found: Option<(&Facts, &[Word])> = None;
        for command in commands {
            let said = command.iter().take_while(|word| ["eval", "exec", "echo"].contains(&&*word.text)).count();
            let command = &command[said..];
            let text = command.iter().map(|word| word.text.as_str()).collect::<Vec<_>>().join(" ");
            let names = settings(file, command, |_| false);
            let has_words = |facts: &&Facts| facts.commands.iter().any(|mark| text.contains(mark));
            let Some(facts) = Facts::all().find(has_words).or_else(|| Facts::of_settings(&names)) else { continue };
            if let Some((_, first)) = found.filter(|(_, first)| *first != command) {
                let problem = format!("is a second command of a framework; the first is on line {}", first[0].line);
                let place = Place::on_line(file, command[0].line, &command[0].text);
                return Err(place.wrong(format!("{problem}; accepted: one in a file")));
            }
            found = Some((facts, command));
        }
        Ok(found.map(|(facts, command)| (facts, settings(file, command, |name| facts.is_switch(name)))))
    }

    /// The name of a setting by which rows and defaults name it.
    pub fn name_of<'a>(&'static self, key: &'a str) -> &'a str {
        let name = self.names(key).pop().unwrap_or(key);
        self.also.get(name).map_or(name, String::as_str)
    }

    /// What is known of a setting.
    pub fn fact(&'static self, key: &str) -> Fact {
        let names = self.names(key);
        let has = |patterns: &[String]| names.iter().any(|name| is_among(patterns, name));
        let row = |name: &&str| self.rows.get(self.also.get(*name).map_or(*name, String::as_str));
        if let Some(row) = names.iter().find_map(row) {
            return Fact::Row(row);
        }
        if let Some((reason, _)) = self.not_modelled.iter().find(|(_, patterns)| has(patterns)) {
            return Fact::NotModelled(reason);
        }
        if has(&self.of_model) {
            return Fact::OfModel;
        }
        // What is not within the keys around all settings is this framework's own.
        let is_of_like = self.within.is_empty() || names.len() > 1;
        match self.like().filter(|_| is_of_like).map(|like| like.fact(names[names.len() - 1])) {
            None | Some(Fact::Unknown) if has(&self.no_effect) => Fact::NoEffect,
            of_like => of_like.unwrap_or(Fact::Unknown),
        }
    }

    /// The end of a sentence: the known setting that is most like this one.
    pub fn likely(&self, key: &str) -> String {
        let of_like = self.like().into_iter().flat_map(|like| like.rows.keys());
        likely_key(key.rsplit('.').next().unwrap_or(key), self.rows.keys().chain(of_like).map(String::as_str))
    }

    fn like(&self) -> Option<&'static Facts> {
        ALL.get(self.like.as_deref()?)
    }

    fn is_switch(&'static self, name: &str) -> bool {
        matches!(self.fact(name), Fact::Row(row) if row.key.is_none() && row.values.contains_key("true"))
    }

    /// The name of a setting, and the same without what may be around it.
    fn names<'a>(&self, key: &'a str) -> Vec<&'a str> {
        let inner = self.within.iter().filter_map(|around| key.strip_prefix(around.as_str())?.strip_prefix('.'));
        std::iter::once(key).chain(inner).collect()
    }
}

impl Row {
    /// The keys that a value sets, with their values or products; none where the value is not known.
    pub fn values_of(&self, text: &str) -> Option<Vec<(String, String)>> {
        let factor = |factor: &str| match factor {
            "it" => text.to_owned(),
            "/it" => format!("/{text}"),
            factor => factor.to_owned(),
        };
        let set = |(key, value): (&String, &String)| {
            (key.clone(), value.split('*').map(factor).collect::<Vec<_>>().join("*"))
        };
        // The order of a list says nothing.
        let parts = |text: &str| ascending(text.split(',').map(|part| part.trim_matches(LIST_MARKS).to_lowercase()));
        let wanted = parts(text);
        let listed = self.values.iter().find(|(value, _)| parts(value) == wanted);
        match listed.or_else(|| self.values.get_key_value("*")) {
            Some((_, keys)) => Some(keys.iter().map(set).collect()),
            None => self.key.as_ref().map(|key| vec![(key.clone(), text.to_owned())]),
        }
    }

    /// The values that it lists, for messages.
    pub fn accepted(&self) -> String {
        self.values.keys().map(String::as_str).collect::<Vec<_>>().join(", ")
    }

    /// The keys that it may set.
    pub fn keys(&self) -> BTreeSet<&str> {
        self.values.values().flat_map(BTreeMap::keys).chain(&self.key).map(String::as_str).collect()
    }
}

/// Whether a name is as one of the patterns, in which `*` is any text.
fn is_among(patterns: &[String], name: &str) -> bool {
    fn fits(pattern: &str, name: &str) -> bool {
        let Some((begin, rest)) = pattern.split_once('*') else { return pattern == name };
        let ends = |name: &str| (0..=name.len()).any(|at| name.get(at..).is_some_and(|end| fits(rest, end)));
        name.strip_prefix(begin).is_some_and(ends)
    }
    patterns.iter().any(|pattern| fits(pattern, name))
}
