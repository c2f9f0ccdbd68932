//! Checks before the first measurement that the ranks of a launch belong together: the launcher's variables against
//! MPI, and differences between ranks in program, suite, settings, environment, devices, limits and cores.
//!
//! Every rank sends only short hashes; the text of each distinct value is sent by one rank. The result is data
//! ([`LaunchReport`]); it is formatted for the terminal elsewhere.

mod cores;
mod fact;
mod inspect;
mod launcher_env;
mod place;

pub use fact::{Fact, RankProfile};
pub use inspect::inspect;
pub use launcher_env::{
    Allowances, Difference, HostRow, LAUNCH_FORMAT, LAUNCH_VERSION, LaunchReport, LauncherEnv, NumberVariable, Shared,
    Value, ensure_joined, launcher_env,
};
pub use place::{RankHosts, RankLocation, locate_ranks};
