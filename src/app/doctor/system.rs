//! Interface through which the doctor reads the state of a machine.

use commgauge_model::record::provenance::Variable;
use commgauge_run::device_probe::Probe;
use std::path::Path;

/// A query to a program or a library. It is run in another process, since any of them may hang or crash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query<'a> {
    /// `PROGRAM --version`.
    Version(&'a str),
    /// Which libraries a program would load, as `ldd` lists them.
    Libraries(&'a Path),
    /// The description that a GPU library gives of itself, as JSON.
    Library(Probe),
}

/// Outcome of a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Response {
    /// The standard output.
    Text(String),
    /// The program or library does not exist: why it cannot be started.
    Absent(String),
    /// It failed, with its error output.
    Failed(String),
    /// It crashed or timed out: how.
    Died(String),
}

/// Capacity of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Volume {
    /// Total bytes.
    pub bytes: u64,
    /// Free bytes.
    pub free_bytes: u64,
}

/// Access to a machine's state.
pub trait System {
    /// Host name.
    fn host(&self) -> String;
    /// An environment variable.
    fn variable(&self, name: &str) -> Option<String>;
    /// Variables that configure MPI, NCCL and the launcher.
    fn variables(&self) -> Vec<Variable>;
    /// A file's text.
    fn read(&self, path: &str) -> Option<String>;
    /// The names in a folder, sorted; none if the folder does not exist.
    fn list(&self, path: &str) -> Option<Vec<String>>;
    /// Whether the path exists.
    fn exists(&self, path: &str) -> bool;
    /// Queries another program or library.
    fn query(&self, question: Query) -> Response;
    /// Limits of this process: locked memory and open files; absent if unlimited.
    fn limits(&self) -> (Option<u64>, Option<u64>);
    /// The file system at a path.
    fn volume(&self, path: &str) -> Option<Volume>;
    /// Cores that ranks started here may use.
    fn cores(&self) -> u32;
    /// Whether the user is root.
    fn is_root(&self) -> bool;
    /// Folder of this program.
    fn programs(&self) -> std::path::PathBuf;
    /// The MPI that the launched programs were built against.
    fn flavor(&self) -> Option<crate::launch::Flavor>;
}
