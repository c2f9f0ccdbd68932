//! Builds the command that starts the ranks, runs it, supervises it and ends it.
//!
//! The command is data first ([`LaunchCommand`]), so that it can be shown, copied and tested before anything starts.
//! This module does not know what the launched program measures or records.

mod advice;
mod allocation;
mod child;
mod command;
mod deaths;
mod family;
mod find;
mod first_exit;
pub mod host;
mod host_file;
mod hostlist;
mod installed;
mod leftovers;
mod packaged;
mod ready_hosts;
mod relaunch;

pub use advice::advice;
pub use allocation::{Allocation, srun_mpi};
pub use child::{Ending, GRACE, Watch, supervise};
pub use command::{LaunchCommand, Request, build, parse_hosts};
pub use commgauge_base::quote::quote;
pub use deaths::{Cause, Death, Reported, deaths};
pub use family::{Family, Flavor, Launcher};
pub use find::{LauncherContext, find, probe};
pub use first_exit::first_exit;
pub use host_file::{hosts_of_ranks, slots_of_hosts};
pub use installed::{flavor, folder, program};
pub use ready_hosts::{remote_shell, silent_hosts, wait_for_hosts};
pub use relaunch::LauncherPart;
