//! What the GPU libraries of this machine say of themselves: loaded here, asked a few questions, and nothing else.
//!
//! A library that crashes takes the process with it, so the answers are meant to be got in a child process. Carrying data is for the
//! NCCL backend, which has its own tables of functions.

mod cuda;
mod nccl_library;

use serde::{Deserialize, Serialize};
use std::path::Path;

/// What stand-ins for tests call their devices, so that nothing found through them is taken for real.
const DOUBLE: &str = "commgauge double";

/// A library that can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// The CUDA driver's.
    Cuda,
    /// NCCL.
    Nccl,
}

/// What the CUDA driver says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CudaAnswer {
    /// The file that was loaded.
    pub file: String,
    /// True where its devices say that they are stand-ins for tests.
    pub is_double: bool,
    /// The newest CUDA that it serves, such as `12.8`.
    pub cuda: String,
    /// Devices that this process may use.
    pub devices: Vec<Device>,
    /// Whether a device (row) can read and write the memory of another (column).
    pub peers: Vec<Vec<bool>>,
    /// What failed on the way, if anything did.
    pub problem: Option<String>,
}

/// A device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// Name.
    pub name: String,
    /// Where it sits, as `0000:3b:00.0`.
    pub pci: String,
    /// Bytes of memory.
    pub memory_bytes: u64,
}

/// What NCCL says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NcclAnswer {
    /// The file that was loaded.
    pub file: String,
    /// Its version, such as `2.30.7`.
    pub version: String,
    /// Functions that are needed and not there.
    pub lacks: Vec<String>,
    /// Functions that came later and are not there.
    pub lacks_newer: Vec<String>,
    /// What failed on the way, if anything did.
    pub problem: Option<String>,
}

/// Loads the library in this process, asks it, and gives the answer as JSON.
///
/// # Errors
/// Why the library cannot be loaded.
pub fn answer(probe: Probe, nccl_library: Option<&Path>) -> Result<String, String> {
    let text = match probe {
        Probe::Cuda => serde_json::to_string(&cuda::ask()?),
        Probe::Nccl => serde_json::to_string(&nccl_library::ask(nccl_library)?),
    };
    text.map_err(|cause| cause.to_string())
}

/// Loads the first library that is there, by its names.
fn load(names: &[std::ffi::OsString]) -> Result<(libloading::Library, String), String> {
    let mut problems = Vec::new();
    for name in names {
        // SAFETY: loading runs the library's initialisers, which is what looking at it means; the process does little else.
        match unsafe { libloading::Library::new(name) } {
            Ok(library) => return Ok((library, file_of(&name.to_string_lossy()))),
            Err(error) => {
                let source = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
                problems.push(source);
            }
        }
    }
    Err(problems.join("; "))
}

/// The file that a library of this name was mapped from; the name itself where that cannot be told.
fn file_of(name: &str) -> String {
    let begin = Path::new(name).file_name().map_or_else(|| name.to_owned(), |name| name.to_string_lossy().into_owned());
    // `libnccl.so.2` is mostly a link to `libnccl.so.2.30.7`.
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let paths = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
    let stem = begin.split(".so").next().unwrap_or(&begin).to_owned() + ".so";
    let found = paths
        .into_iter()
        .find(|path| Path::new(path).file_name().is_some_and(|file| file.to_string_lossy().starts_with(&stem)));
    found.map_or_else(|| name.to_owned(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_not_there_is_a_reason_and_no_panic() {
        let reason = answer(Probe::Nccl, Some(Path::new("/nowhere/libnccl.so.2"))).expect_err("not there");
        assert!(reason.contains("/nowhere/libnccl.so.2"), "{reason}");
    }

    #[test]
    fn a_library_that_is_no_nccl_is_told_by_its_file() {
        // Any library that is mapped already will do.
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let libc = maps.lines().filter_map(|line| line.split_whitespace().nth(5)).find(|path| path.contains("libc.so"));
        let Some(libc) = libc else { return };
        assert_eq!(file_of("libc.so.6"), libc);
        let text = answer(Probe::Nccl, Some(Path::new(libc))).expect("loaded");
        let said: NcclAnswer = serde_json::from_str(&text).unwrap();
        assert!(said.problem.is_some_and(|problem| problem.contains("no ncclGetVersion")), "{text}");
    }
}
