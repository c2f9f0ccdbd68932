//! A JSON object with a long list, whose elements are passed on one by one: a trace of a real job is larger than memory.

use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use std::fmt;
use std::io::Read;
use std::marker::PhantomData;

/// A part of the object.
pub(super) enum Part<T> {
    Element(T),
    /// The other value.
    Other(Value),
}

/// Passes on the elements of the list under `list`, and the value under `other`, if any, in file order; ignores the rest.
///
/// # Errors
/// If the text is truncated or is not such an object; everything before that was passed on.
pub(super) fn read<T: DeserializeOwned>(
    source: impl Read,
    list: &'static str,
    other: Option<&'static str>,
    take: &mut dyn FnMut(Part<T>),
) -> Result<(), serde_json::Error> {
    let mut json = serde_json::Deserializer::from_reader(source);
    Whole { list, other, take }.deserialize(&mut json)?;
    json.end()
}

struct Whole<'a, T> {
    list: &'static str,
    other: Option<&'static str>,
    take: &'a mut dyn FnMut(Part<T>),
}

impl<'de, T: DeserializeOwned> DeserializeSeed<'de> for Whole<'_, T> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, T: DeserializeOwned> Visitor<'de> for Whole<'_, T> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a trace with {}", self.list)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            if key == self.list {
                map.next_value_seed(Elements { take: &mut *self.take, of: PhantomData })?;
            } else if Some(key.as_str()) == self.other {
                (self.take)(Part::Other(map.next_value()?));
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

struct Elements<'a, T> {
    take: &'a mut dyn FnMut(Part<T>),
    of: PhantomData<T>,
}

impl<'de, T: DeserializeOwned> DeserializeSeed<'de> for Elements<'_, T> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de, T: DeserializeOwned> Visitor<'de> for Elements<'_, T> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while let Some(element) = list.next_element::<T>()? {
            (self.take)(Part::Element(element));
        }
        Ok(())
    }
}
