//! Whether a short series is still falling: the test behind the warm-up.

/// The fewest values with which the normal approximation of the test holds well enough.
const MIN_VALUES: usize = 8;

/// Required significance of a fall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// 5 % of the series without a trend count as falling.
    Suspicion,
    /// 0.5 % do.
    Strong,
}

/// True where the values, in the order in which they came, fall significantly: the one-sided test of Mann and Kendall,
/// which counts the pairs whose later value is smaller, and is robust against single outliers.
/// `None` below eight values.
pub fn falls(values: &[f64], evidence: Evidence) -> Option<bool> {
    if values.len() < MIN_VALUES {
        return None;
    }
    let n = values.len() as f64;
    let mut rising_minus_falling = 0.0;
    for (index, earlier) in values.iter().enumerate() {
        for later in &values[index + 1..] {
            rising_minus_falling += match later.total_cmp(earlier) {
                std::cmp::Ordering::Less => -1.0,
                std::cmp::Ordering::Equal => 0.0,
                std::cmp::Ordering::Greater => 1.0,
            };
        }
    }
    // Variance without ties; ties make it smaller and the test more careful. The 1 is the correction for continuity.
    let deviation = (n * (n - 1.0) * (2.0 * n + 5.0) / 18.0).sqrt();
    let quantile = match evidence {
        Evidence::Suspicion => -1.645,
        Evidence::Strong => -2.576,
    };
    Some((rising_minus_falling + 1.0) / deviation < quantile)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_few_values_give_no_trend() {
        assert_eq!(falls(&[9.0, 8.0, 7.0, 6.0, 5.0, 4.0, 3.0], Evidence::Suspicion), None);
    }

    #[test]
    fn only_a_fall_counts_as_a_trend() {
        for (values, expected) in [
            ([9.0, 8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0], true),
            ([90.0, 20.0, 12.0, 11.0, 9.0, 8.0, 7.0, 7.5, 6.0], true),
            ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0], false),
            ([5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0], false),
            ([90.0, 5.0, 6.0, 5.0, 6.0, 5.0, 6.0, 5.0, 6.0], false),
        ] {
            assert_eq!(falls(&values, Evidence::Suspicion), Some(expected), "{values:?}");
        }
    }
}
