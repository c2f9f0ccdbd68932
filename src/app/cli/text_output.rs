//! Where the text of an answer goes, in which format, and how wide its tables are.

use super::table_or_json::print;
use super::terminal::{Sink, columns_of};
use clap::ValueEnum;
use commgauge_base::error::{Error, Result};
use commgauge_base::output_file::write_output;
use commgauge_base::visible::ShownPath;
use std::path::{Path, PathBuf};

/// The format that the ending of a file name means, as --format calls it; of the last ones nothing here is written.
const ENDINGS: [(&str, &str); 19] = [
    ("txt", TEXT),
    ("text", TEXT),
    ("log", TEXT),
    ("json", "json"),
    ("csv", "csv"),
    ("md", "markdown"),
    ("html", PAGE),
    ("htm", PAGE),
    ("xml", "junit"),
    ("prom", "prometheus"),
    ("toml", "toml"),
    ("jsonl", "record"),
    ("parquet", "parquet"),
    ("yaml", "yaml"),
    ("yml", "yaml"),
    ("pdf", "pdf"),
    ("xlsx", "xlsx"),
    ("png", "png"),
    ("svg", "svg"),
];
const TEXT: &str = "table";
/// The format of a page.
pub(super) const PAGE: &str = "html";

/// Where an answer goes.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct TextOutput {
    /// Write to a file instead of stdout; an existing file is replaced once the new one is complete. Without --format the ending of
    /// its name chooses the format: .txt, .json, .csv, .md, .html, .xml, .prom
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Columns that the table may take [default: COLUMNS, else those of the terminal, else 100]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(40..))]
    pub width: Option<u16>,
}

/// How an answer is written, and where it goes.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct FormattedOutput<F: ValueEnum + Send + Sync + 'static> {
    /// How to write the answer [default: what the ending of --output means, else table]
    #[arg(long, value_enum)]
    pub format: Option<F>,

    /// Where it goes.
    #[command(flatten)]
    pub to: TextOutput,
}

impl TextOutput {
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

    fn file(&self) -> Option<&Path> {
        file_of(self.output.as_deref())
    }
}

impl<F: ValueEnum + Default + Send + Sync + 'static> FormattedOutput<F> {
    /// Rejects an output that would overwrite an input or that cannot be a file, and returns the format: that of the flag, or else
    /// the one that the name of the file means.
    pub(super) fn check(&self, inputs: &[&Path]) -> Result<F> {
        check_output(self.to.file(), inputs)?;
        if let Some(requested) = &self.format {
            return Ok(requested.clone());
        }
        let offered = names::<F>();
        let meant = self.to.file().map(|path| meant_format(path, &offered)).transpose()?.flatten();
        Ok(meant.and_then(|name| F::from_str(&name, false).ok()).unwrap_or_default())
    }
}

/// The file that a flag names; none where it means stdout.
pub(super) fn file_of(output: Option<&Path>) -> Option<&Path> {
    output.filter(|path| *path != Path::new("-"))
}

/// The names of formats, as the flag takes them.
pub(super) fn names<F: ValueEnum>() -> Vec<String> {
    F::value_variants().iter().filter_map(|format| Some(format.to_possible_value()?.get_name().to_owned())).collect()
}

/// Which of the formats on offer the ending of a name means; none where it has no ending.
///
/// # Errors
/// A usage error for any other ending: the file would not hold what its name says.
pub(super) fn meant_format(path: &Path, offered: &[String]) -> Result<Option<String>> {
    let Some(ending) = path.extension() else { return Ok(None) };
    let known = format_of_ending(path);
    if let Some(format) = known.filter(|known| offered.iter().any(|offered| offered == known)) {
        return Ok(Some(format.to_owned()));
    }
    let with_endings = |format: &String| {
        let endings: Vec<String> =
            ENDINGS.iter().filter(|(_, meant)| meant == format).map(|(ending, _)| format!(".{ending}")).collect();
        if endings.is_empty() { format.clone() } else { format!("{format} ({})", endings.join(", ")) }
    };
    let formats = offered.iter().map(with_endings).collect::<Vec<_>>().join(", ");
    let choice = if offered.len() > 1 { "; --format chooses one whatever the ending" } else { "" };
    Err(Error::usage(format!(
        "--output {}: no format for files that end in .{} is offered here; accepted: {formats}, or a name without ending{choice}",
        path.shown(),
        commgauge_base::visible::visible(&ending.to_string_lossy())
    )))
}

