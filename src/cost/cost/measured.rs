//! Measured times of records, grouped by curve. Nothing is fitted here.

use super::coefficient::{Exchanged, Ratios, Replayed, seconds};
use super::curve::{Cleaned, Interpolant, Point, combined};
use super::document::Source;
use super::place::{CurveKey, FamilyKey, Measured};
use super::{LoneCall, Place, coefficient, place};
use commgauge_base::error::{Error, Result};
use commgauge_base::geometry::Splits;
use commgauge_base::units::{Bytes, Seconds};
use commgauge_model::layout::Axis;
use commgauge_model::record::Record;
use commgauge_model::record::line::CaseFacts;
use std::collections::{BTreeMap, BTreeSet};

/// All measurements of some records.
#[derive(Clone, Debug, Default)]
pub struct Measurements {
    pub curves: BTreeMap<CurveKey, Measured>,
    /// Slowdowns of calls concurrent with calls of other axes.
    pub(super) interference: Ratios,
    /// Replays of whole steps.
    pub(super) replayed: BTreeMap<Axis, Replayed>,
    /// Slowdowns of bidirectional messages.
    pub(super) exchanged: Exchanged,
    /// Whether no real time passed.
    pub synthetic: bool,
    /// The records.
    pub sources: Vec<Source>,
    /// What was skipped, as sentences.
    pub warnings: Vec<String>,
}

impl Measurements {
    /// Collects the measurements of records, each with its file name.
    ///
    /// # Errors
    /// A mismatch if the records come from different machines, or only some are synthetic.
    pub fn of<'a>(records: impl IntoIterator<Item = (&'a str, &'a Record)>) -> Result<Measurements> {
        let mut all = Measurements::default();
        let mut machines: BTreeMap<String, String> = BTreeMap::new();
        let mut skipped: BTreeMap<String, u64> = BTreeMap::new();
        for (file, record) in records {
            let backend = &record.header.backend;
            for case in &record.plan.cases {
                machines.entry(machine(&record.header.backend.library, case)).or_insert_with(|| file.to_owned());
            }
            if !all.sources.is_empty() && all.synthetic != backend.synthetic {
                return Err(Error::mismatch(format!(
                    "{file}: some records are synthetic and some are measured; fit them separately"
                )));
            }
            all.synthetic = backend.synthetic;
            all.sources.push(Source {
                file: file.to_owned(),
                run_id: record.header.run_id.clone(),
                backend: backend.name.clone(),
                library: backend.library.clone(),
            });
            all.warnings.extend(record.file.warnings.iter().map(|warning| format!("{file}: {warning}")));
            all.add(record, &mut skipped);
        }
        if machines.len() > 1 {
            let named: Vec<String> =
                machines.into_iter().map(|(machine, file)| format!("{machine} ({file})")).collect();
            return Err(Error::mismatch(format!(
                "the records come from different machines or libraries: {}; a fit needs one of them",
                named.join("; ")
            )));
        }
        all.curves = place::drop_constant_labels(std::mem::take(&mut all.curves));
        all.warnings.extend(skipped.into_iter().map(|(reason, lines)| format!("excluded, {reason}: {lines}")));
        Ok(all)
    }

    fn add(&mut self, record: &Record, skipped: &mut BTreeMap<String, u64>) {
        coefficient::add_interference(&mut self.interference, record);
        coefficient::add_overlap(&mut self.replayed, record);
        coefficient::add_both_ways(&mut self.exchanged, record);
        let corrupt: BTreeSet<u32> =
            record.cases.iter().filter(|line| line.outcome.is_wrong()).map(|line| line.case).collect();
        // The foot of another tool's log does not say which rows are wrong.
        let is_all_wrong =
            record.header.backend.measured_by.is_some() && record.end.as_ref().is_some_and(|end| end.exit_code == 4);
        for line in &record.cases {
            let Some(facts) = record.plan.cases.get(line.case as usize) else { continue };
            let reason = reason_to_skip(facts, &record.plan.cases)
                .or((is_all_wrong || corrupt.contains(&line.case)).then_some("wrong data"));
            match (reason, seconds(facts, line)) {
                (None, Some(seconds)) => {
                    let measured = self.curves.entry(key(facts)).or_default();
                    measured.entry(facts.bytes_total.0).or_default().push(seconds);
                }
                (Some(reason), _) => *skipped.entry(reason.to_owned()).or_default() += 1,
                (None, None) => *skipped.entry("no positive sample".to_owned()).or_default() += 1,
            }
        }
    }

    /// Keeps only the measurements that `keep` accepts, so that a fit can be tested on the others.
    pub fn retain(&mut self, keep: impl Fn(&CurveKey, u64) -> bool) {
        for (key, measured) in &mut self.curves {
            measured.retain(|bytes, _| keep(key, *bytes));
        }
        self.curves.retain(|_, measured| !measured.is_empty());
    }
}

