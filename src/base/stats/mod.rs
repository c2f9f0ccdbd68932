//! Pure numbers: order statistics, intervals, histograms. Too few samples give `None`.

pub mod change;
mod median;
mod rank_sum;

pub use median::{
    Interval, MIN_FOR_INTERVAL, depth_of_bound, fewest_for_bound, fewest_samples, half_binomial_tail, low_median,
    median, median_bounds, median_interval, percentile, proportion_interval, sorted, values_to_decide,
};
pub use rank_sum::RankSums;

use crate::error::{Error, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use hdrhistogram::serialization::{Deserializer, Serializer, V2Serializer};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;
use std::cell::RefCell;
use std::fmt::Display;
use std::io::Write;
use std::ops::Range;

// Interval arithmetic on a number and its interval: sums, multiples and quotients.
//
// Intervals are added end by end, so that results are conservative: possibly too wide, never too narrow.

/// A number and its interval; `None` with too few samples for one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// The estimate.
    pub middle: f64,
    /// The interval that contains it.
    pub interval: Option<Interval>,
}

impl Span {
    /// An exactly known number, such as a number of bytes.
    pub fn exact(value: f64) -> Span {
        Span { middle: value, interval: Some(Interval { low: value, high: value }) }
    }

    /// The number and both ends through an ascending function.
    pub fn map(self, ascending: impl Fn(f64) -> f64) -> Span {
        Span { middle: ascending(self.middle), interval: self.interval.map(|interval| interval.map(&ascending)) }
    }

    /// The product with a factor.
    pub fn times(self, factor: f64) -> Span {
        let interval = self.interval.map(|i| Interval { low: i.low * factor, high: i.high * factor });
        Span { middle: self.middle * factor, interval }
    }

    /// The sum.
    pub fn plus(self, other: Span) -> Span {
        let interval = self.interval.zip(other.interval);
        let interval = interval.map(|(a, b)| Interval { low: a.low + b.low, high: a.high + b.high });
        Span { middle: self.middle + other.middle, interval }
    }

    /// The difference.
    pub fn minus(self, other: Span) -> Span {
        let interval = self.interval.zip(other.interval);
        let interval = interval.map(|(a, b)| Interval { low: a.low - b.high, high: a.high - b.low });
        Span { middle: self.middle - other.middle, interval }
    }

    /// The quotient of two positive numbers; `None` if one of them is not positive. Without an interval if one of them may be zero or less.
    pub fn over(self, other: Span) -> Option<Span> {
        if self.middle <= 0.0 || other.middle <= 0.0 {
            return None;
        }
        let positive = |interval: &Interval| interval.low > 0.0;
        let interval = self.interval.filter(positive).zip(other.interval.filter(positive));
        let interval = interval.map(|(a, b)| Interval { low: a.low / b.high, high: a.high / b.low });
        Some(Span { middle: self.middle / other.middle, interval })
    }
}

// The normal distribution, and Student's.

/// Probability that a standard normal number is below this one, within 1e-7 (Abramowitz and Stegun, 26.2.17).
pub fn normal_below(deviate: f64) -> f64 {
    const TERMS: [f64; 5] = [0.319_381_530, -0.356_563_782, 1.781_477_937, -1.821_255_978, 1.330_274_429];
    let t = 1.0 / (1.0 + 0.231_641_9 * deviate.abs());
    let density = (-0.5 * deviate * deviate).exp() / (2.0 * std::f64::consts::PI).sqrt();
    let above = density * TERMS.iter().rev().fold(0.0, |sum, term| (sum + term) * t);
    if deviate >= 0.0 { 1.0 - above } else { above }
}

