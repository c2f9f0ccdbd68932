//! The families of errors and their exit codes.
//!
//! Every text says what was found, where (file and key, or host, rank and call), and what would be valid.

use crate::host::signal_name;
use crate::visible::ShownPath;
use std::path::Path;

/// Exit code of a run in which a deadline passed.
pub const HANG_EXIT_CODE: i32 = 5;
/// Exit code of a run that the machine, MPI, a device or the disk ended.
pub const ENVIRONMENT_EXIT_CODE: i32 = 6;

/// A result whose error is one pointer wide, so that it costs nothing in a timed loop.
pub type Result<T> = std::result::Result<T, Error>;

/// The kind of an error, which determines the exit code.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.kind)]
pub struct Error(Box<Inner>);

#[derive(Debug)]
struct Inner {
    kind: Kind,
    shared: bool,
}

/// The families. The texts inside are complete sentences for the user.
#[derive(Debug, thiserror::Error)]
pub enum Kind {
    /// Wrong flags or a wrong file: exit 2.
    #[error("{0}")]
    Usage(String),
    /// The machine, MPI, a device or the disk failed: exit 6.
    #[error("{0}")]
    Environment(String),
    /// Ranks that do not form one launch, or missing coverage: exit 7.
    #[error("{0}")]
    Mismatch(String),
    /// Wrong data received: exit 4.
    #[error("{0}")]
    Corrupt(String),
    /// A deadline passed: exit 5.
    #[error("{0}")]
    Hang(String),
    /// Stopped by a signal: exit 128 + signal.
    #[error("stopped by {}; results so far are kept", signal_name(*.0))]
    Interrupted(i32),
}

impl Error {
    /// Wrong flags or a wrong file.
    pub fn usage(text: impl Into<String>) -> Self {
        Kind::Usage(text.into()).into()
    }

    /// A wrong value in a file: names file and key, what was found, what would be accepted.
    pub fn config(file: &Path, key: &str, problem: impl std::fmt::Display) -> Self {
        Kind::Usage(format!("{}: {key}: {problem}", file.shown())).into()
    }

    /// A failing machine, library or disk.
    pub fn environment(text: impl Into<String>) -> Self {
        Kind::Environment(text.into()).into()
    }

    /// A file that cannot be read or written.
    pub fn file(action: &str, path: &Path, cause: impl std::fmt::Display) -> Self {
        Kind::Environment(format!("cannot {action} {}: {cause}", path.shown())).into()
    }

    /// For a path that a user named: wrong input if the path itself is wrong.
    pub fn path(action: &str, path: &Path, cause: &std::io::Error) -> Self {
        use std::io::ErrorKind::*;
        match cause.kind() {
            NotFound | PermissionDenied | AlreadyExists | IsADirectory | NotADirectory | ReadOnlyFilesystem
            | InvalidFilename | InvalidInput => Error::usage(format!("cannot {action} {}: {cause}", path.shown())),
            _ => Error::file(action, path, cause),
        }
    }

    /// Ranks that differ but must agree.
    pub fn mismatch(text: impl Into<String>) -> Self {
        Kind::Mismatch(text.into()).into()
    }

    pub fn kind(&self) -> &Kind {
        &self.0.kind
    }

    /// The exit code of the family, stable and documented in `docs/reference/exit-codes.md`.
    pub fn exit_code(&self) -> i32 {
        match self.0.kind {
            Kind::Usage(_) => 2,
            Kind::Corrupt(_) => 4,
            Kind::Hang(_) => HANG_EXIT_CODE,
            Kind::Environment(_) => ENVIRONMENT_EXIT_CODE,
            Kind::Mismatch(_) => 7,
            Kind::Interrupted(signal) => 128 + signal,
        }
    }

    /// True if every process of the launch has this same error, so that all can end normally; false if the others do not know it and the
    /// launch must be aborted.
    pub fn is_shared(&self) -> bool {
        self.0.shared
    }

    /// Marks the error as shared by all processes.
    #[must_use]
    pub fn shared(mut self) -> Self {
        self.0.shared = true;
        self
    }

    /// Rebuilds an error that another rank reported, from its exit code and text.
    pub fn from_exit_code(code: i32, text: String) -> Self {
        match code {
            2 => Kind::Usage(text),
            4 => Kind::Corrupt(text),
            5 => Kind::Hang(text),
            7 => Kind::Mismatch(text),
            129..=160 => Kind::Interrupted(code - 128),
            _ => Kind::Environment(text),
        }
        .into()
    }
}

impl From<Kind> for Error {
    fn from(kind: Kind) -> Self {
        Error(Box::new(Inner { kind, shared: false }))
    }
}

/// Reads the name of a plain enum; the error says which names there are.
pub fn named<T: strum::VariantArray + Copy + std::fmt::Display>(text: &str) -> std::result::Result<T, String> {
    let found = T::VARIANTS.iter().copied().find(|one| one.to_string() == text);
    let names = || T::VARIANTS.iter().map(T::to_string).collect::<Vec<_>>().join(", ");
    found.ok_or_else(|| format!("found `{text}`; accepted: {}", names()))
}

/// Gives plain enums their `name`, which strum knows.
#[macro_export]
macro_rules! names {
    ($($kind:ty),*) => { $(
        impl $kind {
            /// The name in files, flags and output.
            pub fn name(self) -> &'static str {
                self.into()
            }
        }
    )* };
}

pub use crate::names;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_pointer_wide() {
        assert_eq!(size_of::<Result<()>>(), size_of::<usize>());
    }

    #[test]
    fn exit_codes_survive_the_exchange_between_ranks() {
        for code in [2, 4, 5, 6, 7, 130, 143] {
            assert_eq!(Error::from_exit_code(code, "text".into()).exit_code(), code);
        }
    }
}
