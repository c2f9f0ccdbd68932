//! Checks before the first measurement that the ranks of a launch belong together: the launcher's variables against
//! MPI, and differences between ranks in program, suite, settings, environment, devices, limits and cores.
//!
//! Every rank sends only short hashes; the text of each distinct value is sent by one rank. The result is data
//! ([`LaunchReport`]); it is formatted for the terminal elsewhere.

mod allowances;
mod cores;
mod differences;
mod fact;
mod inspect;
mod launcher_env;
mod limits;
mod location;
mod namespaces;
mod place;
mod rank_group;
mod rank_profile;
mod report;
mod severity;
mod variables;

pub use allowances::Allowances;
pub use fact::Fact;
pub use inspect::inspect;
pub use launcher_env::{LauncherEnv, NumberVariable, ensure_joined, launcher_env};
pub use location::RankLocation;
pub use place::{RankHosts, locate_ranks};
pub use rank_profile::RankProfile;
pub use report::{Difference, HostRow, LAUNCH_FORMAT, LAUNCH_VERSION, LaunchReport, Shared, Value};
