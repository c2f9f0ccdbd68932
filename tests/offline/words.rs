//! Words that say nothing to people of the field, or name something otherwise than they do, are in no page, no help, no golden output and no
//! sentence of a source.

use crate::blocks::pages;
use crate::layers::{Sources, read_sources};
use clap::{Command, ValueEnum};
use commgauge::cli::show::ProgramName;
use regex::Regex;
use std::collections::HashSet;
use std::fs;
use std::path::Path;

/// With what is said instead.
const UNWANTED: &str = r"(?i)\b(told|mend(s|ed|ing)?|held against|waive[ds]?|waiver|doubt(s|ed|ful)?|house[ds]?)\b";

/// Ordinary words in a meaning that no native engineer gives them, or forms that betray a translation; after each what is said instead.
/// Held for the prose of pages, and for all of a source: comments, strings and names.
const DIALECT: &[&str] = &[
    r"\bbeside\b", // next to, during, in addition to
    r"\b(is|are|was|were) of (no|the|one|two|those|an?|another|its|their|what|every|each)\b", // comes from, belongs to, has
    r"\bso many\b",                                                                           // that many, N
    r"\btroubles?\b",                                                                         // warnings, problems
    r"\b(stands|lies)\b",                                                                     // is
    r"\bnobody\b",                                                                            // no rank, no one
    r"\bwhat (came|comes|becomes|became) of\b",                                               // the result
    r"\bfor ever\b",                                                                          // forever
    r"\bwhiles\b",                                                                            // slow periods
    r"\b(accused?|accuses|culprits?|to blame)\b",                                             // suspected, suspect
    r"\b(go|goes|gone|going|went) on\b",                                                      // continue, resume
    r"\bunder way\b",                                                                         // in flight, in progress
    r"\b(is|are) none\b",                                                                     // does not exist
    r"\bshar(e|es|ed|ing) out\b",                                                             // shard, divide
    r"\bat work\b",                                                                           // active
    r"\bthe same of\b",                                                                       // the same for
    r"\bfor want of\b",                                                                       // without
    r"\bhangs? together\b",                                                                   // depend
    r"\bone's own\b",                                                                         // your own
    r"\b(anew|hitherto|thereof|wherein|whatever came)\b",
    r"\bwe\b",
];

/// What a source may say nevertheless: a word of Rust, good English, published keys that keep their names, and code in backquotes.
const ALLOWED: &[&str] = &[
    r"\bis_none(_or)?\b",
    r"\bthere (is|are|was|were) none\b",
    r"\b(beside_alone_nanoseconds|beside_axis|beside_collective|calls_beside|lost_beside_calls|surely_beside_share)\b",
    r"\bunder_way_nanoseconds_median\b",
    r#""[^"\s]*""#,
    r"`[^`\n]*`",
];

fn unwanted_in(expression: &str, texts: &[(String, String)]) -> Vec<String> {
    let unwanted = Regex::new(expression).expect("an expression");
    texts
        .iter()
        .flat_map(|(name, text)| text.lines().map(move |line| (name, line)))
        .filter(|(_, line)| unwanted.is_match(line))
        .map(|(name, line)| format!("{name}: {}", line.trim()))
        .collect()
}

