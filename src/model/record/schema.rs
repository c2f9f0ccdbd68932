//! The published JSON Schema of one line of a record, made from the types in [`super::line`].

use super::{FORMAT, Line, VERSION};
use serde_json::{Value, json};

/// The JSON Schema (draft 2020-12) of one line.
pub fn schema() -> Value {
    let mut schema = schemars::schema_for!(Line).to_value();
    if let Some(root) = schema.as_object_mut() {
        root.insert("$id".to_owned(), json!(format!("urn:{FORMAT}:{VERSION}")));
        root.insert("title".to_owned(), json!(format!("One line of a {FORMAT}, version {VERSION}")));
        root.insert("version".to_owned(), json!(VERSION));
    }
    // The types cannot express that these two are constants.
    for (property, value) in [("format", json!(FORMAT)), ("version", json!(VERSION))] {
        if let Some(Value::Object(facts)) = schema.pointer_mut(&format!("/$defs/Header/properties/{property}")) {
            facts.insert("const".to_owned(), value);
        }
    }
    if let Some(Value::Array(kinds)) = schema.get_mut("oneOf") {
        for facts in kinds.iter_mut().filter_map(|kind| kind.get_mut("properties")?.as_object_mut()) {
            facts.insert("sha256".to_owned(), digest());
        }
    }
    schema
}

/// The last key of every line, which the journal adds.
fn digest() -> Value {
    json!({
        "description": "SHA-256 of every byte of the file before this key, in hexadecimal: a chain over all lines, by which a line \
                        that was changed can be named. Always the last key; older versions have it in the end line alone.",
        "pattern": "^[0-9a-f]{64}$",
        "type": "string"
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_record_line_is_valid_and_an_unknown_one_is_not() {
        let validator = jsonschema::validator_for(&schema()).unwrap();
        for (index, text) in include_str!("../../../tests/data/sample-record.jsonl").lines().enumerate() {
            let line: Value = serde_json::from_str(text).unwrap();
            let errors: Vec<String> = validator.iter_errors(&line).map(|error| error.to_string()).collect();
            assert!(errors.is_empty(), "line {}: {errors:?}", index + 1);
        }
        assert!(!validator.is_valid(
            &json!({"line": "end", "status": "complete", "exit_code": 0, "elapsed_seconds": 1, "sha256": "?"})
        ));
        assert!(!validator.is_valid(&json!({"line": "poem"})));
        assert!(!validator.is_valid(&json!({"line": "end", "status": "complete"})), "the exit code is missing");
    }

    #[test]
    fn the_schema_names_its_version() {
        let schema = schema();
        assert_eq!(schema["$id"], "urn:commgauge-record:1");
        assert_eq!(schema.pointer("/$defs/Header/properties/version/const"), Some(&json!(1)));
    }
}
