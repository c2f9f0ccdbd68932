//! The values of a document, read by type; an error names the place, the value found and what is accepted.
//!
//! All files are read by these functions, so that equal mistakes get equal messages.

use super::{Item, Table, Value};
use commgauge_base::error::{Error, Result};
use commgauge_base::units::{Rate, Seconds, parse_rate, parse_seconds};
use std::fmt::Display;
use std::ops::RangeInclusive;

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

    /// A text that is not empty.
    pub fn text_such_as(&self, example: &str) -> Result<&str> {
        match &self.value {
            Value::Text(text) if !text.trim().is_empty() => Ok(text),
            other => Err(self.wrong(format!("found {}; accepted: a text such as {example:?}", describe(other)))),
        }
    }

    /// A duration with its unit.
    pub fn seconds(&self) -> Result<Seconds> {
        parse_seconds(self.text_such_as("2ms")?).map_err(|problem| self.wrong(problem))
    }

    /// A rate with its unit.
    pub fn rate(&self) -> Result<Rate> {
        let text = self.text_such_as("25GB/s")?;
        let rate = parse_rate(text).map_err(|problem| self.wrong(problem))?;
        if rate.0.is_finite() { Ok(rate) } else { Err(self.wrong(format!("found `{text}`, more than any link"))) }
    }

    /// A whole number within a range.
    pub fn whole(&self, range: RangeInclusive<u64>) -> Result<u64> {
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
        self.count_within(1..=u32::MAX)
    }

    /// A whole number within a range that fits 32 bits.
    pub fn count_within(&self, range: RangeInclusive<u32>) -> Result<u32> {
        Ok(self.whole(u64::from(*range.start())..=u64::from(*range.end()))? as u32)
    }

    /// Two whole numbers within a range.
    pub fn pair_of_counts(&self, range: RangeInclusive<u32>) -> Result<[u32; 2]> {
        match &self.value {
            Value::List(items) if items.len() == 2 => {
                Ok([items[0].count_within(range.clone())?, items[1].count_within(range)?])
            }
            other => {
                let accepted = "accepted: two whole numbers such as [0, 1]";
                Err(self.wrong(format!("found {}; {accepted}", describe(other))))
            }
        }
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
            .ok_or_else(|| self.wrong(format!("found {}; accepted: {accepted}", describe(&self.value))))
    }

    /// `true` or `false`.
    pub fn truth(&self) -> Result<bool> {
        match &self.value {
            Value::Truth(truth) => Ok(*truth),
            other => Err(self.wrong(format!("found {}; accepted: true or false", describe(other)))),
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

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
        let pair = "accepted: two whole numbers such as [0, 1]";
        check(|item| item.pair_of_counts(0..=9), &["1", "[]", "[1]", "[1, 2, 3]", "{ b = 1 }"], pair);
        check(|item| item.pair_of_counts(0..=9), &["[1, 10]", "['x', 1]"], "accepted: a whole number from 0 to 9");
        check(Item::seconds, &["2", "''"], "accepted: a text such as \"2ms\"");
        check(Item::rate, &["25", "' '"], "accepted: a text such as \"25GB/s\"");
        let vast = format!("'{}TB/s'", "9".repeat(400));
        check(Item::rate, &[&vast], "more than any link");
    }

    #[test]
    fn the_ends_of_a_range_are_accepted() {
        assert_eq!(value("[0, 9]").pair_of_counts(0..=9).unwrap(), [0, 9]);
        assert_eq!(value("4294967295").count_within(0..=u32::MAX).unwrap(), u32::MAX);
        assert_eq!([value("0.5"), value("1")].map(|item| item.number_within(0.5..=1.0).unwrap()), [0.5, 1.0]);
        assert_eq!(value("1").fraction(0.0, 1.0).unwrap(), 1.0);
        assert_eq!((value("'2ms'").seconds().unwrap(), value("'1kB/s'").rate().unwrap()), (Seconds(2e-3), Rate(1e3)));
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
