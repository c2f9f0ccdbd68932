//! Do the rules meet their stated error rates? Measured with the code of gate and compare, on synthetic and on the user's runs.
//!
//! Seeds are fixed: the same request gives the same result on every machine. Rendering is in `cli` and `report`.

mod counted;
mod history;
mod noise;
mod synthetic;

pub use counted::Counted;
pub use history::History;
pub use noise::Noise;

use super::loaded_record::LoadedRecord;
use super::{CompareRule, Decision, GateRule, compare, gate};
use commgauge_base::error::{Error, Result};
use commgauge_base::visible::ShownPath;
use counted::{CONFIDENCE, counted};
use noise::Noise as Kind;
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use rayon::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The value of `format` in every selftest.
pub const SELFTEST_FORMAT: &str = "commgauge-selftest";
/// The version of the format.
pub const SELFTEST_VERSION: u32 = 1;

/// The slowdown that must be found, and the share of comparisons in which it must be found.
const SLOWDOWN: f64 = 0.05;
const FOUND: f64 = 0.9;

/// Parameters of a self-test.
#[derive(Clone, Debug)]
pub struct SelfTestRule {
    /// Chance of any false alarm of a comparison, and of a wrong answer on each gated row.
    pub level: f64,
    /// The smallest slow-down that matters.
    pub relevant_slowdown: f64,
    /// Comparisons of each kind.
    pub comparisons: u32,
    /// Rows in each.
    pub rows: u32,
    /// Replicates of each side.
    pub replicates: u32,
    /// Standard deviation of the noise, as a share.
    pub sigma: f64,
    /// Seed of all noise.
    pub seed: u64,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SelfTest {
    /// Always `commgauge-selftest`.
    pub format: String,
    /// Version of the format.
    pub version: u32,
    /// Chance of any false alarm that is promised at most.
    pub level: f64,
    /// The smallest slow-down that matters, as a share.
    pub relevant_slowdown: f64,
    /// Rows in each comparison.
    pub rows: u32,
    /// Replicates of each side.
    pub replicates: u32,
    /// Standard deviation of the noise from run to run, as a share.
    pub sigma: f64,
    /// Of all noise.
    pub seed: u64,
    /// Confidence of the intervals.
    pub confidence: f64,
    /// What was tried, one by one.
    pub trials: Vec<Trial>,
    /// What came of the user's own runs, where they were given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history: Option<History>,
    /// False where a promise is broken beyond chance.
    pub holds: bool,
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Asked")]
pub enum TrialKind {
    /// `compare` says that a row became slower, and none did.
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Trial {
    /// What is counted.
    pub asked: TrialKind,
    /// Under which noise.
    pub noise: Noise,
    /// What came of it.
    pub counted: Counted,
    /// What is promised: at most this share of wrong answers, at least this share of findings. Absent where nothing is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promised: Option<f64>,
    /// Pass where the interval lies on the promised side, fail where it lies on the other, else inconclusive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<Decision>,
}

impl TrialKind {
    /// Every kind, in the order in which they are run.
    pub const ALL: [TrialKind; 5] = [
        TrialKind::CompareFalseAlarm,
        TrialKind::ComparePower,
        TrialKind::GateFalsePass,
        TrialKind::GateFalseFail,
        TrialKind::GatePower,
    ];

    /// True where more is better.
    pub fn is_power(self) -> bool {
        matches!(self, TrialKind::ComparePower | TrialKind::GatePower)
    }
}

impl SelfTest {
    /// Reads what `commgauge selftest --format json` wrote.
    ///
    /// # Errors
    /// A usage error that names the file and what is wrong with it.
    pub fn read(path: &Path) -> Result<SelfTest> {
        let wrong = |problem: String| Error::usage(format!("{}: {problem}", path.shown()));
        let text = commgauge_base::input_file::read_to_string(path)
            .map_err(|cause| wrong(format!("cannot read the self-test: {cause}")))?;
        let tried: SelfTest = serde_json::from_str(&text)
            .map_err(|cause| wrong(format!("is not what `commgauge selftest --format json` writes: {cause}")))?;
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
            "selftest: at most {} false alarms over {} rows are promised, {} were measured in the worst case; a slow-down of 5 % \
             was found in at least {} with {} replicates at {} noise",
            percent(self.level),
            self.rows,
            percent(alarms),
            percent(found),
            self.replicates,
            percent(self.sigma)
        )
    }
}

/// The user's own records.
#[derive(Clone, Debug, Default)]
pub struct OwnRecords {
    /// Those that could be read, in any order.
    pub records: Vec<LoadedRecord>,
    /// Why others could not, as sentences.
    pub left_out: Vec<String>,
}

/// Runs the self-test; with records of the user, on those too.
///
/// # Errors
/// Where a synthetic run is refused, which would be a defect.
pub fn selftest(rule: &SelfTestRule, own: Option<OwnRecords>) -> Result<SelfTest> {
    let mut trials = Vec::new();
    for asked in TrialKind::ALL {
        for noise in Kind::ALL {
            let of_gate = !matches!(asked, TrialKind::CompareFalseAlarm | TrialKind::ComparePower);
            // One run cannot drift on into another.
            if of_gate && noise == Kind::DriftingOn {
                continue;
            }
            trials.push(trial(asked, noise, rule)?);
        }
    }
    let history = own.map(|own| history::history(own.records, own.left_out, &compare_rule(rule)));
    let of_user_runs = history.iter().flat_map(|history| [&history.run_against_run, &history.half_against_half]);
    let broken_by_user_runs =
        of_user_runs.into_iter().any(|counted| counted.lower_bound.is_some_and(|low| low > rule.level));
    let holds = !broken_by_user_runs && !trials.iter().any(|trial| trial.decision == Some(Decision::Fail));
    Ok(SelfTest {
        format: SELFTEST_FORMAT.to_owned(),
        version: SELFTEST_VERSION,
        level: rule.level,
        relevant_slowdown: rule.relevant_slowdown,
        rows: rule.rows,
        replicates: rule.replicates,
        sigma: rule.sigma,
        seed: rule.seed,
        confidence: CONFIDENCE,
        trials,
        history,
        holds,
    })
}

fn compare_rule(rule: &SelfTestRule) -> CompareRule {
    CompareRule { false_alarm_level: rule.level, relevant_slowdown: rule.relevant_slowdown, allowed: Vec::new() }
}

/// Comparisons run in parallel; each has its own seed, so that their order does not matter.
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

/// One comparison, or one gated row: true where the counted event occurred.
fn once(asked: TrialKind, noise: Noise, rule: &SelfTestRule, index: u64) -> Result<bool> {
    let stream = TrialKind::ALL.iter().position(|other| *other == asked).unwrap_or(0) as u64 * 8
        + Kind::ALL.iter().position(|other| *other == noise).unwrap_or(0) as u64;
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
            let (base, new) = (synthetic::loaded("base", &base)?, synthetic::loaded("new", &new)?);
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
            let verdict = gate(&[synthetic::loaded("run", &rows)?], Some(&synthetic::machine(share)?), &rule)?;
            let wanted = if asked == TrialKind::GateFalsePass { Decision::Pass } else { Decision::Fail };
            Ok(verdict.rows.first().is_some_and(|row| row.decision == Some(wanted)))
        }
    }
}

#[cfg(test)]
mod tests;
