//! The phases of a launch before and after its run, in the order in which `session` calls them: `check` that the ranks
//! belong together, `backend` with its devices, `guard`, the watchdog; around all of them `rank`, from the start of MPI
//! to its end. `description` is what they are given.

pub(super) mod backend;
pub(super) mod check;
pub(super) mod description;
pub(super) mod guard;
pub(super) mod rank;
