//! A share that was counted, and what it may be in truth.

/// The 95 % interval of a share of which `hits` of `trials` were counted; `None` without trials. It holds also where none or all
/// hit. E. B. Wilson, "Probable inference, the law of succession, and statistical inference", Journal of the American
/// Statistical Association 22 (1927): with p = hits / trials, n = trials and z = 1.96 the ends are
/// (p + z^2 / 2n +- z sqrt(p (1 - p) / n + z^2 / 4n^2)) / (1 + z^2 / n).
pub fn share_interval(hits: u64, trials: u64) -> Option<(f64, f64)> {
    const Z: f64 = 1.959_964;
    let (n, p) = (trials as f64, hits as f64 / trials as f64);
    let (middle, half) = (p + Z * Z / (2.0 * n), Z * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt());
    let scale = 1.0 + Z * Z / n;
    let end = |value: f64| (value / scale).clamp(0.0, 1.0);
    (trials > 0 && hits <= trials).then(|| (end(middle - half), end(middle + half)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_those_of_the_formula_and_hold_at_the_ends() {
        assert_eq!((share_interval(0, 0), share_interval(3, 2)), (None, None));
        // R, prop.test(c(15), 148, correct = FALSE): 0.0624 to 0.1605; Newcombe (1998), table I: 0 of 20 and 1 of 29.
        for (hits, trials, low, high) in
            [(15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718), (100, 100, 0.9630, 1.0)]
        {
            let (found_low, found_high) = share_interval(hits, trials).unwrap();
            assert!(
                (found_low - low).abs() < 1e-4 && (found_high - high).abs() < 1e-4,
                "{hits} of {trials}: {found_low} {found_high}"
            );
        }
    }
}
