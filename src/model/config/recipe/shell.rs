//! The commands of a shell script, as far as they can be read without running anything: variables follow plain assignments.
//!
//! What a command, arithmetic, a branch or the caller of the script decides stays as it is written, with its `$`.

use super::settings::Written;
use crate::config::document::Place;
use commgauge_base::error::{Error, Result};
use shlex::Shlex;
use std::collections::BTreeMap;
use std::path::Path;

/// The longest command, in bytes and lines.
const LONGEST_COMMAND: (usize, usize) = (1 << 16, 1000);
/// What all variables and commands of a script may come to; variables that double each other end here.
const LONGEST_TEXT: usize = 1 << 20;
/// A default within `${NAME:-default}` is followed where it is no longer.
const LONGEST_DEFAULT: usize = 256;

/// A word of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word {
    pub text: String,
    pub line: usize,
}

/// What was read of a script.
#[derive(Default)]
struct Shell {
    variables: BTreeMap<String, Vec<Word>>,
    commands: Vec<Vec<Word>>,
    /// Branches and loops around the place that is read.
    depth: usize,
    /// Bytes that variables and commands have come to.
    length: usize,
}

/// The commands of a script, each with its words.
///
/// # Errors
/// A quote or a list that is not closed, and variables that hold more text than any script.
pub(super) fn commands(file: &Path, text: &str) -> Result<Vec<Vec<Word>>> {
    let mut shell = Shell::default();
    let (mut command, mut begun) = (String::new(), 1);
    // The line that ends a text after `<<`.
    let mut end_of_text: Option<String> = None;
    let wrong = |line: usize, problem: &str| -> Error { Place::on_line(file, line, "the command").wrong(problem) };
    for (line, number) in text.lines().zip(1..) {
        if let Some(end) = &end_of_text {
            end_of_text = Some(end.clone()).filter(|end| line.trim() != end);
            continue;
        }
        begun = if command.is_empty() { number } else { begun };
        let continued = line.strip_suffix('\\');
        // A blank ends the last word, so that the lexer counts the end of the line with the next one.
        command += continued.unwrap_or(line);
        command += " \n";
        let closed = continued.is_none().then(|| words(&command, begun)).flatten();
        if let Some(words) = closed {
            let text = words.iter().find_map(|word| word.text.strip_prefix("<<").filter(|end| !end.starts_with('<')));
            end_of_text = text.map(|end| end.trim_start_matches('-').to_owned());
            shell.run(words);
            command.clear();
        } else if command.len() > LONGEST_COMMAND.0 || number - begun > LONGEST_COMMAND.1 {
            break;
        }
        if shell.length > LONGEST_TEXT {
            return Err(wrong(begun, "its variables hold more than 1 MiB; accepted: a launch script"));
        }
    }
    match command.is_empty() {
        true => Ok(shell.commands),
        false => Err(wrong(begun, "a quote or a list is not closed; accepted: a script that a shell reads")),
    }
}

/// The words of a command, with what is in `$(..)` or `(..)` as one; `None` where a quote or a bracket is open.
fn words(command: &str, begun: usize) -> Option<Vec<Word>> {
    let mut lexer = Shlex::new(command);
    let mut words: Vec<Word> = Vec::new();
    let mut open = 0_usize;
    while let Some(text) = lexer.next() {
        let line = begun + lexer.line_no - 1 - text.matches('\n').count();
        let is_within = open > 0;
        open = (open + text.matches('(').count()).saturating_sub(text.matches(')').count());
        match words.last_mut() {
            // As many lines as there are between them.
            Some(last) if is_within => {
                let lines = line - last.line - last.text.matches('\n').count();
                last.text += &if lines == 0 { " ".to_owned() } else { "\n".repeat(lines) };
                last.text += &text;
            }
            _ => words.push(Word { text, line }),
        }
    }
    (!lexer.had_error && open == 0).then_some(words)
}

/// A text divided at its blanks.
fn divided(text: &str, line: usize) -> Vec<Word> {
    let lines = text.split('\n').zip(line..);
    lines
        .flat_map(|(text, line)| text.split_whitespace().map(move |word| Word { text: word.to_owned(), line }))
        .collect()
}

fn joined(words: &[Word]) -> String {
    words.iter().map(|word| word.text.as_str()).collect::<Vec<_>>().join(" ")
}

impl Shell {
    /// Follows the assignments of a line, and keeps its commands.
    fn run(&mut self, words: Vec<Word>) {
        let mut command: Vec<Word> = Vec::new();
        let mut words = words.into_iter();
        while let Some(mut word) = words.next().filter(|_| self.length <= LONGEST_TEXT) {
            let ends = word.text.ends_with(';');
            word.text.truncate(word.text.trim_end_matches(';').len());
            match word.text.as_str() {
                "" | "&&" | "||" | "|" | "&" => self.end(&mut command),
                "then" | "else" | "do" | "{" if command.is_empty() => {}
                "if" | "for" | "while" | "until" | "case" if command.is_empty() => self.depth += 1,
                "fi" | "done" | "esac" if command.is_empty() => self.depth = self.depth.saturating_sub(1),
                ">" | ">>" | "2>" | "<" => drop(words.next()),
                text if text.trim_start_matches(|one: char| one.is_ascii_digit()).starts_with(['>', '<']) => {}
                _ if !self.assigns(&command, &word) => {
                    let as_one = || vec![Word { text: self.expanded(&word.text), line: word.line }];
                    let followed = self.followed(&word.text, word.line).unwrap_or_else(as_one);
                    self.length += followed.iter().map(|word| word.text.len()).sum::<usize>();
                    command.extend(followed);
                }
                _ => {}
            }
            if ends {
                self.end(&mut command);
            }
        }
        self.end(&mut command);
    }

