//! Long columns of numbers as one short text: LEB128, deflated, in base64.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use std::io::{Read, Write};

/// The base64 text of a zlib stream of these numbers, each in LEB128: seven bits a byte, the lowest first (DWARF 5, 7.6).
pub fn packed(numbers: impl IntoIterator<Item = u64>) -> String {
    let mut plain = Vec::new();
    for mut number in numbers {
        while number >= 0x80 {
            plain.push(number as u8 | 0x80);
            number >>= 7;
        }
        plain.push(number as u8);
    }
    let mut compressor = ZlibEncoder::new(Vec::new(), Compression::default());
    let compressed = compressor.write_all(&plain).and_then(|()| compressor.finish());
    STANDARD.encode(compressed.expect("memory takes what is written"))
}

/// The numbers of a text of [`packed`].
///
/// # Errors
/// What is wrong with the text, also if it does not hold this many numbers.
pub fn unpacked(text: &str, count: usize) -> Result<Vec<u64>, String> {
    let compressed = STANDARD.decode(text).map_err(|cause| format!("not base64: {cause}"))?;
    let mut plain = Vec::new();
    // A number takes at most ten bytes; one more shows that there are too many.
    let most = count as u64 * 10 + 1;
    let read = ZlibDecoder::new(compressed.as_slice()).take(most).read_to_end(&mut plain);
    read.map_err(|cause| format!("not a zlib stream: {cause}"))?;
    let mut numbers = Vec::with_capacity(count.min(plain.len()));
    for bytes in plain.split_inclusive(|byte| *byte < 0x80) {
        let number = bytes
            .iter()
            .rev()
            .try_fold(0u64, |number, byte| number.checked_mul(0x80).map(|number| number | u64::from(byte & 0x7f)));
        let is_whole = bytes.last().is_some_and(|byte| *byte < 0x80);
        numbers.push(number.filter(|_| is_whole).ok_or("a number is cut off or exceeds 64 bits")?);
    }
    match numbers.len() == count {
        true => Ok(numbers),
        false => Err(format!("found {} numbers, expected {count}", numbers.len())),
    }
}

/// A signed number as an unsigned one, small where the number is near 0: 0, -1, 1, -2 ... become 0, 1, 2, 3 ...
pub fn folded(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)) as u64
}

/// The number of [`folded`].
pub fn unfolded(folded: u64) -> i64 {
    (folded >> 1) as i64 ^ -((folded & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_as_they_were_and_broken_text_is_named() {
        let numbers = [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX];
        let text = packed(numbers);
        assert_eq!(unpacked(&text, 7).unwrap(), numbers);
        assert!(packed(vec![5; 10_000]).len() < 100, "repeated numbers take no room");
        let too_large = STANDARD.encode({
            let mut compressor = ZlibEncoder::new(Vec::new(), Compression::fast());
            compressor.write_all(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]).unwrap();
            compressor.finish().unwrap()
        });
        for (text, count, problem) in [
            (text.as_str(), 6, "found 7 numbers, expected 6"),
            (&text, 8, "found 7 numbers, expected 8"),
            ("&", 1, "not base64"),
            ("AAAA", 1, "not a zlib stream"),
            (&too_large, 2, "exceeds 64 bits"),
        ] {
            let error = unpacked(text, count).unwrap_err();
            assert!(error.contains(problem), "{text}: {error}");
        }
        for number in [0, -1, 1, -2, 12_345, i64::MIN, i64::MAX] {
            assert_eq!(unfolded(folded(number)), number);
        }
    }
}
