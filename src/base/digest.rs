//! SHA-256 as shown in records. The caller decides what to hash.

use sha2::{Digest, Sha256};
use std::io::{BufRead, BufReader, Read};

/// Size of the read buffer.
const BUFFER_BYTES: usize = 128 * 1024;

/// SHA-256 of some bytes, in lowercase hexadecimal.
pub fn sha256(bytes: impl AsRef<[u8]>) -> String {
    hexadecimal(Sha256::new_with_prefix(bytes))
}

/// SHA-256 of everything that can be read, in lowercase hexadecimal.
///
/// # Errors
/// The first error of reading.
pub fn sha256_of(source: impl Read) -> std::io::Result<String> {
    let mut source = BufReader::with_capacity(BUFFER_BYTES, source);
    let mut hash = Sha256::new();
    loop {
        let bytes = source.fill_buf()?;
        if bytes.is_empty() {
            return Ok(hexadecimal(hash));
        }
        let count = bytes.len();
        hash.update(bytes);
        source.consume(count);
    }
}

/// The digest in lowercase hexadecimal.
pub fn hexadecimal(hash: Sha256) -> String {
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_standard_has_the_published_digest() {
        // FIPS 180-2, appendix B.1.
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256("abc"), expected);
        let mut hash = Sha256::new();
        hash.update("a");
        hash.update("bc");
        assert_eq!(hexadecimal(hash), expected);
    }

    #[test]
    fn what_is_read_in_pieces_has_the_digest_of_the_whole() {
        let bytes: Vec<u8> = (0..3 * BUFFER_BYTES + 5).map(|index| index as u8).collect();
        assert_eq!(sha256_of(&bytes[..]).unwrap(), sha256(&bytes));
        assert_eq!(sha256_of(std::io::empty()).unwrap(), sha256(""));
    }
}
