//! A record, as read.

use super::calibration_line::{CalibrationLine, ChosenSize};
use super::copy_line::CopyLine;
use super::device_line::{DeviceReadingsLine, DevicesLine};
use super::hang_line::HangLine;
use super::interference_line::InterferenceLine;
use super::line::{CaseLine, ClockLine, End, Header, Plan};
use super::product_line::ProductLine;
use super::replay_line::ReplayLine;
use super::resume_line::ResumeLine;
use super::seal::Seal;
use std::collections::BTreeMap;

/// A record, as read.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Where the numbers come from.
    pub header: Header,
    /// The plan, including cases that were added during the run; empty where the record was cut off before it.
    pub plan: Plan,
    /// The cases that the run added itself, by index in the plan, and why.
    pub chosen: BTreeMap<u32, ChosenSize>,
    /// Final state of a calibration that ran to its end.
    pub calibration: Option<CalibrationLine>,
    /// Synchronisation of the ranks' clocks.
    pub clocks: Vec<ClockLine>,
    /// The measured cases, in the order of measurement.
    pub cases: Vec<CaseLine>,
    /// Every replay.
    pub replays: Vec<ReplayLine>,
    /// Every interference measurement, replicate by replicate.
    pub interference: Vec<InterferenceLine>,
    /// Every matrix product, replicate by replicate.
    pub products: Vec<ProductLine>,
    /// Every copy, replicate by replicate.
    pub copies: Vec<CopyLine>,
    /// The report of the watchdog, where it ended the run.
    pub hang: Option<HangLine>,
    /// Every launch that resumed the run.
    pub resumes: Vec<ResumeLine>,
    /// The devices of the ranks, where they can be queried.
    pub devices: Option<DevicesLine>,
    /// The state of the devices before and after each case.
    pub device_readings: Vec<DeviceReadingsLine>,
    /// How the run ended; absent where it was cut off or is still going on.
    pub end: Option<End>,
    /// How the file is as a whole.
    pub file: FileState,
}

/// How the file of a record is as a whole.
#[derive(Clone, Debug, PartialEq)]
pub struct FileState {
    /// True where the last line was truncated and left out.
    pub torn: bool,
    /// True where its run still has the lock.
    pub running: bool,
    /// Result of the digest check; whole where the record was never a file.
    pub seal: Seal,
    /// Its problems, as sentences.
    pub warnings: Vec<String>,
}
