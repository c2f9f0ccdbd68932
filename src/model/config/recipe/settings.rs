//! The settings of a YAML, JSON or TOML file, each as a dotted key with its text and its line.
//!
//! Of YAML it reads what recipes are written in: nested keys, lists, quoted texts, and braces on a line. Anchors are not followed.

use super::written::Written;
use crate::config::document::{Place, Table};
use crate::config::model::find::parse;
use commgauge_base::error::{Error, Result};
use commgauge_base::visible::ShownPath;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// Lists within lists are read this far.
const DEEPEST: usize = 64;

/// Reads a file by its ending.
///
/// # Errors
/// What is not JSON, TOML or such YAML, with its line, and keys with two values.
pub(super) fn settings(file: &Path, text: &str) -> Result<Vec<Written>> {
    let mut reader = Reader { file, lines: HashMap::new(), settings: Vec::new(), texts: BTreeMap::new() };
    let ending = file.extension().unwrap_or_default();
    if ending == "yaml" || ending == "yml" {
        reader.yaml(text)?;
    } else {
        let values = if ending == "toml" { toml_values(file, text)? } else { json_values(file, text)? };
        for (line, number) in text.lines().zip(1..) {
            let words = line.split(|one: char| !one.is_ascii_alphanumeric() && one != '_');
            words.for_each(|word| reader.lines.entry(word).or_default().push(number));
        }
        reader.values("", &values)?;
    }
    Ok(reader.followed())
}

fn toml_values(file: &Path, text: &str) -> Result<Value> {
    // Its errors name the line.
    let table = Table::parse(file, text)?;
    toml::from_str(text).map_err(|problem| table.place.wrong(problem))
}

fn json_values(file: &Path, text: &str) -> Result<Value> {
    parse(text).map_err(|problem| {
        let comments = text.lines().any(|line| line.trim_start().starts_with(['/', '#']));
        let hint = if comments { "; JSON has no comments, take them out" } else { "" };
        Error::usage(format!("{}:{problem}{hint}", file.shown()))
    })
}

struct Reader<'a> {
    file: &'a Path,
    /// The lines of each word of a text that is not YAML.
    lines: HashMap<&'a str, Vec<usize>>,
    settings: Vec<Written>,
    /// What each key is set to.
    texts: BTreeMap<String, String>,
}

impl<'a> Reader<'a> {
    fn add(&mut self, key: &str, text: &str, line: usize) -> Result<()> {
        let place = Place::on_line(self.file, line, key);
        let before = self.texts.insert(key.to_owned(), text.to_owned());
        if let Some(before) = before.filter(|_| !key.contains("[]")) {
            let problem = format!("has two values: `{before}` before and `{text}` here; accepted: one of them");
            return Err(place.wrong(problem));
        }
        let name = key.replace("--", "").replace('-', "_");
        self.settings.push(Written { key: name, text: text.to_owned(), place });
        Ok(())
    }

    /// The settings, with the text of a key where another one names it, as in `${trainer.devices}`.
    fn followed(self) -> Vec<Written> {
        let named = |text: &str| self.texts.get(text.strip_prefix("${")?.strip_suffix('}')?).cloned();
        let follow = |written: Written| Written { text: named(&written.text).unwrap_or(written.text), ..written };
        self.settings.into_iter().map(follow).collect()
    }

    fn values(&mut self, path: &str, value: &Value) -> Result<()> {
        let plain = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let text = match value {
            Value::Object(entries) => {
                return entries.iter().try_for_each(|(key, value)| self.values(&joined(path, key), value));
            }
            Value::Array(items) if items.iter().any(Value::is_object) => {
                return items.iter().try_for_each(|item| self.values(&format!("{path}[]"), item));
            }
            Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(","),
            other => plain(other),
        };
        // The first line of its name that is not above those around it.
        let line = path.split(['.', '[']).fold(1, |above, word| {
            let lines = self.lines.get(word).map_or(&[][..], Vec::as_slice);
            lines.get(lines.partition_point(|line| *line < above)).copied().unwrap_or(above)
        });
        self.add(path, &text, line)
    }

