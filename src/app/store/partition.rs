//! Where the files of a run lie: in folders that name machine and month, as DuckDB, Spark, Polars and pandas read them (Hive's form).

use commgauge_base::error::{Error, Result};
use commgauge_base::output_file::{folder_of, make_folder, write_own};
use commgauge_model::record::line::Header;
use std::fs;
use std::path::{Path, PathBuf};

/// The folder of a run.
pub(super) struct Partition {
    machine: String,
    month: String,
}

impl Partition {
    /// By the name of its machine file, else of its first host's processor or device; and by the month in which it began.
    pub fn of(header: &Header) -> Partition {
        let device = header.ranks.first().map(|rank| rank.device.clone().unwrap_or_else(|| rank.processor.clone()));
        let stem = |path: &String| Path::new(path).file_stem().map(|stem| stem.to_string_lossy().into_owned());
        let machine = header.backend.machine.as_ref().and_then(stem).or(device).unwrap_or_default();
        let month = header.started_at.get(..7).filter(|text| text.parse::<MonthText>().is_ok()).unwrap_or("unknown");
        Partition { machine: plain(&machine), month: month.to_owned() }
    }

    /// The file of a run below a folder.
    pub fn file(&self, below: &Path, run_id: &str, extension: &str) -> PathBuf {
        let folder = below.join(format!("machine={}", self.machine)).join(format!("month={}", self.month));
        folder.join(format!("{}.{extension}", plain(run_id)))
    }
}

/// `2026-11`.
struct MonthText;

impl std::str::FromStr for MonthText {
    type Err = ();

    fn from_str(text: &str) -> std::result::Result<MonthText, ()> {
        let (year, month) = text.split_once('-').ok_or(())?;
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let valid = digits(year) && digits(month) && matches!(month.parse::<u8>(), Ok(1..=12));
        if valid { Ok(MonthText) } else { Err(()) }
    }
}

/// A name for folders and files; what has no plain letters is called unknown.
fn plain(text: &str) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
    let name: String = text.chars().take(100).map(letter).collect();
    let name = name.trim_matches(['-', '.']).to_owned();
    if name.is_empty() { "unknown".to_owned() } else { name }
}

/// Writes a file and the folders that it is in: readers see it whole or not at all.
pub(super) fn write(path: &Path, content: &[u8]) -> Result<()> {
    make_folder(folder_of(path))
        .and_then(|()| write_own(path, content))
        .map_err(|cause| Error::file("write", path, cause))
}

/// Removes a file or a folder, if it is there.
pub(super) fn remove(path: &Path) -> Result<()> {
    let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    match removed {
        Err(cause) if cause.kind() != std::io::ErrorKind::NotFound => Err(Error::file("remove", path, cause)),
        _ => Ok(()),
    }
}

/// The files of an extension below a folder, sorted; what a killed writer left is none of them.
pub(super) fn files_below(folder: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => continue,
            Err(cause) => return Err(Error::file("read the folder", &folder, cause)),
        };
        for entry in entries {
            let path = entry.map_err(|cause| Error::file("read the folder", &folder, cause))?.path();
            let hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
            match path.is_dir() {
                true => folders.push(path),
                false if !hidden && path.extension().is_some_and(|found| found == extension) => found.push(path),
                false => {}
            }
        }
    }
    found.sort();
    Ok(found)
}
