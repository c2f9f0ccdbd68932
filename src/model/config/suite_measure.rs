//! Reads a suite's `[measure]` table: sampling settings and cadences.

use super::RunSettings;
use super::document::Table;
use super::suite_cadences::{BOTH_CADENCES, read_cadences};
use commgauge_base::error::Result;
use commgauge_base::sample::Cadence;

/// Most independent repetitions of a case; more would be a suite of its own.
pub const MOST_REPLICATES: u32 = 1000;

/// Reads the table; what it leaves out has the default of [`RunSettings`].
pub(super) fn read_measure(table: Option<Table>) -> Result<(RunSettings, Vec<Cadence>)> {
    let mut settings = RunSettings::default();
    let mut cadences = BOTH_CADENCES.to_vec();
    let Some(mut table) = table else { return Ok((settings, cadences)) };
    if let Some(item) = table.take("precision") {
        settings.precision = item.fraction(0.0, 1.0)?;
    }
    let (minimum, maximum) = (table.take("minimum_samples"), table.take("maximum_samples"));
    if let Some(item) = &minimum {
        settings.minimum_samples = item.count()?;
    }
    if let Some(item) = &maximum {
        settings.maximum_samples = item.count()?;
    }
    if let Some(item) = maximum.or(minimum)
        && settings.minimum_samples > settings.maximum_samples
    {
        let (least, most) = (settings.minimum_samples, settings.maximum_samples);
        return Err(item.wrong(format!("at least {least} samples and at most {most} cannot both hold")));
    }
    settings.fixed_iterations = table.take("iterations").map(|item| item.count()).transpose()?;
    settings.fixed_warm_up =
        table.take("warm_up_iterations").map(|item| item.count_within(0..=u32::MAX)).transpose()?;
    if let Some(item) = table.take("case_budget") {
        settings.case_budget = item.seconds()?;
        if settings.case_budget.0 <= 0.0 || settings.case_budget.0 > 86_400.0 {
            return Err(item.wrong(format!("found {}; accepted: more than 0 s, up to a day", settings.case_budget)));
        }
    }
    if let Some(item) = table.take("replicates") {
        settings.replicates = item.count_within(1..=MOST_REPLICATES)?;
    }
    if let Some(item) = table.take("warm_buffers") {
        settings.warm_buffers = item.truth()?;
    }
    if let Some(item) = table.take("start") {
        settings.start = item.parsed(str::parse)?;
    }
    if let Some(item) = table.take("timing") {
        settings.timing = item.parsed(str::parse)?;
    }
    if let Some(item) = table.take("verify") {
        settings.verify = item.truth()?;
    }
    if let Some(item) = table.take("seed") {
        settings.seed = item.whole(0..=u64::MAX)?;
    }
    if let Some(item) = table.take("cadences") {
        cadences = read_cadences(item)?;
    }
    table.finish()?;
    Ok((settings, cadences))
}