/// Rejects an output that would overwrite an input, that cannot be a file, or whose name promises another format than the only one
/// that there is of it; an ending that means no format promises none.
pub(super) fn check_only_format(output: &Path, format: &str, inputs: &[&Path]) -> Result<()> {
    check_output(Some(output), inputs)?;
    match format_of_ending(output) {
        Some(_) => meant_format(output, &[format.to_owned()]).map(drop),
        None => Ok(()),
    }
}

fn format_of_ending(path: &Path) -> Option<&'static str> {
    let ending = path.extension()?;
    ENDINGS.iter().find(|(known, _)| ending.eq_ignore_ascii_case(known)).map(|(_, format)| *format)
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
    format_of_ending(path) == Some(PAGE)
}

/// Writes an output: whoever reads it meanwhile sees either the old text or the new one.
pub(super) fn replace(path: &Path, content: impl AsRef<[u8]>) -> Result<()> {
    write_output(path, content.as_ref()).map_err(|cause| Error::path("write", path, &cause))
}

/// Makes the folder that a flag names.
pub(super) fn make_folder(flag: &str, path: &Path) -> Result<()> {
    commgauge_base::output_file::make_folder(path)
        .map_err(|cause| Error::usage(format!("{flag}: cannot make {}: {cause}", path.shown())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{HistoryFormat, VerdictFormat};

    fn output<F: ValueEnum + Default + Send + Sync>(path: impl Into<PathBuf>, format: Option<F>) -> FormattedOutput<F> {
        FormattedOutput { format, to: TextOutput { output: Some(path.into()), width: None } }
    }

    #[test]
    fn an_output_that_cannot_be_written_is_refused_and_nothing_is_left_behind() {
        let folder = tempfile::tempdir().unwrap();
        let record = folder.path().join("r.jsonl");
        std::fs::write(&record, "x").unwrap();
        for (path, words) in [(folder.path().to_owned(), "is a folder"), (record.clone(), "is one of the inputs")] {
            let error = output::<VerdictFormat>(path, None).check(&[&record]).unwrap_err();
            assert!(error.exit_code() == 2 && error.to_string().contains(words), "{error}");
        }
        let nowhere = folder.path().join("missing/v.json");
        assert_eq!(replace(&nowhere, "text").unwrap_err().exit_code(), 2);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn the_ending_of_a_name_chooses_the_format_and_the_flag_wins() {
        use VerdictFormat::*;
        for (name, meant) in [
            ("v", Some(Table)),
            ("-", Some(Table)),
            ("v.d/v", Some(Table)),
            ("v.TXT", Some(Table)),
            ("v.json", Some(Json)),
            ("v.md", Some(Markdown)),
            ("v.junit.xml", Some(Junit)),
            ("v.prom", Some(Prometheus)),
            ("v.csv", None),
            ("v.html", None),
            ("v.pdf", None),
            ("v.2026-11-27", None),
        ] {
            match output::<VerdictFormat>(name, None).check(&[]) {
                Ok(format) => assert_eq!(Some(format), meant, "{name}"),
                Err(error) => {
                    assert!(meant.is_none() && error.exit_code() == 2, "{name}: {error}");
                    assert!(error.to_string().contains("markdown (.md), prometheus (.prom), github"), "{error}");
                }
            }
            assert_eq!(output(name, Some(Github)).check(&[]).unwrap(), Github, "{name}");
        }
        assert_eq!(output::<HistoryFormat>("h.htm", None).check(&[]).unwrap(), HistoryFormat::Html);
        for name in ["f.json", "f", "f.v2"] {
            check_only_format(Path::new(name), "json", &[]).unwrap();
        }
        let error = check_only_format(Path::new("f.csv"), "json", &[]).unwrap_err().to_string();
        assert!(error.contains(".csv") && error.contains("json (.json)") && !error.contains("--format"), "{error}");
    }
}
