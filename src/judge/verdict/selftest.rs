//! Do the rules meet their stated error rates? Measured with the code of gate and compare, on synthetic runs and the user's runs.
//!
//! Seeds are fixed: the same request gives the same result on every machine. Rendering is in `cli` and `report`.

use super::comparability::LoadedRecord;
use super::{CompareRule, Decision, GateRule, compare, differences, gate};
use commgauge_base::collective::{Collective, ReduceOp};
use commgauge_base::element::ElementType;
use commgauge_base::error::{Error, Result};
use commgauge_base::random::{normal, uniform};
use commgauge_base::stats::proportion_interval;
use commgauge_base::units::Bytes;
use commgauge_base::visible::ShownPath;
use commgauge_model::config::Machine;
use commgauge_model::layout::Locality;
use commgauge_model::record::line::{BackendLine, CaseFacts, ClockLine, ClockMoment, Header, RankFacts, SuiteFacts};
use commgauge_model::record::{Line, Parts, Record};
use rand::{Rng, RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rayon::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The value of `format` in every selftest.
pub const SELFTEST_FORMAT: &str = "commgauge-selftest";

/// The version of the format.
pub const SELFTEST_VERSION: u32 = 1;

/// The slowdown that must be found, and the share of comparisons that must find it.
const SLOWDOWN: f64 = 0.05;

const FOUND: f64 = 0.9;

/// Parameters of a self-test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SelfTestRule {
    /// Promised maximum probability of any false alarm of a comparison, and of a wrong answer on each gated row.
    pub level: f64,
    /// The smallest relevant slowdown, as a share.
    pub relevant_slowdown: f64,
    /// Comparisons of each kind.
    #[serde(skip)]
    pub comparisons: u32,
    /// Rows in each comparison.
    pub rows: u32,
    /// Replicates of each side.
    pub replicates: u32,
    /// Standard deviation of the noise from run to run, as a share.
    pub sigma: f64,
    /// Seed of all noise.
    pub seed: u64,
}

/// The result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SelfTest {
    /// Always `commgauge-selftest`.
    pub format: String,
    /// Version of the format.
    pub version: u32,
    #[serde(flatten)]
    pub rule: SelfTestRule,
    /// Confidence of the intervals.
    pub confidence: f64,
    /// The trials.
    pub trials: Vec<Trial>,
    /// Results of the user's own runs, if given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history: Option<History>,
    /// False if a promise is broken beyond chance.
    pub holds: bool,
}

/// The counted event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, strum::VariantArray)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Asked")]
pub enum TrialKind {
    /// `compare` reports a slower row although none is.
    CompareFalseAlarm,
    /// `compare` finds the one row that became 5 % slower.
    ComparePower,
    /// `gate` passes a row whose true median is just beyond its limit.
    GateFalsePass,
    /// `gate` fails a row whose true median is just within its limit.
    GateFalseFail,
    /// `gate` fails a row whose true median is 5 % beyond its limit.
    GatePower,
}

/// One kind of trial.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Trial {
    /// The counted event.
    pub asked: TrialKind,
    /// The noise.
    pub noise: Noise,
    /// The result.
    pub counted: Counted,
    /// The promise: at most this share of wrong answers, at least this share of findings. Absent without one.
    pub promised: Option<f64>,
    /// Pass if the interval is on the promised side, fail if it is on the other, else inconclusive.
    pub decision: Option<Decision>,
}

impl TrialKind {
    /// Every kind, in run order.
    pub const ALL: [TrialKind; 5] = *<TrialKind as strum::VariantArray>::VARIANTS.as_array().expect("all of them");

    pub fn is_power(self) -> bool {
        matches!(self, TrialKind::ComparePower | TrialKind::GatePower)
    }
}

