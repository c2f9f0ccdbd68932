//! Programs that a test writes and then starts.

use std::path::Path;
use std::process::Command;

/// Writes an executable file, in folders that are made for it, in place of one that may just be running.
///
/// Another process writes it: a file that this one has open for writing, and with it each child that another test is just
/// starting, cannot be executed ("Text file busy").
pub fn write_program(path: &Path, content: impl AsRef<[u8]>) {
    let draft = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(draft.path(), content).expect("a temporary file is writable");
    let installed = Command::new("install").args(["-D", "-m", "755"]).arg(draft.path()).arg(path).status();
    assert!(installed.expect("install is there").success(), "{} cannot be written", path.display());
}
