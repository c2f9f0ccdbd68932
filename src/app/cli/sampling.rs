//! The sampling flags that the launched programs share if no suite file defines the sampling.

use clap::Args;
use commgauge_base::sample::{ClockMethod, Timing};
use commgauge_base::units::{Seconds, parse_seconds};
use commgauge_model::config::RunSettings;

/// How samples are taken.
#[derive(Args, Clone, Debug, Default, PartialEq)]
pub struct SamplingArguments {
    /// Take exactly this many calls for each case [default: stop when the requested precision or the budget is reached]
    #[arg(short = 'n', long = "iters", visible_alias = "iterations", value_name = "COUNT", help_heading = "Sampling", value_parser = clap::value_parser!(u32).range(1..))]
    pub iterations: Option<u32>,

    /// Run exactly this many calls before timing [default: until the first calls stop trending]
    #[arg(
        short = 'w',
        long = "warmup_iters",
        visible_alias = "warm-up",
        value_name = "COUNT",
        help_heading = "Sampling"
    )]
    pub warm_up_iterations: Option<u32>,

    /// Check the data before and after timing: 1 yes, 0 no
    #[arg(short = 'c', long = "check", value_name = "0|1", default_value_t = 1, help_heading = "Sampling", value_parser = clap::value_parser!(u8).range(0..=1))]
    pub check: u8,

    /// Independent repetitions, each with fresh communicators and a new order of the cases [default: 3; with --within 2]
    #[arg(long, value_name = "COUNT", help_heading = "Sampling", value_parser = clap::value_parser!(u32).range(1..=commgauge_model::config::MOST_REPLICATES as i64))]
    pub replicates: Option<u32>,

    /// Half width of the median's 95 % interval at which sampling stops: 2% or 0.02 [default: 2%]
    #[arg(long, value_name = "SHARE", help_heading = "Sampling", value_parser = parse_precision)]
    pub precision: Option<f64>,

    /// Longest sampling of a case in each replicate, such as 500ms or 2s [default: 1s; of commgauge-pairs 100ms;
    /// with --within none]
    #[arg(long, value_name = "TIME", help_heading = "Sampling", value_parser = parse_budget)]
    pub budget: Option<Seconds>,

    /// Use one buffer again and again, so that it may stay in the cache
    #[arg(long, help_heading = "Sampling")]
    pub warm_buffers: bool,

    /// How the ranks start an isolated call together: `synchronised`, at an agreed time, or `barrier`, each as it leaves one
    #[arg(long, value_name = "HOW", default_value_t, help_heading = "Sampling")]
    pub start: ClockMethod,

    /// Between which readings back-to-back calls are timed: `marks`, a few calls each, or `whole`, all of them between two readings of the
    /// host's clock, on buffers within those of the largest size, as in nccl-tests
    #[arg(long, value_name = "HOW", default_value_t, help_heading = "Sampling")]
    pub timing: Timing,

    /// Seed of the data and of the order of the cases
    #[arg(long, value_name = "NUMBER", help_heading = "Sampling")]
    pub seed: Option<u64>,
}

impl SamplingArguments {
    /// The settings that result from the flags.
    pub fn settings(&self) -> RunSettings {
        let default = RunSettings::default();
        RunSettings {
            precision: self.precision.unwrap_or(default.precision),
            fixed_iterations: self.iterations,
            fixed_warm_up: self.warm_up_iterations,
            case_budget: self.budget.unwrap_or(default.case_budget),
            replicates: self.replicates.unwrap_or(default.replicates),
            warm_buffers: self.warm_buffers,
            start: self.start,
            timing: self.timing,
            verify: self.check == 1,
            seed: self.seed.unwrap_or(default.seed),
            ..default
        }
    }
}

fn parse_precision(text: &str) -> Result<f64, String> {
    let (number, scale) = text.strip_suffix('%').map_or((text, 1.0), |number| (number, 0.01));
    match number.trim().parse::<f64>().map(|number| number * scale) {
        Ok(share) if share > 0.0 && share <= 1.0 => Ok(share),
        _ => Err(format!("found `{text}`; accepted: a share above 0 and up to 1, such as 0.02 or 2%")),
    }
}

fn parse_budget(text: &str) -> Result<Seconds, String> {
    match parse_seconds(text)? {
        time if time.0 > 0.0 && time.0 <= 86_400.0 => Ok(time),
        time => Err(format!("found {time}; accepted: more than 0 s, up to a day")),
    }
}