/// Facts that must be the same in all records of a fit.
fn machine(library: &str, case: &CaseFacts) -> String {
    let labels = ["system", "device"].into_iter().filter_map(|name| case.labels.get(name).map(String::as_str));
    labels.chain([library]).collect::<Vec<_>>().join(", ")
}

fn reason_to_skip(facts: &CaseFacts, all: &[CaseFacts]) -> Option<&'static str> {
    let uneven = facts.splits.as_ref().is_some_and(|splits| *splits != Splits::Equal);
    // With one group on each host, alone and all at once are the same place, and only the second occurs in training.
    let with_all = facts.solo_of.and_then(|all_at_once| all.get(all_at_once as usize));
    let same_place = with_all.is_some_and(|with_all| Place::of(&with_all.locality) == Place::of(&facts.locality));
    match facts {
        _ if same_place => Some("a lone group with one rank per host"),
        _ if facts.bytes_total.0 == 0 => Some("no bytes moved"),
        _ if facts.group_size < 2 => Some("a group of one rank"),
        _ if uneven => Some("blocks of different length"),
        _ => None,
    }
}

fn key(facts: &CaseFacts) -> CurveKey {
    let family = FamilyKey {
        collective: facts.collective,
        element_type: facts.collective.reduces().then_some(facts.element_type),
        cadence: facts.cadence,
        place: Place::of(&facts.locality),
        labels: place::of_case(facts),
    };
    CurveKey { family, ranks: facts.group_size }
}

// Calls measured at too few sizes for a curve: the time of each, and an interval from its replicates.

/// 97.5 % quantiles of Student's t for 1, 2 ... degrees of freedom (any table; 1.96 beyond).
const STUDENT: [f64; 10] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];

/// Every size of a group size by itself.
pub(super) fn calls(ranks: u32, measured: &Measured) -> Vec<LoneCall> {
    let one = |(bytes, values): (&u64, &Vec<f64>)| {
        let seconds = combined(values)?;
        let spread = spread(values);
        Some(LoneCall {
            ranks,
            bytes_total: Bytes(*bytes),
            seconds: Seconds(seconds),
            low: spread.map(|spread| Seconds(seconds / spread)),
            high: spread.map(|spread| Seconds(seconds * spread)),
            replicates: values.len() as u32,
        })
    };
    measured.iter().filter_map(one).collect()
}

/// The factor to either side that holds 95 of 100 further replicates, if times are lognormal: t sqrt(1 + 1/n) standard deviations. `None`
/// for fewer than two.
fn spread(values: &[f64]) -> Option<f64> {
    let count = values.len() as f64;
    let freedom = values.len().checked_sub(1).filter(|freedom| *freedom > 0)?;
    let logarithms: Vec<f64> = values.iter().map(|value| value.ln()).collect();
    let mean = logarithms.iter().sum::<f64>() / count;
    let squares: f64 = logarithms.iter().map(|value| (value - mean).powi(2)).sum();
    let student = STUDENT.get(freedom - 1).copied().unwrap_or(1.96);
    Some((student * (squares / freedom as f64 * (1.0 + 1.0 / count)).sqrt()).exp())
}

