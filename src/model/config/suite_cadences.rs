//! Reads the cadences of a suite: streaming, isolated, or both.

use super::document::Item;
use commgauge_base::error::Result;
use commgauge_base::sample::Cadence;

/// Both cadences: the default everywhere.
pub const BOTH_CADENCES: [Cadence; 2] = [Cadence::Streaming, Cadence::Isolated];

/// Reads one cadence or a list of them.
pub(super) fn read_cadences(item: Item) -> Result<Vec<Cadence>> {
    item.items()?.iter().map(|item| item.parsed(parse_cadence)).collect()
}

fn parse_cadence(text: &str) -> std::result::Result<Cadence, String> {
    BOTH_CADENCES
        .into_iter()
        .find(|cadence| cadence.name() == text)
        .ok_or_else(|| format!("found `{text}`; accepted: streaming, isolated"))
}
