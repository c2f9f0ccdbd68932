//! A mergeable histogram of nanoseconds, in the format of the HdrHistogram family: three significant digits over any range.

use crate::error::{Error, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};

/// Counts of nanoseconds, to three significant digits.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram(hdrhistogram::Histogram<u64>);

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl Histogram {
    /// An empty histogram, which resizes with the recorded values.
    pub fn new() -> Self {
        Histogram(hdrhistogram::Histogram::new(3).expect("three significant digits are within the library's bounds"))
    }

    /// Counts one value.
    pub fn record(&mut self, nanoseconds: u64) {
        // With resizing enabled this saturates only where the table would exceed memory; no value below 2^63 is lost.
        if self.0.record(nanoseconds).is_err() {
            self.0.saturating_record(nanoseconds);
        }
    }

    /// Adds the counts of another histogram.
    pub fn merge(&mut self, other: &Histogram) -> Result<()> {
        self.0.add(&other.0).map_err(|cause| Error::environment(format!("cannot merge two histograms: {cause}")))
    }

    /// Values counted.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The mean of all values, to three significant digits; 0 without any.
    pub fn mean_nanoseconds(&self) -> f64 {
        self.0.mean()
    }

    /// The value that `percent` per cent of all do not exceed, to three significant digits; `None` with fewer values
    /// than [`super::fewest_samples`].
    pub fn percentile(&self, percent: f64) -> Option<u64> {
        let enough = self.count() >= super::fewest_samples(percent)? as u64 && self.count() > 0;
        enough.then(|| self.0.value_at_percentile(percent))
    }

    /// HdrHistogram V2 with deflate, base64, as the tools of that family read it.
    pub fn encode(&self) -> Result<String> {
        let mut bytes = Vec::new();
        V2DeflateSerializer::new()
            .serialize(&self.0, &mut bytes)
            .map_err(|cause| Error::environment(format!("cannot encode a histogram: {cause}")))?;
        Ok(STANDARD.encode(bytes))
    }

    /// Reads what [`Histogram::encode`] or another tool of that family wrote.
    ///
    /// # Errors
    /// An environment error where the text is not such a histogram or is cut off.
    pub fn decode(text: &str) -> Result<Self> {
        let wrong = |cause: String| {
            let start: String = text.chars().take(24).collect();
            Error::environment(format!(
                "found `{start}`, which is not a histogram in HdrHistogram V2 deflate base64 form: {cause}"
            ))
        };
        let bytes = STANDARD.decode(text).map_err(|cause| wrong(cause.to_string()))?;
        let mut histogram: hdrhistogram::Histogram<u64> =
            Deserializer::new().deserialize(&mut bytes.as_slice()).map_err(|cause| wrong(cause.to_string()))?;
        histogram.auto(true);
        Ok(Histogram(histogram))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: impl IntoIterator<Item = u64>) -> Histogram {
        let mut histogram = Histogram::new();
        values.into_iter().for_each(|value| histogram.record(value));
        histogram
    }

    #[test]
    fn garbage_is_refused_with_a_reason() {
        let good = of(1..1000).encode().unwrap();
        for text in ["", "not base64!", "AAAA", "aGVsbG8gd29ybGQ=", &good[..good.len() / 2 / 4 * 4]] {
            let error = Histogram::decode(text).unwrap_err().to_string();
            assert!(error.contains("not a histogram"), "{error}");
        }
    }

    #[test]
    fn what_was_written_reads_back_equal() {
        for histogram in [of([]), of([0, 1, 2]), of((0..5000).map(|i| i * i)), of([u64::MAX / 4])] {
            assert_eq!(Histogram::decode(&histogram.encode().unwrap()).unwrap(), histogram);
        }
    }

    #[test]
    fn merged_histograms_count_what_both_counted() {
        let mut low = Histogram::decode(&of(1..=500).encode().unwrap()).unwrap();
        low.merge(&of((501..=1000).chain([1 << 40]))).unwrap();
        assert_eq!(low.count(), 1001);
        assert_eq!(low.percentile(50.0), Some(501));
    }

    #[test]
    fn a_percentile_needs_enough_values_and_has_three_digits() {
        assert_eq!(of(1..=99).percentile(99.0), None);
        let p99 = of((1..=100_000).map(|i| i * 1000)).percentile(99.0).unwrap();
        assert!((p99 as f64 / 99_000_000.0 - 1.0).abs() < 1e-3, "{p99}");
        assert_eq!(of([]).percentile(0.0), None);
    }
}
