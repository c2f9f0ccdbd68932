//! A TOML file as a tree whose every value knows its file, line and key, so that each complaint can name them.
//!
//! What the keys mean is the business of the readers above; unknown keys are refused here, with a suggestion.

use crate::error::{Error, Result};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use toml::de::{DeTable, DeValue};

/// Where the user wrote a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// File and line, such as `suites/quick.toml:12`; empty for flags.
    source: PathBuf,
    /// Dotted key, such as `sweep[0].bytes`, or a flag.
    key: String,
}

/// A value and where it stands.
#[derive(Debug)]
pub struct Item {
    /// Where it stands.
    pub place: Place,
    value: Value,
}

/// A table that remembers which keys were asked for.
#[derive(Debug)]
pub struct Table {
    /// Where it stands.
    pub place: Place,
    entries: BTreeMap<String, Item>,
    known: Vec<&'static str>,
}

#[derive(Debug)]
enum Value {
    Text(String),
    Whole(i128),
    Fraction(f64),
    Truth(bool),
    List(Vec<Item>),
    Table(Table),
    Date(String),
}

impl Place {
    /// The place of a flag of the command line.
    pub fn flag(name: &str) -> Place {
        Place { source: PathBuf::new(), key: name.to_owned() }
    }

    /// A usage error that names this place.
    pub fn wrong(&self, problem: impl Display) -> Error {
        if self.source.as_os_str().is_empty() {
            return Error::usage(format!("{}: {problem}", self.key));
        }
        Error::config(&self.source, &self.key, problem)
    }
}

impl Table {
    /// Parses a file's text.
    pub fn parse(file: &Path, text: &str) -> Result<Table> {
        let root = DeTable::parse(text).map_err(|error| {
            let line = error.span().map_or(1, |span| line_of(text, span.start));
            Error::config(&at_line(file, line), "not TOML", error.message())
        })?;
        let place = Place { source: file.to_owned(), key: "the file".to_owned() };
        Ok(table(file, text, place, "", root.into_inner()))
    }

    /// The value of a key, if the file has it.
    pub fn take(&mut self, key: &'static str) -> Option<Item> {
        self.known.push(key);
        self.entries.remove(key)
    }

    /// The value of a key that must be there; `accepted` says what may stand there.
    pub fn require(&mut self, key: &'static str, accepted: &str) -> Result<Item> {
        self.take(key).ok_or_else(|| self.place.wrong(format!("`{key}` is missing; accepted: {accepted}")))
    }

    /// Refuses whatever was not asked for.
    pub fn finish(self) -> Result<()> {
        let Some((key, item)) = self.entries.first_key_value() else { return Ok(()) };
        let nearest = self
            .known
            .iter()
            .map(|known| (strsim::jaro_winkler(key, known), known))
            .filter(|(likeness, _)| *likeness > 0.75)
            .max_by(|a, b| a.0.total_cmp(&b.0));
        let suggestion = nearest.map_or(".".to_owned(), |(_, known)| format!("; did you mean `{known}`?"));
        Err(item.place.wrong(format!("unknown key{suggestion} Known here: {}", self.known.join(", "))))
    }
}

impl Item {
    /// A usage error that names this value's place.
    pub fn wrong(&self, problem: impl Display) -> Error {
        self.place.wrong(problem)
    }

    /// A text.
    pub fn text(&self) -> Result<&str> {
        match &self.value {
            Value::Text(text) => Ok(text),
            other => Err(self.wrong(format!("found {}; accepted: a text in quotes", describe(other)))),
        }
    }

    /// A whole number within a range.
    pub fn whole(&self, range: std::ops::RangeInclusive<u64>) -> Result<u64> {
        let accepted = || format!("accepted: a whole number from {} to {}", range.start(), range.end());
        match &self.value {
            Value::Whole(number) => u64::try_from(*number)
                .ok()
                .filter(|number| range.contains(number))
                .ok_or_else(|| self.wrong(format!("found {number}; {}", accepted()))),
            other => Err(self.wrong(format!("found {}; {}", describe(other), accepted()))),
        }
    }

    /// A whole number from 1 that fits 32 bits.
    pub fn count(&self) -> Result<u32> {
        Ok(self.whole(1..=u64::from(u32::MAX))? as u32)
    }

    /// A number above `low` and up to `high`.
    pub fn fraction(&self, low: f64, high: f64) -> Result<f64> {
        let number = match &self.value {
            Value::Whole(number) => *number as f64,
            Value::Fraction(number) => *number,
            other => return Err(self.wrong(format!("found {}; accepted: a number", describe(other)))),
        };
        if number > low && number <= high {
            return Ok(number);
        }
        Err(self.wrong(format!("found {number}; accepted: a number above {low} and up to {high}")))
    }

    /// `true` or `false`.
    pub fn truth(&self) -> Result<bool> {
        match &self.value {
            Value::Truth(truth) => Ok(*truth),
            other => Err(self.wrong(format!("found {}; accepted: true or false", describe(other)))),
        }
    }

    /// A text read by `parse`, whose error says what was found and what is accepted.
    pub fn parsed<T>(&self, parse: impl Fn(&str) -> std::result::Result<T, String>) -> Result<T> {
        parse(self.text()?).map_err(|problem| self.wrong(problem))
    }