impl SelfTest {
    /// Reads the output of `commgauge expect selftest --format json`.
    ///
    /// # Errors
    /// A usage error that names the file and the problem.
    pub fn read(path: &Path) -> Result<SelfTest> {
        let wrong = |problem: String| Error::usage(format!("{}: {problem}", path.shown()));
        let text = commgauge_base::host::read_to_string(path)
            .map_err(|cause| wrong(format!("cannot read the self-test: {cause}")))?;
        let tried: SelfTest = serde_json::from_str(&text).map_err(|cause| {
            wrong(format!("is not the output of `commgauge expect selftest --format json`: {cause}"))
        })?;
        match (tried.format.as_str(), tried.version) {
            (SELFTEST_FORMAT, SELFTEST_VERSION) => Ok(tried),
            (SELFTEST_FORMAT, version) => Err(wrong(format!(
                "is a self-test of version {version}; this commgauge reads version {SELFTEST_VERSION}"
            ))),
            (format, _) => Err(wrong(format!("is not a self-test: its format is {format:?}, not {SELFTEST_FORMAT:?}"))),
        }
    }

    /// The stated and the measured false-alarm rate, in one sentence for reports.
    pub fn summary(&self) -> String {
        let percent = |share: f64| format!("{:.1} %", share * 100.0);
        let of =
            |asked: TrialKind| self.trials.iter().filter(move |trial| trial.asked == asked && trial.promised.is_some());
        let share = |trial: &Trial| trial.counted.count as f64 / trial.counted.of.max(1) as f64;
        let alarms = of(TrialKind::CompareFalseAlarm).map(share).fold(0.0, f64::max);
        let found = of(TrialKind::ComparePower).map(share).fold(1.0, f64::min);
        format!(
            "selftest: at most {} false alarms over {} rows promised, {} measured in the worst case; a slowdown of 5 % was found in at least {} with {} replicates at {} noise",
            percent(self.rule.level),
            self.rule.rows,
            percent(alarms),
            percent(found),
            self.rule.replicates,
            percent(self.rule.sigma)
        )
    }
}

/// The user's own records.
#[derive(Clone, Debug, Default)]
pub struct OwnRecords {
    /// The readable records, in any order.
    pub records: Vec<LoadedRecord>,
    /// Why others could not be read, as sentences.
    pub left_out: Vec<String>,
}

/// Runs the self-test, also on the user's records if given.
///
/// # Errors
/// If a synthetic run is refused, which would be a defect.
pub fn selftest(rule: &SelfTestRule, own: Option<OwnRecords>) -> Result<SelfTest> {
    let mut trials = Vec::new();
    for asked in TrialKind::ALL {
        for noise in Noise::ALL {
            let of_gate = !matches!(asked, TrialKind::CompareFalseAlarm | TrialKind::ComparePower);
            // Drift must not continue from one run into another.
            if of_gate && noise == Noise::DriftingOn {
                continue;
            }
            trials.push(trial(asked, noise, rule)?);
        }
    }
    let history = own.map(|own| history(own.records, own.left_out, &compare_rule(rule)));
    let of_user_runs = history.iter().flat_map(|history| [&history.run_against_run, &history.half_against_half]);
    let broken_by_user_runs =
        of_user_runs.into_iter().any(|counted| counted.lower_bound.is_some_and(|low| low > rule.level));
    let holds = !broken_by_user_runs && !trials.iter().any(|trial| trial.decision == Some(Decision::Fail));
    Ok(SelfTest {
        format: SELFTEST_FORMAT.to_owned(),
        version: SELFTEST_VERSION,
        rule: rule.clone(),
        confidence: CONFIDENCE,
        trials,
        history,
        holds,
    })
}

fn compare_rule(rule: &SelfTestRule) -> CompareRule {
    CompareRule { false_alarm_level: rule.level, relevant_slowdown: rule.relevant_slowdown, allowed: Vec::new() }
}

/// Comparisons run in parallel; each has its own seed, so their order does not matter.
fn trial(asked: TrialKind, noise: Noise, rule: &SelfTestRule) -> Result<Trial> {
    let total = u64::from(rule.comparisons);
    let hits = (0..total).into_par_iter().map(|index| once(asked, noise, rule, index).map(u64::from));
    let counted = counted(hits.sum::<Result<u64>>()?, total);
    let promised = noise.is_promised().then_some(match asked {
        TrialKind::CompareFalseAlarm | TrialKind::GateFalsePass | TrialKind::GateFalseFail => rule.level,
        TrialKind::ComparePower | TrialKind::GatePower => FOUND,
    });
    let decision = promised.map(|promised| decide(asked, &counted, promised));
    Ok(Trial { asked, noise, counted, promised, decision })
}

