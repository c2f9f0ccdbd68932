//! How matrix products and copies came out: the cell of one, and the counts of all.

use super::document::{Tone, optional};
use commgauge_model::record::line::{Header, Outcome};

/// Label of a correct result.
fn right(header: &Header) -> &'static str {
    if header.backend.synthetic { "synthetic" } else { "right" }
}

/// The cell that says how one came out, `part` being what its data consist of.
pub(super) fn check(trouble: Option<&Outcome>, part: &str, header: &Header) -> (Tone, String) {
    match trouble {
        None => (Tone::Plain, right(header).to_owned()),
        Some(Outcome::Corrupt { rank, element, .. }) => (Tone::Bad, format!("WRONG on rank {rank}, {part} {element}")),
        Some(Outcome::Skipped { reason }) => (Tone::Unsure, format!("skipped: {reason}")),
        Some(Outcome::Failed { reason }) => (Tone::Bad, format!("failed: {reason}")),
        Some(Outcome::Measured { .. }) => (Tone::Plain, optional(None::<String>)),
    }
}

/// Number of them by outcome, such as `12 products: 12 right`, by the words for one and for several; `None` where there are none.
pub(super) fn summary<'a>(
    [one, several]: [&str; 2],
    troubles: impl Iterator<Item = Option<&'a Outcome>>,
    header: &Header,
) -> Option<String> {
    let ends = [right(header), "WRONG", "failed", "skipped"];
    let mut counts = [0; 4];
    for trouble in troubles {
        counts[match trouble {
            None | Some(Outcome::Measured { .. }) => 0,
            Some(Outcome::Corrupt { .. }) => 1,
            Some(Outcome::Failed { .. }) => 2,
            Some(Outcome::Skipped { .. }) => 3,
        }] += 1;
    }
    let parts: Vec<String> =
        ends.iter().zip(counts).filter(|(_, n)| *n > 0).map(|(end, n)| format!("{n} {end}")).collect();
    let count: usize = counts.iter().sum();
    let word = if count == 1 { one } else { several };
    (count > 0).then(|| format!("{count} {word}: {}", parts.join(", ")))
}
