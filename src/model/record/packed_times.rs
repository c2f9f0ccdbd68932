//! The parts of a case line with times of every pair of a round, or of every rank of a large world: columns, packed into one text where
//! they are long.

use commgauge_base::packing::{folded, packed, unfolded, unpacked};
use schemars::JsonSchema;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Rounds of more pairs are packed.
const MOST_PLAIN: usize = 128;

/// More pairs or ranks than any machine has, so that a broken line does not exhaust memory.
const MOST_ENTRIES: u32 = 1 << 24;

/// Numbers of a pair, each in its own column.
const COLUMNS: usize = 6;

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

/// The columns as they are, or packed where there are more than 128 pairs.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(super) enum Written {
    Packed(PackedPairs),
    Plain(PairTimes),
}

/// The columns of many pairs in one text.
#[derive(Serialize, Deserialize, JsonSchema)]
pub(super) struct PackedPairs {
    /// Number of pairs.
    pairs: u32,
    /// Base64 of a zlib stream of LEB128 numbers: six columns one after another, each number as its difference from the one before it in
    /// its column (0 before the first), signed by zigzag (0, -1, 1, -2 are 0, 1, 2, 3). The columns: `rank_a`; `rank_b` - `rank_a`;
    /// `samples`; the code of the median; that minus the code of the 10th percentile; the code of the 90th percentile minus that of the
    /// median. A code c below 2048 is c nanoseconds; above, with s = c / 1024 - 1 rounded down, it is (c - 1024 s + 1) 2^s - 1.
    columns_leb128_zlib_base64: String,
}

/// A time of each of many ranks in one text.
#[derive(Serialize, Deserialize, JsonSchema)]
pub(super) struct PackedRanks {
    /// Number of ranks.
    ranks: u32,
    /// As a column of packed pairs: the code of each time.
    codes_leb128_zlib_base64: String,
}

/// Reads and writes the pairs of a line.
pub(super) mod pairs {
    use super::*;

