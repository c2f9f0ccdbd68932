//! A document read by serde: the fields of a type are the keys of its table, and each refusal names place, value and what is accepted.
//!
//! Quantities are text with a unit, both ways ([`Written`]); ranges are given to `deserialize_with`.

use super::document::{Item, Place, Table, Value, found};
use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use commgauge_base::error::{Error, Result};
use commgauge_base::units::{Bytes, Rate, Seconds, parse_rate, parse_seconds};
use serde::de::value::{BorrowedStrDeserializer, MapAccessDeserializer};
use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, Expected, MapAccess, SeqAccess, Unexpected, Visitor};
use serde::{Deserialize, Serialize, Serializer, forward_to_deserialize_any};
use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeInclusive;

impl Item {
    /// The value as a type.
    ///
    /// # Errors
    /// What is refused, with its place. Where a key is missing, the reader of its value says what is accepted: it is asked in a second
    /// pass, with a stand-in for the value.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T> {
        let mut read = read_part(self, None, PhantomData);
        if let Err(Refused::LacksAt(place, key)) = read {
            let stand_in = Item { place, value: Value::Missing(key) };
            read = read_part(self, Some(&stand_in), PhantomData);
        }
        read.map_err(|refused| match refused {
            Refused::Placed(error) => error,
            other => self.wrong(other),
        })
    }
}

type Read<T> = std::result::Result<T, Refused>;

/// Why a value was refused. Readers of single values do not know its place; whoever hands them the value adds it.
#[derive(Debug)]
enum Refused {
    Accepted(String),
    Wrong(String),
    Lacks(&'static str),
    LacksAt(Place, &'static str),
    Placed(Error),
}

impl Refused {
    fn at(self, item: &Item) -> Refused {
        match self {
            Refused::Accepted(accepted) => {
                Refused::Placed(item.wrong(format!("{}; accepted: {accepted}", found(&item.value))))
            }
            Refused::Wrong(problem) => Refused::Placed(item.wrong(problem)),
            Refused::Lacks(key) => Refused::LacksAt(item.place.clone(), key),
            placed => placed,
        }
    }
}

impl From<Error> for Refused {
    fn from(error: Error) -> Refused {
        Refused::Placed(error)
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl std::error::Error for Refused {}

impl serde::de::Error for Refused {
    fn custom<T: fmt::Display>(problem: T) -> Refused {
        Refused::Wrong(problem.to_string())
    }

    fn invalid_type(_: Unexpected, accepted: &dyn Expected) -> Refused {
        Refused::Accepted(accepted.to_string())
    }

    fn invalid_length(_: usize, accepted: &dyn Expected) -> Refused {
        Refused::Accepted(accepted.to_string())
    }

    fn missing_field(key: &'static str) -> Refused {
        Refused::Lacks(key)
    }
}

#[derive(Clone, Copy)]
struct Reader<'a> {
    item: &'a Item,
    /// The value of a missing key; its place is that of the table.
    stand_in: Option<&'a Item>,
}

/// The values of a table with their keys, or those of a list.
struct Parts<'a> {
    rest: std::vec::IntoIter<(&'a str, &'a Item)>,
    current: Option<&'a Item>,
    stand_in: Option<&'a Item>,
}

impl<'a> Reader<'a> {
    fn parts(&self, rest: impl Iterator<Item = (&'a str, &'a Item)>) -> Parts<'a> {
        let rest: Vec<_> = rest.collect();
        Parts { rest: rest.into_iter(), current: None, stand_in: self.stand_in }
    }

    /// Entries of a table, with the stand-in where it is missing there.
    fn entries(&self, table: &'a Table, entries: impl Iterator<Item = (&'a String, &'a Item)>) -> Parts<'a> {
        let missing = |item: &'a Item| match item.value {
            Value::Missing(key) if item.place == table.place => Some((key, item)),
            _ => None,
        };
        let entries = entries.map(|(key, item)| (key.as_str(), item));
        self.parts(entries.chain(self.stand_in.and_then(missing)))
    }

    fn elements(&self, items: &'a [Item]) -> Parts<'a> {
        self.parts(items.iter().map(|item| ("", item)))
    }
}

fn read_part<'de, S: DeserializeSeed<'de>>(item: &'de Item, stand_in: Option<&'de Item>, seed: S) -> Read<S::Value> {
    seed.deserialize(Reader { item, stand_in }).map_err(|refused| refused.at(item))
}

impl<'de> MapAccess<'de> for Parts<'de> {
    type Error = Refused;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Read<Option<K::Value>> {
        let Some((key, item)) = self.rest.next() else { return Ok(None) };
        self.current = Some(item);
        seed.deserialize(BorrowedStrDeserializer::new(key)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Read<V::Value> {
        let item = self.current.take().ok_or_else(|| Refused::Wrong("asked for a value before its key".to_owned()))?;
        read_part(item, self.stand_in, seed)
    }
}

impl<'de> SeqAccess<'de> for Parts<'de> {
    type Error = Refused;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Read<Option<S::Value>> {
        self.rest.next().map(|(_, item)| read_part(item, self.stand_in, seed)).transpose()
    }
}

impl<'de> Deserializer<'de> for Reader<'de> {
    type Error = Refused;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        match &self.item.value {
            Value::Text(text) => visitor.visit_borrowed_str(text),
            Value::Whole(number) => match u64::try_from(*number) {
                Ok(number) => visitor.visit_u64(number),
                Err(_) => visitor.visit_i128(*number),
            },
            Value::Fraction(number) => visitor.visit_f64(*number),
            Value::Truth(truth) => visitor.visit_bool(*truth),
            Value::List(items) => visitor.visit_seq(self.elements(items)),
            Value::Table(table) => visitor.visit_map(self.entries(table, table.entries.iter())),
            Value::Date(_) | Value::Missing(_) => Err(Refused::Accepted((&visitor as &dyn Expected).to_string())),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        visitor.visit_bool(self.item.truth()?)
    }

    fn deserialize_u32<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        visitor.visit_u32(self.item.count_within(0..=u32::MAX)?)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        match self.item.value {
            Value::Whole(_) | Value::Fraction(_) => self.deserialize_any(visitor),
            _ => Err(Refused::Accepted("a number".to_owned())),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        match &self.item.value {
            Value::Text(text) if !text.trim().is_empty() => visitor.visit_borrowed_str(text),
            _ => Err(Refused::Accepted("a text in quotes, not blank".to_owned())),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        visitor.visit_some(self)
    }

    /// A single value is a list of one. Only a file itself may have an empty list, such as `faults = []`.
    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        match &self.item.value {
            Value::List(items) if items.is_empty() && self.item.place.is_nested() => {
                Err(Refused::Wrong("found an empty list; name at least one".to_owned()))
            }
            Value::List(items) => visitor.visit_seq(self.elements(items)),
            _ => visitor.visit_seq(self.elements(std::slice::from_ref(self.item))),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        keys: &'static [&'static str],
        visitor: V,
    ) -> Read<V::Value> {
        let Value::Table(table) = &self.item.value else {
            return Err(Refused::Accepted(format!("a table with {}", keys.join(", "))));
        };
        table.only(keys)?;
        // In the order of the fields, so that the first one that is wrong is named.
        let entries = keys.iter().filter_map(|key| table.entries.get_key_value(*key));
        visitor.visit_map(self.entries(table, entries))
    }

    /// A name, or a table with the variant as its only key.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        names: &'static [&'static str],
        visitor: V,
    ) -> Read<V::Value> {
        match &self.item.value {
            Value::Text(text) if names.contains(&text.as_str()) => {
                visitor.visit_enum(BorrowedStrDeserializer::new(text))
            }
            Value::Text(text) => Err(Refused::Wrong(format!("found `{text}`; accepted: {}", names.join(", ")))),
            Value::Table(table) => {
                visitor.visit_enum(MapAccessDeserializer::new(self.entries(table, table.entries.iter())))
            }
            _ => Err(Refused::Accepted(names.join(", "))),
        }
    }

