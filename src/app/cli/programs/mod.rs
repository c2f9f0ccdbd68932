//! The definition of every program: its flags and the requested work. Parsing, help, completions and man pages are
//! derived from it.
//!
//! Nothing here needs MPI, so that `commgauge` has the definitions of the launched programs too; `launched` runs them.

mod commgauge;
mod definition;
mod execute;
mod name;
mod pairs;
mod planned;
mod step;
mod suite;
mod sweep;
mod work;

pub use commgauge::{Command, Commgauge};
pub use definition::definitions;
pub use name::ProgramName;
pub use pairs::PairsRun;
pub use planned::{PlannedWork, planned};
pub use step::StepRun;
pub use suite::SuiteRun;
pub use sweep::Sweep;
pub use work::Work;
