//! What ranks pass on to process 0, and the middle of what it gets.

use commgauge_base::error::{Error, Result};
use commgauge_base::stats::{median, sorted};

pub(super) fn median_of(values: impl Iterator<Item = u64>) -> u64 {
    median(&sorted(values.map(|value| value as f64))).map_or(0, |middle| middle.round() as u64)
}

pub(super) fn encoded<T: serde::Serialize>(value: &T) -> Result<Vec<u8>> {
    serde_json::to_vec(value)
        .map_err(|cause| Error::environment(format!("cannot pass on what a replay found: {cause}")))
}

pub(super) fn decoded<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    serde_json::from_slice(bytes)
        .map_err(|cause| Error::environment(format!("what a rank found in a replay does not read: {cause}")))
}
