//! Other tools' files, converted to records. Facts that a file does not contain stay unknown.
//!
//! One module for each foreign format.

pub mod export;
mod imb;
mod imported;
mod log_text;
mod nccl_tests;
mod osu;
mod peer;

pub use self::read as read_commgauge;
pub use imb::parse_bytes as parse_imb;
pub use imported::{BadLine, Imported, Known, Origin, Row, RunFault, RunFaultKind, RunsFacts, record_lines};
pub use log_text::{
    ImportedFile, bytes_of, collective as collective_named, joined, parse as parse_csv, read as read_csv,
};
pub use nccl_tests::parse as parse_nccl_tests;
pub use osu::parse_bytes as parse_osu;
pub use peer::{IMB, OSU, PeerProgram, PrintedSize};

use commgauge_base::error::{Error, Result};
use commgauge_base::visible::ShownPath;
use commgauge_model::record::{FORMAT, Line, Record, VERSION};
use std::path::Path;

// An older record of commgauge, checked line by line and converted to the current version of the format.
//
// The measurements are unchanged. The header lists lines that were left out, and the end line still has the number of lines that the run
// wrote, so an incomplete record never passes for a complete one.

/// A record ready to be written.
#[derive(Clone, Debug, PartialEq)]
pub struct Renewed {
    /// Its lines, in the current version.
    pub lines: Vec<Line>,
    /// Lines that cannot be read or are inconsistent with the others, including a truncated last line.
    pub bad_lines: Vec<BadLine>,
    /// The version that the file was written in.
    pub version: u32,
    /// True if the run did not complete.
    pub cut_off: bool,
}

/// Reads a record. Unreadable lines are returned with their number.
///
/// # Errors
/// If the file is no record, is newer than this program, or is still being written.
pub fn read(path: &Path) -> Result<Renewed> {
    let whole = Record::read(path);
    if whole.as_ref().is_ok_and(|record| record.file.running) {
        return Err(Error::usage(format!("{}: the run is in progress; import it when it is complete", path.shown())));
    }
    let mut lines = numbered(&log_text::bytes_of(path)?);
    let header = lines.first_mut().and_then(|read| match &mut read.content {
        Ok(Line::Header(header)) if header.format == FORMAT && (1..=VERSION).contains(&header.version) => Some(header),
        _ => None,
    });
    let Some(header) = header else {
        // The error of the reader describes the first line best.
        let no_record = || Error::usage(format!("{}: is not a commgauge record", path.shown()));
        return Err(whole.err().unwrap_or_else(no_record));
    };
    let version = std::mem::replace(&mut header.version, VERSION);
    // The copy gets its own digests, which must not hide the digests of the original.
    if let Ok(record) = &whole {
        header.warnings.extend(record.file.seal.tampering());
        header.notes.extend(record.file.seal.note());
    }
    let (mut good, mut bad_lines) = (Vec::new(), Vec::new());
    for Numbered { number, content } in lines {
        match content {
            Ok(content) => good.push(Numbered { number, content }),
            Err(problem) => bad_lines.push(BadLine { number, problem }),
        }
    }
    let lines = consistent_lines(good, &mut bad_lines);
    bad_lines.sort_by_key(|line| line.number);
    // In a resumed run the end of its first launch comes earlier.
    let cut_off = !matches!(lines.last(), Some(Line::End(_)));
    Ok(Renewed { lines, bad_lines, version, cut_off })
}

/// A line of the file, counted from 1.
struct Numbered<Content> {
    number: u64,
    content: Content,
}

/// Every line that is not empty, or why it cannot be parsed.
fn numbered(text: &[u8]) -> Vec<Numbered<std::result::Result<Line, String>>> {
    let truncated = text.last().is_some_and(|byte| *byte != b'\n');
    let all: Vec<&[u8]> = text.split(|byte| *byte == b'\n').collect();
    let last = all.len();
    let numbers = (1u64..).zip(all).filter(|(_, line)| !line.is_empty());
    let read = |(number, line): (u64, &[u8])| {
        let problem = |cause: serde_json::Error| match truncated && number as usize == last {
            true => "torn: the run ended while it wrote this line".to_owned(),
            false => format!("broken: {cause}"),
        };
        let mut content = serde_json::from_slice(line).map_err(problem);
        if let Ok(Line::Header(header)) = &mut content {
            header.identify(line);
        }
        Numbered { number, content }
    };
    numbers.map(read).collect()
}

