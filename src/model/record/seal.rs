//! The digests that a record carries of itself: whether any line was changed, taken out or put in since it was written.
//!
//! Every line ends with the SHA-256 of the file up to there, the digests of the earlier lines included: a chain from the header on. It
//! detects accidents (an editor, a disk, a merge) and edits, not forgery: anyone with the program can rewrite all digests.

use commgauge_base::digest::hexadecimal;
use serde::Deserialize;
use serde::de::IgnoredAny;
use sha2::{Digest, Sha256};

/// The text before the digest, which is always the last key of a line; the digest and two characters follow.
const KEY: &[u8] = b",\"sha256\":\"";
/// Hexadecimal digits of SHA-256.
const DIGITS: usize = 64;

/// What the digests of a record say of its lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Seal {
    /// Every line is as it was written.
    #[default]
    Whole,
    /// Every line is as it was written, according to the digest of the end lines alone: an older version wrote the record.
    EndOnly,
    /// This many lines from the first on had no digest when the run was resumed: they may have been changed before.
    Unsealed(u64),
    /// No digest covers the last lines: an older version wrote the record.
    Absent,
    /// The digest of this line, counted from 1, does not fit, or is missing: this line was changed or set out in another way, or one
    /// before it was taken out or put in.
    Broken(u64),
}

impl Seal {
    /// That the record was changed, and where, as a sentence; none where the digests fit.
    pub fn tampering(self) -> Option<String> {
        match self {
            Seal::Broken(line) => Some(format!(
                "the record was changed after it was written: the digest of line {line} does not fit (that line was changed or set \
                 out in another way, or one before it was taken out or put in)"
            )),
            _ => None,
        }
    }

    /// What a reader should know of an unbroken record that is less than whole, as a sentence.
    pub fn note(self) -> Option<String> {
        let older = "the record was written by an older commgauge";
        match self {
            Seal::Whole | Seal::Broken(_) => None,
            Seal::EndOnly => Some(format!("{older}: one digest at its end covers it, and not each line")),
            Seal::Absent => Some(format!("{older}: it carries no digest that would show changes")),
            Seal::Unsealed(lines) => Some(format!(
                "{older} and resumed by this one: nothing shows whether its first {lines} lines were changed before that"
            )),
        }
    }
}

/// Writes the digests of a record.
#[derive(Clone, Default)]
pub(super) struct Sealing {
    digest: Sha256,
}

impl Sealing {
    /// The text of a line (a JSON object without line feed) as it is written, with its digest and a line feed.
    pub fn seal(&self, line: &[u8]) -> Vec<u8> {
        let open = line.strip_suffix(b"}").unwrap_or(line);
        let digest = hexadecimal(self.digest.clone().chain_update(open));
        [open, KEY, digest.as_bytes(), b"\"}\n"].concat()
    }

    /// Adds a line that was written, with its line feed.
    pub fn add(&mut self, line: &[u8]) {
        self.digest.update(line);
    }

    /// Adds a line that was read, and says whether its digest fits; none where it has no digest.
    fn check(&mut self, line: &[u8]) -> Option<bool> {
        let object = line.strip_suffix(b"\n").unwrap_or(line);
        let open = object.len().checked_sub(KEY.len() + DIGITS + 2);
        let digest = open.and_then(|open| object[open..].strip_prefix(KEY)?.strip_suffix(b"\"}"));
        let (open, tail) = line.split_at(open.filter(|_| digest.is_some()).unwrap_or(line.len()));
        self.digest.update(open);
        let fits = digest.map(|digest| digest == hexadecimal(self.digest.clone()).as_bytes());
        self.digest.update(tail);
        fits
    }
}

/// Checks the digests of a record that is read, line by line.
#[derive(Default)]
pub(super) struct Chain {
    sealing: Sealing,
    lines: u64,
    /// True from the first line on that carries a digest and is no end line: from there on all must.
    is_chained: bool,
    /// True where no digest covers the last line.
    is_open: bool,
    has_digest: bool,
    starts_chained: bool,
    unsealed: u64,
    broken: Option<u64>,
}

