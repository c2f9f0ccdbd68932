//! The settings of a YAML, JSON or TOML file, each as a dotted key with its text and its line.
//!
//! Of YAML it reads what recipes are written in: nested keys, lists, quoted texts, and braces as in JSON. Anchors are not followed.

use super::written::Written;
use crate::config::document::{Item, Place, Table, Value};
use commgauge_base::error::Result;
use std::collections::BTreeMap;
use std::path::Path;

/// Braces within braces are read this far.
const DEEPEST: usize = 64;

/// Reads a file by its ending.
///
/// # Errors
/// What is not JSON, TOML or such YAML, with its line, and keys with two values.
pub(super) fn settings(file: &Path, text: &str) -> Result<Vec<Written>> {
    let mut reader = Reader { file, settings: Vec::new(), places: BTreeMap::new() };
    match file.extension().and_then(|ending| ending.to_str()) {
        Some("toml") => reader.table(Table::parse(file, text)?),
        Some("yaml" | "yml") => reader.yaml(text)?,
        _ => {
            serde_json::from_str::<serde::de::IgnoredAny>(text).map_err(|problem| {
                let place = Place::on_line(file, problem.line(), "not JSON");
                let comments = text.lines().any(|line| line.trim_start().starts_with(['/', '#']));
                let hint = if comments { "; JSON has no comments, take them out" } else { "" };
                place.wrong(format!("{problem}{hint}"))
            })?;
            reader.braces(&mut Braces::of(text, 1), "")?;
        }
    }
    Ok(reader.followed())
}

struct Reader<'a> {
    file: &'a Path,
    settings: Vec<Written>,
    /// Where each key is among them.
    places: BTreeMap<String, usize>,
}

/// A text with braces, and the place in it.
struct Braces {
    rest: std::iter::Peekable<std::vec::IntoIter<char>>,
    line: usize,
    depth: usize,
}

impl Reader<'_> {
    fn add(&mut self, key: &str, text: &str, line: usize) -> Result<()> {
        let place = Place::on_line(self.file, line, key);
        let other = self.places.insert(key.to_owned(), self.settings.len());
        if let Some(other) = other.map(|index| &self.settings[index]).filter(|_| !key.contains("[]")) {
            let problem = format!("has two values: `{}` before and `{text}` here; accepted: one of them", other.text);
            return Err(place.wrong(problem));
        }
        let name = key.replace("--", "").replace('-', "_");
        self.settings.push(Written { key: name, text: text.to_owned(), place });
        Ok(())
    }

    /// The settings, with the text of a key where another one names it, as in `${trainer.devices}`.
    fn followed(self) -> Vec<Written> {
        let named = |text: &str| self.places.get(text.strip_prefix("${")?.strip_suffix('}')?);
        let text = |written: &Written| named(&written.text).map(|index| self.settings[*index].text.clone());
        let texts: Vec<Option<String>> = self.settings.iter().map(text).collect();
        let all = self.settings.iter().zip(texts);
        all.map(|(written, text)| Written { text: text.unwrap_or_else(|| written.text.clone()), ..written.clone() })
            .collect()
    }

    fn table(&mut self, table: Table) {
        for item in table.entries.into_values() {
            self.item(item);
        }
    }

    fn item(&mut self, Item { place, value }: Item) {
        let text = match value {
            Value::Table(table) => return self.table(table),
            Value::List(items) if items.iter().any(Item::is_table) => {
                return items.into_iter().for_each(|item| self.item(item));
            }
            Value::List(items) => items.iter().map(|item| plain(&item.value)).collect::<Vec<_>>().join(","),
            other => plain(&other),
        };
        self.settings.push(Written { key: place.key().to_owned(), text, place });
    }

    fn yaml(&mut self, text: &str) -> Result<()> {
        // Keys around the line, each with its indentation.
        let mut around: Vec<(usize, String)> = Vec::new();
        // Lines of a text that begins after `|` or `>` are indented by more than this.
        let mut of_text: Option<usize> = None;
        let mut lines = text.trim_start_matches('\u{feff}').lines().zip(1..);
        while let Some((whole, line)) = lines.next() {
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
                let list = format!("{}[]", around.last().map_or("", |(_, key)| key.as_str()));
                if around.len() > DEEPEST {
                    return wrong("found more lists within lists than in any recipe");
                }
                around.push((indent, list));
                indent += content.len() - item.trim_start().len();
                content = item.trim_start();
            }
            let Some((key, value)) = key_of(content) else {
                // An item of a list, or the rest of a text.
                let list = around.last().filter(|(_, key)| key.ends_with("[]")).map(|(_, key)| key.clone());
                match list {
                    Some(list) => self.add(&list, content, line)?,
                    None if self.settings.is_empty() => return wrong("found no key; accepted: `key: value`"),
                    None => self.settings.last_mut().into_iter().for_each(|last| last.text += content),
                }
                continue;
            };
            around.retain(|(outer, _)| *outer < indent);
            let path = joined(around.last().map_or("", |(_, key)| key), &unquoted(key));
            let mut value = value.trim().to_owned();
            if key == "<<" {
                return wrong("found `<<`, which merges another part; accepted: its keys written here");
            }
            match value.chars().next() {
                None => around.push((indent, path)),
                Some('|' | '>') => of_text = Some(indent),
                Some('{' | '[') => {
                    let mut open = open_braces(&value);
                    while open > 0 {
                        let Some((more, _)) = lines.next() else { return wrong("found a brace that is not closed") };
                        let more = without_comment(more);
                        open += open_braces(more);
                        value += &format!("\n{more}");
                    }
                    self.braces(&mut Braces::of(&value, line), &path)?;
                }
                Some('&') if !value.contains(' ') => around.push((indent, path)),
                Some(_) => self.add(&path, &unquoted(&value), line)?,
            }
        }
        Ok(())
    }

    /// Reads `{key: value}`, `[value, value]` or a text.
    fn braces(&mut self, braces: &mut Braces, path: &str) -> Result<()> {
        braces.skip_blanks();
        let line = braces.line;
        if braces.depth > DEEPEST {
            return Err(Place::on_line(self.file, line, path).wrong("more braces within braces than in any recipe"));
        }
        let open = braces.rest.next_if(|one| "{[".contains(*one));
        let Some(open) = open else {
            let text = braces.text();
            return self.add(path, &text, line);
        };
        braces.depth += 1;
        let mut texts: Vec<String> = Vec::new();
        loop {
            braces.skip_blanks();
            match braces.rest.peek() {
                None => break,
                Some('}' | ']') => {
                    braces.next();
                    break;
                }
                Some('{' | '[') => self.braces(braces, &format!("{path}[]"))?,
                Some(_) if open == '[' => texts.push(braces.text()),
                Some(_) => {
                    let key = braces.text();
                    braces.skip_blanks();
                    self.braces(braces, &joined(path, &key))?;
                }
            }
        }
        braces.depth -= 1;
        if open == '[' { self.add(path, &texts.join(","), line) } else { Ok(()) }
    }
}