    forward_to_deserialize_any! {
        newtype_struct i8 i16 i32 i64 i128 u8 u16 u64 u128 f32 char str bytes byte_buf unit unit_struct tuple tuple_struct map
        identifier ignored_any
    }
}

/// A value as a reader of one field finds it.
pub enum Found<'a> {
    /// A text.
    Text(&'a str),
    /// A whole number that is not negative.
    Whole(u64),
    /// Any other number.
    Number(f64),
}

/// Reads a value; none where it is not what is accepted.
pub fn accepting<'de, D: Deserializer<'de>, T>(
    from: D,
    accepted: String,
    read: impl FnOnce(Found) -> Option<std::result::Result<T, String>>,
) -> std::result::Result<T, D::Error> {
    from.deserialize_any(Accepting { accepted, read })
}

struct Accepting<F> {
    accepted: String,
    read: F,
}

impl<F> Accepting<F> {
    fn visit<T, E: serde::de::Error>(self, value: Found) -> std::result::Result<T, E>
    where
        F: FnOnce(Found) -> Option<std::result::Result<T, String>>,
    {
        let Accepting { accepted, read } = self;
        read(value).ok_or_else(|| E::invalid_type(Unexpected::Unit, &accepted.as_str()))?.map_err(E::custom)
    }
}

