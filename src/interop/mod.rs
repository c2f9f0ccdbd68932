//! Other tools' files: what they measured becomes a record. What a file does not say stays unknown.
//!
//! One file for each foreign format.

mod csv;
mod imported;

pub use csv::read as read_csv;
pub use imported::{BadLine, Imported, Row, record_lines};