    /// Keeps a command; arguments on lines of their own belong to the one before.
    fn end(&mut self, command: &mut Vec<Word>) {
        let command = std::mem::take(command);
        match (command.first(), self.commands.last_mut()) {
            (Some(first), Some(last)) if first.text.starts_with('-') => last.extend(command),
            (Some(_), _) => self.commands.push(command),
            (None, _) => {}
        }
    }

    /// Follows `NAME=text`, `NAME+=text` and `NAME=(words)`; false where the word is something else.
    fn assigns(&mut self, command: &[Word], word: &Word) -> bool {
        let declares = command.first().is_none_or(|first| ["export", "local", "declare"].contains(&&*first.text));
        let Some((name, text)) = word.text.split_once('=').filter(|_| declares) else { return false };
        let (name, adds) = name.strip_suffix('+').map_or((name, false), |name| (name, true));
        if name.is_empty() || !name.chars().all(is_of_name) {
            return false;
        }
        let list = text.strip_prefix('(').and_then(|list| list.strip_suffix(')'));
        let value = match self.depth {
            0 => divided(&self.expanded(list.unwrap_or(text)), word.line),
            // Which branch is taken is not known here.
            _ => vec![Word { text: format!("${name}"), line: word.line }],
        };
        self.length += joined(&value).len();
        let variable = self.variables.entry(name.to_owned()).or_default();
        if !adds {
            variable.clear();
        }
        variable.extend(value);
        true
    }

    /// A text with what its variables hold.
    fn expanded(&self, text: &str) -> String {
        let mut expanded = String::new();
        let mut rest = text;
        while let Some(at) = rest.find('$').filter(|_| expanded.len() <= LONGEST_TEXT) {
            expanded += &rest[..at];
            let (written, after) = rest[at..].split_at(length_of_expansion(&rest[at..]));
            expanded += &self.followed(written, 0).map_or_else(|| written.to_owned(), |words| joined(&words));
            rest = after;
        }
        expanded + rest
    }

    /// What `$NAME`, `${NAME}`, `${NAME[@]}` or `${NAME:-text}` comes to; `None` for other texts, and where plain assignments do not say.
    fn followed(&self, text: &str, line: usize) -> Option<Vec<Word>> {
        let inner = text.strip_prefix('$').filter(|_| length_of_expansion(text) == text.len())?;
        let inner = inner.strip_prefix('{').and_then(|inner| inner.strip_suffix('}')).unwrap_or(inner);
        let (name, rest) = inner.split_at(inner.find(|one| !is_of_name(one)).unwrap_or(inner.len()));
        let default = [":-", ":=", "-", "="].iter().find_map(|mark| rest.strip_prefix(mark));
        match self.variables.get(name) {
            Some(words) if default.is_some() || ["", "[@]", "[*]"].contains(&rest) => Some(words.clone()),
            _ => Some(divided(&self.expanded(default.filter(|text| text.len() <= LONGEST_DEFAULT)?), line)),
        }
    }
}

fn is_of_name(one: char) -> bool {
    one.is_ascii_alphanumeric() || one == '_'
}

/// The bytes of the `$NAME`, `${..}` or `$(..)` that a text begins with.
fn length_of_expansion(text: &str) -> usize {
    let mut depth = 0_usize;
    for (at, one) in text.char_indices().skip(1) {
        match one {
            '(' | '{' if at == 1 || depth > 0 => depth += 1,
            ')' | '}' if depth == 1 => return at + 1,
            ')' | '}' if depth > 1 => depth -= 1,
            _ if depth == 0 && !is_of_name(one) => return at,
            _ => {}
        }
    }
    text.len()
}

/// The flags of a command and its `key=value` words, with their values; a switch has none. What no assignment says is its own key.
pub(super) fn settings(file: &Path, command: &[Word], is_switch: impl Fn(&str) -> bool) -> Vec<Written> {
    let mut settings: Vec<Written> = Vec::new();
    let mut takes = false;
    for word in command {
        let bare = word.text.trim_start_matches('-');
        // `-1` is a value.
        let is_flag = bare.len() < word.text.len() && bare.starts_with(|first: char| first.is_ascii_alphabetic());
        let written = |key: &str, text: &str| {
            let place = Place::on_line(file, word.line, word.text.split('=').next().unwrap_or(key));
            Written { key: key.replace('-', "_"), text: text.to_owned(), place }
        };
        match (settings.last_mut(), bare.split_once('=')) {
            (_, Some((key, text))) if is_flag || !key.contains([' ', '/', '$', '{']) => {
                settings.push(written(key.trim_start_matches('+'), text));
                takes = false;
            }
            _ if is_flag => {
                takes = !is_switch(&bare.replace('-', "_"));
                settings.push(written(bare, ""));
            }
            (Some(flag), _) if takes && flag.text.is_empty() => flag.text += &word.text,
            (Some(flag), _) if takes && flag.key.ends_with("_modules") => flag.text += &format!(",{}", word.text),
            // What no assignment says may be flags; the model follows `vllm serve`.
            _ if word.text.contains('$') || word.text == "serve" => {
                takes = word.text == "serve";
                settings.push(written(&word.text, ""));
            }
            _ => {}
        }
    }
    settings.iter_mut().filter(|written| written.text.is_empty()).for_each(|written| written.text += "true");
    settings
}