impl<T, F: FnOnce(Found) -> Option<std::result::Result<T, String>>> Visitor<'_> for Accepting<F> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.accepted)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> std::result::Result<T, E> {
        self.visit(Found::Text(text))
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> std::result::Result<T, E> {
        self.visit(Found::Whole(number))
    }

    fn visit_i64<E: serde::de::Error>(self, number: i64) -> std::result::Result<T, E> {
        self.visit(u64::try_from(number).map_or(Found::Number(number as f64), Found::Whole))
    }

    fn visit_f64<E: serde::de::Error>(self, number: f64) -> std::result::Result<T, E> {
        self.visit(Found::Number(number))
    }
}

/// A whole number within a range.
pub fn whole<'de, D: Deserializer<'de>>(from: D, range: RangeInclusive<u64>) -> std::result::Result<u64, D::Error> {
    let accepted = format!("a whole number from {} to {}", range.start(), range.end());
    accepting(from, accepted, |value| match value {
        Found::Whole(number) => range.contains(&number).then_some(Ok(number)),
        _ => None,
    })
}

/// A whole number within a range that fits 32 bits, or an optional one.
pub fn count<'de, D: Deserializer<'de>, T: From<u32>, const LOW: u32, const HIGH: u32>(
    from: D,
) -> std::result::Result<T, D::Error> {
    whole(from, LOW.into()..=HIGH.into()).map(|number| T::from(number as u32))
}

/// A number within a range, or an optional one.
pub fn number<'de, D: Deserializer<'de>, T: From<f64>>(
    from: D,
    range: RangeInclusive<f64>,
) -> std::result::Result<T, D::Error> {
    accepting(from, format!("a number from {} to {}", range.start(), range.end()), |value| match value {
        Found::Whole(number) => range.contains(&(number as f64)).then_some(Ok(T::from(number as f64))),
        Found::Number(number) => range.contains(&number).then_some(Ok(T::from(number))),
        Found::Text(_) => None,
    })
}

/// A time within a range, whose ends are in nanoseconds, or an optional one.
pub fn time<'de, D: Deserializer<'de>, T: From<Seconds>, const LOW: u64, const HIGH: u64>(
    from: D,
) -> std::result::Result<T, D::Error> {
    let [low, high] = [LOW, HIGH].map(|end| Seconds(end as f64 / 1e9));
    let range = format!("from {} to {}", low.to_text(), high.to_text());
    accepting(from, format!("a time such as \"2us\", {range}"), |value| {
        let Found::Text(text) = value else { return None };
        Some(Seconds::from_text(text).and_then(|time| match (low.0..=high.0).contains(&time.0) {
            true => Ok(T::from(time)),
            false => Err(format!("found `{text}`; accepted: {range}")),
        }))
    })
}

/// The longest latency, delay or jitter of a machine that works, in nanoseconds; virtual clocks could run over.
pub const SECOND: u64 = 1_000_000_000;

/// The TOML of a type that is written as it is read.
///
/// # Errors
/// None that a type of a file can have.
pub fn to_toml(tables: &impl Serialize) -> Result<String> {
    toml::to_string(tables).map_err(|error| Error::usage(format!("cannot be written as TOML: {error}")))
}

/// A value that files have as text.
pub trait Written: Sized + fmt::Display {
    /// What is accepted.
    const ACCEPTED: &'static str;

    /// The value of a text; the error says what was found and what is accepted.
    ///
    /// # Errors
    /// Another text.
    fn from_text(text: &str) -> std::result::Result<Self, String>;

    /// The text that [`Written::from_text`] reads as this very value.
    fn to_text(&self) -> String {
        self.to_string()
    }
}

/// A value that files have as text, in lists and where it may be absent; elsewhere fields say `with = "text"`.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Text<T>(pub T);

impl<T: Written> Serialize for Text<T> {
    fn serialize<S: Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        text::serialize(&self.0, to)
    }
}

impl<'de, T: Written> Deserialize<'de> for Text<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Text<T>, D::Error> {
        text::deserialize(from).map(Text)
    }
}

/// For `serde(with)`: a quantity as its text.
pub mod text {
    use super::{Deserializer, Found, Serializer, Written, accepting};

    pub fn serialize<T: Written, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&value.to_text())
    }

    pub fn deserialize<'de, T: Written, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
        accepting(from, T::ACCEPTED.to_owned(), |value| match value {
            Found::Text(text) if !text.trim().is_empty() => Some(T::from_text(text)),
            _ => None,
        })
    }
}