fn decide(asked: TrialKind, counted: &Counted, promised: f64) -> Decision {
    let (low, high) = (counted.lower_bound.unwrap_or(0.0), counted.upper_bound.unwrap_or(1.0));
    match asked.is_power() {
        true if low >= promised => Decision::Pass,
        true if high < promised => Decision::Fail,
        false if high <= promised => Decision::Pass,
        false if low > promised => Decision::Fail,
        _ => Decision::Inconclusive,
    }
}

/// One comparison, or one gated row: true if the counted event occurred.
fn once(asked: TrialKind, noise: Noise, rule: &SelfTestRule, index: u64) -> Result<bool> {
    let stream = TrialKind::ALL.iter().position(|other| *other == asked).unwrap_or(0) as u64 * 8
        + Noise::ALL.iter().position(|other| *other == noise).unwrap_or(0) as u64;
    let seed = rule.seed.wrapping_add((stream << 40) + index);
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let replicates = rule.replicates as usize;
    let mut run = |number: usize, rows: u32| -> Vec<Vec<f64>> {
        (0..rows).map(|_| noise.draw(rule.sigma, replicates, number, &mut random)).collect()
    };
    match asked {
        TrialKind::CompareFalseAlarm | TrialKind::ComparePower => {
            let (base, mut new) = (run(0, rule.rows), run(1, rule.rows));
            let slow = index as usize % new.len().max(1);
            if let (TrialKind::ComparePower, Some(row)) = (asked, new.get_mut(slow)) {
                row.iter_mut().for_each(|time| *time *= 1.0 + SLOWDOWN);
            }
            let (base, new) = (loaded("base", &base)?, loaded("new", &new)?);
            let verdict = compare(&[base], &[new], &compare_rule(rule))?;
            let found = verdict.rows.get(slow).is_some_and(|row| row.decision == Some(Decision::Fail));
            Ok(if asked == TrialKind::ComparePower { found } else { verdict.exit_code == 1 })
        }
        TrialKind::GateFalsePass | TrialKind::GateFalseFail | TrialKind::GatePower => {
            let rows = run(0, 1);
            // Just beyond the limit, just within it, and well beyond it.
            let share = match asked {
                TrialKind::GateFalsePass => 1.0 + 1e-9,
                TrialKind::GateFalseFail => 1.0 - 1e-9,
                _ => 1.0 + SLOWDOWN,
            };
            let rule = GateRule { confidence: 1.0 - rule.level, allowed: Vec::new() };
            let verdict = gate(&[loaded("run", &rows)?], Some(&machine(share)?), &rule)?;
            let wanted = if asked == TrialKind::GateFalsePass { Decision::Pass } else { Decision::Fail };
            Ok(verdict.rows.first().is_some_and(|row| row.decision == Some(wanted)))
        }
    }
}

// The rules applied to the user's own runs, in which nothing should have changed: A/A tests.
//
// Splits follow time: each run against the next comparable one, and the first half of a run's replicates against the second. Random splits
// would show nothing, since the test is exact for them by construction.

/// Results of the user's own runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct History {
    /// Number of records.
    pub records: u32,
    /// Runs against the next comparable ones.
    pub run_against_run: Counted,
    /// First halves of runs against their second halves.
    pub half_against_half: Counted,
    /// What could not be used, as sentences.
    pub left_out: Vec<String>,
}

/// Compares each run with the next comparable one; `records` in any order.
fn history(mut records: Vec<LoadedRecord>, mut left_out: Vec<String>, rule: &CompareRule) -> History {
    records.sort_by(|a, b| {
        let when =
            |loaded: &LoadedRecord| (loaded.record.header.started_at.clone(), loaded.record.header.run_id.clone());
        when(a).cmp(&when(b))
    });
    let (mut runs, mut halves) = ((0, 0), (0, 0));
    let mut count = |base: &LoadedRecord, new: &LoadedRecord, what: &str, sum: &mut (u64, u64)| {
        match compare(std::slice::from_ref(base), std::slice::from_ref(new), rule) {
            // With too few replicates no alarm is possible; such a comparison is not counted.
            Ok(verdict) if verdict.problems.is_empty() => {
                sum.0 += u64::from(verdict.exit_code == 1);
                sum.1 += 1;
            }
            Ok(verdict) => {
                let why = verdict.problems.first().map_or("", |problem| problem.text.as_str());
                left_out.push(format!("{what}: {why}"));
            }
            Err(error) => left_out.push(format!("{what}: {error}")),
        }
    };
    for (index, base) in records.iter().enumerate() {
        let next = records[index + 1..].iter().find(|next| differences(base, next).is_empty());
        if let Some(next) = next {
            count(base, next, &format!("{} and {}", base.path.shown(), next.path.shown()), &mut runs);
        }
        if let Some((first, second)) = split(base) {
            count(&first, &second, &format!("the halves of {}", base.path.shown()), &mut halves);
        }
    }
    History {
        records: records.len() as u32,
        run_against_run: counted(runs.0, runs.1),
        half_against_half: counted(halves.0, halves.1),
        left_out,
    }
}