/// The lines that form a consistent record; the others join the bad ones, each with the reason.
fn consistent_lines(mut lines: Vec<Numbered<Line>>, bad_lines: &mut Vec<BadLine>) -> Vec<Line> {
    // Each round removes the first line that is inconsistent with those before it.
    while let Err(error) = Record::from_lines(lines.iter().map(|numbered| numbered.content.clone())) {
        let text = error.to_string();
        let located = text.strip_prefix("line ").and_then(|rest| rest.split_once(": "));
        let index = located
            .and_then(|(index, _)| index.parse::<usize>().ok())
            .filter(|index| (2..=lines.len()).contains(index));
        let Some(index) = index else { break };
        let number = lines.remove(index - 1).number;
        bad_lines.push(BadLine { number, problem: located.map_or(text.clone(), |(_, problem)| problem.to_owned()) });
    }
    lines.into_iter().map(|numbered| numbered.content).collect()
}

#[cfg(test)]
mod commgauge_tests {

    use super::*;

    const SAMPLE: &str = include_str!("../../../tests/data/sample-record.jsonl");

    fn renewed(text: &str) -> Result<Renewed> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r.jsonl");
        std::fs::write(&path, text).unwrap();
        read(&path)
    }

    #[test]
    fn files_that_are_no_record_or_newer_are_refused() {
        for (text, expected) in [
            (String::new(), "holds no complete line"),
            ("size,count\n1,2\n".to_owned(), "is not a commgauge record"),
            (SAMPLE.replacen("\"version\":1", "\"version\":7", 1), "is a record of version 7"),
            (SAMPLE.lines().skip(1).map(|line| line.to_owned() + "\n").collect(), "is not a commgauge record"),
        ] {
            let error = renewed(&text).unwrap_err();
            assert!(error.exit_code() == 2 && error.to_string().contains(expected), "{error}");
        }
    }

    #[test]
    fn every_unreadable_line_is_reported_with_its_number() {
        let mut lines: Vec<String> = SAMPLE.lines().map(str::to_owned).collect();
        let foreign = lines[5].replacen("\"case\":", "\"case\":4000", 1);
        lines[4] = "{\"line\":\"case\",".to_owned();
        lines[5] = foreign;
        lines[7] = "poem".to_owned();
        let text = lines.join("\n") + "\n{\"line\":\"ca";
        let found = renewed(&text).unwrap();
        let numbers: Vec<u64> = found.bad_lines.iter().map(|line| line.number).collect();
        assert_eq!(numbers, [5, 6, 8, lines.len() as u64 + 1], "{:?}", found.bad_lines);
        assert!(found.bad_lines[3].problem.starts_with("torn"), "{:?}", found.bad_lines);
        assert_eq!(found.lines.len(), lines.len() - 3);
    }

    #[test]
    fn a_complete_record_is_unchanged_but_for_an_id_that_others_may_have() {
        let found = renewed(SAMPLE).unwrap();
        let mut original: Vec<Line> = SAMPLE.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let Line::Header(header) = &mut original[0] else { unreachable!() };
        header.identify(SAMPLE.lines().next().unwrap().as_bytes());
        header
            .notes
            .push("the record was written by an older commgauge: it carries no digest that would show changes".into());
        assert_eq!((&found.lines, found.version, found.cut_off), (&original, VERSION, false));
        assert!(found.bad_lines.is_empty());
    }

    #[test]
    fn the_copy_of_an_edited_record_says_that_it_was_edited() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r.jsonl");
        let mut journal = commgauge_model::record::Journal::create(&path).unwrap();
        for line in SAMPLE.lines() {
            journal.write(&serde_json::from_str(line).unwrap()).unwrap();
        }
        journal.finish().unwrap();
        let whole = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, whole.replacen("\"seed\":", "\"seed\":1", 1)).unwrap();
        let Line::Header(header) = &read(&path).unwrap().lines[0] else { panic!("no header") };
        let last = header.warnings.last().map_or("", String::as_str);
        assert!(last.contains("was changed after it was written: the digest of line 1"), "{last}");
    }

    #[test]
    fn a_record_without_an_end_stays_one() {
        let text: String = SAMPLE.lines().take(6).map(|line| line.to_owned() + "\n").collect();
        assert!(renewed(&text).unwrap().cut_off);
    }
}

#[cfg(test)]
mod corrupt_input {
    // Torn and hostile files for the tests of the readers of text.
    use super::imported::{Imported, Origin, record_lines};
    use commgauge_model::record::line::ForeignTool;
    use proptest::prelude::*;

    /// Samples, truncated, with repeated lines, and with inserted bytes and words that often break column parsers.
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

    /// Every row is valid, every bad line has a number, and all rows together form a record.
    pub(super) fn assert_consistent(imported: &Imported) {
        for row in &imported.rows {
            assert!(row.ranks > 0 && row.latency.0 > 0.0 && row.latency.0.is_finite(), "{row:?}");
        }
        assert!(imported.bad_lines.iter().all(|line| line.number > 0 && !line.problem.is_empty()));
        assert!(record_lines("run", &Origin::of(ForeignTool::Csv, &[]), &imported.rows).len() >= 3);
    }
}
