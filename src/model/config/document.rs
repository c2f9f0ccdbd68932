//! A TOML file as a tree whose every value knows its file, line and key, so that each complaint can name them.
//!
//! Unknown keys are refused here, with a suggestion. What the keys mean is the business of the readers above, and how a
//! value is read is in `values`.

use commgauge_base::error::{Error, Result};
use commgauge_base::units::{Seconds, parse_seconds};
use commgauge_base::visible::ShownPath;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use toml::de::{DeTable, DeValue};

/// A text as a string of TOML, with its quotes.
pub fn toml_string(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

/// Where the user wrote a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// File and line, such as `suites/quick.toml:12`; empty for flags.
    source: PathBuf,
    /// Dotted key, such as `sweep[0].bytes`, or a flag.
    key: String,
}

/// A value and its place in the document.
#[derive(Debug)]
pub struct Item {
    /// Place of the value.
    pub place: Place,
    pub(super) value: Value,
}

/// A table that remembers which keys were requested.
#[derive(Debug)]
pub struct Table {
    /// Place of the table.
    pub place: Place,
    pub(super) entries: BTreeMap<String, Item>,
    known: Vec<&'static str>,
}

#[derive(Debug)]
pub(super) enum Value {
    Text(String),
    Whole(i128),
    Fraction(f64),
    Truth(bool),
    List(Vec<Item>),
    Table(Table),
    Date(String),
    /// Stand-in for the value of a missing key, to learn what is accepted.
    Missing(&'static str),
}

impl Place {
    /// The place of a flag of the command line.
    pub fn flag(name: &str) -> Place {
        Place { source: PathBuf::new(), key: name.to_owned() }
    }

    /// The place of a key on a line of a file.
    pub(super) fn on_line(file: &Path, line: usize, key: &str) -> Place {
        Place { source: at_line(file, line), key: key.to_owned() }
    }

    /// A usage error that names this place.
    pub fn wrong(&self, problem: impl Display) -> Error {
        if self.source.as_os_str().is_empty() {
            return Error::usage(format!("{}: {problem}", self.key));
        }
        Error::config(&self.source, &self.key, problem)
    }

    /// Whether the value is within another one of the file.
    pub(super) fn is_nested(&self) -> bool {
        self.key.contains(['.', '['])
    }
}

impl Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.source.shown(), self.key)
    }
}

impl Table {
    /// Parses a file's text.
    pub fn parse(file: &Path, text: &str) -> Result<Table> {
        let source = Source::new(file, text);
        let root = DeTable::parse(text).map_err(|error| {
            let start = error.span().map_or(0, |span| span.start);
            Error::config(&source.place_of(start), "not TOML", error.message())
        })?;
        let place = Place { source: file.to_owned(), key: "the file".to_owned() };
        Ok(table(&source, place, "", root.into_inner()))
    }

    /// The flags of a command line as a table: for each the flag, the corresponding key, and its text.
    pub fn of_flags(flags: impl IntoIterator<Item = (&'static str, &'static str, String)>) -> Table {
        let entry = |(flag, key, text): (&'static str, &'static str, String)| {
            (key.to_owned(), Item { place: Place::flag(flag), value: value_of_flag(text) })
        };
        let entries = flags.into_iter().map(entry).collect();
        Table { place: Place::flag("the command line"), entries, known: Vec::new() }
    }

    /// The value of a key, if the file has it.
    pub fn take(&mut self, key: &'static str) -> Option<Item> {
        self.known.push(key);
        self.entries.remove(key)
    }

    /// Reads a key into its place, if the file has it.
    pub fn set<T>(&mut self, key: &'static str, into: &mut T, read: impl FnOnce(Item) -> Result<T>) -> Result<()> {
        if let Some(item) = self.take(key) {
            *into = read(item)?;
        }
        Ok(())
    }

    /// The value of a required key; `accepted` describes valid values.
    pub fn require(&mut self, key: &'static str, accepted: &str) -> Result<Item> {
        self.take(key).ok_or_else(|| self.place.wrong(format!("`{key}` is missing; accepted: {accepted}")))
    }

