//! Ranks as text: `0-3, 7`, short also where there are thousands.

/// Ranges that are written out; of more, the number of ranks is told.
const SHOWN_RANGES: usize = 6;

/// Ascending ranks as ranges; long lists end with their number.
pub(super) fn ranges(ranks: &[u32]) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for rank in ranks {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == *rank => *last = *rank,
            _ => runs.push((*rank, *rank)),
        }
    }
    let text = |(first, last): &(u32, u32)| match last - first {
        0 => first.to_string(),
        1 => format!("{first}, {last}"),
        _ => format!("{first}-{last}"),
    };
    let shown: Vec<String> = runs.iter().take(SHOWN_RANGES).map(text).collect();
    let more = if runs.len() > SHOWN_RANGES { format!(", ... ({} in all)", ranks.len()) } else { String::new() };
    shown.join(", ") + &more
}

/// `rank 3` or `ranks 0-3, 7`.
pub(super) fn named(ranks: &[u32]) -> String {
    let word = if ranks.len() == 1 { "rank" } else { "ranks" };
    format!("{word} {}", ranges(ranks))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_told_as_ranges_and_counted_where_there_are_many() {
        for (ranks, expected) in [
            (vec![3], "rank 3"),
            (vec![0, 1], "ranks 0, 1"),
            (vec![0, 1, 2, 7, 9, 10], "ranks 0-2, 7, 9, 10"),
            ((0..16_384).step_by(2).collect(), "ranks 0, 2, 4, 6, 8, 10, ... (8192 in all)"),
        ] {
            assert_eq!(named(&ranks), expected);
        }
    }
}
