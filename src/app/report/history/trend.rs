//! A row over its runs as a line of letters, for tables of any medium.

/// From low to high; an odd number, so that noise around the middle stays one letter.
const LEVELS: [char; 7] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇'];
/// Letters at most; more runs share one, which shows their median.
const MAX_LETTERS: usize = 24;
/// A row that scatters by less than this share around its middle is drawn flat in the middle.
const LEAST_SPAN: f64 = 0.1;

/// The values from low to high, a gap where a run has none.
pub(super) fn trend(values: &[Option<f64>]) -> String {
    let shares = values.chunks(values.len().div_ceil(MAX_LETTERS).max(1)).map(middle).collect::<Vec<_>>();
    let known = || shares.iter().flatten().copied();
    let (Some(low), Some(high)) = (known().reduce(f64::min), known().reduce(f64::max)) else { return String::new() };
    let center = (low + high) / 2.0;
    let half = ((high - low) / 2.0).max(LEAST_SPAN / 2.0 * center);
    let letter = |value: f64| {
        let place = if half > 0.0 { (value - center) / half * 0.5 + 0.5 } else { 0.5 };
        LEVELS[((place * LEVELS.len() as f64) as usize).min(LEVELS.len() - 1)]
    };
    shares.into_iter().map(|value| value.map_or(' ', letter)).collect()
}

fn middle(values: &[Option<f64>]) -> Option<f64> {
    let mut known: Vec<f64> = values.iter().flatten().copied().collect();
    known.sort_by(f64::total_cmp);
    known.get(known.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_flat_a_step_is_a_step_and_a_run_without_a_value_is_a_gap() {
        let of = |values: &[f64]| trend(&values.iter().copied().map(Some).collect::<Vec<_>>());
        assert_eq!(of(&[1.0, 1.002, 0.998, 1.001]), "▄▄▄▄");
        assert_eq!(of(&[1.0, 1.0, 1.5, 1.5]), "▁▁▇▇");
        assert_eq!(trend(&[Some(1.0), None, Some(2.0)]), "▁ ▇");
        assert_eq!((of(&[]), trend(&[None, None])), (String::new(), String::new()));
        assert_eq!(of(&vec![3.0; 1000]).chars().count(), 24);
    }
}