    /// True where the value is this very text.
    pub fn is_text(&self, text: &str) -> bool {
        matches!(&self.value, Value::Text(found) if found == text)
    }

    /// True where the value is a table.
    pub fn is_table(&self) -> bool {
        matches!(self.value, Value::Table(_))
    }

    /// True where the value is a whole number.
    pub fn is_whole(&self) -> bool {
        matches!(self.value, Value::Whole(_))
    }

    /// A table.
    pub fn table(self) -> Result<Table> {
        match self.value {
            Value::Table(table) => Ok(table),
            other => Err(self.place.wrong(format!("found {}; accepted: a table", describe(&other)))),
        }
    }

    /// The items of a list, or the single value as a list of one; an empty list is refused.
    pub fn items(self) -> Result<Vec<Item>> {
        match self.value {
            Value::List(items) if items.is_empty() => Err(self.place.wrong("found an empty list; name at least one")),
            Value::List(items) => Ok(items),
            _ => Ok(vec![self]),
        }
    }
}

fn table(file: &Path, text: &str, place: Place, path: &str, table: DeTable) -> Table {
    let entries = table.into_iter().map(|(key, value)| {
        let line = line_of(text, key.span().start);
        let key = key.into_inner().into_owned();
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        (key, item(file, text, line, path, value.into_inner()))
    });
    Table { place, entries: entries.collect(), known: Vec::new() }
}

fn item(file: &Path, text: &str, line: usize, path: String, value: DeValue) -> Item {
    let place = Place { source: at_line(file, line), key: path.clone() };
    let value = match value {
        DeValue::String(text) => Value::Text(text.into_owned()),
        // Text that TOML accepted as a number but that does not fit 128 bits is shown to the user as it stands.
        DeValue::Integer(number) => i128::from_str_radix(number.as_str(), number.radix())
            .map_or_else(|_| Value::Date(number.as_str().to_owned()), Value::Whole),
        DeValue::Float(number) => Value::Fraction(number.as_str().parse().unwrap_or(f64::NAN)),
        DeValue::Boolean(truth) => Value::Truth(truth),
        DeValue::Datetime(date) => Value::Date(date.to_string()),
        DeValue::Array(values) => Value::List(
            values
                .into_iter()
                .enumerate()
                .map(|(index, value)| {
                    let line = line_of(text, value.span().start);
                    item(file, text, line, format!("{path}[{index}]"), value.into_inner())
                })
                .collect(),
        ),
        DeValue::Table(inner) => Value::Table(table(file, text, place.clone(), &path, inner)),
    };
    Item { place, value }
}

fn describe(value: &Value) -> String {
    match value {
        Value::Text(text) => format!("the text \"{text}\""),
        Value::Whole(number) => number.to_string(),
        Value::Fraction(number) => number.to_string(),
        Value::Truth(truth) => truth.to_string(),
        Value::List(_) => "a list".to_owned(),
        Value::Table(_) => "a table".to_owned(),
        Value::Date(text) => format!("`{text}`"),
    }
}

fn line_of(text: &str, offset: usize) -> usize {
    1 + text.as_bytes()[..offset.min(text.len())].iter().filter(|byte| **byte == b'\n').count()
}

fn at_line(file: &Path, line: usize) -> PathBuf {
    let mut named = file.as_os_str().to_owned();
    named.push(format!(":{line}"));
    named.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Table> {
        Table::parse(Path::new("suite.toml"), text)
    }

    #[test]
    fn an_unknown_key_is_refused_with_line_and_suggestion() {
        let mut root = parse("name = 'x'\n[measure]\nreplicats = 3\n").unwrap();
        root.take("name");
        let mut measure = root.take("measure").unwrap().table().unwrap();
        measure.take("replicates");
        let message = measure.finish().unwrap_err().to_string();
        assert_eq!(
            message,
            "suite.toml:3: measure.replicats: unknown key; did you mean `replicates`? Known here: replicates"
        );
        let mut root = parse("zzz = 1").unwrap();
        root.take("name");
        let message = root.finish().unwrap_err().to_string();
        assert_eq!(message, "suite.toml:1: zzz: unknown key. Known here: name");
    }

    #[test]
    fn text_that_is_not_toml_is_refused_with_its_line() {
        let message = parse("name = 'x'\nwhat\n").unwrap_err().to_string();
        assert!(message.starts_with("suite.toml:2: not TOML: "), "{message}");
    }

    #[test]
    fn a_wrong_kind_of_value_says_what_was_found_and_what_is_accepted() {
        let mut root = parse("a = 'x'\nb = -1\nc = [1, 'y']\nd = 1.5").unwrap();
        let mut item = |key| root.take(key).unwrap();
        let message = item("a").count().unwrap_err().to_string();
        assert_eq!(message, "suite.toml:1: a: found the text \"x\"; accepted: a whole number from 1 to 4294967295");
        assert!(item("b").count().unwrap_err().to_string().contains("b: found -1; accepted"));
        let message = item("c").items().unwrap()[1].count().unwrap_err().to_string();
        assert!(message.starts_with("suite.toml:3: c[1]: found"), "{message}");
        assert!(item("d").text().unwrap_err().to_string().contains("found 1.5; accepted: a text"));
    }
}
