//! The commands that README and docs print: which blocks have some, and how the comment above each says that it is tested.
//!
//!     <!-- test: run; exit 0 2; with records; swap "-n 4" "-n 2" -->
//!
//! `run` needs no launcher, `launch` starts ranks on this host, `parse` needs what tests have not (hosts, GPUs, Slurm, an hour), so
//! that only its flags are read, and `other` runs no program of ours. Both of the latter say why.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::path::{Path, PathBuf};

/// Programs of ours, by the name under which they are on the path.
pub const OURS: [&str; 5] = ["commgauge", "commgauge-suite", "commgauge-sweep", "commgauge-step", "commgauge-pairs"];
const OTHERS: [&str; 17] = [
    "mpirun",
    "mpiexec",
    "srun",
    "sbatch",
    "salloc",
    "cargo",
    "kubectl",
    "git",
    "python3",
    "pip",
    "docker",
    "podman",
    "apptainer",
    "enroot",
    "curl",
    "jq",
    "crontab",
];

/// How a block is tested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum How {
    Run,
    Launch,
    Parse(String),
    Other(String),
}

/// A block of commands in a page.
#[derive(Clone, Debug)]
pub struct Block {
    /// The page, from the root of the repository.
    pub page: String,
    /// Where the block starts; the first line is 1.
    pub line: usize,
    /// The mark, or what is wrong with it.
    pub mark: Result<Mark, String>,
    /// Its commands, each on one line, as printed.
    pub commands: Vec<String>,
}

/// Content of the comment above a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    pub how: How,
    /// Exit codes of the commands in their order; the last one applies to the rest, and the default is 0.
    pub exits: Vec<i32>,
    /// What must be in the folder beforehand.
    pub with: Vec<String>,
    /// Words that are replaced so that the command ends soon, as the numbers of ranks.
    pub swaps: Vec<(String, String)>,
    /// Words that are added to every command.
    pub plus: String,
}

/// Every block with commands of every page for users and developers.
pub fn blocks() -> Vec<Block> {
    pages().iter().flat_map(|(page, text)| blocks_of(page, text)).collect()
}

/// The pages, by name.
pub fn pages() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found: Vec<PathBuf> =
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "suites/README.md", "kernels/README.md"]
            .iter()
            .chain(&["reports/examples/README.md", "scripts/gpu-bundle.d/README.md", "tests/doubles/README.md"])
            .map(PathBuf::from)
            .collect();
    for folder in ["docs", "docs/reference"] {
        let entries = std::fs::read_dir(root.join(folder)).expect("the folder is there");
        let names = entries.map(|entry| Path::new(folder).join(entry.expect("it can be listed").file_name()));
        found.extend(names.filter(|name| name.extension().is_some_and(|kind| kind == "md")));
    }
    found.sort();
    let read = |name: &PathBuf| std::fs::read_to_string(root.join(name)).expect("the page is there");
    found.iter().map(|name| (name.display().to_string(), read(name))).collect()
}

/// The blocks with commands of one page: fenced ones, and those that are indented by four spaces.
pub fn blocks_of(page: &str, text: &str) -> Vec<Block> {
    let lines: Vec<&str> = text.lines().collect();
    let mut blocks = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        let (body, next) = block_at(&lines, at);
        let commands = commands(&body);
        if !commands.is_empty() {
            blocks.push(Block { page: page.to_owned(), line: at + 1, mark: mark_above(&lines[..at]), commands });
        }
        at = next;
    }
    blocks
}

/// The block that starts at a line, without fence and indent, and the line behind it; nothing where none starts.
fn block_at<'a>(lines: &[&'a str], at: usize) -> (Vec<&'a str>, usize) {
    let line = lines[at];
    if line.trim_start().starts_with("```") {
        let end = (at + 1..lines.len()).find(|end| lines[*end].trim_start().starts_with("```")).unwrap_or(lines.len());
        return (lines[at + 1..end].to_vec(), end + 1);
    }
    let free = at == 0 || lines[at - 1].trim().is_empty() || lines[at - 1].trim_start().starts_with("<!--");
    if !(line.starts_with("    ") && !line.trim().is_empty() && free) {
        return (Vec::new(), at + 1);
    }
    let inside = |line: &&str| line.starts_with("    ") || line.trim().is_empty();
    let count = lines[at..].iter().take_while(|line| inside(line)).count();
    (lines[at..at + count].iter().map(|line| line.get(4..).unwrap_or("")).collect(), at + count)
}