#[test]
fn pages_are_in_the_english_of_engineers() {
    let pages: Vec<(String, String)> = pages().iter().map(|(name, text)| (name.clone(), prose(text))).collect();
    let found = unwanted_in(&format!("(?i){}", DIALECT.join("|")), &pages);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn sources_are_in_the_english_of_engineers() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut sources = Sources::new();
    ["src", "tests", "benches"].iter().for_each(|folder| read_sources(&root.join(folder), &mut sources));
    sources.retain(|path, _| !path.ends_with("words.rs"));
    assert!(sources.len() > 300, "{} sources are found", sources.len());

    let dialect = Regex::new(&format!("(?i).{{0,60}}({}).{{0,40}}", DIALECT.join("|"))).expect("an expression");
    let allowed = Regex::new(&format!("(?i){}", ALLOWED.join("|"))).expect("an expression");
    let found: Vec<String> = sources
        .iter()
        .map(|(path, source)| (path, running_text(source, &allowed)))
        .flat_map(|(path, text)| {
            dialect.find_iter(&text).map(|hit| format!("{path}: {}", hit.as_str())).collect::<Vec<_>>()
        })
        .collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// A source as one line, with the words of its names apart, without the marks of comments and without what is allowed.
fn running_text(source: &str, allowed: &Regex) -> String {
    let lines: Vec<&str> = source
        .lines()
        .map(|line| line.trim_start().trim_start_matches('/').trim_start_matches('!').trim_start())
        .collect();
    let text = allowed.replace_all(&lines.join("\n"), " ").replace('_', " ");
    text.split_whitespace().collect::<Vec<&str>>().join(" ")
}

#[test]
fn names_strings_and_comments_across_lines_are_read() {
    let dialect = Regex::new(&format!("(?i){}", DIALECT.join("|"))).expect("an expression");
    let allowed = Regex::new(&format!("(?i){}", ALLOWED.join("|"))).expect("an expression");
    for (source, is_found) in [
        ("/// It goes\n    /// on.", true),
        ("//! What lies ahead\n", true),
        ("fn a_run_goes_on() {}", true),
        ("let text = \"nobody came\";", true),
        ("let key = \"troubles\";", false),
        ("/// Calls of `beside`; there are none.", false),
        ("if found.is_none() { calls_beside += 1; }", false),
    ] {
        assert_eq!(dialect.is_match(&running_text(source, &allowed)), is_found, "{source}");
    }
}

/// A page without its blocks of commands and output and without what is set as code: sources decide about those.
fn prose(page: &str) -> String {
    let (mut fenced, mut kept) = (false, String::new());
    for line in page.lines() {
        let is_fence = line.trim_start().starts_with("```");
        fenced ^= is_fence;
        if !(fenced || is_fence || line.starts_with("    ")) {
            let words: Vec<&str> = line.split('`').step_by(2).collect();
            kept += &(words.join(" ") + "\n");
        }
    }
    kept
}

#[test]
fn pages_help_and_output_are_in_words_of_the_field() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut texts = pages();
    texts.extend(ProgramName::value_variants().iter().flat_map(|program| helps(program.definition(), "")));
    golden_files(&root.join("src"), &mut texts);
    golden_files(&root.join("tests"), &mut texts);
    assert!(texts.len() > 150, "{} texts are found", texts.len());
    let mut sources = Sources::new();
    read_sources(&root.join("src"), &mut sources);
    let written = sources.into_iter().filter(|(path, _)| !path.ends_with("tests.rs"));
    texts.extend(written.map(|(path, source)| (path, sentences(&source))));

    let found = unwanted_in(UNWANTED, &texts);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// The help of a program and of each of its commands.
fn helps(mut definition: Command, before: &str) -> Vec<(String, String)> {
    let name = format!("{before}{}", definition.get_name());
    let help = definition.render_long_help().to_string();
    let commands: Vec<Command> = definition.get_subcommands().cloned().collect();
    let inner = commands.into_iter().flat_map(|command| helps(command, &format!("{name} ")));
    [(name.clone(), help)].into_iter().chain(inner).collect()
}

fn golden_files(folder: &Path, texts: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            golden_files(&path, texts);
        } else if path.extension().is_some_and(|ending| ending == "snap") {
            texts.push((path.display().to_string(), fs::read_to_string(&path).expect("a golden file")));
        }
    }
}

/// The lines of a source that hold strings, but for its tests, its comments, and the old names of fields that are still read.
fn sentences(source: &str) -> String {
    let lines = source.lines().take_while(|line| !line.starts_with("#[cfg(test)]"));
    lines
        .filter(|line| line.contains('"') && !line.trim_start().starts_with("//") && !line.contains("alias"))
        .map(|line| line.to_owned() + "\n")
        .collect()
}

/// In place of rustc's `missing_docs`, which also wants a comment for what only its own crate uses.
#[test]
fn items_that_other_crates_name_have_a_doc_comment() {
    let mut sources = Sources::new();
    read_sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut sources);
    let name = Regex::new(r"\w+").expect("an expression");
    let item = Regex::new(
        r"(?m)^(///.*\n)?(?:#\[(?:[^\[\]]|\[[^\]]*\])*\]\n|// .*\n)*pub (?:struct|enum|trait|(?:const |unsafe )*fn) (\w+)",
    )
    .expect("an expression");
    let mut undocumented = Vec::new();
    for room in ["base", "model", "run", "cost", "judge", "plan", "readers"] {
        let (inside, outside): (Vec<_>, Vec<_>) =
            sources.iter().partition(|(path, _)| path.starts_with(&format!("src/{room}/")));
        let users = outside.iter().filter(|(_, source)| source.contains(&format!("commgauge_{room}::")));
        let named: HashSet<&str> =
            users.flat_map(|(_, source)| name.find_iter(source)).map(|word| word.as_str()).collect();
        for (path, source) in inside {
            let own = source.split("\n#[cfg(test)]").next().unwrap_or_default();
            let found = item.captures_iter(own).filter(|found| found.get(1).is_none() && named.contains(&found[2]));
            undocumented.extend(found.map(|found| format!("{path}: {}", &found[2])));
        }
    }
    assert!(undocumented.is_empty(), "{}", undocumented.join("\n"));
}
