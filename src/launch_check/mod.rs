//! Whether the ranks of a launch belong together, asked before anything is timed: what the launcher says against what MPI says,
//! and where ranks differ in program, suite, settings, environment, devices, limits and cores.
//!
//! Only short hashes travel from every rank; a text travels from one rank for each different value. What is found is data
//! ([`LaunchReport`]); the words for a terminal are elsewhere.

mod cores;
mod differences;
mod fact;
mod inspect;
mod limits;
mod place;
mod report;
mod sheet;
mod told;
mod variables;

pub use fact::Fact;
pub use inspect::{Asked, inspect};
pub use place::{Places, Whereabouts, places};
pub use report::{Difference, HostRow, LAUNCH_FORMAT, LAUNCH_VERSION, LaunchReport, Shared, Value};
pub use sheet::Sheet;
pub use told::{Told, told};