/// The value that Student's t with these degrees of freedom exceeds with this probability (M. Abramowitz and I. A. Stegun, Handbook of
/// Mathematical Functions (1964), 26.7.5).
pub fn student_quantile(probability: f64, degrees_of_freedom: f64) -> f64 {
    let z = upper_normal_quantile(probability);
    let nu = degrees_of_freedom.max(1.0);
    let first = (z.powi(3) + z) / 4.0;
    let second = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0;
    let third = (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / 384.0;
    z + first / nu + second / nu.powi(2) + third / nu.powi(3)
}

// A mergeable histogram of nanoseconds, in the format of the HdrHistogram family: three significant digits over any range.

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
        // With resizing enabled this saturates only if the table would exceed memory; no value below 2^63 is lost.
        if self.0.record(nanoseconds).is_err() {
            self.0.saturating_record(nanoseconds);
        }
    }

    /// Adds the counts of another histogram.
    pub fn merge(&mut self, other: &Histogram) -> Result<()> {
        self.0.add(&other.0).map_err(|cause| Error::environment(format!("cannot merge two histograms: {cause}")))
    }

    /// Counts a value of [`Histogram::counts`] as often as it was counted there.
    pub fn record_counted(&mut self, [nanoseconds, count]: [u64; 2]) {
        if self.0.record_n(nanoseconds, count).is_err() {
            self.0.saturating_record_n(nanoseconds, count);
        }
    }

    /// Each value that was counted, to three significant digits, and how often.
    pub fn counts(&self) -> impl Iterator<Item = [u64; 2]> + '_ {
        self.0.iter_recorded().map(|value| [value.value_iterated_to(), value.count_at_value()])
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
    /// than [`fewest_samples`].
    pub fn percentile(&self, percent: f64) -> Option<u64> {
        let enough = self.count() >= fewest_samples(percent)? as u64 && self.count() > 0;
        enough.then(|| self.0.value_at_percentile(percent))
    }

    /// HdrHistogram V2 with deflate, base64, as read by the tools of that family.
    pub fn encode(&self) -> Result<String> {
        let bytes = PACKER.with_borrow_mut(|packer| packer.packed(&self.0))?;
        Ok(STANDARD.encode(bytes))
    }

    /// Reads the output of [`Histogram::encode`] or of another tool of that family.
    ///
    /// # Errors
    /// An environment error if the text is not such a histogram or is truncated.
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

/// Begins a histogram in V2 deflate form, before the number of compressed bytes
/// (<https://github.com/HdrHistogram/HdrHistogram>, `EncodableHistogram`; the library adds 0x10, for words of 64 bits).
const COMPRESSED_COOKIE: u32 = 0x1c84_9314;

/// What histograms are packed with. One per thread: the tables of a compressor are 300 KB, and clearing new ones takes longer than to
/// compress a histogram.
struct Packer {
    serializer: V2Serializer,
    plain: Vec<u8>,
    compressor: ZlibEncoder<Vec<u8>>,
}

thread_local! {
    static PACKER: RefCell<Packer> = RefCell::new(Packer {
        serializer: V2Serializer::new(),
        plain: Vec::new(),
        compressor: ZlibEncoder::new(Vec::new(), Compression::default()),
    });
}

impl Packer {
    fn packed(&mut self, histogram: &hdrhistogram::Histogram<u64>) -> Result<Vec<u8>> {
        let wrong = |cause: &dyn Display| Error::environment(format!("cannot encode a histogram: {cause}"));
        self.plain.clear();
        self.serializer.serialize(histogram, &mut self.plain).map_err(|cause| wrong(&cause))?;
        self.compressor.write_all(&self.plain).map_err(|cause| wrong(&cause))?;
        let compressed = self.compressor.reset(Vec::new()).map_err(|cause| wrong(&cause))?;
        let length = u32::try_from(compressed.len()).map_err(|cause| wrong(&cause))?;
        Ok([&COMPRESSED_COOKIE.to_be_bytes()[..], &length.to_be_bytes(), &compressed].concat())
    }
}