impl Chain {
    /// Adds the next line.
    pub fn add(&mut self, line: &[u8]) {
        let (is_end, is_resume) = (line.starts_with(END), line.starts_with(RESUME));
        if is_resume && self.is_open {
            self.unsealed = self.lines;
        }
        self.lines += 1;
        match self.sealing.check(line) {
            Some(fits) => {
                self.broken = self.broken.or((!fits).then_some(self.lines));
                self.starts_chained |= self.lines == 1;
                self.is_chained |= !is_end;
                (self.has_digest, self.is_open) = (true, false);
            }
            None if self.is_chained || names_digest(line) => self.broken = self.broken.or(Some(self.lines)),
            None => self.is_open = true,
        }
    }

    /// Adds a line feed that the last line lacks.
    pub fn add_line_feed(&mut self) {
        self.sealing.add(b"\n");
    }

    /// Lines so far.
    pub fn lines(&self) -> u64 {
        self.lines
    }

    /// What the digests say.
    pub fn seal(&self) -> Seal {
        match self.broken {
            Some(line) => Seal::Broken(line),
            None if self.unsealed > 0 => Seal::Unsealed(self.unsealed),
            None if self.is_open || !self.has_digest => Seal::Absent,
            None if self.starts_chained => Seal::Whole,
            None => Seal::EndOnly,
        }
    }

    /// Continues writing at the end of the record.
    pub fn into_sealing(self) -> Sealing {
        self.sealing
    }
}

/// Whether a line that does not end with a digest has one all the same: a program read it and wrote it in its own way. Nothing then
/// shows whether that is all that it changed.
fn names_digest(line: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Keys {
        sha256: Option<IgnoredAny>,
    }
    serde_json::from_slice::<Keys>(line).is_ok_and(|line| line.sha256.is_some())
}

/// Lines without digests, as a run writes them.
#[cfg(test)]
pub(super) fn sealed(lines: &[&str]) -> String {
    let mut sealing = Sealing::default();
    let sealed = lines.iter().map(|line| {
        let text = sealing.seal(line.as_bytes());
        sealing.add(&text);
        String::from_utf8(text).unwrap()
    });
    sealed.collect()
}

/// How an end line begins, and a resume line.
pub(super) const END: &[u8] = b"{\"line\":\"end\",";
const RESUME: &[u8] = b"{\"line\":\"resume\",";

#[cfg(test)]
mod tests {
    use super::*;

    fn lines_of(lines: &[&str]) -> Vec<Vec<u8>> {
        sealed(lines).split_inclusive('\n').map(|line| line.as_bytes().to_vec()).collect()
    }

    fn seal_of(lines: &[Vec<u8>]) -> Seal {
        let mut chain = Chain::default();
        lines.iter().for_each(|line| chain.add(line));
        chain.seal()
    }

    const LINES: [&str; 4] = [
        r#"{"line":"header","a":1}"#,
        r#"{"line":"case","b":2}"#,
        r#"{"line":"case","b":3}"#,
        r#"{"line":"end","c":4}"#,
    ];

