//! The name and version of a published document, in its schema.

use serde_json::Value;

/// A document's schema with its name and version, both also as constants, which the types cannot express.
pub(super) fn published(mut schema: Value, format: &str, version: u32, title: &str) -> Value {
    if let Some(root) = schema.as_object_mut() {
        root.insert("$id".to_owned(), serde_json::json!(format!("urn:{format}:{version}")));
        root.insert("title".to_owned(), serde_json::json!(title));
        root.insert("version".to_owned(), serde_json::json!(version));
    }
    for (property, value) in [
        ("format", serde_json::json!(format)),
        ("version", serde_json::json!(version)),
        ("schema_version", serde_json::json!(version)),
    ] {
        if let Some(Value::Object(facts)) = schema.pointer_mut(&format!("/properties/{property}")) {
            facts.insert("const".to_owned(), value);
        }
    }
    schema
}