/// The first and the second half of a run's replicates, each as a whole record; `None` if a half would be empty.
fn split(loaded: &LoadedRecord) -> Option<(LoadedRecord, LoadedRecord)> {
    let half = loaded.record.header.settings.replicates / 2;
    let part = |from: u32, id: &str| {
        let record = &loaded.record;
        let (mut header, mut plan) = (record.header.clone(), record.plan.clone());
        header.settings.replicates = half;
        header.run_id += id;
        plan.case_lines = plan.cases.len() as u64 * u64::from(half);
        let mut lines = vec![Line::Header(Box::new(header)), Line::Plan(plan)];
        lines.extend(record.clocks.iter().cloned().map(Line::Clock));
        for case in record.cases.iter().filter(|case| (from..from + half).contains(&case.replicate)) {
            let mut case = case.clone();
            case.replicate -= from;
            lines.push(Line::Case(Box::new(case)));
        }
        let mut end = record.end.clone()?;
        (end.lines_before, end.sha256) = (Some(lines.len() as u64), None);
        lines.push(Line::End(end));
        Some(LoadedRecord { path: loaded.path.clone(), record: Record::from_lines(lines).ok()? })
    };
    let first = part(0, "-first").filter(|_| half > 0)?;
    Some((first, part(half, "-second")?))
}

// A counted share with its interval.

/// Confidence of the intervals around measured shares.
const CONFIDENCE: f64 = 0.95;

/// A counted share with its interval.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Counted {
    /// Number of occurrences.
    pub count: u64,
    /// Number of trials.
    pub of: u64,
    /// Lower bound of the true share; absent without trials.
    pub lower_bound: Option<f64>,
    /// Its upper bound.
    pub upper_bound: Option<f64>,
}

/// A count with its interval.
fn counted(count: u64, of: u64) -> Counted {
    let interval = (of > 0).then(|| proportion_interval(count, of, CONFIDENCE));
    Counted { count, of, lower_bound: interval.map(|share| share.low), upper_bound: interval.map(|share| share.high) }
}

// Synthetic records for the self-test: complete, verified and reliable, so that only their times decide.

/// Ranks of the synthetic groups, all on one host.
const RANKS: u32 = 8;

/// Bytes of the first row; each row has one KiB more.
const BYTES: u64 = 1 << 20;

/// Time of a call without noise.
const MICROSECONDS: f64 = 100_000.0;

/// A record whose row r has these times, as multiples of the time without noise; the same number of replicates in each.
pub(super) fn loaded(run_id: &str, rows: &[Vec<f64>]) -> Result<LoadedRecord> {
    let nanoseconds = |time: &f64| vec![(MICROSECONDS * 1000.0 * time).max(1.0) as u64];
    let times = rows.iter().map(|replicates| replicates.iter().map(nanoseconds).collect());
    let mut record = Parts::new(header(run_id));
    record.measure((0..).map(facts).zip(times).collect());
    record.clocks = Some([ClockMoment::Start, ClockMoment::End].map(|moment| ClockLine::synchronised(moment, 1)));
    Ok(LoadedRecord { path: format!("{run_id}.jsonl").into(), record: Record::from_lines(record.lines())? })
}

