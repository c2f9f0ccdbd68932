//! How matrix products and copies came out: the cell of one, and the counts of all.

use super::document::Tone;
use super::status::Status;
use commgauge_model::record::line::{Header, Outcome};

/// The word for a status: what each rank does by itself is right, where a call is verified.
fn word(status: &Status) -> &'static str {
    match status {
        Status::Verified => "right",
        other => other.label(),
    }
}

/// The cell that says how one came out, `part` being what its data consist of.
pub(super) fn check(outcome: &Outcome, part: &str, header: &Header) -> (Tone, String) {
    let status = Status::of(std::iter::once(outcome), header);
    match (&status, outcome) {
        (_, Outcome::Corrupt { rank, element, .. }) => (Tone::Bad, format!("WRONG on rank {rank}, {part} {element}")),
        (Status::Wrong { mismatch, .. }, _) => (Tone::Bad, format!("WRONG: {mismatch}")),
        (Status::Skipped(_), _) => (Tone::Unsure, status.to_string()),
        (Status::Failed(_), _) => (Tone::Bad, status.to_string()),
        _ => (Tone::Plain, word(&status).to_owned()),
    }
}

/// Number of them by outcome, such as `12 products: 12 right`, by the words for one and for several; `None` where there are none.
pub(super) fn summary<'a>(
    [one, several]: [&str; 2],
    outcomes: impl Iterator<Item = &'a Outcome>,
    header: &Header,
) -> Option<String> {
    let statuses: Vec<Status> = outcomes.map(|outcome| Status::of(std::iter::once(outcome), header)).collect();
    let parts = Status::LABELS.into_iter().filter_map(|label| {
        let mut of_label = statuses.iter().filter(|status| status.label() == label).peekable();
        let word = word(of_label.peek()?);
        Some(format!("{} {word}", of_label.count()))
    });
    let word = if statuses.len() == 1 { one } else { several };
    let parts: Vec<String> = parts.collect();
    (!statuses.is_empty()).then(|| format!("{} {word}: {}", statuses.len(), parts.join(", ")))
}
