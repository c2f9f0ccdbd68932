//! `commgauge import --from commgauge`: converts records to the current version, one file for each.

use super::super::text_output::make_folder;
use super::arguments::ImportCommand;
use super::bad_lines::{bad_line_text, unreadable};
use commgauge_analysis::interop::{Renewed, read_commgauge};
use commgauge_base::error::{Error, Result};
use commgauge_base::message::eprintln;
use commgauge_base::units::counted;
use commgauge_base::visible::ShownPath;
use commgauge_model::record::{Journal, Line, Record};
use std::path::{Path, PathBuf};

/// Reads all records, and writes only if all are valid or bad lines may be left out.
pub(super) fn execute(command: &ImportCommand) -> Result<i32> {
    let outputs = outputs(command)?;
    let mut renewed = Vec::new();
    for path in &command.files {
        renewed.push((path, read_commgauge(path)?));
    }
    let bad: Vec<String> = renewed
        .iter()
        .flat_map(|(path, record)| record.bad_lines.iter().map(|line| bad_line_text(path, line)))
        .collect();
    if !bad.is_empty() && !command.skip_bad_lines {
        let all = renewed.iter().map(|(_, record)| record.lines.len() + record.bad_lines.len()).sum();
        return Err(unreadable(&bad, all));
    }
    if command.files.len() > 1 {
        make_folder("--output", &command.output)?;
    }
    for ((path, record), output) in renewed.into_iter().zip(&outputs) {
        write(path, record, output)?;
    }
    Ok(0)
}

/// The output file of each record: the named file, or a file of the same name in the named folder.
fn outputs(command: &ImportCommand) -> Result<Vec<PathBuf>> {
    if command.files.len() == 1 {
        return Ok(vec![command.output.clone()]);
    }
    if command.output.is_file() {
        let problem = "is a file; several records go into a folder";
        return Err(Error::usage(format!("--output {}: {problem}", command.output.shown())));
    }
    let mut outputs: Vec<PathBuf> = Vec::new();
    for path in &command.files {
        let name = path.file_name().ok_or_else(|| Error::usage(format!("{}: is no file", path.shown())))?;
        let output = command.output.join(name);
        if outputs.contains(&output) {
            return Err(Error::usage(format!("two records are called {}; rename one", name.shown())));
        }
        if output.exists() {
            return Err(Error::usage(format!("{} exists, and a record is never written over", output.shown())));
        }
        outputs.push(output);
    }
    Ok(outputs)
}

fn write(path: &Path, record: Renewed, output: &Path) -> Result<()> {
    let Renewed { mut lines, bad_lines, version, cut_off } = record;
    if let Some(Line::Header(header)) = lines.first_mut() {
        header.warnings.extend(bad_lines.iter().map(|line| format!("left out: {}", bad_line_text(path, line))));
    }
    // Lines that are valid individually must also form a valid record before anything is written.
    let whole = Record::from_lines(lines.iter().cloned())?;
    let mut journal = Journal::create(output)?;
    for line in &lines {
        journal.write(line)?;
    }
    journal.finish()?;
    let left_out = match bad_lines.len() {
        0 => String::new(),
        lines => format!(", {} left out", counted(lines, "line")),
    };
    let cut = if cut_off { "; the run did not end, and the record says so" } else { "" };
    eprintln!("{}: version {version}, {} case lines{left_out}{cut}", output.shown(), whole.cases.len());
    Ok(())
}