/// A machine on which the first row, without noise, takes `share` of its allowed time.
pub(super) fn machine(share: f64) -> Result<Machine> {
    let ceiling = MICROSECONDS / share;
    let text = format!(
        "name = 'selftest'\nranks_per_node = {RANKS}\n[within_node]\nlatency = '1us'\nrate = '400GB/s'\n[between_nodes]\n\
         latency = '5us'\nadapters_per_node = 1\nrate_per_adapter = '50GB/s'\n[applies_to]\nbackend = 'mpi'\n[coverage]\nexpectations = 1\n\
         [[expect]]\ncollective = 'all_reduce'\n\
         ranks = {RANKS}\nbytes = ['1B', '1TiB']\nceiling = '{ceiling:.6}us'\nsource = 'selftest'\ndate = '2026'\n"
    );
    Machine::parse(&text, Path::new("selftest.toml"))
}

fn facts(row: u64) -> CaseFacts {
    let bytes = Bytes(BYTES + 1024 * row);
    CaseFacts {
        name: format!("world/all_reduce/{}", bytes.0),
        locality: Locality { nodes_spanned: 1, ranks_per_node: RANKS, stride: 1, concurrent_groups_per_node: 1 },
        reduce_op: Some(ReduceOp::Sum),
        ..CaseFacts::new(Collective::AllReduce, ElementType::Float32, RANKS, bytes)
    }
}

/// Not marked synthetic, since a synthetic record never passes; it never leaves this program.
fn header(run_id: &str) -> Header {
    Header {
        suite: SuiteFacts { name: "selftest".to_owned(), ..SuiteFacts::default() },
        backend: BackendLine { name: "made up".to_owned(), ..BackendLine::default() },
        world_size: RANKS,
        ranks: vec![RankFacts { ranks: RANKS, ..RankFacts::on_host(0, "selftest") }],
        ..Header::new("commgauge expect selftest", run_id)
    }
}

// The kinds of noise of synthetic runs.

/// Distribution of the medians of replicates; each kind has about the same standard deviation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "kebab-case")]
pub enum Noise {
    Normal,
    /// Most runs near the slowest, some much faster than the rest.
    LeftSkewed,
    /// Two equally frequent states, with little noise around both.
    Bimodal,
    /// Slower from replicate to replicate, restarting with every run.
    #[strum(serialize = "drift in runs")]
    DriftingWithinRuns,
    /// Slower from replicate to replicate; the second run continues where the first ended.
    #[strum(serialize = "drifting on")]
    DriftingOn,
}

commgauge_base::error::names!(Noise);

impl Noise {
    /// All kinds.
    pub const ALL: [Noise; 5] =
        [Noise::Normal, Noise::LeftSkewed, Noise::Bimodal, Noise::DriftingWithinRuns, Noise::DriftingOn];

    /// False if no error rate is guaranteed: drift across replicates is a real change.
    pub fn is_promised(self) -> bool {
        self != Noise::DriftingOn
    }

    /// Times around 1 with a median of about 1: for each replicate of the `run`-th run of a pair.
    pub(super) fn draw(self, sigma: f64, replicates: usize, run: usize, random: &mut Xoshiro256PlusPlus) -> Vec<f64> {
        let count = replicates as f64;
        (0..replicates)
            .map(|index| {
                let position = (index as f64 + 0.5) / count;
                let deviate = match self {
                    Noise::Normal => deviate(random),
                    // The median of 1 + ln u is 1 - ln 2.
                    Noise::LeftSkewed => uniform(random.next_u64()).ln() + std::f64::consts::LN_2,
                    Noise::Bimodal => deviate(random) * 0.25 + if random.random_bool(0.5) { 0.97 } else { -0.97 },
                    Noise::DriftingWithinRuns => deviate(random) * 0.5 + 3.0 * (position - 0.5),
                    Noise::DriftingOn => deviate(random) * 0.5 + 3.0 * (position - 0.5 + run as f64),
                };
                1.0 + sigma * deviate
            })
            .collect()
    }
}

fn deviate(random: &mut Xoshiro256PlusPlus) -> f64 {
    normal([random.next_u64(), random.next_u64()])
}

#[cfg(test)]
mod tests {
    // The self-test is deterministic, reports drift, and detects a broken rule.
    use super::*;

    /// The documented numbers in optimised builds; fewer otherwise, so that the tests stay fast.
    const COMPARISONS: u32 = if cfg!(debug_assertions) { 12 } else { 400 };
    const ROWS: u32 = if cfg!(debug_assertions) { 20 } else { 200 };

