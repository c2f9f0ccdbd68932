//! JSON in which no object has a key twice: of two values of one key, nobody knows which was meant.
//!
//! Python writes infinite numbers as `Infinity`, which JSON does not have (`time_step_limit` of Mamba-2); they are read as null.

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::borrow::Cow;

/// Parses a text.
///
/// # Errors
/// Where it is not JSON, or an object has a key twice: with line and column, and without the name of the file.
pub(super) fn parse(text: &str) -> Result<Value, String> {
    serde_json::from_str::<Unique>(&without_python_constants(text)).map(|unique| unique.0).map_err(|cause| {
        let problem = cause.to_string();
        let (line, column) = (cause.line(), cause.column());
        match problem.split_once(TWICE) {
            Some((key, _)) => format!("{line}: {key}{TWICE}; leave one of them"),
            None => format!("{line}:{column}: not JSON: {problem}"),
        }
    })
}

/// The text with null in place of Python's infinities outside of strings: lines and columns stay what they were.
fn without_python_constants(text: &str) -> Cow<'_, str> {
    if !text.contains("Infinity") {
        return Cow::Borrowed(text);
    }
    let (mut out, mut rest, mut in_string) = (String::with_capacity(text.len()), text, false);
    while let Some(first) = rest.chars().next() {
        let infinity = INFINITIES.iter().find(|(written, _)| !in_string && rest.starts_with(written));
        let length = match (infinity, first) {
            (Some((written, _)), _) => written.len(),
            (None, '\\') if in_string => 1 + rest[1..].chars().next().map_or(0, char::len_utf8),
            (None, _) => first.len_utf8(),
        };
        in_string ^= first == '"';
        out.push_str(infinity.map_or(&rest[..length], |(_, replaced)| replaced));
        rest = &rest[length..];
    }
    Cow::Owned(out)
}

/// What Python's json module writes, and as long a text that is read as nothing.
const INFINITIES: [(&str, &str); 2] = [("-Infinity", "     null"), ("Infinity", "    null")];

const TWICE: &str = ": stands twice in one object";

struct Unique(Value);

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Values).map(Unique)
    }
}

struct Values;

impl<'de> Visitor<'de> for Values {
    type Value = Value;

    fn expecting(&self, formatter: &mut std::fmt::Formatter) -> std::fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut all = Vec::new();
        while let Some(Unique(item)) = items.next_element()? {
            all.push(item);
        }
        Ok(all.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut all = Map::new();
        while let Some(key) = fields.next_key::<String>()? {
            if all.contains_key(&key) {
                return Err(A::Error::custom(format!("{key}{TWICE}")));
            }
            let Unique(value) = fields.next_value()?;
            all.insert(key, value);
        }
        Ok(all.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_stands_twice_is_named_with_its_line_and_everything_else_reads_as_before() {
        let twice = "{\n \"a\": 1,\n \"b\": {\"c\": [2]},\n \"a\": 3\n}";
        assert_eq!(parse(twice).unwrap_err(), "4: a: stands twice in one object; leave one of them");
        let nested = "{\"a\": [{\"x\": 1,\n\"x\": 1}]}";
        assert_eq!(parse(nested).unwrap_err(), "2: x: stands twice in one object; leave one of them");
        let text = r#"{"a": [1, -2, 2.5e3, true, null, "é"], "b": {"a": {}}, "c": 18446744073709551615}"#;
        assert_eq!(parse(text).unwrap(), serde_json::from_str::<Value>(text).unwrap());
        assert!(parse("{\n\"a\": ").unwrap_err().starts_with("2:5: not JSON: EOF"));
    }

    #[test]
    fn infinite_numbers_as_python_writes_them_are_read_as_null_and_left_alone_in_texts() {
        let text = r#"{"a": [0.0, Infinity], "b": -Infinity, "c": "Infinity \" é \\", "d": {"Infinity": "\\"}, "e": Infinity}"#;
        let read = parse(text).unwrap();
        assert_eq!(read["a"], serde_json::json!([0.0, null]));
        assert_eq!((&read["b"], &read["e"]), (&Value::Null, &Value::Null));
        assert_eq!((read["c"].as_str(), read["d"]["Infinity"].as_str()), (Some("Infinity \" é \\"), Some("\\")));
        assert!(parse("{\"a\": Infinity, \"b\": }").unwrap_err().starts_with("1:22: not JSON"));
        assert!(parse("\"\\").is_err() && parse("Infinity\"\\").is_err());
    }
}
