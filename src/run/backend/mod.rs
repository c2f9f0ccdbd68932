//! Backends that execute ops: MPI on host memory, a simulated fleet, and NCCL on GPU streams behind one contract.

mod contract;
pub mod simulated;

#[cfg(feature = "mpi")]
pub mod mpi;
#[cfg(feature = "mpi")]
pub mod nccl;

pub use contract::{
    AxisBytes, AxisTimes, Backend, BackendFacts, Binding, Call, HiddenCall, Marks, MeasuredPairs, RankTimes,
    ReplayBinding, Replayer, SETUP_OF_EACH_RANK, Span, SpanKind, ranks_with_spans,
};

use crate::device_probe::Version;
use commgauge_base::error::Result;
use commgauge_base::sample::WrongCall;
use commgauge_base::units::Bytes;
use commgauge_model::record::header::DeviceFacts;
use commgauge_model::record::line::Outcome;
use commgauge_model::workload::ProductShape;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A variable of NCCL that a flag sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The flag, for errors.
    pub flag: &'static str,
    pub variable: &'static str,
    pub value: &'static str,
    /// The first version that reads it; older ones ignore it silently.
    pub since: Version,
}

impl Setting {
    /// Why a version of NCCL ignores it.
    pub fn refusal(&self, found: Version) -> Option<String> {
        let Setting { flag, variable, value, since } = self;
        (found < *since).then(|| {
            format!("{flag} needs NCCL {}.{} ({variable}={value}), found {found}, which ignores it", since.0, since.1)
        })
    }
}

// Readings of a rank's device during the calls: its identity, and its state at a moment.

/// State of a device at one moment; values that the device does not report are absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceState {
    pub multiprocessor_clock_mhz: Option<f64>,
    pub memory_clock_mhz: Option<f64>,
    /// Power drawn.
    pub power_watts: Option<f64>,
    pub temperature_celsius: Option<f64>,
    /// Names of the active throttle reasons.
    pub throttle_reasons: Vec<String>,
    /// True if it has no work, so that its clocks may be low.
    pub is_idle: bool,
}

/// Reads a device. Never called in the timed loop.
pub trait DeviceReader {
    /// Name and version of the library that reads it.
    ///
    /// # Errors
    /// Why no library can be queried, as a sentence.
    fn source(&self) -> std::result::Result<String, String>;

    /// The device, as far as it says who it is; none if it cannot be queried. Its rank is the caller's.
    fn identity(&self) -> Option<DeviceFacts>;

    /// Its errors so far and its states, as `ecc_uncorrected of GPU 5`; those that it tells.
    fn counters(&mut self) -> BTreeMap<String, u64>;

    /// Current state of the device; none if it cannot be queried.
    fn read(&mut self) -> Option<DeviceState>;
}

// Work that a rank does alone, waiting for no other rank: a matrix product, a copy.

/// Bound work with its buffers, filled with known data.
pub trait LocalWork {
    /// Executes it once and returns its time in nanoseconds on the clock of the device. Allocates nothing.
    fn run(&mut self) -> Result<u64>;

    /// Compares all or part of what the last run left with what is expected. The first wrong element, if any.
    fn check(&self) -> Result<Option<Mismatch>>;
}

// The first wrong element of a checked buffer.

/// The first wrong element of a checked buffer, and how many were wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mismatch {
    pub rank: u32,
    /// Index of the first wrong element in the receive buffer.
    pub element: u64,
    /// The expected value, as a number of the element type (hexadecimal bits if data is only moved).
    pub expected: String,
    pub got: String,
    pub count: u64,
    /// The index of the wrong call; none if only one was made.
    pub call: Option<WrongCall>,
}

impl Mismatch {
    /// The outcome of work whose data was found wrong `when`: before or after the timed part.
    pub fn outcome(self, when: &str) -> Outcome {
        let Mismatch { rank, element, expected, got, count, call } = self;
        Outcome::Corrupt { when: when.to_owned(), rank, element, expected, got, count, call }
    }
}

/// Bytes of the three matrices.
pub fn product_bytes(shape: &ProductShape) -> Bytes {
    let elements = [(shape.m, shape.n), (shape.m, shape.k), (shape.n, shape.k)].map(|(a, b)| a.saturating_mul(b));
    let all = elements.iter().fold(0u64, |sum, elements| sum.saturating_add(*elements));
    Bytes(all.saturating_mul(shape.element_type.size()))
}
