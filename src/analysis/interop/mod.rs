//! Other tools' files, converted to records. Facts that a file does not contain stay unknown.
//!
//! One module for each foreign format.

mod commgauge;
#[cfg(test)]
mod corrupt_input;
mod csv;
pub mod export;
mod imb;
mod imported;
mod log_text;
mod nccl_tests;
mod osu;
mod peer_programs;
mod replicates;

pub use commgauge::{Renewed, read as read_commgauge};
pub use csv::{collective as collective_named, parse as parse_csv, read as read_csv};
pub use imb::{parse_bytes as parse_imb, read as read_imb};
pub use imported::{BadLine, ForeignRank, Imported, Known, Origin, Row, RunFault, RunFaultKind, record_lines};
pub use nccl_tests::{parse as parse_nccl_tests, read as read_nccl_tests};
pub use osu::{parse_bytes as parse_osu, read as read_osu};
pub use peer_programs::{IMB, OSU, PeerProgram, PrintedSize};
pub use replicates::{ImportedFile, joined};
