//! The digest that a record carries of itself: whether any byte was changed since it was written.
//!
//! It detects accidents (an editor, a disk, a merge), not forgery: anyone who can write the file can also renew the digest.

use commgauge_base::digest::hexadecimal;
use sha2::{Digest, Sha256};

/// The text before the digest in the last line; the digest and two characters follow.
const KEY: &[u8] = b",\"sha256\":\"";
/// Hexadecimal digits of SHA-256.
const DIGITS: usize = 64;

/// Result of checking the digest of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seal {
    /// The record is unchanged since it was written.
    Whole,
    /// The record has no digest: it was cut off, or written by an older version.
    Absent,
    /// The record was changed.
    Broken,
}

/// Computes the digest of a record line by line.
#[derive(Clone, Default)]
pub(super) struct Sealing {
    digest: Sha256,
}

impl Sealing {
    /// Adds the next line, including its line feed.
    pub fn add(&mut self, line: &[u8]) {
        self.digest.update(line);
    }

    /// The text of the end line (without line feed) with the digest of everything before the key.
    pub fn seal(&self, end: &[u8]) -> Vec<u8> {
        let open = end.strip_suffix(b"}").unwrap_or(end);
        [open, KEY, self.over(open).as_bytes(), b"\"}"].concat()
    }

    /// Checks the digest of an end line against the lines before it.
    pub fn check(&self, end: &[u8]) -> Seal {
        let end = end.strip_suffix(b"\n").unwrap_or(end);
        let tail = KEY.len() + DIGITS + 2;
        let Some((open, tail)) = end.len().checked_sub(tail).map(|at| end.split_at(at)) else { return Seal::Absent };
        match tail.strip_prefix(KEY).and_then(|tail| tail.strip_suffix(b"\"}")) {
            None => Seal::Absent,
            Some(digest) if digest == self.over(open).as_bytes() => Seal::Whole,
            Some(_) => Seal::Broken,
        }
    }

    fn over(&self, open: &[u8]) -> String {
        hexadecimal(self.digest.clone().chain_update(open))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_text_is_whole_and_no_byte_of_it_can_change() {
        let mut sealing = Sealing::default();
        sealing.add(b"{\"a\":1}\n");
        let end = sealing.seal(b"{\"end\":2}");
        // sha256sum of `{"a":1}`, line feed, `{"end":2`.
        let text = String::from_utf8(end.clone()).unwrap();
        assert!(text.starts_with("{\"end\":2,\"sha256\":\"") && text.ends_with("\"}"), "{text}");
        assert_eq!(sealing.check(&end), Seal::Whole);
        for at in 0..end.len() {
            let mut other = end.clone();
            other[at] ^= 1;
            assert_ne!(sealing.check(&other), Seal::Whole, "byte {at}");
        }
        assert_eq!(sealing.check(b"{\"end\":2}"), Seal::Absent);
        assert_eq!(sealing.check(b"{}"), Seal::Absent);
        sealing.add(b"one line more\n");
        assert_eq!(sealing.check(&end), Seal::Broken);
    }
}