/// The commands of a block: behind `$ ` where it has such lines, else whatever begins with a program that is known.
fn commands(body: &[&str]) -> Vec<String> {
    let prompts = body.iter().any(|line| line.starts_with("$ "));
    let mut commands = Vec::new();
    let mut lines = body.iter();
    while let Some(line) = lines.next() {
        let command = match prompts {
            true => line.strip_prefix("$ "),
            false => Some(line.trim()).filter(|line| is_command(line)),
        };
        let Some(command) = command else { continue };
        let mut command = command.trim().to_owned();
        while let Some(begun) = command.strip_suffix('\\') {
            command = format!("{} {}", begun.trim(), lines.next().map_or("", |line| line.trim()));
        }
        commands.push(command);
    }
    commands
}

fn is_command(line: &str) -> bool {
    let is_setting = |word: &&str| {
        word.split_once('=').is_some_and(|(name, _)| name.chars().all(|c| c == '_' || c.is_ascii_alphanumeric()))
    };
    let Some(program) = line.split_whitespace().find(|word| !is_setting(word)) else { return false };
    let of_a_checkout = ["./", "scripts/", "target/", "commgauge/"].iter().any(|start| program.starts_with(start));
    OURS.contains(&program) || OTHERS.contains(&program) || (of_a_checkout && !program.ends_with(['/', ':']))
}

fn mark_above(above: &[&str]) -> Result<Mark, String> {
    let last = above.iter().rev().find(|line| !line.trim().is_empty()).map_or("", |line| line.trim());
    let words = last.strip_prefix("<!-- test: ").and_then(|rest| rest.strip_suffix(" -->"));
    words.map_or_else(|| Err("has no mark `<!-- test: run|launch|parse|other ... -->` above it".to_owned()), mark)
}

/// Reads the words of a mark.
pub fn mark(words: &str) -> Result<Mark, String> {
    let mut parts = words.split("; ");
    let kind = parts.next().unwrap_or_default();
    let how = match kind.split_once(' ').unwrap_or((kind, "")) {
        ("run", "") => How::Run,
        ("launch", "") => How::Launch,
        ("parse", why) if !why.is_empty() => How::Parse(why.to_owned()),
        ("other", why) if !why.is_empty() => How::Other(why.to_owned()),
        _ => return Err(format!("`{kind}` is not one of: run, launch, parse WHY, other WHY")),
    };
    let mut mark = Mark { how, exits: Vec::new(), with: Vec::new(), swaps: Vec::new(), plus: String::new() };
    for part in parts {
        let (key, value) = part.split_once(' ').unwrap_or((part, ""));
        match key {
            "exit" => {
                let codes: Result<Vec<i32>, _> = value.split(' ').map(str::parse).collect();
                mark.exits = codes.map_err(|_| format!("`{part}`: exit codes are numbers"))?;
            }
            "with" => mark.with = value.split(' ').map(str::to_owned).collect(),
            "plus" => mark.plus = format!(" {value}"),
            "swap" => {
                let quoted: Vec<&str> = value.split('"').collect();
                let [_, old, _, new, _] = quoted[..] else { return Err(format!("`{part}`: swap \"OLD\" \"NEW\"")) };
                mark.swaps.push((old.to_owned(), new.to_owned()));
            }
            _ => return Err(format!("`{part}` is not one of: exit, with, swap, plus")),
        }
    }
    Ok(mark)
}

impl Mark {
    /// The exit code that a command of the block is to have.
    pub fn exit_of(&self, command: usize) -> i32 {
        self.exits.get(command).or(self.exits.last()).copied().unwrap_or(0)
    }

    /// The command as it is started.
    pub fn command(&self, printed: &str) -> String {
        let command = printed.split(" #").next().unwrap_or_default().trim().to_owned();
        self.swaps.iter().fold(command, |command, (old, new)| command.replace(old.as_str(), new)) + &self.plus
    }
}
