//! The results file of a run: an append-only journal of JSON lines, raw enough to redo every statistic.
//!
//! [`line`] has the versioned types of the format, separate from the internal types of the program. [`Journal`] writes
//! them, [`Record`] reads a whole file, [`Follower`] reads while a run writes, [`reopen`] resumes a run.

mod assemble;
pub mod counters;
pub mod header;
mod journal;
pub mod launch_lines;
pub mod library_use;
pub mod line;
mod packed;
mod reader;
mod reopen;
mod seal;
pub mod times;
pub mod work_lines;

/// The record that tests begin with.
#[cfg(any(test, feature = "test-support"))]
pub mod testing {
    use super::{Line, Record};

    /// Its lines, as a run of the first version wrote them.
    pub fn sample_lines() -> Vec<Line> {
        let text = include_str!("../../../tests/data/sample-record.jsonl");
        text.lines().map(|line| serde_json::from_str(line).expect("the sample is right")).collect()
    }

    /// The record.
    pub fn sample() -> Record {
        Record::from_lines(sample_lines()).expect("the sample is right")
    }
}

pub use assemble::{Parts, Record};
pub use journal::{Journal, Moved, NEVER_OVERWRITTEN, WriteAccess};
pub use line::{FORMAT, Line, VERSION, changes, ensure_same_plan, schema, table as table_of_changes};
pub use reader::Follower;
pub use reopen::{Reopened, Writer, append_missing_end, reopen};
pub use seal::Seal;
