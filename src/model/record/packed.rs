//! Long parts of a line as one short text: times of every pair of a round, and of every rank of a large world.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use schemars::JsonSchema;
use serde::de::{DeserializeOwned, Error as _};
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::io::{BufReader, Read, Write};

/// A shorter JSON text stays as it is.
const MOST_PLAIN_BYTES: usize = 4 << 10;

/// Longer than any machine needs, so that a broken line does not exhaust memory.
const MOST_BYTES: u64 = 1 << 28;

/// The pairs of a case and their own times, column by column; every list has the same length. A pair's time is that of its slower
/// rank, to three significant digits. Times cover the whole sample; unreliable ones do not count.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PairTimes {
    /// World rank of the first of each pair.
    pub rank_a: Vec<u32>,
    /// World rank of the second.
    pub rank_b: Vec<u32>,
    /// Samples of the pair that count; 0 where the numbers are withheld.
    pub samples: Vec<u64>,
    /// 10th percentile; 0, which no message takes, with fewer than 10 samples.
    pub p10_nanoseconds: Vec<u64>,
    /// Median; 0 without samples.
    pub median_nanoseconds: Vec<u64>,
    /// 90th percentile; 0 with fewer than 10 samples.
    pub p90_nanoseconds: Vec<u64>,
}

/// A value as it is, or packed where it is long.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
pub(super) enum Written<T> {
    Packed(Packed),
    Plain(T),
}

/// A long value as one text.
#[derive(Serialize, Deserialize, JsonSchema)]
pub(super) struct Packed {
    /// Base64 of a zlib stream of the value's JSON.
    json_zlib_base64: String,
}

pub(super) fn serialize<T: Serialize, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
    let plain = serde_json::to_vec(value).map_err(S::Error::custom)?;
    if plain.len() <= MOST_PLAIN_BYTES {
        return value.serialize(to);
    }
    let mut compressor = ZlibEncoder::new(Vec::new(), Compression::default());
    let compressed = compressor.write_all(&plain).and_then(|()| compressor.finish()).map_err(S::Error::custom)?;
    Packed { json_zlib_base64: STANDARD.encode(compressed) }.serialize(to)
}

pub(super) fn deserialize<'de, T: DeserializeOwned, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    let packed = match Written::deserialize(from)? {
        Written::Plain(value) => return Ok(value),
        Written::Packed(packed) => packed.json_zlib_base64,
    };
    let compressed =
        STANDARD.decode(packed).map_err(|cause| D::Error::custom(format!("packed, not base64: {cause}")))?;
    let plain = BufReader::new(ZlibDecoder::new(compressed.as_slice()).take(MOST_BYTES));
    serde_json::from_reader(plain).map_err(|cause| D::Error::custom(format!("packed: {cause}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Holder {
        #[serde(with = "super")]
        pairs: Option<Box<PairTimes>>,
    }

    fn pairs(count: u32) -> PairTimes {
        let column =
            |factor: u64| (0..count).map(|pair| factor * 1_000_000 + u64::from(pair * 7919 % 200) * 1023).collect();
        PairTimes {
            rank_a: (0..count).collect(),
            rank_b: (0..count).map(|pair| count + (pair * 31 % count)).collect(),
            samples: vec![20; count as usize],
            p10_nanoseconds: column(1),
            median_nanoseconds: column(2),
            p90_nanoseconds: column(3),
        }
    }

    #[test]
    fn many_pairs_are_a_short_text_that_reads_as_it_was_and_few_stay_columns() {
        for (count, is_packed) in [(1, false), (64, false), (256, true), (8192, true)] {
            let holder = Holder { pairs: Some(Box::new(pairs(count))) };
            let text = serde_json::to_string(&holder).unwrap();
            assert_eq!(text.contains("json_zlib_base64"), is_packed, "{count} pairs");
            assert_eq!(serde_json::from_str::<Holder>(&text).unwrap(), holder, "{count} pairs");
            assert!(!is_packed || text.len() < 16 * count as usize, "{count} pairs take {} bytes", text.len());
        }
        let none = Holder { pairs: None };
        assert_eq!(serde_json::from_value::<Holder>(json!({ "pairs": null })).unwrap(), none);
    }

    #[test]
    fn broken_packed_pairs_are_named() {
        for (text, problem) in [
            ("&", "packed, not base64: "),
            ("AAAA", "packed: corrupt deflate stream"),
            ("eJwDAAAAAAE=", "packed: EOF while parsing"),
        ] {
            let written = json!({ "pairs": { "json_zlib_base64": text } });
            let error = serde_json::from_value::<Holder>(written).unwrap_err().to_string();
            assert!(error.contains(problem), "{text}: {error}");
        }
    }
}