    pub fn serialize<S: Serializer>(pairs: &Option<Box<PairTimes>>, to: S) -> Result<S::Ok, S::Error> {
        match pairs {
            Some(pairs) if pairs.rank_a.len() > MOST_PLAIN => pairs.packed().serialize(to),
            pairs => pairs.serialize(to),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Box<PairTimes>>, D::Error> {
        let pairs = match Option::<Written>::deserialize(from)? {
            None => return Ok(None),
            Some(Written::Plain(pairs)) => pairs,
            Some(Written::Packed(packed)) => PairTimes::of_packed(&packed)
                .map_err(|problem| D::Error::custom(format!("the packed pairs: {problem}")))?,
        };
        Ok(Some(Box::new(pairs)))
    }
}

/// Reads and writes a time of each rank.
pub(super) mod ranks {
    use super::*;

    pub fn serialize<S: Serializer>(times: &[u64], to: S) -> Result<S::Ok, S::Error> {
        let codes_leb128_zlib_base64 = packed(differences(codes(times)));
        PackedRanks { ranks: times.len() as u32, codes_leb128_zlib_base64 }.serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u64>, D::Error> {
        let written = PackedRanks::deserialize(from)?;
        let read = || -> Result<Vec<u64>, String> {
            let numbers = unpacked(&written.codes_leb128_zlib_base64, checked(written.ranks)?)?;
            sums(&numbers).into_iter().map(time).collect()
        };
        read().map_err(|problem| D::Error::custom(format!("the packed times of ranks: {problem}")))
    }
}

/// The number of entries of packed columns, if it is possible.
fn checked(count: u32) -> Result<usize, String> {
    match (1..=MOST_ENTRIES).contains(&count) {
        true => Ok(count as usize),
        false => Err(format!("found {count} entries; accepted: 1 to {MOST_ENTRIES}")),
    }
}

/// Each number less the one before it.
fn differences(column: Vec<i64>) -> impl Iterator<Item = u64> {
    let mut before = 0i64;
    column.into_iter().map(move |own| folded(own.wrapping_sub(std::mem::replace(&mut before, own))))
}

/// The numbers of [`differences`].
fn sums(differences: &[u64]) -> Vec<i64> {
    let mut sum = 0i64;
    let mut next = |step: &u64| {
        sum = sum.wrapping_add(unfolded(*step));
        sum
    };
    differences.iter().map(&mut next).collect()
}

fn codes(times: &[u64]) -> Vec<i64> {
    times.iter().map(|time| code(*time) as i64).collect()
}

impl PairTimes {
    fn packed(&self) -> PackedPairs {
        let (low, middle, high) =
            (codes(&self.p10_nanoseconds), codes(&self.median_nanoseconds), codes(&self.p90_nanoseconds));
        let less = |from: &[i64], less: &[i64]| -> Vec<i64> { from.iter().zip(less).map(|(a, b)| a - b).collect() };
        let whole = |ranks: &[u32]| -> Vec<i64> { ranks.iter().map(|rank| i64::from(*rank)).collect() };
        let (rank_a, rank_b) = (whole(&self.rank_a), whole(&self.rank_b));
        let apart = less(&rank_b, &rank_a);
        let samples = self.samples.iter().map(|samples| *samples as i64).collect();
        let columns: [Vec<i64>; COLUMNS] =
            [rank_a, apart, samples, middle.clone(), less(&middle, &low), less(&high, &middle)];
        PackedPairs {
            pairs: self.rank_a.len() as u32,
            columns_leb128_zlib_base64: packed(columns.into_iter().flat_map(differences)),
        }
    }

    fn of_packed(written: &PackedPairs) -> Result<PairTimes, String> {
        let pairs = checked(written.pairs)?;
        let numbers = unpacked(&written.columns_leb128_zlib_base64, pairs * COLUMNS)?;
        let mut columns = numbers.chunks(pairs).map(sums);
        let mut next = || columns.next().unwrap_or_default();
        let (rank_a, apart, samples, middle, below, above) = (next(), next(), next(), next(), next(), next());
        let rank = |rank: i64| u32::try_from(rank).map_err(|_| format!("found rank {rank}"));
        let sum = |one: &[i64], sign: i64, other: &[i64]| -> Vec<i64> {
            one.iter().zip(other).map(|(one, other)| one.wrapping_add(sign.wrapping_mul(*other))).collect()
        };
        let ranks = |ranks: &[i64]| ranks.iter().map(|own| rank(*own)).collect::<Result<Vec<u32>, String>>();
        let times = |codes: &[i64]| codes.iter().map(|code| time(*code)).collect::<Result<Vec<u64>, String>>();
        Ok(PairTimes {
            rank_b: ranks(&sum(&rank_a, 1, &apart))?,
            rank_a: ranks(&rank_a)?,
            samples: samples.into_iter().map(|samples| samples as u64).collect(),
            p10_nanoseconds: times(&sum(&middle, -1, &below))?,
            p90_nanoseconds: times(&sum(&middle, 1, &above))?,
            median_nanoseconds: times(&middle)?,
        })
    }
}

// Times as codes: the bucket in which a histogram of three significant digits counts them (HdrHistogram: 2048 buckets of 1 ns, then 1024 for
// each doubling), so that a time of such a histogram, the upper end of its bucket, keeps its value.

fn code(nanoseconds: u64) -> u64 {
    let doublings = u64::from((nanoseconds | 1).ilog2().saturating_sub(10));
    (doublings << 10) + (nanoseconds >> doublings)
}

/// The upper end of the bucket.
fn time(code: i64) -> Result<u64, String> {
    let code = u64::try_from(code).map_err(|_| format!("found a time of code {code}"))?;
    let doublings = (code >> 10).saturating_sub(1);
    if doublings > 53 {
        return Err(format!("found a time of code {code}"));
    }
    // 1 is added before the shift, which the largest code shifts out.
    Ok(((code - (doublings << 10) + 1) as u128 * (1u128 << doublings) - 1) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use commgauge_base::stats::Histogram;
    use serde_json::json;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Holder {
        #[serde(with = "super::pairs")]
        pairs: Option<Box<PairTimes>>,
    }

    /// The median that a histogram gives of this time alone.
    fn as_counted(nanoseconds: u64) -> u64 {
        let mut histogram = Histogram::new();
        (0..20).for_each(|_| histogram.record(nanoseconds));
        histogram.percentile(50.0).unwrap()
    }

    fn pairs(count: u32) -> PairTimes {
        let time = |pair: u32, factor: u64| as_counted(1_390_000 * factor / 10 + u64::from(pair * 7919 % 20_011));
        let column = |factor| (0..count).map(|pair| time(pair, factor)).collect::<Vec<u64>>();
        PairTimes {
            rank_a: (0..count).collect(),
            rank_b: (0..count).map(|pair| count + (pair * 31 % count)).collect(),
            samples: vec![20; count as usize],
            p10_nanoseconds: column(10),
            median_nanoseconds: column(11),
            p90_nanoseconds: column(19),
        }
    }

    #[test]
    fn many_pairs_are_a_short_text_that_reads_as_it_was_and_few_stay_columns() {
        for (count, is_packed) in [(1, false), (128, false), (129, true), (8192, true)] {
            let mut times = pairs(count);
            times.median_nanoseconds[0] = 0;
            (times.p10_nanoseconds[0], times.p90_nanoseconds[0]) = (0, 0);
            let holder = Holder { pairs: Some(Box::new(times)) };
            let text = serde_json::to_string(&holder).unwrap();
            assert_eq!(text.contains("columns_leb128_zlib_base64"), is_packed, "{count} pairs");
            assert_eq!(serde_json::from_str::<Holder>(&text).unwrap(), holder, "{count} pairs");
            assert!(!is_packed || text.len() < 12 * count as usize, "{count} pairs take {} bytes", text.len());
        }
        let none = Holder { pairs: None };
        assert_eq!(serde_json::from_value::<Holder>(json!({ "pairs": null })).unwrap(), none);
    }

    #[test]
    fn the_times_of_many_ranks_are_a_short_text() {
        #[derive(Serialize, Deserialize)]
        struct Line(#[serde(with = "super::ranks")] Vec<u64>);
        let times: Vec<u64> = (0..16_384).map(|rank| as_counted(1_000_000 + rank / 8 * 7919 % 9_000)).collect();
        let text = serde_json::to_string(&Line(times.clone())).unwrap();
        assert!(text.len() < 16_384 / 2, "{} bytes", text.len());
        assert_eq!(serde_json::from_str::<Line>(&text).unwrap().0, times);
    }

    #[test]
    fn a_time_is_known_to_three_digits_and_one_of_a_histogram_exactly() {
        for nanoseconds in [0, 1, 2047, 2048, 2049, 4095, 4096, 1_390_123, u64::MAX / 3, u64::MAX] {
            let read = time(code(nanoseconds) as i64).unwrap();
            assert!(read >= nanoseconds && read - nanoseconds <= nanoseconds / 1024, "{nanoseconds} {read}");
            if (1..u64::MAX / 2).contains(&nanoseconds) {
                assert_eq!(time(code(as_counted(nanoseconds)) as i64).unwrap(), as_counted(nanoseconds));
            }
        }
    }

    #[test]
    fn broken_packed_pairs_are_named() {
        let whole = pairs(200).packed().columns_leb128_zlib_base64;
        for (count, text, problem) in [
            (0, whole.as_str(), "found 0 entries"),
            (199, &whole, "found 1200 numbers, expected 1194"),
            (200, "AAAA", "not a zlib stream"),
            (1, &packed([1, 0, 0, 0, 0, 0]), "found rank -1"),
            (1, &packed([0, 2, 2, 1, 0, 0]), "found a time of code -1"),
            (1, &packed([0, 2, 2, 1 << 40, 0, 0]), "found a time of code 549755813888"),
        ] {
            let written = json!({ "pairs": { "pairs": count, "columns_leb128_zlib_base64": text } });
            let error = serde_json::from_value::<Holder>(written).unwrap_err().to_string();
            assert!(error.contains(problem), "{error}");
        }
    }
}