    /// Gives a key that the file does not have a value, at the place of what brings it; the file's own value stays. True
    /// where the key had none.
    pub fn default_to(&mut self, key: &str, text: &str, place: &Place) -> bool {
        let missing = !self.entries.contains_key(key);
        if missing {
            self.entries.insert(key.to_owned(), Item::of_text(text, place));
        }
        missing
    }

    /// The place of a key's value, or that of the table where it has none.
    pub fn place_of(&self, key: &str) -> &Place {
        self.peek(key).map_or(&self.place, |item| &item.place)
    }

    /// These keys with their values, which are taken out, as a table.
    pub fn part(&mut self, keys: &[&str]) -> Table {
        let entries = keys.iter().filter_map(|key| self.entries.remove_entry(*key)).collect();
        Table { place: self.place.clone(), entries, known: Vec::new() }
    }

    /// The table as the value of a key: how serde expects the fields of a variant.
    pub fn under(self, key: &str) -> Item {
        let place = self.place.clone();
        let entries = BTreeMap::from([(key.to_owned(), Item::from(self))]);
        Item::from(Table { place, entries, known: Vec::new() })
    }

    /// Where each of its keys was written.
    pub fn places(&self) -> BTreeMap<String, Place> {
        self.entries.iter().map(|(key, item)| (key.clone(), item.place.clone())).collect()
    }

    /// The value of a key without taking it.
    pub fn peek(&self, key: &str) -> Option<&Item> {
        self.entries.get(key)
    }

    /// The tables of a list `[[key]]`, or the single table of that name; none where it is left out.
    pub fn tables(&mut self, key: &'static str) -> Result<Vec<Table>> {
        match self.take(key) {
            None => Ok(Vec::new()),
            Some(Item { value: Value::List(items), .. }) => items.into_iter().map(Item::table).collect(),
            Some(item) => Ok(vec![item.table()?]),
        }
    }

    /// Refuses all keys that were not read.
    pub fn finish(self) -> Result<()> {
        self.only(&self.known)
    }

    /// Refuses every key but these, before any is read: a misspelt key is then named itself, instead of the required key
    /// that it was to be being called missing.
    pub fn only(&self, known: &[&str]) -> Result<()> {
        let unknown = |(key, _): &(&String, &Item)| !known.contains(&key.as_str());
        let Some((key, item)) = self.entries.iter().find(unknown) else { return Ok(()) };
        let suggestion = likely_key(key, known.iter().copied());
        Err(item.place.wrong(format!("unknown key{suggestion} Known here: {}", known.join(", "))))
    }
}

/// Which known key a misspelt one may mean, as the end of a sentence: `; did you mean ...?`, or a full stop where none is like it.
pub fn likely_key<'a>(key: &str, known: impl Iterator<Item = &'a str>) -> String {
    likeliest(key, known).map_or(".".to_owned(), |known| format!("; did you mean `{known}`?"))
}

/// The known word that was probably meant, if any.
pub fn likeliest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let likely = known.map(|known| (key_likeness(word, known), known)).filter(|(likeness, _)| *likeness > 0.75);
    likely.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, known)| known)
}

/// How much a misspelt key is like a known one: above 1 where the known one has all its words, which may be shorter, as those of a flag.
fn key_likeness(key: &str, known: &str) -> f64 {
    let mut words = known.split('_');
    let has_all = key.split('_').all(|begin| words.any(|word| !begin.is_empty() && word.starts_with(begin)));
    strsim::jaro_winkler(key, known) + f64::from(u8::from(has_all))
}

