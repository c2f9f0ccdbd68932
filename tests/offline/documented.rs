//! The commands in README and docs: every block states how it is tested, those that need no launcher are run, and
//! every flag that a page names exists. Blocks that start ranks are run in `tests/launched/documented.rs`.

use crate::blocks::{Block, How, Mark, OURS, blocks, blocks_of, mark, pages};
use crate::common::skipped;
use crate::documented_run::{by_page, carry_out};
use crate::fixtures;
use crate::offline::{commgauge, text};
use clap::ValueEnum;
use clap::error::ErrorKind;
use commgauge::cli::show::ProgramName;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

#[test]
fn a_block_of_commands_without_a_mark_is_found() {
    let page = "text\n\n    commgauge show\n\n<!-- test: run; exit 2; with fit -->\n```sh\n$ commgauge calibrate \\\n    x\nout\n```\n\n    output\n";
    let found = blocks_of("p.md", page);
    let [bare, marked] = &found[..] else { panic!("{found:?}") };
    assert!(bare.line == 3 && bare.mark.is_err() && bare.commands == ["commgauge show"], "{bare:?}");
    let expected = Mark { how: How::Run, exits: vec![2], with: vec!["fit".into()], swaps: vec![], plus: String::new() };
    assert!(marked.mark == Ok(expected) && marked.commands == ["commgauge calibrate x"], "{marked:?}");
    for wrong in ["parse", "ran", "run; exits 2", "run; exit two", "run; swap a b"] {
        assert!(mark(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn every_block_of_commands_says_how_it_is_tested() {
    let wrong: Vec<String> = blocks().iter().filter_map(problem).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn problem(block: &Block) -> Option<String> {
    let place = format!("{}:{}", block.page, block.line);
    match &block.mark {
        Err(why) => Some(format!("{place}: `{}` {why}", block.commands[0])),
        Ok(mark) if matches!(mark.how, How::Other(_)) => {
            let ours = block.commands.iter().find(|line| ours_in(line).next().is_some_and(|words| words.len() > 1))?;
            Some(format!("{place}: `{ours}` runs a program of ours: mark it `parse`, `run` or `launch`"))
        }
        Ok(_) => None,
    }
}

#[test]
fn every_documented_command_that_needs_no_launcher_ends_as_documented() {
    let pages = by_page(|mark| mark.how == How::Run);
    assert!(pages.len() > 6, "the pages are found: {pages:?}");
    let wrong: Vec<String> = pages.iter().flat_map(|blocks| carry_out(blocks, fixtures::make)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn every_documented_flag_exists() {
    let mut wrong = Vec::new();
    for block in blocks() {
        for command in &block.commands {
            let command = command.split(" #").next().unwrap_or_default();
            wrong.extend(
                ours_in(command)
                    .filter_map(|words| misread(&words))
                    .map(|why| format!("{}:{}: {why}", block.page, block.line)),
            );
        }
    }
    for (page, text) in pages() {
        for span in text
            .split('`')
            .skip(1)
            .step_by(2)
            .filter(|span| OURS.iter().any(|name| span.starts_with(&format!("{name} "))))
        {
            let span = span.split_whitespace().collect::<Vec<_>>().join(" ");
            wrong.extend(ours_in(&span).filter_map(|words| misread(&words)).map(|why| format!("{page}: {why}")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_columns_and_metrics_that_the_reference_explains_are_those_that_are_written() {
    let folder = tempfile::tempdir().expect("a folder");
    ["runs", "two-runs"].iter().for_each(|name| fixtures::make(name, folder.path()));
    let printed = |arguments: &str| {
        let words: Vec<&str> = arguments.split(' ').collect();
        text(&commgauge(folder.path(), &words).stdout)
    };
    let explained = |page: &str| {
        let text = pages().into_iter().find(|(name, _)| name == page).expect("the page is there").1;
        let rows: String =
            text.lines().filter(|line| line.starts_with("| `")).map(|line| line.to_owned() + "\n").collect();
        rows.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>()
    };
    let columns = explained("docs/reference/files.md");
    for column in printed("report run.jsonl --format csv").lines().next().expect("a heading").split(',') {
        assert!(columns.iter().any(|name| name == column), "docs/reference/files.md does not explain `{column}`");
    }
    let written = printed("report run.jsonl --format prometheus")
        + &printed("judge --part thresholds base.jsonl --machine two-ranks.toml --format prometheus")
        + &printed("history . --format prometheus");
    for metric in columns.iter().filter(|name| name.starts_with("commgauge_")) {
        assert!(written.contains(&format!("# TYPE {metric} ")), "{metric} is explained, and not written");
    }
}

/// Words as `wc -w` counts them: of the README, of docs/, and of all Markdown.
#[test]
fn pages_stay_within_their_words() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let words = |path: &Path| fs::read_to_string(path).expect("a page").split_whitespace().count();
    let sum = |folder: &Path| markdown(folder).iter().map(|path| words(path)).sum::<usize>();
    let counts = [
        ("README.md", words(&root.join("README.md")), 700),
        ("ARCHITECTURE.md", words(&root.join("ARCHITECTURE.md")), 1_500),
        ("CHANGELOG.md", words(&root.join("CHANGELOG.md")), 1_500),
        ("docs", sum(&root.join("docs")), 32_000),
        ("all Markdown", sum(root), 45_000),
    ];
    let wrong: Vec<String> = counts
        .iter()
        .filter(|(_, count, most)| count > most)
        .map(|(what, count, most)| format!("{what}: {count} words, at most {most}"))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Every Markdown file below a folder, without build folders and what git ignores by a leading dot.
fn markdown(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        if path.is_dir() && !name.starts_with("target") && !name.starts_with('.') {
            found.extend(markdown(&path));
        } else if path.extension().is_some_and(|ending| ending == "md") {
            found.push(path);
        }
    }
    found
}

#[test]
fn every_link_of_a_page_leads_to_a_file_and_a_heading() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut wrong = Vec::new();
    for page in markdown(root) {
        let text = fs::read_to_string(&page).expect("a page");
        let links = text.split("](").skip(1).filter_map(|rest| rest.split_once(')').map(|(link, _)| link));
        for link in links.filter(|link| !link.contains("://") && !link.contains(char::is_whitespace)) {
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { page.clone() } else { page.parent().expect("a folder").join(file) };
            let is_there =
                heading.is_empty() || fs::read_to_string(&target).is_ok_and(|text| anchors(&text).contains(heading));
            if !target.exists() || !is_there {
                wrong.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The anchors of a page's headings, as GitHub makes them.
fn anchors(text: &str) -> BTreeSet<String> {
    let kept = |c: &char| c.is_alphanumeric() || ['-', '_'].contains(c);
    let anchor = |line: &str| {
        line.trim_start_matches('#').trim().to_lowercase().replace(' ', "-").chars().filter(kept).collect()
    };
    text.lines().filter(|line| line.starts_with('#')).map(anchor).collect()
}

#[test]
fn the_example_for_pandas_runs_where_pandas_is() {
    let python = |words: &[&str], folder: &Path| {
        let packages = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/tools/readers");
        std::process::Command::new("python3").args(words).env("PYTHONPATH", packages).current_dir(folder).output()
    };
    let folder = tempfile::tempdir().expect("a folder");
    if !python(&["-c", "import pandas"], folder.path()).is_ok_and(|output| output.status.success()) {
        return skipped("the example for pandas", "python3 has no pandas");
    }
    fixtures::make("runs", folder.path());
    for name in ["one", "two"] {
        let record = format!("{name}.jsonl");
        commgauge(folder.path(), &["report", &record, "--format", "csv", "-o", &format!("{name}.csv")]);
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/examples/runs_pandas.py");
    let ran = python(&[script, "one.csv", "two.csv"], folder.path()).expect("python3 starts");
    assert!(
        ran.status.success() && text(&ran.stdout).contains("spread %"),
        "{}{}",
        text(&ran.stdout),
        text(&ran.stderr)
    );
}

/// What may start a program of ours.
const STARTERS: [&str; 7] = ["mpirun", "mpiexec", "srun", "salloc", "env", "virtual-cluster", "apptainer"];

/// The calls of programs of ours in a line of a shell, each as its words.
fn ours_in(line: &str) -> impl Iterator<Item = Vec<String>> {
    let separators = ["&&", "||", "|", ";", ":", "&"];
    let words = shell_words(&line.replace("; ", " ; "));
    let mut calls = Vec::new();
    for part in words.split(|word| separators.contains(&word.as_str())) {
        let name = |word: &String| word.rsplit('/').next().unwrap_or_default().to_owned();
        let starts = part.iter().find(|word| !word.contains('='));
        if !starts.is_some_and(|word| OURS.contains(&name(word).as_str()) || STARTERS.contains(&name(word).as_str())) {
            continue;
        }
        let Some(start) = part.iter().position(|word| OURS.contains(&name(word).as_str())) else { continue };
        let end = part.iter().position(|word| word.starts_with(['>', '<']) || word == "2>").unwrap_or(part.len());
        let mut call = part[start..end.max(start)].to_vec();
        if let Some(first) = call.first_mut() {
            *first = name(first);
            calls.push(call);
        }
    }
    calls.into_iter()
}

/// Words as a shell cuts them, as far as pages use it.
fn shell_words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
    for c in line.chars() {
        match (quote, c) {
            (None, ' ') => words.extend((!word.is_empty()).then(|| std::mem::take(&mut word))),
            (None, '\'' | '"') => quote = Some(c),
            (Some(open), c) if c == open => quote = None,
            _ => word.push(c),
        }
    }
    words.extend((!word.is_empty()).then_some(word));
    words
}

/// A command or flag that is not there. Placeholders and what a page leaves out are no mistakes.
fn misread(words: &[String]) -> Option<String> {
    let name = |program: &ProgramName| program.to_possible_value().is_some_and(|value| value.get_name() == words[0]);
    let program = ProgramName::value_variants().iter().find(|program| name(program))?;
    let words: Vec<String> =
        words.iter().filter(|word| *word != "..." && !word.starts_with(['[', '('])).cloned().collect();
    // Everything behind `--` is for the program that `commgauge run` starts.
    if let Some(behind) =
        words.iter().position(|word| word == "--").filter(|_| words.get(1).is_some_and(|word| word == "run"))
    {
        let has = |flag: &str| words[..behind].iter().any(|word| word == flag);
        let started = if has("--step") {
            "commgauge-step"
        } else if has("--pairs") {
            "commgauge-pairs"
        } else {
            "commgauge-suite"
        };
        let inner = [&[started.to_owned()], &words[behind + 1..]].concat();
        return misread(&words[..behind]).or_else(|| misread(&inner));
    }
    let error = program.definition().try_get_matches_from(words.iter()).err()?;
    let missing = [ErrorKind::UnknownArgument, ErrorKind::InvalidSubcommand];
    // Words in capitals are placeholders, as in `commgauge COMMAND --help`.
    let placeholder = words.get(1).is_some_and(|word| word.chars().all(|c| c.is_ascii_uppercase()) || word == "double");
    let line = words.iter().map(|word| word.as_str()).collect::<Vec<_>>().join(" ");
    (missing.contains(&error.kind()) && !placeholder)
        .then(|| format!("`{line}`: {}", error.to_string().lines().next().unwrap_or_default()))
}
