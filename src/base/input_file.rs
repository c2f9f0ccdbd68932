//! Opens a file that a user named, so that no pipe, socket or device is waited for or read without end.

use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// Opens a file for reading.
///
/// # Errors
/// Those of the system; and `InvalidInput` where the path is no file, with what it is.
pub fn open(path: &Path) -> Result<File> {
    ensure_file(path)?;
    File::open(path)
}

/// Checks that a path that exists is a file. A pipe would be waited for as soon as it is opened.
///
/// # Errors
/// As [`open`].
pub fn ensure_file(path: &Path) -> Result<()> {
    let kind = std::fs::metadata(path)?.file_type();
    let found = match () {
        () if kind.is_file() => return Ok(()),
        () if kind.is_dir() => return Err(ErrorKind::IsADirectory.into()),
        () if kind.is_fifo() => "a pipe",
        () if kind.is_socket() => "a socket",
        () => "a device",
    };
    Err(Error::new(ErrorKind::InvalidInput, format!("it is {found}; accepted: a file")))
}

/// The bytes of a file, as [`std::fs::read`] has them.
///
/// # Errors
/// As [`open`].
pub fn read(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The text of a file, as [`std::fs::read_to_string`] has it.
///
/// # Errors
/// As [`open`], and where it is not UTF-8.
pub fn read_to_string(path: &Path) -> Result<String> {
    let mut text = String::new();
    open(path)?.read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_are_opened() {
        let error = read(Path::new("/dev/zero")).unwrap_err();
        assert!(error.kind() == ErrorKind::InvalidInput && error.to_string().contains("is a device"), "{error}");
        let socket = std::env::temp_dir().join(format!("commgauge-input-file-{}", std::process::id()));
        let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert!(open(&socket).unwrap_err().to_string().contains("is a socket"));
        drop((listener, std::fs::remove_file(&socket)));
        assert_eq!(open(Path::new("/")).unwrap_err().kind(), ErrorKind::IsADirectory);
        assert_eq!(open(Path::new("/nowhere/at/all")).unwrap_err().kind(), ErrorKind::NotFound);
    }
}
