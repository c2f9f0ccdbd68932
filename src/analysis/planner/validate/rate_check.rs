//! Times that cannot be: faster than the GPU's peak, or in another unit than those of the other rows.

use super::pricing::Replay;
use commgauge_base::error::Result;
use commgauge_base::stats::{median, sorted};
use commgauge_base::units::three_digits;

/// A row whose share of the peak is off the median of all by more than this is in another unit.
const ANOTHER_UNIT: f64 = 50.0;
/// No step that trains computes at less than this share of the peak.
const FEWEST: f64 = 1e-4;

/// Refuses such rows.
///
/// # Errors
/// The first of them, with its row and column.
pub(super) fn check(replays: &[Replay]) -> Result<()> {
    let share = |replay: &Replay| replay.seconds_at_peak() / replay.run.measured_seconds;
    let usual = median(&sorted(replays.iter().map(share))).unwrap_or(1.0);
    for replay in replays {
        let (run, share) = (replay.run, share(replay));
        let tera = |share: f64| three_digits(share * replay.peak_flops_per_second() / 1e12);
        let (reached, peak) = (tera(share), tera(1.0));
        if share > 1.0 {
            return Err(run.wrong(
                run.time_column,
                &format!(
                    "{} s would be {reached} TFLOP/s on each GPU, more than its peak of {peak}; is it in another unit, or of fewer \
                     samples?",
                    run.measured_seconds
                ),
            ));
        }
        if share < FEWEST || usual / share > ANOTHER_UNIT {
            return Err(run.wrong(
                run.time_column,
                &format!(
                    "{} s would be {reached} TFLOP/s on each GPU, of a peak of {peak}, where the usual run of the file reaches {}; \
                     is it in another unit?",
                    run.measured_seconds,
                    tera(usual)
                ),
            ));
        }
    }
    Ok(())
}
