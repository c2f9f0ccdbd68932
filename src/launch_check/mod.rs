//! Checks before the first measurement that the ranks of a launch belong together: the launcher's variables against
//! MPI, and differences between ranks in program, suite, settings, environment, devices, limits and cores.
//!
//! Every rank sends only short hashes; the text of each distinct value is sent by one rank. The result is data
//! ([`LaunchReport`]); it is formatted for the terminal elsewhere.

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
