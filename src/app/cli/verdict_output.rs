//! Flags for the output of a verdict, and atomic writing of a file.

use super::table_or_json::print;
use super::terminal::{Sink, columns_of};
use crate::report::{VerdictFormat, verdict_text};
use commgauge_analysis::verdict::{LoadedRecord, Verdict};
use commgauge_base::error::{Error, Result};
use commgauge_base::visible::ShownPath;
use std::io::Write;
use std::path::{Path, PathBuf};

/// How a verdict is shown.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct VerdictOutput {
    /// How to write the verdict
    #[arg(long, value_enum, default_value_t)]
    pub format: VerdictFormat,

    /// Write to a file instead of stdout; an existing file is replaced once the new one is complete
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Columns that the table may take [default: COLUMNS, else those of the terminal, else 100]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(40..))]
    pub width: Option<u16>,
}

impl VerdictOutput {
    /// Rejects an output that would overwrite an input, or that cannot be a file.
    pub fn check(&self, inputs: &[&Path]) -> Result<()> {
        check_text_output(self.file(), inputs)
    }

    /// Writes the verdict, and returns its exit code.
    pub fn show(&self, verdict: &Verdict) -> Result<i32> {
        let text = verdict_text(verdict, self.format, columns(self.width, self.file()))?;
        match self.file() {
            Some(path) => replace(path, &text)?,
            None => print(&text)?,
        }
        Ok(verdict.exit_code)
    }

    fn file(&self) -> Option<&Path> {
        self.output.as_deref().filter(|path| *path != Path::new("-"))
    }
}

/// The same for text, which a browser would take for a page if its file were called one.
pub(super) fn check_text_output(output: Option<&Path>, inputs: &[&Path]) -> Result<()> {
    match output.filter(|path| is_page(path)) {
        Some(path) => Err(Error::usage(format!(
            "--output {} is the name of a page, and this is text; name another file, or write a page with `commgauge report` or \
             `commgauge judge`",
            path.shown()
        ))),
        None => check_output(output, inputs),
    }
}

/// Rejects an output that would overwrite an input, or that cannot be a file.
pub(super) fn check_output(output: Option<&Path>, inputs: &[&Path]) -> Result<()> {
    let Some(path) = output else { return Ok(()) };
    if path.is_dir() {
        return Err(Error::usage(format!("--output {} is a folder; name a file in it", path.shown())));
    }
    let whole = |path: &Path| path.canonicalize().ok();
    match inputs.iter().find(|input| whole(input).is_some() && whole(input) == whole(path)) {
        Some(_) => Err(Error::usage(format!("--output {} is one of the inputs; name another file", path.shown()))),
        None => Ok(()),
    }
}

/// Whether the name of an output asks for a page.
pub(super) fn is_page(path: &Path) -> bool {
    path.extension().is_some_and(|end| end.eq_ignore_ascii_case("html") || end.eq_ignore_ascii_case("htm"))
}

/// Columns of a table: as requested, or those of the terminal if it goes to one.
pub(super) fn columns(requested: Option<u16>, file: Option<&Path>) -> u16 {
    columns_of(requested, if file.is_some() { Sink::File } else { Sink::stdout() })
}

/// Reads the records to be evaluated, in parallel.
pub(super) fn read_all(paths: &[PathBuf]) -> Result<Vec<LoadedRecord>> {
    std::thread::scope(|scope| {
        let reading: Vec<_> = paths.iter().map(|path| scope.spawn(move || LoadedRecord::read(path))).collect();
        reading.into_iter().map(|one| one.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}

/// Writes a temporary file, flushes it to disk and renames it: a concurrent reader sees either the old text or the new
/// one.
pub(super) fn replace(path: &Path, content: impl AsRef<[u8]>) -> Result<()> {
    let refused = |cause| Error::usage(format!("cannot write {}: {cause}", path.shown()));
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(format!(".{}.tmp", std::process::id()));
    let temporary = PathBuf::from(temporary);
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).open(&temporary).map_err(refused)?;
    let written = file.write_all(content.as_ref()).and_then(|()| file.sync_all());
    let done = written.and_then(|()| std::fs::rename(&temporary, path));
    done.map_err(|cause| {
        // The first error is the one to report, even if the temporary file cannot be removed.
        let _ = std::fs::remove_file(&temporary);
        Error::file("write", path, cause)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_that_cannot_be_written_is_refused_and_nothing_is_left_behind() {
        let folder = tempfile::tempdir().unwrap();
        let record = folder.path().join("r.jsonl");
        std::fs::write(&record, "x").unwrap();
        for (path, words) in [(folder.path().to_owned(), "is a folder"), (record.clone(), "is one of the inputs")] {
            let output = VerdictOutput { output: Some(path), ..VerdictOutput::default() };
            let error = output.check(&[&record]).unwrap_err();
            assert!(error.exit_code() == 2 && error.to_string().contains(words), "{error}");
        }
        let nowhere = folder.path().join("missing/v.json");
        assert_eq!(replace(&nowhere, "text").unwrap_err().exit_code(), 2);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_is_replaced_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("v.json");
        for text in ["a long first text", "short"] {
            replace(&path, text).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file stays");
    }
}
