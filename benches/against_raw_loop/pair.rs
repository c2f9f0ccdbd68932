//! One block of ours and two of the plain loop, and the file of all of them.

use commgauge::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::io::{Read, Write};

/// Three blocks next to each other, in random order; nanoseconds of the slowest rank.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Pair {
    /// Ranks of the launch.
    pub ranks: u32,
    /// Number of the launch.
    pub launch: u32,
    /// What was called.
    pub collective: String,
    /// The size argument.
    pub bytes: u64,
    /// Calls in each block.
    pub calls: u64,
    /// Calls between two of our marks.
    pub calls_per_sample: u32,
    /// Our streaming cadence.
    pub ours_nanoseconds: f64,
    /// The plain loop.
    pub raw_nanoseconds: f64,
    /// The plain loop once more, which shows what the machine alone does to a ratio.
    pub raw_again_nanoseconds: f64,
}

/// Writes pairs with a line of names in front.
pub fn write(pairs: &[Pair], to: impl Write) -> Result<()> {
    let mut writer = csv::Writer::from_writer(to);
    let written = pairs.iter().try_for_each(|pair| writer.serialize(pair));
    let flushed = written.and_then(|()| writer.flush().map_err(csv::Error::from));
    flushed.map_err(|cause| Error::environment(format!("cannot write the blocks: {cause}")))
}

/// Reads what [`write`] wrote.
pub fn read(from: impl Read) -> Result<Vec<Pair>> {
    let rows: csv::Result<Vec<Pair>> = csv::Reader::from_reader(from).deserialize().collect();
    rows.map_err(|cause| Error::environment(format!("cannot read what rank 0 printed: {cause}")))
}
