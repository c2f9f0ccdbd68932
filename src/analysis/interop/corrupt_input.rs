//! Torn and hostile files for the tests of the readers of text.

use super::imported::{Imported, Origin, record_lines};
use commgauge_model::record::line::ForeignTool;
use proptest::prelude::*;

/// Samples, truncated, with repeated lines, and with inserted bytes and words that often break readers of columns.
pub(super) fn corrupted(samples: &[&'static str]) -> impl Strategy<Value = String> + use<> {
    let words = prop::sample::select(vec![
        "",
        " ",
        "\n",
        "#",
        "0",
        "-1",
        "4294967296",
        "18446744073709551615",
        "99999999999999999999",
        "1e308",
        "NaN",
        "inf",
        "N/A",
        "\u{fffd}",
        "é",
        ":",
        "[1,0]<stdout>:",
        "{",
        "\"",
        "Rank",
        "of",
        "# ( 0 groups of 0 processes",
        "  ",
    ]);
    let edits = prop::collection::vec((any::<prop::sample::Index>(), 0usize..80, words), 0..8);
    let edited = (prop::sample::select(samples.to_vec()), edits).prop_map(|(sample, edits)| {
        let mut text: Vec<char> = sample.chars().collect();
        for (at, length, word) in edits {
            let at = if text.is_empty() { 0 } else { at.index(text.len()) };
            let end = (at + length).min(text.len());
            text.splice(at..end, word.chars());
        }
        text.into_iter().collect::<String>()
    });
    let cut = (prop::sample::select(samples.to_vec()), any::<prop::sample::Index>())
        .prop_map(|(sample, at)| sample.chars().take(at.index(sample.len())).collect::<String>());
    prop_oneof![4 => edited, 2 => cut, 1 => any::<String>()]
}

/// Every row that was read is valid, every bad line has a number, and all rows together form a record.
pub(super) fn assert_consistent(imported: &Imported) {
    for row in &imported.rows {
        assert!(row.ranks > 0 && row.latency.0 > 0.0 && row.latency.0.is_finite(), "{row:?}");
    }
    assert!(imported.bad_lines.iter().all(|line| line.number > 0 && !line.problem.is_empty()));
    assert!(record_lines("run", &Origin::of(ForeignTool::Csv, &[]), &imported.rows).len() >= 3);
}