/// The units of rates and of times, each with its multiple of the base unit, as the readers of [`commgauge_base::units`] have it.
const OF_RATES: [(f64, &str); 5] = [(1e12, "TB/s"), (1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"), (1.0, "B/s")];

const OF_TIMES: [(f64, &str); 4] = [(1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")];

const OF_BYTES: [(u64, &str); 4] = [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];

/// A value in the largest unit of which it has at least one and in which it reads back bit by bit, else in the base unit.
fn in_unit(value: f64, units: &[(f64, &str)], base: &str) -> String {
    let exact = |(scale, unit): &(f64, &str)| {
        let number = (value / scale * 1e9).round() / 1e9;
        (value >= *scale && number * scale == value).then(|| format!("{number}{unit}"))
    };
    units.iter().find_map(exact).unwrap_or_else(|| format!("{value}{base}"))
}

/// A measured rate with four decimals.
pub fn rounded_rate(rate: Rate) -> Rate {
    Rate(rounded(rate.0, &OF_RATES))
}

/// A measured time with four decimals.
pub fn rounded_time(time: Seconds) -> Seconds {
    Seconds(rounded(time.0, &OF_TIMES))
}

/// A value with four decimals of the largest unit of which it has at least one.
fn rounded(value: f64, units: &[(f64, &str)]) -> f64 {
    let scale = units.iter().map(|(scale, _)| *scale).find(|scale| value >= *scale);
    let scale = scale.or(units.last().map(|(scale, _)| *scale)).unwrap_or(1.0);
    (value / scale * 1e4).round() / 1e4 * scale
}

impl Written for Rate {
    const ACCEPTED: &'static str = "a rate such as \"25GB/s\"";

    fn from_text(text: &str) -> std::result::Result<Rate, String> {
        let rate = parse_rate(text)?;
        if rate.0.is_finite() { Ok(rate) } else { Err(format!("found `{text}`, more than any link")) }
    }

    fn to_text(&self) -> String {
        in_unit(self.0, &OF_RATES, "B/s")
    }
}

impl Written for Seconds {
    const ACCEPTED: &'static str = "a time such as \"2us\"";

    fn from_text(text: &str) -> std::result::Result<Seconds, String> {
        parse_seconds(text)
    }

    fn to_text(&self) -> String {
        in_unit(self.0, &OF_TIMES, "s")
    }
}

impl Written for Bytes {
    const ACCEPTED: &'static str = "a size such as \"1GiB\"";

    fn from_text(text: &str) -> std::result::Result<Bytes, String> {
        Bytes::parse(text)
    }

    fn to_text(&self) -> String {
        let whole = OF_BYTES.iter().find(|(scale, _)| self.0 >= *scale && self.0.is_multiple_of(*scale));
        whole.map_or_else(|| format!("{}B", self.0), |(scale, unit)| format!("{}{unit}", self.0 / scale))
    }
}

impl Written for Collective {
    const ACCEPTED: &'static str = "a collective such as \"all_reduce\"";

    fn from_text(text: &str) -> std::result::Result<Collective, String> {
        text.parse()
    }
}

impl Written for ElementType {
    const ACCEPTED: &'static str = "an element type such as \"bfloat16\"";

    fn from_text(text: &str) -> std::result::Result<ElementType, String> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn reads_back<T: Written + PartialEq + std::fmt::Debug>(value: T) {
        let text = value.to_text();
        assert_eq!(T::from_text(&text), Ok(value), "{text}");
    }

    proptest! {
        #[test]
        fn every_quantity_reads_back_as_it_was_written(number in 1e-12..1e15_f64, bytes: u64, shift in 0..50_u32) {
            reads_back(Rate(number));
            reads_back(Seconds(number));
            [bytes, bytes >> shift, 1 << shift].into_iter().for_each(|bytes| reads_back(Bytes(bytes)));
        }

        #[test]
        fn every_figure_of_a_data_sheet_reads_back_as_it_was_written(figure in 1..100_000_u32, unit in 0..5_usize) {
            reads_back(Rate(f64::from(figure) / 100.0 * OF_RATES[unit].0));
            reads_back(Seconds(f64::from(figure) / 100.0 * OF_TIMES[unit.min(3)].0));
        }
    }

    #[test]
    fn quantities_are_written_in_the_largest_unit_of_which_they_have_one() {
        for (written, value) in [("450GB/s", 450e9), ("3.35TB/s", 3350e9), ("117MB/s", 117e6), ("0.5B/s", 0.5)] {
            assert_eq!(Rate(value).to_text(), written);
        }
        for (written, value) in [("3.4us", 3.4 * 1e-6), ("500ns", 500.0 * 1e-9), ("0s", 0.0), ("90s", 90.0)] {
            assert_eq!(Seconds(value).to_text(), written);
        }
        for (written, value) in [("512MiB", 512 << 20), ("1537B", 1537), ("1000000B", 1_000_000), ("2KiB", 2048)] {
            assert_eq!(Bytes(value).to_text(), written);
        }
    }

    #[test]
    fn a_rate_beyond_all_numbers_is_refused() {
        let vast = format!("{}TB/s", "9".repeat(400));
        assert!(Rate::from_text(&vast).unwrap_err().ends_with("more than any link"));
    }
}
