//! What the doctor says, as its JSON document.

use crate::common;

use common::{COMMGAUGE, Ran};
use serde_json::Value;
use std::process::Command;

/// The document of a doctor that ends with `code`; it must fit its schema.
pub fn doctor(change: impl FnOnce(&mut Command), code: i32) -> Value {
    let mut command = Command::new(COMMGAUGE);
    command.args(["doctor", "--format", "json"]);
    change(&mut command);
    let text = Ran::of(&mut command, 60).ended_with(code).stdout;
    let document: Value = serde_json::from_str(&text).expect("one JSON document");
    common::fits_schema("doctor", &document);
    document
}

/// What was found of an item, with its state.
pub fn found(document: &Value, section: &str, item: &str) -> String {
    let sections = document["sections"].as_array().unwrap();
    let section = sections.iter().find(|one| one["name"] == section).expect("a section");
    let finding = section["findings"].as_array().unwrap().iter().find(|one| one["item"] == item);
    let finding = finding.unwrap_or_else(|| panic!("no {item} in {section}"));
    format!("{}: {}", finding["state"].as_str().unwrap(), finding["found"].as_str().unwrap())
}

pub fn backend<'a>(document: &'a Value, name: &str) -> &'a Value {
    document["backends"].as_array().unwrap().iter().find(|one| one["name"] == name).expect("a backend")
}