// Where a curve is least certain: for every interval between two measured sizes the expected error of the interpolation, and the size in
// its middle. The caller decides what to measure and when to stop.
//
// A communication library takes, for every size, the cheapest of several straight lines. Between two measured sizes
// there are four candidates: the chord, the extended line of the left side, the extended line of the right side, and
// the interpolation, which weights the three. Where they agree it hardly matters which applies; where they disagree,
// one of them is wrong. The expected error is a share of their largest disagreement in log time, to which every
// doubling without a measurement adds a little, since a library may switch there and back; it is bounded by the height
// of the interval, since time never falls.
//
// Both constants were tuned on the curves in `tests/data/nccl`: over random choices of sizes the largest error
// in an interval was 0.34 times the disagreement (correlation 0.7 to 0.75 on each of the four systems; with the height of the
// interval alone it was 0.48 to 0.58, with its width 0.53 to 0.65).

/// Expected error in log time for each unit of disagreement in log time.
const OF_DISAGREEMENT: f64 = 0.35;

/// Disagreement in log time that each doubling between the two measured sizes adds.
const OF_DOUBLING: f64 = 0.02;

/// Positions at which the candidates are compared, as fractions of the interval in log bytes.
const PLACES: [f64; 3] = [0.25, 0.5, 0.75];

/// The interval between two neighbouring measured sizes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gap {
    /// Bytes of the smaller size.
    pub low: u64,
    /// Bytes of the larger size.
    pub high: u64,
    /// Expected error of the interpolation between them, as a fraction of the time.
    pub expected_error: f64,
}

impl Gap {
    /// The size in the middle on a logarithmic scale, rounded to three significant bits (4, 5, 6 or 7 times a power of two: such sizes
    /// divide among ranks); `None` if no such size is between the ends.
    pub fn middle(&self) -> Option<u64> {
        let exact = (self.low as f64 * self.high as f64).sqrt();
        // The smallest sizes have fewer than three bits.
        let unit = 2f64.powi((exact.log2().floor() as i32 - 2).max(0));
        let rounded = ((exact / unit).round() * unit) as u64;
        (rounded > self.low && rounded < self.high).then_some(rounded)
    }
}

/// The size to measure next, in the least certain interval that can be split; `split` returns a size inside an interval, if
/// any. `None` where no interval can be split, and where the curve is good enough: the expected error is at most `until_error`
/// in every such interval, and so was the error of the prediction of the last measured size. Without such a prediction the
/// error of the curve is unknown.
pub fn next_point(
    points: &[Point],
    last_error: Option<f64>,
    until_error: f64,
    split: impl Fn(&Gap) -> Option<u64>,
) -> Option<(Gap, u64)> {
    let open = gaps(points).into_iter().filter_map(|gap| Some((gap, split(&gap)?)));
    let least_sure = open.max_by(|a, b| a.0.expected_error.total_cmp(&b.0.expected_error))?;
    let is_sure = least_sure.0.expected_error <= until_error && last_error.is_some_and(|error| error <= until_error);
    (!is_sure).then_some(least_sure)
}

/// Every interval of a curve through measured points, ascending in bytes, bytes and seconds above zero.
pub fn gaps(points: &[Point]) -> Vec<Gap> {
    let cleaned = Cleaned::of(points).points;
    let curve = Interpolant::new(&cleaned);
    let gap = |pair: &[Point]| {
        let (low, high) = (pair[0].bytes, pair[1].bytes);
        let doublings = (high / low).log2();
        let (disagreement, height) = disagreement(&cleaned, &curve, (low * high).sqrt());
        let expected_error = OF_DISAGREEMENT * (disagreement + OF_DOUBLING * doublings).min(height);
        Gap { low: low as u64, high: high as u64, expected_error }
    };
    points.windows(2).map(gap).collect()
}

