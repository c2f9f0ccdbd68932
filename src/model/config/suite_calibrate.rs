//! Reads a suite's `[calibrate]` table: how sizes are added between those of the sweeps, and until when.

use super::document::Table;
use super::suite_sweep::MOST_SIZES;
use commgauge_base::error::Result;
use commgauge_base::units::Seconds;

/// Upper limit on the time for choosing sizes.
const LONGEST_SECONDS: f64 = 7.0 * 86_400.0;

/// How sizes are added to a sweep: in rounds, each where the curve is least certain so far.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Calibrate {
    /// A curve is left alone once it is expected to be no more wrong than this anywhere, and the size that was measured last was
    /// predicted as well as this.
    pub until_error: f64,
    /// Most sizes of a curve, with those that it starts with.
    pub most_sizes: u32,
    /// No round is begun after so much time.
    pub budget: Seconds,
}

impl Default for Calibrate {
    fn default() -> Self {
        Calibrate { until_error: 0.05, most_sizes: 20, budget: Seconds(600.0) }
    }
}

impl Calibrate {
    /// Reads the table; what it leaves out has the default.
    pub(super) fn read(mut table: Table) -> Result<Calibrate> {
        let mut calibrate = Calibrate::default();
        if let Some(item) = table.take("until_error") {
            calibrate.until_error = item.fraction(0.0, 1.0)?;
        }
        if let Some(item) = table.take("most_sizes") {
            calibrate.most_sizes = item.count_within(3..=MOST_SIZES as u32)?;
        }
        if let Some(item) = table.take("budget") {
            calibrate.budget = item.seconds()?;
            if calibrate.budget.0 <= 0.0 || calibrate.budget.0 > LONGEST_SECONDS {
                return Err(item.wrong(format!("found {}; accepted: more than 0 s, up to a week", calibrate.budget)));
            }
        }
        table.finish()?;
        Ok(calibrate)
    }
}
