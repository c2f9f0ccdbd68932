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
use serde_json::Value;
use std::io::{BufReader, Read, Write};

/// Lists of at most this many numbers, about 4 kB as JSON, stay as they are.
const MOST_PLAIN_NUMBERS: usize = 512;

/// Longer than any machine needs, so that a broken line does not exhaust memory.
const MOST_BYTES: u64 = 1 << 25;

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

/// What is packed where it has many numbers.
pub(super) trait Numbers: Serialize {
    /// How many it has, in all lists together.
    fn count(&self) -> usize;
}

impl Numbers for Vec<u64> {
    fn count(&self) -> usize {
        self.len()
    }
}

impl Numbers for Option<Box<PairTimes>> {
    fn count(&self) -> usize {
        self.as_ref().map_or(0, |pairs| 6 * pairs.rank_a.len())
    }
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
    /// Base64 of a zlib stream of the value's JSON, in which each number of a list is its difference from the one before.
    differences_zlib_base64: String,
}

pub(super) fn serialize<T: Numbers, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
    if value.count() <= MOST_PLAIN_NUMBERS {
        return value.serialize(to);
    }
    let mut plain = serde_json::to_value(value).map_err(S::Error::custom)?;
    each_list(&mut plain, to_differences);
    let mut compressor = ZlibEncoder::new(Vec::new(), Compression::default());
    // Whole, as a compressor takes as long for a digit as for a kilobyte.
    let differences = plain.to_string();
    let written = compressor.write_all(differences.as_bytes()).and_then(|()| compressor.finish());
    let compressed = written.map_err(S::Error::custom)?;
    Packed { differences_zlib_base64: STANDARD.encode(compressed) }.serialize(to)
}

/// Changes every list of a value.
fn each_list(value: &mut Value, change: fn(&mut [Value])) {
    match value {
        Value::Array(list) => change(list),
        Value::Object(fields) => fields.values_mut().for_each(|field| each_list(field, change)),
        _ => {}
    }
}

/// The numbers of a list, from the second on, become their differences from the one before.
fn to_differences(list: &mut [Value]) {
    (1..list.len()).rev().for_each(|at| replace(list, at, |before, number| number.wrapping_sub(before)));
}

/// Undoes [`to_differences`].
fn from_differences(list: &mut [Value]) {
    (1..list.len()).for_each(|at| replace(list, at, i64::wrapping_add));
}

/// Replaces a number by a function of the one before and itself.
fn replace(list: &mut [Value], at: usize, with: fn(i64, i64) -> i64) {
    if let Some((before, number)) = list[at - 1].as_i64().zip(list[at].as_i64()) {
        list[at] = with(before, number).into();
    }
}

pub(super) fn deserialize<'de, T: DeserializeOwned, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    let packed = match Written::deserialize(from)? {
        Written::Plain(value) => return Ok(value),
        Written::Packed(packed) => packed.differences_zlib_base64,
    };
    let compressed =
        STANDARD.decode(packed).map_err(|cause| D::Error::custom(format!("packed, not base64: {cause}")))?;
    let plain = BufReader::new(ZlibDecoder::new(compressed.as_slice()).take(MOST_BYTES));
    let wrong = |cause| D::Error::custom(format!("packed: {cause}"));
    let mut value = serde_json::from_reader(plain).map_err(wrong)?;
    each_list(&mut value, from_differences);
    serde_json::from_value(value).map_err(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;
    use commgauge_base::random::split_mix;
    use serde_json::json;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Holder {
        #[serde(with = "super")]
        pairs: Option<Box<PairTimes>>,
    }

    /// Ranks with those of the same place on random other nodes; times scatter in the last of their three digits.
    fn pairs(count: u32) -> PairTimes {
        let random = |pair: u32| split_mix(1, u64::from(pair));
        let column =
            |factor: u64| (0..count).map(|pair| (factor * 300 + random(pair ^ factor as u32) % 24) << 11).collect();
        PairTimes {
            rank_a: (0..count).collect(),
            rank_b: (0..count).map(|pair| count + random(pair / 8) as u32 % 2048 * 8 + pair % 8).collect(),
            samples: vec![20; count as usize],
            p10_nanoseconds: column(2),
            median_nanoseconds: column(3),
            p90_nanoseconds: column(4),
        }
    }

    #[test]
    fn many_pairs_are_a_short_text_that_reads_as_it_was_and_few_stay_columns() {
        for (count, is_packed) in [(1, false), (64, false), (256, true), (8192, true)] {
            let holder = Holder { pairs: Some(Box::new(pairs(count))) };
            let text = serde_json::to_string(&holder).unwrap();
            assert_eq!(text.contains("differences_zlib_base64"), is_packed, "{count} pairs");
            assert_eq!(serde_json::from_str::<Holder>(&text).unwrap(), holder, "{count} pairs");
            assert!(!is_packed || text.len() < 8 * count as usize, "{count} pairs take {} bytes", text.len());
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
            let written = json!({ "pairs": { "differences_zlib_base64": text } });
            let error = serde_json::from_value::<Holder>(written).unwrap_err().to_string();
            assert!(error.contains(problem), "{text}: {error}");
        }
    }
}
