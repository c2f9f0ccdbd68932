//! What pages show below a command is what it prints, for commands that print the same on every machine.

use crate::blocks::pages;
use crate::offline::text;
use std::process::Command;

/// Commands whose output follows from their words and the shipped files alone.
const SAME_EVERYWHERE: [&str; 3] = ["commgauge show", "commgauge ops", "commgauge judge --plan"];

/// A command with the lines that a page shows of its output.
struct Shown {
    place: String,
    command: String,
    lines: Vec<String>,
}

#[test]
fn what_pages_show_of_an_output_is_what_comes() {
    let folder = tempfile::tempdir().expect("a folder");
    let recipes = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/recipes");
    for recipe in std::fs::read_dir(recipes).expect("recipes").map(|entry| entry.expect("a recipe").path()) {
        let name = recipe.file_name().expect("a file");
        std::fs::copy(&recipe, folder.path().join(name)).expect("it is copied");
    }
    let (mut compared, mut wrong) = (0, Vec::new());
    for shown in pages().iter().flat_map(|(page, text)| shown(page, text)) {
        let words: Vec<&str> = shown.command.split_whitespace().skip(1).collect();
        // Of files that a page makes up its other tests know.
        if !SAME_EVERYWHERE.iter().any(|start| shown.command.starts_with(start)) || shown.command.contains(".txt") {
            continue;
        }
        let mut commgauge = Command::new(env!("CARGO_BIN_EXE_commgauge"));
        let ran = commgauge.args(words).current_dir(folder.path()).env("COLUMNS", "80").output().expect("it starts");
        let printed = text(&ran.stdout) + &text(&ran.stderr);
        let found = flowing(&printed);
        compared += 1;
        for line in shown.lines.iter().filter(|line| !line.contains("...")) {
            if !found.contains(&flowing(line)) {
                wrong.push(format!("{}: `{}` does not print `{line}`:\n{printed}", shown.place, shown.command));
            }
        }
    }
    assert!(compared >= 8, "{compared} outputs are compared");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The words with one blank between them: widths of terminals differ.
fn flowing(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The commands of a page after `$ `, each with the text below it in its block.
fn shown(page: &str, text: &str) -> Vec<Shown> {
    let mut found: Vec<Shown> = Vec::new();
    let mut indent = None;
    for (index, line) in text.lines().enumerate() {
        let inner = line.trim_start();
        if let Some(command) = inner.strip_prefix("$ ") {
            indent = Some(line.len() - inner.len());
            let command = command.split(" #").next().unwrap_or_default().to_owned();
            found.push(Shown { place: format!("{page}:{}", index + 1), command, lines: Vec::new() });
        } else if line.starts_with("```")
            || !line.is_empty() && indent.is_some_and(|least| line.len() - inner.len() < least)
        {
            indent = None;
        } else if let (Some(_), Some(last)) = (indent, found.last_mut()) {
            last.lines.push(inner.to_owned());
        }
    }
    found
}
