//! How much a function asks of its callers, and a struct of its readers: no tuples as parameters, few flags without a name, no struct of
//! more than sixteen fields. What is there already may become less, and not more.

use crate::layers::scan::{blank, line_of, occurrences};
use crate::layers::{Sources, read_sources};
use std::collections::BTreeSet;
use std::path::Path;

/// A parameter that is true or false says nothing where the function is called. These are facts that are handed on, and parameters of traits
/// that others have defined.
const MOST_BOOL_PARAMETERS: usize = 40;

const MOST_FIELDS: usize = 16;

/// The text before the tests of a file, blanked; nothing of a file with only tests.
fn code(path: &str, source: &str) -> String {
    if path.ends_with("tests.rs") || path.contains("/tests/") {
        return String::new();
    }
    let clean = blank(source);
    let end = clean.find("#[cfg(test)]\nmod tests {").unwrap_or(clean.len());
    clean[..end].to_owned()
}

/// The inside of the bracket with which `text` begins, and what follows it.
fn inside(text: &str) -> (&str, &str) {
    let mut depth = 0;
    for (at, letter) in text.char_indices() {
        // The arrow of a function type closes nothing.
        let is_arrow = letter == '>' && text[..at].ends_with('-');
        match letter {
            '(' | '[' | '{' | '<' => depth += 1,
            ')' | ']' | '}' | '>' if !is_arrow => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return (&text[1..at], &text[at + letter.len_utf8()..]);
        }
    }
    ("", "")
}

/// The parts between the commas that lie in no bracket.
fn parts(list: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut begin) = (Vec::new(), 0, 0);
    for (at, letter) in list.char_indices() {
        let is_arrow = letter == '>' && list[..at].ends_with('-');
        match letter {
            '(' | '[' | '{' | '<' => depth += 1,
            ')' | ']' | '}' | '>' if !is_arrow => depth -= 1,
            ',' if depth == 0 => {
                parts.push(list[begin..at].trim());
                begin = at + 1;
            }
            _ => {}
        }
    }
    parts.push(list[begin..].trim());
    parts.retain(|part| !part.is_empty());
    parts
}

/// Each function's offset and its parameters, as `name: type`.
fn parameters(clean: &str) -> Vec<(usize, Vec<&str>)> {
    let signature = |at: usize| -> Option<(usize, Vec<&str>)> {
        let rest = clean[at + 2..].trim_start();
        let name = rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_').filter(|end| *end > 0)?;
        let rest = rest[name..].trim_start();
        let rest = if rest.starts_with('<') { inside(rest).1.trim_start() } else { rest };
        rest.starts_with('(').then(|| (at, parts(inside(rest).0)))
    };
    occurrences(clean, "fn").into_iter().filter_map(signature).collect()
}

fn type_of(parameter: &str) -> &str {
    parameter.split_once(": ").map_or("", |(_, what)| what.trim_start_matches(['&', ' ']))
}

/// Structs of more fields than they may have, with what is derived for them.
fn large_structs(clean: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    for at in occurrences(clean, "struct") {
        let rest = clean[at + 6..].trim_start();
        let Some(end) = rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_') else { continue };
        let body = rest[end..].find(['{', ';', '(']).map(|open| &rest[end + open..]);
        let Some(body) = body.filter(|body| body.starts_with('{')) else { continue };
        if parts(inside(body).0).len() > MOST_FIELDS {
            let derived = clean[..at].rfind("#[derive(").map_or("", |from| inside(&clean[from + 8..at]).0);
            found.push((&rest[..end], derived));
        }
    }
    found
}

fn all_code() -> Vec<(String, String, String)> {
    let mut sources = Sources::new();
    read_sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut sources);
    sources.into_iter().map(|(path, source)| (path.clone(), code(&path, &source), source)).collect()
}

#[test]
fn signatures_and_fields_are_read_as_they_are_written() {
    let source = "#[derive(Clone)]\npub struct A<'a> {\n    /// One: (two, three).\n    pub one: Vec<(u8, bool)>,\n    two: fn(u8) -> bool,\n}\n\
        fn f<T: Fn(u8) -> bool>(first: (u8, u8), second: &bool, third: impl Fn(bool, u8) -> bool) -> bool {}\nfn g() {}\n";
    let clean = code("src/x.rs", source);
    let found: Vec<Vec<&str>> = parameters(&clean).into_iter().map(|(_, list)| list).collect();
    let third = "third: impl Fn(bool, u8) -> bool";
    assert!(found.contains(&vec!["first: (u8, u8)", "second: &bool", third]) && found.contains(&vec![]), "{found:?}");
    assert_eq!(
        ["first: (u8, u8)", "second: &bool", third].map(type_of),
        ["(u8, u8)", "bool", "impl Fn(bool, u8) -> bool"]
    );
    assert!(large_structs(&clean).is_empty());
    let many: String = (0..=MOST_FIELDS).map(|number| format!("    f{number}: u8,\n")).collect();
    let clean = code("src/x.rs", &format!("#[derive(Clone, Serialize)]\nstruct B {{\n{many}}}\n"));
    assert_eq!(large_structs(&clean), [("B", "Clone, Serialize")]);
    assert_eq!(
        code("src/x/tests.rs", source) + &code("src/x.rs", "#[cfg(test)]\nmod tests {\nfn h(a: bool) {}\n}"),
        ""
    );
}

#[test]
fn no_function_takes_a_tuple_and_few_take_what_is_true_or_false() {
    let (mut tuples, mut truths) = (Vec::new(), Vec::new());
    for (path, clean, source) in all_code() {
        for (at, list) in parameters(&clean) {
            let place = |parameter: &&str| format!("{path}:{}: {parameter}", line_of(&source, at));
            tuples.extend(list.iter().filter(|parameter| type_of(parameter).starts_with('(')).map(place));
            truths.extend(list.iter().filter(|parameter| type_of(parameter) == "bool").map(place));
        }
    }
    assert!(tuples.is_empty(), "give the values names, in a struct:\n{}", tuples.join("\n"));
    assert!(
        truths.len() <= MOST_BOOL_PARAMETERS,
        "{} parameters are true or false, {MOST_BOOL_PARAMETERS} are allowed: what decides what a function does is better an enum\n{}",
        truths.len(),
        truths.join("\n")
    );
}

#[test]
fn no_struct_has_more_than_sixteen_fields() {
    // Lines of a record and documents derive `Serialize`, flags `Args`.
    let plain = |derived: &str| !["Serialize", "Args"].iter().any(|what| derived.contains(what));
    let found: BTreeSet<String> = all_code()
        .iter()
        .flat_map(|(_, clean, _)| large_structs(clean))
        .filter(|(_, derived)| plain(derived))
        .map(|(name, _)| name.to_owned())
        .collect();
    assert!(found.is_empty(), "group the fields of {found:?} by what they are about");
}
