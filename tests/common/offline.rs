//! Running `commgauge` where there is no MPI.

use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Runs `commgauge` in a folder.
pub fn commgauge(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_commgauge"))
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .expect("commgauge starts")
}

/// What it wrote, as text.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
