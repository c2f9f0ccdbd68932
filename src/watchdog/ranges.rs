//! Many ranks in few words: `0-3,8`.

/// Sorted ranks as ranges.
pub fn ranges(ranks: &[u32]) -> String {
    let parts = ranks.chunk_by(|a, b| a.checked_add(1) == Some(*b)).filter_map(|run| match run {
        [] => None,
        [one] => Some(one.to_string()),
        [first, .., last] => Some(format!("{first}-{last}")),
    });
    parts.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_ranks_are_told_by_their_ends() {
        for (ranks, text) in [
            (&[][..], ""),
            (&[3], "3"),
            (&[0, 1, 2, 3, 8], "0-3,8"),
            (&[0, 2, 4], "0,2,4"),
            (&[u32::MAX], "4294967295"),
        ] {
            assert_eq!(ranges(ranks), text);
        }
        let all: Vec<u32> = (0..16_384).collect();
        assert_eq!(ranges(&all), "0-16383");
    }
}
