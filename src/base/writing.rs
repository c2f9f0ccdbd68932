//! Rows as comma-separated values in memory. The caller provides the cells and makes them harmless.

/// Like the macro of the standard library, which panics if standard error is closed.
#[macro_export]
macro_rules! eprintln {
    ($($text:tt)*) => {
        $crate::writing::print_line(::std::format_args!($($text)*))
    };
}

pub use crate::eprintln;

use crate::error::{Error, Result};
use crate::visible::visible_lines;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::BTreeSet;
use std::fmt::Arguments;
use std::io::Write;

/// Comma-separated values under construction.
pub struct CommaSeparated {
    what: &'static str,
    writer: csv::Writer<Vec<u8>>,
}

impl CommaSeparated {
    /// Begins with the row of names; `what` is for messages, such as `the pairs as CSV`.
    ///
    /// # Errors
    /// An environment error if memory is exhausted.
    pub fn new(what: &'static str, heading: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Result<CommaSeparated> {
        let mut text = CommaSeparated { what, writer: csv::Writer::from_writer(Vec::new()) };
        text.row(heading)?;
        Ok(text)
    }

    /// Adds a row.
    ///
    /// # Errors
    /// As [`CommaSeparated::new`]; and if the number of cells differs from the row of names.
    pub fn row(&mut self, cells: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Result<()> {
        self.writer.write_record(cells).map_err(|cause| failed(self.what, &cause.to_string()))
    }

    /// The text.
    ///
    /// # Errors
    /// As [`CommaSeparated::new`].
    pub fn finish(self) -> Result<String> {
        let bytes = self.writer.into_inner().map_err(|cause| failed(self.what, &cause.to_string()))?;
        String::from_utf8(bytes).map_err(|cause| failed(self.what, &cause.to_string()))
    }
}

fn failed(what: &str, cause: &str) -> Error {
    Error::environment(format!("cannot write {what}: {cause}"))
}

// Short lists in the order in which their members come first.

/// Every member once.
pub fn distinct<T: PartialEq>(all: impl IntoIterator<Item = T>) -> Vec<T> {
    all.into_iter().fold(Vec::new(), |mut found, one| {
        if !found.contains(&one) {
            found.push(one);
        }
        found
    })
}

/// Every member once, in ascending order.
pub fn ascending<T: Ord>(all: impl IntoIterator<Item = T>) -> Vec<T> {
    BTreeSet::from_iter(all).into_iter().collect()
}

/// The members of each key. The group of the latest member is looked at first, so that long runs of one key cost little.
pub fn grouped<K: PartialEq, T>(all: impl IntoIterator<Item = (K, T)>) -> Vec<(K, Vec<T>)> {
    let mut groups: Vec<(K, Vec<T>)> = Vec::new();
    for (key, one) in all {
        match groups.iter_mut().rev().find(|(known, _)| *known == key) {
            Some((_, members)) => members.push(one),
            None => groups.push((key, vec![one])),
        }
    }
    groups
}

// Ranks as text, short even for thousands: complete for programs, `0-3,8`, and abbreviated for readers, `ranks 0-3,
// 8`.

/// Maximum number of displayed ranges; beyond it only the number of ranks is shown.
const SHOWN_RANGES: usize = 6;

/// Ascending ranks, all of them: `0-3,8`.
pub fn ranges(ranks: &[u32]) -> String {
    runs(ranks).map(|run| text(run, "-")).collect::<Vec<_>>().join(",")
}

/// The ranks of a list such as `0-3,8`, as written by [`ranges`]; those before the first invalid one.
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

// Messages on standard error that never panic: the reader of a pipe may be gone (`2>&1 | head -1`), a disk full.
//
// The program decides what follows from it: `commgauge run` ends its launch, everything else continues silently. Control characters of
// foreign names are escaped, so that no file or host affects the reader's terminal.

/// Prints a line on standard error with one write, so that lines of several ranks do not mix. Called by [`eprintln!`].
pub fn print_line(text: Arguments<'_>) {
    let line = format!("{}\n", visible_lines(&text.to_string()));
    // The message is lost.
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
}

/// Whether standard error is a pipe whose reader is gone.
pub fn is_unread() -> bool {
    let stderr = std::io::stderr();
    let mut asked = [PollFd::new(&stderr, PollFlags::empty())];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    // A terminal that hung up reports the same; its signal decides what follows.
    poll(&mut asked, Some(&at_once)).is_ok()
        && asked[0].revents().contains(PollFlags::ERR)
        && !asked[0].revents().contains(PollFlags::HUP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_of_another_length_is_refused_with_what_was_being_written() {
        let mut text = CommaSeparated::new("the pairs as CSV", ["a", "b"]).unwrap();
        let error = text.row(["1"]).unwrap_err();
        assert_eq!(error.exit_code(), 6);
        assert!(error.to_string().starts_with("cannot write the pairs as CSV: "), "{error}");
    }

    #[test]
    fn cells_with_commas_and_quotes_are_quoted() {
        let mut text = CommaSeparated::new("CSV", ["a", "b"]).unwrap();
        text.row(["1,5", "say \"x\""]).unwrap();
        assert_eq!(text.finish().unwrap(), "a,b\n\"1,5\",\"say \"\"x\"\"\"\n");
    }

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
