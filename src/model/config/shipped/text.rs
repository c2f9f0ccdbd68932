//! The text of a file that a user named, on a disk or embedded.

use super::embedded::embedded_text;
use crate::config::document::Place;
use commgauge_base::error::{Error, Result};
use commgauge_base::input_file;
use commgauge_base::visible::ShownPath;
use std::io::{ErrorKind, Read};
use std::path::Path;

/// No file of ours is longer; a file of weights given by mistake is not read to its end.
const LONGEST_FILE_BYTES: u64 = 16 << 20;

/// The text of a file that the user named at `place`.
pub fn read_text(file: &Path, place: &Place) -> Result<String> {
    if let Some(text) = embedded_text(file) {
        return Ok(text.to_owned());
    }
    let mut bytes = Vec::new();
    let read = input_file::open(file).and_then(|open| open.take(LONGEST_FILE_BYTES + 1).read_to_end(&mut bytes));
    match read {
        Ok(length) if length as u64 > LONGEST_FILE_BYTES => {
            Err(place.wrong(format!("{} is longer than 16 MiB; accepted: a file of text", file.shown())))
        }
        Ok(_) => String::from_utf8(bytes).map_err(|_| place.wrong(format!("{} is not text in UTF-8", file.shown()))),
        Err(cause) => Err(match cause.kind() {
            ErrorKind::NotFound => place.wrong(format!("there is no file {}", file.shown())),
            ErrorKind::IsADirectory => place.wrong(format!("{} is a folder", file.shown())),
            ErrorKind::InvalidInput => place.wrong(format!("{}: {cause}", file.shown())),
            _ => Error::file("read", file, cause),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};

    #[test]
    fn a_file_that_is_not_text_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("binary"), [0xff, 0xfe]).unwrap();
        File::create(folder.path().join("long")).unwrap().set_len(LONGEST_FILE_BYTES + 1).unwrap();
        for (name, expected) in [
            ("binary", "is not text in UTF-8"),
            ("long", "is longer than 16 MiB"),
            ("none", "there is no file"),
            ("", "is a folder"),
        ] {
            let error = read_text(&folder.path().join(name), &Place::flag("MODEL")).expect_err(name);
            assert!(error.to_string().contains(expected) && error.exit_code() == 2, "{name}: {error}");
        }
    }
}