/// Interpolated seconds for a size between the points; `None` outside, and with fewer than two points.
pub fn interpolated(points: &[Point], bytes: f64) -> Option<f64> {
    let (first, last) = (points.first()?, points.last()?);
    let inside = points.len() >= 2 && (first.bytes..=last.bytes).contains(&bytes);
    inside.then(|| Interpolant::new(&Cleaned::of(points).points).seconds(bytes))
}

/// The largest distance in log time between any two candidates in the interval of the cleaned curve around `bytes`, and the interval's
/// height in log time. Outliers do not bound intervals: they are treated as not measured.
fn disagreement(cleaned: &[Point], curve: &Interpolant, bytes: f64) -> (f64, f64) {
    let index = cleaned.partition_point(|point| point.bytes <= bytes).saturating_sub(1);
    let (Some(&left), Some(&right)) = (cleaned.get(index), cleaned.get(index + 1)) else { return (0.0, 0.0) };
    let spread = |place: &f64| curve.disagreement(left.bytes * (right.bytes / left.bytes).powf(*place));
    (PLACES.iter().map(spread).fold(0.0, f64::max), (right.seconds / left.seconds).ln())
}

#[cfg(test)]
mod measured_tests {

    use super::*;

    fn sample(change: impl Fn(&mut Record)) -> Record {
        let mut record = commgauge_model::record::testing::sample();
        change(&mut record);
        record
    }

    #[test]
    fn records_that_do_not_belong_together_are_refused() {
        let measured = sample(|_| {});
        for (other, reason) in [
            (sample(|record| record.header.backend.synthetic = true), "some records are synthetic"),
            (
                sample(|record| record.header.backend.library = "NCCL 2.27".to_owned()),
                "different machines or libraries",
            ),
            (
                sample(|record| {
                    record.plan.cases[0].labels.insert("system".to_owned(), "h100".to_owned());
                }),
                "h100, Open MPI",
            ),
        ] {
            let error = Measurements::of([("a", &measured), ("b", &other)]).unwrap_err();
            assert_eq!(error.exit_code(), 7);
            assert!(error.to_string().contains(reason), "{error}");
        }
    }

    #[test]
    fn lines_without_a_time_are_skipped_and_counted() {
        let measurements = Measurements::of([("sample", &sample(|_| {}))]).unwrap();
        let warnings = measurements.warnings.join("\n");
        for reason in ["wrong data: ", "no bytes moved: "] {
            assert!(warnings.contains(reason), "{warnings}");
        }
        let times: Vec<f64> =
            measurements.curves.values().flat_map(|curve| curve.values().flatten().copied()).collect();
        assert!(!times.is_empty() && times.iter().all(|seconds| *seconds > 0.0 && *seconds < 1.0), "{times:?}");
        assert!(!measurements.synthetic);
    }

    #[test]
    fn a_synthetic_record_stays_so() {
        let synthetic = sample(|record| record.header.backend.synthetic = true);
        assert!(Measurements::of([("sample", &synthetic)]).unwrap().synthetic);
    }
}

#[cfg(test)]
mod lone_tests {

    use super::*;

    #[test]
    fn two_replicates_give_a_wide_interval_and_one_gives_none() {
        let measured: Measured = [(1024, vec![1e-5]), (2048, vec![1e-5, 1.1e-5]), (4096, vec![1e-5; 5])].into();
        let calls = calls(8, &measured);
        assert_eq!((calls[0].low, calls[0].replicates), (None, 1));
        let (low, high) = (calls[1].low.unwrap().0, calls[1].high.unwrap().0);
        // The logarithms are 0.0953 apart: 12.706 x 0.0674 x sqrt(1.5) to either side.
        assert!(((high / low).ln() / 2.0 - 12.706 * 0.0674 * 1.5f64.sqrt()).abs() < 0.01, "{low} {high}");
        assert!((calls[2].high.unwrap().0 - 1e-5).abs() < 1e-12);
    }
}

#[cfg(test)]
mod tests {
    // Where a curve is least certain, and when it is certain enough, on curves with a known answer.
    use super::*;