    fn yaml(&mut self, text: &str) -> Result<()> {
        // Keys around the line, each with its indentation.
        let mut around: Vec<(usize, String)> = Vec::new();
        // Lines of a text that begins after `|` or `>` are indented by more than this.
        let mut of_text: Option<usize> = None;
        for (whole, line) in text.trim_start_matches('\u{feff}').lines().zip(1..) {
            let content = without_comment(whole).trim_end();
            let mut indent = content.len() - content.trim_start_matches(' ').len();
            let mut content = &content[indent..];
            if content.is_empty() || content == "---" || of_text.is_some_and(|least| indent > least) {
                continue;
            }
            of_text = None;
            let wrong = |problem: &str| Err(Place::on_line(self.file, line, "not YAML").wrong(problem));
            if content.starts_with('\t') {
                return wrong("found a tab before a key; accepted: blanks");
            }
            while let Some(item) = content.strip_prefix('-').filter(|item| item.is_empty() || item.starts_with(' ')) {
                around.retain(|(outer, key)| *outer < indent || *outer == indent && !key.ends_with("[]"));
                if around.len() > DEEPEST {
                    return wrong("found more lists within lists than in any recipe");
                }
                around.push((indent, format!("{}[]", around.last().map_or("", |(_, key)| key.as_str()))));
                indent += content.len() - item.trim_start().len();
                content = item.trim_start();
            }
            let Some((key, value)) = key_of(content) else {
                // An item of a list, or the rest of a text.
                match around.last().filter(|(_, key)| key.ends_with("[]")).cloned() {
                    Some((_, list)) => self.add(&list, content, line)?,
                    None if self.settings.is_empty() => return wrong("found no key; accepted: `key: value`"),
                    None => self.settings.last_mut().into_iter().for_each(|last| last.text += content),
                }
                continue;
            };
            around.retain(|(outer, _)| *outer < indent);
            let path = joined(around.last().map_or("", |(_, key)| key), unquoted(key));
            let value = value.trim();
            match value.chars().next() {
                _ if key == "<<" => {
                    return wrong("found `<<`, which merges another part; accepted: its keys written here");
                }
                Some('{' | '[') if !value.ends_with(['}', ']']) => {
                    return wrong(
                        "found a list that is not closed on its line; accepted: its items on lines of their own",
                    );
                }
                Some('|' | '>') => of_text = Some(indent),
                Some('{') => {
                    for (key, text) in value.trim_matches(['{', '}']).split(',').filter_map(|part| part.split_once(':'))
                    {
                        self.add(&joined(&path, unquoted(key)), unquoted(text), line)?;
                    }
                }
                Some(first) if first != '&' || value.contains(' ') => {
                    self.add(&path, unquoted(value.trim_matches(['[', ']'])), line)?;
                }
                _ => around.push((indent, path)),
            }
        }
        Ok(())
    }
}

fn joined(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// The key and the value of a line.
fn key_of(content: &str) -> Option<(&str, &str)> {
    match content.strip_suffix(':') {
        Some(key) if !content.contains(": ") => Some((key, "")),
        _ => content.split_once(": "),
    }
}

/// A line up to a comment outside of quotes.
fn without_comment(line: &str) -> &str {
    let mut quote = None;
    let mut before = ' ';
    for (at, one) in line.char_indices() {
        match (quote, one) {
            (Some(open), one) if one == open => quote = None,
            (None, '"' | '\'') if !before.is_alphanumeric() => quote = Some(one),
            (None, '#') if before.is_whitespace() => return &line[..at],
            _ => {}
        }
        before = one;
    }
    line
}

fn unquoted(text: &str) -> &str {
    let text = text.trim();
    let inner = ['"', '\''].iter().find_map(|quote| text.strip_prefix(*quote)?.strip_suffix(*quote));
    inner.unwrap_or(text)
}
