//! Ranks as text, short even for thousands: complete for programs, `0-3,8`, and abbreviated for readers, `ranks 0-3,
//! 8`.

/// Maximum number of ranges that are shown; beyond it only the number of ranks is.
const SHOWN_RANGES: usize = 6;

/// Ascending ranks, all of them: `0-3,8`.
pub fn ranges(ranks: &[u32]) -> String {
    runs(ranks).map(|run| text(run, "-")).collect::<Vec<_>>().join(",")
}

/// The ranks of a list such as `0-3,8`, as [`ranges`] writes it; those before the first that is none.
pub fn parse(list: &str) -> impl Iterator<Item = u32> {
    let run = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<u32>().ok()?..=last.parse::<u32>().ok()?)
    };
    list.split(',').map_while(run).flatten()
}

/// Ascending ranks for a reader: `0-3, 8`; long lists end with their number.
pub fn shortened(ranks: &[u32]) -> String {
    let mut shown: Vec<String> = runs(ranks).map(|run| text(run, if run.len() == 2 { ", " } else { "-" })).collect();
    if shown.len() > SHOWN_RANGES {
        shown.truncate(SHOWN_RANGES);
        shown.push(format!("... ({} in all)", ranks.len()));
    }
    shown.join(", ")
}

/// `rank 3` or `ranks 0-3, 7`, as [`shortened`].
pub fn named(ranks: &[u32]) -> String {
    let word = if ranks.len() == 1 { "rank" } else { "ranks" };
    format!("{word} {}", shortened(ranks))
}

/// The neighbours among them.
fn runs(ranks: &[u32]) -> impl Iterator<Item = &[u32]> {
    ranks.chunk_by(|a, b| a.checked_add(1) == Some(*b))
}

fn text(run: &[u32], between: &str) -> String {
    match run {
        [] => String::new(),
        [one] => one.to_string(),
        [first, .., last] => format!("{first}{between}{last}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consecutive_ranks_are_written_as_ranges() {
        let all: Vec<u32> = (0..16_384).collect();
        for (ranks, text) in [
            (&[][..], ""),
            (&[3], "3"),
            (&[0, 1, 2, 3, 8], "0-3,8"),
            (&[0, 2, 4], "0,2,4"),
            (&[u32::MAX], "4294967295"),
            (&all, "0-16383"),
        ] {
            assert_eq!(ranges(ranks), text);
            assert!(parse(text).eq(ranks.iter().copied()), "{text}");
        }
    }

    #[test]
    fn readers_see_a_few_ranges_and_the_number_of_ranks() {
        let even: Vec<u32> = (0..16_384).step_by(2).collect();
        for (ranks, text) in [
            (&[3][..], "rank 3"),
            (&[0, 1], "ranks 0, 1"),
            (&[0, 1, 2, 7, 9, 10], "ranks 0-2, 7, 9, 10"),
            (&even, "ranks 0, 2, 4, 6, 8, 10, ... (8192 in all)"),
        ] {
            assert_eq!(named(ranks), text);
        }
    }
}