    fn measured(sizes: &[u64], seconds: impl Fn(f64) -> f64) -> Vec<Point> {
        sizes.iter().map(|bytes| Point::new(*bytes as f64, seconds(*bytes as f64))).collect()
    }

    #[test]
    fn a_straight_line_is_certain_everywhere() {
        for gap in gaps(&measured(&[1 << 10, 1 << 14, 1 << 18, 1 << 22], |bytes| 1e-5 + bytes * 1e-9)) {
            let doublings = (gap.high as f64 / gap.low as f64).log2();
            // The interpolation consists of pieces that are linear in log-log.
            assert!(gap.expected_error <= OF_DISAGREEMENT * doublings * OF_DOUBLING + 0.005, "{gap:?}");
        }
    }

    #[test]
    fn the_interval_of_a_protocol_switch_is_the_least_certain() {
        // One protocol up to 256 KiB, then another with three times the latency and a third of the cost of a byte.
        let switching = |bytes: f64| if bytes <= 262_144.0 { 1e-5 + bytes * 3e-10 } else { 2.8e-4 + bytes * 1e-10 };
        let gaps = gaps(&measured(&[1 << 10, 1 << 14, 1 << 17, 1 << 20, 1 << 24], switching));
        let worst = gaps.iter().max_by(|a, b| a.expected_error.total_cmp(&b.expected_error)).unwrap();
        assert_eq!((worst.low, worst.high), (1 << 17, 1 << 20), "{gaps:?}");
    }

    #[test]
    fn an_interval_next_to_an_outlier_is_as_uncertain_as_without_it() {
        let line = |bytes: f64| 1e-5 + bytes * 1e-9;
        let mut points = measured(&[1 << 10, 1 << 14, 1 << 18, 1 << 22], line);
        points[1].seconds *= 50.0;
        let found = gaps(&points);
        assert_eq!(found.len(), 3, "every measured size is an end");
        let without = gaps(&[points[0], points[2], points[3]]);
        assert!((found[0].expected_error - without[0].expected_error).abs() < 0.03, "{found:?} {without:?}");
    }

    #[test]
    fn the_middle_is_a_size_that_divides_or_none() {
        for (low, high, expected) in [
            (1 << 10, 1 << 16, Some(1 << 13)),
            (1 << 10, 1 << 11, Some(1536)),
            (1 << 10, 1536, Some(1280)),
            (1 << 10, 1280, None),
            (8, 16, Some(12)),
            (1, 2, None),
            (1, 4, Some(2)),
            (1 << 45, 1 << 46, Some(6 << 43)),
        ] {
            let found = Gap { low, high, expected_error: 0.1 }.middle();
            assert_eq!(found, expected, "{low} to {high}");
        }
    }

    #[test]
    fn a_prediction_is_given_inside_only() {
        let points = measured(&[100, 10_000], |bytes| bytes * 1e-9);
        assert!((interpolated(&points, 1_000.0).unwrap() - 1e-6).abs() < 1e-12);
        assert_eq!(interpolated(&points, 99.0), None);
        assert_eq!(interpolated(&points, 10_001.0), None);
        assert_eq!(interpolated(&points[..1], 100.0), None);
    }

    #[test]
    fn a_curve_is_certain_only_after_a_size_was_predicted_well() {
        let points = measured(&[1 << 10, 1 << 12, 1 << 14], |bytes| 1e-5 + bytes * 1e-9);
        let next = |last_error, until| next_point(&points, last_error, until, Gap::middle).map(|(_, bytes)| bytes);
        assert_eq!(next(None, 0.1), Some(1 << 13), "nothing predicted yet");
        assert_eq!(next(Some(0.2), 0.1), Some(1 << 13), "the last prediction was wrong");
        assert_eq!(next(Some(0.05), 0.1), None);
        assert_eq!(next(Some(0.0), 1e-6), Some(1 << 13), "the interval is less certain than requested");
        assert_eq!(next_point(&points, None, 0.1, |_| None), None, "no interval can be split");
    }
}
