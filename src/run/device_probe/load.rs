//! Loads a library of this machine, and finds the file that it was loaded from.

use std::path::Path;

/// Loads the first library of these names that exists.
pub(super) fn load(names: &[std::ffi::OsString]) -> Result<(libloading::Library, String), String> {
    let mut problems = Vec::new();
    for name in names {
        // SAFETY: loading runs the library's initialisers, which is the purpose of a probe; the process does little
        // else.
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

/// The file that a library of this name was mapped from; the name itself where that cannot be determined.
pub(super) fn file_of(name: &str) -> String {
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
