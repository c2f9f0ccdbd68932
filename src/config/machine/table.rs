//! A TOML table read key by key: unknown keys are refused first, and every error names file and key.
//!
//! What the values mean is not known here.

use crate::error::{Error, Result};
use crate::units::{Rate, Seconds, parse_rate, parse_seconds};
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::Path;
use toml::Value;

/// A table of a file, with the keys that it may hold already checked.
pub(super) struct Table<'a> {
    path: &'a Path,
    name: String,
    entries: &'a toml::Table,
}

impl<'a> Table<'a> {
    /// Opens a table under its name in the file (empty for the whole file), refusing every key that is not accepted.
    pub(super) fn open(path: &'a Path, name: &str, entries: &'a toml::Table, accepted: &[&str]) -> Result<Table<'a>> {
        let table = Table { path, name: name.to_owned(), entries };
        match entries.keys().find(|key| !accepted.contains(&key.as_str())) {
            Some(unknown) => Err(table.error(unknown, unknown_key(unknown, accepted))),
            None => Ok(table),
        }
    }

    /// The error for a key of this table.
    pub(super) fn error(&self, key: &str, problem: impl Display) -> Error {
        let full_key = if self.name.is_empty() { key.to_owned() } else { format!("{}.{key}", self.name) };
        Error::config(self.path, &full_key, problem)
    }

    /// A table within this one that must be there.
    pub(super) fn table(&self, key: &str, accepted: &[&str]) -> Result<Table<'a>> {
        self.optional_table(key, accepted)?
            .ok_or_else(|| self.error(key, format!("missing; a table [{key}] with {}", accepted.join(", "))))
    }

    /// A table within this one that may be left out.
    pub(super) fn optional_table(&self, key: &str, accepted: &[&str]) -> Result<Option<Table<'a>>> {
        match self.entries.get(key) {
            None => Ok(None),
            Some(Value::Table(entries)) => Table::open(self.path, key, entries, accepted).map(Some),
            Some(other) => Err(self.wrong_type(key, other, "a table")),
        }
    }

    /// The tables of a list, which may be left out, each with its name `key[index]`, not opened yet.
    pub(super) fn tables(&self, key: &str) -> Result<Vec<(String, &'a toml::Table)>> {
        let list = match self.entries.get(key) {
            None => return Ok(Vec::new()),
            Some(Value::Array(list)) => list,
            Some(other) => return Err(self.wrong_type(key, other, &format!("a list of tables [[{key}]]"))),
        };
        let named = list.iter().enumerate().map(|(index, value)| match value {
            Value::Table(entries) => Ok((format!("{key}[{index}]"), entries)),
            other => Err(self.wrong_type(key, other, &format!("a list of tables [[{key}]]"))),
        });
        named.collect()
    }

    /// A text that must be there and not be empty.
    pub(super) fn text(&self, key: &str, example: &str) -> Result<&'a str> {
        match self.required(key, example)? {
            Value::String(text) if !text.trim().is_empty() => Ok(text),
            other => Err(self.wrong_type(key, other, &format!("a text such as {example:?}"))),
        }
    }

    /// A yes or no; no where it is left out.
    pub(super) fn flag(&self, key: &str) -> Result<bool> {
        match self.entries.get(key) {
            None => Ok(false),
            Some(Value::Boolean(value)) => Ok(*value),
            Some(other) => Err(self.wrong_type(key, other, "true or false")),
        }
    }

    /// A whole number that must be there.
    pub(super) fn count(&self, key: &str, accepted: RangeInclusive<u32>) -> Result<u32> {
        let value = self.required(key, &format!("a whole number from {} to {}", accepted.start(), accepted.end()))?;
        self.as_count(key, value, accepted)
    }

    /// Two whole numbers that must be there.
    pub(super) fn pair_of_counts(&self, key: &str, accepted: RangeInclusive<u32>) -> Result<[u32; 2]> {
        let wanted = "two whole numbers such as [0, 1]";
        match self.required(key, wanted)? {
            Value::Array(list) if list.len() == 2 => {
                Ok([self.as_count(key, &list[0], accepted.clone())?, self.as_count(key, &list[1], accepted)?])
            }
            other => Err(self.wrong_type(key, other, wanted)),
        }
    }

    /// A plain number, or what stands for it where it is left out.
    pub(super) fn number_or(&self, key: &str, accepted: RangeInclusive<f64>, otherwise: f64) -> Result<f64> {
        if self.entries.contains_key(key) { self.number(key, accepted) } else { Ok(otherwise) }
    }

    /// A plain number that must be there. NaN lies in no range.
    pub(super) fn number(&self, key: &str, accepted: RangeInclusive<f64>) -> Result<f64> {
        let wanted = format!("a number from {} to {}", accepted.start(), accepted.end());
        match *self.required(key, &wanted)? {
            Value::Float(value) if accepted.contains(&value) => Ok(value),
            Value::Integer(value) if accepted.contains(&(value as f64)) => Ok(value as f64),
            ref other => Err(self.wrong_type(key, other, &wanted)),
        }
    }

    /// A duration with its unit, or zero where it is left out.
    pub(super) fn seconds_or_zero(&self, key: &str) -> Result<Seconds> {
        if self.entries.contains_key(key) { self.seconds(key) } else { Ok(Seconds(0.0)) }
    }

    /// A duration with its unit that must be there.
    pub(super) fn seconds(&self, key: &str) -> Result<Seconds> {
        let text = self.text(key, "2us")?;
        parse_seconds(text).map_err(|problem| self.error(key, problem))
    }

    /// A rate with its unit that must be there.
    pub(super) fn rate(&self, key: &str) -> Result<Rate> {
        let text = self.text(key, "25GB/s")?;
        let rate = parse_rate(text).map_err(|problem| self.error(key, problem))?;
        if rate.0.is_finite() { Ok(rate) } else { Err(self.error(key, format!("found `{text}`, more than any link"))) }
    }

    fn required(&self, key: &str, wanted: &str) -> Result<&'a Value> {
        self.entries.get(key).ok_or_else(|| self.error(key, format!("missing; accepted: {wanted}")))
    }

    fn as_count(&self, key: &str, value: &Value, accepted: RangeInclusive<u32>) -> Result<u32> {
        let found = value.as_integer().and_then(|number| u32::try_from(number).ok());
        found.filter(|number| accepted.contains(number)).ok_or_else(|| {
            let wanted = format!("a whole number from {} to {}", accepted.start(), accepted.end());
            self.wrong_type(key, value, &wanted)
        })
    }

    fn wrong_type(&self, key: &str, found: &Value, wanted: &str) -> Error {
        let found = match found {
            Value::Table(_) => "a table".to_owned(),
            Value::Array(_) => "a list".to_owned(),
            other => format!("`{other}`"),
        };
        self.error(key, format!("found {found}; accepted: {wanted}"))
    }
}

/// What to say of a key that nobody reads: the nearest accepted one, if it is near, and all of them.
fn unknown_key(unknown: &str, accepted: &[&str]) -> String {
    let nearest = accepted.iter().map(|key| (strsim::damerau_levenshtein(unknown, key), *key)).min();
    let accepted = accepted.join(", ");
    match nearest {
        Some((distance, key)) if distance <= 1 + key.len() / 4 => {
            format!("unknown key; did you mean `{key}`? Accepted: {accepted}")
        }
        _ => format!("unknown key; accepted: {accepted}"),
    }
}