    #[test]
    fn no_byte_of_any_line_can_change_and_the_line_is_named() {
        let lines = lines_of(&LINES);
        // sha256sum of `{"line":"header","a":1`.
        let first = String::from_utf8(lines[0].clone()).unwrap();
        let digest = commgauge_base::digest::sha256(r#"{"line":"header","a":1"#);
        assert_eq!(first, format!("{{\"line\":\"header\",\"a\":1,\"sha256\":\"{digest}\"}}\n"));
        assert_eq!(seal_of(&lines), Seal::Whole);
        for index in 0..lines.len() {
            for at in 0..lines[index].len() - 1 {
                let mut harmed = lines.clone();
                harmed[index][at] ^= 1;
                let seal = seal_of(&harmed);
                // A header whose key is spoiled looks like one without digest; the next line then does not fit.
                let named = [Seal::Broken(index as u64 + 1), Seal::Broken(2)];
                assert!(named[..1 + usize::from(index == 0)].contains(&seal), "line {index}, byte {at}: {seal:?}");
            }
        }
    }

    #[test]
    fn lines_that_are_taken_out_doubled_or_swapped_are_noticed_where_they_were() {
        let lines = lines_of(&LINES);
        let without = |at: usize| [&lines[..at], &lines[at + 1..]].concat();
        assert_eq!(seal_of(&without(0)), Seal::Broken(1));
        assert_eq!(seal_of(&without(1)), Seal::Broken(2));
        let doubled = [&lines[..2], &lines[1..]].concat();
        assert_eq!(seal_of(&doubled), Seal::Broken(3));
        let swapped = [lines[0].clone(), lines[2].clone(), lines[1].clone(), lines[3].clone()];
        assert_eq!(seal_of(&swapped), Seal::Broken(2));
        assert_eq!(seal_of(&lines[..2]), Seal::Whole, "what is left of a record that was cut off is as it was written");
    }

    #[test]
    fn a_record_that_another_program_wrote_in_its_own_way_is_changed_and_not_old() {
        let set_out: [fn(&str) -> String; 3] = [
            // As Python's json.dumps does.
            |line| line.replace("\":", "\": ").replace(",\"", ", \""),
            |line| line.replace("}\n", " }\n"),
            // Keys in the order of letters.
            |line| {
                serde_json::from_str::<std::collections::BTreeMap<String, serde_json::Value>>(line)
                    .map(|keys| serde_json::to_string(&keys).unwrap() + "\n")
                    .unwrap()
            },
        ];
        for other in set_out {
            let lines: Vec<Vec<u8>> =
                sealed(&LINES).lines().map(|line| other(&format!("{line}\n")).into_bytes()).collect();
            assert_eq!(seal_of(&lines), Seal::Broken(1), "{}", String::from_utf8_lossy(&lines[0]));
        }
    }

    #[test]
    fn a_line_without_digest_among_others_is_broken_and_old_records_are_distinguished_from_new_ones() {
        let new = lines_of(&LINES);
        let plain = |line: &str| format!("{line}\n").into_bytes();
        let mut stripped = new.clone();
        stripped[2] = plain(LINES[2]);
        assert_eq!(seal_of(&stripped), Seal::Broken(3));
        let old: Vec<Vec<u8>> = LINES.iter().map(|line| plain(line)).collect();
        assert_eq!(seal_of(&old), Seal::Absent);
        // An older version wrote the digest of the end line alone.
        let mut chain = Chain::default();
        old[..3].iter().for_each(|line| chain.add(line));
        let end = chain.sealing.seal(LINES[3].as_bytes());
        let ended = [&old[..3], &[end]].concat();
        assert_eq!(seal_of(&ended), Seal::EndOnly);
        let mut changed = ended.clone();
        changed[1][10] ^= 1;
        assert_eq!(seal_of(&changed), Seal::Broken(4));
        // Cut off and resumed: nothing covered its lines when they were read again.
        let resume = r#"{"line":"resume","d":5}"#;
        for (before, seal) in [(&old[..3], Seal::Unsealed(3)), (&ended[..], Seal::EndOnly), (&new[..3], Seal::Whole)] {
            let mut chain = Chain::default();
            before.iter().for_each(|line| chain.add(line));
            let mut lines = before.to_vec();
            for text in [resume, LINES[3]] {
                lines.push(chain.sealing.seal(text.as_bytes()));
                chain.add(&lines[lines.len() - 1].clone());
            }
            assert_eq!(seal_of(&lines), seal);
        }
    }
}
