//! Harmed inputs: samples with bytes, words, lines and numbers changed, always the same ones for one seed and number.
//!
//! Which parser reads them is not known here.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeSet;

/// No input grows longer.
const LONGEST_BYTES: usize = 1 << 16;
/// Longest word that is taken from a sample.
const LONGEST_WORD_BYTES: usize = 40;

/// What hurts readers of numbers, texts and nested values.
const HURTFUL: [&str; 48] = [
    "",
    " ",
    "\n",
    "\r\n",
    "\t",
    "\0",
    "#",
    "0",
    "-0",
    "-1",
    "1",
    "2",
    "3",
    "255",
    "256",
    "65536",
    "2147483648",
    "4294967295",
    "4294967296",
    "9007199254740993",
    "18446744073709551615",
    "18446744073709551616",
    "170141183460469231731687303715884105728",
    "1e308",
    "1e-320",
    "1e400",
    "-1e308",
    "0.1",
    "NaN",
    "nan",
    "inf",
    "null",
    "true",
    "{",
    "}",
    "[",
    "]",
    "\"",
    "'",
    ":",
    ",",
    "=",
    "é",
    "\u{feff}",
    "\u{202e}",
    "99999999TiB",
    "0.0000001us",
    "[[[[[[[[[[[[[[[[",
];

/// Makes inputs from samples.
pub struct Mutator {
    samples: Vec<Vec<u8>>,
    words: Vec<Vec<u8>>,
    seed: u64,
}

impl Mutator {
    /// Uses the words of the samples themselves in addition to those that often break parsers.
    pub fn new(samples: Vec<Vec<u8>>, seed: u64) -> Mutator {
        let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-.".contains(byte);
        let own: BTreeSet<&[u8]> = samples
            .iter()
            .flat_map(|sample| sample.split(|byte| !is_word(byte)))
            .filter(|word| !word.is_empty() && word.len() <= LONGEST_WORD_BYTES)
            .collect();
        let words = own.into_iter().chain(HURTFUL.iter().map(|word| word.as_bytes())).map(<[u8]>::to_vec).collect();
        Mutator { samples, words, seed }
    }

    /// Writes the input with this number into `input`.
    pub fn make(&self, number: u64, input: &mut Vec<u8>) {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(self.seed.rotate_left(40) ^ number);
        input.clear();
        input.extend_from_slice(pick(&self.samples, &mut random));
        // Mostly a single change, so that the rest still makes sense to the parser.
        let changes = 1 + random.random::<u32>().trailing_zeros() as usize;
        for _ in 0..changes {
            self.change(input, &mut random);
        }
        input.truncate(LONGEST_BYTES);
    }

    fn change(&self, input: &mut Vec<u8>, random: &mut Xoshiro256PlusPlus) {
        let at = random.random_range(0..=input.len());
        let hurtful = &self.words[self.words.len() - HURTFUL.len()..];
        match random.random_range(0..12u32) {
            0 if at < input.len() => input[at] ^= 1 << random.random_range(0..8u32),
            1 => input.truncate(at),
            2 => drop(input.drain(at..(at + random.random_range(1..40usize)).min(input.len()))),
            3 => replace(input, at..at, pick(&self.words, random)),
            4 | 5 => replace(input, number_near(input, at), pick(hurtful, random)),
            6 | 7 => replace(input, word_near(input, at), pick(&self.words, random)),
            8 => drop(input.drain(line_at(input, at))),
            9 => {
                let line = input[line_at(input, at)].to_vec();
                let to = line_at(input, random.random_range(0..=input.len())).start;
                replace(input, to..to, &line);
            }
            10 => {
                let other = pick(&self.samples, random);
                let from = random.random_range(0..=other.len());
                let to = (from + random.random_range(0..400usize)).min(other.len());
                replace(input, at..at, &other[from..to]);
            }
            _ => {
                let part = input[at..(at + 60).min(input.len())].repeat(random.random_range(1..8usize));
                replace(input, at..at, &part);
            }
        }
    }
}

fn pick<'a>(from: &'a [Vec<u8>], random: &mut Xoshiro256PlusPlus) -> &'a [u8] {
    &from[random.random_range(0..from.len())]
}

fn replace(input: &mut Vec<u8>, range: std::ops::Range<usize>, by: &[u8]) {
    input.splice(range, by.iter().copied());
}

/// The first run of bytes of a kind from `at` on; empty at the end where there is none.
fn run_near(input: &[u8], at: usize, is_part: impl Fn(&u8) -> bool) -> std::ops::Range<usize> {
    let start = input[at..].iter().position(&is_part).map_or(input.len(), |found| at + found);
    let before = input[..start].iter().rev().take_while(|byte| is_part(byte)).count();
    let after = input[start..].iter().take_while(|byte| is_part(byte)).count();
    start - before..start + after
}

fn number_near(input: &[u8], at: usize) -> std::ops::Range<usize> {
    run_near(input, at, |byte| byte.is_ascii_digit() || b".-+".contains(byte))
}

fn word_near(input: &[u8], at: usize) -> std::ops::Range<usize> {
    run_near(input, at, |byte| byte.is_ascii_alphanumeric() || b"_-.".contains(byte))
}

fn line_at(input: &[u8], at: usize) -> std::ops::Range<usize> {
    let start = input[..at].iter().rposition(|byte| *byte == b'\n').map_or(0, |feed| feed + 1);
    let end = input[at..].iter().position(|byte| *byte == b'\n').map_or(input.len(), |feed| at + feed + 1);
    start..end
}
