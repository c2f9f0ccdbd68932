//! `commgauge selftest`: tests the error rates of the rules of gate and compare, on synthetic noise and on recorded
//! runs.

use super::AnswerArguments;
use crate::report::document::{Column, optional, percent, table as plain};
use crate::report::{visible, wrap};
use commgauge_analysis::verdict::{
    Counted, Decision, LoadedRecord, OwnRecords, SelfTest, SelfTestRule, TrialKind, selftest,
};
use commgauge_base::error::{Error, Result};
use commgauge_base::visible::ShownPath;
use std::path::{Path, PathBuf};

/// Measure the false-alarm rate and the power of the rules of gate and compare
///
/// Made-up runs with normal, left-skewed, bimodal and drifting noise are judged by the very code that judges records. The same
/// flags give the same answer everywhere. 0 every promise held, as far as could be seen; 1 a promise is broken beyond chance.
#[derive(Clone, Debug, clap::Args)]
pub struct SelfTestCommand {
    /// Folder with records of a machine that did not change: each is compared with the next like it
    #[arg(long, value_name = "DIR")]
    pub records: Option<PathBuf>,

    /// Comparisons of each kind
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub comparisons: u32,

    /// Rows in each comparison
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub rows: u32,

    /// Replicates of each side
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(2..=20))]
    pub replicates: u32,

    /// Noise from run to run, in per cent of the time
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0, value_parser = noise)]
    pub noise: f64,

    /// Confidence of the rules, in per cent
    #[arg(long, value_name = "PERCENT", default_value_t = 95.0, value_parser = super::gate::confidence)]
    pub confidence: f64,

    /// Of the noise
    #[arg(long, default_value_t = 20240613)]
    pub seed: u64,

    /// How the answer is shown.
    #[command(flatten)]
    pub shown: AnswerArguments,
}

impl SelfTestCommand {
    /// Runs the trials, prints the results, and returns the exit code.
    pub fn execute(&self) -> Result<i32> {
        let rule = SelfTestRule {
            level: 1.0 - self.confidence / 100.0,
            relevant_slowdown: 0.03,
            comparisons: self.comparisons,
            rows: self.rows,
            replicates: self.replicates,
            sigma: self.noise / 100.0,
            seed: self.seed,
        };
        let own = self.records.as_deref().map(read_folder).transpose()?;
        let tried = selftest(&rule, own)?;
        self.shown.show(&tried, |width| table(&tried, width))?;
        Ok(i32::from(!tried.holds))
    }
}

/// The records of a folder, and the read errors as sentences.
fn read_folder(folder: &Path) -> Result<OwnRecords> {
    let refused = |cause: std::io::Error| Error::usage(format!("--records: cannot read {}: {cause}", folder.shown()));
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(refused)? {
        let path = entry.map_err(refused)?.path();
        if path.extension().is_some_and(|extension| extension == "jsonl") {
            paths.push(path);
        }
    }
    if paths.is_empty() {
        return Err(Error::usage(format!("--records: no records (*.jsonl) in {}", folder.shown())));
    }
    paths.sort();
    let mut own = OwnRecords::default();
    for path in paths {
        match LoadedRecord::read(&path) {
            Ok(loaded) => own.records.push(loaded),
            Err(error) => own.left_out.push(error.to_string()),
        }
    }
    Ok(own)
}

fn table(tried: &SelfTest, width: u16) -> String {
    let columns = [
        Column::left("what", 0),
        Column::left("noise", 0),
        Column::right("counted", 0),
        Column::right("share", 2),
        Column::right("95 % interval", 1),
        Column::right("promised", 0),
        Column::left("held", 0),
    ];
    let rows: Vec<Vec<String>> = (tried.trials.iter())
        .map(|trial| {
            let side = if trial.asked.is_power() { "at least" } else { "at most" };
            let promised =
                trial.promised.map_or("nothing".to_owned(), |promised| format!("{side} {}", percent(promised, 1)));
            let [count, share, interval] = cells(&trial.counted);
            let decision_text = trial.decision.map_or("-", decision_text).to_owned();
            vec![
                what(trial.asked).to_owned(),
                trial.noise.name().to_owned(),
                count,
                share,
                interval,
                promised,
                decision_text,
            ]
        })
        .collect();
    let mut out = plain(&columns, &rows, width);
    let mut say = |text: String| out += &(wrap(&visible(&text), usize::from(width), 4) + "\n");
    if let Some(history) = &tried.history {
        say(format!("own runs: {} records", history.records));
        for (name, counted) in [
            ("runs against the next like them", &history.run_against_run),
            ("halves of runs", &history.half_against_half),
        ] {
            let [count, share, interval] = cells(counted);
            say(format!("{name}: false alarms in {count} comparisons, {share} ({interval})"));
        }
        for left_out in &history.left_out {
            say(format!("left out: {left_out}"));
        }
    }
    say(format!(
        "comparisons of {} rows, {} replicates of each side, noise {} from run to run, seed {}; gates of one row",
        tried.rows,
        tried.replicates,
        percent(tried.sigma, 1),
        tried.seed
    ));
    say("gates are tried on a machine whose true median lies at the limit, and 5 % beyond it; nothing is promised where a \
         machine drifts on from run to run, which no rule can separate from a change".to_owned());
    say(tried.summary());
    say(match tried.holds {
        true => "no promise is broken".to_owned(),
        false => "a promise is BROKEN beyond chance".to_owned(),
    });
    out
}

fn what(asked: TrialKind) -> &'static str {
    match asked {
        TrialKind::CompareFalseAlarm => "compare: false alarm",
        TrialKind::ComparePower => "compare: 5 % found",
        TrialKind::GateFalsePass => "gate: false pass",
        TrialKind::GateFalseFail => "gate: false fail",
        TrialKind::GatePower => "gate: 5 % found",
    }
}

/// A share that is on the promised side by a statistically insignificant margin is called likely, not shown.
fn decision_text(decision: Decision) -> &'static str {
    match decision {
        Decision::Pass => "shown",
        Decision::Fail | Decision::Error => "BROKEN",
        Decision::Inconclusive => "not refuted",
    }
}

fn cells(counted: &Counted) -> [String; 3] {
    let share = match counted.of {
        0 => "-".to_owned(),
        of => percent(counted.count as f64 / of as f64, 1),
    };
    let interval = counted.lower_bound.zip(counted.upper_bound);
    let interval = optional(interval.map(|(low, high)| format!("{} .. {}", percent(low, 1), percent(high, 1))));
    [format!("{} of {}", counted.count, counted.of), share, interval]
}

fn noise(text: &str) -> std::result::Result<f64, String> {
    match text.parse::<f64>() {
        Ok(percent) if (0.01..=20.0).contains(&percent) => Ok(percent),
        _ => Err(format!("found `{text}`; accepted: a number from 0.01 to 20")),
    }
}