/// A flag's text as the value that a file would contain without quotes, else as text. A comma separates the items of a
/// list.
fn value_of_flag(text: String) -> Value {
    if text.contains(',') {
        let item = |text: &str| Item { place: Place::flag(text), value: value_of_flag(text.trim().to_owned()) };
        return Value::List(text.split(',').map(item).collect());
    }
    match (text.parse(), text.parse(), text.parse()) {
        (Ok(whole), _, _) => Value::Whole(whole),
        (_, Ok(truth), _) => Value::Truth(truth),
        (_, _, Ok(fraction)) => Value::Fraction(fraction),
        _ => Value::Text(text),
    }
}

/// A file, and where each of its lines ends.
struct Source<'a> {
    file: &'a Path,
    line_ends: Vec<usize>,
}

impl Source<'_> {
    fn new<'a>(file: &'a Path, text: &str) -> Source<'a> {
        Source { file, line_ends: text.match_indices('\n').map(|(at, _)| at).collect() }
    }

    /// File and line of a byte.
    fn place_of(&self, offset: usize) -> PathBuf {
        at_line(self.file, 1 + self.line_ends.partition_point(|end| *end < offset))
    }
}

fn at_line(file: &Path, line: usize) -> PathBuf {
    let mut named = file.as_os_str().to_owned();
    named.push(format!(":{line}"));
    named.into()
}

fn table(source: &Source, place: Place, path: &str, table: DeTable) -> Table {
    let entries = table.into_iter().map(|(key, value)| {
        let line = source.place_of(key.span().start);
        let key = key.into_inner().into_owned();
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        (key, item(source, Place { source: line, key: path }, value.into_inner()))
    });
    Table { place, entries: entries.collect(), known: Vec::new() }
}

fn item(source: &Source, place: Place, value: DeValue) -> Item {
    let value = match value {
        DeValue::String(text) => Value::Text(text.into_owned()),
        // An integer that TOML accepts but that does not fit 128 bits is shown to the user unchanged.
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
                    let line = source.place_of(value.span().start);
                    let place = Place { source: line, key: format!("{}[{index}]", place.key) };
                    item(source, place, value.into_inner())
                })
                .collect(),
        ),
        DeValue::Table(inner) => Value::Table(table(source, place.clone(), &place.key, inner)),
    };
    Item { place, value }
}

// The values of a document, read by type; an error names the place, the value found and what is accepted.
//
// All files are read by these functions, so that equal mistakes get equal messages.

impl From<Table> for Item {
    fn from(table: Table) -> Item {
        Item { place: table.place.clone(), value: Value::Table(table) }
    }
}

impl Item {
    /// A value written as the text of a flag.
    pub fn of_text(text: &str, place: &Place) -> Item {
        Item { place: place.clone(), value: value_of_flag(text.to_owned()) }
    }

    /// A usage error that names this value's place.
    pub fn wrong(&self, problem: impl Display) -> Error {
        self.place.wrong(problem)
    }

    /// A text.
    pub fn text(&self) -> Result<&str> {
        match &self.value {
            Value::Text(text) => Ok(text),
            other => Err(self.wrong(format!("{}; accepted: a text in quotes", found(other)))),
        }
    }

    /// A text that is not empty.
    pub fn text_such_as(&self, example: &str) -> Result<&str> {
        match &self.value {
            Value::Text(text) if !text.trim().is_empty() => Ok(text),
            other => Err(self.wrong(format!("{}; accepted: a text such as {example:?}", found(other)))),
        }
    }

    /// A duration with its unit.
    pub fn seconds(&self) -> Result<Seconds> {
        parse_seconds(self.text_such_as("2ms")?).map_err(|problem| self.wrong(problem))
    }

    /// A whole number within a range.
    pub fn whole(&self, range: RangeInclusive<u64>) -> Result<u64> {
        let accepted = || format!("accepted: a whole number from {} to {}", range.start(), range.end());
        match &self.value {
            Value::Whole(number) => u64::try_from(*number)
                .ok()
                .filter(|number| range.contains(number))
                .ok_or_else(|| self.wrong(format!("found {number}; {}", accepted()))),
            other => Err(self.wrong(format!("{}; {}", found(other), accepted()))),
        }
    }

