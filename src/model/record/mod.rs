//! The results file of a run: an append-only journal of JSON lines, raw enough to redo every statistic.
//!
//! [`line`] has the versioned types of the format, separate from the internal types of the program. [`Journal`] writes
//! them, [`Record`] reads a whole file, [`Follower`] reads while a run writes, [`reopen`] resumes a run.

mod append;
mod assemble;
mod backend_line;
pub mod calibration_line;
mod case_facts;
mod changes;
mod contents;
pub mod copy_line;
pub mod copy_times;
pub mod device_line;
mod end_line;
mod file_place;
mod follower;
pub mod hang_line;
pub mod interference_line;
mod journal;
pub mod line;
mod lock;
pub mod merged_times;
mod outcome;
mod pair_times;
pub mod product_line;
pub mod product_times;
pub mod provenance;
mod rank_facts;
mod reader;
mod reopen;
pub mod replay_line;
pub mod resume_line;
mod samples_line;
mod schema;
mod seal;
pub mod secrets;
mod settings_line;
pub mod unwatched_line;
mod variables;
mod write_access;

pub use append::{Writer, append_missing_end};
pub use changes::{changes, ensure_same_plan, table as table_of_changes};
pub use contents::Record;
pub use follower::Follower;
pub use journal::{Journal, Moved};
pub use line::{FORMAT, Line, VERSION};
pub use reopen::{Reopened, reopen};
pub use schema::schema;
pub use seal::Seal;
pub use write_access::WriteAccess;
