//! Where the text of an answer goes, how wide its tables are, and atomic writing of a file.

use super::table_or_json::print;
use super::terminal::{Sink, columns_of};
use commgauge_base::error::{Error, Result};
use commgauge_base::visible::ShownPath;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Where an answer goes.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct TextOutput {
    /// Write to a file instead of stdout; an existing file is replaced once the new one is complete. Of what has a page a name
    /// that ends in .html makes it
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Columns that the table may take [default: COLUMNS, else those of the terminal, else 100]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(40..))]
    pub width: Option<u16>,
}

impl TextOutput {
    /// Rejects an output that would overwrite an input, that cannot be a file, or that is called a page.
    pub(super) fn check_text(&self, inputs: &[&Path]) -> Result<()> {
        check_text_output(self.file(), inputs)
    }

    /// The same where it may be a page.
    pub(super) fn check(&self, inputs: &[&Path]) -> Result<()> {
        check_output(self.file(), inputs)
    }

    /// Columns of a table: as requested, or those of the terminal if it goes to one.
    pub(super) fn columns(&self) -> u16 {
        columns_of(self.width, if self.file().is_some() { Sink::File } else { Sink::stdout() })
    }

    /// Writes the text.
    pub(super) fn write(&self, text: &str) -> Result<()> {
        match self.file() {
            Some(path) => replace(path, text),
            None => print(text),
        }
    }

    /// The format of the flag, or that of pages where the flag was left out and the name of the file asks for one.
    pub(super) fn format_or_page<F: Default + PartialEq>(&self, requested: F, page: F) -> F {
        if self.file().is_some_and(is_page) && requested == F::default() { page } else { requested }
    }

    fn file(&self) -> Option<&Path> {
        self.output.as_deref().filter(|path| *path != Path::new("-"))
    }
}

/// The same for text, which a browser would take for a page if its file were called one.
fn check_text_output(output: Option<&Path>, inputs: &[&Path]) -> Result<()> {
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
            let output = TextOutput { output: Some(path), width: None };
            let error = output.check_text(&[&record]).unwrap_err();
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
