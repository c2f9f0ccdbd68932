//! Builds the command that starts the ranks, runs it, supervises it, ends it, and says how it ended.
//!
//! The command is data first ([`LaunchCommand`]), so that it can be shown, copied and tested before anything starts. Only
//! `outcome` reads the record of the launched program.

mod allocation;
mod child;
mod command;
mod family;
pub mod find;
mod host_file;
mod outcome;

pub use allocation::{Allocation, srun_mpi};
pub use child::{Ending, GRACE, Watch, first_exit, supervise};
pub use command::{LaunchCommand, Request, build, expanded_hosts, parse_hosts};
pub use commgauge_base::visible::quote;
pub use commgauge_run::launcher::{Family, Flavor};
pub use family::{Cause, Death, Launcher, Reported, advice, deaths};
pub use find::{LauncherContext, find, flavor, folder, probe, program};
pub use host_file::{HostFile, remote_shell, silent_hosts, wait_for_hosts};
pub use outcome::{OutOfMemoryKills, RecordState, conclude, end_record};