// Outliers of a set: values further above the others than the scatter of all explains.
//
// Based on the median and the median absolute deviation, which tolerate outliers in up to half of the values; lower
// medians, so that of two values the smaller is the usual one. The threshold is corrected for the number of
// comparisons: with a fixed one such as three deviations a healthy fleet of 64 has an outlier more often than not.

/// From the median of absolute distances to the standard deviation of a normal distribution (F. R. Hampel, "The influence curve
/// and its role in robust estimation", Journal of the American Statistical Association 69 (1974)).
const MEDIAN_DISTANCE_TO_DEVIATION: f64 = 1.4826;

/// Growth of the threshold if the scatter is estimated from few values; tuned by simulation, checked by a test.
const FEW_VALUES: f64 = 8.0;

/// The rule for outliers.
#[derive(Clone, Copy, Debug)]
pub struct OddRule {
    /// False-alarm probability for any value of a healthy set.
    pub chance: f64,
    /// Number of comparisons that share the probability (Bonferroni: each has the probability divided by their number).
    pub comparisons: usize,
    /// Lower bound on the standard deviation.
    pub least_deviation: f64,
    /// Smaller distances are ignored.
    pub least_distance: f64,
}

/// The usual value of a set, and the distance from which a value is an outlier.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Usual {
    /// The lower median.
    pub middle: f64,
    /// The robust standard deviation.
    pub deviation: f64,
    /// The allowed distance above it.
    pub allowed: f64,
}

impl OddRule {
    /// The usual value and the allowed distance; `None` without values.
    pub fn usual(&self, values: &[f64]) -> Option<Usual> {
        let middle = low_median(values.iter().copied())?;
        Some(self.usual_of(middle, values.iter().map(|value| (value - middle).abs()), values.len()))
    }

    /// For sets in which up to half of the values may be outliers: only values up to the median estimate the scatter.
    pub fn usual_by_lower_half(&self, values: &[f64]) -> Option<Usual> {
        let middle = low_median(values.iter().copied())?;
        let lower = values.iter().filter(|value| **value <= middle);
        Some(self.usual_of(middle, lower.map(|value| middle - value), values.len()))
    }

    fn usual_of(&self, middle: f64, distances: impl Iterator<Item = f64>, count: usize) -> Usual {
        // The distance of the median from itself is skipped; two values have no scatter to estimate.
        let distances = sorted(distances);
        let distance = match distances.get(1..) {
            Some(others) if count > 2 => low_median(others.iter().copied()).unwrap_or(0.0),
            _ => 0.0,
        };
        let deviation = (distance * MEDIAN_DISTANCE_TO_DEVIATION).max(self.least_deviation);
        let few = 1.0 + FEW_VALUES / (count as f64 - 1.0).max(1.0);
        let quantile = upper_normal_quantile(self.chance / self.comparisons.max(1) as f64);
        Usual { middle, deviation, allowed: (quantile * few * deviation).max(self.least_distance) }
    }
}

impl Usual {
    /// A limit independent of any scatter.
    pub fn given(middle: f64, allowed: f64) -> Usual {
        Usual { middle, deviation: allowed, allowed }
    }

    /// Distance of a value above the median, as a multiple of the allowed distance; an outlier above 1.
    pub fn strength(&self, value: f64) -> f64 {
        (value - self.middle) / self.allowed
    }
}

/// The value that a standard normal variable exceeds with this probability, which must be below one half.
///
/// M. Abramowitz and I. A. Stegun, Handbook of Mathematical Functions (1964), 26.2.23; the error is below 4.5e-4.
pub fn upper_normal_quantile(probability: f64) -> f64 {
    let t = (-2.0 * probability.ln()).sqrt();
    let numerator = 2.515_517 + t * (0.802_853 + t * 0.010_328);
    let denominator = 1.0 + t * (1.432_788 + t * (0.189_269 + t * 0.001_308));
    t - numerator / denominator
}

// Finds the stretch of a series with the highest density of marks, and its probability under chance.

