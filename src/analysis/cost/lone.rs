//! Calls that were measured at too few sizes for a curve: the time of each, and an interval from its replicates.

use super::curve::combined;
use super::{LoneCall, Measured};
use commgauge_base::units::{Bytes, Seconds};

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

/// The factor to either side that holds 95 of 100 further replicates, times being lognormal: t sqrt(1 + 1/n) standard
/// deviations. None for fewer than two.
fn spread(values: &[f64]) -> Option<f64> {
    let count = values.len() as f64;
    let freedom = values.len().checked_sub(1).filter(|freedom| *freedom > 0)?;
    let logarithms: Vec<f64> = values.iter().map(|value| value.ln()).collect();
    let mean = logarithms.iter().sum::<f64>() / count;
    let squares: f64 = logarithms.iter().map(|value| (value - mean).powi(2)).sum();
    let student = STUDENT.get(freedom - 1).copied().unwrap_or(1.96);
    Some((student * (squares / freedom as f64 * (1.0 + 1.0 / count)).sqrt()).exp())
}

#[cfg(test)]
mod tests {
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
