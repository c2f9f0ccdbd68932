//! The fields of one config.json: looked up by all their names, read by type, noted if absent. `read` has the meaning
//! of each field.

use super::{Inferred, Model};
use commgauge_base::error::{Error, Result};
use serde_json::{Map, Value};
use std::cell::RefCell;
use std::path::Path;

/// No number in a config.json may be this large; no published one is close to it.
const LARGEST: u64 = 1 << 32;

/// The JSON object with the language model's fields.
pub(super) struct Fields<'a> {
    file: &'a Path,
    object: &'a Map<String, Value>,
    root: &'a Map<String, Value>,
    /// Every field that was requested and is absent, with the default that was used.
    inferred: RefCell<Vec<Inferred>>,
}

impl<'a> Fields<'a> {
    /// Multimodal files nest the language model's fields one level down, in `text_config`.
    pub fn new(file: &'a Path, root: &'a Map<String, Value>) -> Self {
        let object = root.get("text_config").and_then(Value::as_object).unwrap_or(root);
        Fields { file, object, root, inferred: RefCell::new(Vec::new()) }
    }

    /// The file that the fields are of.
    pub fn file(&self) -> &'a Path {
        self.file
    }

    /// Moves what was inferred into the model.
    pub fn note_in(self, model: &mut Model) {
        model.source.inferred = self.inferred.into_inner();
    }

    /// The first of the alternative names that is there and not null.
    pub fn first(&self, names: &[&'static str]) -> Option<(&'static str, &'a Value)> {
        names.iter().find_map(|name| Some((*name, self.object.get(*name).filter(|value| !value.is_null())?)))
    }

    /// Like [`Fields::first`], for fields that a multimodal file may have outside of `text_config`.
    pub fn first_anywhere(&self, names: &[&'static str]) -> Option<(&'static str, &'a Value)> {
        self.first(names).or_else(|| {
            names.iter().find_map(|name| Some((*name, self.root.get(*name).filter(|value| !value.is_null())?)))
        })
    }

    /// A whole number from 1, where the file has it.
    pub fn optional(&self, names: &[&'static str]) -> Result<Option<u64>> {
        self.number(names, 1)
    }

    /// A whole number from 0, where the file has it.
    pub fn optional_from_zero(&self, names: &[&'static str]) -> Result<Option<u64>> {
        self.number(names, 0)
    }

    /// A whole number from 1 that must be there.
    pub fn need(&self, names: &[&'static str]) -> Result<u64> {
        self.optional(names)?.ok_or_else(|| self.missing(names))
    }

    /// Whether the file does not have a field at all, not even as null.
    pub fn is_absent(&self, name: &str) -> bool {
        !self.object.contains_key(name)
    }

    /// The error of a field that is not there, with every name that it may have.
    pub fn missing(&self, names: &[&'static str]) -> Error {
        let absent = if names.iter().any(|name| self.object.contains_key(*name)) { "is null" } else { "is missing" };
        match names {
            [only] => self.wrong(only, absent),
            [first, others @ ..] => self.wrong(first, format!("{absent}; also accepted: {}", others.join(", "))),
            [] => self.wrong("the file", "a field without a name is missing"),
        }
    }

    /// A boolean, if the file has the field.
    pub fn truth(&self, names: &[&'static str]) -> Result<Option<bool>> {
        self.first(names).map(|(name, value)| self.truth_of(name, value)).transpose()
    }

    /// The truth value of a field that was found.
    pub fn truth_of(&self, name: &str, value: &Value) -> Result<bool> {
        value.as_bool().ok_or_else(|| self.wrong(name, format!("found {value}; accepted: true or false")))
    }

    /// Notes that a field is absent, and returns the default.
    pub fn infer<T: Clone + Into<Value>>(&self, field: &str, value: T, why: impl Into<String>) -> T {
        let noted = Inferred { field: field.to_owned(), value: value.clone().into(), why: why.into() };
        self.inferred.borrow_mut().push(noted);
        value
    }

    /// A usage error that names file and field.
    pub fn wrong(&self, key: &str, problem: impl std::fmt::Display) -> Error {
        Error::config(self.file, key, problem)
    }

    /// `model_type` of the language model, which may be nested.
    pub fn model_type(&self) -> Option<&'a str> {
        self.first_anywhere(&["model_type"]).and_then(|(_, value)| value.as_str())
    }

    fn number(&self, names: &[&'static str], least: u64) -> Result<Option<u64>> {
        let Some((name, value)) = self.first(names) else { return Ok(None) };
        match value.as_u64() {
            Some(number) if (least..LARGEST).contains(&number) => Ok(Some(number)),
            Some(number) if number >= LARGEST => {
                Err(self.wrong(name, format!("found {number}; accepted: whole numbers below 2^32 = {LARGEST}")))
            }
            _ => Err(self.wrong(name, format!("found {value}; accepted: a whole number from {least}"))),
        }
    }
}