impl Braces {
    fn of(text: &str, line: usize) -> Braces {
        Braces { rest: text.chars().collect::<Vec<_>>().into_iter().peekable(), line, depth: 0 }
    }

    fn next(&mut self) -> Option<char> {
        let next = self.rest.next();
        self.line += usize::from(next == Some('\n'));
        next
    }

    /// Passes over blanks, commas and colons.
    fn skip_blanks(&mut self) {
        while self.rest.peek().is_some_and(|one| one.is_whitespace() || ",:".contains(*one)) {
            self.next();
        }
    }

    /// A text with or without quotes.
    fn text(&mut self) -> String {
        let mut text = String::new();
        if let Some(quote) = self.rest.next_if(|one| "\"'".contains(*one)) {
            while let Some(one) = self.next().filter(|one| *one != quote) {
                let escaped = if one == '\\' { self.next() } else { None };
                text.extend(escaped.or(Some(one)));
            }
            return text;
        }
        while self.rest.peek().is_some_and(|one| !",:{}[]\n".contains(*one)) {
            text.extend(self.next());
        }
        text.trim().to_owned()
    }
}

/// A value of TOML as it is written, without quotes.
fn plain(value: &Value) -> String {
    match value {
        Value::Text(text) | Value::Date(text) => text.clone(),
        Value::Whole(number) => number.to_string(),
        Value::Fraction(number) => number.to_string(),
        Value::Truth(truth) => truth.to_string(),
        Value::List(_) | Value::Table(_) | Value::Missing(_) => String::new(),
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

/// Braces that a text opens, less those that it closes.
fn open_braces(text: &str) -> isize {
    text.matches(['{', '[']).count() as isize - text.matches(['}', ']']).count() as isize
}

fn unquoted(text: &str) -> String {
    let text = text.trim();
    let inner = ['"', '\''].iter().find_map(|quote| text.strip_prefix(*quote)?.strip_suffix(*quote));
    inner.unwrap_or(text).to_owned()
}