    /// A whole number from 1 that fits 32 bits.
    pub fn count(&self) -> Result<u32> {
        self.count_within(1..=u32::MAX)
    }

    /// A whole number within a range that fits 32 bits.
    pub fn count_within(&self, range: RangeInclusive<u32>) -> Result<u32> {
        Ok(self.whole(u64::from(*range.start())..=u64::from(*range.end()))? as u32)
    }

    /// A number above `low` and up to `high`.
    pub fn fraction(&self, low: f64, high: f64) -> Result<f64> {
        self.number_where(|number| number > low && number <= high, &format!("a number above {low} and up to {high}"))
    }

    /// A number within a range, ends included.
    pub fn number_within(&self, range: RangeInclusive<f64>) -> Result<f64> {
        let accepted = format!("a number from {} to {}", range.start(), range.end());
        self.number_where(|number| range.contains(&number), &accepted)
    }

    /// NaN is in no range, so it is refused with the numbers outside.
    fn number_where(&self, is_accepted: impl Fn(f64) -> bool, accepted: &str) -> Result<f64> {
        let number = match self.value {
            Value::Whole(number) => Some(number as f64),
            Value::Fraction(number) => Some(number),
            _ => None,
        };
        number
            .filter(|number| is_accepted(*number))
            .ok_or_else(|| self.wrong(format!("{}; accepted: {accepted}", found(&self.value))))
    }

    /// `true` or `false`.
    pub fn truth(&self) -> Result<bool> {
        match &self.value {
            Value::Truth(truth) => Ok(*truth),
            other => Err(self.wrong(format!("{}; accepted: true or false", found(other)))),
        }
    }

    /// A text read by `parse`, whose error names the value found and what is accepted.
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
            other => Err(self.place.wrong(format!("{}; accepted: a table", found(&other)))),
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

    /// What each item of a list, or a single value, means.
    pub fn each<T>(self, read: impl Fn(&Item) -> Result<T>) -> Result<Vec<T>> {
        self.items()?.iter().map(read).collect()
    }

    /// What each text of a list, or a single text, means.
    pub fn each_parsed<T>(self, parse: impl Fn(&str) -> std::result::Result<T, String>) -> Result<Vec<T>> {
        self.each(|item| item.parsed(&parse))
    }
}

impl Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Value::Text(text) | Value::Date(text) => f.write_str(text),
            Value::Whole(number) => number.fmt(f),
            Value::Fraction(number) => number.fmt(f),
            Value::Truth(truth) => truth.fmt(f),
            Value::List(items) => {
                let texts: Vec<String> = items.iter().map(|item| item.value.to_string()).collect();
                f.write_str(&texts.join(","))
            }
            Value::Table(_) | Value::Missing(_) => Ok(()),
        }
    }
}