/// A stretch of a series of marks.
#[derive(Clone, Debug, PartialEq)]
pub struct Stretch {
    /// Its position; it begins and ends with a marked value.
    pub range: Range<usize>,
    /// Marked values in it.
    pub marked: usize,
    /// Upper bound on its probability if marks were placed at random.
    pub probability: f64,
}

/// Up to this many values the probability is simulated; beyond it an analytic bound applies.
const MAX_DRAWN: usize = 5_000;

const DRAWS: usize = 1_999;

const ENOUGH: usize = 20;

/// The stretch with the most marked values beyond those that are not: the largest sum of a part of the series in which a mark counts 1 and
/// any other value -1 (J. Bentley, "Programming pearls: algorithm design techniques", 1984). `None` without a mark.
pub fn densest_stretch(marks: &[bool]) -> Option<Stretch> {
    let (most, range) = largest_sum(marks);
    if most == 0 {
        return None;
    }
    let probability = bound(marks, most).min(drawn(marks, most));
    let marked = marks[range.clone()].iter().filter(|marked| **marked).count();
    Some(Stretch { range, marked, probability })
}

fn largest_sum(marks: &[bool]) -> (i64, Range<usize>) {
    let (mut sum, mut from, mut best) = (0i64, 0, (0i64, 0..0));
    for (at, marked) in marks.iter().enumerate() {
        if sum <= 0 {
            (sum, from) = (0, at);
        }
        sum += if *marked { 1 } else { -1 };
        if sum > best.0 {
            best = (sum, from..at + 1);
        }
    }
    best
}

/// From any place on, the sum reaches m or more with a probability of at most (q / p)^m, where q is the share of marks and p of the others,
/// and q < p (W. Feller, "An Introduction to Probability Theory and Its Applications", vol. 1, 3rd ed., XIV.2: the gambler who is ruined).
/// Over all places the sum of these bounds holds. The stretch's own marks count into q, which makes the bound larger.
fn bound(marks: &[bool], most: i64) -> f64 {
    let all = marks.len() as f64;
    let share = (marks.iter().filter(|marked| **marked).count() as f64 + 1.0) / (all + 2.0);
    if share < 0.5 { (all * (share / (1.0 - share)).powf(most as f64)).min(1.0) } else { 1.0 }
}

/// The share of shuffled series, this one included, whose largest sum is as large. Drawing stops once enough of them
/// are (J. Besag and P. Clifford, "Sequential Monte Carlo p-values", Biometrika 78, 1991). The same marks always give
/// the same answer.
fn drawn(marks: &[bool], most: i64) -> f64 {
    if marks.len() > MAX_DRAWN {
        return 1.0;
    }
    let mut random = Xoshiro256PlusPlus::seed_from_u64(marks.len() as u64);
    let mut shuffled = marks.to_vec();
    let mut as_large = 0;
    for draw in 1..=DRAWS {
        shuffled.shuffle(&mut random);
        as_large += usize::from(largest_sum(&shuffled).0 >= most);
        if as_large == ENOUGH {
            return as_large as f64 / draw as f64;
        }
    }
    (as_large + 1) as f64 / (DRAWS + 1) as f64
}

// Whether a short series is still falling: the test behind the warm-up.

/// The minimum number of values for the normal approximation of the test.
const MIN_VALUES: usize = 8;

/// Required significance of a fall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// 5 % of the series without a trend count as falling.
    Suspicion,
    /// 0.5 % do.
    Strong,
}