    fn rule() -> SelfTestRule {
        SelfTestRule {
            level: 0.05,
            relevant_slowdown: 0.03,
            comparisons: COMPARISONS,
            rows: ROWS,
            replicates: 7,
            sigma: 0.01,
            seed: 1,
        }
    }

    #[test]
    fn the_rules_meet_their_error_rates_and_the_same_seed_gives_the_same_answer() {
        let once = selftest(&rule(), None).unwrap();
        assert!(once.holds, "{:#?}", once.trials);
        assert_eq!(once, selftest(&rule(), None).unwrap());
        for trial in once.trials.iter().filter(|trial| trial.asked.is_power() && trial.noise == Noise::Normal) {
            assert!(trial.counted.count * 10 >= trial.counted.of * 9, "{trial:?}");
        }
        assert!(once.summary().contains("at most 5.0 % false alarms"), "{}", once.summary());
    }

    #[test]
    fn drift_from_run_to_run_is_reported_without_a_guarantee() {
        let rule = SelfTestRule { comparisons: 10, rows: 10, sigma: 0.02, ..rule() };
        let tried = trial(TrialKind::CompareFalseAlarm, Noise::DriftingOn, &rule).unwrap();
        assert_eq!((tried.promised, tried.decision), (None, None));
        assert!(tried.counted.count >= 9, "a machine that becomes 6 % slower is slower: {tried:?}");
    }

    #[test]
    fn a_rule_that_alarms_too_often_would_be_found() {
        assert_eq!(decide(TrialKind::CompareFalseAlarm, &counted(40, 400), 0.05), Decision::Fail);
        assert_eq!(decide(TrialKind::CompareFalseAlarm, &counted(20, 400), 0.05), Decision::Inconclusive);
        assert_eq!(decide(TrialKind::CompareFalseAlarm, &counted(4, 400), 0.05), Decision::Pass);
        assert_eq!(decide(TrialKind::ComparePower, &counted(300, 400), 0.9), Decision::Fail);
        assert_eq!(decide(TrialKind::ComparePower, &counted(396, 400), 0.9), Decision::Pass);
    }

    #[test]
    fn runs_of_the_user_are_split_by_time_and_unusable_ones_are_listed() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
        let mut run = |id: &str, started: &str, replicates: usize| {
            let rows: Vec<Vec<f64>> = (0..5).map(|_| Noise::Normal.draw(0.005, replicates, 0, &mut random)).collect();
            let mut loaded = super::loaded(id, &rows).unwrap();
            loaded.record.header.started_at = started.to_owned();
            loaded
        };
        let runs = vec![
            run("c", "2026-11-03", 6),
            run("a", "2026-11-01", 6),
            run("b", "2026-11-02", 6),
            run("d", "2026-11-04", 2),
        ];
        let own = OwnRecords { records: runs, left_out: vec!["x: broken".to_owned()] };
        let found = selftest(&SelfTestRule { comparisons: 1, rows: 2, ..rule() }, Some(own));
        let history = found.unwrap().history.unwrap();
        assert_eq!((history.records, history.run_against_run.of, history.half_against_half.of), (4, 3, 3));
        assert_eq!(history.left_out[0], "x: broken");
        assert!(history.left_out[1].contains("halves of d.jsonl: with 1 and 1 replicates"), "{:?}", history.left_out);
    }
}

#[cfg(test)]
mod synthetic_tests {

    use super::*;
    use rand::SeedableRng;

    #[test]
    fn every_noise_kind_has_the_same_scale_around_one() {
        for noise in [Noise::Normal, Noise::LeftSkewed, Noise::Bimodal, Noise::DriftingWithinRuns] {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
            let drawn: Vec<f64> = (0..2000).flat_map(|_| noise.draw(0.01, 7, 0, &mut random)).collect();
            let mean = drawn.iter().sum::<f64>() / drawn.len() as f64;
            let deviation = (drawn.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / drawn.len() as f64).sqrt();
            // Half of the times are on either side; a bimodal distribution has none in between.
            let above = drawn.iter().filter(|time| **time > 1.0).count() as f64 / drawn.len() as f64;
            assert!((0.48..0.52).contains(&above), "{noise:?}: {above}");
            assert!((0.008..0.012).contains(&deviation), "{noise:?}: {deviation}");
        }
    }
}