/// What is at the place of a value, as the beginning of a complaint.
pub(super) fn found(value: &Value) -> String {
    match value {
        Value::Text(text) => format!("found the text \"{text}\""),
        Value::Whole(_) | Value::Fraction(_) | Value::Truth(_) => format!("found {value}"),
        Value::List(_) => "found a list".to_owned(),
        Value::Table(_) => "found a table".to_owned(),
        Value::Date(text) => format!("found `{text}`"),
        Value::Missing(key) => format!("`{key}` is missing"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

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
    fn a_misspelt_key_is_named_before_the_key_that_is_missing_for_it() {
        let root = parse("colectives = 'all'\nbytes = 8").unwrap();
        let message = root.only(&["bytes", "collectives"]).unwrap_err().to_string();
        assert_eq!(
            message,
            "suite.toml:1: colectives: unknown key; did you mean `collectives`? Known here: bytes, collectives"
        );
        assert!(root.only(&["bytes", "colectives", "roots"]).is_ok());
    }

    #[test]
    fn a_key_written_as_its_flag_is_recognised_by_its_words() {
        for (key, meant) in [("dispatch_type", "dispatch_element_type"), ("grad_type", "gradient_element_type")] {
            let root = parse(&format!("{key} = 'fp16'")).unwrap();
            let message = root.only(&["dispatcher", "grade", meant, "schedule"]).unwrap_err().to_string();
            assert!(message.contains(&format!("did you mean `{meant}`?")), "{message}");
        }
    }

    #[test]
    fn tables_may_be_several_one_or_none() {
        for (text, keys) in [
            ("[[sweep]]\n[[sweep]]", vec!["sweep[0]", "sweep[1]"]),
            ("[sweep]", vec!["sweep"]),
            ("sweep = []", vec![]),
            ("", vec![]),
        ] {
            let tables = parse(text).unwrap().tables("sweep").expect(text);
            let found: Vec<&str> = tables.iter().map(|table| table.place.key.as_str()).collect();
            assert_eq!(found, keys, "{text}");
        }
        for text in ["sweep = 3", "sweep = [3]"] {
            let message = parse(text).unwrap().tables("sweep").expect_err(text).to_string();
            assert!(message.ends_with("found 3; accepted: a table"), "{message}");
        }
    }

    #[test]
    fn text_that_is_not_toml_is_refused_with_its_line() {
        let message = parse("name = 'x'\nwhat\n").unwrap_err().to_string();
        assert!(message.starts_with("suite.toml:2: not TOML: "), "{message}");
    }

    /// The only value of a file, whose key is `a`.
    fn value(text: &str) -> Item {
        Table::parse(Path::new("suite.toml"), &format!("a = {text}")).unwrap().take("a").unwrap()
    }

    fn check<T: std::fmt::Debug>(read: impl Fn(&Item) -> Result<T>, refused: &[&str], problem: &str) {
        for text in refused {
            let message = read(&value(text)).expect_err(text).to_string();
            assert!(message.starts_with("suite.toml:1: a") && message.ends_with(problem), "{text}: {message}");
        }
    }

    #[test]
    fn values_out_of_range_or_of_another_type_are_refused_with_what_is_accepted() {
        check(
            |item| item.count_within(0..=9),
            &["-1", "10", "1.0", "'1'", "[1]"],
            "accepted: a whole number from 0 to 9",
        );
        let numbers = "accepted: a number from 0.5 to 1";
        check(|item| item.number_within(0.5..=1.0), &["0.4", "2", "nan", "inf", "'1'", "true"], numbers);
        check(|item| item.fraction(0.0, 1.0), &["0", "1.5", "nan", "'1'"], "accepted: a number above 0 and up to 1");
        check(Item::seconds, &["2", "''"], "accepted: a text such as \"2ms\"");
    }

    #[test]
    fn the_ends_of_a_range_are_accepted() {
        assert_eq!(value("4294967295").count_within(0..=u32::MAX).unwrap(), u32::MAX);
        assert_eq!([value("0.5"), value("1")].map(|item| item.number_within(0.5..=1.0).unwrap()), [0.5, 1.0]);
        assert_eq!(value("1").fraction(0.0, 1.0).unwrap(), 1.0);
        assert_eq!(value("'2ms'").seconds().unwrap(), Seconds(2e-3));
    }

    #[test]
    fn a_value_of_the_wrong_type_is_refused_with_what_is_accepted() {
        let mut root = Table::parse(Path::new("suite.toml"), "a = 'x'\nb = -1\nc = [1, 'y']\nd = 1.5").unwrap();
        let mut item = |key| root.take(key).unwrap();
        let message = item("a").count().unwrap_err().to_string();
        assert_eq!(message, "suite.toml:1: a: found the text \"x\"; accepted: a whole number from 1 to 4294967295");
        assert!(item("b").count().unwrap_err().to_string().contains("b: found -1; accepted"));
        let message = item("c").items().unwrap()[1].count().unwrap_err().to_string();
        assert!(message.starts_with("suite.toml:3: c[1]: found"), "{message}");
        assert!(item("d").text().unwrap_err().to_string().contains("found 1.5; accepted: a text"));
    }
}