/// True if the values, in order, fall significantly: the one-sided test of Mann and Kendall, which counts the pairs whose later value is
/// smaller, and is robust against single outliers. `None` below eight values.
pub fn falls(values: &[f64], evidence: Evidence) -> Option<bool> {
    if values.len() < MIN_VALUES {
        return None;
    }
    let n = values.len() as f64;
    let mut rising_minus_falling = 0.0;
    for (index, earlier) in values.iter().enumerate() {
        for later in &values[index + 1..] {
            rising_minus_falling += match later.total_cmp(earlier) {
                std::cmp::Ordering::Less => -1.0,
                std::cmp::Ordering::Equal => 0.0,
                std::cmp::Ordering::Greater => 1.0,
            };
        }
    }
    // Variance without ties; ties make it smaller and the test more conservative. The 1 is the correction for continuity.
    let deviation = (n * (n - 1.0) * (2.0 * n + 5.0) / 18.0).sqrt();
    let quantile = match evidence {
        Evidence::Suspicion => -1.645,
        Evidence::Strong => -2.576,
    };
    Some((rising_minus_falling + 1.0) / deviation < quantile)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Shape, draw};
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    fn span(low: f64, middle: f64, high: f64) -> Span {
        Span { middle, interval: Some(Interval { low, high }) }
    }

    #[test]
    fn unknown_numbers_have_no_interval_and_are_not_divided_by() {
        let unknown = Span { middle: 9.0, interval: None };
        assert_eq!(unknown.plus(Span::exact(1.0)), Span { middle: 10.0, interval: None });
        assert_eq!(Span::exact(1.0).over(Span::exact(0.0)), None);
        assert_eq!(Span::exact(1.0).over(span(-1.0, 2.0, 3.0)), Some(Span { middle: 0.5, interval: None }));
    }

    #[test]
    fn intervals_propagate_to_the_worst_end() {
        let (a, b) = (span(8.0, 10.0, 12.0), span(1.0, 2.0, 4.0));
        assert_eq!(a.plus(b), span(9.0, 12.0, 16.0));
        assert_eq!(a.minus(b), span(4.0, 8.0, 11.0));
        assert_eq!(a.over(b), Some(span(2.0, 5.0, 12.0)));
        assert_eq!(a.times(2.0), span(16.0, 20.0, 24.0));
    }

    #[test]
    fn probabilities_are_those_of_the_published_table() {
        for (deviate, below) in [(0.0, 0.5), (1.0, 0.841_344_7), (-1.96, 0.024_997_9), (3.0, 0.998_650_1)] {
            assert!((normal_below(deviate) - below).abs() < 2e-7, "{deviate}");
        }
    }

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
    fn one_after_another_they_are_packed_as_by_the_library() {
        use hdrhistogram::serialization::V2DeflateSerializer;
        for histogram in [of((0..5000).map(|i| i * i)), of([0, 1, 2]), of([]), of(1..1_000_000)] {
            let mut bytes = Vec::new();
            V2DeflateSerializer::new().serialize(&histogram.0, &mut bytes).unwrap();
            assert_eq!(histogram.encode().unwrap(), STANDARD.encode(bytes));
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

    fn rule(count: usize) -> OddRule {
        OddRule { chance: 0.001, comparisons: count, least_deviation: 1e-9, least_distance: 0.0 }
    }

    #[test]
    fn healthy_fleets_have_outliers_in_less_than_2_of_100_runs() {
        for count in [4usize, 6, 8, 16, 64, 256] {
            let odd = (0..1000u64).filter(|seed| {
                let mut random = Xoshiro256PlusPlus::seed_from_u64(*seed);
                let values: Vec<f64> = (0..count).map(|_| draw(Shape::LogNormal(0.02), &mut random).ln()).collect();
                let usual = rule(count).usual(&values).unwrap();
                values.iter().any(|value| usual.strength(*value) > 1.0)
            });
            let found = odd.count();
            assert!(found <= 20, "{count} values: {found} of 1000");
        }
    }

    #[test]
    fn one_that_is_a_fifth_slower_is_found_among_8_with_a_scatter_of_1_per_cent() {
        let found = (0..1000u64).filter(|seed| {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(*seed);
            let mut values: Vec<f64> = (0..8).map(|_| draw(Shape::LogNormal(0.01), &mut random).ln()).collect();
            values[3] += 1.2f64.ln();
            rule(8).usual(&values).unwrap().strength(values[3]) > 1.0
        });
        let found = found.count();
        assert!(found >= 950, "{found} of 1000");
    }

    #[test]
    fn of_the_faster_half_every_slower_one_is_an_outlier() {
        for slow in [1, 2, 3] {
            let values: Vec<f64> =
                (0..6).map(|value| 0.005 * f64::from(value) + if value < slow { 0.5 } else { 0.0 }).collect();
            let rule = OddRule { least_deviation: 0.01, ..rule(6) };
            let usual = rule.usual_by_lower_half(&values).unwrap();
            let odd: Vec<bool> = values.iter().map(|value| usual.strength(*value) > 1.0).collect();
            let expected: Vec<bool> = (0..6).map(|value| value < slow).collect();
            assert_eq!(odd, expected, "{slow} slow");
        }
    }

    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (probability, quantile) in [(0.05, 1.644_854), (0.025, 1.959_964), (0.001, 3.090_232), (1e-6, 4.753_424)] {
            assert!((upper_normal_quantile(probability) - quantile).abs() < 5e-4, "{probability}");
        }
    }

    fn marks(text: &str) -> Vec<bool> {
        text.chars().map(|letter| letter == 'x').collect()
    }

    #[test]
    fn without_a_mark_there_is_no_stretch_and_where_all_are_marked_nothing_is_rare() {
        for text in ["", ".", "......"] {
            assert_eq!(densest_stretch(&marks(text)), None, "{text}");
        }
        assert_eq!(densest_stretch(&marks("xxxx")).map(|found| found.probability), Some(1.0));
    }

    #[test]
    fn the_stretch_begins_and_ends_with_marks_and_may_have_gaps() {
        for (text, range, marked) in
            [("..xxx..", 2..5, 3), ("x...xx.xxx.x...", 4..10, 5), ("x.x", 0..1, 1), ("....x", 4..5, 1)]
        {
            let found = densest_stretch(&marks(text)).expect("one");
            assert_eq!((found.range, found.marked), (range, marked), "{text}");
        }
    }

    /// Counts how often the stated probability is reached by chance.
    #[test]
    fn a_random_stretch_is_no_more_frequent_than_its_probability() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        for share in [0.02, 0.1, 0.25, 0.4, 0.6] {
            let below = (0..200).filter(|_| {
                let series: Vec<bool> = (0..60).map(|_| random.random_bool(share)).collect();
                densest_stretch(&series).is_some_and(|found| found.probability <= 0.05)
            });
            // 5 % of 200, and three standard deviations of that count.
            let counted = below.count();
            assert!(counted <= 19, "{share}: {counted} of 200");
        }
        // An obvious stretch is found.
        let planted = format!("{}{}{}", ".".repeat(80), "x".repeat(15), ".".repeat(25));
        assert!(densest_stretch(&marks(&planted)).expect("one").probability < 1e-6);
        let near_half = format!("{}{}", "x".repeat(20), ".".repeat(30));
        assert!(densest_stretch(&marks(&near_half)).expect("one").probability < 1e-3);
    }

    #[test]
    fn too_few_values_give_no_trend() {
        assert_eq!(falls(&[9.0, 8.0, 7.0, 6.0, 5.0, 4.0, 3.0], Evidence::Suspicion), None);
    }

    #[test]
    fn only_a_fall_counts_as_a_trend() {
        for (values, expected) in [
            ([9.0, 8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0], true),
            ([90.0, 20.0, 12.0, 11.0, 9.0, 8.0, 7.0, 7.5, 6.0], true),
            ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0], false),
            ([5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0], false),
            ([90.0, 5.0, 6.0, 5.0, 6.0, 5.0, 6.0, 5.0, 6.0], false),
        ] {
            assert_eq!(falls(&values, Evidence::Suspicion), Some(expected), "{values:?}");
        }
    }
}
